"""The messages encoder: the golden streams, each kind of block and end, errors before and in a stream."""

from __future__ import annotations

from typing import Any

import pytest

from stages.events import (
    CallArguments,
    CallEnd,
    CallStart,
    Comment,
    Content,
    End,
    ErrorChunk,
    Failure,
    FailureKind,
    Finish,
    Head,
    Reasoning,
    Semantic,
    Start,
    Tick,
    Tokens,
    Usage,
)
from stages.message import collect
from stages.opening import Ask
from stages.protocols.anthropic import beginning
from stages.protocols.rules import Evidence, check
from tests.support.chat import body_of
from tests.support.messages import CALL, CASES, OTHER_CALL, SRC, answer_of, chunks_of, frames_of, payloads
from tests.support.wire import golden

OMITTED: dict[str, Any] = {"thinking": {"type": "adaptive", "display": "omitted"}}
HIDDEN = Ask(stream=True, include_reasoning=False)


def short(events: list[Any]) -> list[Any]:
    """Events without what only stands for itself: types, starts as their block, deltas as their text."""
    made: list[Any] = []
    for event in events:
        kind = event["type"]
        if kind == "content_block_start":
            made.append((event["index"], event["content_block"]))
        elif kind == "content_block_delta":
            (_, name), (_, text) = event["delta"].items()
            made.append((event["index"], name, text))
        else:
            made.append(kind if "index" not in event else (event["index"], "stop"))
    return made


def test_the_golden_stream() -> None:
    """As G12, but for what a server is free in: pings, an empty first fragment, the cut of arguments, signature, ids,
    the counts that nothing says anything of, and the tokens that a message begins with."""
    want = [event for event in golden("G12").elements if event["type"] != "ping"]
    want = [event for event in want if event.get("delta", {}).get("partial_json") != ""]
    got = payloads(frames_of(CASES["G12"]))
    signature = got[3]["delta"].pop("signature")
    want[3]["delta"].pop("signature")
    want[9]["content_block"]["id"] = "call_k1"
    want[10]["delta"]["partial_json"] = '{"port":'
    want.insert(11, {**want[10], "delta": {"type": "input_json_delta", "partial_json": '"Brest"}'}})
    more = {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
    want[0]["message"]["usage"] = {"input_tokens": 9, "output_tokens": 0} | more
    want[-2]["usage"] |= more
    assert got == want
    assert len(signature) > 20


def test_the_golden_error() -> None:
    want = golden("G13").elements
    want[0]["message"]["usage"] = {
        "input_tokens": 9, "output_tokens": 0, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
    }  # fmt: skip
    assert payloads(frames_of(CASES["error"])) == want


@pytest.mark.parametrize(
    ("name", "reason", "stop"),
    [
        ("text", "end_turn", None),
        ("G12", "tool_use", None),
        ("parallel", "tool_use", None),
        ("stop", "stop_sequence", "two"),
        ("length", "max_tokens", None),
        ("context", "model_context_window_exceeded", None),
        ("refusal", "refusal", None),
        ("filter", "refusal", None),
        ("empty", "end_turn", None),
        ("cut call", "max_tokens", None),
        ("stopped call", "stop_sequence", "B"),
        ("broken call", "max_tokens", None),
    ],
)
def test_why_a_message_ended(name: str, reason: str, stop: str | None) -> None:
    *_, change, last = payloads(frames_of(CASES[name]))
    assert change["delta"] == {"stop_reason": reason, "stop_sequence": stop}
    assert last == {"type": "message_stop"}
    whole = answer_of(CASES[name])
    assert (whole["stop_reason"], whole["stop_sequence"], whole["usage"]) == (reason, stop, change["usage"])


def test_a_stop_string_behind_whole_calls_is_no_stop_sequence() -> None:
    events: list[Semantic] = [Start(0, 9), *CALL, Finish(0, "stop", "x"), Usage(9, 5), End()]
    assert payloads(frames_of(events))[-2]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}


@pytest.mark.parametrize("name", [name for name in CASES if name != "error"])
def test_nothing_breaks_a_rule(name: str) -> None:
    """With what was meant, with the body without streaming, and decoded and encoded again."""
    for events in (CASES[name], [item for event in CASES[name] for item in (event, Tick())][:-1]):
        request = {"stream": True, "stop_sequences": ["two", "B"] if "stop" in name else []}
        report = check(
            Evidence(
                body=body_of(frames_of(events)), protocol="messages", own=True, request=request, meant=collect(events),
                whole=body_of(frames_of(events, Ask())), effort=True,
            )
        )  # fmt: skip
        assert report.violations == ()
        assert {116, 123, 126, 127, 132, 135, 137} <= set(report.checked)


def test_an_empty_message_has_one_empty_text_block() -> None:
    got = short(payloads(frames_of(CASES["empty"])))
    assert got == ["message_start", (0, {"type": "text", "text": ""}), (0, "stop"), "message_delta", "message_stop"]
    assert answer_of(CASES["empty"])["content"] == [{"type": "text", "text": ""}]


def test_blocks_of_an_answer() -> None:
    assert answer_of(CASES["parallel"])["content"] == [
        {"type": "tool_use", "id": "call_k1", "name": "get_tide", "input": {"port": "Brest"}},
        {"type": "tool_use", "id": "call_k2", "name": "get_wind", "input": {}},
    ]
    thinking, text, call = answer_of(CASES["G12"])["content"]
    assert (thinking["thinking"], text["text"], call["input"]) == ("Need tides.", "Looking it up.", {"port": "Brest"})
    assert thinking["signature"] == payloads(frames_of(CASES["G12"]))[3]["delta"]["signature"]


def test_input_tokens_are_without_the_cached_ones() -> None:
    events = payloads(frames_of(CASES["parallel"]))
    assert events[0]["message"]["usage"] == {
        "input_tokens": 5, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 4, "output_tokens": 0,
    }  # fmt: skip
    assert events[-2]["usage"] == {
        "input_tokens": 5, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 4, "output_tokens": 12,
        "output_tokens_details": {"thinking_tokens": 0},
    }  # fmt: skip


def test_each_change_of_kind_is_a_new_block() -> None:
    events: list[Semantic] = [
        Start(0, 1), Reasoning(0, "a", SRC), Content(0, "b", SRC), Reasoning(0, "c", SRC), *CALL, *OTHER_CALL,
        Content(0, "d", SRC), Finish(0, "eos"), Usage(1, 1), End(),
    ]  # fmt: skip
    starts = [event["content_block"]["type"] for event in payloads(frames_of(events)) if "content_block" in event]
    assert starts == ["thinking", "text", "thinking", "tool_use", "tool_use", "text"]
    signatures = [block["signature"] for block in answer_of(events)["content"] if block["type"] == "thinking"]
    assert len(set(signatures)) == 2


def test_text_in_an_open_call_closes_it() -> None:
    events: list[Semantic] = [
        Start(0, 1), *CALL[:2], Content(0, "b", SRC), CallArguments(0, 0, "}", SRC), CallEnd(0, 0, True),
        Finish(0, "eos"), Usage(1, 1), End(),
    ]  # fmt: skip
    got = short(payloads(frames_of(events)))
    assert got == [
        "message_start",
        (0, {"type": "tool_use", "id": "call_k1", "name": "get_tide", "input": {}}),
        (0, "input_json_delta", '{"port":'),
        (0, "stop"), (1, {"type": "text", "text": ""}), (1, "text_delta", "b"), (1, "stop"),
        "message_delta", "message_stop",
    ]  # fmt: skip
    assert payloads(frames_of(events))[-2]["delta"]["stop_reason"] == "max_tokens"


def test_thinking_without_its_text() -> None:
    got = payloads(frames_of(CASES["G12"], request=OMITTED))
    assert short(got)[1] == (0, {"type": "thinking", "thinking": "", "signature": ""})
    assert got[2]["delta"]["type"] == "signature_delta"
    assert short(got)[3] == (0, "stop")
    assert b"Need" not in body_of(frames_of(CASES["G12"], request=OMITTED))
    evidence = Evidence(
        body=body_of(frames_of(CASES["G12"], request=OMITTED)), protocol="messages", own=True, effort=True,
        request={"stream": True, **OMITTED}, meant=collect(CASES["G12"]),
        other=("messages", body_of(frames_of(CASES["G12"]))),
        whole=body_of(frames_of(CASES["G12"], Ask(), OMITTED)),
    )  # fmt: skip
    report = check(evidence)
    assert report.violations == ()


@pytest.mark.parametrize("request_", [None, OMITTED])
def test_no_thinking_at_all(request_: dict[str, Any] | None) -> None:
    got = payloads(frames_of(CASES["G12"], HIDDEN, request_))
    assert [event["content_block"]["type"] for event in got if "content_block" in event] == ["text", "tool_use"]


def test_other_choices_are_left_out() -> None:
    events: list[Semantic] = [
        Start(0, 1), Start(1, 1), Content(1, "no", SRC), Content(0, "yes", SRC), Finish(1, "length"), Finish(0, "eos"),
        Usage(1, 2), End(),
    ]  # fmt: skip
    assert answer_of(events)["content"] == [{"type": "text", "text": "yes"}]
    assert answer_of(events)["stop_reason"] == "end_turn"


def test_a_stream_without_usage_counts_its_tokens() -> None:
    events: list[Semantic] = [
        Start(0, 7, 2),
        Tokens(0, (1, 2)),
        Tokens(0, (3,)),
        Content(0, "a", SRC),
        Finish(0, "eos"),
        End(),
    ]
    usage = answer_of(events)["usage"]
    assert (usage["input_tokens"], usage["cache_read_input_tokens"], usage["output_tokens"]) == (5, 2, 3)


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "status", "told"),
    [
        ("bad_request", 400, "invalid_request_error"),
        ("unauthorized", 401, "authentication_error"),
        ("not_found", 404, "not_found_error"),
        ("too_large", 413, "request_too_large"),
        ("rate_limited", 429, "rate_limit_error"),
        ("overloaded", 503, "overloaded_error"),
        ("timeout", 504, "timeout_error"),
        ("engine", 500, "api_error"),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_an_error_before_anything_is_sent(kind: FailureKind, status: int, told: str, stream: bool) -> None:
    [chunk] = chunks_of([Failure(kind, "why", "c", "p"), End()], Ask(stream=stream))
    assert isinstance(chunk, ErrorChunk)
    assert chunk.status == status
    assert chunk.body == {"type": "error", "error": {"type": told, "message": "why"}, "request_id": "msg_a1"}


def test_an_error_behind_a_comment_is_an_event() -> None:
    frames = frames_of([Tick(), Failure("engine", ""), End()])
    assert [type(frame) for frame in frames[:2]] == [Head, Comment]
    assert payloads(frames) == [{"type": "error", "error": {"type": "api_error", "message": "The engine failed."}}]


def test_an_error_in_a_thought_signs_it_first() -> None:
    got = short(payloads(frames_of([Start(0, 1), Reasoning(0, "a", SRC), Failure("timeout", "late"), End()])))
    assert got[2:] == [(0, "thinking_delta", "a"), (0, "signature_delta", got[3][2]), (0, "stop"), "error"]


def test_a_client_that_is_gone_is_told_nothing() -> None:
    events: list[Semantic] = [Start(0, 1), Content(0, "a", SRC)]
    before = frames_of(events)
    assert frames_of([*events, Failure("client_closed", ""), End()]) == before


def test_both_headers_have_the_id() -> None:
    for ask in (Ask(stream=True), Ask()):
        head = frames_of(CASES["text"], ask)[0]
        assert isinstance(head, Head)
        assert [value for name, value in head.headers if name in ("request-id", "x-request-id")] == ["msg_a1"] * 2


# --- inputs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "complete", "reason", "read"),
    [
        ('{"port": "Brest", "day": "mo', False, "max_tokens", {"port": "Brest"}),
        ('{"port": }', False, "max_tokens", {}),
        ("[1]", False, "max_tokens", {}),
        ('{"port": "Brest"}', False, "max_tokens", {"port": "Brest"}),
        ("", False, "max_tokens", {}),
        # A parser that calls complete what is none.
        ('{"port": "Br', True, "max_tokens", {}),
        ("[1]", True, "max_tokens", {}),
        ('{"port": "Brest"}', True, "tool_use", {"port": "Brest"}),
        ("", True, "tool_use", {}),
    ],
)
def test_a_call_that_the_model_left_open(written: str, complete: bool, reason: str, read: Any) -> None:
    """Streaming or not, ``max_tokens`` tells that an input is not whole; what can be read of it is in the message."""
    events: list[Semantic] = [
        Start(0, 1), CallStart(0, 0, "call_1", "f", SRC), CallArguments(0, 0, written, SRC), CallEnd(0, 0, complete),
        Finish(0, "eos"), Usage(1, 1), End(),
    ]  # fmt: skip
    message = answer_of(events)
    assert (message["stop_reason"], [block["input"] for block in message["content"]]) == (reason, [read])
    assert payloads(frames_of(events))[-2]["delta"]["stop_reason"] == reason


@pytest.mark.parametrize(
    ("written", "wire"),
    [
        ('{ "a":\n [1, 2.50, 1e3] }', b'{"a":[1,2.50,1e3]}'),
        ('{"n": 123456789012345678901234567890}', b'{"n":123456789012345678901234567890}'),
        ('{"a":1,"a":2}', b'{"a":2}'),
        ('{"a":"\\ud83d\\ude00"}', b'{"a":"\\ud83d\\ude00"}'),
        # Clients read it as they read the stream: as an infinity.
        ('{"a": 1e999, "b": [-1E400, null]}', b'{"a":1e999,"b":[-1e999,null]}'),
        ('{"a": 1e999, "b": "\\ud800 NaN"}', b'{"a":1e999,"b":"\\ud800 NaN"}'),
        ("", b"{}"),
    ],
)
def test_an_input_is_what_the_model_wrote_on_one_line(written: str, wire: bytes) -> None:
    events: list[Semantic] = [Start(0, 1), CallStart(0, 0, "call_1", "f", SRC), CallArguments(0, 0, written, SRC)]
    body = body_of(frames_of([*events, CallEnd(0, 0, True), Finish(0, "eos"), Usage(1, 1), End()], Ask()))
    assert b'"input":' + wire + b"}" in body
    assert b"\n" not in body


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("", "{}"),
        ("{", "{}"),
        ('{"a": "do', "{}"),
        ('{"a": "done"', '{"a":"done"}'),
        ('{"a": "done", "b', '{"a":"done"}'),
        ('{"a": "done", "b"', '{"a":"done"}'),
        ('{"a": 12', "{}"),
        ('{"a": 12, "b": tru', '{"a":12}'),
        ('{"a": {"b": [1, [2, 3], "x", "y\\"', '{"a":{"b":[1,[2,3],"x"]}}'),
        ('{"a": {"b": [', '{"a":{"b":[]}}'),
        ('{"a": 1e999, "b": "d', '{"a":1e999}'),
        ('{"a": {}, "b": {"c": ', '{"a":{},"b":{}}'),
        ('{"a": "x,}{[", "b": "', '{"a":"x,}{["}'),
        ('{"a": 1}', '{"a":1}'),
        ('{"a": 1} tail', '{"a":1}'),
        ("[1, 2", "{}"),
        ('"a', "{}"),
        ('{"a": foo, "b": 1', "{}"),
        ("{]", "{}"),
    ],
)
def test_what_can_be_read_of_arguments_that_were_cut(text: str, want: str) -> None:
    assert beginning(text) == want


def test_reading_what_was_cut_takes_linear_time() -> None:
    assert beginning('{"a":' * 100_000) == "{}"
    assert beginning('{"a":[' + "1," * 200_000).startswith('{"a":[1,1')
