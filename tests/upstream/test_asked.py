"""What requests of all protocols ask for: as their definitions say, as our own reading of chat says, and of any bytes
something."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.opening import Ask, Tool
from stages.protocols.openai_chat import ask_of, decode_request
from stages.upstream.asked import asked, model_of
from tests.support.captures import captures
from tests.support.decoding import JUNK, odd
from tests.support.invariants import request_of

SCHEMA = {"type": "object", "properties": {"port": {"type": "string"}}}


def ask(protocol: str, **fields: Any) -> Ask:
    return asked(protocol, json.dumps(fields).encode())


# --- the four protocols -----------------------------------------------------------------------------------------------

CHAT_TOOL = {"type": "function", "function": {"name": "tide", "description": "d", "parameters": SCHEMA, "strict": True}}
FLAT_TOOL = {"type": "function", "name": "tide", "description": "d", "parameters": SCHEMA, "strict": True}
MESSAGES_TOOL = {"name": "tide", "description": "d", "input_schema": SCHEMA, "strict": True}
TIDE = Tool("tide", "d", SCHEMA, True)


@pytest.mark.parametrize(
    ("protocol", "tool"), [("chat", CHAT_TOOL), ("responses", FLAT_TOOL), ("messages", MESSAGES_TOOL)]
)
def test_tools(protocol: str, tool: dict[str, Any]) -> None:
    found = ask(protocol, tools=[tool])
    assert (found.tools, found.tool_choice, found.allowed) == ((TIDE,), "auto", ())
    assert ask(protocol).tool_choice == "none"
    odd_ones = [tool, None, "tide", {}, {"type": "web_search"}, {"type": "function", "function": {"name": 5}}]
    assert ask(protocol, tools=odd_ones).tools == (TIDE,)
    assert ask(protocol, tools={"tide": tool}).tools == ()


@pytest.mark.parametrize(
    ("protocol", "choice", "want"),
    [
        ("chat", "none", "none"), ("chat", "auto", "auto"), ("chat", "required", "required"),
        ("chat", {"type": "function", "function": {"name": "tide"}}, "name:tide"),
        ("chat", {"type": "custom", "custom": {"name": "tide"}}, "name:tide"),
        ("chat", {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": []}}, "required"),
        ("chat", {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}, "auto"),
        ("chat", "any", "required"), ("chat", "odd", "auto"), ("chat", 5, "auto"), ("chat", {}, "auto"),
        ("chat", {"type": "function", "function": {}}, "auto"),
        ("responses", "required", "required"), ("responses", {"type": "function", "name": "tide"}, "name:tide"),
        ("responses", {"type": "allowed_tools", "mode": "required", "tools": []}, "required"),
        ("responses", {"type": "mcp", "server_label": "x"}, "auto"),
        ("messages", {"type": "auto"}, "auto"), ("messages", {"type": "any"}, "required"),
        ("messages", {"type": "none"}, "none"), ("messages", {"type": "tool", "name": "tide"}, "name:tide"),
    ],
)  # fmt: skip
def test_tool_choices(protocol: str, choice: Any, want: str) -> None:
    assert ask(protocol, tools=[FLAT_TOOL], tool_choice=choice).tool_choice == want


def test_allowed_tools() -> None:
    names = ["moon", "tide", "moon"]
    nested = {"type": "allowed_tools", "allowed_tools": {
        "mode": "auto", "tools": [{"type": "function", "function": {"name": name}} for name in names]}}  # fmt: skip
    flat = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": name} for name in names]}
    assert ask("chat", tool_choice=nested).allowed == ask("responses", tool_choice=flat).allowed == ("moon", "tide")


def test_the_old_functions() -> None:
    function = CHAT_TOOL["function"]
    found = ask("chat", functions=[function], function_call={"name": "tide"})
    assert (found.tools, found.tool_choice) == ((TIDE,), "name:tide")
    assert ask("chat", functions=[function], function_call="none").tool_choice == "none"


def test_one_call_at_a_time() -> None:
    assert ask("chat").parallel
    assert not ask("chat", parallel_tool_calls=False).parallel
    assert not ask("responses", parallel_tool_calls=False).parallel
    assert not ask("messages", tool_choice={"type": "auto", "disable_parallel_tool_use": True}).parallel
    assert ask("messages", tool_choice={"type": "auto", "disable_parallel_tool_use": False}).parallel


@pytest.mark.parametrize("protocol", ["chat", "completions", "responses", "messages"])
def test_stops(protocol: str) -> None:
    name = "stop_sequences" if protocol == "messages" else "stop"
    assert ask(protocol, **{name: ["a", "", 5, "b"]}).stop == ("a", "b")
    assert ask(protocol, **{name: "ab"}).stop == ("ab",)
    assert ask(protocol, **{name: None}).stop == ()
    other = ask(protocol, include_stop_str_in_output=True, stop_token_ids=[7, -1, "x", True, 8], ignore_eos=True)
    assert (other.include_stop, other.stop_ids, other.ignore_eos) == (True, (7, 8), True)
    assert ask(protocol, no_stop_trim=True).include_stop


def test_scopes() -> None:
    assert ask("chat", stop_scopes=["tools", "content"]).stop_scopes == ("content", "arguments", "marker")
    for value in (None, [], ["odd"], "content"):
        assert ask("chat", stop_scopes=value).stop_scopes == Ask().stop_scopes


def test_logprobs() -> None:
    def told(protocol: str, **fields: Any) -> tuple[bool, int]:
        found = ask(protocol, **fields)
        return found.logprobs, found.top_logprobs

    assert told("chat", logprobs=True, top_logprobs=5) == (True, 5)
    assert told("chat", logprobs=None) == told("completions", logprobs=None) == (False, 0)
    assert told("completions", logprobs=0) == (True, 0)
    assert told("completions", logprobs=3) == (True, 3)
    assert told("completions", logprobs="odd") == (False, 0)
    assert told("responses", include=["message.output_text.logprobs"], top_logprobs=2) == (True, 2)
    assert told("responses", top_logprobs=2) == (False, 2)
    assert told("chat", logprobs=True, top_logprobs=10**9) == (True, 100)


def test_switches() -> None:
    found = ask(
        "chat", stream=True, n=3, include_reasoning=False, skip_special_tokens=False, return_token_ids=True,
        end_token_logprob=False, include_metrics=True, named_finish_reason="tool_calls", reasoning_field="reasoning",
        stream_options={"include_usage": True, "continuous_usage_stats": True},
    )  # fmt: skip
    assert found == Ask(
        stream=True, n=3, tool_choice="none", include_reasoning=False, keep_special=True, return_token_ids=True,
        end_token=False, metrics=True, named_finish="tool_calls", reasoning_field="reasoning", include_usage=True,
        continuous_usage=True,
    )  # fmt: skip
    assert not ask("chat", stream_options={"continuous_usage_stats": True}).continuous_usage
    assert ask("messages", stream=True, max_tokens=5) == Ask(stream=True, tool_choice="none")


@pytest.mark.parametrize(("n", "want"), [(2, 2), ("3", 3), (2.0, 2), (0, 1), (-4, 1), (None, 1), ([], 1), (10**9, 128)])
def test_choices(n: Any, want: int) -> None:
    assert ask("chat", n=n).n == want


# --- any body ---------------------------------------------------------------------------------------------------------


def deep(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"a": value}
    return value


@pytest.mark.parametrize("schema", [deep(150), {"a": 10**30}, {"a": "\ud83d"}, {"\ud83d": 1}, [], "odd", 7])
def test_a_schema_that_no_store_takes_is_none(schema: Any) -> None:
    found = ask("chat", tools=[{"type": "function", "function": {"name": "f", "parameters": schema}}])
    assert found.tools == (Tool("f"),)
    assert msgspec.msgpack.encode(found)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b"\xff", b"{" * 100_000, b'{"a":' * 5000, b'{"model": 5}', b'{"n": 1e999}']
)
def test_what_says_nothing(body: bytes) -> None:
    for protocol in ("chat", "completions", "responses", "messages", "odd"):
        assert asked(protocol, body) == Ask(tool_choice="none")
    assert model_of(body) is None


def test_the_model() -> None:
    assert model_of(b'{"model": "m", "messages": []}') == "m"
    assert model_of(b'\xef\xbb\xbf{"model": "\\ud83d"}') == "\ufffd"


FIELDS = [
    "stream", "n", "tools", "tool_choice", "parallel_tool_calls", "stop", "stop_sequences", "include_reasoning",
    "logprobs", "top_logprobs", "return_token_ids", "stream_options", "stop_token_ids", "ignore_eos", "functions",
    "skip_special_tokens", "function_call", "include", "named_finish_reason", "reasoning_field", "stop_scopes", "model",
]  # fmt: skip
NAMED = st.fixed_dictionaries({}, optional=dict.fromkeys(("type", "name", "function", "parameters", "tools"), JUNK))


@settings(max_examples=200)
@given(
    st.sampled_from(["chat", "completions", "responses", "messages"]),
    st.dictionaries(st.sampled_from(FIELDS), odd(NAMED | st.lists(NAMED, max_size=2)), max_size=8),
)
def test_any_fields(protocol: str, fields: dict[str, Any]) -> None:
    body = json.dumps(fields).encode()
    assert msgspec.msgpack.encode(asked(protocol, body))
    model_of(body)


@settings(max_examples=100)
@given(st.binary(max_size=60), st.binary(max_size=20))
def test_any_bytes(data: bytes, inner: bytes) -> None:
    for body in (data, b'{"tools": [{"name": "' + inner + b'"}], "stop": "' + data + b'"}'):
        for protocol in ("chat", "messages"):
            assert msgspec.msgpack.encode(asked(protocol, body))


# --- as our own reading of chat ---------------------------------------------------------------------------------------

TOOLS = st.lists(
    st.builds(Tool, st.sampled_from(["f", "g"]), st.none(), st.none() | st.just(SCHEMA), st.booleans()),
    max_size=2, unique_by=lambda tool: tool.name,
).map(tuple)  # fmt: skip
ASKS = st.builds(
    Ask, stream=st.booleans(), n=st.integers(1, 3), tools=TOOLS, parallel=st.booleans(),
    named_finish=st.sampled_from(["stop", "tool_calls"]), include_reasoning=st.booleans(),
    stop=st.sampled_from([(), ("a",), ("a", "bc")]), include_stop=st.booleans(),
    stop_scopes=st.sampled_from([("content",), ("reasoning", "arguments", "marker"), Ask().stop_scopes]),
    keep_special=st.booleans(), ignore_eos=st.booleans(), stop_ids=st.sampled_from([(), (7, 8)]),
    logprobs=st.just(True), top_logprobs=st.integers(0, 20), end_token=st.booleans(), return_token_ids=st.booleans(),
    reasoning_field=st.sampled_from(["reasoning", "reasoning_content", "both"]),
)  # fmt: skip


@settings(max_examples=150)
@given(ASKS, st.sampled_from(["auto", "none", "required", "name:"]), st.booleans(), st.booleans())
def test_a_valid_chat_request_asks_for_the_same(found: Ask, choice: str, usage: bool, running: bool) -> None:
    if not found.tools:
        choice = "none"
    elif choice == "name:":
        choice += found.tools[0].name
    found = msgspec.structs.replace(
        found, tool_choice=choice, include_usage=usage and found.stream, metrics=usage and found.stream,
        continuous_usage=running and usage and found.stream,
    )  # fmt: skip
    body = json.dumps({key: value for key, value in request_of(found).items() if value is not None}).encode()
    assert asked("chat", body) == ask_of(decode_request(body)) == found


@pytest.mark.parametrize("name", sorted(name for name, one in captures().items() if one.protocol == "chat"))
def test_captured_requests_ask_for_the_same(name: str) -> None:
    body = json.dumps(captures()[name].request).encode()
    assert asked("chat", body) == ask_of(decode_request(body))
    assert model_of(body) == captures()[name].request["model"]


def test_several_prompts_have_choices_each() -> None:
    """Texts, or lists of tokens; a list of tokens alone is one prompt."""
    for prompt, count in (("a", 1), (["a", "b"], 2), ([1, 2, 3], 1), ([[1], [2, 3], [4]], 3), ([], 1), (None, 1)):
        found = asked("completions", json.dumps({"prompt": prompt, "n": 2}).encode())
        assert (found.prompts, found.n) == (count, 2 * count)
    assert asked("chat", b'{"prompt": ["a", "b"], "n": 2}').n == 2
