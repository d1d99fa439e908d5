"""A request in the words of another protocol: what is carried, what is sent as an extra, lost, or refused; the table of
docs/translate.md row by row."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pipeline.http.plans import plan
from pipeline.upstream.headers import limits, turned
from pipeline.upstream.translating import outward, target_of
from stages.errors import RequestError
from stages.protocols import anthropic, openai_chat, openai_responses


def of_responses(body: bytes) -> openai_chat.ChatRequest:
    return openai_responses.chat_of(openai_responses.decode_request(body))


def of_messages(body: bytes) -> openai_chat.ChatRequest:
    return anthropic.chat_of(anthropic.decode_request(body))


READ: dict[str, Any] = {"chat": openai_chat.decode_request, "responses": of_responses, "messages": of_messages}
"""A body back to the hub, by the server's own room."""
USER = {"role": "user", "content": "When?"}
TOOL = {"type": "function", "function": {"name": "tide", "parameters": {"type": "object"}}}
MOON = {"type": "function", "function": {"name": "moon"}}
CARRIED, EXTRA, LOST, REFUSED = "carried", "extra", "lost", "refused"


def sent(to: str, protocol: str = "chat", **fields: Any) -> tuple[dict[str, Any], tuple[str, ...], Any]:
    """The body, what is lost, and the strict body with its losses."""
    said = {"input": "When?"} if protocol == "responses" else {"messages": [USER]}
    cap = {"max_tokens": 9} if protocol == "messages" else {}
    body = json.dumps({**said, **cap, **fields}).encode()
    made = outward(protocol, body, plan(protocol, body, "m"), to, "theirs", 8192)
    strict = None if made.strictly is None else (json.loads(made.strictly[0]), made.strictly[1])
    return json.loads(made.body), made.lost, strict


ROWS: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({"n": 2}, {"responses": REFUSED, "messages": REFUSED}),
    ({"logprobs": True, "top_logprobs": 2}, {"responses": CARRIED, "messages": REFUSED}),
    ({"top_k": 3}, {"responses": EXTRA, "messages": CARRIED}),
    ({"temperature": 0.5}, {"responses": CARRIED, "messages": CARRIED}),
    ({"temperature": 1.0}, {"responses": CARRIED, "messages": CARRIED}),
    ({"temperature": 1.5}, {"responses": CARRIED, "messages": EXTRA}),
    ({"min_p": 0.1}, {"responses": EXTRA, "messages": EXTRA}),
    ({"min_tokens": 2}, {"responses": LOST, "messages": EXTRA}),
    ({"seed": 7}, {"responses": EXTRA, "messages": EXTRA}),
    ({"logit_bias": {"5": 1}}, {"responses": EXTRA, "messages": EXTRA}),
    ({"presence_penalty": 0.5}, {"responses": EXTRA, "messages": EXTRA}),
    ({"chat_template_kwargs": {"x": 1}}, {"responses": EXTRA, "messages": EXTRA}),
    ({"metadata": {"a": "b"}}, {"responses": CARRIED, "messages": LOST}),
    ({"verbosity": "low"}, {"responses": CARRIED, "messages": LOST}),
    ({"user": "u"}, {"responses": CARRIED, "messages": CARRIED}),
    ({"reasoning_effort": "low"}, {"responses": CARRIED, "messages": CARRIED}),
    ({"reasoning_effort": 0.5}, {"responses": LOST, "messages": LOST}),
    ({"return_token_ids": True}, {"responses": LOST, "messages": LOST}),
    ({"guided_json": {}}, {"responses": LOST, "messages": LOST}),
    ({"response_format": {"type": "json_object"}}, {"responses": CARRIED, "messages": REFUSED}),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}},
        {"responses": CARRIED, "messages": CARRIED},
    ),
    # Ours: nothing of it is the upstream's.
    ({"include_reasoning": False, "reasoning_field": "reasoning", "store": True}, {"responses": "", "messages": ""}),
]  # fmt: skip


@pytest.mark.parametrize("to", ["responses", "messages"])
@pytest.mark.parametrize(("fields", "rows"), ROWS, ids=lambda each: str(each)[:60])
def test_a_field_of_chat(fields: dict[str, Any], rows: dict[str, str], to: str) -> None:
    how = rows[to]
    if how == REFUSED:
        with pytest.raises(RequestError) as caught:
            sent(to, **fields)
        assert caught.value.param in fields
        return
    without, _, _ = sent(to)
    body, lost, strict = sent(to, **fields)
    name = next(iter(fields))
    assert (body == without) == (how in (LOST, ""))
    assert (name in lost) == (how == LOST)
    if how == EXTRA:
        assert strict is not None
        assert name in strict[1]
        assert strict[0].get(name) in (None, 1.0)
    else:
        assert strict is None


def test_a_conversation_comes_back_as_it_was() -> None:
    """Through the other protocol, and what its server makes of it."""
    messages = [
        {"role": "system", "content": "Brief."}, USER,
        {
            "role": "assistant", "content": "Looking.", "reasoning": "Tide.",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "tide", "arguments": '{"a":1}'}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "noon"}, {"role": "user", "content": "And then?"},
    ]  # fmt: skip
    fields: dict[str, Any] = {"messages": messages, "tools": [TOOL, MOON], "parallel_tool_calls": False}
    choices: list[tuple[Any, str]] = [
        ("auto", "auto"), ("required", "required"), ("none", "none"),
        ({"type": "function", "function": {"name": "moon"}}, "name:moon"),
    ]  # fmt: skip
    for choice, mode in choices:
        asked = json.dumps({**fields, "tool_choice": choice, "max_tokens": 5, "stop": ["x"]}).encode()
        wanted = plan("chat", asked, "m")
        for to, read in READ.items():
            if to == "chat":
                body, lost = openai_chat.body_of(openai_chat.decode_request(asked), "m", True)
            else:
                body, lost = json.loads(outward("chat", asked, wanted, to, "m", 1).body), ()
            assert lost == ()
            got = read(json.dumps(body).encode())
            assert openai_chat.messages_of(got) == wanted.conversation.messages if wanted.conversation else False
            ask = openai_chat.ask_of(got)
            assert (ask.tool_choice, [tool.name for tool in ask.tools]) == (mode, ["tide", "moon"])
            assert ask.parallel == (mode == "none" and to == "messages")
            assert (got.max_tokens, got.stream, got.model) == (5, True, "m")
            assert got.stops == (() if to == "responses" else ("x",))


def test_what_the_model_may_not_call_it_does_not_hear_of() -> None:
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [MOON]}}
    for to, kind in (("responses", "required"), ("messages", {"type": "any"})):
        body, lost, _ = sent(to, tools=[TOOL, MOON], tool_choice=allowed)
        assert [tool["name"] for tool in body["tools"]] == ["moon"]
        assert (body["tool_choice"], lost) == (kind, ())


def test_messages_want_a_cap_and_no_blank_stop_strings() -> None:
    body, lost, _ = sent("messages", stop=["\n", "END"])
    assert (body["max_tokens"], body["stop_sequences"], lost) == (8192, ["END"], ())


@pytest.mark.parametrize("count", [4, 5])
def test_chat_takes_four_stop_strings(count: int) -> None:
    stops = [f"stop{number}" for number in range(count)]
    body, lost, _ = sent("chat", "messages", stop_sequences=stops)
    assert (body.get("stop"), lost) == (stops if count == 4 else None, ())


def test_what_messages_say_that_others_cannot() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    thought = {"type": "thinking", "thinking": "Tide.", "signature": "abc"}
    turns = [
        {"role": "user", "content": [{"type": "text", "text": "When?", **mark}]},
        {"role": "assistant", "content": [thought, {"type": "text", "text": "Noon."}]},
        USER,
    ]  # fmt: skip
    body, lost, strict = sent("chat", "messages", messages=turns, speed="fast", nobody="knows")
    assert lost == ("nobody", "speed", "cache_control", "signature")
    assert body["messages"][1] == {
        "role": "assistant", "content": "Noon.", "reasoning": "Tide.", "reasoning_content": "Tide."
    }  # fmt: skip
    assert strict is not None
    assert strict[1] == (*lost, "messages.reasoning")
    assert strict[0]["messages"][1] == {"role": "assistant", "content": "Noon."}


def test_odd_conversations_reach_messages_whole() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "tide", "arguments": "noon"}}
    messages = [
        USER, {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "user", "content": "Wait."}, {"role": "tool", "tool_call_id": "c1", "content": "ok"},
        {"role": "developer", "content": "Be brief."}, {"role": "user", "content": "", "name": "ann"},
    ]  # fmt: skip
    body, lost, _ = sent("messages", messages=messages)
    assert lost == ("messages.tool_calls.arguments", "messages.role", "messages.name")
    assert body["system"] == [{"type": "text", "text": "Be brief."}]
    assert [turn["role"] for turn in body["messages"]] == ["user", "assistant", "user"]
    assert body["messages"][1]["content"][0]["input"] == {"arguments": "noon"}
    assert [block["type"] for block in body["messages"][2]["content"]] == ["tool_result", "text"]


def test_which_protocol_can_carry_which() -> None:
    assert target_of(("completions", "messages", "chat"), "responses") == "messages"
    for speaks, protocol in ((("completions",), "chat"), (("chat",), "completions")):
        with pytest.raises(RequestError) as caught:
            target_of(speaks, protocol)
        assert (caught.value.status, caught.value.code) == (400, "untranslatable")


def test_keys_are_turned_over() -> None:
    own = [("authorization", "Bearer K"), ("openai-organization", "o"), ("user-agent", "u")]
    assert turned(own, "messages", "x-api-key") == [
        ("user-agent", "u"), ("x-api-key", "K"), ("anthropic-version", "2023-06-01"),
    ]  # fmt: skip
    theirs = [("x-api-key", "K"), ("anthropic-version", "2023-06-01"), ("anthropic-beta", "b"), ("accept", "a")]
    assert turned(theirs, "chat", "authorization") == [("accept", "a"), ("authorization", "Bearer K")]
    # What the family of protocols knows stays; a client that names a version means it.
    assert turned([("openai-project", "p"), ("anthropic-version", "v")], "responses", "authorization") == [
        ("openai-project", "p"),
    ]  # fmt: skip
    assert turned([("anthropic-version", "v"), ("x-api-key", "K")], "messages", "x-api-key") == [
        ("anthropic-version", "v"), ("x-api-key", "K"),
    ]  # fmt: skip
    assert turned([("authorization", "Basic x")], "chat", "authorization") == [("authorization", "Basic x")]


def test_which_headers_of_an_answer_a_client_gets() -> None:
    head = [("retry-after", "7"), ("x-ratelimit-remaining-tokens", "1"), ("anthropic-ratelimit-x", "2"), ("etag", "e")]
    assert limits(head) == head[:3]
