"""Reading what a completions server sends: raw text, of one or more choices, which is read as content of chat chunks.

text                      content
logprobs                  the four parallel arrays, an entry for each token
prompt_token_ids          of the first choice that has them: of the chunk
everything else           as in chat
"""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

from stages.events import ErrorChunk
from stages.protocols.lenient import as_float, as_list, as_object, as_objects, as_text
from stages.protocols.openai_chat import ChatChunk
from stages.protocols.openai_chat import chunk_of as chat_chunk_of


def chunk_of(value: Any) -> ChatChunk | ErrorChunk:
    """One event's JSON value, or a whole body: the two have the same shape."""
    if not isinstance(value, dict):
        return chat_chunk_of(value)
    wire = as_object(value)
    choices = as_objects(wire.get("choices"))
    ids = next((choice["prompt_token_ids"] for choice in choices if choice.get("prompt_token_ids")), None)
    return chat_chunk_of({**wire, "choices": [_choice(choice) for choice in choices], "prompt_token_ids": ids})


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
