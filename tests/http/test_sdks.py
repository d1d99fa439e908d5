"""Completions, responses and messages, asked by the official SDKs of OpenAI and Anthropic against a real server on a
real socket: sync and async, every way to ask."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import openai
import pydantic
import pytest

from tests.support.answers import Way
from tests.support.sdks import (
    ALMANAC,
    CASES,
    WAYS,
    Asked,
    Protocol,
    ask,
    ask_async,
    asking,
    claude,
    expected,
    fields_of,
)
from tests.support.server import Running

# As in test_sdk.py.
on_asyncio = pytest.mark.parametrize("anyio_backend", ["asyncio"])
every_way = pytest.mark.parametrize(("protocol", "way"), WAYS)
streaming = pytest.mark.parametrize(("protocol", "way"), [each for each in WAYS if each[1] == "plain"])


@every_way
@pytest.mark.parametrize("name", CASES)
def test_the_message_that_the_engine_meant(server: Running, name: str, protocol: Protocol, way: Way) -> None:
    asked, meant = CASES[name]
    assert ask(server, protocol, way, asked)[:4] == expected(protocol, meant)


@pytest.mark.anyio
@on_asyncio
@every_way
@pytest.mark.parametrize("name", ["reasoning", "parallel calls", "length"])
async def test_with_the_async_sdks_too(server: Running, name: str, protocol: Protocol, way: Way) -> None:
    asked, meant = CASES[name]
    assert (await ask_async(server, protocol, way, asked))[:4] == expected(protocol, meant)


@streaming
def test_text_arrives_in_pieces(server: Running, protocol: Protocol, way: Way) -> None:
    assert ask(server, protocol, way, Asked(ALMANAC)).parts == ("Two ", "a da", "y, s", "ays ", "the ", "alma", "nac.")


@every_way
def test_the_parts_come_in_the_order_in_which_they_were_written(server: Running, protocol: Protocol, way: Way) -> None:
    orders = {
        "responses": (("reasoning", "message"), ("message", "function_call", "function_call")),
        "messages": (("thinking", "text"), ("text", "tool_use", "tool_use")),
    }
    for name, order in zip(("reasoning", "parallel calls"), orders.get(protocol, ((), ())), strict=True):
        assert ask(server, protocol, way, CASES[name][0]).order == order


@pytest.mark.parametrize("protocol", ["completions", "responses", "messages"])
def test_usage_is_the_same_in_every_way(server: Running, protocol: Protocol) -> None:
    ways: list[Way] = [way for of, way in WAYS if of == protocol]
    [(prompt, written)] = {ask(server, protocol, way, CASES["length"][0]).usage for way in ways}
    assert prompt > 0
    assert written == 3
    # The opener and one word are reasoning; the closer, a word and the end token are not.
    fields = {"model": server.model, **fields_of(protocol, Asked("<think>Tide</think>Two"))}
    with asking(server, protocol) as by:
        usage = by.create(**fields).usage
    if protocol == "completions":
        assert usage.completion_tokens == 5
    else:
        details = usage.output_tokens_details
        thought = details.reasoning_tokens if protocol == "responses" else details.thinking_tokens
        assert (usage.output_tokens, thought) == (5, 2)


@pytest.mark.parametrize("way", ["plain", "whole"])
def test_the_stop_string_is_named(server: Running, way: Way) -> None:
    fields = {"model": server.model, **fields_of("messages", CASES["stop"][0])}
    with asking(server, "messages") as messages:
        if way == "whole":
            told = messages.create(**fields)
        else:
            [told] = [one.delta for one in messages.create(**fields, stream=True) if one.type == "message_delta"]
    assert (told.stop_reason, told.stop_sequence) == ("stop_sequence", "ys the al")


@pytest.mark.parametrize("way", ["helper", "whole"])
def test_thinking_is_told_of_without_its_text(server: Running, way: Way) -> None:
    asked = Asked("<think>\nThe moon pulls.\n</think>\n\nTwo a day.")
    fields = {"model": server.model, **fields_of("messages", asked)}
    fields["thinking"] = {"type": "adaptive", "display": "omitted"}
    with asking(server, "messages") as messages:
        if way == "whole":
            told = messages.create(**fields)
        else:
            with messages.stream(**fields) as stream:
                told = stream.get_final_message()
        thought, text = told.content
        assert (thought.type, thought.thinking, text.text) == ("thinking", "", "Two a day.")
        assert thought.signature
        turns = [*fields["messages"], {"role": "assistant", "content": told.content}, *fields["messages"]]
        again = messages.create(**{**fields, "messages": turns})
    assert [block.type for block in again.content] == ["thinking", "text"]


def test_tokens_are_counted_as_they_are_billed(server: Running) -> None:
    fields = {"model": server.model, **fields_of("messages", CASES["parallel calls"][0]), "system": "Be brief."}
    with asking(server, "messages") as messages:
        billed = messages.create(**fields).usage.input_tokens
        del fields["max_tokens"], fields["extra_body"]
        assert messages.count_tokens(**fields).input_tokens == billed
        assert messages.count_tokens(**{**fields, "system": "Be brief. " * 9}).input_tokens > billed


def test_a_call_and_its_result_go_on(server: Running) -> None:
    """What a client sends back of an answer is taken as it is."""
    with asking(server, "responses") as responses:
        first = responses.create(model=server.model, **fields_of("responses", CASES["parallel calls"][0]))
        results = [
            {"type": "function_call_output", "call_id": item.call_id, "output": "06:12"}
            for item in first.output if item.type == "function_call"
        ]  # fmt: skip
        items = [{"role": "user", "content": "When?"}, *first.output, *results]
        again = responses.create(model=server.model, input=items, extra_body={"forced_text": ALMANAC})
    assert again.output_text == ALMANAC
    assert again.usage.input_tokens > first.usage.input_tokens
    with asking(server, "messages") as messages:
        asked, _ = CASES["parallel calls"]
        first = messages.create(model=server.model, **fields_of("messages", asked))
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": "06:12"}
            for block in first.content if block.type == "tool_use"
        ]  # fmt: skip
        turns = [
            {"role": "user", "content": "When?"}, {"role": "assistant", "content": first.content},
            {"role": "user", "content": results},
        ]  # fmt: skip
        fields = {**fields_of("messages", Asked(ALMANAC)), "messages": turns}
        again = messages.create(model=server.model, **fields)
    assert again.content[0].text == ALMANAC
    assert again.usage.input_tokens > first.usage.input_tokens


class Tide(pydantic.BaseModel):
    """A strict tool, and a form of answers."""

    port: str
    days: list[int]


FORM = Tide(port="Brest", days=[1])


def test_strict_tools_are_parsed_by_the_helper(server: Running) -> None:
    called = f'<tool_call>\n{{"name": "tide", "arguments": {FORM.model_dump_json()}}}\n</tool_call>'
    fields: dict[str, Any] = {
        "model": server.model, "input": "?", "tools": [openai.pydantic_function_tool(Tide, name="tide")],
        "extra_body": {"forced_text": called},
    }  # fmt: skip
    with asking(server, "responses") as responses:
        with responses.stream(**fields) as stream:
            [done] = [one for one in stream if one.type == "response.function_call_arguments.done"]
            [streamed] = stream.get_final_response().output
        [whole] = responses.parse(**fields).output
    assert json.loads(done.arguments) == FORM.model_dump()
    assert streamed.parsed_arguments == whole.parsed_arguments == FORM


def test_a_form_is_parsed_by_the_helpers(server: Running) -> None:
    forced = {"extra_body": {"forced_text": FORM.model_dump_json()}}
    with asking(server, "responses") as responses:
        asked: dict[str, Any] = {"model": server.model, "input": "?", "text_format": Tide, **forced}
        with responses.stream(**asked) as stream:
            assert stream.get_final_response().output_parsed == FORM
        assert responses.parse(**asked).output_parsed == FORM
    with asking(server, "messages") as messages:
        fields: dict[str, Any] = {"output_format": Tide, **fields_of("messages", Asked("")), **forced}
        with messages.stream(model=server.model, **fields) as stream:
            assert stream.get_final_message().parsed_output == FORM
        assert messages.parse(model=server.model, **fields).parsed_output == FORM


def test_logprobs_of_responses(server: Running) -> None:
    fields: dict[str, Any] = {
        "model": server.model, "input": "?", "include": ["message.output_text.logprobs"], "top_logprobs": 2,
        "extra_body": {"forced_text": "Two a day."},
    }  # fmt: skip
    with asking(server, "responses") as responses:
        whole = responses.create(**fields)
        deltas = [one for one in responses.create(**fields, stream=True) if one.type.endswith("text.delta")]
    entries: Any = whole.output[0].content[0].logprobs
    assert [entry.token for entry in entries][:3] == ["Two ", "a da", "y."]
    assert all(0 >= entry.logprob == entry.top_logprobs[0].logprob for entry in entries)
    streamed = [(one.token, one.logprob) for delta in deltas for one in delta.logprobs]
    assert streamed[:3] == [(entry.token, entry.logprob) for entry in entries][:3]


def test_completions_echo_and_choices(server: Running) -> None:
    fields: dict[str, Any] = {
        "model": server.model, "prompt": ["High tide", "Low tide"], "n": 2, "echo": True, "logprobs": 1,
        "extra_body": {"forced_text": "Two a day."},
    }  # fmt: skip
    want = [f"{prompt}Two a day." for prompt in ("High tide", "High tide", "Low tide", "Low tide")]
    with asking(server, "completions") as completions:
        whole = completions.create(**fields)
        chunks = list(completions.create(**fields, stream=True))
    assert [choice.text for choice in whole.choices] == want
    texts = ["".join(one.choices[0].text for one in chunks if one.choices[0].index == index) for index in range(4)]
    assert texts == want
    for index, choice in enumerate(whole.choices):
        streamed = [one.choices[0].logprobs for one in chunks if one.choices[0].index == index]
        lists: Any = choice.logprobs
        for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
            assert getattr(lists, name) == [value for some in streamed if some for value in getattr(some, name)]
        assert "".join(lists.tokens).startswith(want[index])
        assert lists.token_logprobs[0] is None
        assert lists.text_offset[0] == 0


# --- errors ---------------------------------------------------------------------------------------------------------

BAD: dict[str, tuple[Protocol, dict[str, Any], str]] = {
    "completions: temperature": ("completions", {"temperature": 3}, "temperature"),
    "completions: wrong type": ("completions", {"max_tokens": "many"}, "max_tokens"),
    "completions: a prompt": ("completions", {"prompt": [["a"]]}, "prompt"),
    "completions: logprobs": ("completions", {"logprobs": -1}, "logprobs"),
    "responses: temperature": ("responses", {"temperature": 3}, "temperature"),
    "responses: wrong type": ("responses", {"max_output_tokens": "many"}, "max_output_tokens"),
    "responses: inside an item": ("responses", {"input": [{"role": "user", "content": 7}]}, "input[0].content"),
    "responses: a role": ("responses", {"input": [{"role": "wizard", "content": "x"}]}, "input[0].role"),
    "responses: a hosted tool": ("responses", {"tools": [{"type": "web_search"}]}, "tools[0].type"),
    "responses: a tool's name": (
        "responses", {"tools": [{"type": "function", "name": "a b", "parameters": {}}]}, "tools[0].name"
    ),
    "responses: a choice of no tool": (
        "responses", {"tool_choice": {"type": "function", "name": "sun"}}, "tool_choice"
    ),
    "messages: temperature": ("messages", {"temperature": 3}, "temperature"),
    "messages: wrong type": ("messages", {"max_tokens": "many"}, "max_tokens"),
    "messages: inside a message": ("messages", {"messages": [{"role": "user", "content": 7}]}, "messages[0].content"),
    "messages: a role": ("messages", {"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
    "messages: no messages": ("messages", {"messages": []}, "messages"),
    "messages: a block": (
        "messages", {"messages": [{"role": "user", "content": [{"type": "sound"}]}]}, "messages[0].content[0]"
    ),
    "messages: a tool's name": (
        "messages", {"tools": [{"name": "a b", "input_schema": {"type": "object"}}]}, "tools[0].name"
    ),
    "messages: a choice of no tool": ("messages", {"tool_choice": {"type": "tool", "name": "sun"}}, "tool_choice"),
}  # fmt: skip


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", BAD)
def test_a_bad_field_is_named(server: Running, name: str, stream: bool) -> None:
    protocol, wrong, param = BAD[name]
    # Some SDKs do not let a wrong field pass, or no longer know it.
    fields = {"model": server.model, **fields_of(protocol, Asked("Two.")), "extra_body": wrong, "stream": stream}
    kinds = (anthropic.BadRequestError, openai.BadRequestError)
    with asking(server, protocol) as by, pytest.raises(kinds) as caught:
        by.create(**fields)
    error: Any = caught.value
    if protocol == "messages":
        assert (error.body["type"], error.body["error"]["type"]) == ("error", "invalid_request_error")
        assert param in error.body["error"]["message"]
    else:
        assert (error.param or "").startswith(param)
        assert error.type == "invalid_request_error"
        assert param in error.message


@every_way
def test_another_model(server: Running, protocol: Protocol, way: Way) -> None:
    with pytest.raises(anthropic.NotFoundError if protocol == "messages" else openai.NotFoundError) as caught:
        ask(server, protocol, way, Asked("Two."), model="gpt-9")
    assert "gpt-9" in str(caught.value)
    assert server.model in str(caught.value)


@streaming
def test_an_error_in_the_stream(failing: Running, protocol: Protocol, way: Way) -> None:
    fields = {"model": failing.model, **fields_of(protocol, Asked("Two.")), "stream": True}
    events: list[Any] = []
    with asking(failing, protocol) as by:
        stream = by.create(**fields)
        if protocol == "responses":
            events += stream
            assert [event.delta for event in events if event.type.endswith("text.delta")] == ["Two ", "a "]
            last = events[-1]
            assert (last.type, last.response.status) == ("response.failed", "failed")
            failure = last.response.error
            assert (failure.code, failure.message) == ("server_error", "The engine lost its memory.")
            return
        with pytest.raises((anthropic.APIError, openai.APIError), match=r"The engine lost its memory\.") as caught:
            # What came before it is kept.
            events.extend(stream)
    error: Any = caught.value
    if protocol == "messages":
        assert [event.delta.text for event in events if event.type == "content_block_delta"] == ["Two ", "a "]
        assert (error.type, error.body["error"]["type"]) == ("api_error", "api_error")
        assert [event.type for event in events][-1] == "content_block_stop"
    else:
        assert [event.choices[0].text for event in events] == ["Two ", "a "]
        assert error.code == "engine_error"


@pytest.mark.parametrize("protocol", ["completions", "responses", "messages"])
def test_an_error_without_streaming(failing: Running, protocol: Protocol) -> None:
    kinds = (anthropic.InternalServerError, openai.InternalServerError)
    with pytest.raises(kinds, match=r"The engine lost its memory\.") as caught:
        ask(failing, protocol, "whole", Asked("Two."))
    error: Any = caught.value
    assert error.status_code == 500


def test_what_is_not_there_is_told_in_the_protocols_words(server: Running) -> None:
    with claude(server) as client, pytest.raises(anthropic.NotFoundError) as caught:
        client.messages.batches.retrieve("batch_1")
    assert caught.value.type == "not_found_error"
