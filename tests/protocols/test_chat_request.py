"""Requests: what is taken, what is refused and under which name, and what stages and templates get of it."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.errors import RequestError
from stages.opening import Ask, Tool
from stages.protocols.openai_chat import ask_of, decode_request, messages_of, tools_of, unknown_fields
from stages.protocols.openai_chat.request import ChatRequest

USER = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "function": {"name": "get_tide", "parameters": {"type": "object"}}}
NAMED = {"type": "function", "function": {"name": "get_tide"}}


def decode(**fields: Any) -> ChatRequest:
    return decode_request(json.dumps({"model": "m", "messages": [USER], **fields}).encode())


def refused(body: bytes) -> RequestError:
    with pytest.raises(RequestError) as caught:
        decode_request(body)
    assert caught.value.status == 400
    return caught.value


BAD: list[tuple[str, dict[str, Any]]] = [
    # param, fields
    ("messages", {"messages": None}),
    ("messages", {"messages": []}),
    ("messages", {"messages": "hi"}),
    ("messages[0]", {"messages": ["hi"]}),
    ("messages[0].role", {"messages": [{"content": "hi"}]}),
    ("messages[0].role", {"messages": [{"role": "alien", "content": "hi"}]}),
    ("messages[0].role", {"messages": [{"role": 3, "content": "hi"}]}),
    ("messages[0].content", {"messages": [{"role": "user"}]}),
    ("messages[1].content", {"messages": [USER, {"role": "user", "content": 5}]}),
    ("messages[1].content", {"messages": [USER, {"role": "user", "content": None}]}),
    ("messages[1].content", {"messages": [USER, {"role": "assistant"}]}),
    ("messages[1].content", {"messages": [USER, {"role": "assistant", "content": None, "tool_calls": []}]}),
    ("messages[0].content[0].type", {"messages": [{"role": "user", "content": [{"text": "a"}]}]}),
    ("messages[0].content[0].text", {"messages": [{"role": "user", "content": [{"type": "text"}]}]}),
    ("messages[0].content[0].text", {"messages": [{"role": "user", "content": [{"type": "text", "text": 1}]}]}),
    (
        "messages[0].content[1]",
        {"messages": [{"role": "user", "content": [
            {"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "x"}}]}]},
    ),
    ("messages[0].content[0]", {"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}),
    ("messages[0].content[0]", {"messages": [{"role": "user", "content": [{"type": "refusal", "refusal": "a"}]}]}),
    ("messages[0].content[0].refusal", {"messages": [{"role": "assistant", "content": [{"type": "refusal"}]}]}),
    ("messages[0].tool_call_id", {"messages": [{"role": "tool", "content": "a"}]}),
    ("messages[0].tool_calls[0].id", {"messages": [{"role": "assistant", "tool_calls": [{"type": "function"}]}]}),
    (
        "messages[0].tool_calls[0].function.arguments",
        {"messages": [{"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": {}}}]}]},
    ),
    ("model", {"model": 7}),
    ("stream", {"stream": "yes"}),
    ("stream_options", {"stream_options": {"include_usage": True}}),
    ("stream_options", {"stream": True, "stream_options": [1]}),
    ("stream_options.include_usage", {"stream": True, "stream_options": {"include_usage": 1}}),
    ("n", {"n": 0}),
    ("n", {"n": 129}),
    ("n", {"n": 1.5}),
    ("n", {"n": "2"}),
    ("n", {"n": True}),
    ("logprobs", {"logprobs": 5}),
    ("top_logprobs", {"logprobs": True, "top_logprobs": 21}),
    ("top_logprobs", {"logprobs": True, "top_logprobs": -1}),
    ("top_logprobs", {"top_logprobs": 2}),
    ("max_tokens", {"max_tokens": 0}),
    ("max_tokens", {"max_tokens": "10"}),
    ("max_completion_tokens", {"max_completion_tokens": -1}),
    ("min_tokens", {"min_tokens": -1}),
    ("min_tokens", {"min_tokens": 5, "max_tokens": 4}),
    ("temperature", {"temperature": -0.1}),
    ("temperature", {"temperature": 2.1}),
    ("temperature", {"temperature": "hot"}),
    ("top_p", {"top_p": 0}),
    ("top_p", {"top_p": 1.1}),
    ("top_k", {"top_k": -2}),
    ("min_p", {"min_p": 1.5}),
    ("seed", {"seed": 1 << 63}),
    ("seed", {"seed": 1.5}),
    ("presence_penalty", {"presence_penalty": 2.5}),
    ("frequency_penalty", {"frequency_penalty": -2.5}),
    ("repetition_penalty", {"repetition_penalty": 0}),
    ("logit_bias", {"logit_bias": {"x": 1}}),
    ("logit_bias", {"logit_bias": {"-1": 1}}),
    ("logit_bias", {"logit_bias": {"1": 101}}),
    ("stop", {"stop": ""}),
    ("stop", {"stop": ["a", "b", "c", "d", "e"]}),
    ("stop", {"stop": 5}),
    ("stop[1]", {"stop": ["a", ""]}),
    ("stop[1]", {"stop": ["a", 1]}),
    ("stop_token_ids[0]", {"stop_token_ids": ["a"]}),
    ("stop_token_ids[0]", {"stop_token_ids": [-1]}),
    ("stop_token_ids[1]", {"stop_token_ids": [1, 1 << 63]}),
    ("ignore_eos", {"ignore_eos": 1}),
    ("tools", {"tools": {}}),
    ("tools[0].type", {"tools": [{"function": {"name": "f"}}]}),
    ("tools[0].type", {"tools": [{"type": "custom", "custom": {"name": "f"}}]}),
    ("tools[0].function", {"tools": [{"type": "function"}]}),
    ("tools[1].function.name", {"tools": [TOOL, {"type": "function", "function": {}}]}),
    ("tools[0].function.name", {"tools": [{"type": "function", "function": {"name": "a b"}}]}),
    ("tools[0].function.name", {"tools": [{"type": "function", "function": {"name": "a\n"}}]}),
    ("tools[0].function.name", {"tools": [{"type": "function", "function": {"name": "a" * 65}}]}),
    ("tools[0].function.parameters", {"tools": [{"type": "function", "function": {"name": "f", "parameters": 1}}]}),
    ("tool_choice", {"tool_choice": "auto"}),
    ("tool_choice", {"tool_choice": "required", "tools": []}),
    ("tool_choice", {"tool_choice": NAMED}),
    ("tool_choice", {"tools": [TOOL], "tool_choice": "maybe"}),
    ("tool_choice", {"tools": [TOOL], "tool_choice": 5}),
    ("tool_choice.type", {"tools": [TOOL], "tool_choice": {"type": "custom", "custom": {"name": "f"}}}),
    ("tool_choice.function", {"tools": [TOOL], "tool_choice": {"type": "function"}}),
    ("tool_choice.function.name", {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}}}),
    (
        "tool_choice.allowed_tools.mode",
        {"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "x", "tools": [NAMED]}}},
    ),
    (
        "tool_choice.allowed_tools.tools[0].function.name",
        {"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "allowed_tools": {
            "mode": "auto", "tools": [{"type": "function", "function": {"name": "f"}}]}}},
    ),
    ("parallel_tool_calls", {"parallel_tool_calls": "no"}),
    ("continue_final_message", {"continue_final_message": True, "add_generation_prompt": True}),
    ("chat_template_kwargs", {"chat_template_kwargs": []}),
    ("reasoning_effort", {"reasoning_effort": "huge"}),
    ("verbosity", {"verbosity": "loud"}),
    ("response_format.type", {"response_format": {"type": "xml"}}),
    ("service_tier", {"service_tier": "gold"}),
    ("metadata", {"metadata": {f"k{i}": "v" for i in range(17)}}),
    ("metadata", {"metadata": {"k" * 65: "v"}}),
    ("metadata", {"metadata": {"k": "v" * 513}}),
    ("metadata", {"metadata": {"k": 1}}),
    ("user", {"user": 1}),
    ("functions", {"functions": []}),
    ("function_call", {"function_call": "auto"}),
    ("modalities", {"modalities": ["text", "audio"]}),
    ("audio", {"audio": {"voice": "a"}}),
    ("prediction", {"prediction": {}}),
    ("web_search_options", {"web_search_options": {}}),
]  # fmt: skip


@pytest.mark.parametrize(("param", "fields"), BAD, ids=lambda value: value if isinstance(value, str) else "")
def test_refused_with_the_field_s_name(param: str, fields: dict[str, Any]) -> None:
    error = refused(json.dumps({"model": "m", "messages": [USER], **fields}).encode())
    assert error.param == param
    assert error.message.startswith(f"{param}: ")
    assert "$" not in error.message.replace("$'", "").replace("\\Z", "")


@pytest.mark.parametrize(
    "body",
    [
        b"", b"hi", b"{", b"[]", b"null", b"3", b'{"messages":[]} x', b"\xff{}", b'{"a":"\xff"}', b"\xef\xbb\xbf{}",
        b'{"messages":NaN}', b'{"temperature":Infinity}', b'{"user":"\\ud800"}', b'{"user":"\\udc00 and more"}',
        b'{"\\ud800 and more":1}', "{}".encode("utf-16"),
        b'{"x":' + b"[" * 200_000, b'{"x":' + b'{"a":' * 200_000,
    ],
    ids=lambda body: repr(body[:24]),
)  # fmt: skip
def test_bodies_that_are_no_json_object(body: bytes) -> None:
    error = refused(body)
    assert error.param is None
    assert error.message.startswith("The request body")


@pytest.mark.parametrize("number", ["1e999", "-1e999"])
def test_numbers_beyond_range(number: str) -> None:
    refused(f'{{"messages":[{{"role":"user","content":"a"}}],"temperature":{number}}}'.encode())


@pytest.mark.parametrize("field", ["seed", "n", "max_tokens", "temperature", "top_k", "x_unknown"])
def test_huge_integers_do_not_crash(field: str) -> None:
    body = f'{{"messages":[{{"role":"user","content":"a"}}],"{field}":{"9" * 5000}}}'.encode()
    try:
        decode_request(body)
    except RequestError as error:
        assert error.status == 400


@pytest.mark.parametrize("field", ["seed", "tools", "chat_template_kwargs", "x_unknown"])
def test_what_no_encoder_can_take_is_refused(field: str) -> None:
    deep: Any = 1
    for _ in range(120):
        deep = {"a": [deep]}
    for value in (deep, [{"a": 1 << 64}], -(1 << 63) - 1):
        assert refused(json.dumps({"messages": [USER], field: value}).encode()).param == field


def test_an_unknown_role_is_answered_with_the_roles_there_are() -> None:
    error = refused(json.dumps({"messages": [{"role": "usr", "content": "a"}]}).encode())
    roles = "'system', 'developer', 'user', 'assistant' or 'tool'"
    assert error.message == f"messages[0].role: invalid value 'usr'; expected {roles}"


def test_messages_stay_short() -> None:
    error = refused(json.dumps({"messages": [{"role": "r" * 9000, "content": "a"}]}).encode())
    assert error.param == "messages[0].role"
    assert len(error.message) < 600


def test_unknown_fields_are_accepted_and_named() -> None:
    body = json.dumps({"zeta": 1, "messages": [{**USER, "mood": 1}], "top_k": 3, "alpha": {"deep": [1]}}).encode()
    assert decode_request(body).top_k == 3
    assert unknown_fields(body) == ("zeta", "alpha")
    with pytest.raises(RequestError):
        unknown_fields(b"[1]")


def test_null_is_the_same_as_absent() -> None:
    names = [name for name in ChatRequest.__struct_fields__ if name not in ("model", "messages")]
    assert decode(**dict.fromkeys(names)) == decode()


@pytest.mark.parametrize(
    ("body", "key"),
    [
        (b'{"messages":[{"role":"user","content":"a"}],"n":2,"n":2}', "n"),
        (b'{"messages":[{"role":"user","content":"a","content":"b"}]}', "content"),
        (b'{"messages":[{"role":"user","content":"a"}],"\\u006e":2, "n" : 3}', "n"),
        (b'{"messages":[{"role":"user","content":"a"}],"x":{"y":[{"z":1,"z":{"z":2}}]}}', "z"),
    ],
)
def test_a_key_twice_is_refused(body: bytes, key: str) -> None:
    with pytest.raises(RequestError, match=f"'{key}' twice"):
        decode_request(body)


def test_what_only_looks_like_a_key_twice() -> None:
    body = b'{"messages":[{"role":"user","content":"\\"a\\":1,\\"a\\":2 \\\\"}],"x":[{"n":1},{"n":":"}], "n": 2}'
    assert decode_request(body).n == 2


def test_defaults() -> None:
    request = decode()
    assert (request.temperature, request.top_p, request.top_k, request.n, request.max_tokens) == (1.0, 1.0, 0, 1, None)
    assert request.add_generation_prompt is True
    assert ask_of(request) == Ask(tool_choice="none")


def test_bounds_are_inclusive() -> None:
    request = decode(
        n=128, temperature=2, top_p=1, top_k=-1, min_p=1, seed=-(1 << 63), presence_penalty=-2, frequency_penalty=2,
        logprobs=True, top_logprobs=20, logit_bias={"0": -100, "17": 100}, stop=["a", "b", "c", "d"],
        metadata={"k" * 64: "v" * 512, **{f"k{i}": "" for i in range(15)}}, min_tokens=4, max_tokens=4,
        modalities=["text"], functions=None,
    )  # fmt: skip
    assert request.top_k == 0
    assert request.logit_bias == {0: -100.0, 17: 100.0}
    assert request.stops == ("a", "b", "c", "d")


def test_max_completion_tokens_wins() -> None:
    assert decode(max_tokens=5).max_tokens == 5
    assert decode(max_tokens=5, max_completion_tokens=9).max_tokens == 9


def test_continuing_a_message_opens_no_new_one() -> None:
    assert decode(continue_final_message=True).add_generation_prompt is False
    assert decode(add_generation_prompt=False).add_generation_prompt is False


def test_ask_of_everything() -> None:
    request = decode(
        stream=True, stream_options={"include_usage": True, "continuous_usage_stats": True}, n=2, logprobs=True,
        top_logprobs=3, return_token_ids=True, include_reasoning=False, skip_special_tokens=False,
        include_stop_str_in_output=True, stop="END", parallel_tool_calls=False,
        tools=[{"type": "function", "function": {
            "name": "get_tide", "description": "d", "parameters": {"type": "object"}, "strict": True}}],
    )  # fmt: skip
    assert ask_of(request) == Ask(
        stream=True, n=2, tools=(Tool("get_tide", "d", {"type": "object"}, True),), tool_choice="auto",
        parallel=False, include_reasoning=False, stop=("END",), include_stop=True, keep_special=True, logprobs=True,
        top_logprobs=3, return_token_ids=True, include_usage=True, continuous_usage=True,
    )  # fmt: skip


def test_continuous_usage_needs_include_usage() -> None:
    assert not ask_of(decode(stream=True, stream_options={"continuous_usage_stats": True})).continuous_usage


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        ({}, "none"),
        ({"tools": []}, "none"),
        ({"tool_choice": "none"}, "none"),
        ({"tools": [TOOL]}, "auto"),
        ({"tools": [TOOL], "tool_choice": "none"}, "none"),
        ({"tools": [TOOL], "tool_choice": "required"}, "required"),
        ({"tools": [TOOL], "tool_choice": NAMED}, "name:get_tide"),
        (
            {"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "allowed_tools": {
                "mode": "required", "tools": [NAMED]}}},
            "required",
        ),
    ],
)  # fmt: skip
def test_tool_choice(fields: dict[str, Any], want: str) -> None:
    assert ask_of(decode(**fields)).tool_choice == want


def test_messages_for_templates() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    odd = {"id": "c2", "function": {"name": "g", "arguments": "{oops"}}
    request = decode(
        messages=[
            {"role": "system", "content": "s"},
            {"role": "developer", "content": [{"type": "text", "text": "d1"}, {"type": "text", "text": "d2"}]},
            {"role": "user", "content": "u", "name": "ann"},
            {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [call, odd]},
            {"role": "tool", "content": "6 m", "tool_call_id": "c1"},
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
            {"role": "assistant", "refusal": "never"},
        ]
    )
    assert messages_of(request) == (
        {"role": "system", "content": "s"},
        {"role": "system", "content": "d1\nd2"},
        {"role": "user", "content": "u", "name": "ann"},
        {
            "role": "assistant", "content": "", "reasoning": "hm", "reasoning_content": "hm",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}},
                {"id": "c2", "type": "function", "function": {"name": "g", "arguments": "{oops"}},
            ],
        },
        {"role": "tool", "content": "6 m", "tool_call_id": "c1"},
        {"role": "assistant", "content": "no"},
        {"role": "assistant", "content": "never"},
    )  # fmt: skip


def test_tools_for_templates() -> None:
    assert tools_of(decode(tools=[TOOL])) == (TOOL,)
    assert tools_of(decode(tools=[TOOL], tool_choice="none")) == ()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "role", "a"]), inner),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from([*ChatRequest.__struct_fields__, "other"]), JSON, max_size=6))
def test_any_object_is_taken_or_refused(fields: dict[str, Any]) -> None:
    body = msgspec.json.encode({"messages": [USER], **fields})
    try:
        ask_of(decode_request(body))
    except RequestError as error:
        assert error.status == 400


@given(st.binary(max_size=30))
def test_any_bytes_are_taken_or_refused(body: bytes) -> None:
    with pytest.raises(RequestError):
        decode_request(body)


def test_what_is_not_known_is_named() -> None:
    body = json.dumps({"messages": [{"role": "user", "content": "Hi"}], "guided_json": {}, "echo": True})
    assert unknown_fields(body.encode()) == ("guided_json", "echo")
