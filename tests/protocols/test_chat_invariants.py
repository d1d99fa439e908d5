"""The protocol's numbered rules, on what the real stages make of generated output."""

from __future__ import annotations

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
from tests.support.chat import payloads
from tests.support.invariants import check_chat, sent
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
ASKS = st.fixed_dictionaries({
    "stop": st.sampled_from([(), ("STOP",), ("TO", "é"), ("\n", "}")]), "include_stop": st.booleans(),
    "parallel": st.booleans(), "include_reasoning": st.booleans(), "logprobs": st.booleans(),
    "top_logprobs": st.sampled_from([0, 1]), "return_token_ids": st.booleans(), "include_usage": st.booleans(),
    "continuous_usage": st.booleans(), "tool_choice": st.sampled_from(["auto", "required", "none", "name:tide"]),
    "reasoning_field": st.sampled_from(["both", "reasoning", "reasoning_content"]),
    "calls": st.sampled_from(["incremental", "whole"]),
})  # fmt: skip
ENDS: st.SearchStrategy[Input | None] = st.sampled_from(
    [None, None, ErrorInput("engine", "lost"), AbortInput("timeout")]
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


@settings(max_examples=300)
@given(LANES, ASKS, st.sampled_from([PROMPT, THINKING, OFF]), ENDS)
def test_the_rules_hold(lanes: list[Any], asks: dict[str, Any], tail: str, end: Input | None) -> None:
    check_chat(sent(opening(stream=True, n=len(lanes), **asks), _inputs(lanes, tail, end)))


def test_hidden_reasoning_is_counted_where_ids_are_asked_for() -> None:
    """INV-069: running usage counts the tokens of a choice, shown or not."""
    asked = opening(
        stream=True, include_reasoning=False, return_token_ids=True, include_usage=True, continuous_usage=True
    )
    inputs = session(tokens("hm</think>ok"), tail=THINKING)
    made = sent(asked, inputs)
    check_chat(made)
    usages = [chunk["usage"]["completion_tokens"] for chunk in payloads(made.frames)[:-1]]
    assert usages[-2:] == [3, 3]
    assert "token_ids" not in str(payloads(made.frames)[1:])


@pytest.mark.parametrize(
    ("choice", "want"), [("auto", "tool_calls"), ("required", "tool_calls"), ("name:moon", "stop")]
)
def test_the_message_has_the_finish_reason_of_the_wire(choice: str, want: str) -> None:
    asked = opening(stream=True, tool_choice=choice)
    made = sent(asked, session(tokens('<tool_call>{"name": "moon"}</tool_call>')))
    check_chat(made)
    [said] = collect(made.semantic, named=asked.ask.named)
    assert said.finish_reason == want
    assert payloads(made.frames)[-2]["choices"][0]["finish_reason"] == want
