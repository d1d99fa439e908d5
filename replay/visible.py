"""visible: what clients see of a session: texts, names and arguments, piece by piece, and when each character came.

Two sides are compared by lanes: a choice's reasoning, content and refusal, and of each call its name and its arguments.
How much later one side sends is counted in the tokens that the choice had written by then.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, TypeAlias

from replay.derive import Track
from replay.text import describe, first_difference, tag
from replay.verdict import Divergence, Side, Verdict
from stages.events import CallArguments, CallStart, Content, Input, Reasoning, Refusal, TokensInput

Lane: TypeAlias = tuple[int, str, int]
"""Choice, field, and index of the call (-1: of none)."""

_FIELDS: dict[type, str] = {Reasoning: "reasoning", Content: "content", Refusal: "refusal"}


class Meter:
    """How many tokens a choice had written by a step: ids, or steps where the engine gives none."""

    def __init__(self, inputs: Sequence[Input]) -> None:
        self._inputs = inputs
        self._known: dict[int | None, tuple[list[int], list[int]]] = {}
        """Of a choice: the seqs of its steps, and how many tokens there were before each, and in all."""

    def at(self, choice: int | None, step: int) -> int:
        """Tokens of a choice (None: of all) in the inputs up to the one with this seq."""
        if choice not in self._known:
            # Where nothing moved, nobody asks.
            self._known[choice] = self._counted(choice)
        seqs, counts = self._known[choice]
        return counts[bisect_right(seqs, step)]

    def _counted(self, choice: int | None) -> tuple[list[int], list[int]]:
        steps = [
            (seq, len(event.ids) or 1) for seq, event in enumerate(self._inputs)
            if isinstance(event, TokensInput) and (choice is None or event.choice == choice)
        ]  # fmt: skip
        return [seq for seq, _ in steps], list(accumulate((size for _, size in steps), initial=0))

    def later(self, choice: int | None, recorded: int, replayed: int) -> str:
        """In words, how much later the replayed step is than the recorded one."""
        if recorded == replayed:
            return "in the same step"
        count, unit = self.at(choice, replayed) - self.at(choice, recorded), "token"
        if not count:  # the choice wrote nothing between the two: its end came, say
            count, unit = replayed - recorded, "input"
        return f"{abs(count)} {unit}{'' if abs(count) == 1 else 's'} {'later' if count > 0 else 'earlier'}"


class Shown:
    """One lane: its pieces, the event of each, and the engine's step that it came from."""

    __slots__ = ("pieces", "seqs", "steps")

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.seqs: list[int] = []
        self.steps: list[int] = []

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(self.pieces)


def lanes(track: Track) -> dict[Lane, Shown]:
    """The lanes of a semantic track. Total, as ``stages.message.collect`` is."""
    found: dict[Lane, Shown] = {}
    steps = track.steps
    for seq, event in enumerate(track.events):
        kind = event.__class__
        piece: str
        if kind in _FIELDS:
            lane, piece = (event.choice, _FIELDS[kind], -1), event.text
        elif kind is CallArguments:
            lane, piece = (event.choice, "arguments", event.index), event.text
        elif kind is CallStart:
            lane, piece = (event.choice, "name", event.index), event.name
            if lane in found:  # only the first one counts
                continue
        else:
            continue
        shown = found.get(lane)
        if shown is None:
            shown = found[lane] = Shown()
        shown.pieces.append(piece)
        shown.seqs.append(seq)
        shown.steps.append(steps[seq])
    return found


def lag(recorded: Track, replayed: Track, inputs: Sequence[Input]) -> dict[int, int]:
    """Text that both sides show, by how many tokens later the replay sends it (earlier: below 0) → characters.

    Of each lane that is what both texts begin with. A piece whose step is not known (-1) is left out.
    """
    before, after = lanes(recorded), lanes(replayed)
    meter = Meter(inputs)
    found: Counter[int] = Counter()
    for lane, mine in before.items():
        theirs = after.get(lane)
        if theirs is None:
            continue
        for size, one, other in _common(mine, theirs):
            step, second = mine.steps[one], theirs.steps[other]
            if step >= 0 and second >= 0:
                late = 0 if step == second else meter.at(lane[0], second) - meter.at(lane[0], step)
                found[late] += size
    return {tokens: found[tokens] for tokens in sorted(found) if found[tokens]}


def timing(recorded: Track, replayed: Track, inputs: Sequence[Input]) -> tuple[Verdict, Divergence | None]:
    """Of two sides with the same texts: ``same``; ``rechunked``: cut otherwise within the engine's steps; ``moved``.
    And the first place."""
    before, after = lanes(recorded), lanes(replayed)
    both = [(lane, before[lane], after[lane]) for lane in before if lane in after]
    moved = [
        (min(mine.steps[one], theirs.steps[other]), lane, mine, one, theirs, other)
        for lane, mine, theirs in both
        for _, one, other in _common(mine, theirs)
        if mine.steps[one] != theirs.steps[other]
    ]
    cut = [
        (mine.steps[at], lane, mine, at, theirs, at)
        for lane, mine, theirs in both
        for at, (one, other) in enumerate(zip(mine.pieces, theirs.pieces, strict=False))
        if one != other
    ]
    if not (moved or cut):
        return "same", None
    step, lane, mine, one, theirs, other = min(moved or cut, key=lambda spot: spot[0])
    detail = Meter(inputs).later(lane[0], mine.steps[one], theirs.steps[other]) if moved else ""
    place = Divergence(
        layer="semantic", kind="timing" if moved else "chunking", seq=mine.seqs[one], cause=step,
        input=describe(inputs[step]) if 0 <= step < len(inputs) else "", choice=lane[0], detail=detail,
        recorded=_side(recorded, mine.seqs[one]), replayed=_side(replayed, theirs.seqs[other]),
    )  # fmt: skip
    return ("moved" if moved else "rechunked"), place


def _common(mine: Shown, theirs: Shown) -> Iterator[tuple[int, int, int]]:
    """What both lanes begin with, in runs that are one piece on either side: (characters, piece, piece)."""
    left = first_difference(mine.text, theirs.text)
    one = other = 0
    a, b = _size(mine, 0), _size(theirs, 0)
    while left > 0:
        size = min(a, b, left)
        if size:
            yield size, one, other
        left, a, b = left - size, a - size, b - size
        if not a:
            one += 1
            a = _size(mine, one)
        if not b:
            other += 1
            b = _size(theirs, other)


def _size(shown: Shown, at: int) -> int:
    return len(shown.pieces[at]) if at < len(shown.pieces) else 0


def _side(track: Track, seq: int) -> Side:
    event: Any = track.events[seq]
    return Side(seq, track.steps[seq], describe(event), tag(event))
