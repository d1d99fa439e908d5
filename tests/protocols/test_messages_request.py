"""Requests of the messages protocol: what they become, and what is refused, in the client's words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pipeline.http.plans import counted, plan
from stages.errors import RequestError
from stages.opening import Tool
from stages.protocols import openai_chat
from stages.protocols.anthropic import chat_of, decode_request, unknown_fields

USER: dict[str, Any] = {"role": "user", "content": "hi"}
BASE: dict[str, Any] = {"model": "m", "max_tokens": 5, "messages": [USER]}
TIDE: dict[str, Any] = {"name": "get_tide", "input_schema": {"properties": {"port": {"type": "string"}}}}


def body(**fields: Any) -> bytes:
    return json.dumps({**BASE, **fields}).encode()


def messages(*turns: Any, **fields: Any) -> list[dict[str, Any]]:
    """The messages as chat templates get them."""
    return list(openai_chat.messages_of(chat_of(decode_request(body(messages=list(turns), **fields)))))


def text(*texts: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": one} for one in texts]


def said(role: str, content: Any) -> dict[str, Any]:
    return {"role": role, "content": content}


# --- messages ---------------------------------------------------------------------------------------------------------


def test_text_is_text() -> None:
    turns = [said("user", text("a", "b")), said("assistant", text("c", "d")), said("user", "e")]
    assert messages(*turns) == [said("user", "a\nb"), said("assistant", "cd"), said("user", "e")]


def test_the_system_prompt_leads_without_its_billing_header() -> None:
    assert messages(USER, system="Be brief.")[0] == said("system", "Be brief.")
    blocks = text("x-anthropic-billing-header: cc_version=1", "Be brief.", "Be kind.")
    assert messages(USER, system=blocks) == [said("system", "Be brief.\nBe kind."), USER]
    assert messages(USER, system=blocks[:1]) == [USER]
    assert messages(USER, system="") == [USER]


def test_a_system_message_stays_in_its_place() -> None:
    turns = [USER, said("system", "Now in French."), said("user", "again")]
    assert messages(*turns) == turns


def test_what_an_assistant_said_thought_and_called() -> None:
    turn = said(
        "assistant",
        [
            {"type": "thinking", "thinking": "Hm. ", "signature": "anything"},
            {"type": "redacted_thinking", "data": "x"},
            *text("Let me "), {"type": "thinking", "thinking": "So.", "signature": ""}, *text("see."),
            {"type": "tool_use", "id": "toolu_1", "name": "get_tide", "input": {"port": "Où"}},
            {"type": "tool_use", "id": "toolu_2", "name": "get_wind", "input": {}},
        ],
    )  # fmt: skip
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "12 m"}
    made = messages(USER, turn, said("user", [result]))
    assert made[1] == {
        "role": "assistant", "content": "Let me see.", "reasoning": "Hm. So.", "reasoning_content": "Hm. So.",
        "tool_calls": [
            {"id": "toolu_1", "type": "function", "function": {"name": "get_tide", "arguments": {"port": "Où"}}},
            {"id": "toolu_2", "type": "function", "function": {"name": "get_wind", "arguments": {}}},
        ],
    }  # fmt: skip
    assert made[2] == {"role": "tool", "content": "12 m", "tool_call_id": "toolu_1"}


def test_results_keep_their_place_among_the_text() -> None:
    calls: list[Any] = [{"type": "tool_use", "id": number, "name": "f", "input": {}} for number in ("a", "b", "c")]
    turn = [
        *text("first"), {"type": "tool_result", "tool_use_id": "a", "content": text("one", "two")},
        {"type": "tool_result", "tool_use_id": "b", "content": "no", "is_error": True},
        *text("then", "last"), {"type": "tool_result", "tool_use_id": "c"},
    ]  # fmt: skip
    assert messages(USER, said("assistant", calls), said("user", turn))[2:] == [
        said("user", "first"),
        {"role": "tool", "content": "one\ntwo", "tool_call_id": "a"},
        {"role": "tool", "content": "Error: no", "tool_call_id": "b"},
        said("user", "then\nlast"),
        {"role": "tool", "content": "", "tool_call_id": "c"},
    ]


def test_the_last_message_of_the_assistant_is_continued() -> None:
    made = plan("messages", body(messages=[USER, said("assistant", "The answer is")]), "m").conversation
    assert made is not None
    assert (made.continue_final_message, made.add_generation_prompt) == (True, False)
    other = plan("messages", body(), "m").conversation
    assert other is not None
    assert (other.continue_final_message, other.add_generation_prompt) == (False, True)


# --- the other fields -------------------------------------------------------------------------------------------------


def test_what_is_asked() -> None:
    fields = {
        "stream": True, "stop_sequences": ["x", "y"], "temperature": 0.5, "top_p": 0.9, "top_k": -1, "min_p": 0.1,
        "seed": 7, "tools": [TIDE | {"description": "d", "strict": True, "cache_control": {"type": "ephemeral"}}],
        "tool_choice": {"type": "tool", "name": "get_tide", "disable_parallel_tool_use": True},
        "metadata": {"user_id": "u"}, "service_tier": "auto", "betas": ["b"], "stream_options": {"keep_alive": 3},
        "output_config": {"effort": "high", "format": {"type": "json_schema", "schema": {"type": "object"}}},
    }  # fmt: skip
    made = plan("messages", body(**fields), "m")
    ask, sampling = made.ask, made.sampling
    assert (ask.stream, ask.n, ask.stop, ask.include_usage) == (True, 1, ("x", "y"), True)
    schema = {"type": "object", **TIDE["input_schema"]}
    assert ask.tools == (Tool("get_tide", "d", schema, True),)
    assert (ask.tool_choice, ask.parallel, ask.named) == ("name:get_tide", False, False)
    assert (sampling.max_tokens, sampling.temperature, sampling.top_p, sampling.top_k) == (5, 0.5, 0.9, 0)
    assert (sampling.min_p, sampling.seed, made.keep_alive, made.ignored) == (0.1, 7, 3, ())
    assert made.conversation is not None
    assert made.conversation.template_kwargs["reasoning_effort"] == "high"
    chat = chat_of(decode_request(body(**fields)))
    assert chat.user == "u"
    assert chat.response_format is not None
    assert chat.response_format.json_schema is not None
    assert chat.response_format.json_schema.schema == {"type": "object"}


@pytest.mark.parametrize(
    ("choice", "want"),
    [(None, "auto"), ({"type": "auto"}, "auto"), ({"type": "any"}, "required"), ({"type": "none"}, "none")],
)
def test_choices(choice: Any, want: str) -> None:
    assert plan("messages", body(tools=[TIDE], tool_choice=choice), "m").ask.tool_choice == want


@pytest.mark.parametrize(
    ("thinking", "kwargs"),
    [
        (None, {}),
        ({"type": "adaptive"}, {"enable_thinking": True, "thinking": True}),
        ({"type": "enabled", "budget_tokens": 1024}, {"enable_thinking": True, "thinking": True}),
        ({"type": "disabled"}, {"enable_thinking": False, "thinking": False, "reasoning_effort": "none"}),
    ],
)
def test_thinking_switches_templates(thinking: Any, kwargs: dict[str, Any]) -> None:
    made = plan("messages", body(thinking=thinking, max_tokens=2000), "m")
    assert made.conversation is not None
    assert made.conversation.template_kwargs == kwargs
    assert made.ask.include_reasoning


def test_thinking_whose_text_is_omitted_still_reaches_the_encoder() -> None:
    asked = {"thinking": {"type": "adaptive", "display": "omitted"}}
    assert plan("messages", body(**asked), "m").ask.include_reasoning
    assert not plan("messages", body(**asked, include_reasoning=False), "m").ask.include_reasoning


def test_unknown_fields_are_told_and_ignored() -> None:
    assert unknown_fields(body(cache_control=None, max_token=3)) == ("max_token",)


# --- what is refused --------------------------------------------------------------------------------------------------

IMAGE: dict[str, Any] = {"type": "image", "source": {"type": "url", "url": "x"}}
USE: dict[str, Any] = {"type": "tool_use", "id": "a", "name": "f", "input": {}}


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"max_tokens": None}, "max_tokens", "this field is required"),
    ({"max_tokens": 0}, "max_tokens", ">= 1"),
    ({"max_tokens": 3, "min_tokens": 4}, "min_tokens", "at most 3"),
    ({"messages": []}, "messages", "length >= 1"),
    ({"messages": [said("tool", "x")]}, "messages[0].role", "'assistant', 'system' or 'user'"),
    ({"messages": [said("system", "x")]}, "messages", "a message of the user"),
    ({"messages": [said("user", [IMAGE])]}, "messages[0].content[0]", "blocks of type 'image' are not supported"),
    ({"messages": [said("user", [{"type": "text"}])]}, "messages[0].content[0].text", "required"),
    ({"messages": [said("user", [USE])]}, "messages[0].content[0]", "in messages of role 'user'"),
    (
        {"messages": [said("user", [{"type": "tool_result", "tool_use_id": "a", "content": [IMAGE]}])]},
        "messages[0].content[0].content[0]", "'image' are not supported",
    ),
    (
        {"messages": [said("user", [{"type": "tool_result", "tool_use_id": "a", "content": 3}])]},
        "messages[0].content[0].content", "expected text",
    ),
    ({"messages": [said("user", [{"type": "tool_result"}])]}, "messages[0].content[0].tool_use_id", "required"),
    ({"messages": [said("assistant", [USE | {"input": "x"}]), USER]}, "messages[0].content[0].input", "an object"),
    ({"messages": [said("assistant", [USE | {"name": ""}]), USER]}, "messages[0].content[0].name", "text"),
    ({"messages": [USER, said("assistant", [USE])]}, "messages[1].content", "tool_result"),
    ({"messages": [USER, said("assistant", "")]}, "messages[1].content", "expected text"),
    ({"system": [IMAGE]}, "system[0]", "blocks of type 'image' are not supported"),
    ({"stop_sequences": ["a", ""]}, "stop_sequences[1]", "must not be empty"),
    ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0].type", "'web_search_20250305'"),
    ({"tools": [{"name": "f"}]}, "tools[0].input_schema", "required"),
    ({"tools": [{"input_schema": {}}]}, "tools[0].name", "required"),
    ({"tools": [TIDE | {"name": "a b"}]}, "tools[0].name", "letters"),
    ({"tools": [TIDE, TIDE]}, "tools[1].name", "two tools named 'get_tide'"),
    ({"tool_choice": {"type": "any"}}, "tool_choice", "only allowed when tools are given"),
    ({"tools": [TIDE], "tool_choice": {"type": "tool"}}, "tool_choice.name", "required"),
    ({"tools": [TIDE], "tool_choice": {"type": "tool", "name": "x"}}, "tool_choice.name", "no tool named 'x'"),
    ({"tools": [TIDE], "tool_choice": {"type": "all"}}, "tool_choice.type", "'any', 'auto', 'none' or 'tool'"),
    ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens", "required"),
    ({"thinking": {"type": "enabled", "budget_tokens": 9}}, "thinking.budget_tokens", ">= 1024"),
    ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "thinking.budget_tokens", "less than max_tokens"),
    ({"mcp_servers": [{"url": "x"}]}, "mcp_servers", "declare them in tools"),
    ({"container": "c"}, "container", "leave the field out"),
    ({"compaction": {"type": "auto"}}, "compaction", "leave the field out"),
    ({"thread": {"type": "create"}}, "thread", "the whole conversation"),
    ({"output_format": {"type": "json_schema", "schema": {}}}, "output_format", "output_config.format"),
    ({"model": "other"}, "model", "There is no model 'other'"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "param", "told"), WRONG)
def test_what_is_refused(fields: dict[str, Any], param: str, told: str) -> None:
    with pytest.raises(RequestError) as caught:
        plan("messages", body(**fields), "m")
    assert caught.value.param == param
    assert told in caught.value.message
    assert caught.value.message.startswith((param, "There is no model"))


def test_counting_needs_no_max_tokens() -> None:
    thinking = {"type": "enabled", "budget_tokens": 4000}
    made = counted(body(max_tokens=None, system="s", tools=[TIDE], thinking=thinking), "m")
    asked = plan("messages", body(max_tokens=5000, system="s", tools=[TIDE], thinking=thinking), "m").conversation
    assert made == asked
