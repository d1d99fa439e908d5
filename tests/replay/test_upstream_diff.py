"""Another server's message against a parser's: what differs, what that is called, and what is a matter of style."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from replay.clock import Clock
from replay.derive import Track
from replay.upstream_diff import Sides, Told, told_apart
from stages.events import (
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    Finish,
    FinishReason,
    Input,
    Marker,
    Reasoning,
    Refusal,
    Start,
    TokensInput,
)
from store.api import Record


def said(*parts: Any, choice: int = 0) -> list[Any]:
    """Events of these: texts are content, others are as they are; a tuple is a call's name and its arguments' pieces.
    Byte ranges are those of the texts in a row."""
    events: list[Any] = [Start(choice, 0)]
    at = calls = 0

    def src(text: str) -> tuple[int, int]:
        nonlocal at
        at += len(text.encode())
        return at - len(text.encode()), at

    for part in parts:
        if isinstance(part, str):
            events.append(Content(choice, part, src(part)))
        elif part.__class__ is tuple:  # not isinstance: it leaves what is inside unknown
            name, *pieces = part
            events.append(CallStart(choice, calls, f"call_{calls}", name, src(name)))
            events += [CallArguments(choice, calls, piece, src(piece)) for piece in pieces]
            events.append(CallEnd(choice, calls, True))
            calls += 1
        else:
            events.append(part)
    return events


def thought(text: str, at: int = 0) -> Reasoning:
    return Reasoning(0, text, (at, at + len(text.encode())))


def compared(
    theirs: list[Any], ours: list[Any], *, inputs: Iterable[tuple[Input, int]] = (), open: bool = False
) -> Told:
    """``theirs``: an event a frame, from frame 1 on. ``inputs``: with their frames."""
    records = [Record(seq, cause, 0, event) for seq, (event, cause) in enumerate(inputs)]
    frames = list(range(1, len(theirs) + 1))
    steps = [0] * len(ours)
    sides = Sides(Track(theirs, frames, frames), Track(ours, steps, steps), Clock(records), "hermes", open=open)
    return told_apart(sides, [record.event for record in records])


def kinds(told: Told) -> list[tuple[str, str]]:
    return [(item.kind, item.field) for item in told.differences]


def test_the_same_message_is_the_same_however_it_is_cut() -> None:
    theirs = said(thought("Why"), "It ", "is", ("tide", '{"port": ', '"Brest"}'), Finish(0, "eos"))
    ours = said(thought("W"), thought("hy", 1), "It is", ("tide", '{"port": "Brest"}'), Finish(0, "eos"))
    assert compared(theirs, ours) == Told("same")


def test_ids_of_calls_and_faults_are_not_compared() -> None:
    theirs, ours = said(("tide", "{}")), said(("tide", "{}"))
    theirs[1] = CallStart(0, 0, "chatcmpl-tool-1", "tide", (0, 4))
    ours[-1] = CallEnd(0, 0, False)
    assert compared(theirs, ours).verdict == "same"


STYLE = [
    ((thought("\nWhy\n"), "\n\n", ("tide", "{}")), (thought("Why"), ("tide", "{}")), ["reasoning", "content"]),
    (("A.\n", ("tide", "{}"), "\nB."), ("A.", ("tide", "{}"), "B."), ["content"]),
    (("\n\nIt is.",), ("It is.",), ["content"]),
]


@pytest.mark.parametrize(("theirs", "ours", "fields"), STYLE)
def test_white_space_around_texts_is_a_matter_of_style(
    theirs: tuple[Any, ...], ours: tuple[Any, ...], fields: list[str]
) -> None:
    for one, other in ((theirs, ours), (ours, theirs)):
        told = compared(said(*one), said(*other))
        assert told.verdict == "restyled"
        assert kinds(told) == [("white_space", field) for field in fields]


def test_white_space_inside_a_text_is_not() -> None:
    assert kinds(compared(said("It is."), said("It  is."))) == [("text", "content")]
    assert kinds(compared(said("a", "b"), said("a b"))) == [("text", "content")]


SPELLED = [
    ('{"port": "Brest"}', '{"port":"Brest"}'),
    ('{"a": 1, "b": [1, 2]}', '{ "a" : 1,\n"b":[1,2] }'),
    ('{"port": "\\u00e9"}', '{"port": "é"}'),
    ('{"a": 1, "b": 2}', '{"b": 2, "a": 1}'),
]


@pytest.mark.parametrize(("one", "other"), SPELLED)
def test_how_arguments_are_spelled_is_a_matter_of_style(one: str, other: str) -> None:
    told = compared(said(("tide", one)), said(("tide", other)))
    assert told.verdict == "restyled"
    assert kinds(told) == [("spelling", "tool_calls[0].arguments")]


OTHERS = [
    ('{"port": "Brest "}', '{"port": "Brest"}'),
    ('{"a": true}', '{"a": 1}'),
    ('{"port": "Brest"', '{"port": "Brest"}'),
    ("{}", '{"a": null}'),
    ("null", "{}"),
]


@pytest.mark.parametrize(("one", "other"), OTHERS)
def test_other_arguments_are_a_change(one: str, other: str) -> None:
    told = compared(said(("tide", one)), said(("tide", other)))
    assert told.verdict == "changed"
    assert kinds(told) == [("call_arguments", "tool_calls[0].arguments")]


def test_arguments_are_located_beyond_their_spacing() -> None:
    """The first byte that differs is a blank; what is lost is the brace."""
    [item] = compared(said(("tide", '{"port": ', '"Brest"')), said(("tide", '{"port":"Brest"}'))).differences
    assert item.place == (
        """upstream's frame 5: arguments of call 0 end after '{"port": "Brest"'; parser hermes: '}'"""
    )


def test_a_text_on_the_other_side_of_the_border() -> None:
    told = compared(said(thought("Paris.")), said("Paris."))
    assert kinds(told) == [("boundary", "reasoning"), ("boundary", "content")]
    assert told.verdict == "changed"


def test_a_marker_in_the_text() -> None:
    theirs = said("It is. </tool_call>")
    ours = said("It is.", Marker(0, "</tool_call>", (6, 18)))
    assert kinds(compared(theirs, ours)) == [("marker_leaked", "content")]
    # The other way round nothing of theirs is markup.
    assert kinds(compared(said("It is."), said("It is. </tool_call>"))) == [("text", "content")]


def test_calls_that_are_lost_and_invented() -> None:
    tide, moon, sun = ("tide", '{"a": 1}'), ("moon", "{}"), ("sun", "{}")
    assert kinds(compared(said(tide, sun), said(tide, moon, sun))) == [("call_lost", "tool_calls[1]")]
    assert kinds(compared(said(tide, moon, sun), said(tide, sun))) == [("call_added", "tool_calls[1]")]
    assert kinds(compared(said(), said(tide, moon))) == [("call_lost", "tool_calls[0]"), ("call_lost", "tool_calls[1]")]


def test_calls_belong_together_by_name_before_place() -> None:
    """The first call is lost, and the second has lost its end: that is not two calls with other names."""
    told = compared(said(("moon", '{"a": 1')), said(("tide", "{}"), ("moon", '{"a": 1}')))
    assert kinds(told) == [("call_lost", "tool_calls[0]"), ("call_arguments", "tool_calls[1].arguments")]


def test_another_name() -> None:
    told = compared(said(("tide<sep>", "{}")), said(("tide", "{}")))
    assert kinds(told) == [("call_name", "tool_calls[0].name")]
    assert told.differences[0].place == "upstream's frame 2: call 0 of 'tide<sep>'; parser hermes: of 'tide'"


def test_ends_are_compared_by_class() -> None:
    alike: list[tuple[FinishReason, FinishReason]] = [("eos", "stop"), ("stop_token", "eos"), ("length", "context")]
    for one, other in alike:
        assert compared(said(Finish(0, one)), said(Finish(0, other))).verdict == "same"
    told = compared(said("a", Finish(0, "eos")), said("a", Finish(0, "length")))
    assert kinds(told) == [("finish_reason", "finish_reason")]
    assert (told.differences[0].recorded, told.differences[0].replayed) == ("stop", "length")


def test_a_refusal_and_other_choices() -> None:
    assert kinds(compared(said(Refusal(0, "No.", (0, 3))), said("No."))) == [
        ("text", "content"), ("text", "refusal"),
    ]  # fmt: skip
    told = compared([*said("a"), *said("b", choice=1)], [*said("a"), *said("c", choice=1)])
    assert [(item.choice, item.kind) for item in told.differences] == [(1, "text")]


def test_a_side_that_only_ends_is_equal_in_an_open_record() -> None:
    for one, other in (
        (said("It"), said("It is.")),
        (said("It is."), said("It")),
        (said(), said("a", ("tide", "{}"))),
        (said(("tide", '{"a"')), said(("tide", '{"a": 1}'), ("moon", "{}"))),
        (said("a"), said("a", Finish(0, "eos"))),
    ):
        assert compared(one, other, open=True).verdict == "same"
        assert compared(one, other).verdict == "changed"
    assert compared(said("It was"), said("It is."), open=True).verdict == "changed"


def step(text: str, *, size: int = 1) -> TokensInput:
    return TokensInput(0, tuple(range(size)), (text.encode(), *([b""] * (size - 1))), "")


def test_what_is_lost_is_lost_at_the_frame_that_brought_its_tokens() -> None:
    """Not at the one at which the parser, which had to wait, let it out."""
    inputs = [(step("It "), 1), (step("is "), 2), (step("so."), 3), (step("!"), 4)]
    [item] = compared(said("It "), said("It is so.!"), inputs=inputs).differences
    # Their own text ends with white space that is no difference: the next word is.
    assert (item.frame, item.step) == (2, 1)
    assert item.place == "upstream's frame 2: content ends after 'It '; parser hermes: 'is so.!'"


def test_bytes_are_counted_not_characters() -> None:
    inputs = [(step("é🌙"), 1), (step("x"), 5)]
    [item] = compared(said("é🌙"), said("é🌙x"), inputs=inputs).differences
    assert (item.frame, item.step) == (5, 1)


def test_without_known_frames_it_is_lost_where_the_message_goes_on() -> None:
    inputs = [(step("Sure. "), -1), (step("tide"), -1)]
    told = compared(said(("tide", "{}")), said("Sure. ", ("tide", "{}")), inputs=inputs)
    # Frame 1 has the start, frame 2 the call.
    assert [(item.kind, item.frame, item.step) for item in told.differences] == [("text", 2, 0)]


def test_the_first_is_no_matter_of_style_if_another_is() -> None:
    told = compared(said("\n\nIt is", ("tide", "{}")), said("It is", ("moon", "{}")))
    assert told.first is not None
    assert (told.first.kind, told.first.frame, told.first.worst) == ("call_name", 3, "call_name")
    told = compared(said("\n\nIt is"), said("It is"))
    assert told.first is not None
    assert told.first.kind == "white_space"


def test_many_calls_take_linear_time() -> None:
    """More than are paired by what they say."""
    calls = [(f"f{number}", "{}") for number in range(3000)]
    told = compared(said(*calls[:-1]), said(*calls))
    assert kinds(told) == [("call_lost", "tool_calls[2999]")]
