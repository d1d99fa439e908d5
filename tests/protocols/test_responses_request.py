"""Requests of the responses protocol: what each field becomes, what is refused, and how the client is told."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from stages.errors import RequestError
from stages.opening import Ask, Tool
from stages.protocols.openai_chat import ChatRequest, ask_of, messages_of, tools_of
from stages.protocols.openai_responses import (
    chat_of,
    decode_request,
    input_items,
    references,
    resolved,
    unknown_fields,
)

TIDE = {"type": "function", "name": "tide", "description": "d", "parameters": {"type": "object"}, "strict": True}
MOON = {"type": "function", "name": "moon"}


def chat(**fields: Any) -> ChatRequest:
    """The request in chat's terms; its input is a word where none is given."""
    return chat_of(decode_request(json.dumps({"input": "hi", **fields}).encode()))


def said(items: list[Any], **fields: Any) -> list[Any]:
    """The messages that a model gets."""
    return [*messages_of(chat(input=items, **fields))]


def refusal(**fields: Any) -> tuple[str | None, str]:
    """The field that is refused, and why."""
    with pytest.raises(RequestError) as caught:
        chat(**fields)
    assert caught.value.status == 400
    return caught.value.param, caught.value.message


# --- input ------------------------------------------------------------------------------------------------------------


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


@pytest.mark.parametrize(
    ("items", "want"),
    [
        ([user("hi")], [user("hi")]),
        ([{"type": "message", **user("hi"), "id": None, "status": None}], [user("hi")]),
        ([{"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]}],
         [user("a\nb")]),
        ([{"role": "system", "content": "s"}, {"role": "developer", "content": "d"}, user("hi")],
         [{"role": "system", "content": "s"}, {"role": "system", "content": "d"}, user("hi")]),
        ([user("hi"), {"role": "assistant", "content": "yes"}], [user("hi"), {"role": "assistant", "content": "yes"}]),
        ([user("hi"), {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}],
         [user("hi"), {"role": "assistant", "content": "no"}]),
        ([{"type": "function_call_output", "call_id": "c", "output": "5"}],
         [{"role": "tool", "content": "5", "tool_call_id": "c"}]),
        ([{"type": "function_call_output", "call_id": "c", "output": [
            {"type": "input_text", "text": "5"}, {"type": "input_text", "text": "m"}]}],
         [{"role": "tool", "content": "5\nm", "tool_call_id": "c"}]),
    ],
)  # fmt: skip
def test_items_are_messages(items: list[Any], want: list[Any]) -> None:
    assert said(items) == want


def call(number: str, name: str, arguments: str = "{}") -> dict[str, Any]:
    return {"type": "function_call", "call_id": number, "name": name, "arguments": arguments}


def thought(text: str, **more: Any) -> dict[str, Any]:
    return {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": text}],
        **more,
    }


def called(number: str, name: str) -> dict[str, Any]:
    return {"id": number, "type": "function", "function": {"name": name, "arguments": {}}}


def test_one_turn_of_the_assistant_is_one_message() -> None:
    part: Any = {"type": "output_text", "text": "So: ", "annotations": [], "logprobs": None}
    answer: Any = {"role": "assistant", "content": [part]}
    output = {"type": "function_call_output", "call_id": "c1", "output": "5"}
    items: list[Any] = [
        user("hi"), thought("hm"), answer, call("c1", "tide"), thought(" or"), call("c2", "moon"), output, answer,
        user("ok"), call("c3", "tide"),
    ]  # fmt: skip
    assert said(items) == [
        user("hi"),
        {
            "role": "assistant", "content": "So: ", "reasoning": "hm or", "reasoning_content": "hm or",
            "tool_calls": [called("c1", "tide"), called("c2", "moon")],
        },
        {"role": "tool", "content": "5", "tool_call_id": "c1"},
        {"role": "assistant", "content": "So: "},
        user("ok"),
        {"role": "assistant", "content": "", "tool_calls": [called("c3", "tide")]},
    ]  # fmt: skip


def test_reasoning_is_itself_its_summary_or_a_secret() -> None:
    summary = [{"type": "summary_text", "text": "short"}]
    for item, want in (
        (thought("long", summary=summary), "long"),
        (thought("", summary=summary, content=None), "short"),
        (thought("", content=None, encrypted_content="x"), None),
    ):
        message = said([user("hi"), item, {"role": "assistant", "content": "a"}])[1]
        assert message.get("reasoning") == want
        assert message["content"] == "a"


def test_instructions_come_first_and_before_comes_next() -> None:
    request = decode_request(
        b'{"instructions": "i", "previous_response_id": "resp_1", "input": [{"role": "user", "content": "b"}]}'
    )
    content: list[Any] = [{"type": "output_text", "text": "A", "annotations": []}]
    message = {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed", "content": content}
    before: list[Any] = [user("a"), message]
    assert [*messages_of(chat_of(request, before))] == [
        {"role": "system", "content": "i"}, user("a"), {"role": "assistant", "content": "A"}, user("b"),
    ]  # fmt: skip


def test_a_conversation_may_go_on_without_a_word() -> None:
    request = decode_request(b'{"previous_response_id": "resp_1"}')
    assert input_items(request) == []
    assert len(chat_of(request, [user("a")]).messages) == 1
    with pytest.raises(RequestError, match="input: expected at least one item"):
        chat_of(request)


def test_references_are_listed_and_resolved() -> None:
    items = [{"type": "item_reference", "id": "msg_1"}, user("b"), {"id": "msg_2", "type": None}]
    request = decode_request(json.dumps({"input": items}).encode())
    assert references(request) == ("msg_1", "msg_2")
    found = resolved(request, {"msg_1": user("a"), "msg_2": user("c")})
    assert [*messages_of(chat_of(found))] == [user("a"), user("b"), user("c")]
    with pytest.raises(RequestError) as caught:
        chat_of(resolved(request, {"msg_1": user("a")}), [user("before")])
    assert (caught.value.param, caught.value.message) == ("input[2].id", "input[2].id: there is no stored item 'msg_2'")
    with pytest.raises(RequestError) as caught:
        # What the request goes on from referred to an item that was deleted since.
        chat_of(decode_request(b'{"input": "x"}'), [{"type": "item_reference", "id": "msg_1"}])
    assert caught.value.param == "previous_response_id"
    assert references(decode_request(b'{"input": "x"}')) == ()


def test_a_text_is_one_users_message() -> None:
    assert input_items(decode_request(b'{"input": "x"}')) == [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]}
    ]


BAD: list[tuple[Any, str]] = [
    ([{"role": "user"}], "input[0].content"),
    ([{"role": "robot", "content": "x"}], "input[0].role"),
    ([user("x"), {"role": "user", "content": 5}], "input[1].content"),
    ([{"role": "user", "content": [{"text": "x"}]}], "input[0].content[0].type"),
    ([{"role": "user", "content": [{"type": "input_image", "image_url": "u"}]}], "input[0].content[0]"),
    ([{"role": "user", "content": [{"type": "input_file", "file_id": "u"}]}], "input[0].content[0]"),
    ([{"role": "user", "content": [{"type": "refusal", "refusal": "x"}]}], "input[0].content[0]"),
    ([{"role": "user", "content": [{"type": "input_text"}]}], "input[0].content[0].text"),
    ([{"role": "assistant", "content": [{"type": "refusal"}]}], "input[0].content[0].refusal"),
    ([{"type": "function_call", "call_id": "c", "arguments": "{}"}], "input[0].name"),
    ([{"type": "function_call_output", "output": "x"}], "input[0].call_id"),
    ([{"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image"}]}], "input[0].output[0]"),
    ([{"type": "reasoning", "summary": [{"type": "picture", "text": "x"}]}], "input[0].summary[0]"),
    ([{"type": "custom_tool_call", "call_id": "c", "name": "n", "input": "x"}], "input[0].type"),
    ([{"type": "web_search_call", "id": "w"}], "input[0].type"),
    ([{"type": "item_reference"}], "input[0].id"),
    ([{}], "input[0].type"),
    ([{"type": 5}], "input[0].type"),
    (["x"], "input[0]"),
    (5, "input"),
    (None, "input"),
    ([], "input"),
]  # fmt: skip


@pytest.mark.parametrize(("items", "param"), BAD)
def test_bad_input_is_named(items: Any, param: str) -> None:
    assert refusal(input=items)[0] == param


# --- the other fields -------------------------------------------------------------------------------------------------


def test_fields_have_their_place_in_chat() -> None:
    made = chat(
        model="m", stream=True, stream_options={"keep_alive": 5, "include_obfuscation": False}, max_output_tokens=7,
        temperature=0.5, top_p=0.5, top_k=-1, min_p=0.1, seed=3, presence_penalty=1, frequency_penalty=-1,
        repetition_penalty=1.5, logit_bias={"5": 1}, stop=["x"], stop_token_ids=[4], ignore_eos=True, min_tokens=2,
        skip_special_tokens=False, include_stop_str_in_output=True, include_reasoning=False,
        chat_template_kwargs={"a": 1}, reasoning={"effort": "low"}, text={"verbosity": "high"}, user="u",
        metadata={"a": "b"}, include=["message.output_text.logprobs", "reasoning.encrypted_content"], top_logprobs=3,
        parallel_tool_calls=False, truncation="auto", max_tool_calls=2, service_tier="flex", safety_identifier="s",
        prompt_cache_key="k", background=False, store=False,
    )  # fmt: skip
    want = {
        "model": "m", "stream": True, "max_tokens": 7, "temperature": 0.5, "top_p": 0.5, "top_k": 0, "min_p": 0.1,
        "seed": 3, "presence_penalty": 1, "frequency_penalty": -1, "repetition_penalty": 1.5, "logit_bias": {5: 1},
        "stop": ["x"], "stop_token_ids": [4], "ignore_eos": True, "min_tokens": 2, "skip_special_tokens": False,
        "include_stop_str_in_output": True, "include_reasoning": False, "chat_template_kwargs": {"a": 1},
        "reasoning_effort": "low", "verbosity": "high", "user": "u", "metadata": {"a": "b"}, "logprobs": True,
        "top_logprobs": 3, "parallel_tool_calls": False, "store": False, "service_tier": "flex",
        "safety_identifier": "s", "prompt_cache_key": "k", "add_generation_prompt": True,
    }  # fmt: skip
    assert {name: getattr(made, name) for name in want} == want
    assert made.stream_options is not None
    assert made.stream_options.keep_alive == 5


@pytest.mark.parametrize(
    ("fields", "logprobs"),
    [
        ({}, False), ({"top_logprobs": 2}, False), ({"include": ["message.output_text.logprobs"]}, False),
        ({"include": ["message.output_text.logprobs"], "top_logprobs": 0}, True),
    ],
)  # fmt: skip
def test_logprobs_need_both(fields: dict[str, Any], logprobs: bool) -> None:
    assert ask_of(chat(**fields)).logprobs is logprobs


def test_flat_tools_and_every_choice() -> None:
    ask = ask_of(chat(tools=[TIDE, MOON]))
    assert ask.tools == (Tool("tide", "d", {"type": "object"}, True), Tool("moon"))
    assert ask.tool_choice == "auto"
    for choice, want in (("none", "none"), ("auto", "auto"), ("required", "required")):
        assert ask_of(chat(tools=[TIDE], tool_choice=choice)).tool_choice == want
    named = chat(tools=[TIDE, MOON], tool_choice={"type": "function", "name": "moon"})
    assert ask_of(named).function == "moon"
    assert [tool["function"]["name"] for tool in tools_of(named)] == ["moon"]
    some: Any = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "tide"}]}
    assert ask_of(chat(tools=[TIDE, MOON], tool_choice=some)).allowed == ("tide",)
    # The SDK's dumps have it without tools too.
    assert ask_of(chat(tool_choice="auto", tools=[])) == Ask(tool_choice="none")
    assert tools_of(chat(tools=[TIDE])) == (
        {
            "type": "function",
            "function": {name: TIDE[name] for name in ("name", "description", "parameters", "strict")},
        },
    )


def test_formats() -> None:
    assert chat(text={"format": {"type": "text"}}).response_format is None
    wanted = chat(text={"format": {"type": "json_object"}}).response_format
    assert wanted is not None
    assert wanted.type == "json_object"
    flat = {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True, "description": None}
    wanted = chat(text={"format": flat}).response_format
    assert wanted is not None
    assert wanted.json_schema is not None
    assert (wanted.type, wanted.json_schema.schema, wanted.json_schema.strict) == (
        "json_schema",
        {"type": "object"},
        True,
    )


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "custom", "name": "c"}]}, "tools[0].type"),
        ({"tools": [TIDE, {"type": "web_search"}]}, "tools[1].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tools": [{"type": "function", "name": "a b"}]}, "tools[0].name"),
        ({"tools": [TIDE], "tool_choice": {"type": "custom", "name": "tide"}}, "tool_choice.type"),
        ({"tools": [TIDE], "tool_choice": {"type": "mcp", "server_label": "s"}}, "tool_choice.type"),
        ({"tools": [TIDE], "tool_choice": {"type": "function", "name": "moon"}}, "tool_choice.name"),
        ({"tools": [TIDE], "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [
            {"type": "function", "name": "moon"}]}}, "tool_choice.tools[0].name"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"text": {"format": {"type": "json_schema", "name": "n"}}}, "text.format.schema"),
        ({"text": {"format": {"type": "grammar"}}}, "text.format.type"),
        ({"reasoning": {"effort": "huge"}}, "reasoning.effort"),
        ({"include": ["everything"]}, "include[0]"),
        ({"truncation": "some"}, "truncation"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_output_tokens": 3, "min_tokens": 4}, "min_tokens"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"temperature": 3}, "temperature"),
        ({"stop": ""}, "stop"),
        ({"stop": ["a", ""]}, "stop[1]"),
        ({"stream_options": {}}, "stream_options"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"moderation": {"model": "m"}}, "moderation"),
        ({"context_management": [{"type": "compaction"}]}, "context_management"),
        ({"conversation": {"id": "c"}, "previous_response_id": "r"}, "previous_response_id"),
        ({"conversation": 5}, "conversation"),
        ({"metadata": {"a": 5}}, "metadata[...]"),
    ],
)  # fmt: skip
def test_what_cannot_be_served_is_refused(fields: dict[str, Any], param: str) -> None:
    got, message = refusal(**fields)
    assert got is not None
    assert got.replace("[...]", "") == param.replace("[...]", "")
    assert message.startswith(got)


def test_what_needs_storage_is_only_decoded() -> None:
    request = decode_request(b'{"input": "x", "background": true, "conversation": {"id": "c"}}')
    assert (request.background, request.store, request.conversation_id) == (True, True, "c")
    assert decode_request(b'{"input": "x", "conversation": "c"}').conversation_id == "c"
    assert decode_request(b'{"input": "x", "store": null, "previous_response_id": "r"}').previous_response_id == "r"


def test_unknown_fields() -> None:
    assert unknown_fields(b'{"input": "x", "foo": 1, "messages": []}') == ("foo", "messages")


def test_decoding_it_again_changes_nothing() -> None:
    body = {"input": "x", "tools": [TIDE], "tool_choice": {"type": "function", "name": "tide"}, "top_k": -1}
    request = decode_request(json.dumps(body).encode())
    again = {key: value for key, value in msgspec.to_builtins(request).items() if value is not None}
    assert decode_request(json.dumps(again).encode()) == request
