"""Chat streams of our own that are rare and right: nothing is broken in them."""

from __future__ import annotations

from typing import Any

import pytest

from stages.message import Message, ToolCall
from stages.protocols.rules import EngineChoice, EngineFacts
from tests.support.wire import Elements, Stream, chunk
from tests.support.wire_bases import ASKED, HEAD, HTTP, PROMPT_IDS, ROLE, TOOLS, argument, entries, facts, usage

FAILURE = '{"error":{"message":"engine lost the request","type":"server_error","param":null,"code":"engine_error"}}'
CALL = ToolCall("call_k1", "get_tide", '{"port":"Brest"}')
KIMI = ToolCall("functions.get_tide:7", "get_tide", CALL.arguments)
CALLED: Elements = [
    chunk(ROLE),
    chunk({"tool_calls": [HEAD[0]]}),
    chunk(argument('{"port":')),
    chunk(argument('"Brest"}')),
]


def stream(elements: Elements, engine: EngineFacts, meant: list[Message], **request: Any) -> Stream:
    asked = {"stream": True, **request}
    return Stream("chat", [*elements, "[DONE]"], {"http": HTTP, "request": asked, "engine": engine, "meant": meant})


def ended(finish: str, **more: Any) -> dict[str, Any]:
    """The last chunk of a choice, with more keys in the choice."""
    last = chunk({}, finish=finish)
    last["choices"][0].update(more)
    return last


def custom(**entry: Any) -> dict[str, Any]:
    return chunk({"tool_calls": [{"index": 0, **entry}]})


TEXT = [chunk(ROLE), chunk({"content": "Hi"})]
SHELL = [{"type": "custom", "custom": {"name": "shell"}}]
ALLOWED = {
    "type": "allowed_tools",
    "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "get_tide"}}]},
}
NAMED = {"type": "function", "function": {"name": "get_tide"}}
SURE = {"token": "Hi", "logprob": 0.0, "bytes": [72, 105]}
FLOOR = {"token": "?", "logprob": -9999.0, "bytes": None}

STREAMS: dict[str, Stream] = {
    "nothing is said": stream([chunk(ROLE), ended("stop")], facts((1,)), [Message(0, finish_reason="stop")]),
    "an error is all": stream([FAILURE], facts((), None), [], stream_options={"include_usage": True}),
    "an error when one of two has ended": stream(
        [chunk(ROLE), chunk(ROLE, 1), chunk({"content": "Hi"}), ended("stop"), FAILURE],
        EngineFacts({0: EngineChoice((1, 2), "eos"), 1: EngineChoice(())}, 9, PROMPT_IDS),
        [Message(0, content="Hi", finish_reason="stop"), Message(1)],
        n=2,
    ),
    "a stop string behind whole calls": stream(
        [*CALLED, ended("tool_calls", stop_reason="END")], facts((1, 2, 3), "stop"),
        [Message(0, tool_calls=(CALL,), finish_reason="tool_calls")], tools=TOOLS, stop="END",
    ),
    "a stop string inside a call": stream(
        [*CALLED[:3], ended("stop", stop_reason="Brest")], facts((1, 2, 3), "stop"),
        [Message(0, tool_calls=(ToolCall("call_k1", "get_tide", '{"port":', complete=False),), finish_reason="stop")],
        tools=TOOLS, stop=["Brest"],
    ),
    "length inside a call": stream(
        [*CALLED[:3], ended("length")], facts((1, 2, 3), "length", 3),
        [Message(0, tool_calls=(ToolCall("call_k1", "get_tide", '{"port":', complete=False),), finish_reason="length")],
        tools=TOOLS, tool_choice="required", max_completion_tokens=3, max_tokens=99,
    ),
    "the context ends": stream(
        [*TEXT, ended("length")], facts((1, 2), "context"), [Message(0, content="Hi", finish_reason="length")]
    ),
    "a filter": stream(
        [*TEXT, ended("content_filter")], facts((1, 2), "filter"),
        [Message(0, content="Hi", finish_reason="content_filter")], tools=TOOLS, tool_choice="required",
    ),
    "a named function": stream(
        [*CALLED, ended("stop")], facts((1, 2, 3)), [Message(0, tool_calls=(CALL,), finish_reason="stop")],
        tools=TOOLS, tool_choice=NAMED,
    ),
    "one of the allowed tools": stream(
        [*CALLED, ended("tool_calls")], facts((1, 2, 3)), [Message(0, tool_calls=(CALL,), finish_reason="tool_calls")],
        tools=TOOLS, tool_choice=ALLOWED, parallel_tool_calls=False,
    ),
    "whole calls in one delta": stream(
        [
            chunk(ROLE),
            chunk({"tool_calls": [
                {**HEAD[0], "function": {"name": "get_tide", "arguments": CALL.arguments}},
                {**HEAD[1], "function": {"name": "get_wind", "arguments": "{}"}},
            ]}),
            ended("tool_calls"),
        ],
        facts((1, 2, 3)),
        [Message(0, tool_calls=(CALL, ToolCall("call_k2", "get_wind", "{}")), finish_reason="tool_calls")],
        tools=TOOLS, tool_choice="required",
    ),
    "ids that count over the conversation": stream(
        [
            chunk(ROLE),
            chunk({"tool_calls": [{**HEAD[0], "id": "functions.get_tide:7"}]}),
            chunk(argument(CALL.arguments)),
            ended("tool_calls"),
        ],
        facts((1, 2, 3)),
        [Message(0, tool_calls=(KIMI,), finish_reason="tool_calls")],
        tools=TOOLS,
    ),
    "free text for a custom tool": stream(
        [
            chunk(ROLE),
            custom(id="call_c1", type="custom", custom={"name": "shell", "input": ""}),
            custom(custom={"input": "ls -l"}),
            ended("tool_calls"),
        ],
        facts((1, 2, 3)),
        [Message(0, tool_calls=(ToolCall("call_c1", "shell", "ls -l"),), finish_reason="tool_calls")],
        tools=SHELL,
    ),
    "text that resembles a stop string": stream(
        [chunk(ROLE), chunk({"content": "</answ"}), chunk({"content": "ers>"}), ended("stop")], facts((1, 2, 3)),
        [Message(0, content="</answers>", finish_reason="stop")], stop=["</answer>"],
    ),
    "logprobs at both ends": stream(
        [
            chunk(ROLE),
            chunk({"content": "Hi"}, logprobs={"content": [{**SURE, "top_logprobs": [SURE, FLOOR]}], "refusal": None}),
            ended("stop", logprobs={"content": [{**FLOOR, "top_logprobs": []}], "refusal": None}),
        ],
        facts((1, 2)), [Message(0, content="Hi", finish_reason="stop")], logprobs=True, top_logprobs=1,
    ),
    "a character over two tokens": stream(
        [
            chunk(ROLE),
            chunk({}, logprobs={"content": [
                {"token": "\ufffd", "logprob": -1.0, "bytes": [195], "top_logprobs": []}], "refusal": None}),
            chunk({"content": "é"}, logprobs={"content": [
                {"token": "\ufffd", "logprob": -1.0, "bytes": [169], "top_logprobs": []}], "refusal": None}),
            ended("stop"),
        ],
        facts((1, 2, 3)), [Message(0, content="é", finish_reason="stop")], logprobs=True,
    ),
    "logprobs of a refusal": stream(
        [
            chunk(ROLE),
            chunk({"refusal": "No."}, logprobs={"content": None, "refusal": entries("No.")["content"]}),
            ended("stop"),
        ],
        facts((1, 2)), [Message(0, refusal="No.", finish_reason="stop")], logprobs=True, top_logprobs=2,
    ),
    "usage without details": stream(
        [*({**one, "usage": None} for one in (*TEXT, ended("stop"))), {"choices": [], "usage": usage(9, 2)}],
        facts((1, 2)), [Message(0, content="Hi", finish_reason="stop")], **ASKED,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STREAMS)
def test_nothing_is_broken(name: str) -> None:
    assert STREAMS[name].report().violations == ()
    assert STREAMS[name].known(engine=None, meant=None, http=None).report().violations == ()
