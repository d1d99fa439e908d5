"""The encoder: semantic events → the events of a message.

    Start                  message_start, with the prompt's size
    Reasoning              a thinking block: thinking_delta
    Content, Refusal       a text block: text_delta
    CallStart              a tool_use block
    CallArguments          input_json_delta
    CallEnd                the block stops
    Finish                 the open block stops
    Usage                  message_delta, with the reason to stop; before it, where there is no block, an empty text one
    End                    message_stop, or (not streaming) the message
    Failure                the open block stops; error; nothing at all if the client is gone
    Tokens                 counted, for a stream that brings no usage
    Marker, Dropped, Fault, Echo, TimingInput   nothing
    Tick                   Tick while streaming

A block stops when one of another kind begins; before a thinking block stops comes its signature, which is a hash of the
response's id and the block's index: it proves nothing, and any is taken back. Where the request wants thinking without
its text (``display: omitted``), a thinking block has its signature only; where it wants none, there is no block.

A message has one choice: what others say is left out. So is what has no place: arguments of no open call, anything
after Finish or End, empty text. Where the model ends its turn with a call that is not complete, or whose input is no
JSON object, ``max_tokens`` is the reason that the client is told: no other says that an input is not whole. The message
without streaming is the stream's, collected: it has the same reason then, and what can be read of the input.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from typing import Any, ClassVar, Literal, TypeAlias

import msgspec

from stages.events import (
    CallArguments,
    CallEnd,
    CallStart,
    CommonChunk,
    Content,
    End,
    ErrorChunk,
    Failure,
    Finish,
    Reasoning,
    Refusal,
    Semantic,
    Start,
    Tick,
    Tokens,
    Usage,
)
from stages.opening import Opening
from stages.protocols.anthropic.accumulate import Accumulator, AccumulatorState
from stages.protocols.anthropic.chunks import (
    Block,
    BlockDelta,
    BlockStart,
    BlockStop,
    Chunk,
    Delta,
    InputDelta,
    MessageBody,
    MessageDelta,
    MessageStart,
    MessageStop,
    MessageUsage,
    OutputDetails,
    SignatureDelta,
    Stopped,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    ToolUseBlock,
    error_body,
    error_chunk,
    error_event,
    input_of,
)
from stages.protocols.anthropic.request import omits
from stages.stage import Machine

ChunkLayer: TypeAlias = Chunk | CommonChunk

Open: TypeAlias = Literal["", "text", "thinking", "tool_use"]
_LENGTHS = {"length": "max_tokens", "context": "model_context_window_exceeded", "filter": "refusal"}


class Progress(msgspec.Struct):
    """The encoder's state.

    ``sent``: a byte may be out; ``started``: message_start is; ``open``: the kind of the open block; ``blocks``: how
    many began; ``call``: the semantic index of the open call, ``input``: its arguments so far; ``calls``, ``broken``:
    how many there are, and that are not complete; ``refused``: there was refusal text;
    ``prompt``, ``cached``: as message_start told; ``tokens``: of the output so far; ``stopped``: the choice has
    finished, so; ``told``: message_delta is out.
    """

    sent: bool = False
    started: bool = False
    open: Open = ""
    blocks: int = 0
    call: int = -1
    input: list[str] = []
    calls: int = 0
    broken: int = 0
    refused: bool = False
    prompt: int = 0
    cached: int = 0
    tokens: int = 0
    stopped: Stopped | None = None
    told: bool = False
    ended: bool = False


class MessagesSnapshot(msgspec.Struct, frozen=True):
    """``message``: what was collected, when not streaming."""

    progress: Progress
    message: AccumulatorState | None = None


class _Streaming:
    """The machine of ``stream: true``."""

    def __init__(self, opening: Opening, snapshot: MessagesSnapshot | None = None) -> None:
        self._id = opening.response_id
        self._model = opening.model
        self._thinking = opening.ask.include_reasoning
        self._text = self._thinking and not omits(opening.request)
        self._state = Progress() if snapshot is None else _copied(snapshot.progress)

    def snapshot(self) -> MessagesSnapshot:
        """See Machine."""
        return MessagesSnapshot(_copied(self._state))

    def step(self, event: Semantic, out: list[ChunkLayer]) -> None:
        """See Machine."""
        handler = self._handlers.get(event.__class__)
        if handler is not None and not self._state.ended and not getattr(event, "choice", 0):
            handler(self, event, out)

    def forget(self) -> None:
        """Nothing of what it made was sent."""
        self._state.sent = False

    # --- blocks

    def _begin(self, out: list[ChunkLayer], prompt: int = 0, cached: int = 0) -> bool:
        """message_start, unless it is out. Returns whether a block has a place."""
        state = self._state
        if not state.started:
            state.started = state.sent = True
            state.prompt, state.cached = prompt, cached
            out.append(
                MessageStart(
                    MessageBody(self._id, self._model, usage=_input(MessageUsage(output_tokens=0), prompt, cached))
                )
            )
        return state.stopped is None

    def _open(self, kind: Open, block: Block, out: list[ChunkLayer]) -> None:
        self._close(out)
        state = self._state
        state.open = kind
        out.append(BlockStart(state.blocks, block))
        state.blocks += 1

    def _close(self, out: list[ChunkLayer]) -> None:
        state = self._state
        if not state.open:
            return
        index = state.blocks - 1
        if state.open == "thinking":
            out.append(BlockDelta(index, SignatureDelta(_signature(self._id, index))))
        if state.open == "tool_use" and state.call >= 0:
            self._end_call(False)
        out.append(BlockStop(index))
        state.open = ""

    def _add(self, delta: Delta, out: list[ChunkLayer]) -> None:
        out.append(BlockDelta(self._state.blocks - 1, delta))

    # --- one for each event

    def _on_start(self, event: Start, out: list[ChunkLayer]) -> None:
        self._begin(out, event.prompt_tokens, event.cached)

    def _on_tokens(self, event: Tokens, _out: list[ChunkLayer]) -> None:
        self._state.tokens += len(event.ids)

    def _on_reasoning(self, event: Reasoning, out: list[ChunkLayer]) -> None:
        if not event.text or not self._begin(out) or not self._thinking:
            return
        if self._state.open != "thinking":
            self._open("thinking", ThinkingBlock(), out)
        if self._text:
            self._add(ThinkingDelta(event.text), out)

    def _on_text(self, event: Content | Refusal, out: list[ChunkLayer]) -> None:
        if not event.text or not self._begin(out):
            return
        if self._state.open != "text":
            self._open("text", TextBlock(), out)
        self._add(TextDelta(event.text), out)
        if event.__class__ is Refusal:
            self._state.refused = True

    def _on_call_start(self, event: CallStart, out: list[ChunkLayer]) -> None:
        if self._begin(out):
            self._open("tool_use", ToolUseBlock(event.id, event.name), out)
            self._state.call = event.index
            self._state.calls += 1

    def _end_call(self, complete: bool) -> None:
        state = self._state
        state.broken += not complete or input_of("".join(state.input)) is None
        state.call, state.input = -1, []

    def _on_call_arguments(self, event: CallArguments, out: list[ChunkLayer]) -> None:
        if event.text and self._called(event.index):
            self._state.input.append(event.text)
            self._add(InputDelta(event.text), out)

    def _on_call_end(self, event: CallEnd, out: list[ChunkLayer]) -> None:
        if self._called(event.index):
            self._end_call(event.complete)
            self._close(out)

    def _called(self, index: int) -> bool:
        return self._state.open == "tool_use" and self._state.call == index

    def _on_finish(self, event: Finish, out: list[ChunkLayer]) -> None:
        if not self._begin(out):
            return
        self._close(out)
        self._state.stopped = self._reason(event)

    def _reason(self, event: Finish) -> Stopped:
        state = self._state
        if event.reason in _LENGTHS:
            return Stopped(_LENGTHS[event.reason])
        if state.calls and not state.broken:
            return Stopped("tool_use")
        if event.reason == "stop" and isinstance(event.detail, str):
            return Stopped("stop_sequence", event.detail)
        if state.broken:
            return Stopped("max_tokens")
        return Stopped("refusal" if state.refused else "end_turn")

    def _on_usage(self, event: Usage, out: list[ChunkLayer]) -> None:
        usage = MessageUsage(output_tokens=event.completion, output_tokens_details=OutputDetails(event.reasoning))
        self._tell(_input(usage, event.prompt, event.cached), out)

    def _tell(self, usage: MessageUsage, out: list[ChunkLayer]) -> None:
        state = self._state
        if state.stopped is not None and not state.told:
            state.told = True
            if not state.blocks:
                self._open("text", TextBlock(), out)
                self._close(out)
            out.append(MessageDelta(state.stopped, usage))

    def _on_failure(self, event: Failure, out: list[ChunkLayer]) -> None:
        state = self._state
        state.ended = True
        if event.kind == "client_closed":
            return
        if state.sent:
            self._close(out)
            out.append(error_event(event.kind, event.message))
        else:
            chunk = error_chunk(event.kind, event.message)
            out.append(msgspec.structs.replace(chunk, body=error_body(chunk, chunk.status, self._id)))

    def _on_end(self, _event: End, out: list[ChunkLayer]) -> None:
        state = self._state
        self._begin(out)
        self._close(out)
        usage = MessageUsage(output_tokens=state.tokens, output_tokens_details=OutputDetails())
        self._tell(_input(usage, state.prompt, state.cached), out)
        out.append(MessageStop())
        state.ended = True

    def _on_tick(self, event: Tick, out: list[ChunkLayer]) -> None:
        self._state.sent = True
        out.append(event)

    _handlers: ClassVar[dict[type, Callable[[_Streaming, Any, list[ChunkLayer]], None]]] = {
        Start: _on_start,
        Tokens: _on_tokens,
        Reasoning: _on_reasoning,
        Content: _on_text,
        Refusal: _on_text,
        CallStart: _on_call_start,
        CallArguments: _on_call_arguments,
        CallEnd: _on_call_end,
        Finish: _on_finish,
        Usage: _on_usage,
        Failure: _on_failure,
        End: _on_end,
        Tick: _on_tick,
    }


class _Whole:
    """The machine of ``stream: false``: the streaming one, collected."""

    def __init__(self, opening: Opening, snapshot: MessagesSnapshot | None = None) -> None:
        self._inner = _Streaming(opening, snapshot)
        self._message = Accumulator(None if snapshot is None else snapshot.message)

    def snapshot(self) -> MessagesSnapshot:
        """See Machine."""
        return msgspec.structs.replace(self._inner.snapshot(), message=self._message.state())

    def step(self, event: Semantic, out: list[ChunkLayer]) -> None:
        """See Machine."""
        if isinstance(event, Tick):
            return
        if isinstance(event, Failure):
            # Nothing is out yet, whatever the stream would have sent.
            self._inner.forget()
        chunks: list[ChunkLayer] = []
        self._inner.step(event, chunks)
        for chunk in chunks:
            if isinstance(chunk, ErrorChunk):
                out.append(chunk)
            elif isinstance(chunk, MessageStop):
                out.append(self._message.message())
            elif not isinstance(chunk, CommonChunk):
                self._message.add(chunk)


def _copied(progress: Progress) -> Progress:
    return msgspec.structs.replace(progress, input=[*progress.input])


def _input(usage: MessageUsage, prompt: int, cached: int) -> MessageUsage:
    return msgspec.structs.replace(
        usage, input_tokens=max(prompt - cached, 0), cache_creation_input_tokens=0, cache_read_input_tokens=cached
    )


def _signature(response_id: str, index: int) -> str:
    return base64.b64encode(hashlib.sha256(f"{response_id}:{index}".encode()).digest()).decode()


class MessagesEncoder:
    """The stage ``messages@3``."""

    id = "messages@3"

    def start(self, opening: Opening) -> Machine[Semantic, ChunkLayer]:
        """See Stage."""
        return _Streaming(opening) if opening.ask.stream else _Whole(opening)

    def resume(self, opening: Opening, snapshot: MessagesSnapshot) -> Machine[Semantic, ChunkLayer]:
        """See Stage."""
        return _Streaming(opening, snapshot) if opening.ask.stream else _Whole(opening, snapshot)


ENCODER = MessagesEncoder()
