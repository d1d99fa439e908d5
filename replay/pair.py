"""pair: the smallest pair of splits that give different messages: how few tokens must come together for it.

Of a parser whose message under a split is not what it is token by token, that are the tokens which that split joins,
less all that the difference does not need: undoing any one join makes both messages equal. They are found by halving
(where the difference begins, then where it ends), then by delta debugging what lies between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from replay import loose
from replay.custom import NONE
from replay.derive import Track, run
from replay.diff import Session
from replay.message_diff import differences
from replay.result import SplitPair
from replay.sizes import Histogram
from replay.split import Cut, characters, joined_as, joins, tokens
from replay.text import printable, readable
from replay.verdict import STYLE, Difference
from stages.events import Input, TokensInput

RUNS = 200
"""Replays that a search may take; of another engine's parser, where each is a request, ``FOREIGN_RUNS``."""
FOREIGN_RUNS = 60
TOKENS = 2_000_000
"""Tokens that all replays of a search may take together; of a long session, that makes fewer of them."""
ENDED = frozenset(("Timeout", "Crashed"))
"""Failures of another engine's worker, after which it is started anew."""
_FEWEST = 24
_AROUND = 3
_SHOWN = 32
"""Tokens that are shown at most."""
_LETTERS = 24

Joins: TypeAlias = frozenset[int]
"""Tokens of a choice (from 0) that come in one step with the token before them."""


class Smallest(msgspec.Struct, frozen=True):
    """A pair, and the split that showed it. ``step``: seq of the recorded input that brought the first of the tokens;
    ``whole``: it is the smallest; else the search was given up before."""

    pair: SplitPair
    split: str
    step: int
    whole: bool


def apart(session: Session, one: Track, other: Track) -> tuple[Difference, ...]:
    """What the second replay of a session says otherwise than the first; of another engine's parser, without what is a
    matter of style."""
    if loose.is_foreign(session.layers.parts["parser"]):
        own = msgspec.structs.replace(session, open=False, custom=NONE)
        return tuple(item for item in loose.compare(own, one, other, "message").differences if item.kind not in STYLE)
    named = session.opening.ask.named
    before, after = one.messages(named=named), other.messages(named=named)
    return differences(before, after, one.events, session.opening.tokenizer)


def smallest(
    session: Session, inputs: Sequence[Input], says: Mapping[str, Track], histogram: Histogram = ()
) -> Smallest | None:
    """The smallest pair, where messages differ. ``inputs``: as recorded; ``says``: what came out under each split, two
    or more of which differ. None where no grouping shows it: it is the time at which text comes (``held``), say, or the
    parser does not do the same twice.
    """
    known = {split: track for split, track in says.items() if split != "one_shot" and not split.startswith("held:")}
    whole = {split: track for split, track in known.items() if split != "char"}
    search = _Search(session, inputs, tokens, histogram)
    base = whole.get("token") or search.run({})
    found = None
    if base is not None:
        found = search.against("token", base, whole)
    else:  # token by token it fails: any two that differ will do
        for split, track in whole.items():
            found = found or search.against(split, track, whole)
    if found is None and "char" in known:
        search = _Search(session, inputs, characters, histogram)
        found = search.against("char", known["char"], whole)
    return found


class _Search:
    def __init__(self, session: Session, inputs: Sequence[Input], unit: Cut, histogram: Histogram) -> None:
        self._session = session
        self._inputs = inputs
        self._unit = unit
        self._histogram = histogram
        self._atoms = joined_as(inputs, {}, unit)
        size = sum(event.__class__ is TokensInput for event in self._atoms)
        most = FOREIGN_RUNS if loose.is_foreign(session.layers.parts["parser"]) else RUNS
        self._most = min(most, max(_FEWEST, TOKENS // max(1, size)))
        self._runs = 0

    def run(self, joined: Mapping[int, Joins]) -> Track | None:
        """What comes out with these tokens joined; None where the parser fails."""
        self._runs += 1
        inputs = joined_as(self._atoms, joined, _whole)
        session = self._session
        track, failed = run(session.layers.semantic, "semantic", session.opening, inputs, range(len(inputs)))
        if failed is not None and failed.type in ENDED:
            self._runs = self._most  # each such run may take as long as a session
        return None if failed else track

    def against(self, base: str, track: Track, others: Mapping[str, Track]) -> Smallest | None:
        """The smallest way from a split to one that differs from it."""
        for split, other in others.items():
            told = apart(self._session, track, other)
            for choice in dict.fromkeys(item.choice for item in told):
                found = self._between(choice, (base, track), split)
                if found is not None:
                    return found
        return None

    def _between(self, choice: int, base: tuple[str, Track], split: str) -> Smallest | None:
        tokenizer, unit = self._session.opening.tokenizer, self._unit
        first, last = (joins(self._inputs, name, tokenizer, self._histogram, unit) for name in (base[0], split))
        mine, theirs = first.get(choice, Joins()), last.get(choice, Joins())
        seen: dict[Joins, tuple[Difference, ...]] = {Joins(): ()}

        def differs(part: Sequence[int]) -> bool:
            key = Joins(part)
            if key not in seen:
                if self._runs >= self._most:
                    raise _Spent
                made = self.run({**first, choice: mine ^ key})
                told = () if made is None else apart(self._session, base[1], made)
                seen[key] = tuple(item for item in told if item.choice == choice)
            return bool(seen[key])

        best = sorted(mine ^ theirs)
        whole = True
        try:
            if not differs(best):
                return None
            for smaller in _smaller(best, differs):
                best = smaller
        except _Spent:
            whole = False
        if Joins(best) not in seen:
            return None
        other = mine ^ Joins(best)
        return Smallest(
            SplitPair(
                choice, _groups(mine), _groups(other), self._shown(choice, best, mine, other), seen[Joins(best)],
                self._runs, (base[0], split),
            ),
            split, self._step(choice, best[0] - 1), whole,
        )  # fmt: skip

    def _shown(self, choice: int, changed: Sequence[int], *sides: Joins) -> tuple[str, str]:
        """The tokens around what is joined, in words, both ways."""
        own = [event for event in self._atoms if isinstance(event, TokensInput) and event.choice == choice]
        near = sorted({
            at for place in changed for at in range(place - 1 - _AROUND, place + 1 + _AROUND) if 0 <= at < len(own)
        })  # fmt: skip
        cut = len(near) > _SHOWN
        near = near[:_SHOWN]
        ends = near[-1] + 1 == len(own) and not cut
        one, other = (_drawn(own, near, joined) + ("" if ends else " …") for joined in sides)
        return one, other

    def _step(self, choice: int, token: int) -> int:
        """The recorded input that brought a token of a choice."""
        for seq, event in enumerate(self._inputs):
            if isinstance(event, TokensInput) and event.choice == choice:
                token -= len(self._unit(event))
                if token < 0:
                    return seq
        return -1


class _Spent(Exception):
    """No more replays."""


def _whole(event: TokensInput) -> list[TokensInput]:
    return [event]


def _smaller(found: list[int], differs: Callable[[Sequence[int]], bool]) -> Iterable[list[int]]:
    """Ever smaller parts of what differs; the last one is the smallest."""
    found = found[: _least(len(found), lambda size: differs(found[:size]))]
    yield found
    found = found[len(found) - _least(len(found), lambda size: differs(found[len(found) - size :])) :]
    yield found
    parts = 2
    while len(found) > 1:
        size = -(-len(found) // parts)
        for start in range(0, len(found), size):
            rest = found[:start] + found[start + size :]
            if differs(rest):
                found, parts = rest, max(2, parts - 1)
                yield found
                break
        else:
            if size == 1:
                return
            parts = min(len(found), parts * 2)


def _least(size: int, differs: Callable[[int], bool]) -> int:
    """A size at which it differs, and at one less does not. At 0 it does not, at ``size`` it does."""
    low = 0
    while size - low > 1:
        middle = (low + size) // 2
        if differs(middle):
            size = middle
        else:
            low = middle
    return size


def _groups(joined: Joins) -> tuple[tuple[int, int], ...]:
    """The tokens that are one step, as half-open ranges."""
    made: list[tuple[int, int]] = []
    for at in sorted(joined):
        if made and made[-1][1] == at:
            made[-1] = made[-1][0], at + 1
        else:
            made.append((at - 1, at + 1))
    return tuple(made)


def _drawn(own: Sequence[TokensInput], near: Sequence[int], joined: Joins) -> str:
    """Tokens with a line between steps; … for those that are left out."""
    made: list[str] = ["… "] if near[0] > 0 else []
    for place, at in enumerate(near):
        if place and near[place - 1] + 1 < at:
            made.append(" … ")
        elif place or near[0] > 0:
            made.append(" " if at in joined else "| " if not place else " | ")
        made.append(_token(own[at]))
    return "".join(made)


def _token(event: TokensInput) -> str:
    runs = readable(b"".join(event.pieces)) if event.pieces else [(event.text, True)]
    if not event.ids or any(text for text, _ in runs):
        return "".join(_quoted(text) if whole else f"<{text}>" for text, whole in runs) or "''"
    return " ".join(f"#{number}" for number in event.ids)


def _quoted(text: str) -> str:
    return f"'{printable(text if len(text) <= _LETTERS else text[:_LETTERS] + '…')}'"
