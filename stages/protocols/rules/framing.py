"""Rules 10-25: the event stream itself, as bytes.

Clean bodies cost next to nothing: the blocks of an unusual shape are few, and whether there are any unusual bytes is
asked of the whole body at once.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise

from msgspec import UNSET

from stages.protocols.rules.case import Case, at, shown
from stages.protocols.rules.evidence import Need, Protocol
from stages.protocols.rules.reading import BOM, Event, Reading, closes, lines_of
from stages.protocols.rules.rule import Finding, Rules
from stages.sse import SseDecoder, SseEvent

_SMALL = 8 * 1024
"""Bytes of a body that is decoded byte by byte."""
_DELICATE = re.compile(rb"[\r\n\x80-\xff]")
RULES = Rules()
_WIDE = (b"data:  ", b"event:  ")
_TERMINALS: dict[Protocol, frozenset[str]] = {
    "responses": frozenset(("response.completed", "response.incomplete", "response.failed", "error")),
    "messages": frozenset(("message_stop", "error")),
}


def _line(case: Case, byte: int, seen: str) -> Finding:
    return Finding(case.reading.around(byte).number, byte, seen)


def _text(line: bytes) -> str:
    return shown(line[:200].decode("utf-8", "replace"))


def _field(line: bytes) -> bytes:
    return line.partition(b":")[0]


def _has(block: Event, field: bytes) -> bool:
    return any(_field(line) == field for _, line in block.lines)


def _lines(case: Case) -> Iterator[tuple[int, bytes]]:
    """The ended lines that a plain block does not have, in order."""
    for block in (*case.reading.odd, case.reading.rest):
        yield from block.lines


@RULES(10, "s_utf8", "E")
def s_utf8(case: Case) -> Iterator[Finding]:
    """The body is UTF-8 and does not end inside a character."""
    place = case.reading.bad_utf8
    if place is not None:
        yield _line(case, place, f"bytes {case.evidence.body[place : place + 4].hex(' ')}")


@RULES(11, "s_bom", "E")
def s_bom(case: Case) -> Iterator[Finding]:
    """The body does not start with a byte order mark."""
    if case.evidence.body.startswith(BOM):
        yield _line(case, 0, "EF BB BF in front")


@RULES(12, "s_lf", "O")
def s_lf(case: Case) -> Iterator[Finding]:
    """Lines end with LF only; there is no CR."""
    place = case.evidence.body.find(b"\r")
    if place >= 0:
        count = case.evidence.body.count(b"\r")
        yield _line(case, place, f"{count} CR, the first of them here")


@RULES(13, "s_end", "E")
def s_end(case: Case) -> Iterator[Finding]:
    """The body ends directly after an empty line."""
    begin, tail = case.reading.tail
    if tail:
        yield _line(case, begin, f"the end is pending: {_text(tail)}")


@RULES(14, "s_lines", "O")
def s_lines(case: Case) -> Iterator[Finding]:
    """Every line is empty or starts with ``:``, ``data: `` or ``event: ``."""
    if case.evidence.body.startswith(BOM):
        yield _line(case, 0, "a line that starts with a byte order mark")
    for byte, line in _lines(case):
        if line.startswith(_WIDE):
            yield _line(case, byte, f"two spaces in {_text(line)}")
        elif not line.startswith((b":", b"data: ", b"event: ")):
            yield _line(case, byte, f"the line {_text(line)}")
    for event in case.reading.singular:
        # A plain block shows the second space in what it says.
        if not event.lines and ((event.text or "")[:1] == " " or (event.name or "")[:1] == " "):
            block = case.reading.body[event.byte : closes(case.reading.body, event.byte)]
            for byte, line in lines_of(block, event.byte):
                if line.startswith(_WIDE):
                    yield _line(case, byte, f"two spaces in {_text(line)}")


@RULES(15, "s_noid", "O")
def s_noid(case: Case) -> Iterator[Finding]:
    """No ``id`` field; of another server: while an id is set, every empty line closes a block with data."""
    if not any(_field(line) == b"id" for _, line in _lines(case)):
        return
    if case.own:
        for byte, line in _lines(case):
            if _field(line) == b"id":
                yield _line(case, byte, f"the line {_text(line)}")
        return
    known = data = False
    for byte, line in lines_of(case.evidence.body):
        field, _, value = line.removeprefix(BOM if byte == 0 else b"").partition(b":")
        if not line:
            if known and not data:
                yield _line(case, byte, "an empty line that closes no data, behind an id")
            data = False
        elif field == b"data":
            data = True
        elif field == b"id" and b"\0" not in value:
            # An empty one unsets it.
            known = bool(value.removeprefix(b" "))


@RULES(16, "s_noretry", "O")
def s_noretry(case: Case) -> Iterator[Finding]:
    """No ``retry`` field; of another server: none in a block without data."""
    for block in (*case.reading.odd, case.reading.rest):
        if case.own or not _has(block, b"data"):
            for byte, line in block.lines:
                if _field(line) == b"retry":
                    yield _line(case, byte, f"the line {_text(line)}")


@RULES(17, "s_evdata", "E")
def s_evdata(case: Case) -> Iterator[Finding]:
    """A block with an ``event`` field has a ``data`` field too."""
    for block in case.reading.odd:
        if block.text is None and block.name is not None:
            yield at(block, f"event {shown(block.name)} without data")


@RULES(18, "s_nonempty", "E")
def s_nonempty(case: Case) -> Iterator[Finding]:
    """No event has an empty text."""
    for event in _unparsed(case.reading):
        if not event.text:
            yield at(event, "an event with empty text")


def _unparsed(reading: Reading) -> list[Event]:
    return reading.view(_without_value)


def _without_value(reading: Reading) -> list[Event]:
    return [event for event in reading.singular if event.value is UNSET]


@RULES(19, "s_oneline", "O")
def s_oneline(case: Case) -> Iterator[Finding]:
    """Every event has one ``data`` line."""
    for block in case.reading.odd:
        count = sum(_field(line) == b"data" for _, line in block.lines)
        if count > 1:
            yield at(block, f"{count} data lines")


@RULES(20, "s_json", "E")
def s_json(case: Case) -> Iterator[Finding]:
    """The text of an event is one JSON object, or (chat and completions) ``[DONE]``."""
    protocol = case.evidence.protocol
    done = protocol in ("chat", "completions") or (protocol == "responses" and not case.own)
    for event in case.reading.singular:
        if event.value is UNSET:
            if not (done and event.text == "[DONE]"):
                yield at(event, f"{shown(event.text)}: {event.problem or 'no event of this protocol'}")
        elif not isinstance(event.value, dict):
            yield at(event, f"the JSON value {shown(event.value)}")


@RULES(21, "s_strictjson", "E")
def s_strictjson(case: Case) -> Iterator[Finding]:
    """JSON is strict: no NaN or Infinity, no key twice, no half of a surrogate pair, no byte order mark."""
    for event in case.reading.singular:
        if event.problem is not None and event.value is not UNSET:
            yield at(event, event.problem)


@RULES(22, "s_comment", "O")
def s_comment(case: Case) -> Iterator[Finding]:
    """Comments stand between events only, and have no line break inside."""
    for block in (*case.reading.odd, case.reading.rest):
        comments = [byte for byte, line in block.lines if line.startswith(b":")]
        if len(comments) < len(block.lines):
            for byte in comments:
                yield _line(case, byte, "a comment in a block with other lines")


@RULES(23, "s_split", "E", Need.EFFORT)
def s_split(case: Case) -> Iterator[Finding]:
    """The body decodes to the same events as a whole, byte by byte, and at any cuts."""
    body = case.evidence.body
    read = [SseEvent(event.name or "message", event.text or "") for event in case.reading.events]
    for how, cuts in _cuts(body):
        decoder = SseDecoder()
        found = [
            SseEvent(event.name, event.data)
            for begin, end in pairwise((0, *cuts, len(body)))
            for event in decoder.feed(body[begin:end])
        ]
        if found != read:
            place = next((n for n, (one, other) in enumerate(zip(read, found, strict=False)) if one != other), None)
            if place is None:
                place = min(len(read), len(found))
            where = case.reading.events[place] if place < len(read) else case.reading.rest
            yield at(where, f"read {how}, event {place} of {len(read)} differs ({len(found)} events)")


def _cuts(body: bytes) -> Iterator[tuple[str, list[int]]]:
    size = len(body)
    yield "as a whole", []
    if size <= _SMALL:
        yield "byte by byte", list(range(1, size))
    else:
        # Byte by byte takes a third of a millisecond a frame. Between two bytes of a run of ASCII a cut is like any
        # other of that run; the random ones have those.
        near = {place + way for place in _places(body) for way in (0, 1)}
        yield "cut at every line end and inside every character", sorted(near - {0, size})
    for seed in (1, 2, 3) if size <= _SMALL else (2, 3):
        cuts: list[int] = []
        # Any spread of sizes serves; this one is the same everywhere.
        step, place = seed, 0
        while place < size:
            step = (step * 1103515245 + 12345) & 0x7FFFFFFF
            place += 1 + (step >> 16) % (8**seed)
            cuts.append(min(place, size))
        yield f"at random cuts ({seed})", cuts


def _places(body: bytes) -> Iterator[int]:
    return (found.start() for found in _DELICATE.finditer(body))


@RULES(24, "s_afterterm", "E")
def s_afterterm(case: Case) -> Iterator[Finding]:
    """Nothing follows the protocol's end marker."""
    reading = case.reading
    end = _terminal(case)
    if end is None:
        return
    after = reading.blocks[bisect_left(reading.blocks, end.byte + 1, key=lambda block: block.byte) :]
    for block in after:
        if not _tolerated(case, end, block):
            yield at(block, f"a block after the end: {shown(block.text)}")
    begin, tail = reading.tail
    closed = closes(reading.body, end.byte)
    if tail:
        yield _line(case, begin, f"{len(tail)} bytes after the end: {_text(tail)}")
    elif not after and closed < len(reading.body):
        yield Finding(end.number, closed, "empty lines after the end")


def _terminal(case: Case) -> Event | None:
    names = _TERMINALS.get(case.evidence.protocol)
    if names is None:
        return next((event for event in _unparsed(case.reading) if event.text == "[DONE]"), None)
    return next((event for event, chunk in case.reading.chunks if _named(chunk.get("type"), names)), None)


def _named(kind: object, names: frozenset[str]) -> bool:
    return isinstance(kind, str) and kind in names


def _tolerated(case: Case, end: Event, block: Event) -> bool:
    """What servers send behind the end and other rules speak of: ``[DONE]`` behind a response, message_stop behind an
    error."""
    if case.own:
        return False
    if case.evidence.protocol == "responses":
        return block.text == "[DONE]"
    kinds = [event.value.get("type") for event in (end, block) if isinstance(event.value, dict)]
    return case.evidence.protocol == "messages" and kinds == ["error", "message_stop"]


@RULES(25, "s_oneflush", "O", Need.WRITES)
def s_oneflush(case: Case) -> Iterator[Finding]:
    """Every write ends with the empty line of an event."""
    writes = case.evidence.writes
    if writes is None:
        return
    body = case.evidence.body
    ends: set[int] | None = None
    for write in writes.items:
        end = write.end
        if not 0 < end < len(body) or body.endswith(b"\n\n", 0, end):
            continue
        if ends is None:
            ends = _ends(body)
        if end not in ends:
            yield _line(case, end, "a write that ends inside this event")


def _ends(body: bytes) -> set[int]:
    """Offsets right behind the empty lines."""
    found: set[int] = set()
    empty = False
    for byte, line in lines_of(body):
        if empty:
            found.add(byte)
        empty = not line
    return found
