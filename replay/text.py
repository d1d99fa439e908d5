"""Events and values in words, for divergences and failures."""

from __future__ import annotations

import re
from enum import Enum
from typing import Any, Final

import msgspec

from stages.events import Block, Body, Comment, Event, Head, TokensInput

LONGEST = 160
"""Characters of an excerpt."""
MESSAGE = 2000
"""Characters of an exception's message."""
_BYTES: Final = re.compile("[\udc80-\udcff]+")
"""What ``surrogateescape`` makes of bytes that are no character."""


def describe(event: Any, at: int = 0) -> str:
    """An event on one line: its tag and its fields, long ones cut. Total: a foreign object gets its class name.

    ``at``: the byte of a frame that must be seen.
    """
    kind: type[Any] = event.__class__
    if isinstance(event, TokensInput):
        ids = f" ids={_cut(str(list(event.ids)))}" if event.ids else ""
        return f"tokens choice={event.choice}{ids} {_cut(repr(written(event)))}"
    if isinstance(event, Head):
        return f"head {event.status} {_cut(str(dict(event.headers)))}"
    if isinstance(event, Block | Body | Comment):
        return f"{_tag(kind)} {excerpt(event.data.decode('utf-8', 'replace'), at)}"
    if isinstance(event, msgspec.Struct):
        return f"{_tag(kind)} {_fields(event)}".rstrip()
    return kind.__name__


def written(event: TokensInput) -> str:
    """What a step wrote: its bytes as text where they are known, else the text that the engine released."""
    return b"".join(event.pieces).decode("utf-8", "replace") if event.pieces else event.text


def excerpt(text: str, at: int = 0) -> str:
    """Text around a position, quoted, cut on both sides to at most LONGEST characters."""
    before, part, after = _around(text, at)
    return before + repr(part) + after


def plain_excerpt(text: str, at: int = 0) -> str:
    """Text around a position as it is, cut like ``excerpt``."""
    return sound("".join(_around(text, at)))


def sound(text: str) -> str:
    """The text as what JSON and a terminal can take: unpaired surrogates are escaped."""
    return text.encode("utf-8", "backslashreplace").decode()


def complaint(error: BaseException) -> str:
    """An exception's message, cut where it is long. Total: a user's need not be able to say what it is."""
    try:
        message = str(error)
    except Exception as raised:  # a user's exception may do anything to say what it is
        return f"(its message cannot be told: {type(raised).__name__})"
    return sound(message if len(message) <= MESSAGE else message[:MESSAGE] + "…")


def printable(text: str) -> str:
    """The text without quotes, on one line: what would move the cursor is escaped."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def readable(data: bytes) -> list[tuple[str, bool]]:
    """What was written, in runs: (text, True), and (bytes that are no whole character, in hexadecimal, False)."""
    text = data.decode("utf-8", "surrogateescape")
    made: list[tuple[str, bool]] = []
    at = 0
    for found in _BYTES.finditer(text):
        made += [(text[at : found.start()], True)] if at < found.start() else []
        made.append((found[0].encode("utf-8", "surrogateescape").hex(" "), False))
        at = found.end()
    return [*made, (text[at:], True)] if at < len(text) else made


def _around(text: str, at: int) -> tuple[str, str, str]:
    start = max(0, min(at - LONGEST // 3, len(text) - LONGEST))
    end = min(len(text), start + LONGEST)
    return "…" if start else "", text[start:end], "…" if end < len(text) else ""


def first_difference(a: str, b: str) -> int:
    """The first position at which two texts differ; the length of the shorter where one begins with the other."""
    shorter = min(len(a), len(b))
    if a[:shorter] == b[:shorter]:
        return shorter
    low, high = 0, shorter
    while high - low > 1:
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"


def _value(value: Any) -> str:
    return str(value.value) if isinstance(value, Enum) else repr(value)


def tag(event: Any) -> str:
    """What an event is called: its tag; of a foreign object, its class name. Total."""
    kind: type[Any] = event.__class__
    return _tag(kind) if isinstance(event, msgspec.Struct) else kind.__name__


def _tag(kind: type[Any]) -> str:
    tag = kind.__struct_config__.tag
    return str(tag) if tag is not None else kind.__name__


def _fields(event: msgspec.Struct) -> str:
    if isinstance(event, Event):
        pairs = [(name, getattr(event, name, None)) for name in event.__struct_fields__]
        return " ".join(f"{name}={_cut(_value(value))}" for name, value in pairs if value not in (None, ()))
    # A protocol's chunk: as its JSON, but without the envelope that all chunks share.
    try:
        value: dict[str, Any] = msgspec.to_builtins(event)
        inner = {key: value[key] for key in ("choices", "usage") if key in value}
        return _cut(msgspec.json.encode(inner or value).decode())
    except Exception:  # a foreign Struct with fields of any kind
        return ""
