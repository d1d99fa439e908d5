"""Reading: a body, cut into the blocks of an event stream, each with its place, its text and its JSON value.

It reads as the WHATWG HTML Standard does (``stages.sse`` is the decoder that streams), and keeps what the decoder
throws away: byte offsets, comments, unknown fields, the blocks that deliver nothing, the unfinished end.

Frame numbers: a block is what an empty line closes, a comment too, and blocks count from 0. Empty lines that close
nothing (in front, doubled, or all that there is) are no blocks and take no numbers.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from stages.protocols.rules.values import array, obj
from stages.strict import Json, parse, parse_utf8

T = TypeVar("T")
BOM = b"\xef\xbb\xbf"
_STREAM_LINE = re.compile(rb"[\r\n]*(?::|data:|event:|id:|retry:)")
_FIELDS = (b"data:", b"event:", b"id:", b"retry:")
_SOMETHING = re.compile(rb"[^\r\n]")
_LINE_END = re.compile(rb"\r\n|\r|\n")
_STRING = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
_DELTA = re.compile(
    rb'"delta":\{(?:"\w+":(?P<text>' + _STRING + rb')(?:,"\w+":(?P<again>(?P=text)))?\}'
    rb'|"tool_calls":\[\{"index":\d+,"function":\{"arguments":(?P<arguments>' + _STRING + rb")\}\}\]\})"
)
_decode = msgspec.json.Decoder().decode
_decode_text = msgspec.json.Decoder(str).decode
_encode = msgspec.json.Encoder().encode


class Event(msgspec.Struct, gc=False):
    """One block. ``number``: its frame number; ``byte``: offset of its first byte; ``name``: of its ``event`` field,
    None without one; ``text``: its joined data lines, None without any; ``value``: the JSON value of ``text``, UNSET
    where it is none (then ``problem`` says why); ``lines``: offset and bytes of each line, only for a block that is
    anything else than one ``data: `` line (or that line behind one ``event: `` line). ``said``: not empty in a strict
    chat completion chunk that is like the event before it but for this text of its delta, as most are; its value is
    read when somebody asks."""

    number: int
    byte: int
    name: str | None
    text: str | None
    read: Json | UnsetType = UNSET
    problem: str | None = None
    lines: tuple[tuple[int, bytes], ...] = ()
    said: str = ""

    @property
    def value(self) -> Json | UnsetType:
        """See the class."""
        if not self.said:
            return self.read
        found: Json = _decode(self.text or "")
        return found


class Reading:
    """A body, read. ``blocks``: every block that an empty line closed, comments too; ``events``: of these, the ones
    that a client is delivered; ``chunks``: of these, the JSON objects; ``tail``: offset and bytes of what no empty line
    closed (empty: nothing); ``bad_utf8``: offset of the first malformed byte, or None."""

    def __init__(self, body: bytes, first: int = 0) -> None:
        self.body = body
        self._first = first
        self.blocks, self.tail = cut(body, first)
        self.bad_utf8 = _bad_utf8(body)
        self._views: dict[Any, Any] = {}

    def view(self, make: Callable[[Reading], T]) -> T:
        """What ``make`` makes of this body, made once: what several rules read is digested once."""
        found: T | None = self._views.get(make)
        if found is None:
            found = self._views[make] = make(self)
        return found

    @cached_property
    def events(self) -> list[Event]:
        """Blocks with data."""
        return [block for block in self.blocks if block.text is not None]

    @cached_property
    def singular(self) -> list[Event]:
        """Events that are like no other: all but chunks that are known to be strict."""
        return [event for event in self.events if not event.said]

    @cached_property
    def chunks(self) -> list[tuple[Event, dict[str, Any]]]:
        """Events that are JSON objects, with them."""
        found = ((event, event.value) for event in self.events)
        return [(event, value) for event, value in found if isinstance(value, dict)]

    @cached_property
    def odd(self) -> list[Event]:
        """Blocks that have ``lines``."""
        return [block for block in self.blocks if block.lines]

    @cached_property
    def rest(self) -> Event:
        """The tail as an event: its place, and its lines that are ended (the last one may be half)."""
        begin, tail = self.tail
        number = self.blocks[-1].number + 1 if self.blocks else self._first
        return Event(number, begin, None, None, lines=tuple(line for line in lines_of(tail, begin) if line[1]))

    def around(self, byte: int) -> Event:
        """The block that a byte of the body is in, or the tail."""
        begin, tail = self.tail
        place = bisect_right(self.blocks, byte, key=_byte) - 1
        return self.blocks[max(place, 0)] if self.blocks and not (tail and byte >= begin) else self.rest


def _byte(block: Event) -> int:
    return block.byte


def _bad_utf8(body: bytes) -> int | None:
    try:
        body.decode()
    except UnicodeDecodeError as error:
        return error.start
    return None


def lines_of(body: bytes, offset: int = 0) -> Iterator[tuple[int, bytes]]:
    """Offset and bytes of every line that is ended, empty ones too."""
    at = 0
    for end in _LINE_END.finditer(body):
        yield offset + at, body[at : end.start()]
        at = end.end()


def opens(body: bytes) -> bool | None:
    """Whether the first line that is not empty is one of an event stream; None: there is no line, or so little of one
    that nobody can tell. A byte order mark is passed over."""
    begin = len(BOM) if body.startswith(BOM) else 0
    if _STREAM_LINE.match(body, begin):
        return True
    some = _SOMETHING.search(body, begin)
    begun = b"" if some is None else body[some.start() : some.start() + len("retry:")]
    return None if any(field.startswith(begun) for field in _FIELDS) else False


def closes(body: bytes, byte: int) -> int:
    """Where the block that begins at a byte ends: behind the next empty line, or with the body."""
    for end in _LINE_END.finditer(body, byte):
        if end.start() == byte:
            return end.end()
        byte = end.end()
    return len(body)


def cut(body: bytes, first: int) -> tuple[list[Event], tuple[int, bytes]]:
    """The closed blocks of a body, and its unfinished end."""
    if b"\r" in body or body.startswith(BOM):
        return _any_lines(body, first)
    blocks: list[Event] = []
    at = 0
    number = first
    mould: _Mould | None = None
    *pieces, tail = body.split(b"\n\n")
    for piece in pieces:
        end = at + len(piece)
        if piece[:1] == b"\n":
            piece = piece.lstrip(b"\n")
        if piece:
            # Nearly all blocks are one data line, or that behind an event line.
            event = None if mould is None else mould.take(number, end - len(piece), piece)
            if event is None:
                plain = piece[:6] == b"data: " and b"\n" not in piece
                byte = end - len(piece)
                event = _data_line(number, byte, None, piece[6:]) if plain else _lf_block(number, byte, piece)
                mould = _mould_of(event, piece) if plain else None
            blocks.append(event)
            number += 1
        at = end + 2
    tail = tail.lstrip(b"\n")
    return blocks, (len(body) - len(tail), tail)


class _Mould(msgspec.Struct, gc=False):
    """A block around its text: in front of it, behind it, and (where the text is there twice) between the two."""

    before: bytes
    between: bytes
    after: bytes

    def take(self, number: int, byte: int, piece: bytes) -> Event | None:
        """A block of the same form; None where it is none, or where its text is empty or not strict."""
        if not (piece.startswith(self.before) and piece.endswith(self.after)):
            return None
        said = piece[len(self.before) : -len(self.after)]
        if self.between:
            one = said[: (len(said) - len(self.between)) // 2]
            if said != one + self.between + one:
                return None
            said = one
        try:
            text = _decode_text(said)
        except ValueError:
            return None
        # What is written again as it was is strict: see stages.strict.
        strict = _encode(text) == said
        return Event(number, byte, None, piece[6:].decode(), said=text) if text and strict else None


def _mould_of(event: Event, piece: bytes) -> _Mould | None:
    """The form of a chat completion chunk whose delta has nothing but a text, or a fragment of arguments."""
    value = event.value
    if event.problem is not None or not isinstance(value, dict) or piece.count(b'"delta":{') != 1:
        return None
    # In strict JSON these bytes are never inside a string, so this is the delta.
    found = _DELTA.search(piece)
    choices = array(value.get("choices"))
    if found is None or len(choices) != 1 or "delta" not in obj(choices[0]):
        return None
    name = "text" if found["text"] is not None else "arguments"
    begin, end = found.span(name)
    if found["again"] is None:
        return _Mould(piece[:begin], b"", piece[end:])
    again, after = found.span("again")
    return _Mould(piece[:begin], piece[end:again], piece[after:])


def _lf_block(number: int, byte: int, piece: bytes) -> Event:
    lines = piece.split(b"\n")
    if len(lines) == 2 and lines[0][:7] == b"event: " and lines[1][:6] == b"data: ":
        return _data_line(number, byte, lines[0][7:].decode("utf-8", "replace"), lines[1][6:])
    placed: list[tuple[int, bytes]] = []
    at = byte
    for line in lines:
        placed.append((at, line))
        at += len(line) + 1
    return _block(number, byte, placed)


def _data_line(number: int, byte: int, name: str | None, data: bytes) -> Event:
    if data == b"[DONE]":
        return Event(number, byte, name, "[DONE]")
    try:
        text = data.decode()
        value, problem = parse_utf8(data)
    except UnicodeDecodeError:
        text = data.decode("utf-8", "replace")
        value, problem = parse(text)
    return Event(number, byte, name, text, value, problem)


def _any_lines(body: bytes, first: int) -> tuple[list[Event], tuple[int, bytes]]:
    blocks: list[Event] = []
    lines: list[tuple[int, bytes]] = []
    at = begin = len(BOM) if body.startswith(BOM) else 0
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
    data: list[str] = []
    for _, line in lines:
        field, _, value = line.decode("utf-8", "replace").partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            data.append(value)
        elif field == "event":
            name = value
    plain = len(lines) == 1 and lines[0][1].startswith(b"data: ")
    plain = plain or (len(lines) == 2 and lines[0][1].startswith(b"event: ") and lines[1][1].startswith(b"data: "))
    placed = () if plain else tuple(lines)
    if not data:
        return Event(number, byte, name, None, lines=placed)
    text = "\n".join(data)
    found, problem = (UNSET, None) if text == "[DONE]" else parse(text)
    return Event(number, byte, name, text, found, problem, placed)
