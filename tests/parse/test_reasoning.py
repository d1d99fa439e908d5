"""Reasoning in think tags: where output starts, white space, edges; examples under every split."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from stages.events import Content, Fault, FinishReason, Reasoning, TokensInput, Usage
from tests.support.parse import (
    PROMPT,
    THINKING,
    check_partition,
    check_stream,
    merged,
    message,
    opening,
    semantic,
    session,
    splits,
    texts,
    tokens,
)

OFF = PROMPT + "<think>\n\n</think>\n\n"


class Case(NamedTuple):
    """An output and what it means."""

    text: str
    reasoning: str | None
    content: str | None
    tail: str = PROMPT
    faults: tuple[str, ...] = ()
    finish: FinishReason = "eos"


CUT = ("unclosed_reasoning",)
STRAY = ("stray_marker",)

CASES = {
    # worked examples
    "prompt opened it": Case("Count the tides.\n</think>\n\nTwo a day.", "Count the tides.", "Two a day.", THINKING),
    "model opens it": Case("<think>\nEasy.\n</think>\n\nYes", "Easy.", "Yes"),
    "tag named in content": Case("Yes, I use a <think> tag.", None, "Yes, I use a <think> tag.", faults=STRAY),
    "cut": Case("still musing about sal", "still musing about sal", None, THINKING, CUT, "length"),
    "empty block": Case("<think>\n\n</think>\n\nHi", None, "Hi"),
    "a leading space of content stays": Case("fog</think> clear", "fog", " clear", THINKING),
    # edges
    "no opener": Case("Just an answer", None, "Just an answer"),
    "off, and yet an opener first": Case("<think>\nhm\n</think>\n\nok", "hm", "ok", OFF),
    "off, a tag in the text": Case("BEGIN `<think>` END", None, "BEGIN `<think>` END", OFF, STRAY),
    "off, plain": Case("\nanswer", None, "\nanswer", OFF),
    "first closer wins": Case("a `</think>` b", "a `", "` b", THINKING),
    "second closer at once": Case("a</think>\n</think>\n\nb", "a", "b", THINKING, STRAY),
    "second closer behind spaces": Case("a</think> \n </think>b", "a", "b", THINKING, STRAY),
    "second closer later is text": Case("a</think>b</think>c", "a", "b</think>c", THINKING, STRAY),
    "closer before any content": Case("</think>\nhi", None, "hi", PROMPT, STRAY),
    "closer before any content, in white space": Case(" \n</think>\nhi", None, "hi", PROMPT, STRAY),
    "opener twice": Case("<think><think>\na</think>b", "a", "b"),
    "opener repeated though the prompt had it": Case("<think>\na</think>b", "a", "b", THINKING),
    "opener again, in white space": Case(" \n<think> \n <think>\na</think>b", "a", "b"),
    "opener later in reasoning is text": Case("a <think> b</think>c", "a <think> b", "c", THINKING, STRAY),
    "opener in content is text": Case("a</think>b <think> c", "a", "b <think> c", THINKING, STRAY),
    "opener right behind a block is text": Case("a</think>\n<think>\nb", "a", "<think>\nb", THINKING, STRAY),
    "partial closer at the end": Case("foo</thi", "foo</thi", None, THINKING, CUT, "length"),
    "partial opener at the end": Case("<thi", None, "<thi"),
    "partial opener at the end behind white space": Case("\n<thi", None, "\n<thi"),
    "white space before a mere tag": Case("\n\n<thinking>", None, "\n\n<thinking>"),
    "one newline behind the opener": Case("<think>\n\n\na</think>b", "\n\na", "b"),
    "run of newlines before the closer": Case("<think>a\n\n\n</think>b", "a", "b"),
    "newlines inside": Case("<think>\na\n\nb \n</think>c", "a\n\nb ", "c"),
    "run of newlines behind the closer": Case("<think>a</think>\n\n\n\nb\n", "a", "b\n"),
    "blank block": Case("<think> \n\t</think>b", None, "b"),
    "block, no content": Case("<think>a</think>\n\n", "a", None),
    "white space only, cut": Case("\n\n", "\n", None, THINKING, CUT, "length"),
    "newlines at the cut": Case("a\n\n", "a\n\n", None, THINKING, CUT, "length"),
    "nothing": Case("", None, None),
    "nothing, in reasoning": Case("", None, None, THINKING, CUT),
    "closed by the prompt without its newlines": Case("\n\nhi", None, "hi", PROMPT + "<think>\n\n</think>"),
    "only a closer in the prompt": Case("hi", None, "hi", PROMPT + "</think>\n"),
    "reasoning begun in the prompt": Case("\nand more</think>b", "\nand more", "b", THINKING + "So far"),
    "older turns do not count": Case("hi", None, "hi", f"{THINKING}old, never closed<|im_end|>\n{PROMPT}"),
    "closed in an older turn only": Case(
        "a</think>b", "a", "b", f"{PROMPT}<think>x</think>y<|im_end|>\n{THINKING}"
    ),
    "no turn opener in the tail": Case("a</think>b", "a", "b", "<think>\n"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_case(case: Case) -> None:
    first = None
    for split, steps in splits(case.text):
        inputs = session(steps, tail=case.tail, finish=case.finish)
        events = semantic(opening(), inputs)
        check_stream(events)
        check_partition(inputs, events)
        got = message(events)
        assert (got.reasoning, got.content, got.calls, got.faults) == (
            case.reasoning,
            case.content,
            [],
            list(case.faults),
        ), split
        first = first or merged(events)
        assert merged(events) == first, split


def test_the_issue_of_a_closer_over_three_deltas() -> None:
    got = message(semantic(opening(), session(texts(["fog</th", "ink", "> cl", "ear"]), tail=THINKING)))
    assert (got.reasoning, got.content) == ("fog", " clear")


def test_an_empty_block_gives_no_reasoning_event() -> None:
    events = semantic(opening(), session(tokens("<think>\n\n</think>\n\nHi")))
    assert not [event for event in events if isinstance(event, Reasoning)]


def test_a_character_goes_out_with_its_own_step() -> None:
    """Only what may be a marker or its white space waits."""
    pieces = ["a", " ", "<", "b", "\n", "c", "</", "think", ">", "d", "\n", "e", "<", "f"]
    seen: list[list[str]] = []
    machine_inputs = session(texts(pieces), tail=THINKING)
    opened = opening()
    done = 0
    for i in range(len(pieces)):
        events = semantic(opened, machine_inputs[: i + 2])
        said = [event.text for event in events if isinstance(event, Content | Reasoning)]
        seen.append(said[done:])
        done = len(said)
    assert seen == [
        ["a"], [" "], [], ["<b"], [], ["\nc"], [], [], [], ["d"], [], ["\ne"], [], ["<f"],
    ]  # fmt: skip


def test_plain_holds_nothing() -> None:
    pieces = ["\n", "<", "think>", "x\n", "<tool_call>"]
    events = semantic(opening("plain"), session([TokensInput(0, (7,), (piece.encode(),), "") for piece in pieces]))
    assert [event.text for event in events if isinstance(event, Content)] == pieces


def test_without_tools_content_holds_no_newline() -> None:
    pieces = ["a", "\n", "<", "tool_call>"]
    events = semantic(opening(tools=()), session([TokensInput(0, (7,), (piece.encode(),), "") for piece in pieces]))
    assert [event.text for event in events if isinstance(event, Content)] == pieces


def test_reasoning_tokens_are_those_of_steps_that_end_inside_reasoning() -> None:
    steps = tokens("<think>abcdefgh</think>xy", size=2)  # opener, 4 of reasoning, closer, 1
    assert [len(step.ids) for step in steps] == [1] * 7
    events = semantic(opening(), session(steps))
    assert [event.reasoning for event in events if isinstance(event, Usage)] == [5]


def test_usage_is_summed_over_choices() -> None:
    steps = [*tokens("<think>abcd", size=2), *tokens("<think>abcdef", size=2, choice=1)]
    events = semantic(opening(n=2), session(steps, n=2))
    assert [event.reasoning for event in events if isinstance(event, Usage)] == [3 + 4]


def test_the_fault_tells_where_reasoning_was_left_open() -> None:
    events = semantic(opening(), session(tokens("abc"), tail=THINKING))
    assert [event.src for event in events if isinstance(event, Fault)] == [(3, 3)]
