"""What a request asks for beyond text, from body to answer: tool_choice, history, reasoning, stop scopes, metrics."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import anyio
import msgspec
import pytest

from pipeline.engines.base import Conversation, EngineRequest
from pipeline.engines.scripted import ScriptedEngine
from pipeline.http.plans import plan
from stages.errors import RequestError
from stages.message import collect
from stages.opening import Ask
from tests.support.asgi import Exchange, chat, serving
from tests.support.parse import opening, semantic, session, texts

TIDE: dict[str, Any] = {"type": "function", "function": {"name": "tide", "parameters": {"type": "object"}}}
MOON: dict[str, Any] = {"type": "function", "function": {"name": "moon"}}
SUN: dict[str, Any] = {"type": "function", "function": {"name": "sun"}}
TOOLS = [TIDE, MOON, SUN]
CALL_TIDE = '<tool_call>{"name": "tide", "arguments": {"port": "Brest"}}</tool_call>'
CALL_MOON = '<tool_call>{"name": "moon", "arguments": {}}</tool_call>'


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def allowed(mode: str, *names: str) -> dict[str, Any]:
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [named(name) for name in names]}}


class Asked:
    """Requests to a server whose model always writes the same. ``told``: what it was given."""

    def __init__(self, *steps: str, **config: Any) -> None:
        self._steps = list(steps)
        self._config: dict[str, Any] = {"parser": "hermes", **config}
        self.told: Conversation | None = None

    def _script(self, request: EngineRequest) -> list[list[Any]]:
        self.told = request.conversation
        return [[*self._steps]] * request.n

    async def _run(self, body: bytes) -> Exchange:
        async with serving(None, ScriptedEngine(self._script), **self._config) as server:
            return await Exchange(body).run(server)

    def answer(self, **fields: Any) -> dict[str, Any]:
        """The whole answer to a request that does not stream."""
        exchange = anyio.run(partial(self._run, chat(**{**fields, "stream": False})))
        assert exchange.status == 200, exchange.body
        answer: dict[str, Any] = json.loads(exchange.body)
        return answer

    def chunks(self, **fields: Any) -> list[dict[str, Any]]:
        """The JSON values of a stream."""
        exchange = anyio.run(partial(self._run, chat(**fields)))
        assert exchange.status == 200, exchange.body
        texts = [block.removeprefix("data: ") for block in exchange.body.decode().split("\n\n") if block]
        assert texts.pop() == "[DONE]"
        return [json.loads(text) for text in texts if not text.startswith(":")]


def called(answer: dict[str, Any]) -> list[str]:
    """The names of the calls of the first choice."""
    return [call["function"]["name"] for call in answer["choices"][0]["message"].get("tool_calls", ())]


def names(conversation: Conversation | None) -> list[str]:
    """The names of the tools that a chat template is given."""
    assert conversation is not None
    return [tool["function"]["name"] for tool in conversation.tools]


# --- tool_choice ------------------------------------------------------------------------------------------------------

CHOICES: list[tuple[str, Any, list[str], list[str], str]] = [
    # what, tool_choice, tools the model is told of, calls delivered, finish_reason
    ("absent", None, ["tide", "moon", "sun"], ["tide", "moon"], "tool_calls"),
    ("auto", "auto", ["tide", "moon", "sun"], ["tide", "moon"], "tool_calls"),
    ("none", "none", [], [], "stop"),
    ("required", "required", ["tide", "moon", "sun"], ["tide", "moon"], "tool_calls"),
    ("named", named("tide"), ["tide"], ["tide", "moon"], "stop"),
    ("allowed, auto", allowed("auto", "moon", "tide"), ["tide", "moon"], ["tide", "moon"], "tool_calls"),
    ("allowed, required", allowed("required", "moon"), ["moon"], ["tide", "moon"], "tool_calls"),
]


@pytest.mark.parametrize(
    ("choice", "told", "calls", "finish"), [row[1:] for row in CHOICES], ids=[c[0] for c in CHOICES]
)
def test_every_form_is_served(choice: Any, told: list[str], calls: list[str], finish: str) -> None:
    asked = Asked(CALL_TIDE, CALL_MOON)
    answer = asked.answer(tools=TOOLS, tool_choice=choice)
    assert names(asked.told) == told
    assert called(answer) == calls
    assert answer["choices"][0]["finish_reason"] == finish


def test_with_none_a_call_is_text() -> None:
    answer = Asked("a ", CALL_TIDE).answer(tools=TOOLS, tool_choice="none")
    assert answer["choices"][0]["message"]["content"] == f"a {CALL_TIDE}"


def test_at_most_one_call_where_calls_are_not_parallel() -> None:
    asked = Asked(CALL_TIDE, CALL_MOON)
    assert called(asked.answer(tools=TOOLS, parallel_tool_calls=False)) == ["tide"]
    deltas = [chunk["choices"][0]["delta"] for chunk in asked.chunks(tools=TOOLS, parallel_tool_calls=False)]
    assert {entry["index"] for delta in deltas for entry in delta.get("tool_calls", ())} == {0}


def test_the_finish_reason_of_a_named_function_can_be_switched() -> None:
    fields: dict[str, Any] = {"tools": TOOLS, "tool_choice": named("tide")}
    for asked, want in (({}, "stop"), ({"named_finish_reason": "tool_calls"}, "tool_calls")):
        answer = Asked(CALL_TIDE).answer(**fields, **asked)
        assert answer["choices"][0]["finish_reason"] == want
        *_, last = Asked(CALL_TIDE).chunks(**fields, **asked)
        assert last["choices"][0]["finish_reason"] == want


@pytest.mark.parametrize(
    ("choice", "text", "faults"),
    [
        (named("tide"), CALL_TIDE, []),
        (named("tide"), "no call", ["unmet_tool_choice"]),
        (named("tide"), CALL_MOON, ["unmet_tool_choice"]),
        ("required", "no call", ["unmet_tool_choice"]),
        ("required", CALL_MOON, []),
        (allowed("auto", "moon"), CALL_MOON, []),
        (allowed("auto", "moon"), "no call", []),
        (allowed("auto", "moon"), CALL_TIDE, ["unmet_tool_choice"]),
        (allowed("required", "moon"), "no call", ["unmet_tool_choice"]),
        (allowed("required", "moon", "sun"), CALL_TIDE + CALL_MOON, ["unmet_tool_choice"]),
        (allowed("auto", "moon"), CALL_TIDE.replace("tide", "star"), ["unknown_tool"]),
    ],
)
def test_a_choice_that_the_model_did_not_follow_is_a_fault(choice: Any, text: str, faults: list[str]) -> None:
    ask = plan("chat", chat(tools=TOOLS, tool_choice=choice), "m").ask
    opened = msgspec.structs.replace(opening(), ask=ask)
    [message] = collect(semantic(opened, session(texts([text]))), named=ask.named)
    assert list(message.faults) == faults


def test_names_and_ids_of_history_reach_the_template_unchanged() -> None:
    asked = Asked("ok")
    history: list[dict[str, Any]] = [
        {"role": "user", "content": [{"type": "text", "text": "Tides"}, {"type": "text", "text": "please"}]},
        {
            "role": "assistant", "content": None, "reasoning": "hm", "refusal": None, "audio": None,
            "function_call": None, "annotations": [],
            "tool_calls": [
                {"id": "functions.tide:0", "type": "function", "function": {"name": "tide", "arguments": '{"a":1}'}},
                {"id": "functions.moon:1", "type": "function", "function": {"name": "moon", "arguments": ""}},
            ],
        },
        {"role": "tool", "tool_call_id": "functions.tide:0", "content": [{"type": "text", "text": "6 m"}]},
        {"role": "tool", "tool_call_id": "functions.moon:1", "content": None},
        {"role": "assistant", "content": "6 m", "reasoning_content": "so"},
    ]  # fmt: skip
    asked.answer(messages=history, tools=TOOLS)
    assert asked.told is not None
    user, calling, tide, moon, said = asked.told.messages
    assert user["content"] == "Tides\nplease"
    assert calling["reasoning"] == calling["reasoning_content"] == "hm"
    assert calling["content"] == ""
    assert [(call["id"], call["function"]) for call in calling["tool_calls"]] == [
        ("functions.tide:0", {"name": "tide", "arguments": {"a": 1}}),
        ("functions.moon:1", {"name": "moon", "arguments": {}}),
    ]
    assert (tide["content"], tide["tool_call_id"]) == ("6 m", "functions.tide:0")
    assert (moon["content"], moon["tool_call_id"]) == ("", "functions.moon:1")
    assert said["reasoning"] == said["reasoning_content"] == "so"


# --- reasoning --------------------------------------------------------------------------------------------------------

EFFORTS: list[tuple[Any, bool]] = [
    ("none", False), ("minimal", True), ("low", True), ("medium", True), ("high", True), ("xhigh", True), ("max", True),
    ("ultra", True), (0, False), (0.5, True), (0.99, True),
]  # fmt: skip


def template_kwargs(**fields: Any) -> dict[str, Any]:
    conversation = plan("chat", chat(**fields), "m").conversation
    assert conversation is not None
    return conversation.template_kwargs


@pytest.mark.parametrize(("effort", "thinks"), EFFORTS)
def test_reasoning_effort(effort: Any, thinks: bool) -> None:
    kwargs = template_kwargs(reasoning_effort=effort)
    assert kwargs == {"enable_thinking": thinks, "thinking": thinks, "reasoning_effort": effort}


@pytest.mark.parametrize("effort", ["huge", 1, -0.1, True, [], {}])
def test_other_efforts_are_refused(effort: Any) -> None:
    with pytest.raises(RequestError) as caught:
        plan("chat", chat(reasoning_effort=effort), "m")
    assert caught.value.param == "reasoning_effort"


def test_what_a_template_is_given_by_name_wins() -> None:
    asked = template_kwargs(reasoning_effort="high", chat_template_kwargs={"enable_thinking": False, "x": 1})
    assert asked == {
        "enable_thinking": False, "thinking": True, "reasoning_effort": "high", "x": 1,
    }  # fmt: skip
    assert template_kwargs(chat_template_kwargs={"thinking": False}) == {"thinking": False}
    assert template_kwargs() == {}


@pytest.mark.parametrize(
    ("server", "request_field", "want"),
    [
        (None, None, {"reasoning", "reasoning_content"}),
        ("reasoning", None, {"reasoning"}),
        ("reasoning_content", None, {"reasoning_content"}),
        ("reasoning", "reasoning_content", {"reasoning_content"}),
        ("reasoning_content", "both", {"reasoning", "reasoning_content"}),
        (None, "reasoning", {"reasoning"}),
    ],
)
def test_the_name_of_reasoning_per_server_and_per_request(
    server: str | None, request_field: str | None, want: set[str]
) -> None:
    asked = Asked("<think>", "hm", "</think>", "ok", **({} if server is None else {"reasoning_field": server}))
    message = asked.answer(reasoning_field=request_field)["choices"][0]["message"]
    assert {name for name in ("reasoning", "reasoning_content") if message.get(name) == "hm"} == want
    deltas = [chunk["choices"][0]["delta"] for chunk in asked.chunks(reasoning_field=request_field)]
    assert {name for delta in deltas for name in delta if name.startswith("reasoning")} == want


# --- stop scopes ------------------------------------------------------------------------------------------------------

SAID = (
    "<think>",
    "a END b",
    "</think>",
    "c END d",
    '<tool_call>{"name": "tide", "arguments": {"x": "END"}}',
    "</tool_call>",
)


@pytest.mark.parametrize(
    ("scopes", "reasoning", "content", "arguments"),
    [
        (None, "a ", None, []),
        (["content", "reasoning", "tools"], "a ", None, []),
        (["content"], "a END b", "c ", []),
        (["tools"], "a END b", "c END d", ['{"x": "']),
        (["tools", "content"], "a END b", "c ", []),
    ],
)
def test_stop_strings_end_only_what_they_are_meant_for(
    scopes: list[str] | None, reasoning: str, content: str | None, arguments: list[str]
) -> None:
    [choice] = Asked(*SAID).answer(stop="END", stop_scopes=scopes, tools=TOOLS)["choices"]
    message = choice["message"]
    assert message["reasoning"] == reasoning
    assert message["content"] == content
    assert [call["function"]["arguments"] for call in message.get("tool_calls", ())] == arguments
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", "END")


def test_the_engine_stops_where_the_text_does() -> None:
    """Tokens behind a stop string are not generated: usage is that of the scope's match."""
    counts = [
        Asked(*SAID).answer(stop="END", stop_scopes=[scope], tools=TOOLS)["usage"]["completion_tokens"]
        for scope in ("reasoning", "content", "tools")
    ]
    assert counts == sorted(set(counts))


def test_a_marker_is_of_the_tools() -> None:
    for scopes, finish in ((["tools"], "stop"), (["content", "reasoning"], "tool_calls")):
        [choice] = Asked(CALL_TIDE).answer(stop="<tool_call>", stop_scopes=scopes, tools=TOOLS)["choices"]
        assert choice["finish_reason"] == finish


# --- metrics ----------------------------------------------------------------------------------------------------------


def test_service_times_are_told_where_they_are_asked_for() -> None:
    asked = Asked("one ", "two ", "three")
    names = {"queue_time_ms", "time_to_first_token_ms", "mean_itl_ms", "max_itl_ms"}
    answer = asked.answer(include_metrics=True)
    *chunks, last = asked.chunks(include_metrics=True, stream_options={"include_usage": True})
    for metrics in (answer["metrics"], last["metrics"]):
        assert set(metrics) == names
        assert all(isinstance(ms, float) and ms >= 0 for ms in metrics.values())
        assert metrics["mean_itl_ms"] <= metrics["max_itl_ms"]
    assert last["choices"] == []
    assert not any("metrics" in chunk for chunk in chunks)
    assert "metrics" not in asked.answer()
    assert not any("metrics" in chunk for chunk in asked.chunks(stream_options={"include_usage": True}))


# --- the plan ---------------------------------------------------------------------------------------------------------


def test_what_the_stages_are_asked() -> None:
    ask = plan(
        "chat",
        chat(
            tools=TOOLS, tool_choice=allowed("required", "moon", "tide", "moon"), stop_scopes=["tools", "content"],
            stream_options={"include_usage": True, "include_obfuscation": True}, include_metrics=True,
            reasoning_field="reasoning", stop_token_ids=[7], end_token_logprob=False, named_finish_reason="tool_calls",
        ),
        "m",
    ).ask  # fmt: skip
    assert (ask.tool_choice, ask.allowed, ask.function) == ("required", ("moon", "tide"), None)
    assert [tool.name for tool in ask.tools] == ["tide", "moon", "sun"]
    assert ask.stop_scopes == ("content", "arguments", "marker")
    assert (ask.metrics, ask.include_usage, ask.reasoning_field) == (True, True, "reasoning")
    assert (ask.stop_ids, ask.end_token, ask.named_finish) == ((7,), False, "tool_calls")
    assert plan("chat", chat(), "m", reasoning_field="reasoning").ask == Ask(
        stream=True, tool_choice="none", reasoning_field="reasoning"
    )


REFUSED: list[tuple[str, str, dict[str, Any]]] = [
    # param, a word of what to do instead, fields
    ("include_metrics", "include_usage", {"include_metrics": True}),
    ("include_metrics", "include_usage", {"include_metrics": True, "stream_options": {"include_usage": False}}),
    ("stop_scopes", "length", {"stop_scopes": []}),
    ("stop_scopes[0]", "'content', 'reasoning' or 'tools'", {"stop_scopes": ["marker"]}),
    ("reasoning_field", "'both', 'reasoning' or 'reasoning_content'", {"reasoning_field": "thought"}),
    ("response_format.json_schema", "required", {"response_format": {"type": "json_schema"}}),
    ("response_format.json_schema.name", "required", {"response_format": {"type": "json_schema", "json_schema": {}}}),
    ("response_format.json_schema.name", "regex",
     {"response_format": {"type": "json_schema", "json_schema": {"name": "a b"}}}),
    ("response_format.json_schema.schema", "object",
     {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": []}}}),
    ("reasoning_effort", "'ultra' or 'xhigh'", {"reasoning_effort": "huge"}),
    ("response_format.type", "'structural_tag' or 'text'", {"response_format": {"type": "grammar"}}),
    ("tools[0].type", "function", {"tools": [{"type": "custom", "custom": {"name": "f"}}]}),
    ("tools[0].type", "web", {"tools": [{"type": "web"}]}),
    ("tool_choice.type", "function", {"tools": TOOLS, "tool_choice": {"type": "custom", "custom": {"name": "f"}}}),
    ("tool_choice", "'auto', 'none' or 'required'", {"tools": TOOLS, "tool_choice": "maybe"}),
    ("tool_choice.allowed_tools.mode", "'auto' or 'required'", {"tools": TOOLS, "tool_choice": allowed("any", "sun")}),
    ("tool_choice.type", "'function' or 'allowed_tools'", {"tools": TOOLS, "tool_choice": {"type": "any"}}),
    ("tool_choice.allowed_tools.tools", "length", {"tools": TOOLS, "tool_choice": allowed("auto")}),
    ("tool_choice.allowed_tools.tools[0].type", "function", {"tools": TOOLS, "tool_choice": {
        "type": "allowed_tools",
        "allowed_tools": {"mode": "auto", "tools": [{"type": "custom", "custom": {"name": "f"}}]}}}),
    ("tool_choice.allowed_tools.tools[0].function", "required", {"tools": TOOLS, "tool_choice": {
        "type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "name": "f"}]}}}),
    ("functions", "tools", {"functions": [{"name": "f"}]}),
    ("function_call", "tool_choice", {"function_call": {"name": "f"}}),
    ("modalities", "text", {"modalities": ["audio"]}),
    ("audio", "leave", {"audio": {"voice": "a", "format": "mp3"}}),
    ("prediction", "leave", {"prediction": {"type": "content", "content": "a"}}),
    ("web_search_options", "tools", {"web_search_options": {}}),
    ("moderation", "leave", {"moderation": {}}),
    ("messages[0].function_call", "tool_calls", {"messages": [
        {"role": "assistant", "content": "a", "function_call": {"name": "f", "arguments": "{}"}}]}),
    ("messages[0].audio", "content", {"messages": [{"role": "assistant", "content": None, "audio": {"id": "a"}}]}),
    ("messages[0].role", "tool", {"messages": [{"role": "function", "name": "f", "content": "a"}]}),
    ("messages[0].tool_calls[0].type", "expected 'function'", {"messages": [{"role": "assistant", "tool_calls": [
        {"id": "a", "type": "custom", "function": {"name": "f", "arguments": ""}}]}]}),
]  # fmt: skip


@pytest.mark.parametrize(("param", "word", "fields"), REFUSED, ids=[row[0] for row in REFUSED])
def test_a_refusal_names_the_field_and_what_to_do(param: str, word: str, fields: dict[str, Any]) -> None:
    with pytest.raises(RequestError) as caught:
        plan("chat", chat(**fields), "m")
    error = caught.value
    assert (error.status, error.param) == (400, param)
    assert error.message.startswith(f"{param}: ")
    assert word in error.message.removeprefix(param)


TAKEN: list[dict[str, Any]] = [
    {"response_format": {"type": "text"}},
    {"response_format": {"type": "json_object"}},
    {"response_format": {"type": "json_schema", "json_schema": {
        "name": "a", "description": None, "schema": {"type": "object"}, "strict": True}}},
    {"response_format": {"type": "structural_tag", "structures": [], "triggers": []}},
    {"modalities": ["text"]},
    {"stream_options": {"include_obfuscation": True}},
    {"stream_options": {"include_usage": None, "keep_alive": 0.5}},
    {"include_metrics": True, "stream": False},
    {"include_metrics": True, "stream_options": {"include_usage": True}},
    {"prompt_cache_key": "a", "prompt_cache_retention": "24h", "prompt_cache_options": {"a": 1}},
    {"user": "u", "metadata": {"a": "b"}, "store": True, "service_tier": "auto", "safety_identifier": "s"},
    {"verbosity": "low"},
    {"logit_bias": {"5": -100}, "seed": 7, "n": 2, "top_p": 0.5},
]  # fmt: skip


@pytest.mark.parametrize("fields", TAKEN, ids=lambda fields: ",".join(fields))
def test_what_has_no_effect_is_taken(fields: dict[str, Any]) -> None:
    assert plan("chat", chat(**fields), "m").ignored == ()
