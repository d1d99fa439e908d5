"""There and back: the semantic events of a stream, and our own streams written again from them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import UNSET

from stages.events import Done, Frame, Semantic, Tick
from stages.opening import Ask, EngineFacts, Opening
from stages.protocols.openai_chat.chunks import ChatChunk
from stages.protocols.openai_chat.encoder import ENCODER, ChunkLayer
from stages.protocols.openai_chat.foreign import chunk_of
from stages.protocols.openai_chat.semantic import ChatDecoder, Wire
from stages.sse import FRAMER
from stages.stage import fold


def opening_of(chunks: Iterable[Wire]) -> Opening:
    """An opening under which the encoder writes these chunks again: its envelope is theirs, and its Ask what they show
    that was asked."""
    found = [chunk for chunk in chunks if isinstance(chunk, ChatChunk)]
    first = found[0] if found else ChatChunk("", 0, "")
    choices = [choice for chunk in found for choice in chunk.choices]
    deltas = [choice.delta for choice in choices]
    ids = any(choice.token_ids for choice in choices)
    prompt_ids = any(chunk.prompt_token_ids for chunk in found)
    names = [name for name in ("reasoning", "reasoning_content") if any(getattr(delta, name) for delta in deltas)]
    return Opening(
        session="", key=first.id, response_id=first.id, created=first.created, opened=0, model=first.model,
        engine=EngineFacts(kind="upstream", model=first.model, fingerprint=first.system_fingerprint),
        ask=Ask(
            stream=True,
            n=max((choice.index + 1 for choice in choices), default=1),
            logprobs=any(choice.logprobs is not None for choice in choices),
            top_logprobs=20,
            return_token_ids=ids or prompt_ids,
            # Reasoning that is hidden hides the ids of all tokens, but not those of the prompt.
            include_reasoning=ids or not prompt_ids or bool(names),
            include_usage=first.usage is not UNSET,
            continuous_usage=any(chunk.usage and chunk.choices for chunk in found),
            metrics=any(chunk.metrics for chunk in found),
            reasoning_field="reasoning" if names == ["reasoning"] else
            "reasoning_content" if names == ["reasoning_content"] else "both",
        ),
    )  # fmt: skip


def semantic_of(chunks: Iterable[Wire], *, own: bool = False) -> list[Semantic]:
    """The semantic events of a stream. An End behind the last chunk tells that the body has ended there."""
    wire = list(chunks)
    return fold(ChatDecoder(own=own).start(opening_of(wire)), wire)


def reencoded(chunks: Iterable[Wire]) -> list[ChunkLayer]:
    """One of our own streams, decoded and encoded again: the same chunks. (Only an error's HTTP status may differ: no
    stream tells it.)"""
    wire = list(chunks)
    return fold(ENCODER.start(opening_of(wire)), semantic_of(wire, own=True))


def rewritten(values: Iterable[Any]) -> list[Frame]:
    """The events of one of our own streams (JSON values; [DONE] is UNSET), decoded and encoded again."""
    chunks = [Done() if value is UNSET else chunk_of(value) for value in values]
    # A stream that begins with a comment may have nothing but an error behind it: by itself that is no stream.
    return fold(FRAMER.start(opening_of(chunks)), [Tick(), *reencoded(chunks)])
