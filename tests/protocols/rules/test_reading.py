"""Reading a body: blocks and their places, the same as the streaming decoder's; strict JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from stages.protocols.rules.case import shown
from stages.protocols.rules.reading import Event, Reading, closes, cut, lines_of, opens
from stages.sse import SseDecoder
from stages.strict import parse
from tests.support.chat import DATA

VECTORS = [json.loads(line) for line in (DATA / "sse_vectors.jsonl").read_text(encoding="utf-8").splitlines()]
BOM = b"\xef\xbb\xbf"
PARTS = [
    b"\n", b"\n\n", b"\r", b"\r\n", b"\r\n\r\n", b"data: ", b"data:", b"data", b"event: ", b"event: a\n", b"event",
    b"id: 1", b"retry: 5", b": ka", b": ka\n\n", b":", BOM, b"{}", b"[DONE]", b"data: [DONE]\n\n", b'data: {"a":1}\n\n',
    b" ", b"a", b"\xff", b"\xe2\x82", "é€😀\u2028".encode(), b"\0", b"event: ping\ndata: {}\n\n",
    b"data: a\ndata: b\n\n",
]  # fmt: skip
BODIES = st.lists(st.sampled_from(PARTS), max_size=24).map(b"".join)


def blocks_of(body: bytes, first: int) -> tuple[list[Any], tuple[int, bytes]]:
    """The definition, line by line."""
    at = begin = 3 if body.startswith(BOM) else 0
    blocks: list[Any] = []
    held: list[tuple[int, bytes]] = []
    for whole in body[at:].splitlines(keepends=True):
        line = whole.rstrip(b"\r\n")
        if line == whole:
            break
        if line:
            held.append((at, line))
        elif held:
            blocks.append((first + len(blocks), begin, held))
            held = []
        at += len(whole)
        if not held:
            begin = at
    return blocks, (begin, body[begin:])


@given(BODIES, st.integers(0, 3))
def test_blocks_and_their_places(body: bytes, first: int) -> None:
    blocks, tail = cut(body, first)
    expected, rest = blocks_of(body, first)
    assert tail == rest
    assert [(block.number, block.byte) for block in blocks] == [(number, byte) for number, byte, _ in expected]
    for block, (_, _, lines) in zip(blocks, expected, strict=True):
        heads = [line[:6] if line[:1] == b"d" else line[:7] for _, line in lines]
        plain = heads in ([b"data: "], [b"event: ", b"data: "])
        assert block.lines == (() if plain else tuple(lines))


@given(BODIES)
def test_events_are_those_of_the_decoder(body: bytes) -> None:
    events = [(event.name or "message", event.text) for event in Reading(body).events]
    assert events == [(event.name, event.data) for event in SseDecoder().feed(body)]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"])
def test_vector(vector: dict[str, Any]) -> None:
    reading = Reading(vector["in"].encode("latin-1"))
    assert [(event.name or "message", event.text) for event in reading.events] == [
        (name, text) for name, text, _ in vector["ev"]
    ]


def test_frame_numbers_and_offsets() -> None:
    body = (
        b'\n\ndata: {"a":1}\n\n: ka\n\n\nevent: x\ndata: 2\n\nid: 7\ndata: b\ndata: c\n\nevent: y\n\ndata: [DONE]\n\nda'
    )
    reading = Reading(body, first=1)
    assert [(block.number, block.byte, block.name, block.text, block.value) for block in reading.blocks] == [
        (1, 2, None, '{"a":1}', {"a": 1}),
        (2, 17, None, None, UNSET),
        (3, 24, "x", "2", 2),
        (4, 42, None, "b\nc", UNSET),
        (5, 65, "y", None, UNSET),
        (6, 75, None, "[DONE]", UNSET),
    ]
    assert [block.lines for block in reading.blocks] == [
        (), ((17, b": ka"),), (), ((42, b"id: 7"), (48, b"data: b"), (56, b"data: c")), ((65, b"event: y"),), (),
    ]  # fmt: skip
    assert [event.number for event in reading.events] == [1, 3, 4, 6]
    assert [(event.number, chunk) for event, chunk in reading.chunks] == [(1, {"a": 1})]
    assert reading.tail == (89, b"da")
    assert (reading.rest.number, reading.rest.byte) == (7, 89)
    assert [reading.around(byte).number for byte in (0, 2, 16, 17, 41, 42, 88, 89, 90)] == [1, 1, 1, 2, 3, 4, 6, 7, 7]
    assert [closes(body, byte) for byte in (2, 17, 24, 42, 65, 75, 89)] == [17, 23, 42, 65, 75, 89, 91]


@pytest.mark.parametrize("body", [b"", b"\n", b"\n\n\n", b"\r\n\r\n", b"\r", BOM, BOM + b"\n\n"])
def test_empty_lines_alone_are_no_blocks(body: bytes) -> None:
    reading = Reading(body)
    assert reading.blocks == []
    assert reading.tail == (len(body), b"")
    assert reading.rest.number == 0


def test_malformed_characters_are_replaced_and_placed() -> None:
    reading = Reading(b'data: {"a":"\xff"}\n\nevent: \xe2\x82\ndata: x\n\n')
    assert [(event.name, event.text) for event in reading.events] == [(None, '{"a":"\ufffd"}'), ("\ufffd", "x")]
    assert reading.events[0].value == {"a": "\ufffd"}
    assert reading.bad_utf8 == 12
    assert Reading("data: é\n\n".encode()).bad_utf8 is None
    assert Reading("data: é".encode()[:-1]).bad_utf8 == 6


def test_a_view_is_made_once() -> None:
    reading = Reading(b"data: 1\n\n")
    made: list[Reading] = []

    def view(one: Reading) -> list[Event]:
        made.append(one)
        return []

    assert reading.view(view) is reading.view(view)
    assert made == [reading]


def test_lines_that_are_ended() -> None:
    assert list(lines_of(b"a\r\n\rb\n\nc", 10)) == [(10, b"a"), (13, b""), (14, b"b"), (16, b"")]


@pytest.mark.parametrize(
    ("body", "stream"),
    [
        (b"", None), (b"\r\n\n", None), (BOM, None), (b"{}", False), (b"\n{}", False),
        (b"data:", True), (b"data", None), (b"\nret", None), (BOM + b"e", None), (b"data\n", False), (b"dat ", False),
        (b"\n\r\n: ka", True), (b"event: x", True), (b"id:", True), (b"retry: 1", True), (BOM + b"data: x", True),
        (b" data: x", False), (b"Data: x", False), (b"<html>", False),
    ],
)  # fmt: skip
def test_what_opens_a_stream(body: bytes, stream: bool | None) -> None:
    assert opens(body) is stream


def test_a_block_of_very_many_lines() -> None:
    text = Reading(b"data: a\n" * 200_000 + b"\n").events[0].text
    assert text is not None
    assert len(text) == 2 * 200_000 - 1


# --- strict JSON ------------------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(JSON, st.booleans(), st.sampled_from([(",", ":"), (", ", ": ")]))
def test_json_is_read_as_it_is(value: Any, ascii: bool, separators: tuple[str, str]) -> None:
    text = json.dumps(value, ensure_ascii=ascii, separators=separators)
    assert parse(text) == (json.loads(text), None)


@pytest.mark.parametrize(
    ("text", "value", "problem"),
    [
        ('{"a":1,"a":2}', {"a": 2}, "a key twice"),
        ('{"a":{"b":1,"\\u0062":1}}', {"a": {"b": 1}}, "a key twice"),
        ('{"a":"\\ud83d"}', {"a": "\ud83d"}, "surrogate"),
        ('{"\\udc00":1}', {"\udc00": 1}, "surrogate"),
        ('{"a":Infinity}', {"a": float("inf")}, "Infinity"),
        ('{"a":-Infinity}', {"a": float("-inf")}, "Infinity"),
        ('{"a":1e999}', {"a": float("inf")}, "out of range"),
        ('\ufeff{"a":1}', {"a": 1}, "byte order mark"),
    ],
)
def test_json_that_is_not_strict(text: str, value: Any, problem: str) -> None:
    found, why = parse(text)
    assert found == value
    assert why is not None
    assert problem in why


def test_not_a_number_is_not_strict() -> None:
    value, why = parse('{"a":NaN}')
    assert isinstance(value, dict)
    assert value["a"] != value["a"]
    assert why is not None
    assert "NaN" in why


@pytest.mark.parametrize(
    "text", ["", " ", "{", "{}{}", "[1,]", "{'a':1}", '"\t"', "01", "1" * 5000, "nul", "\ud800", '{"a":1}x']
)
def test_no_json(text: str) -> None:
    value, why = parse(text)
    assert value is UNSET
    assert why


@pytest.mark.parametrize(
    "text", ['"\\ud83d\\ude00"', "1e5", "[]", ' { "a" : 1 } ', '"\\/"', "123456789012345678901234"]
)
def test_strict_however_it_is_written(text: str) -> None:
    assert parse(text) == (json.loads(text), None)


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")])
def test_nesting_has_an_end(opening: str, closing: str) -> None:
    levels = opening.count("[") + opening.count("{")
    for depth, fine in ((200, True), (202, False), (900, False), (100_000, False)):
        value, why = parse(opening * (depth // levels) + "1" + closing * (depth // levels))
        assert (value is not UNSET) is fine
        assert (why is None) is fine
    wide = "[" + ",".join(["[]"] * 1000) + "]"
    assert parse(wide) == (json.loads(wide), None)


def test_what_is_shown_is_short_and_never_fails() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for value in (
        "a" * 10**6,
        "\ud800",
        float("nan"),
        None,
        deep,
        {"a": [1] * 1000},
        object(),
        1 << 200,
        b"\xff",
        {1: 2},
    ):
        text = shown(value)
        assert len(text) <= 200
        text.encode()
    assert shown({"a": [1, "é", None, True]}) == '{"a":[1,"é",null,true]}'
    assert shown("x" * 300) == '"' + "x" * 198 + "…"
    while deep:
        deep = deep.pop()
