"""Oracles: what no right parser does. Each kind of breach at its step; none on what the real parsers make of valid
output; linear."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from replay.derive import derive
from replay.oracles import breaches, marks
from replay.result import Breach, Finding
from replay.verdict import MARKS
from stages.events import (
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    End,
    Fault,
    FaultCode,
    Finish,
    FinishInput,
    Input,
    Marker,
    PromptInput,
    Reasoning,
    Refusal,
    Semantic,
    Start,
    Tokens,
    TokensInput,
    UsageInput,
)
from stages.message import Message, ToolCall, collect
from stages.opening import Opening, TokenizerFacts
from stages.stage import fold_causes
from tests.support.cpu import seconds
from tests.support.format_checks import POLICIES, generated, splits, text_splits
from tests.support.generate import MODULES, families
from tests.support.parse import session
from tests.support.replay import ADDED, SAID, SPECIAL, Raising, opening, text_steps, tokens, whole

START, FIN = Start(0, 3), Finish(0, "eos")
BEGIN, END = CallStart(0, 0, "call_1", "tide", (0, 4)), CallEnd(0, 0, True)
OBJECT = CallArguments(0, 0, "{}", (4, 6))


def found(events: Sequence[Any], opened: Opening | None = None, inputs: Sequence[Input] = ()) -> list[Breach]:
    """The breaches of these events, the step of each being its seq."""
    return list(breaches(opened or opening(), inputs, events, range(len(events)), collect(events)))


def told(events: Sequence[Any]) -> list[tuple[str, int]]:
    return [(breach.detail, breach.step) for breach in found(events) if breach.oracle == "retracted"]


# --- retracted


def test_a_right_stream() -> None:
    second = CallStart(0, 1, "call_2", "moon", (9, 13))
    events = [
        START, Start(1, 3), Tokens(0, (1,)), Reasoning(0, "a", (0, 1)), Content(1, "b", (0, 1)), BEGIN, OBJECT, END,
        second, CallArguments(0, 1, "{}", (0, 0)), CallEnd(0, 1, True), FIN, Refusal(1, "no", (1, 3)),
        Finish(1, "length"), Fault(0, FaultCode.UNKNOWN_TOOL, (0, 0)), End(),
    ]  # fmt: skip
    assert found(events) == []


@pytest.mark.parametrize(
    ("events", "detail", "step"),
    [
        ([START, BEGIN, END, BEGIN, FIN], "call 0 begins twice", 3),
        ([START, CallStart(0, 1, "c", "tide", (0, 4)), FIN], "call 1 begins, and call 0 has not", 1),
        ([START, OBJECT, FIN], "arguments of call 0, which has not begun", 1),
        ([START, BEGIN, OBJECT, END, OBJECT, FIN], "arguments of call 0, which has ended", 4),
        ([START, END, FIN], "the end of call 0, which has not begun", 1),
        ([START, BEGIN, OBJECT, END, END, FIN], "the end of call 0, which has ended", 4),
        ([START, FIN, Content(0, "x", (0, 1))], "text (content) after the choice's finish", 2),
        ([START, FIN, Reasoning(0, "x", (0, 1))], "text (reasoning) after the choice's finish", 2),
        ([START, BEGIN, FIN, OBJECT], "arguments of call 0 after the choice's finish", 3),
        ([START, FIN, BEGIN], "call 0 after the choice's finish", 2),
        ([START, FIN, FIN], "the choice finishes twice", 2),
        ([START, End(), Content(0, "x", (0, 1))], "text (content) after the choice's finish", 2),
        ([Content(0, "x", (0, 1)), START, FIN], "text (content) of a choice that was not started", 0),
        ([START, Refusal(1, "x", (0, 1)), FIN], "text (refusal) of a choice that was not started", 1),
        ([Finish(0, "eos")], "the finish of a choice that was not started", 0),
        ([START, START, FIN], "the choice is started twice", 1),
        ([START, CallStart(0, 0, "c", "", (0, 0)), END, FIN], "call 0 has no name", 1),
        ([START, CallStart(0, 0, "", "tide", (0, 0)), END, FIN], "call 0 has no id", 1),
    ],
)
def test_what_contradicts_what_was_sent(events: list[Semantic], detail: str, step: int) -> None:
    assert told(events) == [(detail, step)]


def test_a_kind_is_told_once_a_choice() -> None:
    events = [START, Start(1, 3), FIN, Finish(1, "eos"), *[Content(i % 2, "x", (0, 1)) for i in range(1000)]]
    assert told(events) == [
        ("text (content) after the choice's finish", 4),
        ("text (content) after the choice's finish", 5),
    ]


def test_a_choice_that_goes_on_after_another_finished() -> None:
    events = [START, Start(1, 3), Content(0, "a", (0, 1)), FIN, Content(1, "b", (0, 1)), Content(0, "c", (1, 2))]
    assert told(events) == [("text (content) after the choice's finish", 5)]


# --- arguments


OBJECTS = (
    "{}", '{"a": 1}', ' {"a": [1, {"b": null}]} ', '{"n": 1e400}', '{"n": ' + "9" * 400 + "}", '{"s": "\\ud83d"}',
    '{"a": 1, "a": 2}', '{"a": ' + "[" * 150 + "]" * 150 + "}",
)  # fmt: skip


@pytest.mark.parametrize("text", OBJECTS)
def test_arguments_that_are_an_object(text: str) -> None:
    events = [START, BEGIN, CallArguments(0, 0, text, (0, 1)), END, FIN]
    assert found(events) == []


@pytest.mark.parametrize(
    "text", ["", "{", '{"a": 1', "[1]", "null", '"x"', "{} {}", "{'a': 1}", '{"a": 1,}', "{}<end>"]
)
def test_arguments_that_are_none(text: str) -> None:
    said = [CallArguments(0, 0, text, (0, 1))] if text else []
    events = [START, BEGIN, *said, END, FIN]
    assert [(b.oracle, b.choice, b.step) for b in found(events)] == [("arguments", 0, events.index(END))]


def test_arguments_of_a_call_that_may_not_be_executed_are_free() -> None:
    assert found([START, BEGIN, CallArguments(0, 0, '{"a', (0, 1)), CallEnd(0, 0, False), FIN]) == []
    assert found([START, BEGIN, CallArguments(0, 0, '{"a', (0, 1)), Finish(0, "length")]) == []


def test_arguments_of_a_choice_that_finished_for_its_calls() -> None:
    # Another engine's parser tells no ends of calls.
    events = [START, BEGIN, CallArguments(0, 0, '{"a', (0, 1)), FIN]
    messages = [Message(0, tool_calls=(ToolCall("c", "tide", '{"a', False),), finish_reason="tool_calls")]
    got = breaches(opening(), (), events, range(4), messages)
    assert [(breach.oracle, breach.step) for breach in got] == [("arguments", 2)]


def test_the_second_call_is_the_one_that_is_wrong() -> None:
    events = [
        START, BEGIN, OBJECT, END, CallStart(0, 1, "c", "moon", (0, 0)), CallArguments(0, 1, "[]", (0, 0)),
        CallEnd(0, 1, True), FIN,
    ]  # fmt: skip
    assert [(b.detail.partition(":")[0], b.step) for b in found(events)] == [
        ("arguments of call 1 are no JSON object", 6)
    ]


# --- leaked


def step(*words: str) -> TokensInput:
    """A step of tokens: markers by their ids; letters of a marker are spelled where a ``~`` stands in them."""
    known = {**ADDED, **SPECIAL}
    plain = [word.replace("~", "") for word in words]
    ids = tuple(known.get(word, 1000 + len(word)) for word in words)
    return TokensInput(0, ids, tuple(word.encode() for word in plain), "")


def written(*steps: TokensInput) -> list[Input]:
    return [PromptInput((1,), "", 1), *steps, FinishInput(0, "eos"), UsageInput(1, 1)]


def says(kind: type, text: str, inputs: list[Input], **asks: Any) -> list[tuple[str, int]]:
    """What is leaked where the message of these inputs is this text, all in the last step."""
    made = (
        [BEGIN, CallArguments(0, 0, text, (0, 9)), CallEnd(0, 0, False)]
        if kind is CallArguments
        else [kind(0, text, (0, 9))]
    )
    events = [START, *made, FIN]
    steps = [0, *[len(inputs) - 3] * len(made), len(inputs) - 2]
    got = breaches(opening(**asks), inputs, events, steps, collect(events))
    return [(breach.detail, breach.step) for breach in got if breach.oracle == "leaked"]


@pytest.mark.parametrize(
    ("kind", "field"),
    [(Content, "content"), (Reasoning, "reasoning"), (Refusal, "refusal"), (CallArguments, "arguments")],
)
def test_a_special_token_in_a_text(kind: type, field: str) -> None:
    inputs = written(step("Hi", "<|im_start|>", "you"))
    assert says(kind, "Hi<|im_start|>you", inputs) == [(f"the marker '<|im_start|>' in the {field}", 1)]
    assert says(kind, "Hiyou", inputs) == []


def test_letters_are_no_markup() -> None:
    inputs = written(step("Hi", "<|im_~start|>", "you", "<|im_start|>"))
    assert says(Content, "Hi<|im_start|>you", inputs) == []
    # Spelled once, said twice: one of them is the token.
    assert says(Content, "Hi<|im_start|>you<|im_start|>", inputs) == [("the marker '<|im_start|>' in the content", 1)]
    assert says(Content, "Hi<|im_start|>", written(step("Hi", "<|im", "_start|>"))) == []


def test_a_marker_cut_over_several_events_is_told_at_the_token() -> None:
    inputs = written(step("Hi"), step("<|im_start|>"), step("you"))
    events = [START, Content(0, "Hi<|im", (0, 2)), Content(0, "_start|>you", (2, 5)), FIN]
    got = breaches(opening(), inputs, events, [0, 1, 3, 4], collect(events))
    assert [(breach.oracle, breach.step) for breach in got] == [("leaked", 2)]


def test_an_added_token_counts_where_the_format_has_it_and_outside_arguments() -> None:
    inputs = written(step("Hi", "<tool_call>", "you"))
    assert says(Content, "Hi<tool_call>you", inputs) == [("the marker '<tool_call>' in the content", 1)]
    assert says(CallArguments, '{"a": "<tool_call>"}', inputs) == []
    assert says(Content, "Hi<tool_call>you", inputs, tools=()) == []
    assert says(Content, "Hi<tool_call>you", inputs, parser="plain") == []


def test_the_request_may_want_special_tokens() -> None:
    assert says(Content, "Hi<|im_start|>", written(step("Hi", "<|im_start|>")), keep_special=True) == []


@pytest.mark.parametrize(
    ("code", "leaks"),
    [(FaultCode.MALFORMED_CALL, 0), (FaultCode.STRAY_MARKER, 0), (FaultCode.HELD_OVERFLOW, 0),
     (FaultCode.UNKNOWN_TOOL, 1), (FaultCode.INVALID_UTF8, 1)],
)  # fmt: skip
def test_a_fault_that_says_so_explains_it(code: FaultCode, leaks: int) -> None:
    inputs = written(step("Hi", "<|im_start|>"))
    events = [START, Content(0, "Hi<|im_start|>", (0, 9)), Fault(0, code, (0, 1)), FIN]
    assert len(breaches(opening(), inputs, events, [0, 1, 1, 2], collect(events))) == leaks


def test_without_ids_what_was_consumed_elsewhere_counts() -> None:
    inputs = written(*[TokensInput(0, (), (), text) for text in ("<tool_call>", "x", "<tool_call>")])
    marker, content = Marker(0, "<tool_call>\n", (0, 12)), Content(0, "x<tool_call>", (12, 24))
    events = [START, marker, content, FIN]
    got = breaches(opening(), inputs, events, [0, 1, 3, 4], collect(events))
    assert [(b.oracle, b.step) for b in got] == [("leaked", 3)]
    # Letters, for all that is known.
    assert breaches(opening(), inputs, [START, content, FIN], [0, 3, 4], collect([START, content, FIN])) == ()


def test_a_large_vocabulary_costs_nothing() -> None:
    facts = TokenizerFacts(special={f"<|reserved_{number}|>": 5000 + number for number in range(4000)} | SPECIAL)
    text = "a <b> <|x|> " * 5000
    inputs = written(step(text))
    opened = opening(tokenizer=facts)
    events = [START, Content(0, text, (0, 9)), FIN]
    args = (opened, inputs, events, [0, 1, 2], collect(events))
    assert breaches(*args) == ()
    assert seconds(lambda: breaches(*args)) < 1.0


# --- on what the real parsers make


@pytest.mark.parametrize("module", MODULES)
def test_valid_output_breaks_nothing(module: str) -> None:
    for family in families(module):
        for seed in range(2):
            subject, _ = generated(family, seed)
            for calls in POLICIES:
                made = [*splits(subject, 1)][:4]
                if subject.clear:
                    made += text_splits(subject, 1)
                for name, steps in made:
                    opened = subject.opened(calls)
                    inputs = session(steps, tail=subject.tail, finish=subject.finish)
                    events, causes = fold_causes(subject.stage(calls).start(opened), inputs)
                    got = breaches(opened, inputs, events, causes, collect(events))
                    assert got == (), (family.format.name, seed, name)


@pytest.mark.parametrize("inputs", [whole(tokens(SAID)), whole(text_steps(SAID)), whole(tokens(SAID), tokens(SAID, 1))])
def test_a_recorded_session_breaks_nothing(inputs: list[Input]) -> None:
    opened = opening(n=2)
    made = derive(opened, inputs).semantic
    assert breaches(opened, inputs, made.events, made.steps, collect(made.events)) == ()


def test_events_in_any_order_raise_nothing() -> None:
    opened = opening()
    inputs = whole(tokens(SAID))
    made = derive(opened, inputs).semantic
    for seed in range(200):
        dice = random.Random(seed)
        events = [event for event in made.events if dice.random() < 0.9] * dice.choice((1, 2))
        dice.shuffle(events)
        for breach in breaches(opened, inputs, events, [dice.randrange(len(inputs)) for _ in events], collect(events)):
            assert breach.detail


def test_the_cost_is_linear() -> None:
    def cost(times: int) -> float:
        events = [START, *[Content(0, "List<int> [1] ", (0, 1))] * times, BEGIN, *[OBJECT] * times, END, FIN]
        inputs = written(*[step("List<int> [1] ", "<think>")] * times)
        messages = collect(events)
        return seconds(lambda: breaches(opening(), inputs, events, range(len(events)), messages))

    assert cost(40_000) < 40 * max(cost(4_000), 0.002)


# --- marks


def test_marks_come_in_order() -> None:
    broken = [Breach("arguments", ""), Breach("leaked", ""), Breach("split", "")]
    faulty = [Message(0, faults=("stray_marker",))]
    error = derive(opening(), [PromptInput((), "", 0)], Raising(0)).failed
    finding = Finding(verdict="failed", error=error)
    got = marks(finding, faulty, broken, {"sse.done": 2})
    assert got == ("failed", "differs", "split", "leaked", "arguments", "rule", "fault")
    assert list(got) == [mark for mark in MARKS if mark in got]


@pytest.mark.parametrize(
    ("layers", "splits_", "wrong"),
    [
        ({"message": "same", "semantic": "changed"}, {"recorded": "changed"}, ()),
        ({"message": "changed"}, {"recorded": "changed"}, ("differs",)),
        ({"message": "restyled"}, {"recorded": "restyled"}, ()),
        ({"semantic": "changed"}, {"recorded": "changed"}, ()),
        ({}, {"one": "changed", "token": "same"}, ("differs",)),
        ({}, {"one": "same"}, ()),
        ({"message": "same"}, {"recorded": "same", "one": "changed"}, ()),
    ],
)
def test_what_differs_is_the_message(layers: Any, splits_: Any, wrong: tuple[str, ...]) -> None:
    assert marks(Finding(verdict="changed", layers=layers, splits=splits_), [Message(0)], (), {"sse.done": 0}) == wrong
