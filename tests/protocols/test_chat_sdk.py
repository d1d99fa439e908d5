"""The official SDK reads what we write: plain iteration, its ``.stream()`` helper, and the non-streaming call."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.chat.chat_completion_message_function_tool_call import ChatCompletionMessageFunctionToolCall

from stages.events import CallArguments, CallStart, Comment, Failure, Frame, Head, Semantic, Tick
from stages.opening import Ask
from tests.support.chat import CASES, body_of, frames_of, sdk

MESSAGES: Any = [{"role": "user", "content": "hi"}]
HEALTHY = sorted(set(CASES) - {"G05"})


def with_ticks(ask: Ask, events: Sequence[Semantic]) -> list[Frame]:
    """The case's frames, with a keep-alive before each event."""
    return frames_of(ask, [item for event in events for item in (Tick(), event)])


def answer_of(ask: Ask, events: Sequence[Semantic]) -> ChatCompletion:
    """The non-streaming answer as the SDK decodes it."""
    frames = frames_of(msgspec.structs.replace(ask, stream=False), events)
    return sdk(frames).chat.completions.create(model="m", messages=MESSAGES)


@pytest.mark.parametrize("name", HEALTHY)
def test_plain_iteration_is_strictly_typed(name: str) -> None:
    frames = with_ticks(*CASES[name])
    assert any(isinstance(frame, Comment) for frame in frames)
    chunks = list(sdk(frames).chat.completions.create(model="m", messages=MESSAGES, stream=True))
    texts = [line for line in body_of(frames).decode().split("\n\n") if line.startswith("data: {")]
    assert len(chunks) == len(texts)
    for chunk, text in zip(chunks, texts, strict=True):
        assert chunk == ChatCompletionChunk.model_validate_json(text.removeprefix("data: "), strict=True)


@pytest.mark.parametrize("name", HEALTHY)
def test_answers_are_strictly_typed(name: str) -> None:
    ask, events = CASES[name]
    text = body_of(frames_of(msgspec.structs.replace(ask, stream=False), events))
    assert answer_of(ask, events) == ChatCompletion.model_validate_json(text, strict=True)


@pytest.mark.parametrize("name", HEALTHY)
def test_the_helper_builds_the_non_streaming_answer(name: str) -> None:
    ask, events = CASES[name]
    ask = msgspec.structs.replace(ask, include_usage=True)
    want = answer_of(ask, events)
    client = sdk(with_ticks(ask, events))
    with client.chat.completions.stream(model="m", messages=MESSAGES, n=ask.n, logprobs=ask.logprobs) as stream:
        for _event in stream:
            pass
        got = stream.current_completion_snapshot
    assert (got.id, got.created, got.model, got.system_fingerprint) == (
        want.id, want.created, want.model, want.system_fingerprint,
    )  # fmt: skip
    assert got.usage == want.usage
    assert len(got.choices) == len(want.choices) == ask.n
    for mine, other in zip(got.choices, want.choices, strict=True):
        assert mine.finish_reason == other.finish_reason
        assert mine.message.role == "assistant"
        # The helper's fold gives "" where the answer has null.
        assert (mine.message.content or None) == other.message.content
        assert mine.message.refusal == other.message.refusal
        assert (mine.message.model_extra or {}).get("reasoning") == (other.message.model_extra or {}).get("reasoning")
        assert calls_of(mine.message.tool_calls) == calls_of(other.message.tool_calls)
        assert (mine.logprobs and mine.logprobs.content) == (other.logprobs and other.logprobs.content)


def calls_of(calls: Sequence[Any] | None) -> list[tuple[str, str, str, str]]:
    made: list[tuple[str, str, str, str]] = []
    for call in calls or ():
        assert isinstance(call, ChatCompletionMessageFunctionToolCall)
        made.append((call.id, call.type, call.function.name, call.function.arguments))
    return made


def test_the_helper_s_events_for_calls() -> None:
    tools: Any = [
        {"type": "function", "function": {"name": name, "strict": True, "parameters": {"type": "object"}}}
        for name in ("get_tide", "get_wind")
    ]
    with sdk(frames_of(*CASES["G02"])).chat.completions.stream(model="m", messages=MESSAGES, tools=tools) as stream:
        done = [
            (event.index, event.name, event.parsed_arguments)
            for event in stream
            if event.type == "tool_calls.function.arguments.done"
        ]
    assert done == [(0, "get_tide", {"port": "Brest"}), (1, "get_wind", {})]


def test_the_helper_s_events_for_logprobs() -> None:
    with sdk(frames_of(*CASES["G06"])).chat.completions.stream(model="m", messages=MESSAGES, logprobs=True) as stream:
        done = [event for event in stream if event.type == "logprobs.content.done"]
        text = [event for event in stream if event.type == "content.done"]
    assert [[entry.token for entry in event.content] for event in done] == [["Blue", " s", "ky"]]
    assert text == []


def test_length_ends_as_the_sdk_announces() -> None:
    with (
        sdk(frames_of(*CASES["G04"])).chat.completions.stream(model="m", messages=MESSAGES, n=2) as stream,
        pytest.raises(openai.LengthFinishReasonError),
    ):
        stream.get_final_completion()


def test_error_in_the_stream() -> None:
    stream = sdk(frames_of(*CASES["G05"])).chat.completions.create(model="m", messages=MESSAGES, stream=True)
    seen: list[str] = []
    with pytest.raises(openai.APIError, match="engine lost the request") as caught:
        seen.extend(chunk.choices[0].delta.content or "" for chunk in stream)
    assert (caught.value.code, caught.value.type) == ("engine_error", "server_error")


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("bad_request", openai.BadRequestError),
        ("unauthorized", openai.AuthenticationError),
        ("not_found", openai.NotFoundError),
        ("rate_limited", openai.RateLimitError),
        ("overloaded", openai.InternalServerError),
        ("timeout", openai.InternalServerError),
        ("engine", openai.InternalServerError),
        ("too_large", openai.APIStatusError),
    ],
)
def test_error_before_the_stream(kind: Any, error: type[openai.APIStatusError]) -> None:
    frames = frames_of(Ask(stream=True), [Failure(kind, "why", "the_code", "n")])
    with pytest.raises(error) as caught:
        sdk(frames).chat.completions.create(model="m", messages=MESSAGES, stream=True)
    head = frames[0]
    assert isinstance(head, Head)
    assert caught.value.status_code == head.status
    assert (caught.value.code, caught.value.param) == ("the_code", "n")
    assert caught.value.request_id == "chatcmpl-7a1"
    body: Any = caught.value.body
    assert body["message"] == "why"


def test_a_call_that_breaks_off_stays_a_prefix() -> None:
    """What a cut call leaves is what the model wrote, in both modes."""
    events: list[Semantic] = [
        *CASES["G02"][1][:1], CallStart(0, 0, "c", "get_tide", (0, 8)), CallArguments(0, 0, '{"port": "Bre', (8, 20)),
        *CASES["G04"][1][-3:],
    ]  # fmt: skip
    choice = answer_of(Ask(), events).choices[0]
    assert choice.finish_reason == "length"
    assert calls_of(choice.message.tool_calls) == [("c", "function", "get_tide", '{"port": "Bre')]
    chunks = list(
        sdk(frames_of(Ask(stream=True), events)).chat.completions.create(model="m", messages=MESSAGES, stream=True)
    )
    pieces = [call.function.arguments for chunk in chunks for call in chunk.choices[0].delta.tool_calls or ()
              if call.function]  # fmt: skip
    assert "".join(piece or "" for piece in pieces) == '{"port": "Bre'


def test_bytes_are_strict_json() -> None:
    for name in CASES:
        for line in body_of(frames_of(*CASES[name])).decode().split("\n\n"):
            text = line.removeprefix("data: ")
            if text and text != "[DONE]":
                json.loads(text, object_pairs_hook=unique, parse_constant=pytest.fail)


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    assert len(made) == len(pairs)
    return made
