"""Accumulator: a stream's chunks → the message that the same request has without streaming. It makes our own answers to
requests that do not stream; how other servers' streams are read is in ``decode``."""

from __future__ import annotations

import copy

import msgspec
from msgspec import UNSET

from stages.protocols.anthropic.chunks import (
    Block,
    BlockDelta,
    BlockStart,
    Chunk,
    MessageBody,
    MessageDelta,
    MessageStart,
    MessageUsage,
    SignatureDelta,
    Stopped,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    ToolUseBlock,
    input_of,
)
from stages.protocols.anthropic.partial import beginning


class BlockState(msgspec.Struct):
    """A block in the making. ``pieces``: of its text, or of its input."""

    start: Block
    pieces: list[str] = []
    signature: str = ""


class AccumulatorState(msgspec.Struct):
    """All that an Accumulator knows; plain data."""

    first: MessageBody | None = None
    blocks: list[BlockState] = []
    stopped: Stopped = Stopped(None)
    usage: MessageUsage = MessageUsage(output_tokens=0)


class Accumulator:
    """Collects the chunks of one of our own streams."""

    def __init__(self, state: AccumulatorState | None = None) -> None:
        self._state = AccumulatorState() if state is None else copy.deepcopy(state)

    def state(self) -> AccumulatorState:
        """A copy of what was collected so far, to continue from."""
        return copy.deepcopy(self._state)

    def add(self, chunk: Chunk) -> None:
        """Take the next chunk. Raises nothing."""
        state = self._state
        if isinstance(chunk, MessageStart):
            state.first = chunk.message
            state.usage = chunk.message.usage
        elif isinstance(chunk, BlockStart):
            state.blocks.append(BlockState(chunk.content_block))
        elif isinstance(chunk, BlockDelta):
            if 0 <= chunk.index < len(state.blocks):
                _add(state.blocks[chunk.index], chunk)
        elif isinstance(chunk, MessageDelta):
            state.stopped = chunk.delta
            state.usage = _newer(state.usage, chunk.usage)

    def message(self) -> MessageBody:
        """What was collected so far as one object. An input that is no JSON object, as of a call that was cut off,
        holds what can be read of it; the reason to stop tells so."""
        state = self._state
        first = state.first or MessageBody("", "")
        blocks = tuple(map(_block, state.blocks))
        return MessageBody(
            first.id, first.model, blocks, state.stopped.stop_reason, state.stopped.stop_sequence, state.usage
        )


def _add(block: BlockState, chunk: BlockDelta) -> None:
    delta = chunk.delta
    if isinstance(delta, SignatureDelta):
        block.signature = delta.signature
    elif isinstance(delta, TextDelta):
        block.pieces.append(delta.text)
    elif isinstance(delta, ThinkingDelta):
        block.pieces.append(delta.thinking)
    else:
        block.pieces.append(delta.partial_json)


def _newer(old: MessageUsage, new: MessageUsage) -> MessageUsage:
    """Counts are totals; what is not told again stays."""
    told = {name: value for name in new.__struct_fields__ if (value := getattr(new, name)) is not UNSET}
    return msgspec.structs.replace(old, **told)


def _block(block: BlockState) -> Block:
    text = "".join(block.pieces)
    if isinstance(block.start, TextBlock):
        return TextBlock(text)
    if isinstance(block.start, ThinkingBlock):
        return ThinkingBlock(text, block.signature)
    return ToolUseBlock(block.start.id, block.start.name, input_of(text) or beginning(text))
