"""What a client hears of an upstream's failure: the protocol's error as an answer, or at the end of a stream."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from stages.events import Block, Body, Comment, End, ErrorInput, FailureKind, Frame, Head
from stages.upstream.relay import Relayed
from tests.support.chat import body_of
from tests.support.relay import JSON, PROTOCOLS, STREAM, frames_of_stream, relay, stream_of

CUT = ErrorInput("engine", "The upstream broke off.", "upstream_cut")
HTML = b"<html><body>Bad gateway: 10.0.0.7</body></html>"


def error_in(frames: Sequence[Frame], protocol: str = "chat") -> tuple[int, dict[str, str], Any]:
    """The status, the headers and the error of a whole answer in a protocol's shape."""
    head, body = frames
    assert isinstance(head, Head)
    assert isinstance(body, Body)
    headers = dict(head.headers)
    assert len(headers) == len(head.headers)
    assert headers["content-type"] == "application/json"
    assert headers["content-length"] == str(len(body.data))
    value = json.loads(body.data)
    if protocol == "messages":
        assert value.keys() == {"type", "error", "request_id"}
        assert value["type"] == "error"
        assert value["error"].keys() == {"type", "message"}
    else:
        assert value.keys() == {"error"}
        assert value["error"].keys() == {"message", "type", "param", "code"}
    return head.status, headers, value["error"]


# --- what becomes the protocol's error --------------------------------------------------------------------------------

STATUSES = [
    # status, OpenAI's type, the messages protocol's
    (400, "invalid_request_error", "invalid_request_error"),
    (401, "invalid_request_error", "authentication_error"),
    (402, "invalid_request_error", "billing_error"),
    (403, "invalid_request_error", "permission_error"),
    (404, "invalid_request_error", "not_found_error"),
    (405, "invalid_request_error", "invalid_request_error"),
    (409, "invalid_request_error", "conflict_error"),
    (413, "invalid_request_error", "request_too_large"),
    (429, "requests", "rate_limit_error"),
    (500, "server_error", "api_error"),
    (502, "server_error", "api_error"),
    (503, "server_error", "overloaded_error"),
    (504, "server_error", "timeout_error"),
    (529, "server_error", "overloaded_error"),
]


@pytest.mark.parametrize(("status", "of_openai", "of_anthropic"), STATUSES)
@pytest.mark.parametrize(
    ("kind", "named", "body"),
    [("text/html; charset=x", "text/html", HTML), ("text/plain", "text/plain", b"no"), (None, "no media type", b"")],
)
def test_what_is_no_error_of_the_protocol(
    status: int, of_openai: str, of_anthropic: str, kind: str | None, named: str, body: bytes
) -> None:
    told = (("retry-after", "7"), ("content-length", "47"), ("etag", "x"), ("x-request-id", "theirs"))
    head = Head(status, (*((("content-type", kind),) if kind else ()), *told, ("connection", "close")))
    for protocol in PROTOCOLS:
        got, headers, error = error_in(relay(head, Body(body), End(), protocol=protocol), protocol)
        assert got == status
        own = {"request-id"} if protocol == "messages" else set[str]()
        assert headers.keys() == {"content-type", "content-length", "retry-after", "x-request-id"} | own
        assert (headers["retry-after"], headers["x-request-id"]) == ("7", "theirs")
        assert error["type"] == (of_anthropic if protocol == "messages" else of_openai)
        assert f"HTTP {status}" in error["message"]
        assert named in error["message"]
        assert "html>" not in error["message"]
        assert error.get("code") == (None if protocol == "messages" else "upstream_status")


@pytest.mark.parametrize(("status", "body"), [(200, HTML), (201, b""), (200, b"{"), (600, b"{}x"), (101, b"")])
def test_what_is_no_answer_of_the_protocol(status: int, body: bytes) -> None:
    for protocol in PROTOCOLS:
        frames = relay(Head(status, (("content-type", "text/html"),)), Body(body), End(), protocol=protocol)
        got, headers, error = error_in(frames, protocol)
        assert got == 502
        assert headers["x-request-id"] == "r_1"
        assert error["type"] == ("api_error" if protocol == "messages" else "server_error")
        assert f"HTTP {status}" in error["message"]


def test_an_error_told_as_an_event() -> None:
    head = Head(429, (*STREAM.headers, ("content-length", "30"), ("retry-after", "7")))
    error = b'{"error": {"message": "full"}}'
    assert relay(head, Comment(b": no\n\n"), Block(b"data: " + error + b"\n\n"), Block(b"data: [DONE]\n\n"), End()) == [
        Head(429, (("content-type", "application/json"), ("content-length", "30"), ("retry-after", "7"))), Body(error),
    ]  # fmt: skip
    assert error_in(relay(head, Block(b"data: full\n\n"), End()))[2]["code"] == "upstream_status"


KINDS: list[tuple[FailureKind, int, str]] = [
    ("engine", 502, "api_error"), ("timeout", 504, "timeout_error"), ("overloaded", 503, "overloaded_error"),
    ("cancelled", 503, "overloaded_error"), ("bad_request", 400, "invalid_request_error"),
    ("unauthorized", 401, "authentication_error"), ("not_found", 404, "not_found_error"),
    ("too_large", 413, "request_too_large"), ("rate_limited", 429, "rate_limit_error"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "status", "of_anthropic"), KINDS)
def test_a_failure_before_anything_was_sent(kind: FailureKind, status: int, of_anthropic: str) -> None:
    failure = ErrorInput(kind, "It broke \ud800.", "upstream_cut", "p")
    befores: list[list[Relayed]] = [[], [JSON], [JSON, Body(b'{"id":')]]
    for before in befores:
        for protocol in PROTOCOLS:
            got, headers, error = error_in(relay(*before, failure, End(), protocol=protocol), protocol)
            assert got == status
            assert headers["x-request-id"] == "r_1"
            assert headers.get("retry-after") == ("1" if status in (429, 503) else None)
            assert error["message"] == "It broke \ufffd."
            if protocol == "messages":
                assert error["type"] == of_anthropic
            else:
                assert (error["code"], error["param"]) == ("upstream_cut", "p")


def test_an_error_that_breaks_off_keeps_its_status() -> None:
    head = Head(429, (("content-type", "application/json"), ("content-length", "999"), ("retry-after", "7")))
    status, headers, error = error_in(relay(head, Body(b'{"error":'), CUT))
    assert (status, headers["retry-after"], error["type"]) == (429, "7", "requests")
    assert "broke off" in error["message"]


def test_a_failure_of_this_server() -> None:
    assert error_in(relay(ErrorInput("engine", "no", "engine_error")))[0] == 500


def test_an_upstream_that_says_nothing() -> None:
    assert error_in(relay(End()))[0] == 502


# --- streams that break off -------------------------------------------------------------------------------------------


def broken(protocol: str, keep: int, *more: Relayed) -> list[Frame]:
    """A golden stream, of which ``keep`` frames came, and then these."""
    frames = frames_of_stream(protocol)
    return relay(STREAM, *frames[:keep], *more, protocol=protocol)[1 + keep :]


def client(protocol: str, body: bytes) -> Callable[[], list[Any]]:
    """The official SDK iterates over a stream."""
    answer = httpx2.MockTransport(lambda _: httpx2.Response(200, headers=list(STREAM.headers), content=body))
    http = httpx2.Client(transport=answer)
    ours = openai.OpenAI(api_key="k", base_url="http://test/v1", http_client=http, max_retries=0)
    said: Any = [{"role": "user", "content": "hi"}]
    theirs = anthropic.Anthropic(api_key="k", base_url="http://test", http_client=http, max_retries=0)
    return {
        "chat": lambda: list(ours.chat.completions.create(model="m", messages=said, stream=True)),
        "completions": lambda: list(ours.completions.create(model="m", prompt="hi", stream=True)),
        "responses": lambda: list(ours.responses.create(model="m", input="hi", stream=True)),
        "messages": lambda: list(theirs.messages.create(model="m", messages=said, max_tokens=9, stream=True)),
    }[protocol]  # type: ignore[return-value]  # lists of four kinds


@pytest.mark.parametrize("keep", [0, 1, 3])
@pytest.mark.parametrize("unfinished", [[], [Block(b"data: {")]])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_official_sdk_raises(protocol: str, unfinished: list[Block], keep: int) -> None:
    frames = frames_of_stream(protocol)[:keep]
    made = relay(STREAM, *frames, *unfinished, CUT, protocol=protocol)
    assert made[: keep + 1] == [STREAM, *frames]
    error = anthropic.APIStatusError if protocol == "messages" else openai.APIError
    with pytest.raises(error, match=r"The upstream broke off\."):
        client(protocol, body_of(made[1:]))()
    client(protocol, stream_of(protocol))()


def test_chat_and_completions_end_with_an_error_and_done() -> None:
    for protocol in ("chat", "completions"):
        assert broken(protocol, 2, CUT) == [
            Block(
                b'data: {"error":{"message":"The upstream broke off.","type":"server_error","param":null,'
                b'"code":"upstream_cut"}}\n\n'
            ),
            Block(b"data: [DONE]\n\n"),
        ]


def test_responses_end_with_the_next_event() -> None:
    (block,) = broken("responses", 3, CUT)
    assert isinstance(block, Block)
    name, data = block.data.split(b"\n", 1)
    assert name == b"event: error"
    error = {"message": "The upstream broke off.", "type": "server_error", "param": None, "code": "upstream_cut"}
    flat = {key: value for key, value in error.items() if key != "type"}
    assert json.loads(data[6:]) == {"type": "error", "sequence_number": 3, **flat, "error": error}


def test_messages_close_the_open_block() -> None:
    frames = frames_of_stream("messages")
    kinds = [frame.data.split(b"\n")[0].removeprefix(b"event: ").decode() for frame in frames]
    for keep in range(len(frames) + 1):
        made = broken("messages", keep, CUT)
        events = [json.loads(frame.data.split(b"data: ")[1]) for frame in made if isinstance(frame, Block)]
        if keep == len(frames):
            assert events == []
            continue
        error = {"type": "error", "error": {"type": "api_error", "message": "The upstream broke off."}}
        assert events[-1] == error
        started, stopped = (kinds[:keep].count(f"content_block_{what}") for what in ("start", "stop"))
        assert events[:-1] == [{"type": "content_block_stop", "index": stopped}] * (started - stopped)


@pytest.mark.parametrize(
    ("protocol", "last"),
    [
        ("chat", b"data: [DONE]\n\n"),
        ("chat", b'data: {"error":{"message":"engine"}}\n\n'),
        ("completions", b"data:[DONE]\r\n\r\n"),
        ("responses", b'data: {"type":"response.completed"}\n\n'),
        ("responses", b'event: response.failed\ndata: {"type":"response.failed"}\n\n'),
        ("responses", b'data: {"type":"response.incomplete"}\n\n'),
        ("messages", b'event: message_stop\ndata: {"type":"message_stop"}\n\n'),
        ("messages", b'event: error\ndata: {"type":"error","error":{"type":"api_error"}}\n\n'),
    ],
)
def test_a_stream_that_had_ended_has_no_second_end(protocol: str, last: bytes) -> None:
    for more in ([], [Comment(b": ping\n\n")], [Block(b"data:")]):
        frames = [Block(b"data: {}\n\n"), Block(last), *more]
        made = [frame for frame in frames if frame.data.endswith((b"\n\n", b"\r\n\r\n"))]
        assert relay(STREAM, *frames, CUT, protocol=protocol)[1:] == made


def test_an_error_behind_part_of_a_block_is_a_block_of_its_own() -> None:
    made = relay(STREAM, Block(b"data: 12"), Block(b"34"), CUT)
    assert made[:3] == [STREAM, Block(b"data: 12"), Block(b"\n\n")]
    assert [frame.data[:12] for frame in made[3:] if isinstance(frame, Block)] == [b'data: {"erro', b"data: [DONE]"]
