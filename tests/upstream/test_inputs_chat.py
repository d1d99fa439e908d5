"""What the model wrote, from chat completions with token ids: of every capture that has them, and case by case."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stages.events import (
    AbortInput,
    Block,
    Body,
    Comment,
    End,
    ErrorInput,
    FinishInput,
    Head,
    Input,
    PromptInput,
    TokenLogprob,
    TokensInput,
    TopLogprob,
    UsageInput,
)
from stages.upstream.machine import Wire
from tests.support.captures import Capture, captures
from tests.support.inputs import DONE, GONE, event, opening, read, resumed, stream, tokens, told, whole

WITH_IDS = sorted(
    name for name, capture in captures().items()
    if capture.protocol == "chat" and capture.request.get("return_token_ids") and capture.server.startswith("vLLM")
)  # fmt: skip
STREAMED = [name for name in WITH_IDS if captures()[name].http.status == 200]
HIDDEN = "vllm_qwen3_hermes-reasoning_hidden"
"""Where reasoning is hidden, no ids are told."""
CUT = {"vllm_plain-stop_string_multitoken": {0: [(8304, 825, 13, 14822, 1378), (13, 45537)]}}
"""Ids behind the stop string's match are not told: the engine had 1588 and 4486 in the last step too."""


MERGED = "vllm_qwen3_hermes_si5"
"""A server that sends every fifth step (--stream-interval 5), with the ids of the others in it."""


def test_there_are_captures() -> None:
    assert len(STREAMED) >= 25


@pytest.mark.parametrize("name", STREAMED)
def test_capture(name: str) -> None:
    """The steps are the engine's, and so are prompt, finish reasons and counts."""
    capture = captures()[name]
    inputs = read("chat", _frames(capture))
    if capture.script is not None and not capture.name.startswith(MERGED):
        assert tokens(inputs) == _steps(capture)
    assert _joined(tokens(inputs)) == _ids(capture)
    if capture.engine is not None and isinstance(inputs[0], PromptInput):
        ids = capture.engine.prompt_ids
        assert inputs[0] == PromptInput(ids or inputs[0].ids, "", capture.engine.prompt or len(inputs[0].ids))
    assert sum(isinstance(made, PromptInput) for made in inputs) <= 1
    _same_ends(capture, inputs)


@pytest.mark.parametrize("name", [name for name in STREAMED if captures()[name].whole is not None])
def test_capture_without_streaming(name: str) -> None:
    """The whole response has the same ids, in one step for each choice."""
    capture = captures()[name]
    body = capture.whole or ""
    inputs = read("chat", whole(body.encode(), 500 if "error" in json.loads(body) else 200))
    if "error" in json.loads(body):
        assert [made.__class__ for made in inputs] == [ErrorInput]
        return
    assert tokens(inputs) == {choice: [ids] for choice, ids in _ids(capture).items()}
    _same_ends(capture, inputs)


@pytest.mark.parametrize("name", STREAMED)
def test_capture_resumed(name: str) -> None:
    frames = _frames(captures()[name])
    assert resumed("chat", frames, opening()) == read("chat", frames)


def _frames(capture: Capture) -> list[Any]:
    return stream(capture.data, capture.http.status, GONE if capture.marked == "client_closed" else None)


def _ids(capture: Capture) -> dict[int, tuple[int, ...]]:
    """Of each choice that has any, as far as they are told."""
    assert capture.engine is not None
    if capture.name == HIDDEN:
        return {}
    if capture.name in CUT:
        return _joined(CUT[capture.name])
    return {choice: told.ids for choice, told in capture.engine.choices.items() if told.ids}


def _steps(capture: Capture) -> dict[int, list[tuple[int, ...]]]:
    assert capture.engine is not None
    if capture.name in CUT:
        return CUT[capture.name]
    return {choice: capture.steps_of(choice) for choice in _ids(capture)}


def _joined(steps: dict[int, list[tuple[int, ...]]]) -> dict[int, tuple[int, ...]]:
    return {choice: tuple(number for step in found for number in step) for choice, found in steps.items()}


def _same_ends(capture: Capture, inputs: list[Input]) -> None:
    assert capture.engine is not None
    if isinstance(inputs[-1], UsageInput):
        reasons = {choice: told.reason for choice, told in capture.engine.choices.items()}
        assert {made.choice: made.reason for made in inputs if isinstance(made, FinishInput)} == reasons
        if capture.name != HIDDEN and capture.name not in CUT:
            assert inputs[-1].completion == sum(len(told.ids) for told in capture.engine.choices.values())
    elif capture.marked == "client_closed":
        assert inputs[-1] == GONE
    else:
        assert isinstance(inputs[-1], ErrorInput)
        assert "error" in capture.name


# --- case by case -----------------------------------------------------------------------------------------------------


def chunk(*choices: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": list(choices), **more}


def part(index: int = 0, ids: Any = None, finish: Any = None, **more: Any) -> dict[str, Any]:
    return {"index": index, "delta": {}, "logprobs": None, "finish_reason": finish, "token_ids": ids, **more}


ROLE = chunk({"index": 0, "delta": {"role": "assistant"}, "finish_reason": None}, prompt_token_ids=[1, 2])


@pytest.mark.parametrize(
    ("said", "stop", "reason", "detail"),
    [
        ("stop", None, "eos", None),
        ("tool_calls", None, "eos", None),
        ("stop", "END", "stop", "END"),
        ("stop", 7, "stop_token", 7),
        ("stop", 0, "stop_token", 0),
        ("length", None, "length", None),
        ("content_filter", None, "filter", None),
    ],
)
def test_finish(said: str, stop: Any, reason: Any, detail: Any) -> None:
    made = told("chat", ROLE, chunk(part(ids=[5], finish=said, stop_reason=stop)))
    assert made == [
        PromptInput((1, 2), "", 2), TokensInput(0, (5,), (), ""), FinishInput(0, reason, detail), UsageInput(2, 1),
    ]  # fmt: skip


@pytest.mark.parametrize("said", ["abort", "error"])
def test_finish_that_is_a_failure(said: str) -> None:
    made = told("chat", ROLE, chunk(part(ids=[5], finish=said)))
    assert made[1:] == [
        TokensInput(0, (5,), (), ""), ErrorInput("engine", f"The stream ended with the finish reason '{said}'.", said),
    ]  # fmt: skip


def test_usage_as_told() -> None:
    usage = {"prompt_tokens": 2, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 1}}
    made = told("chat", ROLE, chunk(part(ids=[5], finish="stop")), chunk(usage=usage))
    assert made[-1] == UsageInput(2, 9, 1)


def test_running_usage_counts_one_choice() -> None:
    """Without a usage of the whole response, those of the choices are added."""
    values = [
        chunk(part(0, [5], "stop"), usage={"prompt_tokens": 2, "completion_tokens": 1}),
        chunk(part(1, [5, 6], "stop"), usage={"prompt_tokens": 2, "completion_tokens": 2}),
    ]
    assert told("chat", ROLE, *values)[-1] == UsageInput(2, 3)


def test_choices_in_any_order() -> None:
    values = [chunk(part(3, [1])), chunk(part(0, [2])), chunk(part(3, [4], "stop")), chunk(part(0, [5], "length"))]
    assert told("chat", *values) == [
        PromptInput((), "", 0),
        TokensInput(3, (1,), (), ""), TokensInput(0, (2,), (), ""), TokensInput(3, (4,), (), ""),
        FinishInput(3, "eos"), TokensInput(0, (5,), (), ""), FinishInput(0, "length"), UsageInput(0, 4),
    ]  # fmt: skip


def test_several_choices_in_a_chunk() -> None:
    made = told("chat", chunk(part(0, [1], "stop"), part(1, [2], "stop")))
    assert [type(item) for item in made] == [
        PromptInput,
        TokensInput,
        FinishInput,
        TokensInput,
        FinishInput,
        UsageInput,
    ]


def test_after_its_finish_a_choice_says_nothing() -> None:
    made = told("chat", ROLE, chunk(part(ids=[5], finish="stop")), chunk(part(ids=[6], finish="stop")))
    assert tokens(made) == {0: [(5,)]}
    assert made[-1] == UsageInput(2, 1)


def test_a_choice_beyond_all_bounds_is_passed_over() -> None:
    made = told("chat", ROLE, chunk(part(1 << 40, [5])), chunk(part(128, [5])), chunk(part(0, [6], "stop")))
    assert tokens(made) == {0: [(6,)]}


def test_text_without_ids_is_nobodys_step() -> None:
    """What is echoed, or let through by a parser, is no more than that."""
    values = [
        chunk({"index": 0, "delta": {"content": "hi"}, "finish_reason": None}),
        chunk(part(ids=[], finish="stop")),
    ]
    assert told("chat", *values) == [PromptInput((), "", 0), FinishInput(0, "eos"), UsageInput(0, 0)]


# --- logprobs ---------------------------------------------------------------------------------------------------------


def entry(token: str, logprob: Any, **more: Any) -> dict[str, Any]:
    return {"token": token, "logprob": logprob, "bytes": list(token.encode()), "top_logprobs": [], **more}


def logprobs(*entries: dict[str, Any], ids: Any = (5,)) -> tuple[TokenLogprob, ...]:
    made = told("chat", chunk(part(ids=list(ids), finish="stop", logprobs={"content": list(entries)})))
    step = made[1]
    assert isinstance(step, TokensInput)
    assert step.ids == tuple(ids)
    return step.logprobs


def test_logprobs_join_ids() -> None:
    top = [{"token": "b", "logprob": -2.0, "bytes": [98]}, {"token": "a", "logprob": -0.5, "bytes": [97]}]
    assert logprobs(entry("a", -0.5, top_logprobs=top), entry("é", -1.0), ids=(5, 6)) == (
        TokenLogprob(5, b"a", -0.5, (TopLogprob(-1, b"a", -0.5), TopLogprob(-1, b"b", -2.0))),
        TokenLogprob(6, "é".encode(), -1.0),
    )


@pytest.mark.parametrize("count", [0, 1, 3])
def test_logprobs_that_cannot_be_aligned(count: int) -> None:
    assert logprobs(*[entry("a", -1.0)] * count, ids=(5, 6)) == ()


def test_logprobs_that_name_ids() -> None:
    top = [{"token": "token_id:9", "logprob": -3.0, "bytes": None}]
    made = logprobs(entry("token_id:5", -1.0, bytes=[240, 159], top_logprobs=top))
    assert made == (TokenLogprob(5, b"\xf0\x9f", -1.0, (TopLogprob(9, b"", -3.0),)),)


@pytest.mark.parametrize(("said", "number"), [(-1e30, -9999.0), (None, -9999.0), (1e-9, 0.0), (-0.25, -0.25)])
def test_logprobs_have_bounds(said: Any, number: float) -> None:
    assert logprobs(entry("a", said)) == (TokenLogprob(5, b"a", number),)


def test_not_a_number_is_the_lowest() -> None:
    text = json.dumps(chunk(part(ids=[5], finish="stop", logprobs={"content": [entry("a", float("-inf"))]})))
    assert "-Infinity" in text
    step = read("chat", [Block(f"data: {text}\n\n".encode())])[1]
    assert step == TokensInput(0, (5,), (), "", (TokenLogprob(5, b"a", -9999.0),))


# --- ends -------------------------------------------------------------------------------------------------------------

STEP = chunk(part(ids=[5]))
LAST = chunk(part(ids=[6], finish="stop"))


def test_end_without_done() -> None:
    assert told("chat", ROLE, STEP, LAST, last=End())[-1] == UsageInput(2, 2)


@pytest.mark.parametrize("values", [(), (ROLE,), (ROLE, STEP), (ROLE, LAST, chunk(part(1, [7])))])
def test_truncated(values: tuple[Any, ...]) -> None:
    made = told("chat", *values, last=End())
    assert made[-1] == ErrorInput("engine", "The stream broke off before its end.", "truncated")
    made = told("chat", *values)
    assert made[-1] == ErrorInput("engine", "The stream ended without a finish reason.", "truncated")


@pytest.mark.parametrize("last", [ErrorInput("timeout", "slow", "upstream_token_timeout"), AbortInput("client")])
def test_how_it_ended_is_passed_on(last: ErrorInput | AbortInput) -> None:
    assert told("chat", ROLE, STEP, last=last)[-1] == last


def test_nothing_follows_the_end() -> None:
    """A client that leaves after the last byte leaves nothing."""
    events: list[Wire] = [Head(200, ()), event(ROLE), event(LAST), DONE, event(STEP), GONE]
    assert read("chat", events)[-1] == UsageInput(2, 1)


def test_error_in_the_stream() -> None:
    error = {"error": {"message": "it broke", "type": "InternalServerError", "param": None, "code": 500}}
    assert told("chat", ROLE, STEP, error)[-1] == ErrorInput("engine", "it broke", "500")
    assert told("chat", {"object": "error", "message": "no", "code": 400})[-1] == ErrorInput("bad_request", "no", "400")
    assert told("chat", ROLE, {**LAST, "error": None})[-1] == UsageInput(2, 1)


@pytest.mark.parametrize("text", ["no json", '{"choices":[{', "[1]", "7", '"x"', '{"error": "a "quoted" word"}'])
def test_what_is_no_json_object(text: str) -> None:
    made = read("chat", [Head(200, ()), event(ROLE), Block(f"data: {text}\n\n".encode()), event(LAST), End()])
    assert isinstance(made[-1], ErrorInput)
    assert made[-1].code == "malformed_event"
    assert tokens(made) == {}


@pytest.mark.parametrize(
    ("status", "body", "kind", "message", "code"),
    [
        (400, b'{"error":{"message":"bad","code":400}}', "bad_request", "bad", "400"),
        (404, b'{"object":"error","message":"no model","type":"NotFoundError"}', "not_found", "no model", None),
        (422, b'{"detail":"Unexpected fields"}', "bad_request", "Unexpected fields", None),
        (422, b'{"detail":[{"loc":["body","n"],"msg":"too many"},{"msg":"and more"}]}', "bad_request",
         "body.n: too many; and more", None),
        (429, b'{"message":"slowly"}', "rate_limited", "slowly", None),
        (500, b"Internal Server Error", "engine", "Internal Server Error", None),
        (502, b"<html><h1>Bad Gateway</h1></html>", "engine", "The upstream answered with status 502.", None),
        (503, b"", "overloaded", "The upstream answered with status 503.", None),
        (503, b"{}", "overloaded", "The upstream answered with status 503.", None),
        (302, b"", "engine", "The upstream answered with status 302.", None),
        (500, b"\xff" * 600, "engine", "The upstream answered with status 500.", None),
    ],
)  # fmt: skip
def test_refusal(status: int, body: bytes, kind: Any, message: str, code: str | None) -> None:
    assert read("chat", whole(body, status)) == [ErrorInput(kind, message, code)]


def test_refusal_without_a_body() -> None:
    assert read("chat", [Head(503, ()), End()]) == [
        ErrorInput("overloaded", "The upstream answered with status 503.", None)
    ]


# --- blocks -----------------------------------------------------------------------------------------------------------

_STEP = json.dumps(STEP).encode()
_SPREAD = json.dumps(STEP, indent=1).replace("\n", "\ndata: ").encode()


@pytest.mark.parametrize(
    "block",
    [
        b"data: " + _STEP + b"\n\n",
        b"data:" + _STEP + b"\n\n",
        b"data: " + _STEP + b"\r\n\r\n",
        b"data: " + _STEP + b"\r\r",
        b"data: " + _STEP + b"\n\r\n",
        b"event: message\nid: 4\ndata: " + _STEP + b"\n\n",
        b": comment\ndata: " + _STEP + b"\n\n",
        b"\xef\xbb\xbfdata: " + _STEP + b"\n\n",
        b"data: " + _SPREAD + b"\n\n",
    ],
)
def test_block(block: bytes) -> None:
    assert tokens(read("chat", [Block(block)])) == {0: [(5,)]}


@pytest.mark.parametrize(
    "block", [b"data: " + _STEP, b"data: " + _STEP + b"\n", b"retry: 5\n\n", b"\n\n", b"", b"data"]
)
def test_block_that_carries_nothing(block: bytes) -> None:
    assert read("chat", [Block(block), Comment(b": x\n\n")]) == []


def test_what_is_wrong_of_an_event_is_passed_over() -> None:
    value: dict[str, Any] = {
        "choices": [
            {"index": "x", "token_ids": [5], "logprobs": 7, "stop_reason": [], "finish_reason": None},
            {"index": 1, "token_ids": [1 << 80], "finish_reason": "stop", "stop_reason": {}},
            "nothing", None, {"index": 2, "token_ids": "5", "finish_reason": 9},
        ],
        "usage": "many", "prompt_token_ids": {"a": 1}, "object": 5,
    }  # fmt: skip
    assert read("chat", [event(value)]) == [
        PromptInput((), "", 0), TokensInput(0, (5,), (), ""), FinishInput(1, "eos")
    ]  # fmt: skip


def test_a_choice_that_a_parsed_session_lacks() -> None:
    """Our stages have two choices to serve, the upstream made one."""
    made = told("chat", ROLE, LAST, of=opening(relayed=False, n=2))
    assert made[-1] == ErrorInput("engine", "The stream ended without a finish reason.", "truncated")
    assert told("chat", ROLE, LAST, of=opening(n=2))[-1] == UsageInput(2, 1)


def test_whole_body() -> None:
    body = chunk(
        {"index": 0, "message": {"content": "x"}, "finish_reason": "stop", "token_ids": [5, 6]},
        usage={"prompt_tokens": 2, "completion_tokens": 2}, prompt_token_ids=[1, 2],
    )  # fmt: skip
    assert read("chat", [Head(200, ()), Body(json.dumps(body).encode()), End()]) == [
        PromptInput((1, 2), "", 2), TokensInput(0, (5, 6), (), ""), FinishInput(0, "eos"), UsageInput(2, 2),
    ]  # fmt: skip
