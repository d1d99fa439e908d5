"""The splitter: where frames end, what is a comment, and that no byte is lost, whatever is read in whatever pieces."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.events import Block, Comment
from stages.sse import SseDecoder, SseEvent
from stages.upstream.frames import FrameSplitter, is_complete, is_encoded, is_event_stream, media_type
from tests.support.chat import DATA

VECTORS = [json.loads(line) for line in (DATA / "sse_vectors.jsonl").read_text(encoding="utf-8").splitlines()]
PIECES = (
    b"\n", b"\r", b"\r\n", b"\n\n", b"data: a", b": b", b":", b"event: x", b"\xef\xbb\xbf", b"\xef\xbb", b"\xbf", b"\0",
    b"\xe2\x80\xa8", b"id: 1",
)  # fmt: skip
STREAMS = st.lists(st.sampled_from(PIECES) | st.binary(max_size=4), max_size=16).map(b"".join)


def split(reads: Iterable[bytes], most: int = 4 << 20) -> list[Block | Comment]:
    splitter = FrameSplitter(most)
    return [frame for data in reads for frame in splitter.feed(data)] + splitter.end()


def joined(frames: Iterable[Block | Comment]) -> bytes:
    return b"".join(frame.data for frame in frames)


def cut(data: bytes, at: Iterable[int]) -> Iterator[bytes]:
    places = [0, *sorted(place % (len(data) + 1) for place in at), len(data)]
    return (data[start:end] for start, end in pairwise(places))


# --- where frames end -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "frames"),
    [
        (b"data: a\n\ndata: b\n\n", [Block(b"data: a\n\n"), Block(b"data: b\n\n")]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [Block(b"data: a\r\n\r\n"), Block(b"data: b\r\n\r\n")]),
        (b"data: a\r\rdata: b\r\r", [Block(b"data: a\r\r"), Block(b"data: b\r\r")]),
        (b"data: a\n\r\ndata: b\r\n\n", [Block(b"data: a\n\r\n"), Block(b"data: b\r\n\n")]),
        (b"data: a\n\rdata: b\r\r\n", [Block(b"data: a\n\r"), Block(b"data: b\r\r\n")]),
        (b"data: a\r\ndata: b\rdata: c\n\n", [Block(b"data: a\r\ndata: b\rdata: c\n\n")]),
        (b": ping\n\n", [Comment(b": ping\n\n")]),
        (b":\r\n: two\r\n\r\n", [Comment(b":\r\n: two\r\n\r\n")]),
        (b": a comment\ndata: a\n\n", [Block(b": a comment\ndata: a\n\n")]),
        (b"data: a\n: a comment\n\n", [Block(b"data: a\n: a comment\n\n")]),
        (b"id: 1\n\n", [Block(b"id: 1\n\n")]),
        (b"\xef\xbb\xbfdata: a\n\n", [Block(b"\xef\xbb\xbfdata: a\n\n")]),
        (b"\xef\xbb\xbf: ping\n\n", [Comment(b"\xef\xbb\xbf: ping\n\n")]),
        (b"\xef\xbb\xbf\n\n", [Comment(b"\xef\xbb\xbf\n\n")]),
        # A mark that is not the stream's first makes a field of what follows it.
        (b"data: a\n\n\xef\xbb\xbf: b\n\n", [Block(b"data: a\n\n"), Block(b"\xef\xbb\xbf: b\n\n")]),
        # Blank lines of no block.
        (b"\n\ndata: a\n\n\n\n\ndata: b\n\n", [
            Comment(b"\n\n"), Block(b"data: a\n\n"), Comment(b"\n\n\n"), Block(b"data: b\n\n"),
        ]),
        (b"data: a\r\n\r\n\r\n", [Block(b"data: a\r\n\r\n"), Comment(b"\r\n")]),
        # No lines: these end no line.
        (b"data: \xe2\x80\xa8\xe2\x80\xa8\x0b\x0b\x0c\x0c\xc2\x85\xc2\x85\n\n",
         [Block(b"data: \xe2\x80\xa8\xe2\x80\xa8\x0b\x0b\x0c\x0c\xc2\x85\xc2\x85\n\n")]),
        # Unfinished.
        (b"data: a\n\ndata: b\n", [Block(b"data: a\n\n"), Block(b"data: b\n")]),
        (b": ping", [Block(b": ping")]),
        (b"\xef\xbb", [Comment(b"\xef\xbb")]),
        (b"", []),
    ],
)  # fmt: skip
def test_frames_of_a_body(body: bytes, frames: list[Block | Comment]) -> None:
    assert split([body]) == frames


@pytest.mark.parametrize(
    ("body", "at"),
    [
        (b"data: a\n\ndata: b\n\n", [9, 18]),
        (b"data: a\r\rdata: b\r\r", [9, 18]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [10, 21]),
        (b"data: a\n\r\ndata: b\n\n", [9, 19]),
        (b"\r\n\r\n", [1, 3]),
    ],
)
def test_a_frame_comes_out_with_the_byte_that_completes_it(body: bytes, at: list[int]) -> None:
    splitter = FrameSplitter()
    assert [i + 1 for i in range(len(body)) for _ in splitter.feed(body[i : i + 1])] == at


def test_a_line_feed_that_comes_late_begins_the_next_frame() -> None:
    splitter = FrameSplitter()
    assert splitter.feed(b"data: a\r\n\r") == [Block(b"data: a\r\n\r")]
    assert splitter.feed(b"\n") == []
    assert splitter.feed(b"data: b\r\n\r\n") == [Block(b"\ndata: b\r\n\r\n")]
    assert splitter.feed(b": ping\r\r") == [Comment(b": ping\r\r")]
    assert splitter.feed(b"\n: ping\r") == []
    assert splitter.feed(b"\r") == [Comment(b"\n: ping\r\r")]
    assert splitter.feed(b"\n") == []
    assert splitter.end() == [Comment(b"\n")]


# --- bounds -----------------------------------------------------------------------------------------------------------


def test_what_is_too_large_is_passed_on_in_parts() -> None:
    reads = [b"data: a\n\n", b"data: ", b"bcd", b":e\n", b": f\n", b"\n", b"data: g\n\n"]
    assert split(reads, 8) == [
        Block(b"data: a\n\n"), Block(b"data: bcd"), Block(b":e\n: f\n\n"), Block(b"data: g\n\n"),
    ]  # fmt: skip
    assert split([b": 45678", b"9", b": no comment\n\n", b": one\n\n"], 8) == [
        Comment(b": 456789: no comment\n\n"), Comment(b": one\n\n"),
    ]  # fmt: skip
    assert split([b": 45678", b"90", b": no comment\n\n"], 8) == [Block(b": 4567890"), Block(b": no comment\n\n")]


def test_the_rest_of_a_parted_block_may_be_its_blank_line() -> None:
    assert split([b"data: 1234\n", b"\n", b"\n"], 8) == [Block(b"data: 1234\n"), Block(b"\n"), Comment(b"\n")]


def test_a_large_block_in_reads_of_a_byte() -> None:
    """As long as it takes: quadratic time would be minutes."""
    size = 1 << 18
    body = b"data: " + b"x" * size + b"\n\n"
    assert split(body[i : i + 1] for i in range(len(body))) == [Block(body)]


# --- properties -------------------------------------------------------------------------------------------------------


@given(STREAMS, st.lists(st.integers(0, 200), max_size=12), st.sampled_from([1, 2, 5, 9, 1 << 20]))
def test_no_byte_is_lost(body: bytes, at: list[int], most: int) -> None:
    assert joined(split(cut(body, at), most)) == body


@given(STREAMS, st.lists(st.integers(0, 200), max_size=12))
def test_a_frame_is_one_block_of_the_standard(body: bytes, at: list[int]) -> None:
    """Blocks give one event or none, comments none; behind each frame nothing is pending; all is what the whole is."""
    frames = split(cut(body, at))
    decoder = SseDecoder()
    told: list[SseEvent] = []
    for place, frame in enumerate(frames):
        events = decoder.feed(frame.data)
        last = place == len(frames) - 1
        assert len(events) <= (1 if isinstance(frame, Block) else 0)
        assert last or not decoder.pending
        assert is_complete(frame.data) or isinstance(frame, Comment) or last
        told += events
    assert told == SseDecoder().feed(body)


@given(STREAMS, st.lists(st.integers(0, 200), max_size=12))
def test_cuts_between_the_bytes_of_a_line_end_alone_show(body: bytes, at: list[int]) -> None:
    plain = body.replace(b"\r", b"")
    blocks = [frame for frame in split(cut(plain, at)) if isinstance(frame, Block)]
    assert blocks == [frame for frame in split([plain]) if isinstance(frame, Block)]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"])
def test_vectors_frame_by_frame(vector: dict[str, Any]) -> None:
    body = vector["in"].encode("latin-1")
    for reads in ([body], [body[i : i + 1] for i in range(len(body))]):
        decoder = SseDecoder()
        assert [event for frame in split(reads) for event in decoder.feed(frame.data)] == [
            SseEvent(*event) for event in vector["ev"]
        ]


# --- headers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "kind", "streams"),
    [
        ("text/event-stream; charset=utf-8", "text/event-stream", True),
        (" Text/Event-Stream ", "text/event-stream", True),
        ("application/json", "application/json", False),
        ("", "", False),
    ],
)
def test_media_type(value: str, kind: str, streams: bool) -> None:
    headers = [("date", "now"), ("content-type", value), ("content-type", "text/html")]
    assert media_type(headers) == kind
    assert is_event_stream(headers) is streams
    assert media_type([]) == ""


@pytest.mark.parametrize(("value", "encoded"), [("gzip", True), ("identity", False), ("Identity", False), ("", False)])
def test_encoding(value: str, encoded: bool) -> None:
    assert is_encoded([("content-encoding", value)]) is encoded
    assert not is_encoded([])
