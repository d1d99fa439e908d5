"""The protocol's numbered rules, on what the real stages make of generated output."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.events import (
    AbortInput,
    ErrorInput,
    FinishInput,
    Input,
    PromptInput,
    TokenLogprob,
    TokensInput,
    TopLogprob,
    UsageInput,
)
from stages.message import collect
from stages.protocols.openai_chat.decode import ask_of, decode_request
from tests.support.chat import payloads
from tests.support.invariants import assert_holds, request_of, session_of
from tests.support.parse import OFF, PROMPT, QWEN, THINKING, grouped, opening, session, tokens, vocabulary

PARTS = st.sampled_from([
    "<think>\n", "hm é", "\n</think>\n\n", "</think>", "Hi 😀.", "\n", " ", "STOP", "ST", "<tool_call>", "</tool_call>",
    '<tool_call>\n{"name": "tide", "arguments": {"port": "Brest STOP"}}\n</tool_call>',
    '<tool_call>{"name": "moon"}</tool_call>', '<tool_call>{"name": "tide", "arguments": {"a": ', "<|im_end|>",
    '<tool_call>{"name": "tide", "arguments": [1]}</tool_call>',
])  # fmt: skip
LANES = st.lists(
    st.tuples(
        st.lists(PARTS, max_size=6).map("".join), st.integers(1, 5), st.integers(1, 4),
        st.sampled_from(["eos", "stop_token", "length", "context", "filter"]),
    ),
    min_size=1, max_size=3,
)  # fmt: skip


def _askable(asks: dict[str, Any]) -> dict[str, Any]:
    """What a request can ask for: alternatives only beside logprobs, running usage only beside the final one."""
    top = asks["top_logprobs"] if asks["logprobs"] else 0
    return {**asks, "top_logprobs": top, "continuous_usage": asks["continuous_usage"] and asks["include_usage"]}


ASKS = st.fixed_dictionaries({
    "stop": st.sampled_from([(), ("STOP",), ("TO", "é"), ("\n", "}")]), "include_stop": st.booleans(),
    "parallel": st.booleans(), "include_reasoning": st.booleans(), "logprobs": st.booleans(),
    "top_logprobs": st.sampled_from([0, 1]), "return_token_ids": st.booleans(),
    "include_usage": st.booleans(), "end_token": st.booleans(),
    "continuous_usage": st.booleans(), "tool_choice": st.sampled_from(["auto", "required", "none", "name:tide"]),
    "reasoning_field": st.sampled_from(["both", "reasoning", "reasoning_content"]),
    "calls": st.sampled_from(["incremental", "whole"]), "named_finish": st.sampled_from(["stop", "tool_calls"]),
    "stop_scopes": st.sampled_from([
        ("content", "reasoning", "arguments", "marker"), ("content",), ("reasoning", "arguments", "marker"),
    ]),
}).map(_askable)  # fmt: skip
ENDS: st.SearchStrategy[Input | None] = st.sampled_from(
    [None, None, ErrorInput("engine", "lost"), AbortInput("timeout"), AbortInput("client")]
)


def _scored(step: TokensInput) -> TokensInput:
    entries = tuple(
        TokenLogprob(number, piece, -0.5, (TopLogprob(number, piece, -0.5), TopLogprob(1, b"a", -1.0)))
        for number, piece in zip(step.ids, step.pieces, strict=True)
    )
    return msgspec.structs.replace(step, logprobs=entries)


def _inputs(lanes: list[Any], tail: str, end: Input | None) -> list[Input]:
    queues: list[list[Input]] = []
    for choice, (text, width, group, finish) in enumerate(lanes):
        pieces = vocabulary(text, QWEN, width)
        steps = grouped(pieces, [group] * len(pieces), choice)
        queues.append([*map(_scored, steps), FinishInput(choice, finish, 7 if finish == "stop_token" else None)])
    body = [queue[at] for at in range(max(map(len, queues))) for queue in queues if at < len(queue)]
    if end is not None:
        return [PromptInput((1, 2), tail, 2), *body[: len(body) // 2], end]
    count = sum(len(event.ids) for event in body if isinstance(event, TokensInput))
    return [PromptInput((1, 2), tail, 2, 1), *body, UsageInput(2, count, 1)]


MODELS = ("a_names", "a_argsjson", "a_choice", "a_markers", "c_order")
"""Rules that the generated output breaks, which is a model's doing: tools that nobody offered, arguments that are no
JSON, no call where one was required, markers out of place, thoughts after the answer."""


@settings(max_examples=300)
@given(LANES, ASKS, st.sampled_from([PROMPT, THINKING, OFF]), ENDS)
def test_the_rules_hold(lanes: list[Any], asks: dict[str, Any], tail: str, end: Input | None) -> None:
    made = opening(stream=True, n=len(lanes), **asks)
    report = assert_holds(session_of(made, _inputs(lanes, tail, end)), MODELS)
    assert set(range(26, 80)) <= set(report.checked)


@given(LANES, ASKS)
def test_a_request_asks_for_what_it_was_made_of(lanes: list[Any], asks: dict[str, Any]) -> None:
    """Otherwise the rules would judge by another request than the stages."""
    ask = opening(stream=True, n=len(lanes), **asks).ask
    assert ask_of(decode_request(json.dumps(request_of(ask)).encode())) == ask


def test_hidden_reasoning_is_counted_where_ids_are_asked_for() -> None:
    """INV-069: running usage counts the tokens of a choice, shown or not."""
    asked = opening(
        stream=True, include_reasoning=False, return_token_ids=True, include_usage=True, continuous_usage=True
    )
    made = session_of(asked, session(tokens("hm</think>ok"), tail=THINKING))
    assert {27, 69, 79} <= set(assert_holds(made).checked)
    sent = payloads(made.events("served", "frame"))
    usages = [chunk["usage"]["completion_tokens"] for chunk in sent[:-1]]
    assert usages[-2:] == [3, 3]
    assert "token_ids" not in str(sent[1:])


@pytest.mark.parametrize(
    ("choice", "named", "want"),
    [
        ("auto", "stop", "tool_calls"), ("required", "stop", "tool_calls"),
        ("name:moon", "stop", "stop"), ("name:moon", "tool_calls", "tool_calls"),
    ],
)  # fmt: skip
def test_the_message_has_the_finish_reason_of_the_wire(choice: str, named: str, want: str) -> None:
    asked = opening(stream=True, tool_choice=choice, named_finish=named)
    made = session_of(asked, session(tokens('<tool_call>{"name": "moon"}</tool_call>')))
    assert 66 in assert_holds(made).checked
    [said] = collect(made.events("served", "semantic"), named=asked.ask.named)
    assert said.finish_reason == want
    assert payloads(made.events("served", "frame"))[-2]["choices"][0]["finish_reason"] == want
