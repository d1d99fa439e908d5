"""There and back: the semantic events of a stream, and our own streams written again from them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import UNSET

from stages.events import Done, Frame, Semantic, Tick
from stages.opening import Ask, EngineFacts, Opening
from stages.protocols.openai_completions.chunks import CompletionChunk
from stages.protocols.openai_completions.decode import text_chunk_of
from stages.protocols.openai_completions.encoder import ENCODER, ChunkLayer
from stages.protocols.openai_completions.semantic import DECODER, Wire
from stages.sse import FRAMER
from stages.stage import fold

_ALL = 1 << 20
"""More alternatives than anybody tells."""


def opening_of(chunks: Iterable[Wire]) -> Opening:
    """An opening under which the encoder writes these chunks again: its envelope is theirs, and its Ask what they show
    that was asked. Each choice has a prompt of its own."""
    found = [chunk for chunk in chunks if isinstance(chunk, CompletionChunk)]
    first = found[0] if found else CompletionChunk("", 0, "")
    choices = [choice for chunk in found for choice in chunk.choices]
    n = max((choice.index + 1 for choice in choices), default=1)
    return Opening(
        session="", key=first.id, response_id=first.id, created=first.created, opened=0, model=first.model,
        protocol="completions",
        engine=EngineFacts(kind="upstream", model=first.model, fingerprint=first.system_fingerprint),
        ask=Ask(
            stream=True, n=n, prompts=n, echo=True,
            logprobs=any(choice.logprobs is not None for choice in choices),
            top_logprobs=_ALL,
            return_token_ids=any(choice.token_ids or choice.prompt_token_ids for choice in choices),
            include_usage=first.usage is not UNSET,
            continuous_usage=any(chunk.usage and chunk.choices for chunk in found),
            metrics=any(chunk.metrics for chunk in found),
        ),
    )  # fmt: skip


def semantic_of(chunks: Iterable[Wire]) -> list[Semantic]:
    """The semantic events of a stream of our own. An End behind the last chunk tells that the body has ended there."""
    wire = list(chunks)
    return fold(DECODER.start(opening_of(wire)), wire)


def reencoded(chunks: Iterable[Wire]) -> list[ChunkLayer]:
    """One of our own streams, decoded and encoded again: the same chunks. (Only an error's HTTP status may differ: no
    stream tells it.)"""
    wire = list(chunks)
    return fold(ENCODER.start(opening_of(wire)), semantic_of(wire))


def rewritten(values: Iterable[Any]) -> list[Frame]:
    """The events of one of our own streams (JSON values; [DONE] is UNSET), decoded and encoded again."""
    chunks = [Done() if value is UNSET else text_chunk_of(value) for value in values]
    # A stream that begins with a comment may have nothing but an error behind it: by itself that is no stream.
    return fold(FRAMER.start(opening_of(chunks)), [Tick(), *reencoded(chunks)])
