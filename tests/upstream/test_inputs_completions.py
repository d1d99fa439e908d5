"""What the model wrote, from completions: of vLLM, SGLang, llama.cpp and transformers serve."""

from __future__ import annotations

from typing import Any

import pytest

from stages import catalog
from stages.events import (
    End,
    FinishInput,
    Input,
    PromptInput,
    TokenLogprob,
    TokensInput,
    TopLogprob,
    UsageInput,
)
from stages.message import collect
from stages.stage import fold
from tests.support.captures import captures
from tests.support.inputs import opening, read, stream, told


def part(text: str | None, index: int = 0, finish: Any = None, **more: Any) -> dict[str, Any]:
    choice = {"index": index, "text": text, "logprobs": None, "finish_reason": finish, **more}
    return {"id": "c", "object": "text_completion", "choices": [choice]}


def test_completions() -> None:
    usage: dict[str, Any] = {"choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": 3}}
    assert told("completions", part("Hi"), part("", finish=None), part("!", finish="stop"), usage) == [
        PromptInput((), "", 0), TokensInput(0, (), (), "Hi"), TokensInput(0, (), (), "!"), FinishInput(0, "eos"),
        UsageInput(4, 3),
    ]  # fmt: skip


def test_completions_of_which_nobody_counts_the_tokens() -> None:
    """A step without ids is taken for a token."""
    assert told("completions", part("Hi"), part("!", 1), part("?", finish="stop"), part(None, 1, "length"))[-1] == (
        UsageInput(0, 3)
    )


def test_each_of_several_prompts_is_begun() -> None:
    """A parser begins the choices of a prompt with its input; how many tokens each prompt has, no server tells."""
    made = told("completions", part("Hi"), part("!", 1, "stop"), part("?", finish="stop"), of=opening(n=2, prompts=2))
    assert made[:3] == [PromptInput((), "", 0), PromptInput((), "", 0), TokensInput(0, (), (), "Hi")]
    said = fold(catalog.parser("plain").start(opening(n=2, prompts=2)), made)
    assert [message.content for message in collect(said)] == ["Hi?", "!"]


def test_usage_on_the_last_chunk() -> None:
    """transformers has no chunk of its own for it, and no [DONE]."""
    last = {**part("!", finish="stop"), "usage": {"prompt_tokens": 4, "completion_tokens": 9}}
    assert told("completions", part("Hi"), last, last=End())[-1] == UsageInput(4, 9)


@pytest.mark.parametrize(
    ("more", "finish"),
    [
        ({}, FinishInput(0, "eos")),
        ({"stop_reason": 5}, FinishInput(0, "stop_token", 5)),
        ({"stop_reason": "END"}, FinishInput(0, "stop", "END")),
        ({"matched_stop": 99}, FinishInput(0, "eos", 99)),
        ({"matched_stop": 5}, FinishInput(0, "stop_token", 5)),
        ({"matched_stop": "END"}, FinishInput(0, "stop", "END")),
    ],
)
def test_finish_of_completions(more: dict[str, Any], finish: FinishInput) -> None:
    """vLLM tells of a match only if it is no end token, SGLang of each."""
    assert told("completions", part("a", finish="stop", **more), of=opening(stop_ids=(5,)))[-2] == finish


def logprobs(said: Any, **more: Any) -> TokensInput:
    step = told("completions", part("ab", finish="stop", logprobs=said, **more))[1]
    assert isinstance(step, TokensInput)
    return step


PARALLEL = {
    "tokens": ["a", "b"], "token_logprobs": [-0.5, None], "top_logprobs": [{"x": -2.0, "a": -0.5}, None],
    "text_offset": [0, 1],
}  # fmt: skip


def test_logprobs_of_completions() -> None:
    """Where there are no ids, each entry stands for a token whose id is not told."""
    top = (TopLogprob(-1, b"a", -0.5), TopLogprob(-1, b"x", -2.0))
    assert logprobs(PARALLEL, token_ids=[7, 8]) == TokensInput(
        0, (7, 8), (), "ab", (TokenLogprob(7, b"a", -0.5, top), TokenLogprob(8, b"b", -9999.0))
    )
    assert logprobs(PARALLEL) == TokensInput(
        0, (-1, -1), (), "ab", (TokenLogprob(-1, b"a", -0.5, top), TokenLogprob(-1, b"b", -9999.0))
    )


def test_logprobs_of_completions_as_chat_has_them() -> None:
    entry = {"id": 7, "token": "ab", "bytes": [97, 98], "logprob": -0.5, "top_logprobs": []}
    assert logprobs({"content": [entry]}) == TokensInput(0, (-1,), (), "ab", (TokenLogprob(-1, b"ab", -0.5),))


@pytest.mark.parametrize(
    "said", [{}, {"tokens": ["a"], "token_logprobs": []}, {"tokens": [], "token_logprobs": []}, {"content": []}, 5]
)
def test_logprobs_of_completions_that_cannot_be_aligned(said: Any) -> None:
    assert logprobs(said) == TokensInput(0, (), (), "ab")
    assert logprobs(said, token_ids=[7, 8, 9]) == TokensInput(0, (7, 8, 9), (), "ab")


def test_captured_completions() -> None:
    """vLLM's, with ids and without; SGLang's."""
    capture = captures()["vllm_plain-completions"]
    assert capture.engine is not None
    made = read("completions", stream(capture.data))
    ids = capture.engine.choices[0].ids
    assert made[0] == PromptInput((785, 6722, 315, 9625, 374), "", 5)
    assert [item for item in made if isinstance(item, TokensInput)] == [
        TokensInput(0, (number,), (), text)
        for number, text in zip(ids, (" Paris", ",", " of", " course", ".", ""), strict=True)
    ]
    assert made[-2:] == [FinishInput(0, "stop_token", 151643), UsageInput(5, 6)]
    assert (
        _text(read("completions", stream(captures()["vllm_plain-completions_logprobs"].data))) == " Paris, of course."
    )
    made = read("completions", stream(captures()["sglang_plain-completions_plain"].data))
    assert _text(made) == "The capital of France is Paris. It lies on the Seine."
    assert made[-2:] == [FinishInput(0, "eos", 151645), UsageInput(5, 15)]


def test_captured_logprobs_of_completions() -> None:
    made = read("completions", stream(captures()["vllm_plain-completions_logprobs"].data))
    first = next(item for item in made if isinstance(item, TokensInput))
    assert [(entry.id, entry.piece, [top.piece for top in entry.top]) for entry in first.logprobs] == [
        (-1, b" Paris", [b" Paris", b"finished"])
    ]


def _text(made: list[Input]) -> str:
    return "".join(item.text for item in made if isinstance(item, TokensInput))
