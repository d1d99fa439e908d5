"""Bounds, ends and special tokens are matters of what the model wrote, not of how it came."""

from __future__ import annotations

from typing import Literal

import pytest

from stages import catalog
from stages.events import CallStart, Content, Dropped, Fault, FinishInput, Input, PromptInput, TokensInput, UsageInput
from stages.opening import TokenizerFacts
from stages.stage import fold
from tests.support.parse import (
    PROMPT,
    THINKING,
    check_partition,
    check_resume,
    check_stream,
    grouped,
    merged,
    message,
    opening,
    semantic,
    session,
    splits,
    texts,
    tokens,
    vocabulary,
)

POLICIES: tuple[Literal["incremental", "whole"], ...] = ("incremental", "whole")


@pytest.mark.parametrize("calls", POLICIES)
@pytest.mark.parametrize("limit", [0, 3, 7, 20, 40])
@pytest.mark.parametrize(
    "text",
    [
        "a\n\n\n\n\n\n\n\n\n\nb",
        "<think>\n\nSTO\n</think>\n\nx",
        '<tool_call>\n\n\n\n\n\n\n\n\n\n\n\n{"name": "tide", "arguments": {}}</tool_call>',
        '<tool_call>{"arguments": {"a": "a long text"}, "name": "tide"}</tool_call>',
        '<tool_call>{"name": "tide", "arguments": "{\\"a\\": \\"é a long text\\"}"}</tool_call>',
        "I say <tool_call>          and <tool_cal",
    ],
)
def test_where_the_bound_is_passed_does_not_depend_on_the_steps(
    text: str, limit: int, calls: Literal["incremental", "whole"]
) -> None:
    opened = opening(calls=calls, max_held=limit)
    first = None
    for split, steps in splits(text):
        inputs = session(steps)
        events = semantic(opened, inputs)
        check_stream(events)
        check_partition(inputs, events)
        first = first or merged(events)
        assert merged(events) == first, split
    check_resume(catalog.layers(opened).semantic, opened, session(texts(text)))


def test_the_bound_is_passed_by_its_first_character_too_many() -> None:
    opened = opening(max_held=4)
    events = semantic(opened, session(texts(["a\n\n\n\n\n\nb"])))
    [fault] = [event for event in events if isinstance(event, Fault)]
    assert (fault.code, fault.src) == ("held_overflow", (1, 6))
    assert message(events).content == "a\n\n\n\n\n\nb"


@pytest.mark.parametrize("late", ["é😀x", "<think>a\n", "\xff"])
def test_what_comes_behind_the_end_is_dropped_whatever_the_steps(late: str) -> None:
    data = late.encode() if late != "\xff" else b"\xff\xf0\x9f"
    for pieces in ([data], [data[i : i + 1] for i in range(len(data))]):
        steps: list[Input] = [TokensInput(0, (7,), (piece,), "") for piece in pieces]
        for inputs in (
            session([*tokens("a<|im_end|>"), *steps]),
            [PromptInput((), PROMPT, 3), *tokens("a"), FinishInput(0, "eos"), *steps, UsageInput(3, 9)],
        ):
            events = semantic(opening(), inputs)
            check_partition(inputs, events)
            assert message(events).content == "a"
            assert not any(isinstance(event, Fault) for event in events)
            dropped = "".join(event.text for event in events if isinstance(event, Dropped))
            assert dropped.removeprefix("<|im_end|>") == data.decode("utf-8", "replace")


@pytest.mark.parametrize("calls", POLICIES)
@pytest.mark.parametrize(
    ("tail", "text"),
    [
        (
            PROMPT,
            '<tool_call><|box_start|>{"name": <|box_start|>"tide", "arguments": {"a": 1<|box_start|>}}</tool_call>',
        ),
        (PROMPT, '<tool_call>{"name": "tide", "arguments": {}<|box_start|>}</tool_call>x'),
        (PROMPT, '<tool_call>{"name": "tide", "arguments": {"a": <|im_end|>'),
        (PROMPT, '<tool_call>{"name": "tide", "arguments": "x"<|box_start|>}</tool_call>'),
        (PROMPT, '<tool_call>{"name": ""<|box_start|>}</tool_call>'),
        (PROMPT, '<tool_call>{"na<|box'),
        (PROMPT, "<tool_call>{<|box"),
        (THINKING, 'hm <tool_call><|box_start|>\n{<|box_start|>"name": "tide"}</tool_call>'),
        (THINKING, "hm <tool_call><|im_end|>x"),
        (THINKING, "hm</think><|box_start|>\n\nx"),
    ],
)
def test_a_special_token_outside_a_string_is_one_by_its_text_where_there_are_no_ids(
    tail: str, text: str, calls: Literal["incremental", "whole"]
) -> None:
    opened = opening(calls=calls)
    pieces = vocabulary(text)
    by_id = message(semantic(opened, session(grouped(pieces, [1] * len(pieces)), tail=tail)))
    for steps in (texts([text]), texts(text)):
        inputs = session(steps, tail=tail)
        events = semantic(opened, inputs)
        check_stream(events)
        check_partition(inputs, events)
        assert message(events) == by_id
    check_resume(catalog.layers(opened).semantic, opened, session(texts(text), tail=tail))


def test_inside_a_string_the_text_wins_where_there_are_no_ids() -> None:
    text = '<tool_call>{"name": "tide", "arguments": {"a": "<|im_end|>", "b": "<|box_start|>"}}</tool_call>'
    [call] = message(semantic(opening(), session(texts(text)))).calls
    assert call.value() == {"a": "<|im_end|>", "b": "<|box_start|>"}


@pytest.mark.parametrize("calls", POLICIES)
def test_a_broken_call_does_not_take_an_array_of_calls_with_it(calls: Literal["incremental", "whole"]) -> None:
    text = (
        '<tool_call>{"name": "tide", "arguments": []}</tool_cal> '
        '<tool_call>\n[{"name": "moon"}, {"name": "tide"}]</tool_call>'
    )
    for split, steps in splits(text):
        got = message(semantic(opening(calls=calls), session(steps)))
        assert [(call.name, call.arguments) for call in got.calls if call.complete] == [
            ("moon", "{}"), ("tide", "{}"),
        ], split  # fmt: skip
    got = message(semantic(opening(), session(texts("<tool_call> [x"), tail=THINKING)))
    assert (got.reasoning, got.calls) == ("<tool_call> [x", [])


def test_many_openers_in_one_step_take_linear_work() -> None:
    """Each is looked at once: the parts of one long step are not searched again and again."""
    opened = opening()
    machine = catalog.parser("hermes").start(opened)
    events = fold(machine, session(texts(["<tool_call>" * 20_000])))
    assert message(events).content == "<tool_call>" * 19_999
    assert isinstance(next(event for event in events if isinstance(event, Content)), Content)


@pytest.mark.parametrize(
    ("parser", "text", "limit", "count"),
    [
        ("hermes", "a ", 0, 80_000),
        (
            "kimi_k2",
            "<|tool_call_begin|>functions.tide:0<|tool_call_argument_begin|>{}<|tool_call_end|>",
            1 << 20,
            6000,
        ),
        ("harmony", "<|channel|>commentary to=functions.tide<|message|>{}<|call|>", 1 << 20, 4000),
    ],
)
def test_long_steps_small_bounds_and_repeated_ids_take_linear_work(
    parser: str, text: str, limit: int, count: int
) -> None:
    """The square of such a text would take minutes."""
    opened = opening(parser, tokenizer=TokenizerFacts(), max_held=limit)
    events = semantic(opened, session(texts([text * count]), tail="<|start|>assistant"))
    ids = [event.id for event in events if isinstance(event, CallStart)]
    assert len(set(ids)) == len(ids) == (count if "{" in text else 0)
    if parser == "kimi_k2":
        assert ids[:3] == ["functions.tide:0", "functions.tide:02", "functions.tide:03"]
