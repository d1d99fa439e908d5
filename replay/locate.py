"""Where two layers part: the first divergence, its cause and both sides."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any, TypeAlias

import msgspec

from replay.coalesce import Lane, Run, unnumbered
from replay.derive import Track
from replay.plain import byte_of, where
from replay.text import describe, first_difference, tag
from replay.verdict import Divergence, Kind, Side
from replay.visible import Meter
from stages.events import (
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    Dropped,
    End,
    Failure,
    Fault,
    Finish,
    Input,
    Layer,
    Marker,
    Reasoning,
    Refusal,
    Start,
    Tick,
    Tokens,
    Usage,
)

Merged: TypeAlias = tuple[Track, list[Run]]
"""A layer and its runs, lane by lane."""

_Spot: TypeAlias = tuple[Run, int] | None
"""A run and the offset of a character in it; None: nothing on this side."""

_KINDS: dict[type, Kind] = {
    Start: "start", Tokens: "tokens", Marker: "marker", Dropped: "dropped", Fault: "fault_detail",
    Finish: "finish_detail", Usage: "usage", Failure: "failure", End: "end", Tick: "tick",
}  # fmt: skip
_DELTAS: dict[tuple[type, str], Kind] = {
    (Content, "text"): "text", (Reasoning, "text"): "text", (Refusal, "text"): "text",
    (CallArguments, "text"): "call_arguments", (CallStart, "name"): "call_name", (CallStart, "id"): "call_id",
    (CallEnd, "complete"): "call_complete", (Finish, "reason"): "finish_reason",
}  # fmt: skip
"""An event and the field that differs."""


def raw(inputs: Sequence[Input], layer: Layer, a: Track, b: Track, kind: Kind) -> Divergence:
    """The first event that is not the same, or has not the same cause."""
    shorter = min(len(a.events), len(b.events))
    at = next(
        (
            seq for seq in range(shorter)
            if a.events[seq] != b.events[seq] or (a.causes[seq], a.steps[seq]) != (b.causes[seq], b.steps[seq])
        ),
        shorter,
    )  # fmt: skip
    detail = ""
    byte = 0
    if at < shorter and a.events[at] != b.events[at]:
        detail = _where(a.events[at], b.events[at])
        byte = byte_of(a.events[at], b.events[at]) or 0
    elif at < shorter and kind == "cause":
        detail = f"recorded cause {a.causes[at]}, replayed {b.causes[at]}"
    elif at < shorter:
        detail = Meter(inputs).later(_choice(a, b, at), a.steps[at], b.steps[at])
    return _divergence(inputs, layer, kind, _side(a, at, byte), _side(b, at, byte), _choice(a, b, at), detail)


def changed(inputs: Sequence[Input], layer: Layer, a: Merged, b: Merged, first: int, open: bool) -> Divergence | None:
    """The first difference, by the engine's steps, that no merging explains; None if there is none. ``first``: the seq
    up to which both are equal; ``open``: the recorded side may stop short in each lane."""
    spots = [spot for spot in _lanes(a[1], b[1], open) if spot is not None]
    return _first(inputs, layer, a, b, first, spots) if spots else None


def settled(inputs: Sequence[Input], layer: Layer, a: Merged, b: Merged, first: int) -> Divergence | None:
    """Of two layers of which only the beginnings are here: what ``changed`` gives of the whole ones, if that is certain
    already; None if it is not."""
    spots: list[tuple[_Spot, _Spot]] = []
    pending = math.inf
    for spot in _lanes(a[1], b[1], open=False):
        if spot is not None and None not in spot:
            spots.append(spot)
        elif spot is not None:  # the other side may have it yet
            pending = min(pending, _step(*spot))
    if not spots or min(_step(*spot) for spot in spots) >= pending:
        return None
    return _first(inputs, layer, a, b, first, spots)


def _first(
    inputs: Sequence[Input], layer: Layer, a: Merged, b: Merged, first: int, spots: list[tuple[_Spot, _Spot]]
) -> Divergence:
    """The first of the places at which lanes part."""
    if layer == "semantic" and _pair(a[0], b[0], first):
        return _at(inputs, layer, a[0], b[0], first, first)
    mine, theirs = min(spots, key=lambda spot: (_step(*spot), _seq(spot[0]), _seq(spot[1])))
    left = None if mine is None else mine[0].seqs[mine[0].part(mine[1])]
    right = None if theirs is None else theirs[0].seqs[theirs[0].part(theirs[1])]
    found = _at(inputs, layer, a[0], b[0], left, right)
    if mine is None or left is None or " at character " not in found.detail:
        return found
    # How the text was cut into events is chance: the character is counted in all of it.
    path = found.detail.rpartition(" at character ")[0]
    said = (event for event in a[0].events[:left] if layer == "semantic" and _alike(event, a[0].events[left]))
    before = sum(len(event.text) for event in said) + mine[1] - mine[0].starts[mine[0].part(mine[1])]
    told = f"{path} at character {before}" if layer == "semantic" and path == "text" else path
    return msgspec.structs.replace(found, detail=told)


def _alike(one: Any, other: Any) -> bool:
    """Two events bring the same text of a message."""
    return one.__class__ is other.__class__ and (one.choice, getattr(one, "index", 0)) == (
        other.choice, getattr(other, "index", 0)
    )  # fmt: skip


def moved(inputs: Sequence[Input], layer: Layer, a: Merged, b: Merged) -> Divergence:
    """Of layers that merging makes equal: the first character or event that another step emitted, and how far off."""
    meter = Meter(inputs)

    def far(choice: int | None, left: int, right: int) -> tuple[int, int]:
        return abs(meter.at(choice, right) - meter.at(choice, left)), abs(right - left)

    first: tuple[int, Run, Run, int] | None = None
    most: tuple[int | None, int, int] = (None, 0, 0)
    for mine, theirs in _pairs(a[1], b[1]):
        for at in sorted({*mine.starts, *theirs.starts}):
            if mine.size and at >= mine.size:
                break
            left, right = mine.steps[mine.part(at)], theirs.steps[theirs.part(at)]
            if left != right:
                most = max(most, (_choice_in(mine.lane), left, right), key=lambda spot: far(*spot))
                if first is None or min(left, right) < first[0]:
                    first = (min(left, right), mine, theirs, at)
    if first is None:
        return raw(inputs, layer, a[0], b[0], "order")
    _, mine, theirs, at = first
    place, other = mine.part(at), theirs.part(at)
    here = (_choice_in(mine.lane), mine.steps[place], theirs.steps[other])
    detail = meter.later(*here)
    if far(*most) > far(*here):
        detail += f", at most {meter.later(*most)}"
    return _divergence(
        inputs, layer, "timing", _side(a[0], mine.seqs[place]), _side(b[0], theirs.seqs[other]), mine.lane[1], detail
    )


def _choice_in(lane: Lane) -> int | None:
    """The choice whose lane this is; None: the session's."""
    return None if lane[0] in ("session", "tick") else lane[1]


# --- lanes ----------------------------------------------------------------------------------------------------------


def _by_lane(runs: list[Run]) -> dict[Lane, list[Run]]:
    lanes: dict[Lane, list[Run]] = {}
    for run in runs:
        lanes.setdefault(run.lane, []).append(run)
    return lanes


def _pairs(a: list[Run], b: list[Run]) -> Iterator[tuple[Run, Run]]:
    lanes_a, lanes_b = _by_lane(a), _by_lane(b)
    for lane, runs in lanes_a.items():
        yield from zip(runs, lanes_b.get(lane, ()), strict=False)


def _lanes(a: list[Run], b: list[Run], open: bool) -> Iterator[tuple[_Spot, _Spot] | None]:
    """For each lane the first difference, or None."""
    lanes_a, lanes_b = _by_lane(a), _by_lane(b)
    for lane in {**lanes_a, **lanes_b}:
        yield _lane(lanes_a.get(lane, []), lanes_b.get(lane, []), open)


def _lane(a: list[Run], b: list[Run], open: bool) -> tuple[_Spot, _Spot] | None:
    for place, (mine, theirs) in enumerate(zip_longest(a, b)):
        if mine is None and open:
            return None
        if mine is None or theirs is None:
            return _spot(mine, 0), _spot(theirs, 0)
        if mine.same(theirs, prefix=open and place == len(a) - 1):
            continue
        if mine.key != theirs.key or mine.text == theirs.text:
            return (mine, 0), (theirs, 0)
        at = first_difference(mine.text, theirs.text)
        # Where a text stops short, what its side has next is what stands against the rest of the other's.
        return _spot(mine, at, _next(a, place)), _spot(theirs, at, _next(b, place))
    return None


def _next(runs: list[Run], place: int) -> Run | None:
    return runs[place + 1] if place + 1 < len(runs) else None


def _spot(run: Run | None, at: int, following: Run | None = None) -> _Spot:
    if run is None:
        return None
    if at and at >= run.size:
        return None if following is None else (following, 0)
    return run, at


def _seq(spot: _Spot) -> float:
    return math.inf if spot is None else spot[0].seqs[spot[0].part(spot[1])]


def _step(mine: _Spot, theirs: _Spot) -> int:
    return min((spot[0].steps[spot[0].part(spot[1])] for spot in (mine, theirs) if spot is not None), default=-1)


# --- divergences ----------------------------------------------------------------------------------------------------


def _at(inputs: Sequence[Input], layer: Layer, a: Track, b: Track, left: int | None, right: int | None) -> Divergence:
    one = None if left is None else a.events[left]
    other = None if right is None else b.events[right]
    choice = _choice_of(other if one is None else one)
    detail = _where(one, other) if one.__class__ is other.__class__ else ""
    kind: Kind = "chunk" if layer == "chunk" else _kind(one, other)
    mine = None if left is None else _side(a, left)
    theirs = None if right is None else _side(b, right)
    return _divergence(inputs, layer, kind, mine, theirs, choice, detail)


def _where(one: Any, other: Any) -> str:
    """The field that differs. A number, only where nothing else does: it follows from what came before."""
    bare, theirs = unnumbered(one), unnumbered(other)
    return where(one, other) if bare == theirs else where(bare, theirs)


def _pair(a: Track, b: Track, seq: int) -> bool:
    """The events at ``seq`` are the same but for something that no cutting of text explains."""
    if seq >= min(len(a.events), len(b.events)) or a.steps[seq] != b.steps[seq]:
        return False
    one, other = a.events[seq], b.events[seq]
    same = one.__class__ is other.__class__ and one != other
    return same and getattr(one, "text", None) == getattr(other, "text", None)


def _kind(one: Any, other: Any) -> Kind:
    """What differs between two semantic events, seen without the message."""
    if {one.__class__, other.__class__} == {Content, Reasoning}:
        return "boundary"
    if one is None or other is None or one.__class__ is not other.__class__:
        present: list[Kind] = [_KINDS[event.__class__] for event in (one, other) if event.__class__ in _KINDS]
        return present[0] if present else "event"
    differing = [name for name in one.__struct_fields__ if getattr(one, name) != getattr(other, name)]
    if differing == ["index"]:
        return "call_index"
    if differing == ["choice"]:
        return "choice"
    if differing == ["src"]:
        return "src"
    own: list[Kind] = [_DELTAS[one.__class__, name] for name in differing if (one.__class__, name) in _DELTAS]
    kind: Kind = own[0] if own else _KINDS.get(one.__class__, "event")
    return kind


def _divergence(
    inputs: Sequence[Input],
    layer: Layer,
    kind: Kind,
    one: Side | None,
    other: Side | None,
    choice: int | None,
    detail: str,
) -> Divergence:
    known = [side for side in (one, other) if side is not None]
    cause = min((side.cause for side in known), default=-1)
    return Divergence(
        layer=layer, kind=kind, seq=known[0].seq if known else -1, cause=cause,
        input=describe(inputs[cause]) if 0 <= cause < len(inputs) else "", choice=choice, detail=detail, recorded=one,
        replayed=other,
    )  # fmt: skip


def _side(track: Track, seq: int, at: int = 0) -> Side | None:
    if seq >= len(track.events):
        return None
    return Side(seq, track.steps[seq], describe(track.events[seq], at), tag(track.events[seq]))


def _choice(a: Track, b: Track, at: int) -> int | None:
    return next((_choice_of(track.events[at]) for track in (a, b) if at < len(track.events)), None)


def _choice_of(event: Any) -> int | None:
    choice = getattr(event, "choice", None)
    if choice is None and len(getattr(event, "choices", ())) == 1:
        choice = getattr(event.choices[0], "index", None)
    return choice if isinstance(choice, int) else None
