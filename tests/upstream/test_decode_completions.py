"""Reading the completions protocol, and whole bodies of chat completions: the chat reader on other shapes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stages.events import (
    Block,
    Body,
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    End,
    Failure,
    Finish,
    Head,
    Reasoning,
    Refusal,
    Semantic,
    Start,
    TokenLogprob,
    Tokens,
    TopLogprob,
    Usage,
)
from tests.support.decoding import read

HEAD = Head(200, ())


def stream(*values: Any) -> list[Semantic]:
    """Completions: what is read of these chunks; the body ends behind them."""
    blocks = [Block(f"data: {value if isinstance(value, str) else json.dumps(value)}\n\n".encode()) for value in values]
    return read("completions", [HEAD, *blocks, End()])


def text(said: Any, finish: str | None = None, index: Any = 0, **fields: Any) -> dict[str, Any]:
    """A chunk."""
    choice = {"index": index, "text": said, "logprobs": None, "finish_reason": finish, **fields}
    return {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "m", "choices": [choice]}


USAGE: dict[str, Any] = {
    "id": "cmpl-1",
    "choices": [],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
}


def test_a_stream() -> None:
    assert stream(text("Blue"), text(" sky"), text("", "length"), USAGE, "[DONE]") == [
        Start(0, 0), Content(0, "Blue", (0, 4)), Content(0, " sky", (4, 8)), Finish(0, "length"), Usage(3, 2), End(),
    ]  # fmt: skip


def test_choices_in_any_order() -> None:
    events = stream(text("b", index=1), text("a"), text("B", "stop", index=1), text("A", "stop"), "[DONE]")
    assert events == [
        Start(0, 0), Start(1, 0), Content(1, "b", (0, 1)), Content(0, "a", (0, 1)), Content(1, "B", (1, 2)),
        Finish(1, "eos"), Content(0, "A", (1, 2)), Finish(0, "eos"), End(),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("finish", "fields", "want"),
    [
        ("stop", {}, Finish(0, "eos")),
        ("stop", {"stop_reason": "###"}, Finish(0, "stop", "###")),
        ("stop", {"matched_stop": 7}, Finish(0, "stop_token", 7)),
        ("length", {}, Finish(0, "length")),
        ("content_filter", {}, Finish(0, "filter")),
    ],
)
def test_reasons(finish: str, fields: dict[str, Any], want: Finish) -> None:
    assert stream(text("a", finish, **fields), "[DONE]") == [Start(0, 0), Content(0, "a", (0, 1)), want, End()]


def test_ids_and_logprobs() -> None:
    logprobs = {
        "tokens": ["The", " sky"], "token_logprobs": [None, -2.0], "text_offset": [0, 3],
        "top_logprobs": [None, {" sea": -3.5, " sky": -2.0}],
    }  # fmt: skip
    events = stream(
        text("The sky", logprobs=logprobs, token_ids=[11, 12], prompt_token_ids=[1, 2, 3]), text("", "stop"), "[DONE]"
    )
    top = (TopLogprob(-1, b" sky", -2.0), TopLogprob(-1, b" sea", -3.5))
    assert events == [
        Start(0, 3, 0, (1, 2, 3)),
        Tokens(0, (11, 12), (TokenLogprob(11, b"The", -9999.0), TokenLogprob(12, b" sky", -2.0, top))),
        Content(0, "The sky", (0, 7)), Finish(0, "eos"), End(),
    ]  # fmt: skip


def test_errors() -> None:
    error = {"error": {"message": "m", "type": "server_error", "param": None, "code": None}}
    assert stream(text("a"), error, text("void"), "[DONE]")[2:] == [Failure("engine", "m"), End()]
    cut = Failure("engine", "The stream broke off before its end.", "truncated")
    assert stream(text("a"))[2:] == [cut, End()]
    assert stream() == [cut, End()]


def test_a_whole_completion() -> None:
    value = {**text("Blue sky", "stop"), "usage": USAGE["usage"]}
    assert read("completions", [HEAD, Body(json.dumps(value).encode()), End()]) == [
        Start(0, 0), Content(0, "Blue sky", (0, 8)), Finish(0, "eos"), Usage(3, 2), End(),
    ]  # fmt: skip


# --- whole bodies of chat completions ---------------------------------------------------------------------------------


def chat(*choices: Any, **fields: Any) -> list[Semantic]:
    value = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [*choices], **fields}
    return read("chat", [HEAD, Body(json.dumps(value).encode()), End()])


def test_a_whole_chat_completion() -> None:
    calls = [
        {"id": "call_1", "type": "function", "function": {"name": "tide", "arguments": '{"a":1}'}},
        {"id": "call_2", "type": "function", "function": {"name": "moon", "arguments": "{}"}},
    ]
    message = {"role": "assistant", "content": "Looking.", "reasoning": "hm", "refusal": None, "tool_calls": calls}
    other = {"role": "assistant", "content": None, "refusal": "no"}
    events = chat(
        {"index": 0, "message": message, "finish_reason": "tool_calls"},
        {"index": 1, "message": other, "finish_reason": "stop"},
        usage={"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14},
    )
    assert events == [
        Start(0, 0), Reasoning(0, "hm", (0, 2)), Content(0, "Looking.", (2, 10)),
        CallStart(0, 0, "call_1", "tide", (10, 14)), CallArguments(0, 0, '{"a":1}', (14, 21)), CallEnd(0, 0, True),
        CallStart(0, 1, "call_2", "moon", (21, 25)), CallArguments(0, 1, "{}", (25, 27)), CallEnd(0, 1, True),
        Finish(0, "eos"), Start(1, 0), Refusal(1, "no", (0, 2)), Finish(1, "eos"), Usage(9, 5), End(),
    ]  # fmt: skip


def test_a_call_without_arguments_has_none_as_its_client_sees_it() -> None:
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "now", "arguments": ""}}
    want = [Start(0, 0), CallStart(0, 0, "call_1", "now", (0, 3)), CallEnd(0, 0, True), Finish(0, "eos"), End()]
    assert chat({"index": 0, "message": {"tool_calls": [call]}, "finish_reason": "tool_calls"}) == want
    chunks: list[Any] = [
        {"id": "c", "choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}]},
        {"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
    ]
    assert (
        read("chat", [HEAD, *(Block(b"data: %b\n\n" % json.dumps(chunk).encode()) for chunk in chunks), End()]) == want
    )


def test_a_chat_completion_without_choices() -> None:
    assert chat() == [Failure("engine", "The stream broke off before its end.", "truncated"), End()]
    assert chat("odd", {"message": 3})[-2:] == [
        Failure("engine", "The stream broke off before its end.", "truncated"), End(),
    ]  # fmt: skip
