"""What differs most is told, over all choices, and a kind is of the place where that differs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import msgspec
import pytest

from replay import Difference, Message, Replayer
from replay.derive import Track
from replay.mass.tally import Tally
from replay.message_place import place, worst_of
from replay.reports.session import head_in_words
from replay.result import SessionResult, Signature
from replay.signature import in_words
from replay.verdict import MESSAGE_KINDS, MessageKind, Verdict
from stages.events import (
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    Fault,
    FaultCode,
    Finish,
    Input,
    Marker,
    Semantic,
    Start,
    TokensInput,
)
from store.api import Trace
from tests.support.replay import SAID, Change, aborted, lost, nth, only, opening, record, spoiled, tokens, track, whole
from tests.support.results import result

replace = msgspec.structs.replace
BROKEN = Signature(
    verdict="changed", kind="call_arguments", layer="semantic", recorded="call_arguments", replayed="",
    state="call: arguments", marker="<tool_call>",
)  # fmt: skip
"""The arguments of a call lose their last brace."""


def without_brace(event: Any) -> Iterable[Any]:
    if not isinstance(event, CallArguments) or event.choice or not event.text.endswith("}"):
        return [event]
    return [replace(event, text=event.text[:-1])] if event.text != "}" else []


def other_text(choice: int) -> Callable[[], Change]:
    return nth(lambda event: isinstance(event, Content) and event.choice == choice, 0, as_other)


def as_other(event: Any) -> Iterable[Any]:
    return [replace(event, text="#" + event.text[1:])]


def both(first: Callable[[], Change], second: Change) -> Callable[[], Change]:
    def make() -> Change:
        change = first()
        return lambda event: [made for each in change(event) for made in second(each)]

    return make


@cache
def two() -> Trace:
    """Two choices, of which the second writes its content first."""
    return record(opening(n=2), whole(tokens(SAID), tokens("Hello there, " + SAID, 1)))


@cache
def one() -> Trace:
    return record(opening(), whole(tokens(SAID)))


def replayed(trace: Trace, make: Callable[[], Change], **options: Any) -> SessionResult:
    return Replayer(assemble=spoiled("semantic", make), **options).replay(trace)


def said(trace: Trace, seq: int) -> Any:
    return trace.events("served", "semantic")[seq]


@pytest.mark.parametrize("layer", ["message", "frame"])
def test_the_worst_is_that_of_all_choices(layer: Any) -> None:
    """The text of choice 1 differs first; the call of choice 0 is what is broken."""
    found = replayed(two(), both(other_text(1), without_brace), layer=layer)
    assert found.first is not None
    assert (found.first.choice, found.first.kind, found.first.worst) == (1, "text", "call_arguments")
    assert found.signature == BROKEN


def test_the_worst_is_not_where_the_same_choice_differs_first() -> None:
    """The sides meet again between the text that differs and the call that does."""
    found = replayed(one(), both(other_text(0), without_brace))
    assert found.first is not None
    assert (found.first.kind, found.first.worst) == ("text", "call_arguments")
    assert found.signature == BROKEN


def test_a_kind_is_the_same_whether_something_else_differs_before() -> None:
    alone = replayed(one(), lambda: without_brace)
    assert alone.signature == BROKEN
    call = nth(only(CallStart), 1, lost)
    assert replayed(one(), call).signature == replayed(one(), both(other_text(0), call())).signature


def test_the_title_and_the_line_of_the_first_place_name_the_same_sides() -> None:
    found = replayed(one(), lambda: without_brace)
    assert found.signature is not None
    assert "(call_arguments → nothing)" in in_words(found.signature)
    assert any("call_arguments → nothing" in line for line in head_in_words(found))


def test_what_is_worst_may_follow_from_where_the_sides_part() -> None:
    """A marker that is content is why a call is lost: that is one place."""

    def make() -> Change:
        inside = False

        def change(event: Any) -> Iterable[Any]:
            nonlocal inside
            if isinstance(event, Marker) and "tool_call>" in event.text:
                inside = "</" not in event.text
                return [Content(event.choice, event.text, event.src)]
            if inside and isinstance(event, CallStart | CallArguments | CallEnd | Marker):
                text = getattr(event, "text", None) or getattr(event, "name", "")
                return [Content(event.choice, text, event.src)] if text and not isinstance(event, CallEnd) else []
            return [event]

        return change

    found = replayed(one(), make)
    assert found.signature is not None and found.first is not None
    assert (found.signature.kind, found.signature.recorded, found.signature.replayed) == (
        "call_lost",
        "marker",
        "content",
    )
    assert found.first.recorded is not None and found.first.replayed is not None
    assert (found.first.recorded.type, found.first.replayed.type) == ("marker", "content")


@pytest.mark.parametrize("kind", MESSAGE_KINDS)
def test_the_worst_of_differences(kind: MessageKind) -> None:
    rest = [Difference(0, each, "", None, None) for each in MESSAGE_KINDS[MESSAGE_KINDS.index(kind) :]]
    assert worst_of(rest[::-1]).kind == kind


# --- a comparer's word


def calls(recorded: Sequence[Message], replayed: Sequence[Message]) -> Iterator[Difference]:
    """Calls only: their number, names and arguments."""
    for one, other in zip(recorded, replayed, strict=False):
        mine, theirs = ([(call.name, call.arguments) for call in side.tool_calls] for side in (one, other))
        if mine != theirs:
            yield Difference(one.choice, "call_arguments", "tool_calls", str(mine), str(theirs))


def test_with_a_comparer_the_place_is_of_what_it_reports() -> None:
    trace = two()
    found = replayed(trace, both(other_text(1), without_brace), compare=calls)
    assert found.first is not None and found.first.recorded is not None
    assert (found.first.choice, found.first.kind, found.first.worst) == (0, "call_arguments", "call_arguments")
    where = said(trace, found.first.recorded.seq)
    assert isinstance(where, CallArguments) and where.choice == 0 and where.text.endswith("}")
    cause = trace.events("input", "engine")[found.first.cause]
    assert isinstance(cause, TokensInput) and cause.choice == 0 and b"}" in cause.pieces[0]
    assert found.signature == BROKEN


def test_what_a_comparer_reports_of_nowhere_is_nowhere() -> None:
    """Never where something differs that it does not report."""

    def mood(recorded: Sequence[Message], replayed: Sequence[Message]) -> Iterator[Difference]:
        yield Difference(0, "finish_reason", "mood", "calm", "tense")

    found = replayed(two(), both(nth(only(Finish), 0, lost), without_brace), compare=mood)
    assert found.first is not None and found.first.recorded is not None
    assert found.first.recorded.type == "fin"
    told = place([], Track([], [], []), Track([], [], []), [Difference(0, "text", "mood", "calm", "tense")])
    assert (told.seq, told.cause, told.recorded, told.replayed, told.detail) == (-1, -1, None, None, "mood")


START, CALL = (0, Start(0, 1)), (1, CallStart(0, 0, "a", "tide", (0, 4)))
OTHER = (3, CallStart(0, 1, "b", "moon", (9, 13)))
END = (2, CallEnd(0, 0, True))


@pytest.mark.parametrize(
    ("kind", "field", "mine", "theirs", "seqs"),
    [
        ("call_lost", "tool_calls", [START, CALL, END, OTHER], [START, OTHER], (1, None)),
        ("call_lost", "tool_calls", [START, CALL, END, OTHER], [START, CALL, END], (3, None)),
        ("call_added", "tool_calls", [START, CALL, END], [START, CALL, END, OTHER], (None, 3)),
        ("call_name", "tool_calls", [START, CALL], [START, (1, CallStart(0, 0, "a", "moon", (0, 4)))], (1, 1)),
        ("call_name", "tool_calls[0]", [START, CALL], [START, (1, CallStart(0, 0, "a", "moon", (0, 4)))], (1, 1)),
        ("call_complete", "tool_calls[0].complete", [CALL, END], [CALL, (2, CallEnd(0, 0, False))], (1, 1)),
        ("fault", "faults", [START], [START, (1, Fault(0, FaultCode.UNKNOWN_TOOL, (0, 0)))], (None, 1)),
        ("text", "said", [START, (1, Content(0, "a", (0, 1)))], [START, (1, Content(0, "b", (0, 1)))], (1, 1)),
        ("finish_reason", "end", [START, (1, Finish(0, "eos"))], [START], (1, None)),
    ],
)  # fmt: skip
def test_the_events_of_a_difference(
    kind: MessageKind,
    field: str,
    mine: list[tuple[int, Semantic]],
    theirs: list[tuple[int, Semantic]],
    seqs: tuple[int | None, int | None],
) -> None:
    found = place([], track(*mine), track(*theirs), [Difference(0, kind, field, None, None)])
    sides = tuple(None if side is None else side.seq for side in (found.recorded, found.replayed))
    assert sides == seqs


# --- the example of a kind


def test_the_example_shows_what_reaches_the_last_layer() -> None:
    """A smaller session whose client left before it got anything shows less than the kind does."""
    hidden: dict[str, Verdict] = {"message": "changed", "semantic": "changed", "chunk": "same", "frame": "same"}
    shown: dict[str, Verdict] = {**hidden, "chunk": "changed", "frame": "changed"}
    sessions = [
        result(1, "changed", tokens=5, layers=hidden), result(2, "changed", tokens=9, layers=shown),
        result(3, "changed", tokens=8, layers=shown),
    ]  # fmt: skip
    tally = Tally()
    for at, each in enumerate(sessions):
        tally.add(each, at)
    (kind,) = tally.clusters(sessions.__getitem__)
    assert kind.example is sessions[2]
    assert [session for _, session in kind.sessions] == [sessions[at].session for at in (2, 1, 0)]


def test_what_clients_receive_is_told_in_words_that_fit_the_message() -> None:
    inputs: list[Input] = whole(tokens(SAID))
    trace = record(opening(stream=False), aborted(inputs, len(inputs) - 2))
    found = replayed(trace, lambda: without_brace)
    assert (found.layers["message"], found.layers["chunk"], found.layers["frame"]) == ("changed", "same", "same")
    assert found.notes == ("clients receive the same: what the message says otherwise is not sent to them",)
    markers = replayed(one(), nth(only(Marker), 0, lost))
    assert markers.layers["message"] == "same"
    assert markers.notes == ("clients receive the same: what differs is in the semantic layer only",)
