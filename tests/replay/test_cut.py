"""A session ended early, at each of its tokens: right parsers break nothing there, and wrong ones are found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from replay import cut
from replay.cut import FOREIGN_CUTS, cuts
from replay.run import Replayer
from replay.said import said
from stages.events import (
    CallArguments,
    CallEnd,
    Content,
    Fault,
    FaultCode,
    FinishInput,
    Input,
    PromptInput,
    Semantic,
    Start,
    TokensInput,
    UsageInput,
)
from stages.message import collect
from stages.opening import Opening
from stages.stage import Machine, fold
from tests.support.format_checks import generated
from tests.support.generate import families
from tests.support.generate.family import Family
from tests.support.parse import grouped
from tests.support.parse import session as parsed
from tests.support.replay import (
    ADDED,
    CALLS,
    SAID,
    aborted,
    opening,
    record,
    text_steps,
    tokens,
    whole,
)
from tests.support.spoiled import Spoiled, SpoiledMachine, session_of

OPENER = ADDED["<tool_call>"]


def test_a_right_parser_breaks_nothing_anywhere() -> None:
    inputs = whole(tokens(SAID))
    count = len(tokens(SAID))
    made = cuts(session_of(None, inputs))
    # Behind each token, and before the first.
    assert (made.count, made.breaches, made.failed, made.notes) == (count + 1, (), None, ())
    assert cuts(session_of(None, whole(text_steps(SAID)))).breaches == ()
    both = cuts(session_of(None, whole(tokens(SAID), tokens("Zwölf Boxkämpfer 🥊 jagen.", 1)), opening(n=2)))
    assert (both.breaches, both.failed, both.notes) == ((), None, ())
    left = cuts(session_of(None, aborted(whole(tokens(SAID)), 40)))
    assert (left.count, left.breaches, left.failed) == (40, (), None)


@pytest.mark.parametrize("family", families(), ids=lambda family: family.name)
def test_no_parser_breaks_an_oracle_where_it_is_cut(family: Family) -> None:
    subject, _ = generated(family, 2)
    inputs = parsed(grouped(subject.pieces(), [1] * len(subject.pieces())), tail=subject.tail)
    made = cuts(session_of(subject.stage("incremental"), inputs, subject.opened("incremental")))
    assert (made.breaches, made.failed, made.notes) == ((), None, ())


def test_a_session_without_tokens_has_no_places() -> None:
    inputs: list[Input] = [PromptInput((), "", 1), FinishInput(0, "eos"), UsageInput(1, 0)]
    assert cuts(session_of(None, inputs)) == cut.Cuts()


# --- what goes wrong at the end ---------------------------------------------------------------------------------------


class AtTheEnd(Spoiled):
    """Hermes, with more at the finish of a choice: what ``more`` makes of the events so far."""

    def __init__(self, more: Any) -> None:
        super().__init__(name="end@1")
        self.more = more

    def start(self, opening: Opening) -> Machine[Input, Semantic]:
        return _AtTheEnd(self, self.inner.start(opening), ())

    def resume(self, opening: Opening, snapshot: Any) -> Machine[Input, Semantic]:
        return _AtTheEnd(self, self.inner.resume(opening, snapshot[0]), snapshot[1])


class _AtTheEnd(SpoiledMachine):
    def __init__(self, stage: AtTheEnd, machine: Machine[Input, Semantic], seen: tuple[Semantic, ...]) -> None:
        super().__init__(stage, machine)
        self.more = stage.more
        self.seen = list(seen)

    def step(self, event: Input, out: list[Semantic]) -> None:
        self.stage.steps += 1
        made: list[Semantic] = []
        self.machine.step(event, made)
        if isinstance(event, FinishInput):
            made = [*self.more(self.seen, made)]
        self.seen += made
        out += made

    def snapshot(self) -> Any:
        return self.machine.snapshot(), tuple(self.seen)


def raises_inside_a_call(seen: list[Semantic], made: list[Semantic]) -> list[Semantic]:
    if any(isinstance(event, Fault) and event.code == FaultCode.UNCLOSED_CALL for event in made):
        raise IndexError("no closer")
    return made


def pretends_to_be_complete(seen: list[Semantic], made: list[Semantic]) -> list[Semantic]:
    return [
        CallEnd(event.choice, event.index, True) if isinstance(event, CallEnd) else event
        for event in made
        if not isinstance(event, Fault)
    ]


def goes_on(seen: list[Semantic], made: list[Semantic]) -> list[Semantic]:
    return [*made, Content(0, "…", (0, 0))]


def shows_the_opener(seen: list[Semantic], made: list[Semantic]) -> list[Semantic]:
    if any(isinstance(event, Fault) for event in made):
        return [Content(0, "<tool_call>", (0, 0)), *(event for event in made if not isinstance(event, Fault))]
    return made


def at_token(inputs: Sequence[Input], number: int) -> int:
    """The cut behind the first such token."""
    own = [event for event in inputs if isinstance(event, TokensInput)]
    return next(at for at, event in enumerate(own, 1) if event.ids == (number,))


def cut_behind(body: Sequence[Input], count: int) -> list[Input]:
    return [PromptInput((), "", 3), *body[:count], FinishInput(0, "length"), UsageInput(3, count)]


def test_a_parser_that_raises_at_a_cut_has_failed() -> None:
    inputs = whole(tokens(SAID))
    made = cuts(session_of(AtTheEnd(raises_inside_a_call), inputs))
    assert made.failed is not None
    assert (made.failed.type, made.failed.message, made.failed.layer) == ("IndexError", "no closer", "semantic")
    first = at_token(inputs, OPENER)
    assert made.failed.input.endswith(f"(ended after token {first} of {len(tokens(SAID))})")
    assert made.failed.step == first  # the prompt is input 0
    # Everywhere that Hermes finds a call unclosed.
    body = tokens(SAID)
    ended = [fold(Spoiled().start(opening()), cut_behind(body, at)) for at in range(len(body) + 1)]
    unclosed = sum(FaultCode.UNCLOSED_CALL in collect(events)[0].faults for events in ended)
    assert 1 < unclosed < len(body)
    assert made.notes == (f"cut short at {len(body) + 1} places: the parser fails at {unclosed}",)
    result = Replayer(AtTheEnd(raises_inside_a_call), cut=True).replay(record(opening(), inputs))
    assert (result.verdict, result.cuts) == ("failed", len(body) + 1)
    assert result.error == made.failed
    assert "failed" in result.marks


@pytest.mark.parametrize(
    "more,oracle",
    [(pretends_to_be_complete, "arguments"), (goes_on, "retracted"), (shows_the_opener, "leaked")],
)
def test_an_oracle_that_a_cut_breaks_is_told_once(more: Any, oracle: str) -> None:
    inputs = whole(tokens("Let me look." + CALLS))
    made = cuts(session_of(AtTheEnd(more), inputs))
    assert [breach.oracle for breach in made.breaches] == [oracle]
    breach = made.breaches[0]
    place = int(breach.split.removeprefix("cut:"))
    if more is goes_on:
        assert place == 0
    else:
        assert place > at_token(inputs, OPENER) - 1
    assert breach.step == place
    (note,) = made.notes
    assert note.startswith(f"cut short at {made.count} places: `{oracle}` is broken at ")
    # Cut 0 comes before any token.
    ended = f"ended after token {place} of {made.count - 1}: " if place else "ended before its first token: "
    assert breach.detail.startswith(ended)
    # The whole session ends by itself: it shows nothing of it (but where every end goes wrong).
    trace = record(opening(), inputs)
    result = Replayer(AtTheEnd(more), layer="message", cut=True).replay(trace)
    assert (result.verdict, result.cuts) == ("changed" if more is goes_on else "same", made.count)
    assert set(made.breaches) <= set(result.breaches)
    assert oracle in result.marks
    assert Replayer(AtTheEnd(more), layer="message").replay(trace).cuts == 0


class Holding:
    """Content comes one step late, and what is held at the end is lost: more tokens in the last step lose more."""

    id = "holding@1"

    def start(self, opening: Opening) -> Machine[Input, Semantic]:
        return _Holding("")

    def resume(self, opening: Opening, snapshot: Any) -> Machine[Input, Semantic]:
        return _Holding(snapshot)


class _Holding:
    def __init__(self, held: str) -> None:
        self.held = held

    def step(self, event: Input, out: list[Semantic]) -> None:
        if isinstance(event, PromptInput):
            out.append(Start(0, event.count))
        elif isinstance(event, TokensInput):
            if self.held:
                out.append(Content(event.choice, self.held, (0, 0)))
            self.held = event.text
        elif isinstance(event, FinishInput) and event.reason == "eos":
            out.append(Content(event.choice, self.held, (0, 0)))

    def snapshot(self) -> Any:
        return self.held


def test_what_depends_on_the_split_at_a_cut_only() -> None:
    """Uncut it is the same under every split."""
    inputs = whole(tokens("abcdefghijklmnopqr"))
    made = cuts(session_of(Holding(), inputs))
    splits = [breach for breach in made.breaches if breach.oracle == "split"]
    # With two tokens the last step has one, or both.
    assert [(breach.split, breach.step) for breach in splits] == [("cut:2", 2)]
    assert "content: 'abc' → nothing" in splits[0].detail
    assert splits[0].detail.startswith("ended after token 2 of 6: the message depends on the split: ")
    assert made.notes == ("cut short at 7 places: `split` is broken at 5",)


# --- what it costs ----------------------------------------------------------------------------------------------------


def test_one_run_serves_all_cuts() -> None:
    """Steps grow with the tokens, not with their square: each cut resumes, and never runs from the start."""

    def steps(count: int) -> int:
        parser = Spoiled()
        made = cuts(session_of(parser, whole(tokens("x" * 3 * count))))
        assert (made.count, made.breaches, made.notes) == (count + 1, (), ())
        return parser.steps

    few, many = steps(250), steps(1000)
    # The run, the ends, the joined steps with their ends, and three probes that go on to the end of the session.
    assert few < 10 * 250
    assert many < 10 * 1000


def test_of_a_long_session_the_oracles_look_at_some_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    """They look at all that was said, so they would cost the square of it."""
    inputs = whole(tokens("x" * 297))
    assert cuts(session_of(AtTheEnd(goes_on), inputs)).notes == (
        "cut short at 100 places: `retracted` is broken at 100",
    )
    monkeypatch.setattr(cut, "ORACLE_VISITS", 500)
    made = cuts(session_of(AtTheEnd(goes_on), inputs))
    # 100 * 100 / 2 tokens in all, ten times too many; and the last cut is always looked at.
    assert made.count == 100
    assert made.notes == (
        "cut short at 100 places: `retracted` is broken at 11", "the oracles were checked at one in 10 of 100 cuts",
    )  # fmt: skip


class Forgets(AtTheEnd):
    """What is resumed has seen nothing."""

    def resume(self, opening: Opening, snapshot: Any) -> Machine[Input, Semantic]:
        return self.start(opening)


class CannotResume(AtTheEnd):
    """It has no way to resume."""

    def resume(self, opening: Opening, snapshot: Any) -> Machine[Input, Semantic]:
        raise NotImplementedError


class HasNoSnapshot(AtTheEnd):
    """Its machines tell no state."""

    def start(self, opening: Opening) -> Machine[Input, Semantic]:
        return _NoSnapshot(self, self.inner.start(opening), ())


class _NoSnapshot(_AtTheEnd):
    def snapshot(self) -> Any:
        raise NotImplementedError


class Shares(AtTheEnd):
    """Its snapshot is the machine itself."""

    def start(self, opening: Opening) -> Machine[Input, Semantic]:
        return _Shares(self, self.inner.start(opening), ())

    def resume(self, opening: Opening, snapshot: Any) -> Machine[Input, Semantic]:
        machine: Machine[Input, Semantic] = snapshot
        return machine


class _Shares(_AtTheEnd):
    def snapshot(self) -> Any:
        return self


@pytest.mark.parametrize("kind", [Forgets, CannotResume, HasNoSnapshot, Shares])
def test_a_parser_that_does_not_resume_is_run_from_the_start(
    kind: type[AtTheEnd], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = session_of(kind(pretends_to_be_complete), whole(tokens("Let me look." + CALLS)))
    right = cuts(session_of(AtTheEnd(pretends_to_be_complete), [*session.inputs]))
    made = cuts(session)
    assert (made.count, made.breaches) == (right.count, right.breaches)
    assert made.notes[0] == right.notes[0]
    assert made.notes[1:] == ("its machine does not resume from a snapshot: each cut was run from the start",)
    monkeypatch.setattr(cut, "VISITS", 600)
    few = cuts(session)
    assert few.count == 16
    assert few.notes[-1] == f"only 16 of {right.count} places were tried: every cut takes a run of its own"


class Peer(Spoiled):
    """Another engine's parser: it has answered for all inputs before the first step."""

    foreign = True

    def __init__(self, *, peeks: bool = False) -> None:
        super().__init__()
        self.peeks = peeks
        self.asked = 0
        self.last = 0

    def prepared(self, opening: Opening, events: Sequence[Input]) -> Peer:
        self.asked += 1
        made = Peer(peeks=self.peeks)
        made.last = sum(isinstance(event, TokensInput) for event in events)
        return made

    def start(self, opening: Opening) -> Machine[Input, Semantic]:
        return PeerMachine(self, self.inner.start(opening))

    def resume(self, opening: Opening, snapshot: Any) -> Machine[Input, Semantic]:
        raise NotImplementedError


class PeerMachine(SpoiledMachine):
    stage: Peer

    def step(self, event: Input, out: list[Semantic]) -> None:
        self.machine.step(event, out)
        if self.stage.peeks and isinstance(event, PromptInput):
            out.append(Content(0, str(self.stage.last), (0, 0)))


def test_another_engines_parser_is_asked_at_some_places() -> None:
    parser = Peer()
    inputs = whole(tokens("x" * 900))
    made = cuts(session_of(parser, inputs))
    assert made.count == FOREIGN_CUTS
    assert made.breaches == ()
    assert made.notes == ("only 64 of 301 places were tried: every cut takes a run of its own",)
    assert parser.asked == 2 * FOREIGN_CUTS + 1
    peeking = cuts(session_of(Peer(peeks=True), inputs))
    assert "retracted" in [breach.oracle for breach in peeking.breaches]
    assert peeking.breaches[-1].detail == (
        "ended before its first token: what is sent before that depends on what would have come"
    )


def test_what_events_say() -> None:
    """Deltas count together; ids of calls only where they are asked for."""
    one: list[Semantic] = [Content(0, "ab", (0, 2)), CallArguments(0, 0, "{}", (2, 4)), CallEnd(0, 0, True)]
    other: list[Semantic] = [Content(0, "a", (0, 1)), Content(0, "b", (1, 2)), *one[1:]]
    assert said(one) == said(other) != said(one[:2])
    assert said(other[:1]) != said(one[:1])
