"""The protocol's numbered rules, on what the real stages make of generated output."""

from __future__ import annotations

import json
from typing import Any

import msgspec
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
from stages.protocols.openai_chat import ask_of
from stages.protocols.openai_responses import chat_of, decode_request
from tests.support.parse import OFF, PROMPT, QWEN, THINKING, grouped, opening, vocabulary
from tests.support.responses import assert_holds, request_of, session_of

PARTS = st.sampled_from([
    "<think>\n", "hm é", "\n</think>\n\n", "</think>", "Hi 😀.", "\n", " ", "STOP", "ST", "<tool_call>", "</tool_call>",
    '<tool_call>\n{"name": "tide", "arguments": {"port": "Brest STOP"}}\n</tool_call>',
    '<tool_call>{"name": "moon"}</tool_call>', '<tool_call>{"name": "tide", "arguments": {"a": ', "<|im_end|>",
    '<tool_call>{"name": "tide", "arguments": [1]}</tool_call>',
])  # fmt: skip
OUTPUT = st.tuples(
    st.lists(PARTS, max_size=6).map("".join), st.integers(1, 5), st.integers(1, 4),
    st.sampled_from(["eos", "stop_token", "length", "context", "filter"]),
)  # fmt: skip


def _askable(asks: dict[str, Any]) -> dict[str, Any]:
    """What a request can ask for: alternatives only beside logprobs."""
    return {**asks, "top_logprobs": asks["top_logprobs"] if asks["logprobs"] else 0}


ASKS = st.fixed_dictionaries({
    "stop": st.sampled_from([(), ("STOP",), ("TO", "é"), ("\n", "}")]), "include_stop": st.booleans(),
    "parallel": st.booleans(), "include_reasoning": st.booleans(), "logprobs": st.booleans(),
    "top_logprobs": st.sampled_from([0, 1]), "tool_choice": st.sampled_from(["auto", "required", "none", "name:tide"]),
    "calls": st.sampled_from(["incremental", "whole"]), "stream": st.booleans(),
}).map(_askable)  # fmt: skip
ENDS: st.SearchStrategy[Input | None] = st.sampled_from(
    [None, None, ErrorInput("engine", "lost"), ErrorInput("rate_limited", "", "slow", "model"), AbortInput("timeout"),
     AbortInput("cancel"), AbortInput("client")]
)  # fmt: skip
MODELS = ("a_names", "a_argsjson", "a_choice", "a_markers")
"""Rules that the generated output breaks, which is a model's doing."""


def _inputs(output: Any, tail: str, end: Input | None) -> list[Input]:
    text, width, group, finish = output
    pieces = vocabulary(text, QWEN, width)
    steps: list[Input] = [_scored(step) for step in grouped(pieces, [group] * len(pieces))]
    if end is not None:
        return [PromptInput((1, 2), tail, 2), *steps[: len(steps) // 2], end]
    count = len(pieces)
    done = FinishInput(0, finish, 7 if finish == "stop_token" else None)
    return [PromptInput((1, 2), tail, 2, 1), *steps, done, UsageInput(2, count, 1)]


def _scored(step: TokensInput) -> TokensInput:
    entries = tuple(
        TokenLogprob(number, piece, -0.5, (TopLogprob(number, piece, -0.5), TopLogprob(1, b"a", -1.0)))
        for number, piece in zip(step.ids, step.pieces, strict=True)
    )
    return msgspec.structs.replace(step, logprobs=entries)


@settings(max_examples=200)
@given(OUTPUT, ASKS, st.sampled_from([PROMPT, THINKING, OFF]), ENDS, st.sampled_from([None, "auto"]))
def test_the_rules_hold(output: Any, asks: dict[str, Any], tail: str, end: Input | None, summary: str | None) -> None:
    made = session_of(opening(**asks), _inputs(output, tail, end), reasoning={"summary": summary})
    report = assert_holds(made, MODELS)
    if asks["stream"] and end != AbortInput("client"):
        assert set(range(90, 116)) | {135} <= set(report.checked)


@given(OUTPUT, ASKS)
def test_a_request_asks_for_what_it_was_made_of(output: Any, asks: dict[str, Any]) -> None:
    """Otherwise the rules would judge by another request than the stages."""
    ask = opening(**asks).ask
    read = ask_of(chat_of(decode_request(json.dumps(request_of(ask)).encode())))
    assert msgspec.structs.replace(read, include_usage=False) == ask
