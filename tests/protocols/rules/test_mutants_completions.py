"""Faults of completions streams, by rule: each is told by its rule, and the stream without it is clean."""

from __future__ import annotations

import pytest

from tests.protocols.rules.richer import Edit, at, both, measured, moved, out, put, said, twice
from tests.support.wire import ABSENT, Stream, breaks, golden

USAGE = {"prompt_tokens": 5, "completion_tokens": 6, "total_tokens": 11}
FOUR = Stream(
    "completions",
    [
        said(2, "c", usage=None), said(0, "a", usage=None), said(1, "b", usage=None), said(0, "A", usage=None),
        said(3, "d", "length", usage=None), said(0, "", "stop", usage=None), said(1, "", "stop", usage=None),
        said(2, "!", "length", usage=None), {"choices": [], "usage": USAGE}, "[DONE]",
    ],
    {"request": {"stream": True, "prompt": ["x", "y"], "n": 2, "stream_options": {"include_usage": True}}},
)  # fmt: skip
"""Two prompts with two choices each, out of order."""

IDS = Stream(
    "completions", [said(0, "a"), said(0, "b", "stop"), "[DONE]"], {"request": {"stream": True, "prompt": [7, 8, 9]}}
)
"""One prompt, of token ids."""

MANY_IDS = IDS.asking(prompt=[[7, 8], [9]]).edited(put(1, said(1, "c", "stop")))
"""Two prompts of token ids."""

ECHO = Stream(
    "completions",
    [
        said(1, "Red", logprobs=measured(["Red"], [None], [0])),
        said(0, "The sky", logprobs=measured(["The", " sky"], [None, -2.0], [0, 3])),
        said(0, " is", logprobs=measured([" is"], [-0.5], [7])),
        said(1, " wine", logprobs=measured([" wi", "ne"], [-0.5, -9999.0], [3, 6])),
        said(0, "", "length"), said(1, "", "stop"), "[DONE]",
    ],
    {"request": {"stream": True, "prompt": ["The sky", "Red"], "echo": True, "logprobs": 0}},
)  # fmt: skip

SCORED = Stream(
    "completions",
    [
        said(0, "", logprobs=measured([" i"], [-0.5], [-1])), said(0, " is", logprobs=measured(["s"], [-0.1], [-1])),
        said(0, "", "stop"), "[DONE]",
    ],
    {"request": {"stream": True, "prompt": "The sky", "logprobs": 1}},
)  # fmt: skip
"""Offsets that nobody counts."""

FAR = SCORED.edited(
    both(at(0, "choices", 0, "logprobs", "text_offset", [7]), at(1, "choices", 0, "logprobs", "text_offset", [9]))
)
"""Offsets from the start of the prompt."""

LOST = '{"error":{"message":"lost","type":"server_error","param":null,"code":"engine_error"}}'
FAILED = FOUR.edited(lambda ev: [*ev[:5], LOST, "[DONE]"])
JUST_ECHO = Stream(
    "completions", [said(0, "The sky", "length"), "[DONE]"],
    {"request": {"stream": True, "prompt": "The sky", "echo": True, "max_tokens": 0}},
)  # fmt: skip

BASES = {
    "FOUR": FOUR, "IDS": IDS, "MANY_IDS": MANY_IDS, "ECHO": ECHO, "SCORED": SCORED, "FAR": FAR, "FAILED": FAILED,
    "JUST_ECHO": JUST_ECHO,
}  # fmt: skip

LOGPROBS = ("choices", 0, "logprobs")

MUTANTS: list[tuple[int, str, Stream, Edit]] = [
    (80, "created changes on the usage chunk", FOUR, at(8, "created", 1760000001)),
    (80, "model changes in the middle", FOUR, at(3, "model", "demo-2")),
    (80, "object as in chat", FOUR, at(7, "object", "chat.completion.chunk")),
    (81, "a fifth choice of two prompts by two", FOUR, at(3, "choices", 0, "index", 4)),
    (81, "the index is text", FOUR, at(0, "choices", 0, "index", "2")),
    (81, "no index", FOUR, at(1, "choices", 0, "index", ABSENT)),
    (81, "as many choices as the prompt has ids", IDS, at(0, "choices", 0, "index", 1)),
    (81, "below the first", MANY_IDS, at(0, "choices", 0, "index", -1)),
    (82, "no text beside the finish", FOUR, at(5, "choices", 0, "text", ABSENT)),
    (82, "text in a list", FOUR, at(1, "choices", 0, "text", ["b"])),
    (83, "finish of a chat", FOUR, at(6, "choices", 0, "finish_reason", "tool_calls")),
    (83, "finish before the last chunk", FOUR, at(1, "choices", 0, "finish_reason", "stop")),
    (83, "finish is empty text", FOUR, at(0, "choices", 0, "finish_reason", "")),
    (84, "echo of the other prompt", ECHO, at(0, "choices", 0, "text", "The sky")),
    (84, "echo without its end", ECHO, at(1, "choices", 0, "text", "The sk")),
    (84, "echo behind the completion", ECHO, moved(1, 2)),
    (85, "logprob above nothing", ECHO, at(2, *LOGPROBS, "token_logprobs", [0.5])),
    (85, "logprob below what stands for nothing", ECHO, at(3, *LOGPROBS, "token_logprobs", [-0.5, -10000.0])),
    (85, "second echoed token without logprob", ECHO, at(1, *LOGPROBS, "token_logprobs", [None, None])),
    (85, "generated token without logprob", SCORED, at(0, *LOGPROBS, "token_logprobs", [None])),
    (85, "one array is missing", SCORED, at(1, *LOGPROBS, "tokens", ABSENT)),
    (86, "offset falls inside a chunk", ECHO, at(3, *LOGPROBS, "text_offset", [6, 3])),
    (86, "offset starts again with the chunk", ECHO, at(2, *LOGPROBS, "text_offset", [0])),
    (86, "offset is lost on the way", FAR, at(1, *LOGPROBS, "text_offset", [-1])),
    (87, "usage before a finish", FOUR, moved(8, 7)),
    (87, "usage twice", FOUR, twice(8)),
    (87, "usage beside the last text, no chunk of its own", FOUR, both(out(8), at(7, "usage", USAGE))),
    (88, "the end twice", FOUR, put(10, "[DONE]")),
    (88, "the end before the usage chunk", FOUR, moved(9, 8)),
    (88, "no end after an error", FAILED, out(6)),
    (89, "a message in a choice", FOUR, at(0, "choices", 0, "message", {"role": "assistant", "content": "c"})),
    (89, "a role in a choice", FOUR, at(1, "choices", 0, "role", "assistant")),
    (89, "calls in a choice", FOUR, at(6, "choices", 0, "tool_calls", [])),
]


@pytest.mark.parametrize("name", BASES)
def test_the_streams_are_clean(name: str) -> None:
    assert not BASES[name].report().violations


@pytest.mark.parametrize("mutant", MUTANTS, ids=[f"{rule}-{name}" for rule, name, *_ in MUTANTS])
def test_fault(mutant: tuple[int, str, Stream, Edit]) -> None:
    rule, _, base, edit = mutant
    breaks(rule, base, base.edited(edit))


def test_every_rule_has_two() -> None:
    rules = [rule for rule, *_ in MUTANTS]
    assert all(rules.count(rule) >= 2 for rule in range(80, 90))


RIGHT: list[tuple[str, Stream]] = [
    ("echo of a prompt of ids", IDS.asking(echo=True).edited(at(0, "choices", 0, "text", "The sky"))),
    ("echo that the model goes on to repeat", ECHO.edited(at(2, "choices", 0, "text", "The sky"))),
    ("fewer alternatives than were asked for", SCORED.asking(logprobs=5)),
    ("four choices of one prompt", FOUR.asking(n=4, prompt="x")),
    ("an extension of a choice", FOUR.edited(at(5, "choices", 0, "stop_reason", 2))),
    ("ids in a choice", IDS.asking(return_token_ids=True).edited(
        both(at(0, "choices", 0, "prompt_token_ids", [7, 8, 9]), at(0, "choices", 0, "token_ids", [1]))
    )),
    ("a filter", FOUR.edited(at(5, "choices", 0, "finish_reason", "content_filter"))),
]  # fmt: skip


@pytest.mark.parametrize(("name", "stream"), RIGHT, ids=[name for name, _ in RIGHT])
def test_nothing_is_wrong_with_it(name: str, stream: Stream) -> None:
    report = stream.known(own=False).report()
    assert not report.errors


def test_an_unknown_finish_of_somebody_else_is_a_warning() -> None:
    report = golden("G07").edited(at(2, "choices", 0, "finish_reason", "abort")).known(own=False).report()
    assert [(one.rule, one.severity) for one in report.violations] == [("INV-083", "warning")]
