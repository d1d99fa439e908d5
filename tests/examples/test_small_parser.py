"""examples/small_parser.py: equal to ``plain`` where there is no reasoning, and what a parser has to be."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from replay import Parser, Replayer, resolve, traces
from stages.events import (
    AbortInput,
    CallEnd,
    Content,
    Dropped,
    ErrorInput,
    Fault,
    FaultCode,
    FinishInput,
    Input,
    Marker,
    PromptInput,
    Reasoning,
    Tick,
    TimingInput,
    TokensInput,
    UsageInput,
)
from stages.message import collect
from stages.opening import Opening
from stages.stage import fold
from store.api import Trace
from tests.support.replay import aborted, opening, record, text_steps, tokens, whole
from tests.support.tree import ROOT

SMALL: Parser = resolve(f"{ROOT / 'examples/small_parser.py'}:Parser")
TEXT = "Two a day, été 🌙.\nNo more.<|im_end|>"
BAD: list[Input] = [
    PromptInput((1,), "", 1),
    TokensInput(0, (1, 2), (b"a\xff", b"b\xe2\x82"), ""),
    FinishInput(0, "length"),
]
CASES: list[tuple[dict[str, Any], list[Input]]] = [
    ({}, whole(tokens(TEXT))),
    ({"stream": False}, whole(tokens(TEXT))),
    ({"logprobs": True}, whole(tokens(TEXT, logprobs=True))),
    ({"return_token_ids": True, "include_usage": True}, whole(tokens(TEXT))),
    ({"n": 2}, whole(tokens(TEXT), tokens("The other.<|im_end|>", 1))),
    ({}, whole(text_steps("Two a day, été 🌙."))),
    ({}, whole(tokens("Behind the end<|im_end|> nothing is said.<|im_start|>"))),
    ({"keep_special": True}, whole(tokens("<|im_start|>kept<|im_end|>"))),
    ({"ignore_eos": True}, whole(tokens("on<|im_end|> and on"))),
    ({"stop": ("day",)}, whole(tokens(TEXT))),
    ({}, aborted(whole(tokens(TEXT)), 4)),
    ({}, [ErrorInput("too_large", "the prompt is too long", "context_length_exceeded", "messages")]),
    ({}, [PromptInput((1,), "", 1), *tokens("Two")[:1], TimingInput("ttft", 3), Tick(), ErrorInput("engine", "no")]),
]


@pytest.mark.parametrize(("ask", "inputs"), CASES, ids=range(len(CASES)))
def test_on_plain_text_it_is_plain_to_the_byte(ask: dict[str, Any], inputs: list[Input]) -> None:
    session = record(opening(parser="plain", **ask), inputs)
    result = Replayer(SMALL, splits=("recorded", "one", "token", "rand:1:5"), cut=True).replay(session)
    assert (result.verdict, result.marks) == ("same", ()), result.first


@pytest.mark.parametrize("by", ["client", "timeout", "cancel", "shutdown"])
def test_every_kind_of_abort(by: Any) -> None:
    inputs = [*whole(tokens(TEXT))[:3], AbortInput(by)]
    assert Replayer(SMALL).replay(record(opening(parser="plain"), inputs)).verdict == "same"


def _events(inputs: list[Input], **ask: Any) -> list[Any]:
    """What comes out of a session."""
    return list(fold(SMALL.start(opening(**ask)), inputs))


def _said(session: Trace) -> str:
    steps = [event for event in session.events("input", "engine") if isinstance(event, TokensInput)]
    return "".join(b"".join(event.pieces).decode(errors="replace") or event.text for event in steps)


def test_on_every_golden_trace_without_reasoning_it_says_what_plain_says() -> None:
    replayer = Replayer(SMALL, baseline="plain", layer="message", splits=("recorded", "one", "token"))
    sessions = [each for each in traces(ROOT / "tests/traces") if "think>" not in _said(each)]
    sessions = [each for each in sessions if "think>" not in str(each.events("input", "engine")[0])]
    assert len(sessions) > 50
    worse = {each.session for each in replayer.replay_many(sessions) if each.verdict not in ("same", "rechunked")}
    assert worse == set()


def test_reasoning_and_where_it_stands() -> None:
    events = _events(whole(tokens("<think>Which 潮?</think>Two.<|im_end|>", size=100)))
    assert [event for event in events if hasattr(event, "src")] == [
        Marker(0, "<think>", (0, 7)),
        Reasoning(0, "Which 潮?", (7, 17)),
        Marker(0, "</think>", (17, 25)),
        Content(0, "Two.", (25, 29)),
        Dropped(0, "<|im_end|>", (29, 39)),
    ]
    # The step of the opener and that of the text end inside reasoning.
    assert [event.reasoning for event in events if type(event).__name__ == "Usage"] == [2]


def test_reasoning_that_the_prompt_opened() -> None:
    prompt, *rest = whole(tokens("Which?</think>Two."))
    assert isinstance(prompt, PromptInput)
    prompt = msgspec.structs.replace(prompt, tail="<|im_start|>assistant\n<think>\n")
    [message] = collect(_events([prompt, *rest]))
    assert (message.reasoning, message.content) == ("Which?", "Two.")


def test_bytes_that_are_no_text_are_told() -> None:
    events = _events(BAD)
    assert [event for event in events if hasattr(event, "src")] == [
        Fault(0, FaultCode.INVALID_UTF8, (1, 2)),
        Content(0, "a\ufffdb", (0, 3)),
        Fault(0, FaultCode.INVALID_UTF8, (3, 5)),
        Content(0, "\ufffd", (3, 5)),
    ]


def _tangled(dice: random.Random) -> list[Input]:
    """Inputs in no order, of choices that there are and are not."""
    pieces = (b"", b"a", b"\xe2\x82", b"\xac", b"\xff", b"<think>", "潮".encode())
    made: list[Input] = []
    for _ in range(dice.randrange(1, 12)):
        choice = dice.randrange(4)
        ids = tuple(dice.choice((1, 302, 303, 310, 311)) for _ in range(dice.randrange(4)))
        some = tuple(dice.choice(pieces) for _ in ids)
        made.append(
            dice.choice(
                (
                    PromptInput((1,), dice.choice(("", "<think>\n")), 1),
                    TokensInput(choice, ids, some, ""),
                    TokensInput(choice, ids, (), dice.choice(("", "x", "\ud83d", "潮"))),
                    FinishInput(choice, "length"),
                    Tick(),
                )
            )
        )
    return [*made, dice.choice((UsageInput(1, 2), AbortInput("client"), ErrorInput("engine", "no"))), *made]


def _owned(events: list[Any], choice: int) -> list[tuple[int, int]]:
    """The ranges of the events that own bytes."""
    return [
        event.src
        for event in events
        if hasattr(event, "src") and not isinstance(event, Fault | CallEnd) and event.choice == choice
    ]


def test_it_raises_on_nothing_and_goes_on_from_any_snapshot() -> None:
    dice = random.Random(7)
    opened: Opening = opening(n=3)
    for _ in range(300):
        inputs = _tangled(dice)
        whole_run = _events(inputs, n=3)
        at = dice.randrange(len(inputs))
        machine = SMALL.start(opened)
        before = fold(machine, inputs[:at])
        kept: Any = machine.snapshot()
        kind: Any = kept.__class__
        copied: Any = msgspec.msgpack.decode(msgspec.msgpack.encode(kept), type=kind)
        assert [*before, *fold(machine, inputs[at:])] == whole_run
        assert [*before, *fold(SMALL.resume(opened, kept), inputs[at:])] == whole_run
        assert [*before, *fold(SMALL.resume(opened, copied), inputs[at:])] == whole_run
        for choice in range(3):
            ranges = _owned(whole_run, choice)
            assert [start for start, _ in ranges] == [0, *(end for _, end in ranges)][: len(ranges)]
