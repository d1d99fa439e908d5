"""Reading what a completions server sends: raw text, of one or more choices. ``chunk_of`` reads it as content of chat
chunks; ``text_chunk_of`` as what it is. Neither refuses anything; see chat's reader for what is taken for what.

text                      content
logprobs                  the four parallel arrays, an entry for each token
prompt_token_ids          of the first choice that has them: of the chunk
everything else           as in chat
"""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

from stages.events import ErrorChunk
from stages.protocols.lenient import (
    as_float,
    as_int,
    as_ints,
    as_list,
    as_object,
    as_objects,
    as_text,
    or_unset,
)
from stages.protocols.openai_chat import ChatChunk, ChunkChoice
from stages.protocols.openai_chat import chunk_of as chat_chunk_of
from stages.protocols.openai_completions.chunks import CompletionChunk, TextChoice, TextLogprobs


def chunk_of(value: Any) -> ChatChunk | ErrorChunk:
    """One event's JSON value, or a whole body: the two have the same shape."""
    if not isinstance(value, dict):
        return chat_chunk_of(value)
    wire = as_object(value)
    choices = as_objects(wire.get("choices"))
    ids = next((choice["prompt_token_ids"] for choice in choices if choice.get("prompt_token_ids")), None)
    return chat_chunk_of({**wire, "choices": [_choice(choice) for choice in choices], "prompt_token_ids": ids})


def text_chunk_of(value: Any) -> CompletionChunk | ErrorChunk:
    """One event's JSON value, as the protocol has it. The four arrays are as long as the tokens."""
    chunk = chunk_of(value)
    if isinstance(chunk, ErrorChunk):
        return chunk
    wires = as_objects(as_object(value).get("choices"))
    choices = tuple(_text_choice(choice, wire) for choice, wire in zip(chunk.choices, wires, strict=True))
    return CompletionChunk(
        chunk.id, chunk.created, chunk.model, chunk.system_fingerprint, choices, chunk.usage, chunk.metrics
    )


def _text_choice(choice: ChunkChoice, wire: dict[str, Any]) -> TextChoice:
    logprobs = wire.get("logprobs")
    return TextChoice(
        choice.index,
        choice.delta.content or "",
        _logprobs(as_object(logprobs)) if isinstance(logprobs, dict) else None,
        choice.finish_reason,
        choice.stop_reason,
        choice.token_ids,
        or_unset(as_ints(wire.get("prompt_token_ids"))),
    )


def _logprobs(wire: dict[str, Any]) -> TextLogprobs:
    tokens = tuple(as_text(token) or "" for token in as_list(wire.get("tokens")))
    size = len(tokens)
    return TextLogprobs(
        tokens,
        tuple(as_float(number) for number in _sized(wire.get("token_logprobs"), size)),
        tuple(_numbers(top) for top in _sized(wire.get("top_logprobs"), size)),
        tuple(as_int(offset) or 0 for offset in _sized(wire.get("text_offset"), size)),
    )


def _sized(value: Any, size: int) -> list[Any]:
    found = as_list(value)
    return [*found[:size], *[None] * (size - len(found))]


def _numbers(value: Any) -> dict[str, float] | None:
    if not isinstance(value, dict):
        return None
    found = {as_text(token) or "": as_float(number) for token, number in as_object(value).items()}
    return {token: number for token, number in found.items() if number is not None}


def _choice(wire: dict[str, Any]) -> dict[str, Any]:
    logprobs = wire.get("logprobs")
    entries = {"content": _entries(as_object(logprobs))} if isinstance(logprobs, dict) else None
    return {**wire, "delta": {"content": as_text(wire.get("text"))}, "logprobs": entries}


def _entries(wire: dict[str, Any]) -> list[dict[str, Any]]:
    """Entries as chat has them. Alternatives are sorted: here they are keys of an object."""
    tokens = as_list(wire.get("tokens"))
    rows = zip_longest(tokens, as_list(wire.get("token_logprobs")), as_list(wire.get("top_logprobs")))
    return [
        {"token": token, "logprob": logprob, "top_logprobs": _top(as_object(top))}
        for (token, logprob, top), _ in zip(rows, tokens, strict=False)
    ]


def _top(wire: dict[str, Any]) -> list[dict[str, Any]]:
    found = [(number, token) for token, value in wire.items() if (number := as_float(value)) is not None]
    found.sort(key=_falling)
    return [{"token": token, "logprob": number} for number, token in found]


def _falling(pair: tuple[float, str]) -> float:
    return -pair[0]
