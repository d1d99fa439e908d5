"""Mutants for the rules of transport and framing (1-25), written from the rules' text."""

from __future__ import annotations

import json
from itertools import accumulate
from typing import Any

import msgspec
import pytest

from stages.protocols.rules import Http, Write, Writes
from stages.sse import SseDecoder, SseEvent
from tests.support.wire import Mutant, Stream, block, breaks, chunk, els, golden, insert, raw, sub
from tests.support.wire_bases import BASES, BLOCKS, HTTP, ITEMS, KEPT, LONG, PLAIN, TEXT

SECOND = 10**9


# --- the response's head --------------------------------------------------------------------------------------------


def head(stream: Stream, status: int | None = None, **headers: str | None) -> Stream:
    """Other status, other headers; None takes one away."""
    http: Http = stream.facts["http"]
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    kept = [(name, value) for name, value in http.headers if name not in named]
    kept += [(name, value) for name, value in named.items() if value is not None]
    status = http.status if status is None else status
    return stream.known(http=msgspec.structs.replace(http, status=status, headers=tuple(kept)))


def body_is(stream: Stream, value: Any) -> Stream:
    return stream.known(body=json.dumps(value).encode())


OPENAI_ERROR = {"error": {"message": "no such model", "type": "invalid_request_error", "param": None, "code": "x"}}
REFUSED = body_is(head(PLAIN, 404, content_type="application/json"), OPENAI_ERROR)
REFUSED_BLOCKS = body_is(
    head(BLOCKS, 400, content_type="application/json"),
    {"type": "error", "error": {"type": "invalid_request_error", "message": "no"}, "request_id": "req-7"},
)
TOO_LATE = chunk({"content": "late"})
UNCHUNKED = PLAIN.known(
    http=msgspec.structs.replace(
        HTTP, version="2", headers=tuple(pair for pair in HTTP.headers if pair[0] != "transfer-encoding")
    )
)

HEADS = [
    Mutant(1, "created", PLAIN, lambda s: head(s, 201)),
    Mutant(1, "plain text", PLAIN, lambda s: head(s, content_type="text/plain; charset=utf-8")),
    Mutant(1, "Latin-1", LONG, lambda s: head(s, content_type="text/event-stream; charset=iso-8859-1")),
    Mutant(1, "no type", ITEMS, lambda s: head(s, content_type=None)),
    Mutant(2, "an event stream", REFUSED, lambda s: head(s, content_type="text/event-stream")),
    Mutant(2, "[DONE] behind it", REFUSED, lambda s: s.reworked(lambda body: body + b"\n\ndata: [DONE]\n\n")),
    Mutant(2, "error is text", REFUSED, lambda s: body_is(s, {"error": "Unauthorized"})),
    Mutant(2, "an array", REFUSED, lambda s: body_is(s, [OPENAI_ERROR])),
    Mutant(2, "the other protocol's schema", REFUSED_BLOCKS, lambda s: body_is(s, OPENAI_ERROR)),
    Mutant(2, "nothing", REFUSED_BLOCKS, lambda s: s.known(body=b"")),
    Mutant(3, "a whole body", PLAIN, lambda s: body_is(s, {"id": "chatcmpl-7a1", "object": "chat.completion"})),
    Mutant(3, "a page", BLOCKS, raw(lambda body: b"<html>\n\n" + body)),
    Mutant(4, "a length", PLAIN, lambda s: head(s, content_length=str(len(s.body)))),
    Mutant(4, "compressed", LONG, lambda s: head(s, content_encoding="gzip")),
    Mutant(4, "until close", PLAIN, lambda s: head(s, transfer_encoding=None, connection="close")),
    Mutant(4, "a length, HTTP/2", UNCHUNKED, lambda s: head(s, content_length="1251")),
    Mutant(5, "no cache-control", PLAIN, lambda s: head(s, cache_control=None)),
    Mutant(5, "it may be cached", ITEMS, lambda s: head(s, cache_control="public, max-age=60")),
    Mutant(5, "buffering allowed", BLOCKS, lambda s: head(s, x_accel_buffering="yes")),
    Mutant(5, "buffering not named", TEXT, lambda s: head(s, x_accel_buffering=None)),
    Mutant(6, "no id", PLAIN, lambda s: head(s, x_request_id=None)),
    Mutant(6, "seen before", PLAIN, lambda s: head(s, x_request_id="req-5")),
    Mutant(7, "streamed unasked", PLAIN, lambda s: s.asking(stream=False)),
    Mutant(7, "Accept decided", PLAIN, lambda s: body_is(head(s, content_type="application/json"), {"object": "x"})),
]


# --- clock and writes -----------------------------------------------------------------------------------------------


def written(stream: Stream, step: int = 10 * SECOND, keep_alive: int = 15 * SECOND) -> Stream:
    """One write per event, ``step`` ns after another, the first one ``step`` after the request."""
    blocks = [block(stream.protocol, element, place) for place, element in enumerate(stream.elements)]
    ends = accumulate(len(one) for one in blocks)
    items = [Write(step * (place + 1), end) for place, end in enumerate(ends)]
    return stream.known(writes=Writes(items, begun=0, ended=items[-1].at, keep_alive=keep_alive))


def late(stream: Stream, place: int, by: int) -> Stream:
    """Writes from ``place`` on, and the end, ``by`` ns later."""
    writes: Writes = stream.facts["writes"]
    items = [Write(one.at + (by if number >= place else 0), one.end) for number, one in enumerate(writes.items)]
    assert writes.ended is not None
    return stream.known(writes=msgspec.structs.replace(writes, items=items, ended=writes.ended + by))


def moved(stream: Stream, place: int, by: int) -> Stream:
    """One write's time."""
    writes: Writes = stream.facts["writes"]
    items = list(writes.items)
    items[place] = Write(items[place].at + by, items[place].end)
    return stream.known(writes=msgspec.structs.replace(writes, items=items))


def recut(stream: Stream, place: int, by: int) -> Stream:
    """The end of one write, some bytes further."""
    writes: Writes = stream.facts["writes"]
    items = list(writes.items)
    items[place] = Write(items[place].at, items[place].end + by)
    return stream.known(writes=msgspec.structs.replace(writes, items=items))


def ended(stream: Stream, by: int) -> Stream:
    writes: Writes = stream.facts["writes"]
    assert writes.ended is not None
    return stream.known(writes=msgspec.structs.replace(writes, ended=writes.ended + by))


UNPROMISED = written(PLAIN, 100 * SECOND, 0)
TIMES = [
    Mutant(8, "a gap in the middle", written(KEPT), lambda s: late(s, 5, 13 * SECOND)),
    Mutant(8, "silence before the first byte", written(PLAIN), lambda s: late(s, 0, 13 * SECOND)),
    Mutant(8, "silence before the end", written(LONG), lambda s: ended(s, 23 * SECOND)),
    Mutant(8, "ten minutes, nothing promised", UNPROMISED, lambda s: late(s, 2, 501 * SECOND)),
    Mutant(
        8, "ten minutes, though promised so", written(PLAIN, SECOND, 900 * SECOND), lambda s: late(s, 2, 600 * SECOND)
    ),
    Mutant(9, "a write before the one before it", written(LONG), lambda s: moved(s, 400, -11 * SECOND)),
    Mutant(9, "a write before the request", written(PLAIN), lambda s: moved(s, 0, -11 * SECOND)),
    Mutant(9, "an end before the last write", written(PLAIN), lambda s: ended(s, -SECOND)),
    Mutant(25, "half an event", written(PLAIN), lambda s: recut(s, 2, -20)),
    Mutant(25, "an event without its empty line", written(LONG), lambda s: recut(s, 450, -1)),
    Mutant(25, "the next event's first byte", written(ITEMS), lambda s: recut(s, 9, 1)),
]


# --- framing --------------------------------------------------------------------------------------------------------


def at_the_end(old: bytes, new: bytes) -> Any:
    """The last occurrence replaced."""
    return raw(lambda body: new.join(body.rsplit(old, 1)))


def foreign(stream: Stream) -> Stream:
    return stream.known(own=False)


NUMBERED = foreign(PLAIN).reworked(sub(b"data: ", b"id: 4\ndata: ", -1))
RETRYING = foreign(PLAIN).reworked(sub(b"data: ", b"retry: 5\ndata: "))
BREAK = b"\n\n"

FRAMES = [
    Mutant(10, "a stray byte, late", LONG, raw(sub(b"w290 ", b"w290\xff"))),
    Mutant(10, "overlong", BLOCKS, raw(sub(b"Looking", b"Look\xc0\xafing"))),
    Mutant(10, "an encoded surrogate", PLAIN, raw(sub(b"Blue", b"\xed\xa0\x80"))),
    Mutant(10, "half a character behind the end", TEXT, raw(lambda body: body + b"\xe2\x82")),
    Mutant(11, "before an event name", ITEMS, raw(lambda body: b"\xef\xbb\xbf" + body)),
    Mutant(11, "before a comment", KEPT, raw(lambda body: b"\xef\xbb\xbf" + body)),
    Mutant(12, "CR alone ends one line", PLAIN, raw(sub(b'"usage":null}\n', b'"usage":null}\r'))),
    Mutant(12, "the last line end", LONG, at_the_end(BREAK, b"\n\r\n")),
    Mutant(12, "in a comment", KEPT, raw(sub(b": keep-alive", b": keep-alive\r"))),
    Mutant(13, "the last byte is missing", PLAIN, raw(lambda body: body[:-1])),
    Mutant(13, "an event was begun", LONG, raw(lambda body: body + b"data: {")),
    Mutant(13, "a comment line was begun", BLOCKS, raw(lambda body: body + b": bye\n")),
    Mutant(14, "unknown field", PLAIN, els(insert(2, b"foo: bar\n\n"))),
    Mutant(14, "a space before data", ITEMS, raw(sub(b"\ndata: ", b"\n data: "))),
    Mutant(14, "event without space", BLOCKS, at_the_end(b"event: message_stop", b"event:message_stop")),
    Mutant(14, "data in capitals, late", LONG, at_the_end(b"data: {", b"Data: {")),
    Mutant(15, "an id", PLAIN, raw(sub(b"data: ", b"id: 7\ndata: "))),
    Mutant(15, "an empty id, late", LONG, at_the_end(b"data: {", b"id\ndata: {")),
    Mutant(15, "foreign: a comment block after an id", NUMBERED, raw(sub(BREAK, b"\n\n: here\n\n"))),
    Mutant(15, "foreign: two empty lines after an id", NUMBERED, raw(sub(BREAK, b"\n\n\n"))),
    Mutant(16, "beside data", PLAIN, raw(sub(b"data: ", b"retry: 1500\ndata: "))),
    Mutant(16, "without a value, late", LONG, at_the_end(b"data: {", b"retry\ndata: {")),
    Mutant(16, "foreign: alone", RETRYING, raw(sub(BREAK, b"\n\nretry: 5\n\n"))),
    Mutant(17, "name and comment", PLAIN, els(insert(2, b"event: ping\n: here\n\n"))),
    Mutant(17, "an event with its data lost", BLOCKS, els(insert(9, b"event: content_block_delta\n\n"))),
    Mutant(17, "an empty name, late", LONG, els(insert(460, b"event:\n\n"))),
    Mutant(18, "data without text", PLAIN, els(insert(2, b"data: \n\n"))),
    Mutant(18, "data without a colon, late", LONG, els(insert(460, b"data\n\n"))),
    Mutant(19, "an empty second line", PLAIN, raw(sub(b"\n\ndata: [DONE]", b"\ndata: \n\ndata: [DONE]"))),
    Mutant(19, "broken at a comma, late", LONG, at_the_end(b',"total_tokens"', b',\ndata: "total_tokens"')),
    Mutant(20, "a number", PLAIN, els(insert(2, "5"))),
    Mutant(20, "no JSON", BLOCKS, els(insert(2, "ping"))),
    Mutant(20, "cut JSON, late", LONG, els(insert(460, '{"choices":['))),
    Mutant(20, "[DONE] where it has no place", ITEMS, els(insert(21, "[DONE]"))),
    Mutant(20, "[done]", TEXT, raw(sub(b"[DONE]", b"[done]"))),
    Mutant(20, "null", PLAIN, els(insert(2, "null"))),
    Mutant(21, "Infinity", BLOCKS, raw(sub(b'"output_tokens":12', b'"output_tokens":-Infinity'))),
    Mutant(21, "half a pair", PLAIN, raw(sub(b"Blue", b"\\ud83d"))),
    Mutant(21, "the other half, late", LONG, raw(sub(b"w290 ", b"\\ude00"))),
    Mutant(21, "a BOM in the text", ITEMS, raw(sub(b"data: ", b"data: \xef\xbb\xbf"))),
    Mutant(21, "a nested key twice", ITEMS, raw(sub(b'"cached_tokens":0', b'"cached_tokens":0,"cached_tokens":0'))),
    Mutant(22, "between name and data", ITEMS, raw(sub(b"\ndata: ", b"\n: here\ndata: "))),
    Mutant(22, "before the empty line, late", LONG, at_the_end(b"\n\ndata: [DONE]", b"\n:\n\ndata: [DONE]")),
    Mutant(24, "a comment", PLAIN, raw(lambda body: body + b": bye\n\n")),
    Mutant(24, "a chunk", LONG, els(insert(1000, TOO_LATE))),
    Mutant(24, "a comment after completed", ITEMS, raw(lambda body: body + b": bye\n\n")),
    Mutant(24, "ping after message_stop", BLOCKS, els(insert(16, {"type": "ping"}))),
    Mutant(24, "text after an error", golden("G13"), els(insert(5, golden("G13").elements[2]))),
]  # fmt: skip

MUTANTS = [*HEADS, *TIMES, *FRAMES]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: f"{one.rule}-{one.what}")
def test_a_mutant_breaks_its_rule(mutant: Mutant) -> None:
    breaks(mutant.rule, mutant.base, mutant.change(mutant.base))


def test_each_rule_has_two() -> None:
    rules = [mutant.rule for mutant in MUTANTS]
    assert {number for number in range(1, 26) if rules.count(number) < 2} == {23}


# --- the decoder's own rule -----------------------------------------------------------------------------------------


def forgets_half_lines(decoder: SseDecoder, data: bytes) -> list[SseEvent]:
    decoder._line = []  # pyright: ignore[reportPrivateUsage]  # a fault put in
    return FEED(decoder, data)


def forgets_half_characters(decoder: SseDecoder, data: bytes) -> list[SseEvent]:
    return FEED(decoder, data.decode(errors="replace").encode())


FEED = SseDecoder.feed


def closes_twice(decoder: SseDecoder, data: bytes) -> list[SseEvent]:
    # Only a read that begins with the empty line itself shows it.
    return [event for event in FEED(decoder, data) for _ in range(2 if data[:1] == b"\n" else 1)]


@pytest.mark.parametrize("size", [0, 20_000], ids=["small", "large"])
@pytest.mark.parametrize("fault", [forgets_half_lines, forgets_half_characters, closes_twice])
def test_23_a_decoder_that_depends_on_the_cuts(fault: Any, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = PLAIN.reworked(sub(b"Blue", b"x" * size + "Blåu".encode())).known(effort=True)
    report = stream.report()
    assert 23 in report.checked
    assert "INV-023" not in report.counts
    monkeypatch.setattr(SseDecoder, "feed", fault)
    assert "INV-023" in stream.report().counts


# --- what is not broken ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("own", [True, False], ids=["own", "foreign"])
@pytest.mark.parametrize("name", BASES)
def test_the_bases_are_clean(name: str, own: bool) -> None:
    report = written(BASES[name]).known(own=own, effort=True).report()
    # Right as they are, they are not what our encoder writes, byte for byte: 135 may say so of streams called our own.
    assert {one.rule for one in report.violations} <= ({"INV-135"} if own else set[str]())


@pytest.mark.parametrize(
    "stream",
    [
        head(PLAIN, content_type="text/event-stream"),
        head(PLAIN, content_type="Text/Event-Stream; Charset=UTF-8"),
        head(PLAIN, cache_control="no-store"),
        head(PLAIN, content_encoding="identity"),
        UNCHUNKED,
        head(REFUSED, content_type="application/json; charset=utf-8"),
    ],
)
def test_heads_that_are_right(stream: Stream) -> None:
    assert {1, 2, 4}.isdisjoint(int(name[4:]) for name in stream.report().counts)


# --- severity -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "change", "own", "foreign"),
    [
        ("INV-012", raw(sub(b"\n", b"\r\n", -1)), "error", "warning"),
        ("INV-010", raw(sub(b"Blue", b"\xff")), "error", "error"),
        ("INV-030", els(insert(2, chunk({}, usage=None))), "warning", "warning"),
    ],
)
def test_a_rule_weighs_as_its_severity_says(rule: str, change: Any, own: str, foreign: str) -> None:
    for mine, weight in ((True, own), (False, foreign)):
        report = change(PLAIN.known(own=mine)).report()
        found = [one.severity for one in report.violations if one.rule == rule]
        assert set(found) == {weight}
        assert any(one.rule == rule for one in report.errors) == (weight == "error")
