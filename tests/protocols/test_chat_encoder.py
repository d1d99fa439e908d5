"""The chat encoder: finish table, calls, logprobs, token ids, n, usage, errors, the non-streaming answer."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from stages.events import (
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    Done,
    Dropped,
    End,
    ErrorChunk,
    Failure,
    FailureKind,
    Fault,
    FaultCode,
    Finish,
    FinishReason,
    Head,
    Marker,
    Reasoning,
    Refusal,
    Semantic,
    Start,
    Tick,
    TokenLogprob,
    Tokens,
    Usage,
)
from stages.opening import Ask
from stages.protocols.openai_chat import Accumulator, ChatChunk, error_chunk, model_list
from tests.support.chat import answer_of, body_of, choices_of, chunks_of, frames_of, payloads

STREAM = Ask(stream=True)
END: list[Semantic] = [Usage(9, 4, 2, 1), End()]


def call(complete: bool, index: int = 0) -> list[Semantic]:
    return [
        CallStart(0, index, f"call_{index}", "f", (0, 1)), CallArguments(0, index, "{}", (1, 3)),
        CallEnd(0, index, complete),
    ]  # fmt: skip


def last_choice(ask: Ask, events: list[Semantic]) -> Any:
    return choices_of(frames_of(ask, events))[-1]


# --- finish ---------------------------------------------------------------------------------------------------------

FINISH: list[tuple[FinishReason, str, str, str]] = [
    # engine end, calls, tool_choice, finish_reason
    ("eos", "none", "auto", "stop"),
    ("stop_token", "none", "auto", "stop"),
    ("stop", "none", "required", "stop"),
    ("stop", "complete", "auto", "tool_calls"),
    ("stop", "complete", "name:f", "stop"),
    ("stop", "half", "auto", "stop"),
    ("stop", "complete, half", "auto", "stop"),
    ("stop", "open", "auto", "stop"),
    ("eos", "complete", "auto", "tool_calls"),
    ("eos", "complete", "required", "tool_calls"),
    ("stop_token", "complete", "auto", "tool_calls"),
    ("eos", "complete", "name:f", "stop"),
    ("eos", "half", "auto", "stop"),
    ("eos", "half, complete", "auto", "stop"),
    ("length", "none", "auto", "length"),
    ("length", "half", "auto", "length"),
    ("length", "complete", "auto", "length"),
    ("context", "complete", "auto", "length"),
    ("filter", "complete", "auto", "content_filter"),
]


@pytest.mark.parametrize(("reason", "calls", "choice", "want"), FINISH)
def test_finish_table(reason: FinishReason, calls: str, choice: str, want: str) -> None:
    events: list[Semantic] = [Start(0, 9)]
    for index, kind in enumerate(calls.split(", ")):
        if kind != "none":
            events += call(kind == "complete", index)[: 2 if kind == "open" else 3]
    ask = Ask(stream=True, tool_choice=choice)
    assert last_choice(ask, [*events, Finish(0, reason)]) == {
        "index": 0, "delta": {}, "logprobs": None, "finish_reason": want,
    }  # fmt: skip
    assert answer_of(ask, [*events, Finish(0, reason), *END])["choices"][0]["finish_reason"] == want


@pytest.mark.parametrize(
    ("finish", "want"),
    [
        (Finish(0, "stop", "###"), "###"),
        (Finish(0, "stop_token", 7), 7),
        (Finish(0, "stop_token", 0), 0),
        (Finish(0, "eos", 2), None),
        (Finish(0, "length"), None),
    ],
)
def test_stop_reason_says_what_matched(finish: Finish, want: str | int | None) -> None:
    stream = last_choice(STREAM, [Start(0, 9), finish])
    answer = answer_of(STREAM, [Start(0, 9), finish, *END])["choices"][0]
    for choice in (stream, answer):
        assert choice.get("stop_reason") == want
        assert ("stop_reason" in choice) is (want is not None)


# --- calls ----------------------------------------------------------------------------------------------------------


def test_calls_are_numbered_as_they_appear() -> None:
    events: list[Semantic] = [
        Start(0, 9),
        *call(True, 3),
        CallArguments(0, 3, "late", (0, 0)),
        *call(True, 5),
        Finish(0, "eos"),
    ]
    entries = [
        entry for choice in choices_of(frames_of(STREAM, events)) for entry in choice["delta"].get("tool_calls", [])
    ]
    header = {"type": "function", "function": {"name": "f", "arguments": ""}}
    assert entries == [
        {"index": 0, "id": "call_3", **header},
        {"index": 0, "function": {"arguments": "{}"}},
        {"index": 1, "id": "call_5", **header},
        {"index": 1, "function": {"arguments": "{}"}},
    ]


def test_a_call_that_never_ended_is_not_complete() -> None:
    events: list[Semantic] = [Start(0, 9), *call(True, 0)[:2], *call(True, 1), Finish(0, "eos")]
    assert last_choice(STREAM, events)["finish_reason"] == "stop"


def test_what_has_no_place_is_left_out() -> None:
    ask = Ask(stream=True, n=3, logprobs=True, return_token_ids=True)
    entry = (TokenLogprob(1, b"a", -1.0),)
    events: list[Semantic] = [
        Start(0, 9), Start(0, 9), Content(0, "", (0, 0)), CallArguments(0, 0, "{}", (0, 2)), CallEnd(0, 0, True),
        Content(2, "b", (0, 1)), Start(1, 9), Content(3, "c", (0, 1)), Content(-1, "c", (0, 1)), Finish(0, "eos"),
        Content(0, "d", (0, 1)), Tokens(0, (1,), entry), *call(True), Finish(0, "length"), Usage(9, 1),
    ]  # fmt: skip
    role = {"role": "assistant", "content": ""}
    shown = [
        (choice["index"], choice["delta"], choice["finish_reason"]) for choice in choices_of(frames_of(ask, events))
    ]
    assert shown == [
        (0, role, None), (1, role, None), (2, role, None), (2, {"content": "b"}, None), (0, {}, "stop"),
    ]  # fmt: skip
    after: list[Semantic] = [Content(1, "x", (0, 1)), Usage(9, 1), Tick(), Failure("engine", "x"), End()]
    assert chunks_of(ask, [*events, End(), *after])[-1] == Done()
    assert chunks_of(ask, [*events, End(), *after]) == chunks_of(ask, [*events, End()])


def test_clients_do_not_see_structure() -> None:
    events: list[Semantic] = [
        Start(0, 9), Marker(0, "<think>", (0, 7)), Dropped(0, "<pad>", (7, 12)),
        Fault(0, FaultCode.UNCLOSED_CALL, (12, 13), "x"), Tokens(0, (1,)), Finish(0, "eos"),
    ]  # fmt: skip
    assert [choice["delta"] for choice in choices_of(frames_of(STREAM, events))] == [
        {"role": "assistant", "content": ""}, {},
    ]  # fmt: skip


# --- reasoning ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ask", "want"),
    [
        (Ask(), {"reasoning": "r", "reasoning_content": "r"}),
        (Ask(reasoning_field="reasoning"), {"reasoning": "r"}),
        (Ask(reasoning_field="reasoning_content"), {"reasoning_content": "r"}),
        (Ask(include_reasoning=False), {}),
    ],
)
def test_reasoning_field(ask: Ask, want: dict[str, str]) -> None:
    events: list[Semantic] = [Start(0, 9), Reasoning(0, "r", (0, 1)), Content(0, "c", (1, 2)), Finish(0, "eos"), *END]
    deltas = [choice["delta"] for choice in choices_of(frames_of(msgspec.structs.replace(ask, stream=True), events))]
    assert deltas[1:-2] == ([want] if want else [])
    assert answer_of(ask, events)["choices"][0]["message"] == {
        "role": "assistant", "content": "c", "refusal": None, **want,
    }  # fmt: skip


# --- errors ---------------------------------------------------------------------------------------------------------


def test_failure_before_anything_is_the_status() -> None:
    for ask in (STREAM, Ask()):
        head, body = frames_of(ask, [Failure("bad_request", "too long", None, "messages"), End()])
        assert isinstance(head, Head)
        assert head.status == 400
        assert dict(head.headers)["x-should-retry"] == "false"
        assert json.loads(body_of([body])) == {
            "error": {"message": "too long", "type": "invalid_request_error", "param": "messages", "code": None}
        }


def test_failure_later_ends_the_stream_without_finish_and_usage() -> None:
    events: list[Semantic] = [Start(0, 9), Failure("timeout", "slow"), Finish(0, "eos"), Usage(9, 1), Tick(), End()]
    role, error, done = payloads(frames_of(Ask(stream=True, include_usage=True), events))
    assert role["choices"][0]["delta"]["role"] == "assistant"
    assert error == {"error": {"message": "slow", "type": "server_error", "param": None, "code": "timeout"}}
    assert done == "[DONE]"


def test_failure_later_without_streaming_is_the_status() -> None:
    head, body = frames_of(Ask(), [Start(0, 9), Content(0, "a", (0, 1)), Failure("engine", "lost"), End()])
    assert isinstance(head, Head)
    assert head.status == 500
    assert b'"code":"engine_error"' in body_of([body])


@pytest.mark.parametrize("ask", [STREAM, Ask()])
def test_nobody_is_told_of_a_client_that_left(ask: Ask) -> None:
    events: list[Semantic] = [Start(0, 9), Content(0, "a", (0, 1)), Failure("client_closed", ""), End()]
    sent = frames_of(ask, events)
    assert sent == frames_of(ask, events[:2])
    assert Done() not in chunks_of(ask, events)


@pytest.mark.parametrize(
    ("kind", "status", "error_type", "code", "header"),
    [
        ("bad_request", 400, "invalid_request_error", None, ("x-should-retry", "false")),
        ("unauthorized", 401, "invalid_request_error", "invalid_api_key", ("x-should-retry", "false")),
        ("not_found", 404, "invalid_request_error", "model_not_found", ("x-should-retry", "false")),
        ("too_large", 413, "invalid_request_error", None, ("x-should-retry", "false")),
        ("rate_limited", 429, "requests", "rate_limit_exceeded", ("retry-after", "1")),
        ("overloaded", 503, "server_error", "overloaded", ("retry-after", "1")),
        ("timeout", 504, "server_error", "timeout", None),
        ("engine", 500, "server_error", "engine_error", None),
        ("cancelled", 503, "server_error", "cancelled", ("retry-after", "1")),
    ],
)
def test_error_table(
    kind: FailureKind, status: int, error_type: str, code: str | None, header: tuple[str, str] | None
) -> None:
    body = {"error": {"message": "m", "type": error_type, "param": "p", "code": code}}
    assert error_chunk(kind, "m", None, "p") == ErrorChunk(status, body, () if header is None else (header,))
    assert error_chunk(kind, "m", "mine").body["error"]["code"] == "mine"
    assert error_chunk(kind, "").body["error"]["message"]


# --- without streaming ----------------------------------------------------------------------------------------------


def test_completion() -> None:
    events: list[Semantic] = [
        Start(0, 9), Start(1, 9), Reasoning(1, "hm", (0, 2)), Content(0, "Sky", (0, 3)), Content(0, ".", (3, 4)),
        *call(True), Refusal(1, "no", (2, 4)), Finish(1, "stop", "X"), Finish(0, "eos"), Tick(), *END,
    ]  # fmt: skip
    assert answer_of(Ask(n=2), events) == {
        "id": "chatcmpl-7a1", "object": "chat.completion", "created": 1760000000, "model": "demo-1",
        "system_fingerprint": "fp_demo",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant", "content": "Sky.", "refusal": None,
                    "tool_calls": [
                        {"id": "call_0", "type": "function", "function": {"name": "f", "arguments": "{}"}}
                    ],
                },
                "logprobs": None, "finish_reason": "tool_calls",
            },
            {
                "index": 1,
                "message": {
                    "role": "assistant", "content": None, "refusal": "no", "reasoning": "hm",
                    "reasoning_content": "hm",
                },
                "logprobs": None, "finish_reason": "stop", "stop_reason": "X",
            },
        ],
        "usage": {
            "prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13,
            "completion_tokens_details": {"reasoning_tokens": 1}, "prompt_tokens_details": {"cached_tokens": 2},
        },
    }  # fmt: skip


def test_content_is_null_where_none_came() -> None:
    assert answer_of(Ask(), [Start(0, 9), Finish(0, "eos"), *END])["choices"][0]["message"] == {
        "role": "assistant", "content": None, "refusal": None,
    }  # fmt: skip


def test_accumulator_takes_other_servers_chunks() -> None:
    base = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    entry = {"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x"'}}
    texts: list[dict[str, Any]] = [
        {**base, "choices": [{"index": 0, "delta": {"role": "assistant", "content": None, "tool_calls": [entry]}}]},
        {**base, "choices": [{"index": 0, "delta": {"tool_calls": [
            {"index": 0, "id": None, "function": {"name": None, "arguments": ":1}"}},
            {"index": 1, "id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}}]}}],
         "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}},
        {**base, "choices": [{"index": 0, "delta": {"content": "end", "tool_calls": None, "odd": 1},
                              "finish_reason": "tool_calls", "stop_reason": None, "matched_stop": 1}], "usage": None},
    ]  # fmt: skip
    accumulator = Accumulator()
    for text in texts:
        accumulator.add(msgspec.json.decode(json.dumps(text), type=ChatChunk))
    answer = json.loads(accumulator.completion().wire())
    assert answer["choices"][0]["message"] == {
        "role": "assistant", "content": "end", "refusal": None,
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}},
            {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}},
        ],
    }  # fmt: skip
    assert answer["usage"] == {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}


def test_accumulator_of_nothing() -> None:
    assert Accumulator().completion().choices == ()


def test_model_list() -> None:
    assert json.loads(msgspec.json.encode(model_list(["a", "b"], 17, 2048))) == {
        "object": "list",
        "data": [
            {"id": name, "object": "model", "created": 17, "owned_by": "playhead", "max_model_len": 2048}
            for name in "ab"
        ],
    }
    assert "max_model_len" not in json.loads(msgspec.json.encode(model_list(["a"], 17)))["data"][0]
