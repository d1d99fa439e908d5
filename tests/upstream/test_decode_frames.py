"""How the frames of a response are read, whatever its protocol: blocks as clients read them, bodies, errors, ends."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from typing import Any

import pytest

from stages.events import (
    AbortInput,
    Block,
    Body,
    Comment,
    Content,
    Done,
    End,
    ErrorInput,
    Failure,
    FailureKind,
    Finish,
    Head,
    Semantic,
    Start,
    Usage,
)
from stages.protocols.openai_chat import ChatDecoder, event_of
from stages.stage import fold
from stages.upstream.decode import DECODERS, DecodeState, Upstream
from stages.upstream.frames import FrameSplitter
from tests.support.decoding import opening
from tests.support.decoding import read as read_as

SSE = Head(200, (("content-type", "text/event-stream; charset=utf-8"),))
BAD = Failure("engine", "The response has a part that is no JSON object.", "malformed_event")
CUT = Failure("engine", "The stream broke off before its end.", "truncated")


def read(frames: Sequence[Upstream], protocol: str = "chat") -> list[Semantic]:
    return read_as(protocol, frames)


def chunk(content: str | None = None, finish: str | None = None, index: int = 0) -> str:
    delta = {} if content is None else {"content": content}
    return json.dumps({"id": "c", "choices": [{"index": index, "delta": delta, "finish_reason": finish}]})


def body(data: bytes, last: Upstream | None = None) -> list[Semantic]:
    """What is read of an event stream, cut as the recorder cuts it."""
    splitter = FrameSplitter()
    return read([SSE, *splitter.feed(data), *splitter.end(), last or End()])


WHOLE: list[Semantic] = [Start(0, 0), Content(0, "a", (0, 1)), Content(0, "b", (1, 2)), Finish(0, "eos"), End()]
PLAIN = f"data: {chunk('a')}\n\ndata: {chunk('b')}\n\ndata: {chunk(finish='stop')}\n\ndata: [DONE]\n\n".encode()


def test_ids() -> None:
    assert {name: stage.id for name, stage in DECODERS.items()} == {
        "chat": "decode.chat@1", "completions": "decode.completions@1", "responses": "decode.responses@2",
        "messages": "decode.messages@1",
    }  # fmt: skip


STREAMS = {
    "lines end with LF": PLAIN,
    "lines end with CR LF": PLAIN.replace(b"\n", b"\r\n"),
    "lines end with CR": PLAIN.replace(b"\n", b"\r"),
    "lines end with anything": PLAIN.replace(b"\n\n", b"\r\n\n", 1).replace(b"\n\ndata: [", b"\r\rdata: ["),
    "a byte order mark": b"\xef\xbb\xbf" + PLAIN,
    "comments": b": hi\n\n" + PLAIN.replace(b"data: {", b": keep-alive\n\n: inside\ndata: {"),
    "blank lines": b"\n\n" + PLAIN.replace(b"\n\n", b"\n\n\n\n"),
    "no blank behind the colon": PLAIN.replace(b"data: ", b"data:"),
    "other fields": PLAIN.replace(b"data: ", b"id: 5\nretry: 7\nodd\ndata: "),
    "named as unnamed ones are": PLAIN.replace(b"data: ", b"event: message\ndata: "),
    "named otherwise": PLAIN.replace(b"data: {", b"event: delta\ndata: {"),
    "several data lines": PLAIN.replace(b'"choices": ', b'\ndata: "choices":\ndata:\ndata: '),
    "no [DONE]": PLAIN.removesuffix(b"data: [DONE]\n\n"),
    "blanks around [DONE]": PLAIN.replace(b"[DONE]", b" [DONE] "),
    "something behind [DONE]": PLAIN + f"data: {chunk('void')}\n\n".encode(),
    "a block without an end": PLAIN.removesuffix(b"data: [DONE]\n\n") + b"data: " + chunk("void").encode() + b"\n",
    "a named event of another kind": b'event: sglext_ids\ndata: {"ids":[1,2]}\n\n' + PLAIN,
}


@pytest.mark.parametrize("name", STREAMS)
def test_streams(name: str) -> None:
    assert body(STREAMS[name]) == WHOLE


def test_a_byte_order_mark_counts_at_the_beginning_only() -> None:
    first, *rest = PLAIN.split(b"\n\n")
    assert body(b"\n\n".join([first, b"\xef\xbb\xbfdata: " + chunk("void").encode(), *rest])) == WHOLE


def test_a_character_that_is_broken_is_replaced() -> None:
    data = PLAIN.replace(b'"a"', b'"\xf0\x9f"', 1)
    assert body(data)[1] == Content(0, "\ufffd", (0, 3))
    assert body(PLAIN.replace(b'"a"', b'"\\ud83d"', 1))[1] == Content(0, "\ufffd", (0, 3))


def test_numbers_and_names_that_json_does_not_have() -> None:
    assert body(PLAIN.replace(b'"id": "c"', b'"id": "c", "x": NaN, "y": -Infinity')) == WHOLE


@pytest.mark.parametrize("bad", ["{", "", "nul", "[1]", "3", '"a"', "null", '{"error": "say "no" "}', "[" * 100_000])
def test_an_event_that_is_no_object_loses_no_other(bad: str) -> None:
    """Clients differ: some stop there, some read on. What was lost is told in the end, and nothing else is lost."""
    blocks = PLAIN.split(b"\n\n")
    for place in range(3):
        data = b"\n\n".join([*blocks[:place], b"data: " + bad.encode(), *blocks[place:]])
        assert body(data) == [*WHOLE[:-1], BAD, End()]
        assert body(data.removesuffix(b"data: [DONE]\n\n")) == [*WHOLE[:-1], BAD, End()]
    # It says more than that the end is missing, and less than what broke the connection.
    begun = b"data: " + chunk("a").encode() + b"\n\ndata: " + bad.encode() + b"\n\n"
    assert body(begun) == [*WHOLE[:2], BAD, End()]
    late = ErrorInput("timeout", "late", "upstream_token_timeout")
    assert body(begun, late) == [*WHOLE[:2], Failure("timeout", "late", "upstream_token_timeout"), End()]
    assert body(begun, AbortInput("client")) == [*WHOLE[:2], BAD, End()]


def test_only_one_failure_is_told() -> None:
    error = b'data: {"error": {"message": "m"}}\n\n'
    told = Failure("engine", "m")
    assert body(b"data: {\n\n" + error + b"data: [DONE]\n\n") == [told, End()]
    assert body(error + b"data: {\n\n" + b"data: [DONE]\n\n") == [told, End()]
    assert body(error + error, ErrorInput("engine", "cut")) == [told, End()]


def test_an_event_without_data_is_nothing_to_clients_of_named_events() -> None:
    start = b'event: message_start\ndata: {"type":"message_start","message":{}}\n\n'
    change = b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"}}\n\n'
    ping = b"event: ping\ndata:\n\n"
    splitter = FrameSplitter()
    frames: list[Upstream] = [SSE, *splitter.feed(start + ping + change), End()]
    assert read(frames, "messages") == [Start(0, 0), Finish(0, "eos"), End()]


def test_an_error_event_by_name() -> None:
    """With the error object, or flat: no chunk at all."""
    flat = b'event: error\ndata: {"message": "m", "code": 429}\n\n'
    nested = b'event: error\ndata: {"error": {"message": "m", "code": 429}}\n\n'
    for data in (flat, nested):
        assert body(data + PLAIN) == [Failure("rate_limited", "m", "429"), End()]


def test_a_block_in_pieces() -> None:
    """The recorder passes on a long block before its end is there."""
    data = b'data: {"id": "c", "pad": "%b", "choices": []}\n\n' % (b"x" * 100)
    pieces = [data[at : at + 7] for at in range(0, len(data), 7)]
    for parts in (pieces, [data[:-1], b"\n"], [data[:-2], b"\n", b"\n"]):
        frames: list[Upstream] = [SSE, *map(Block, parts), *FrameSplitter().feed(PLAIN), End()]
        assert read(frames) == WHOLE
    splitter = FrameSplitter(most=16)
    long = [frame for at in range(0, len(PLAIN), 11) for frame in splitter.feed(PLAIN[at : at + 11])]
    assert len(long) > 10
    assert read([SSE, *long, End()]) == WHOLE


def test_a_block_that_is_too_long_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stages.upstream.decode._LONGEST", 1000)
    frames: list[Upstream] = [SSE, Block(b'data: {"a": "'), *[Block(b"x" * 400)] * 9]
    machine = DECODERS["chat"].start(opening("chat"))
    out = fold(machine, frames)
    assert out == []
    state = machine.snapshot()
    assert isinstance(state, DecodeState)
    assert sum(len(piece) for piece in state.held) < 1000
    rest = [Block(b'"}\n\n'), *FrameSplitter().feed(PLAIN), End()]
    assert fold(machine, rest) == [*WHOLE[:-1], BAD, End()]


# --- bodies -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "bad_request"), (401, "unauthorized"), (403, "unauthorized"), (404, "not_found"), (405, "bad_request"),
        (408, "timeout"), (409, "bad_request"), (413, "too_large"), (422, "bad_request"), (429, "rate_limited"),
        (500, "engine"), (502, "engine"), (503, "overloaded"), (504, "timeout"), (529, "overloaded"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("protocol", sorted(DECODERS))
def test_errors_by_status(status: int, kind: FailureKind, protocol: str) -> None:
    head = Head(status, (("content-type", "application/json"),))
    shapes: list[Any] = [
        {"error": {"message": "m", "type": "t", "code": "c"}}, {"object": "error", "message": "m", "code": "c"},
    ]  # fmt: skip
    for value in shapes:
        told = read([head, Body(json.dumps(value).encode()), End()], protocol)
        assert told == [Failure(kind, "m", "c"), End()]
    for value in ({"detail": "m"}, {"message": "m"}, {"type": "error", "error": {"type": "x", "message": "m"}}):
        told = read([head, Body(json.dumps(value).encode()), End()], protocol)
        assert told == [Failure(kind, "m"), End()]


@pytest.mark.parametrize("data", [b"", b"<html><body>Bad gateway</body></html>", b"[]", b"{}"])
def test_an_error_without_a_message_names_its_status(data: bytes) -> None:
    head = Head(502, (("content-type", "text/html"),))
    shapes: list[list[Upstream]] = [[head, Body(data), End()], [head, End()]]
    for frames in shapes:
        [failure, end] = read(frames)
        assert isinstance(failure, Failure)
        assert (failure.kind, end) == ("engine", End())
        assert "502" in failure.message
        assert "<" not in failure.message


def test_a_bare_error_where_events_should_be() -> None:
    data = b'{"error": {"message": "m", "code": 400}}'
    assert body(data) == [Failure("bad_request", "m", "400"), End()]
    assert body(data + b"\n") == [Failure("bad_request", "m", "400"), End()]
    assert body(b"data" + data) == [CUT, End()]


def test_a_success_that_is_an_error() -> None:
    value = b'{"error": {"message": "m", "type": "server_error"}}'
    for protocol in DECODERS:
        assert read([Head(200, ()), Body(value), End()], protocol) == [
            Failure("engine", "m", "server_error" if protocol == "messages" else None), End(),
        ]  # fmt: skip


def test_events_of_another_content_type() -> None:
    """Clients do not look at it."""
    assert read([Head(200, (("content-type", "application/json"),)), Body(PLAIN), End()]) == WHOLE


def test_what_is_neither() -> None:
    html = Head(200, (("content-type", "text/html; charset=utf-8"),))
    message = "The response is neither JSON nor events, but text/html."
    assert read([html, Body(b"<html>data</html>"), End()]) == [Failure("engine", message, "malformed_event"), End()]
    assert read([html, Body(b""), End()]) == [CUT, End()]
    assert read([]) == []
    assert read([End()]) == [CUT, End()]


def test_of_a_compressed_body_nothing_is_known() -> None:
    packed = (("content-type", "application/json"), ("content-encoding", "gzip"))
    assert read([Head(200, packed), Body(gzip.compress(b"{}", mtime=0)), End()]) == [End()]
    [failure, _] = read([Head(500, packed), Body(gzip.compress(b"{}", mtime=0)), End()])
    assert isinstance(failure, Failure)
    assert "500" in failure.message


# --- ends -------------------------------------------------------------------------------------------------------------


def test_ends() -> None:
    begun: list[Upstream] = [SSE, Comment(b": hi\n\n"), Block(f"data: {chunk('a')}\n\n".encode())]
    late = ErrorInput("timeout", "late", "upstream_token_timeout", "p")
    assert read([*begun, End()]) == [*WHOLE[:2], CUT, End()]
    assert read([*begun, late]) == [*WHOLE[:2], Failure("timeout", "late", "upstream_token_timeout", "p"), End()]
    assert read([*begun, AbortInput("client")]) == [*WHOLE[:2], End()]
    assert read([late]) == [Failure("timeout", "late", "upstream_token_timeout", "p"), End()]
    assert read([Head(500, ()), late])[0] == Failure("timeout", "late", "upstream_token_timeout", "p")
    assert read([AbortInput("client")]) == [End()]


def test_one_choice_that_does_not_finish() -> None:
    second = f"data: {chunk('x', index=1)}\n\n".encode()
    for data in (second + PLAIN, second + STREAMS["no [DONE]"]):
        [failure, end] = body(data)[-2:]
        assert isinstance(failure, Failure)
        assert (failure.code, end) == ("truncated", End())


def test_usage_beside_the_finish_of_a_stream_without_done() -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    last = json.loads(chunk(finish="stop")) | {"usage": usage}
    data = f"data: {chunk('a')}\n\ndata: {json.dumps(last)}\n\n".encode()
    assert body(data)[-3:] == [Finish(0, "eos"), Usage(3, 2), End()]


def test_chat_is_read_as_the_chat_decoder_reads_it() -> None:
    texts = [chunk("a"), chunk("b"), chunk(finish="stop")]
    machine = ChatDecoder().start(opening("chat"))
    assert body(PLAIN) == fold(machine, [*map(event_of, texts), Done()])
