"""Makings of richer streams than the golden ones, and small edits of streams."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, TypeAlias

from tests.support.wire import Elements, Stream, block

Edit: TypeAlias = Callable[[Elements], Any]
Fields: TypeAlias = dict[str, Any]


# --- edits ------------------------------------------------------------------------------------------------------------


def at(*path: Any) -> Edit:
    """Set what stands at a path, the last argument, in place."""
    *keys, last, value = path

    def edit(elements: Elements) -> None:
        place: Any = elements
        for key in keys:
            place = place[key]
        place[last] = value

    return edit


def out(place: int) -> Edit:
    """Take an element away."""
    return lambda elements: [*elements[:place], *elements[place:][1:]]


def put(place: int, *new: Any) -> Edit:
    """Put elements before the one at ``place``."""
    return lambda elements: [*elements[:place], *new, *elements[place:]]


def moved(place: int, to: int) -> Edit:
    """Take an element away, and put it before what then stands at ``to``."""

    def edit(elements: Elements) -> None:
        elements.insert(to, elements.pop(place))

    return edit


def twice(place: int) -> Edit:
    """An element, and at once the same again."""
    return lambda elements: [*elements[: place + 1], copy.deepcopy(elements[place]), *elements[place + 1 :]]


def both(*edits: Edit) -> Edit:
    """One edit behind another."""

    def edit(elements: Elements) -> Elements:
        for one in edits:
            made = one(elements)
            elements = elements if made is None else made
        return elements

    return edit


def of_type(stream: Stream, kind: str, nth: int = 0) -> int:
    """Where the nth element of a type stands (from behind: negative)."""
    found = [place for place, one in enumerate(stream.elements) if hasattr(one, "get") and one.get("type") == kind]
    return found[nth]


def there(base: Stream, kind: str, *path: Any, nth: int = 0) -> Edit:
    """As ``at``, in the nth element of a type."""
    return at(of_type(base, kind, nth), *path)


def nameless(stream: Stream, place: int) -> Stream:
    """The stream with one event's name taken away."""
    body = block(stream.protocol, stream.elements[place], place).partition(b"\n")[2]
    return stream.edited(at(place, body))


# --- messages ---------------------------------------------------------------------------------------------------------


def messaging(*middle: Fields, usage: Fields | None = None) -> Elements:
    """A message with elements in it."""
    counts = usage or {"input_tokens": 9, "output_tokens": 1}
    head: Fields = {
        "id": "msg_a1", "type": "message", "role": "assistant", "content": [], "model": "demo-1", "stop_reason": None,
        "stop_sequence": None, "usage": counts,
    }  # fmt: skip
    return [{"type": "message_start", "message": head}, *middle, {"type": "message_stop"}]


def blocked(index: int, start: Fields, *deltas: Fields) -> list[Fields]:
    """A content block."""
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def texting(index: int, *pieces: str) -> list[Fields]:
    """A text block."""
    deltas: list[Fields] = [{"type": "text_delta", "text": piece} for piece in pieces]
    return blocked(index, {"type": "text", "text": ""}, *deltas)


def using(index: int, id: str, name: str, *pieces: str, kind: str = "tool_use") -> list[Fields]:
    """A block that calls a tool."""
    deltas: list[Fields] = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    return blocked(index, {"type": kind, "id": id, "name": name, "input": {}}, *deltas)


def stopping(reason: str | None, stop: str | None = None, **usage: Any) -> Fields:
    """A message_delta."""
    delta = {"stop_reason": reason, "stop_sequence": stop}
    return {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 12, **usage}}


# --- completions ------------------------------------------------------------------------------------------------------


def said(index: int, text: str, finish: str | None = None, logprobs: Fields | None = None, **chunk: Any) -> Fields:
    """A chunk of a completion."""
    return {"choices": [{"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish}], **chunk}


def measured(tokens: list[str], values: list[float | None], offsets: list[int]) -> Fields:
    """The four arrays; the only alternative is the token itself."""
    top = [None if value is None else {token: value} for token, value in zip(tokens, values, strict=True)]
    return {"tokens": tokens, "token_logprobs": values, "top_logprobs": top, "text_offset": offsets}
