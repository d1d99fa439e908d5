"""The official SDK reads what we write: plain iteration, its ``.stream()`` helper, and the call without streaming."""

from __future__ import annotations

from typing import Any

import anthropic
import httpx2
import pytest
from anthropic.types import Message, RawMessageStreamEvent
from pydantic import TypeAdapter

from stages.events import Comment, Content, End, Failure, Frame, Semantic, Start, Tick
from stages.opening import Ask
from stages.protocols import openai_chat
from stages.protocols.anthropic import chat_of, decode_request
from tests.support.chat import body_of
from tests.support.messages import CASES, SRC, answer_of, asked, frames_of, payloads, sdk

ASKED: Any = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
HEALTHY = [name for name in CASES if name != "error"]
ANSWERED = [name for name in HEALTHY if name != "broken call"]
EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)


def ticking(name: str) -> list[Frame]:
    """The case's frames, with a keep-alive before each event."""
    return frames_of([item for event in CASES[name] for item in (Tick(), event)])


@pytest.mark.parametrize("name", HEALTHY)
def test_plain_iteration_is_strictly_typed(name: str) -> None:
    frames = ticking(name)
    assert any(isinstance(frame, Comment) for frame in frames)
    events = list(sdk(frames).messages.create(**ASKED, stream=True))
    assert [event.type for event in events] == [value["type"] for value in payloads(frames)]
    for value in payloads(frames):
        EVENT.validate_python(value)


@pytest.mark.parametrize("name", ANSWERED)
def test_the_helper_builds_the_answer(name: str) -> None:
    want = asked(sdk(frames_of(CASES[name], Ask())), **ASKED)
    assert want == Message.model_validate(answer_of(CASES[name]))
    with sdk(ticking(name)).messages.stream(**ASKED) as stream:
        got = stream.get_final_message()
    # The helper leaves a null where nothing was told.
    assert got.model_dump(exclude_none=True) == want.model_dump(exclude_none=True)
    assert got.usage.output_tokens == want.usage.output_tokens


def test_what_the_helper_tells_on_the_way() -> None:
    with sdk(ticking("G12")).messages.stream(**ASKED) as stream:
        events = list(stream)
    assert [event.thinking for event in events if event.type == "thinking"] == ["Need tides."]
    assert len([event for event in events if event.type == "signature"]) == 1
    assert [event.text for event in events if event.type == "text"] == ["Looking", " it up."]
    assert [event.snapshot for event in events if event.type == "input_json"][-1] == {"port": "Brest"}


def test_parallel_calls() -> None:
    with sdk(ticking("parallel")).messages.stream(**ASKED) as stream:
        message = stream.get_final_message()
    calls = [(block.id, block.name, block.input) for block in message.content if block.type == "tool_use"]
    assert calls == [("call_k1", "get_tide", {"port": "Brest"}), ("call_k2", "get_wind", {})]
    assert (message.stop_reason, message.usage.input_tokens, message.usage.cache_read_input_tokens) == (
        "tool_use",
        5,
        4,
    )


def test_a_stop_sequence_and_the_length() -> None:
    for name, reason, stop in (("stop", "stop_sequence", "two"), ("length", "max_tokens", None)):
        with sdk(ticking(name)).messages.stream(**ASKED) as stream:
            message = stream.get_final_message()
        assert (message.stop_reason, message.stop_sequence) == (reason, stop)


def test_a_call_that_was_cut_has_what_can_be_read() -> None:
    with sdk(ticking("cut call")).messages.stream(**ASKED) as stream:
        message = stream.get_final_message()
    assert message.stop_reason == "max_tokens"
    assert [block.input for block in message.content if block.type == "tool_use"] == [{}]


def test_error_in_the_stream() -> None:
    texts: list[str] = []
    with sdk(ticking("error")).messages.stream(**ASKED) as stream, pytest.raises(anthropic.APIStatusError) as caught:
        texts.extend(stream.text_stream)
    assert texts == ["Lo"]
    # The status was sent long before: only the type tells.
    assert (caught.value.status_code, caught.value.type) == (200, "overloaded_error")


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("bad_request", anthropic.BadRequestError),
        ("unauthorized", anthropic.AuthenticationError),
        ("not_found", anthropic.NotFoundError),
        ("too_large", anthropic.APIStatusError),
        ("rate_limited", anthropic.RateLimitError),
        ("overloaded", anthropic.InternalServerError),
        ("timeout", anthropic.InternalServerError),
        ("engine", anthropic.InternalServerError),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_error_before_anything(kind: Any, error: type[anthropic.APIStatusError], stream: bool) -> None:
    frames = frames_of([Failure(kind, "why", "the_code", "n"), End()], Ask(stream=stream))
    with pytest.raises(error) as caught:
        sdk(frames).messages.create(**ASKED, stream=stream)
    assert "why" in str(caught.value)
    assert caught.value.request_id == "msg_a1"
    assert caught.value.type is not None


def test_the_request_id_is_exposed() -> None:
    create: Any = sdk(frames_of(CASES["text"], Ask())).messages.with_raw_response.create
    assert create(**ASKED).request_id == "msg_a1"


def test_what_comes_back_is_taken() -> None:
    """The blocks of an answer are the next request's message, as the SDK sends them."""
    seen: list[bytes] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(request.content)
        frames = frames_of(CASES["parallel" if len(seen) > 1 else "G12"], Ask())
        return httpx2.Response(200, headers={"content-type": "application/json"}, content=body_of(frames))

    client = anthropic.Anthropic(
        api_key="k", base_url="http://test", http_client=httpx2.Client(transport=httpx2.MockTransport(answer))
    )
    first = asked(client, **ASKED)
    result: Any = {"type": "tool_result", "tool_use_id": "call_k1", "content": "12 m"}
    turns: Any = [
        *ASKED["messages"],
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [result]},
    ]
    asked(client, **{**ASKED, "messages": turns})
    _, said, tool = openai_chat.messages_of(chat_of(decode_request(seen[1])))
    assert (said["content"], said["reasoning"]) == ("Looking it up.", "Need tides.")
    assert said["tool_calls"][0]["function"] == {"name": "get_tide", "arguments": {"port": "Brest"}}
    assert tool == {"role": "tool", "content": "12 m", "tool_call_id": "call_k1"}


def test_text_before_the_end_is_there_at_once() -> None:
    events: list[Semantic] = [Start(0, 1), Content(0, "a", SRC)]
    with sdk(frames_of(events)).messages.stream(**ASKED) as stream:
        assert next(iter(stream.text_stream)) == "a"
