"""A small real model does what it is asked to: it calls, and answers in the form that was wanted."""

from __future__ import annotations

import json
from typing import Any, Literal

import jsonschema_rs
import openai
import pytest
from pydantic import BaseModel, ConfigDict

from stages.events import TokensInput
from tests.support.server import Running

pytestmark = pytest.mark.model

ASKED: Any = [{"role": "user", "content": "What is the weather in Paris, in celsius?"}]
WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}, "unit": {"enum": ["celsius", "fahrenheit"]}},
    "required": ["city", "unit"],
    "additionalProperties": False,
}
ZONE: dict[str, Any] = {
    "type": "object", "properties": {"hour": {"type": "integer", "minimum": 0, "maximum": 23}}, "required": ["hour"],
}  # fmt: skip
SCHEMAS = {"get_weather": WEATHER, "set_clock": ZONE}
TOOLS: Any = [
    {"type": "function", "function": {"name": name, "parameters": schema}} for name, schema in SCHEMAS.items()
]


class Person(BaseModel):
    model_config = ConfigDict(extra="forbid")
    mood: Literal["calm", "cross"]
    age: int | None


def raw(real: Running, response: str, choice: int = 0) -> str:
    """What the model wrote, its end of turn too."""
    events = real.recorded(response).events("input", "engine")
    steps = [event for event in events if isinstance(event, TokensInput) and event.choice == choice]
    return b"".join(piece for step in steps for piece in step.pieces).decode()


def written(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def test_a_required_call(real: Running) -> None:
    fields: Any = {
        "messages": ASKED,
        "tools": TOOLS,
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "seed": 4,
    }
    with real.client() as client:
        whole = real.create(client, **fields)
        chunks = list(real.create(client, **fields, stream=True))
    [call] = whole.choices[0].message.tool_calls
    assert whole.choices[0].finish_reason == "tool_calls"
    assert whole.choices[0].message.content is None
    assert jsonschema_rs.is_valid(SCHEMAS[call.function.name], json.loads(call.function.arguments))
    assert raw(real, whole.id) == f"{written(call.function.name, call.function.arguments)}<|im_end|>"
    assert real.recorded(whole.id).opening.ask.constrained
    deltas = [chunk.choices[0].delta for chunk in chunks]
    entries = [entry for delta in deltas for entry in delta.tool_calls or ()]
    assert [entry.function.name for entry in entries if entry.function.name] == [call.function.name]
    assert "".join(entry.function.arguments or "" for entry in entries) == call.function.arguments
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


def test_a_named_call_in_two_choices(real: Running) -> None:
    named = {"type": "function", "function": {"name": "set_clock"}}
    with real.client() as client:
        whole = real.create(client, messages=ASKED, tools=TOOLS, tool_choice=named, n=2, seed=1)
    for choice in whole.choices:
        [call] = choice.message.tool_calls
        assert (call.function.name, choice.finish_reason) == ("set_clock", "stop")
        assert json.loads(call.function.arguments)["hour"] in range(24)
        assert raw(real, whole.id, choice.index).startswith('<tool_call>\n{"name": "set_clock", "arguments": {')


def test_several_calls_until_the_bound(real: Running) -> None:
    with real.client() as client:
        whole = real.create(
            client, messages=ASKED, tools=TOOLS[1:], tool_choice="required", max_completion_tokens=100, temperature=0,
            extra_body={"min_tokens": 100},
        )  # fmt: skip
    [choice] = whole.choices
    assert choice.finish_reason == "length"
    assert len(choice.message.tool_calls) >= 2
    assert raw(real, whole.id).count("<tool_call>") >= 2


def test_the_parse_helper(real: Running) -> None:
    asked: Any = [{"role": "user", "content": "Ann is 31 and angry. Describe her as JSON."}]
    with real.client() as client:
        answer = client.chat.completions.parse(model=real.model, messages=asked, response_format=Person, seed=2)
    [choice] = answer.choices
    assert isinstance(choice.message.parsed, Person)
    assert choice.finish_reason == "stop"


def test_the_parse_helper_of_strict_tools(real: Running) -> None:
    tools = [openai.pydantic_function_tool(Person, name="describe")]
    with real.client() as client:
        answer = client.chat.completions.parse(
            model=real.model, messages=ASKED, tools=tools, tool_choice="required", parallel_tool_calls=False, seed=2
        )
    [call] = answer.choices[0].message.tool_calls or []
    assert isinstance(call.function.parsed_arguments, Person)


def test_any_json_object(real: Running) -> None:
    asked: Any = [{"role": "user", "content": "Say hello as JSON with one key."}]
    with real.client() as client:
        answer = client.chat.completions.create(
            model=real.model, messages=asked, response_format={"type": "json_object"}, temperature=0,
            max_completion_tokens=100,
        )  # fmt: skip
    [choice] = answer.choices
    text = choice.message.content or ""
    assert text.startswith("{")
    if choice.finish_reason == "stop":
        assert isinstance(json.loads(text), dict)


def test_the_other_protocols(real: Running) -> None:
    """The forms are one; only their fields differ."""
    schema = {"type": "object", "properties": {"yes": {"type": "boolean"}}, "required": ["yes"],
              "additionalProperties": False}  # fmt: skip
    tool = {"name": "set_clock", "input_schema": ZONE}
    ask = real.http.post
    messages = ask(
        "/v1/messages",
        json={
            "model": real.model,
            "max_tokens": 60,
            "temperature": 0,
            "messages": ASKED,
            "tools": [tool],
            "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        },
    ).json()
    [use] = messages["content"]
    assert (use["type"], messages["stop_reason"]) == ("tool_use", "tool_use")
    assert use["input"]["hour"] in range(24)
    form = {"type": "json_schema", "name": "answer", "schema": schema}
    response = ask(
        "/v1/responses", json={"model": real.model, "input": "Rain?", "text": {"format": form}, "temperature": 0}
    ).json()
    assert set(json.loads(response["output"][0]["content"][0]["text"])) == {"yes"}
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    fields = {"model": real.model, "prompt": "Is it raining? ", "response_format": form, "temperature": 0}
    assert set(json.loads(ask("/v1/completions", json=fields).json()["choices"][0]["text"])) == {"yes"}


def test_what_cannot_be_held_is_refused(real: Running) -> None:
    bad: Any = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "not": {}}}}]
    with real.client() as client:
        with pytest.raises(openai.BadRequestError) as caught:
            real.create(client, tools=bad, tool_choice="required")
        assert (caught.value.param, caught.value.code) == ("tools[0].function.parameters", "unsupported_schema")
        # Free to call or not, nothing is held: the schema is no matter.
        real.create(client, tools=bad, max_completion_tokens=1)
        with pytest.raises(openai.BadRequestError) as caught:
            real.create(client, tools=TOOLS, tool_choice="required", extra_body={"ignore_eos": True})
        assert caught.value.param == "ignore_eos"
