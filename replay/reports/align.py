"""align: one session, what both sides of a comparison emitted at each step of the engine, beside what the model wrote.

Steps at which both sides emit the same are folded into one row; so are runs of steps that differ in the same way (the
same text, as content on one side and as reasoning on the other). Time and memory are linear in the events; what comes
out is bounded, however long the session is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, TypeAlias

import msgspec

from replay.derive import Track
from replay.reports.counting import Counting
from replay.reports.wrote import Wrote, wrote
from replay.text import first_difference, plain_excerpt
from stages.events import (
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    Dropped,
    Failure,
    Fault,
    Finish,
    Input,
    Marker,
    Reasoning,
    Refusal,
    TokensInput,
    Usage,
)
from stages.opening import TokenizerFacts

LIMIT = 40
"""Rows that are shown."""
_LAST = 3
"""Rows at the end that are shown in any case: there stand the calls' ends and the finish."""
_AROUND = 1
"""Rows of what is the same that are shown before and after a difference."""
_EVENTS = 12
"""What one side emitted in one row: as much is shown, from a little before the difference on."""
_BEFORE = 2


class Emitted(msgspec.Struct, frozen=True):
    """What one side emitted. ``quiet``: clients do not see it; ``differs``: the other side has not the same there."""

    kind: str
    text: str
    choice: int
    quiet: bool
    differs: bool


class Row(msgspec.Struct, frozen=True):
    """Some steps, ``first`` to ``last`` (seqs of the engine layer; -1: not known). ``steps``: how many; ``differs``:
    the sides do; ``differing``: at how many of the steps; ``folded``: what was emitted is not shown."""

    first: int
    last: int
    steps: int
    differs: bool
    differing: int = 0
    folded: bool = False
    wrote: tuple[Wrote, ...] = ()
    left: tuple[Emitted, ...] = ()
    right: tuple[Emitted, ...] = ()


class Aligned(msgspec.Struct, frozen=True):
    """A session's two sides. ``differing``: steps at which they differ, also those in folded rows; ``choices``: how
    many there are; ``partly``: what was not compared does not count as different."""

    rows: tuple[Row, ...]
    differing: int
    choices: int
    partly: bool = False
    now: tuple[str, ...] = ()


def align(
    inputs: Sequence[Input],
    left: Track | None,
    right: Track | None,
    tokenizer: TokenizerFacts = TokenizerFacts(),
    *,
    loose: bool = False,
    counting: Counting | None = None,
    limit: int = LIMIT,
) -> Aligned:
    """The rows of a session. ``inputs``: what ``steps`` of both tracks count; ``left``: what is compared with; None: it
    is not at hand, and all of it counts as missing. ``loose``: only what clients see is compared, without ids of calls:
    the other side is another engine's; ``counting``: what may be marked as different; None: everything."""
    special = frozenset((*tokenizer.special.values(), *tokenizer.added.values()))
    mine, theirs = _by_step(left), _by_step(right)
    # Before the first input stands what came from nothing known, after the last what a session's end brought out.
    seqs = [*range(-1, len(inputs)), *sorted(seq for seq in {*mine, *theirs} if seq >= len(inputs))]
    steps = [_Step(seq, mine.get(seq, ()), theirs.get(seq, ()), loose, counting) for seq in seqs]
    if not any(steps[0].sides):
        del steps[0]
    rows = list(_rows(_grouped(steps)))
    choices = {event.choice for event in inputs if isinstance(event, TokensInput)}
    return Aligned(
        tuple(_shown(row, inputs, special, counting) for row in _limited(rows, max(limit, _LAST + 2))),
        sum(step.differs for step in steps), len(choices), counting is not None,
    )  # fmt: skip


# --- events -----------------------------------------------------------------------------------------------------------


class _Said:
    """Deltas of one kind, one after the other, or one other event. ``label``: what is compared beside the text."""

    __slots__ = ("choice", "index", "kind", "label", "pieces", "quiet")

    def __init__(self, kind: str, choice: int, index: int, text: str, label: str, quiet: bool) -> None:
        self.kind = kind
        self.choice = choice
        self.index = index
        self.pieces = [text]
        self.label = label
        self.quiet = quiet

    @property
    def text(self) -> str:
        if len(self.pieces) > 1:
            self.pieces = ["".join(self.pieces)]
        return self.pieces[0]

    @property
    def lane(self) -> tuple[str, int, int]:
        return self.kind, self.choice, self.index


_DELTAS: dict[type, str] = {
    Reasoning: "reasoning", Content: "content", Refusal: "refusal", CallArguments: "arguments", Marker: "marker",
    Dropped: "dropped",
}  # fmt: skip
_QUIET = frozenset(("marker", "dropped", "fault", "usage"))
QUOTED = frozenset(_DELTAS.values())
"""Kinds of which the text is the model's."""


def _by_step(track: Track | None) -> dict[int, list[_Said]]:
    """What a side says, by step."""
    found: dict[int, list[_Said]] = {}
    if track is None:
        return found
    for event, step in zip(track.events, track.steps, strict=True):
        said = _said(event)
        if said is None:
            continue
        here = found.setdefault(max(step, -1), [])
        if here and here[-1].lane == said.lane and said.kind in QUOTED:
            here[-1].pieces += said.pieces
        else:
            here.append(said)
    return found


def _said(event: Any) -> _Said | None:
    """An event, if it is shown. Total: a user's parser may put anything into a field."""
    kind: type[Any] = event.__class__
    choice, index = _number(getattr(event, "choice", 0)), _number(getattr(event, "index", -1))
    name = _DELTAS.get(kind)
    if name is not None:
        return _Said(name, choice, index, _text(event.text), "", name in _QUIET)
    shown = _other(event)
    if shown is None:
        return None
    name, text, label = shown
    return _Said(name, choice, index, text, label, name in _QUIET)


def _other(event: Any) -> tuple[str, str, str] | None:
    """Kind, text, and what else is compared."""
    kind: type[Any] = event.__class__
    if kind is CallStart:
        return "call", _text(event.name), _text(event.id)
    if kind is CallEnd:
        return "call end", "" if event.complete else "not complete", ""
    if kind is Fault:
        told = [_text(event.code), *[_text(part) for part in (event.detail, event.text) if part]]
        return "fault", ": ".join(told), ""
    if kind is Finish:
        detail = "" if event.detail is None else f" ({_text(event.detail)})"
        return "finish", f"{_text(event.reason)}{detail}", ""
    if kind is Failure:
        return "failure", f"{_text(event.kind)}: {_text(event.message)}", ""
    if kind is Usage:
        return "usage", f"{event.prompt} prompt, {event.completion} completion", ""
    return None


def _text(value: Any) -> str:
    return value if value.__class__ is str else str(value)


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0


# --- rows -------------------------------------------------------------------------------------------------------------


class _Step:
    """What both sides say at one step."""

    __slots__ = ("differs", "seq", "sides")

    def __init__(
        self, seq: int, left: Sequence[_Said], right: Sequence[_Said], loose: bool, counting: Counting | None
    ) -> None:
        self.seq = seq
        self.sides = left, right
        one, other = (
            [_key(said, loose) for said in side if not (loose and said.quiet) and _counts(said, counting)]
            for side in self.sides
        )
        self.differs = one != other

    @property
    def pattern(self) -> tuple[Any, ...]:
        """Steps with the same one, next to each other, are told as one; () for one that stands alone."""
        if any(len(side) > 1 or any(said.kind not in QUOTED for said in side) for side in self.sides):
            return ()
        return tuple(said.lane for side in self.sides for said in side), bool(self.sides[0])

    @property
    def choices(self) -> frozenset[int]:
        return frozenset(said.choice for side in self.sides for said in side)


def _counts(said: _Said, counting: Counting | None) -> bool:
    return counting is None or counting.counts(said.choice, said.kind, said.index)


def _key(said: _Said, loose: bool) -> tuple[Any, ...]:
    return (*said.lane, said.text, "" if loose else said.label)


_Group: TypeAlias = list[_Step]


def _grouped(steps: Sequence[_Step]) -> list[_Group]:
    """Runs of steps that are told as one: those that differ in one way, also where choices take turns. What is the same
    stands alone."""
    made: list[_Group] = []
    going: dict[tuple[Any, ...], _Group] = {}
    for step in steps:
        group = going.get(step.pattern) if step.differs and step.pattern else None
        if group is not None:
            group.append(step)
            continue
        if not step.differs:
            going.clear()
        else:
            # Of a choice, what came before this is over.
            going = {pattern: group for pattern, group in going.items() if not step.choices & group[0].choices}
        made.append([step])
        if step.differs and step.pattern:
            going[step.pattern] = made[-1]
    return made


def _rows(groups: Sequence[_Group]) -> Iterator[tuple[bool, _Group]]:
    """(folded, steps): what is the same, but for that around a difference, is folded."""
    runs = [(differs, list(run)) for differs, run in groupby(groups, lambda group: group[0].differs)]
    for place, (differs, run) in enumerate(runs):
        if differs:
            yield from ((False, group) for group in run)
            continue
        # Around a difference, as much as says something.
        head = _AROUND if place and any(run[0][0].sides) else 0
        tail = _AROUND if place + 1 < len(runs) and len(run) > head and any(run[-1][0].sides) else 0
        yield from ((False, group) for group in run[:head])
        folded = [step for group in run[head : len(run) - tail] for step in group]
        if folded:
            yield True, folded
        yield from ((False, group) for group in run[len(run) - tail :])


def _limited(rows: list[tuple[bool, _Group]], limit: int) -> list[tuple[bool, _Group]]:
    """At most so many rows. What is the same gives way first, so that nothing that differs is hidden for it."""
    if len(rows) > limit:
        rows = list(_narrowed(rows))
    if len(rows) <= limit:
        return rows
    head = limit - _LAST - 1
    middle = [step for _, group in rows[head : len(rows) - _LAST] for step in group]
    return [*rows[:head], (True, middle), *rows[len(rows) - _LAST :]]


def _narrowed(rows: Sequence[tuple[bool, _Group]]) -> Iterator[tuple[bool, _Group]]:
    """Rows next to each other that are the same as one, folded."""
    for differs, run in groupby(rows, lambda row: row[1][0].differs):
        held = list(run)
        if differs or len(held) == 1:
            yield from held
        else:
            yield True, [step for _, group in held for step in group]


# --- what is shown ----------------------------------------------------------------------------------------------------


def _shown(
    row: tuple[bool, _Group], inputs: Sequence[Input], special: frozenset[int], counting: Counting | None
) -> Row:
    folded, steps = row
    differing = sum(step.differs for step in steps)
    ends = steps[0].seq, steps[-1].seq
    if folded:
        return Row(*ends, len(steps), differing > 0, differing, folded=True)
    left, right = (_joined([said for step in steps for said in step.sides[side]]) for side in (0, 1))
    differ = differing > 0
    sides = _side(left, right, differ, counting), _side(right, left, differ, counting)
    return Row(
        *ends,
        len(steps),
        differ,
        differing,
        False,
        wrote([inputs[step.seq] for step in steps if 0 <= step.seq < len(inputs)], special),
        *sides,
    )


def _joined(said: Sequence[_Said]) -> list[_Said]:
    if len(said) < 2 or any(item.lane != said[0].lane for item in said):
        return list(said)
    first = said[0]
    return [_Said(first.kind, first.choice, first.index, "".join(item.text for item in said), first.label, first.quiet)]


def _side(
    mine: Sequence[_Said], other: Sequence[_Said], differs: bool, counting: Counting | None
) -> tuple[Emitted, ...]:
    """One side of a row; what both begin and end with is not what differs."""
    keys, others = ([_key(said, False) for said in side] for side in (mine, other))
    most = min(len(keys), len(others))
    head = next((at for at in range(most) if keys[at] != others[at]), most)
    tail = next((at for at in range(most - head) if keys[-1 - at] != others[-1 - at]), most - head)
    start = max(0, min(head - _BEFORE, len(mine) - _EVENTS))
    end = min(len(mine), start + _EVENTS)
    made = [_left_out(start)] if start else []
    for at in range(start, end):
        apart = differs and head <= at < len(mine) - tail and _counts(mine[at], counting)
        made.append(_emitted(mine[at], other[at] if at < len(other) else None, apart))
    return (*made, _left_out(len(mine) - end)) if end < len(mine) else tuple(made)


def _left_out(count: int) -> Emitted:
    return Emitted("…", f"{count} more", 0, quiet=True, differs=False)


def _emitted(said: _Said, beside: _Said | None, apart: bool) -> Emitted:
    """What was emitted, around the place where it is not what stands beside it."""
    text = plain_excerpt(said.text)
    if apart and beside is not None and beside.kind == said.kind:
        text = plain_excerpt(said.text, first_difference(said.text, beside.text))
        if said.label != beside.label:
            text += f" {plain_excerpt(said.label, first_difference(said.label, beside.label))}"
    return Emitted(said.kind, text, said.choice, said.quiet, apart)
