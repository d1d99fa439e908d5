"""The relay: what passes, what does not, and that it goes on from a snapshot as if nothing had been."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.events import AbortInput, Block, Body, Comment, End, ErrorInput, FailureKind, Frame, Head
from stages.stage import fold, fold_causes
from stages.upstream.frames import FrameSplitter
from stages.upstream.relay import RELAY, Relayed, RelaySnapshot
from tests.support.relay import JSON, PROTOCOLS, STREAM, TakenOut, opening, relay, stream_of

CUT = ErrorInput("engine", "The upstream broke off.", "upstream_cut")
HTML = b"<html><body>Bad gateway: 10.0.0.7</body></html>"

# --- what passes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_stream_passes_frame_by_frame_as_the_same_objects(protocol: str) -> None:
    body = b": ping\n\n" + stream_of(protocol)
    frames = FrameSplitter().feed(body)
    assert b"".join(frame.data for frame in frames) == body
    made, causes = fold_causes(RELAY.start(opening(protocol)), [STREAM, *frames, End()])
    assert all(mine is its for mine, its in zip(made, [STREAM, *frames], strict=True))
    assert causes == list(range(len(frames) + 1))


def test_what_a_clean_end_leaves_unfinished_passes() -> None:
    last = Block(b"data: {}\n")
    assert relay(STREAM, Block(b"data: 1\n\n"), last, End())[1:] == [Block(b"data: 1\n\n"), last]
    block = Block(b'data: {"choices":[{"delta":{"content":"a"},"token_ids":[1]}]}')
    assert relay(STREAM, block, End(), taken_out="absent")[1:] == [
        Block(b'data: {"choices":[{"delta":{"content":"a"}}]}'),
    ]  # fmt: skip


def test_parts_of_a_block_pass_when_the_next_comes() -> None:
    parts: list[Frame] = [Block(b"data: 1"), Block(b"2\n"), Block(b"\n"), Comment(b": ping\n\n")]
    events: list[Relayed] = [STREAM, *parts, End()]
    made, causes = fold_causes(RELAY.start(opening()), events)
    assert made[1:] == parts
    assert causes == [0, 2, 3, 3, 4]


@pytest.mark.parametrize(
    ("headers", "kept"),
    [
        ((("date", "now"), ("x-a", "1"), ("x-a", "2")), ("date", "x-a", "x-a")),
        ((("connection", "close, X-Mine"), ("x-mine", "1"), ("keep-alive", "timeout=5"), ("x-a", "1")), ("x-a",)),
        ((("transfer-encoding", "chunked"), ("te", "trailers"), ("trailer", "x"), ("upgrade", "h2c")), ()),
        ((("proxy-authenticate", "Basic"), ("proxy-connection", "close"), ("x-proxy-a", "1")), ("x-proxy-a",)),
    ],
)
def test_headers_of_the_connection_stay_behind(headers: Any, kept: tuple[str, ...]) -> None:
    for head, rest in ((STREAM, [Block(b"data: 1\n\n")]), (JSON, [Body(b"{}")])):
        made = relay(Head(200, (*head.headers, *headers)), *rest, End())
        assert made[0] == Head(200, (*head.headers, *(item for item in headers if item[0] in kept)))
        assert made[1:] == rest


def test_the_length_of_a_body_is_told_where_it_is_known() -> None:
    body = Body(b'{"choices":[{"token_ids":[1,2]}]}')
    head = Head(200, (("content-length", "33"), *JSON.headers))
    assert relay(head, body, End()) == [head, body]
    assert relay(head, body, End(), taken_out="null") == [
        Head(200, (("content-length", "32"), *JSON.headers)), Body(b'{"choices":[{"token_ids":null}]}'),
    ]  # fmt: skip
    assert relay(JSON, body, End(), taken_out="absent") == [JSON, Body(b'{"choices":[{}]}')]
    stream = Head(200, (*STREAM.headers, ("content-length", "9")))
    assert relay(stream, Block(b"data: 1\n\n"), End()) == [STREAM, Block(b"data: 1\n\n")]


def test_a_compressed_body_is_not_looked_into() -> None:
    block = b'data: {"choices":[{"delta":{},"token_ids":[1]}]}\n\n'
    encoding = ("content-encoding", "gzip")
    stream = Head(200, (*STREAM.headers, encoding, ("content-length", "500")))
    parts: list[Frame] = [Body(block[:7]), Block(block), Block(b"x"), Body(b"y")]
    for last in (End(), CUT, AbortInput("client")):
        assert relay(stream, *parts, last, taken_out="null") == [stream, *parts]
    for status in (200, 502):
        head = Head(status, (("content-type", "text/html"), encoding))
        assert relay(head, Body(block), End(), taken_out="null") == [head, Body(block)]


@pytest.mark.parametrize(
    ("head", "body"),
    [
        (Head(400, JSON.headers), b'{"error": {"message": "no", "type": "x", "param": null, "code": 400}}\n'),
        (Head(401, JSON.headers), b'{"error":"Unauthorized"}'),
        (Head(400, JSON.headers), b'{"object":"error","message":"no","code":400}'),
        (Head(422, JSON.headers), b'{"detail":[{"loc":["body"]}]}'),
        (Head(429, (("content-type", "text/plain"),)), b'\n [{"error":{"code":429}}]'),
        (Head(500, JSON.headers), b'\xef\xbb\xbf{"error":{"logprob":NaN}}'),
        (Head(529, JSON.headers), b'{"type":"error","error":{"type":"overloaded_error","message":"full"}}'),
        (Head(307, (("location", "/v1/"),)), b""),
        (Head(302, (("content-type", "text/html"),)), HTML),
        (Head(200, (("content-type", "text/plain"),)), b'{"id":"x"}'),
        (Head(200, (("content-type", "application/problem+json"),)), b"{}"),
        (JSON, b'{"id":'),
        (JSON, b""),
    ],
)
def test_a_whole_answer_passes_byte_for_byte(head: Head, body: bytes) -> None:
    for protocol in PROTOCOLS:
        assert relay(head, Body(body), End(), protocol=protocol, taken_out="null") == [head, Body(body)]


def test_an_answer_without_a_body() -> None:
    assert relay(Head(204, ()), End()) == [Head(204, ())]
    assert relay(JSON, End()) == [JSON]


def test_nothing_follows_when_the_client_has_left() -> None:
    left = AbortInput("client")
    assert relay(left, STREAM, End()) == []
    assert relay(JSON, Body(b"{}"), left) == []
    assert relay(STREAM, Block(b"data: 1\n\n"), Block(b"data:"), left, CUT) == [STREAM, Block(b"data: 1\n\n")]


# --- any frames -------------------------------------------------------------------------------------------------------

HEADS = st.builds(
    Head,
    st.sampled_from([0, 101, 200, 204, 302, 400, 429, 500, 700]),
    st.lists(
        st.sampled_from([
            ("content-type", "text/event-stream"), ("content-type", "application/json"), ("content-type", "text/html"),
            ("content-encoding", "gzip"), ("content-length", "5"), ("connection", "content-type"), ("", ""),
        ]),
        max_size=3,
    ).map(tuple),
)  # fmt: skip
DATA = st.sampled_from([
    b"", b"\n", b"data: {}\n\n", b"data: [DONE]\n\n", b'data: {"error":1}\n\n', b": a\n\n", b"data: {", b"{}", b'"',
    b'data: {"choices":[{"delta":{},"token_ids":[1]}]}\n\n', b'data: {"choices":[{"delta":1,"token_ids":[1]}]}\n\n',
    b'data: {"type":"content_block_start","index":3}\n\n', b'data: {"type":"content_block_stop","index":[]}\n\n',
    b'data: {"sequence_number":99999999999999999999999}\n\n', b'data: {"sequence_number":7}\n\n', b'[{"error":{}}]',
])  # fmt: skip
KIND: list[FailureKind] = ["engine", "timeout", "client_closed"]
LASTS = st.sampled_from([End(), AbortInput("client"), *(ErrorInput(kind, "", None) for kind in KIND)])
EVENTS = st.lists(HEADS | st.builds(Block, DATA) | st.builds(Comment, DATA) | st.builds(Body, DATA) | LASTS, max_size=8)
BEGUN = st.tuples(st.sampled_from([STREAM, JSON, Head(500, ())]), EVENTS).map(lambda made: [made[0], *made[1]])

TAKEN_OUT: list[TakenOut] = ["", "null", "absent"]


@given(EVENTS | BEGUN, st.sampled_from(PROTOCOLS), st.sampled_from(TAKEN_OUT))
def test_the_relay_is_total_and_resumes_anywhere(events: list[Relayed], protocol: str, taken_out: TakenOut) -> None:
    start = opening(protocol, taken_out)
    whole = fold(RELAY.start(start), events)
    assert [place for place, frame in enumerate(whole) if isinstance(frame, Head)] == ([0] if whole else [])
    for cut in range(len(events) + 1):
        machine = RELAY.start(start)
        first = fold(machine, events[:cut])
        snapshot = machine.snapshot()
        stored = msgspec.json.decode(msgspec.json.encode(snapshot), type=RelaySnapshot)
        later = fold(machine, events[cut:])
        assert stored == snapshot
        assert first + later == first + fold(RELAY.resume(start, stored), events[cut:]) == whole
