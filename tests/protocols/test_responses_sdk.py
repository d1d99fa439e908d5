"""The official SDK reads what we write: plain iteration, its ``.stream()`` helper, ``parse``, and the whole body; and
what it dumps is taken back as input."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import openai
import pydantic
import pytest
from openai.types.responses import Response, ResponseStreamEvent

from stages.events import (
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    End,
    Failure,
    Finish,
    Frame,
    Semantic,
    Start,
    Tick,
    Usage,
)
from stages.opening import Ask
from stages.protocols.openai_chat import messages_of
from stages.protocols.openai_responses import chat_of, decode_request
from tests.support.responses import CASES, TOOLS, answer_of, frames_of, payloads, sdk

COMPLETE = sorted(set(CASES) - {"G10", "G11"})
EVENT: pydantic.TypeAdapter[ResponseStreamEvent] = pydantic.TypeAdapter(ResponseStreamEvent)
FULL: dict[str, Any] = {
    "instructions": "Be short.", "metadata": {"a": "b"}, "temperature": 0.5, "top_p": 0.9, "max_output_tokens": 50,
    "max_tool_calls": 3, "parallel_tool_calls": False, "truncation": "auto", "user": "u", "service_tier": "auto",
    "safety_identifier": "s", "prompt_cache_key": "p", "store": False,
    "reasoning": {"effort": "low", "summary": "concise"}, "previous_response_id": "resp_0",
    "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}, "verbosity": "low"},
    "tools": [{"type": "function", "name": "get_tide", "parameters": {"type": "object"}, "strict": True}],
    "tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "get_tide"}]},
}  # fmt: skip


def with_ticks(ask: Ask, events: Sequence[Semantic], **fields: Any) -> list[Frame]:
    """The case's frames, with a keep-alive before each event."""
    return frames_of(ask, [item for event in events for item in (Tick(), event)], **fields)


@pytest.mark.parametrize("name", sorted(CASES))
def test_plain_iteration_is_strictly_typed(name: str) -> None:
    frames = with_ticks(*CASES[name])
    events = list(sdk(frames).responses.create(model="m", input="hi", stream=True))
    values = payloads(frames)
    assert len(events) == len(values)
    for event, value in zip(events, values, strict=True):
        assert event == EVENT.validate_json(json.dumps(value), strict=True)


@pytest.mark.parametrize("fields", [{}, FULL])
@pytest.mark.parametrize("name", sorted(set(CASES) - {"G11"}))
def test_answers_are_strictly_typed_and_the_streams_last_word(name: str, fields: dict[str, Any]) -> None:
    ask, events = CASES[name]
    whole = answer_of(ask, events, **fields)
    frames = frames_of(msgspec.structs.replace(ask, stream=False), events, **fields)
    got = sdk(frames).responses.create(model="m", input="hi")
    assert got == Response.model_validate_json(json.dumps(whole), strict=True)
    assert payloads(frames_of(ask, events, **fields))[-1]["response"] == whole
    assert got.output_text == "".join(event.text for event in events if isinstance(event, Content))


def test_the_request_is_told_back() -> None:
    whole = answer_of(*CASES["text"], **FULL)
    # The tier that served, and the absent fields of what was declared.
    want = {**FULL, "service_tier": "default", "tools": [{**FULL["tools"][0], "description": None}]}
    assert {key: whole[key] for key in want} == want
    assert "conversation" not in whole
    assert answer_of(*CASES["text"], conversation="conv_1")["conversation"] == {"id": "conv_1"}


@pytest.mark.parametrize("fields", [{}, FULL])
@pytest.mark.parametrize("name", COMPLETE)
def test_the_helper_ends_with_the_answer(name: str, fields: dict[str, Any]) -> None:
    ask, events = CASES[name]
    want = sdk(frames_of(msgspec.structs.replace(ask, stream=False), events, **fields)).responses.create(
        model="m", input="hi"
    )
    with sdk(with_ticks(ask, events, **fields)).responses.stream(model="m", input="hi") as stream:
        said = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        got = stream.get_final_response()
    assert said == want.output_text == got.output_text
    assert plain(got) == plain(want)


def plain(response: Any) -> Any:
    """Without what the helper adds."""
    made = response.model_dump(mode="json", warnings=False)
    for item in made["output"]:
        item.pop("parsed_arguments", None)
        for part in item.get("content") or ():
            part.pop("parsed", None)
    return made


class Tide(pydantic.BaseModel):
    port: str


def test_parsed_text() -> None:
    events: list[Semantic] = [
        Start(0, 9), Content(0, '{"port": ', (0, 9)), Content(0, '"Brest"}', (9, 17)), Finish(0, "eos"), Usage(9, 4),
        End(),
    ]  # fmt: skip
    with sdk(frames_of(Ask(stream=True), events)).responses.stream(model="m", input="hi", text_format=Tide) as stream:
        assert stream.get_final_response().output_parsed == Tide(port="Brest")
    client = sdk(frames_of(Ask(), events))
    assert client.responses.parse(model="m", input="hi", text_format=Tide).output_parsed == Tide(port="Brest")


def test_parsed_calls() -> None:
    tool: Any = openai.pydantic_function_tool(Tide, name="get_tide")
    flat: Any = {"type": "function", **tool["function"]}
    ask, events = CASES["G09"]
    with sdk(frames_of(ask, events)).responses.stream(model="m", input="hi", tools=[flat]) as stream:
        call = stream.get_final_response().output[-1]
    assert call.type == "function_call"
    assert (call.call_id, call.parsed_arguments) == ("call_k1", {"port": "Brest"})


@pytest.mark.parametrize("name", ["G10", "G11"])
def test_what_is_not_complete_is_no_final_response(name: str) -> None:
    with sdk(frames_of(*CASES[name])).responses.stream(model="m", input="hi") as stream:
        last = list(stream)[-1]
        with pytest.raises(RuntimeError, match=r"response\.completed"):
            stream.get_final_response()
    assert last.type == ("response.incomplete" if name == "G10" else "response.failed")
    if last.type == "response.failed":
        assert last.response.error is not None
        assert (last.response.error.code, last.response.error.message) == ("server_error", "engine lost the request")


def test_an_error_behind_a_comment_is_a_response_that_failed() -> None:
    """The stream helper reads nothing that begins otherwise than with the response."""
    frames = frames_of(Ask(stream=True), [Tick(), Failure("overloaded", "queue full"), End()])
    with sdk(frames).responses.stream(model="m", input="hi") as stream:
        *begun, last = list(stream)
    assert [event.type for event in begun] == ["response.created", "response.in_progress"]
    assert last.type == "response.failed"
    assert last.response.error is not None
    assert (last.response.error.code, last.response.error.message) == ("server_error", "queue full")


def test_an_error_before_the_first_byte_has_its_status() -> None:
    frames = frames_of(Ask(stream=True), [Failure("rate_limited", "slow down"), End()])
    with pytest.raises(openai.RateLimitError, match="slow down"):
        sdk(frames).responses.create(model="m", input="hi", stream=True)


@pytest.mark.parametrize("name", COMPLETE)
def test_output_is_taken_back_as_input(name: str) -> None:
    """As it was on the wire, and as the SDK dumps it, nulls and all."""
    ask, events = CASES[name]
    whole = answer_of(ask, events)
    parsed = sdk(frames_of(msgspec.structs.replace(ask, stream=False), events)).responses.create(model="m", input="hi")
    outputs: list[list[Any]] = [
        whole["output"],
        parsed.model_dump(mode="json")["output"],
        [item.to_dict() for item in parsed.output],
    ]
    taken: list[Any] = []
    for output in outputs:
        items = [{"role": "user", "content": "hi"}, *output, {"role": "user", "content": "go on"}]
        request = decode_request(json.dumps({"input": items}).encode())
        taken.append(messages_of(chat_of(request)))
    assert taken[0] == taken[1] == taken[2]
    assert taken[0] == messages_of(chat_of(decode_request(b'{"input": "go on"}'), [
        {"role": "user", "content": "hi"}, *whole["output"],
    ]))  # fmt: skip


def test_what_the_model_meant_is_what_it_is_told_next() -> None:
    ask, events = CASES["G09"]
    items = [*answer_of(ask, events)["output"], {"type": "function_call_output", "call_id": "call_k1", "output": "5 m"}]
    body = {"input": items, "instructions": "Be short."}
    system, assistant, tool = messages_of(chat_of(decode_request(json.dumps(body).encode())))
    assert system == {"role": "system", "content": "Be short."}
    assert assistant == {
        "role": "assistant", "content": "Looking it up.",
        "reasoning": "Need tides.", "reasoning_content": "Need tides.",
        "tool_calls": [
            {"id": "call_k1", "type": "function", "function": {"name": "get_tide", "arguments": {"port": "Brest"}}}
        ],
    }  # fmt: skip
    assert tool == {"role": "tool", "content": "5 m", "tool_call_id": "call_k1"}


def test_a_broken_call_is_no_completed_response() -> None:
    events: list[Semantic] = [
        Start(0, 9), CallStart(0, 0, "call_1", "get_tide", (0, 8)), CallArguments(0, 0, '{"a"', (8, 12)),
        CallEnd(0, 0, False), Finish(0, "stop", "x"), Usage(9, 4), End(),
    ]  # fmt: skip
    [*_, last] = list(sdk(frames_of(Ask(stream=True, tools=TOOLS), events)).responses.create(
        model="m", input="hi", stream=True
    ))  # fmt: skip
    assert last.type == "response.failed"
    assert last.response.error is not None
    assert last.response.error.message == "The model's call of 'get_tide' is not complete."
    assert last.response.usage is not None
    [call] = last.response.output
    assert call.type == "function_call"
    assert (call.arguments, call.status) == ('{"a"', "incomplete")
