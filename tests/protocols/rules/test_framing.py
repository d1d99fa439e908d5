"""Rules 1-25, each on what it allows and on what it forbids, in streams of our own and of other servers."""

from __future__ import annotations

from typing import Any

import pytest

from stages.protocols.rules import Evidence, Http, Need, Violation, Write, Writes, check, framing
from stages.sse import SseDecoder, SseEvent

BOM = b"\xef\xbb\xbf"
DONE = b"data: [DONE]\n\n"
CHUNK = b'data: {"a":1}\n\n'
BODY = CHUNK + b": keep-alive\n\n" + CHUNK + DONE
SECOND = 10**9
GOOD = (
    ("content-type", "text/event-stream; charset=utf-8"), ("cache-control", "no-cache, no-transform"),
    ("x-accel-buffering", "no"), ("transfer-encoding", "chunked"), ("x-request-id", "r-1"),
)  # fmt: skip
ERROR = b'{"error":{"message":"m","type":"server_error","param":null,"code":null}}'
JSON = (("content-type", "application/json"), ("x-request-id", "r-1"))


def found(rule: int, body: bytes = BODY, *, own: bool = True, **facts: Any) -> list[Violation]:
    """What one rule says, which must have run."""
    report = check(Evidence(body=body, own=own, **facts))
    assert rule in report.checked
    return [one for one in report.violations if one.rule == f"INV-{rule:03}"]


def places(rule: int, body: bytes, *, own: bool = True, **facts: Any) -> list[tuple[int, int]]:
    """Where it says something: frames and bytes."""
    return [(one.frame, one.byte) for one in found(rule, body, own=own, **facts)]


def head(*, without: str = "", status: int = 200, version: str = "1.1", **changed: str) -> Http:
    """The head of a good stream, with changes; ``_`` in names is ``-``."""
    names = {name.replace("_", "-"): value for name, value in changed.items()}
    kept = tuple((name, value) for name, value in GOOD if name not in names and name != without)
    return Http(status, (*kept, *names.items()), version=version, seen_ids=frozenset({"r-0"}))


# --- transport --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", [1, 2, 4, 5, 6])
@pytest.mark.parametrize(
    "http",
    [
        head(), head(content_type="Text/Event-Stream"), head(content_type='text/event-stream;charset="UTF-8"'),
        head(content_encoding="identity"), head(cache_control="no-store"), head(without="x-request-id", request_id="q"),
        head(without="transfer-encoding", version="2"), head(X_Accel_Buffering="No"),
    ],
)  # fmt: skip
def test_good_heads(rule: int, http: Http) -> None:
    assert found(rule, http=http) == []


@pytest.mark.parametrize(
    ("rule", "http"),
    [
        (1, head(status=201)), (1, head(content_type="application/json")), (1, head(without="content-type")),
        (1, head(content_type="text/event-stream; charset=latin-1")),
        (1, head(content_type="text/plain; charset=utf-8")),
        (2, head(status=500)), (4, head(content_length="9")), (4, head(content_encoding="gzip")),
        (4, head(without="transfer-encoding")), (4, head(transfer_encoding="gzip")), (5, head(without="cache-control")),
        (5, head(cache_control="max-age=0")), (5, head(without="x-accel-buffering")),
        (5, head(x_accel_buffering="yes")),
        (6, head(without="x-request-id")), (6, head(x_request_id=" ")), (6, head(x_request_id="r-0")),
    ],
)  # fmt: skip
def test_bad_heads(rule: int, http: Http) -> None:
    assert [(one.frame, one.byte) for one in found(rule, http=http)] == [(-1, 0)] * (2 if rule == 2 else 1)


@pytest.mark.parametrize(
    ("own", "protocol", "body", "right"),
    [
        (True, "chat", ERROR, True),
        (True, "responses", ERROR, True),
        (True, "chat", b'{"error":{"message":"m","type":"t","param":null,"code":400}}', False),
        (True, "chat", b'{"error":{"message":"m","type":"t","param":null}}', False),
        (True, "chat", b'{"error":{"message":"","type":"t","param":null,"code":null}}', False),
        (True, "chat", b'{"error":"Unauthorized"}', False),
        (True, "chat", b'{"object":"error","message":"m","type":"t","param":null,"code":null}', False),
        (False, "chat", b'{"object":"error","message":"m","type":"t","param":null,"code":400}', True),
        (False, "chat", b'{"error":{"message":"m","code":400}}', True),
        (False, "chat", b'{"error":"Unauthorized"}', False),
        (False, "chat", b'{"detail":"m"}', False),
        (True, "messages", b'{"type":"error","error":{"type":"api_error","message":"m"},"request_id":"r"}', True),
        (True, "messages", ERROR, False),
        (False, "messages", ERROR, False),
        (True, "chat", ERROR + b"x", False),
        (True, "chat", b"[" + ERROR + b"]", False),
        (True, "chat", ERROR.replace(b'"m"', b"NaN"), False),
        (True, "chat", ERROR.replace(b'"m"', b'"\xff"'), False),
        (True, "chat", b"", False),
        (True, "chat", b"data: " + ERROR + b"\n\n", False),
    ],
)
def test_errors_before_the_first_byte(own: bool, protocol: Any, body: bytes, right: bool) -> None:
    assert (found(2, body, own=own, protocol=protocol, http=Http(400, JSON)) == []) is right


def test_an_error_is_json_by_its_head_too() -> None:
    assert len(found(2, ERROR, http=Http(400, (("content-type", "text/plain"),)))) == 1
    assert len(found(2, ERROR, http=Http(400, ()))) == 1
    assert found(2, ERROR, http=Http(400, (("content-type", "application/json; charset=utf-8"),))) == []


@pytest.mark.parametrize("http", [None, head(), Http(400, JSON)])
@pytest.mark.parametrize("stream", [True, False, None, "true"])
@pytest.mark.parametrize(
    ("body", "streams"), [(BODY, True), (b": x\n\n", True), (b"\n\nid: 1\n", True), (ERROR, False), (b"", None)]
)
def test_stream_or_not(http: Http | None, stream: Any, body: bytes, streams: bool | None) -> None:
    request: dict[str, Any] = {} if stream is None else {"stream": stream}
    fine = http is not None and http.status != 200
    asked = stream is True
    assert (found(3, body, request=request, http=http) == []) is (fine or not asked or streams is not False)
    assert (found(7, body, request=request, http=http) == []) is (fine or streams is None or streams is asked)


def test_the_accept_header_is_shown() -> None:
    http = Http(200, GOOD, request_headers=(("Accept", "text/event-stream"),))
    assert "text/event-stream" in found(7, request={}, http=http)[0].seen


def times(*at: float, begun: float | None = 0, ended: float | None = None, keep: float = 10) -> Writes:
    """Writes of a frame each, times in seconds."""
    ends = [15, 29, 44, 58]
    made = [Write(int(when * SECOND), end) for when, end in zip(at, ends, strict=False)]
    one, other = (None if when is None else int(when * SECOND) for when in (begun, ended))
    return Writes(made, one, other, int(keep * SECOND))


@pytest.mark.parametrize(
    ("writes", "where"),
    [
        (times(15, 30, 45, 60, ended=75), []),
        (times(15.1, 16, 17, 18), [(0, 0)]),
        (times(1, 2, 17.1, 18), [(2, 29)]),
        (times(1, 2, 3, 4, ended=20), [(3, 58)]),
        (times(20, 21, 22, 23, begun=None), []),
        (times(1, 599, 600, 601, keep=0), []),
        (times(1, 601, 602, 603, keep=0), [(1, 15)]),
        (times(1, 601, 602, 603, keep=1000), [(1, 15)]),
        (Writes([Write(0, 15), Write(10 * SECOND, 15), Write(20 * SECOND, 58)], 0, None, 10 * SECOND), [(1, 15)]),
    ],
)
def test_silence(writes: Writes, where: list[tuple[int, int]]) -> None:
    assert places(8, BODY, writes=writes) == where


@pytest.mark.parametrize(
    ("writes", "where"),
    [
        (times(1, 1, 2, 3, ended=3), []), (times(1, 3, 2, 4), [(2, 29)]), (times(1, 2, 3, 4, begun=2), [(0, 0)]),
        (times(1, 2, 3, 4, ended=3), [(3, 58)]), (times(5, 4, 3, 2), [(1, 15), (2, 29), (3, 44)]),
    ],
)  # fmt: skip
def test_times_never_decrease(writes: Writes, where: list[tuple[int, int]]) -> None:
    assert places(9, BODY, writes=writes) == where


@pytest.mark.parametrize(
    ("body", "ends", "where"),
    [
        (BODY, [15, 29, 44, 58], []), (BODY, [58], []), (BODY, [29, 29, 58], []), (BODY, [10, 15, 58], [(0, 10)]),
        (BODY, [15, 16, 43, 58], [(1, 16), (2, 43)]), (CHUNK + b"\n\n" + DONE, [16, 17, 31], []),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [11, 22], []), (b"data: a\r\n\r\ndata: b\r\n\r\n", [10, 22], [(0, 10)]),
    ],
)  # fmt: skip
def test_writes_hold_whole_events(body: bytes, ends: list[int], where: list[tuple[int, int]]) -> None:
    assert places(25, body, writes=Writes([Write(0, end) for end in ends])) == where


def test_a_body_that_is_no_stream_is_not_read_as_one() -> None:
    not_asked = check(Evidence(body=b'{"object":"chat.completion"}', own=True, request={}))
    refused = check(Evidence(body=ERROR, own=True, http=Http(500, JSON)))
    for report, checked in ((not_asked, (3, 7)), (refused, (1, 2, 4, 5, 6))):
        assert report.checked == checked
        assert all(report.unchecked[number] == ("stream",) for number in range(10, 25))
        assert report.violations == ()
    assert check(Evidence(body=ERROR, own=True)).unchecked[13] == ("stream",)
    assert 13 in check(Evidence(body=ERROR, own=True, request={"stream": True}, http=Http(200, GOOD))).checked
    assert 13 in check(Evidence(body=DONE, own=True, request={}, http=Http(500, JSON))).checked


# --- framing ----------------------------------------------------------------------------------------------------------

ALLOWED = [BODY, CHUNK, DONE, b": ka\n\n: ka\n\n", b'event: x\ndata: {"a":1}\n\n' + DONE, b"", b": a\n: b\n\n" + CHUNK]


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("body", ALLOWED)
@pytest.mark.parametrize("rule", [number for number in range(10, 25) if number != 23])
def test_allowed(rule: int, body: bytes, own: bool) -> None:
    assert places(rule, body, own=own) == []


FORBIDDEN: list[tuple[int, bytes, list[tuple[int, int]]]] = [
    (10, CHUNK + b'data: {"a":"\xff"}\n\n', [(1, 27)]),
    (10, CHUNK + "data: é".encode()[:-1], [(1, 21)]),
    (11, BOM + CHUNK, [(0, 0)]),
    (12, b"data: {}\r\n\r\n", [(0, 8)]),
    (12, CHUNK + b'data: {"a":\r1}\n\n', [(1, 26)]),
    (13, CHUNK + b"data: {}\n", [(1, 15)]),
    (13, CHUNK + b"da", [(1, 15)]),
    (13, b"data: {}", [(0, 0)]),
    (14, b"data:{}\n\n", [(0, 0)]),
    (14, CHUNK + b"data:  {}\n\n", [(1, 15)]),
    (14, CHUNK + b"event:  x\ndata: {}\n\n", [(1, 15)]),
    (14, b"event: x\ndata:  {}\n\n", [(0, 9)]),
    (14, b"data: {\ndata:  }\n\n", [(0, 8)]),
    (14, CHUNK + b": ka\nfoo\nid: 1\n\n", [(1, 20), (1, 24)]),
    (14, BOM + CHUNK, [(0, 0)]),
    (14, CHUNK + b"foo\nda", [(1, 15)]),
    (15, CHUNK + b"id: 1\ndata: {}\n\n", [(1, 15)]),
    (15, b"id\ndata: {}\n\n", [(0, 0)]),
    (16, b"data: {}\nretry: 5\n\n", [(0, 9)]),
    (17, CHUNK + b"event: x\n\n" + CHUNK, [(1, 15)]),
    (17, b"event:\n\n", [(0, 0)]),
    (17, b"event: x\nfoo: x\n\n", [(0, 0)]),
    (18, b"data: \n\n" + CHUNK + b"data\n\n", [(0, 0), (2, 23)]),
    (19, b"data: {\ndata: }\n\n", [(0, 0)]),
    (20, CHUNK + b"data: [1]\n\ndata: 1\n\ndata: x\n\n", [(1, 15), (2, 26), (3, 35)]),
    (20, b"data: [DONE] \n\n", [(0, 0)]),
    (21, b'data: {"a":1,"a":1}\n\n', [(0, 0)]),
    (21, CHUNK + b'data: {"a":NaN}\n\n', [(1, 15)]),
    (21, b'data: {"a":"\\ud800"}\n\n', [(0, 0)]),
    (21, b"data: " + BOM + b"{}\n\n", [(0, 0)]),
    (22, b"data: {}\n: here\n\n", [(0, 9)]),
    (22, b": here\ndata: {}\n\n", [(0, 0)]),
    (22, CHUNK + b": ka\rdata: {}\n\n", [(1, 15)]),
    (24, DONE + CHUNK + DONE, [(1, 14), (2, 29)]),
    (24, CHUNK + DONE + b": ka\n\n", [(2, 29)]),
    (24, DONE + b"data", [(1, 14)]),
    (24, DONE + b"\n", [(0, 14)]),
]


@pytest.mark.parametrize(("rule", "body", "where"), FORBIDDEN, ids=[f"{rule}-{body!r}" for rule, body, _ in FORBIDDEN])
def test_forbidden(rule: int, body: bytes, where: list[tuple[int, int]]) -> None:
    assert places(rule, body) == where


@pytest.mark.parametrize("rule", [12, 14, 15, 16, 19, 22])
def test_of_another_server_it_is_a_warning(rule: int) -> None:
    body = b"id: 1\nfoo: x\ndata: {\n: c\ndata: }\n\nretry: 5\n\n" + b": ka\r\n\r\n"
    assert {one.severity for one in found(rule, body, own=False)} == {"warning"}
    assert {one.severity for one in found(rule, body, own=True)} == {"error"}


FOREIGN: list[tuple[int, bytes, list[tuple[int, int]]]] = [
    (15, b"id: 1\n" + CHUNK + CHUNK + DONE, []),
    (15, b"id: 1\n" + CHUNK + b": ka\n\n" + CHUNK, [(1, 26)]),
    (15, b"id: 1\n" + CHUNK + b"\n" + CHUNK, [(0, 21)]),
    (15, b"id: 1\n\n" + CHUNK, [(0, 6)]),
    (15, b"id: 1\ndata: {}\nid:\n\n: ka\n\n" + CHUNK, []),
    (15, b": ka\n\nid: 1\n" + CHUNK, []),
    (15, BOM + b"id: 1\n\n", [(0, 9)]),
    (16, b"retry: 5\n" + CHUNK, []),
    (16, CHUNK + b"retry: 5\n\n", [(1, 15)]),
    (20, b'data: {"type":"response.completed"}\n\n', []),
]


@pytest.mark.parametrize(("rule", "body", "where"), FOREIGN)
def test_of_another_server(rule: int, body: bytes, where: list[tuple[int, int]]) -> None:
    assert places(rule, body, own=False) == where


RESPONSE = b'event: response.completed\ndata: {"type":"response.completed"}\n\n'
STOP = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
FAILED = b'event: error\ndata: {"type":"error","error":{"type":"api_error","message":"m"}}\n\n'


@pytest.mark.parametrize(
    ("protocol", "end", "after", "own", "foreign"),
    [
        ("responses", RESPONSE, DONE, True, False), ("responses", RESPONSE, CHUNK, True, True),
        ("responses", FAILED, RESPONSE, True, True), ("messages", STOP, DONE, True, True),
        ("messages", FAILED, STOP, True, False), ("messages", STOP, STOP, True, True),
        ("completions", DONE, DONE, True, True), ("chat", FAILED, DONE, False, False),
    ],
)  # fmt: skip
def test_the_end_of_each_protocol(protocol: Any, end: bytes, after: bytes, own: bool, foreign: bool) -> None:
    for ours, breach in ((True, own), (False, foreign)):
        assert places(24, CHUNK + end, own=ours, protocol=protocol) == []
        where = [(2, len(CHUNK + end))] if breach else []
        assert places(24, CHUNK + end + after, own=ours, protocol=protocol) == where


@pytest.mark.parametrize(("protocol", "own", "right"), [
    ("chat", True, True), ("completions", False, True), ("responses", True, False), ("responses", False, True),
    ("messages", True, False), ("messages", False, False),
])  # fmt: skip
def test_where_done_is_an_event(protocol: Any, own: bool, right: bool) -> None:
    assert (places(20, DONE, own=own, protocol=protocol) == []) is right


# --- the decoder's self-check -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body", [BODY, BOM + BODY, BODY.replace(b"\n", b"\r\n"), b"\xff" + BODY, BODY[:-1], "data: é€😀\n\n".encode() * 40]
)
def test_the_decoder_reads_the_same_at_any_cuts(body: bytes) -> None:
    assert found(23, body, effort=True) == []


class _Forgetful(SseDecoder):
    """Loses what a read of one byte would complete."""

    def feed(self, data: bytes) -> list[SseEvent]:
        events = super().feed(data)
        return [] if len(data) == 1 else events


def test_a_decoder_that_depends_on_cuts_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framing, "SseDecoder", _Forgetful)
    first = found(23, BODY, effort=True)[0]
    assert (first.frame, first.byte) == (0, 0)
    assert "byte by byte" in first.seen


def test_effort_is_asked_for() -> None:
    unchecked = check(Evidence(body=BODY)).unchecked
    assert unchecked[23] == unchecked[137] == (Need.EFFORT,)
