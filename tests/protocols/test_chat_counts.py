"""The chat encoder: logprobs, token ids and usage."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from stages.events import (
    Content,
    Dropped,
    End,
    Failure,
    Finish,
    Semantic,
    Start,
    TimingInput,
    TokenLogprob,
    Tokens,
    TopLogprob,
    Usage,
)
from stages.opening import Ask, TokenizerFacts
from stages.protocols.openai_chat import ENCODER, ChatCompletion
from stages.stage import fold
from tests.support.chat import answer_of, choices_of, frames_of, opening, payloads

STREAM = Ask(stream=True)

# --- logprobs and token ids -----------------------------------------------------------------------------------------

LOGPROBS = (
    TokenLogprob(5, b"\xe2\x82", -0.5, (TopLogprob(5, b"\xe2\x82", -0.5), TopLogprob(6, b"x", float("-inf")))),
    TokenLogprob(7, b"\xac", 1e-9),
)
STEPS: list[Semantic] = [
    Start(0, 3, 0, (11, 12, 13)),
    Tokens(0, (5,), LOGPROBS[:1]),
    Tokens(0, (7,), LOGPROBS[1:]),
    Content(0, "€", (0, 3)),
    Tokens(0, (2,), (TokenLogprob(2, b"</s>", float("nan")),)),
    Dropped(0, "</s>", (3, 7)),
    Finish(0, "eos", 2),
    Usage(3, 3),
    End(),
]
ENTRIES = [
    {
        "token": "\ufffd", "logprob": -0.5, "bytes": [0xE2, 0x82],
        "top_logprobs": [
            {"token": "\ufffd", "logprob": -0.5, "bytes": [0xE2, 0x82]},
            {"token": "x", "logprob": -9999.0, "bytes": [120]},
        ],
    },
    {"token": "\ufffd", "logprob": 0.0, "bytes": [0xAC], "top_logprobs": []},
    {"token": "</s>", "logprob": -9999.0, "bytes": list(b"</s>"), "top_logprobs": []},
]  # fmt: skip


def test_logprobs_go_out_in_the_step_of_their_token() -> None:
    choices = choices_of(frames_of(Ask(stream=True, logprobs=True, top_logprobs=2), STEPS))
    shown = [(choice["delta"], choice["logprobs"] and choice["logprobs"]["content"]) for choice in choices]
    assert shown == [
        ({"role": "assistant", "content": ""}, None), ({}, ENTRIES[:1]), ({}, ENTRIES[1:2]), ({"content": "€"}, None),
        ({}, ENTRIES[2:]), ({}, None),
    ]  # fmt: skip
    assert [choice["finish_reason"] for choice in choices] == [None] * 5 + ["stop"]
    assert all(choice["logprobs"]["refusal"] is None for choice in choices if choice["logprobs"])


def test_one_entry_per_token_and_the_same_without_streaming() -> None:
    ask = Ask(logprobs=True, top_logprobs=2)
    answer = answer_of(ask, STEPS)
    assert answer["choices"][0]["logprobs"] == {"content": ENTRIES, "refusal": None}
    assert len(ENTRIES) == answer["usage"]["completion_tokens"]


def test_no_more_alternatives_than_asked_for() -> None:
    entry = answer_of(Ask(logprobs=True, top_logprobs=1), STEPS)["choices"][0]["logprobs"]["content"][0]
    assert len(entry["top_logprobs"]) == 1
    assert answer_of(Ask(logprobs=True), STEPS)["choices"][0]["logprobs"]["content"][0]["top_logprobs"] == []


def test_logprobs_only_if_asked_for() -> None:
    assert all(choice["logprobs"] is None for choice in choices_of(frames_of(STREAM, STEPS)))
    assert len(choices_of(frames_of(STREAM, STEPS))) == 3
    assert answer_of(STREAM, STEPS)["choices"][0]["logprobs"] is None


def test_token_ids() -> None:
    ask = Ask(stream=True, return_token_ids=True)
    chunks = payloads(frames_of(ask, STEPS))[:-1]
    assert [chunk.get("prompt_token_ids") for chunk in chunks] == [[11, 12, 13]] + [None] * 5
    assert [chunk["choices"][0].get("token_ids") for chunk in chunks] == [None, [5], [7], None, [2], None]
    answer = answer_of(ask, STEPS)
    assert answer["prompt_token_ids"] == [11, 12, 13]
    assert answer["choices"][0]["token_ids"] == [5, 7, 2]


def test_prompt_ids_only_once_and_only_if_asked_for() -> None:
    events: list[Semantic] = [Start(0, 3, 0, (11, 12, 13)), Start(1, 3)]
    chunks = payloads(frames_of(Ask(stream=True, n=2, return_token_ids=True), events))
    assert ["prompt_token_ids" in chunk for chunk in chunks] == [True, False]
    assert not any("prompt_token_ids" in chunk for chunk in payloads(frames_of(Ask(stream=True, n=2), events)))


def test_hidden_reasoning_has_no_logprobs_and_no_ids() -> None:
    ask = Ask(stream=True, logprobs=True, return_token_ids=True, include_reasoning=False)
    for choice in (*choices_of(frames_of(ask, STEPS)), answer_of(ask, STEPS)["choices"][0]):
        assert choice["logprobs"] is None
        assert "token_ids" not in choice


def test_the_entry_of_the_end_token_can_be_left_out() -> None:
    """The switch of the rule that entries are one per token: completion_tokens - 1 then. Ids are told all the same."""
    ask = Ask(stream=True, logprobs=True, top_logprobs=2, end_token=False, return_token_ids=True)
    tokenizer = TokenizerFacts(eos=(2,))
    for asked, events in (
        (ask, STEPS),
        (msgspec.structs.replace(ask, stop_ids=(2,), ignore_eos=True), STEPS),
    ):
        answer = whole(asked, events, tokenizer)
        assert answer["choices"][0]["logprobs"] == {"content": ENTRIES[:2], "refusal": None}
        assert answer["choices"][0]["token_ids"] == [5, 7, 2]
        assert answer["usage"]["completion_tokens"] == 3
    # Of two end tokens in a row one ends the choice.
    again = [*STEPS[:5], STEPS[4], *STEPS[5:]]
    assert whole(ask, again, tokenizer)["choices"][0]["logprobs"]["content"] == ENTRIES
    # A token that ends nothing is text.
    asked = msgspec.structs.replace(ask, ignore_eos=True)
    assert whole(asked, STEPS, tokenizer)["choices"][0]["logprobs"]["content"] == ENTRIES
    assert (
        whole(msgspec.structs.replace(ask, end_token=True), STEPS, tokenizer)["choices"][0]["logprobs"]["content"]
        == ENTRIES
    )


def whole(ask: Ask, events: list[Semantic], tokenizer: TokenizerFacts) -> Any:
    """The JSON value of the non-streaming answer of a server with this tokenizer."""
    start = opening(msgspec.structs.replace(ask, stream=False))
    [answer] = fold(ENCODER.start(msgspec.structs.replace(start, tokenizer=tokenizer)), events)
    assert isinstance(answer, ChatCompletion)
    return json.loads(answer.wire())


def test_no_entry_comes_after_the_finish() -> None:
    """A stop string may end a choice in a step that has more tokens, and steps may still follow."""
    ask = Ask(stream=True, logprobs=True, return_token_ids=True)
    events: list[Semantic] = [
        Start(0, 3), Tokens(0, (5, 7), LOGPROBS), Content(0, "a", (0, 1)), Finish(0, "stop", "b"),
        Tokens(0, (5,), LOGPROBS[:1]), Dropped(0, "b", (1, 2)), Usage(3, 2), End(),
    ]  # fmt: skip
    choices = choices_of(frames_of(ask, events))
    assert choices[-1]["finish_reason"] == "stop"
    assert sum(len(choice["logprobs"]["content"]) for choice in choices if choice["logprobs"]) == 2
    assert [number for choice in choices for number in choice.get("token_ids", [])] == [5, 7]


def test_a_step_without_ids_has_no_carrier() -> None:
    ask = Ask(stream=True, logprobs=True, return_token_ids=True)
    assert len(choices_of(frames_of(ask, [Start(0, 1), Tokens(0, ()), Content(0, "a", (0, 1))]))) == 2


# --- usage ----------------------------------------------------------------------------------------------------------

TWO: list[Semantic] = [
    Start(0, 9), Start(1, 9), Tokens(0, (1,)), Content(0, "a", (0, 1)), Tokens(1, (1, 2)), Content(1, "b", (0, 1)),
    Tokens(1, (3,)), Finish(1, "eos"), Tokens(0, (4,)), Content(0, "c", (1, 2)), Finish(0, "length"),
    Usage(9, 5, 4, 2), End(),
]  # fmt: skip
FINAL = {
    "prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14,
    "completion_tokens_details": {"reasoning_tokens": 2}, "prompt_tokens_details": {"cached_tokens": 4},
}  # fmt: skip


def test_usage_chunk_is_last_and_the_others_carry_null() -> None:
    *chunks, usage, done = payloads(frames_of(Ask(stream=True, n=2, include_usage=True), TWO))
    assert done == "[DONE]"
    assert (usage["choices"], usage["usage"]) == ([], FINAL)
    assert all(chunk["usage"] is None and chunk["choices"] for chunk in chunks)


def test_no_usage_key_unless_asked_for() -> None:
    *chunks, _done = payloads(frames_of(Ask(stream=True, n=2), TWO))
    assert all("usage" not in chunk and chunk["choices"] for chunk in chunks)


def test_continuous_usage() -> None:
    ask = Ask(stream=True, n=2, include_usage=True, continuous_usage=True)
    *chunks, usage, _done = payloads(frames_of(ask, TWO))
    assert usage["usage"] == FINAL
    seen: dict[int, list[int]] = {0: [], 1: []}
    for chunk in chunks:
        counts = chunk["usage"]
        assert counts["prompt_tokens"] == 9
        assert counts["total_tokens"] == 9 + counts["completion_tokens"]
        seen[chunk["choices"][0]["index"]].append(counts["completion_tokens"])
    assert seen == {0: [0, 1, 2, 2], 1: [0, 2, 3]}
    assert sum(counts[-1] for counts in seen.values()) == FINAL["completion_tokens"]


def test_continuous_usage_needs_include_usage() -> None:
    *chunks, _done = payloads(frames_of(Ask(stream=True, n=2, continuous_usage=True), TWO))
    assert all("usage" not in chunk for chunk in chunks)


# --- metrics --------------------------------------------------------------------------------------------------------

TIMED: list[Semantic] = [
    Start(0, 9), Tokens(0, (1,)), Content(0, "a", (0, 1)), Finish(0, "eos"), TimingInput("queue", 1_500_000),
    TimingInput("ttft", 20_000_000), TimingInput("max_gap", 1), TimingInput("mean_gap", 10_538_667),
    TimingInput("other", 5), Usage(9, 1), End(),
]  # fmt: skip
METRICS = {
    "queue_time_ms": 1.5, "time_to_first_token_ms": 20.0, "mean_itl_ms": 10.538667, "max_itl_ms": 0.000001,
}  # fmt: skip


def test_metrics_go_with_the_usage() -> None:
    *chunks, last, done = payloads(frames_of(Ask(stream=True, include_usage=True, metrics=True), TIMED))
    assert done == "[DONE]"
    assert (last["choices"], last["metrics"]) == ([], METRICS)
    assert not any("metrics" in chunk for chunk in chunks)
    assert answer_of(Ask(metrics=True), TIMED)["metrics"] == METRICS


def test_what_was_not_measured_is_absent() -> None:
    ask = Ask(stream=True, include_usage=True, metrics=True)
    few = [event for event in TIMED if not isinstance(event, TimingInput) or event.name == "ttft"]
    assert payloads(frames_of(ask, few))[-2]["metrics"] == {"time_to_first_token_ms": 20.0}
    none = [event for event in TIMED if not isinstance(event, TimingInput)]
    assert "metrics" not in payloads(frames_of(ask, none))[-2]


def test_metrics_only_if_asked_for() -> None:
    assert "metrics" not in payloads(frames_of(Ask(stream=True, include_usage=True), TIMED))[-2]
    assert "metrics" not in answer_of(Ask(), TIMED)


def test_an_error_tells_no_metrics() -> None:
    failed = [*TIMED[:-2], Failure("engine", "lost"), End()]
    assert "metrics" not in str(payloads(frames_of(Ask(stream=True, include_usage=True, metrics=True), failed)))
