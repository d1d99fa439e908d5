"""Reading: a body, cut into the blocks of an event stream, each with its place, its text and its JSON value.

It reads as the WHATWG HTML Standard does (``stages.sse`` is the decoder that streams), and keeps what the decoder throws
away: byte offsets, comments, unknown fields, the blocks that deliver nothing, the unfinished end.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from stages.protocols.rules.strict import Json, parse


_LINE_END = re.compile(rb"\r\n|\r|\n")


class Event(msgspec.Struct, gc=False):
    """One block. ``number``: its frame number; ``byte``: offset of its first byte; ``name``: of its ``event`` field, None
    without one; ``text``: its joined data lines, None without any; ``value``: the JSON value of ``text``, UNSET where it
    is none (then ``problem`` says why); ``lines``: offset and bytes of each line, only for a block that is anything else
    than one ``data: `` line (or that line behind one ``event: `` line)."""

    number: int
    byte: int
    name: str | None
    text: str | None
    value: Json | UnsetType = UNSET
    problem: str | None = None
    lines: tuple[tuple[int, bytes], ...] = ()


class Reading:
    """A body, read. ``blocks``: every block that an empty line closed, comments too; ``events``: of these, the ones that
    a client is delivered; ``chunks``: of these, the JSON objects; ``tail``: offset and bytes of what no empty line closed
    (empty: nothing); ``bad_utf8``: offset of the first malformed byte, or None."""

    def __init__(self, body: bytes, first: int = 0) -> None:
        self.body = body
        self.blocks, self.tail = cut(body, first)
        self.bad_utf8 = _bad_utf8(body)

    @cached_property
    def events(self) -> list[Event]:
        """Blocks with data."""
        return [block for block in self.blocks if block.text is not None]

    @cached_property
    def chunks(self) -> list[tuple[Event, dict[str, Any]]]:
        """Events that are JSON objects, with them."""
        return [(event, event.value) for event in self.events if isinstance(event.value, dict)]


def _bad_utf8(body: bytes) -> int | None:
    try:
        body.decode()
    except UnicodeDecodeError as error:
        return error.start
    return None


def cut(body: bytes, first: int) -> tuple[list[Event], tuple[int, bytes]]:
    """The closed blocks of a body, and its unfinished end. An empty line that closes nothing is no block."""
    blocks: list[Event] = []
    lines: list[tuple[int, bytes]] = []
    at = begin = 3 if body.startswith(b"\xef\xbb\xbf") else 0
    for end in _LINE_END.finditer(body, at):
        line = body[at : end.start()]
        if line:
            lines.append((at, line))
        elif lines:
            blocks.append(_block(first + len(blocks), begin, lines))
            lines = []
        at = end.end()
        if not lines:
            begin = at
    return blocks, (begin, body[begin:])


def _block(number: int, byte: int, lines: list[tuple[int, bytes]]) -> Event:
    name: str | None = None
    data: list[str] | None = None
    for _, line in lines:
        field, _, value = line.decode("utf-8", "replace").partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            data = [value] if data is None else [*data, value]
        elif field == "event":
            name = value
    text = None if data is None else "\n".join(data)
    value, problem = (UNSET, None) if text is None or text == "[DONE]" else parse(text)
    plain = len(lines) == 1 and lines[0][1].startswith(b"data: ")
    plain = plain or (len(lines) == 2 and lines[0][1].startswith(b"event: ") and lines[1][1].startswith(b"data: "))
    return Event(number, byte, name, text, value, problem, () if plain else tuple(lines))
