"""message_place: the events at which two sides part, found by what their messages say otherwise."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Final, TypeAlias, cast

import msgspec

from replay.derive import Track
from replay.text import describe, first_difference, tag
from replay.verdict import MESSAGE_KINDS, STYLE, Difference, Divergence, Side
from replay.voice import Called, Voice, Words, voices
from stages.events import CallArguments, CallEnd, CallStart, Content, Input, Marker, Reasoning, Refusal

_CALL: Final = re.compile(r"tool_calls\[(\d{1,9})\]")
_TEXT_KINDS: Final = frozenset(("boundary", "marker_leaked", "text", "white_space"))
_TELLING: Final = (Reasoning, Content, Refusal, CallStart, CallArguments, CallEnd, Marker)
"""Events in which sides that have parted meet again."""
_FAR: Final = 1 << 62
_Seqs: TypeAlias = tuple[int | None, int | None]


def worst_of(found: Sequence[Difference]) -> Difference:
    """The most telling of them, over all choices. Raises ValueError where there is none."""
    return min(found, key=lambda item: MESSAGE_KINDS.index(item.kind))


def words_of(item: Difference, voice: Voice) -> Words | None:
    """The text that a difference is in; None: it is in no text."""
    return _words(item.field, voice)


def place(inputs: Sequence[Input], recorded: Track, replayed: Track, found: Sequence[Difference]) -> Divergence:
    """Where the first of the differences is that is no matter of style, if there is such: the events at which the sides
    part, where there are any (else seq and cause are -1); ``worst`` is that of all of them."""
    telling = [item for item in found if item.kind not in STYLE] or list(found)
    first = min(_Places(inputs, recorded, replayed).of(telling), key=_when)
    return msgspec.structs.replace(first, worst=worst_of(telling).kind)


def place_of_worst(
    inputs: Sequence[Input], recorded: Track, replayed: Track, found: Sequence[Difference], first: Divergence
) -> Divergence:
    """Where the worst of the differences is. ``first``: the first place of all; it is that of the worst, too, where the
    sides part there into events of other kinds, and do not meet again before what is worst."""
    worst = worst_of(found).kind
    made = _Places(inputs, recorded, replayed).of([item for item in found if item.kind == worst])
    if any(_leads(first, each, recorded, replayed) for each in made):
        return msgspec.structs.replace(first, worst=worst)
    return min(made, key=_when)


def _when(place: Divergence) -> int:
    return place.cause if place.cause >= 0 else _FAR


# --- from the first place to another ----------------------------------------------------------------------------------


def _leads(first: Divergence, place: Divergence, recorded: Track, replayed: Track) -> bool:
    """What differs at a place follows from how the sides part at the first."""
    if (first.choice or 0) != place.choice:
        return False
    pairs = ((first.recorded, place.recorded), (first.replayed, place.replayed))
    if any(one is not None and other is not None and one.seq == other.seq for one, other in pairs):
        return True
    names = [None if side is None else side.type for side, _ in pairs]
    if names[0] == names[1] or (None in names and "marker" not in names):
        return False  # a text that differs, or is not there
    here, there = (
        _between(track, bisect_left(track.steps, first.cause) if one is None else one.seq, other, place.choice)
        for track, (one, other) in zip((recorded, replayed), pairs, strict=True)
    )
    return not here & there


def _between(track: Track, start: int, place: Side | None, choice: int | None) -> set[Any]:
    """What a choice's events say from an event on, up to a place."""
    return {
        (event.__class__, *(_plain(getattr(event, name, None)) for name in ("index", "name", "text", "src")))
        for event in track.events[start : None if place is None else place.seq]
        if isinstance(event, _TELLING) and event.choice == choice
    }


def _plain(value: Any) -> Any:
    """A user's parser may have lists for ranges."""
    return tuple(cast("tuple[Any, ...]", value)) if isinstance(value, list) else value


# --- from a difference to events --------------------------------------------------------------------------------------


class _Places:
    def __init__(self, inputs: Sequence[Input], recorded: Track, replayed: Track) -> None:
        self._inputs = inputs
        self._tracks = recorded, replayed
        self._before, self._after = voices(recorded.events), voices(replayed.events)

    def of(self, found: Sequence[Difference]) -> list[Divergence]:
        """The place of each."""
        return [self._of(item) for item in found]

    def _of(self, item: Difference) -> Divergence:
        before, after = (said.get(item.choice) or Voice() for said in (self._before, self._after))
        field = _field(item, before, after)
        sides = [
            None if seq is None else Side(seq, track.steps[seq], describe(track.events[seq]), tag(track.events[seq]))
            for seq, track in zip(_seqs(field, before, after), self._tracks, strict=True)
        ]
        known = [side for side in sides if side is not None]
        cause = min((side.cause for side in known), default=-1)
        return Divergence(
            layer="semantic", kind=item.kind, seq=known[0].seq if known else -1, cause=cause,
            input=describe(self._inputs[cause]) if 0 <= cause < len(self._inputs) else "", choice=item.choice,
            detail=_detail(field, before, after) or item.field, recorded=sides[0], replayed=sides[1], worst=item.kind,
        )  # fmt: skip


def _field(item: Difference, before: Voice, after: Voice) -> str:
    """The field of the message that a difference is in: a user's comparer may name another, or all calls together."""
    field = item.field
    if field in before.texts or field in ("finish_reason", "faults"):
        return field
    if (place := _CALL.match(field)) and field != place[0]:
        return field
    if place or field == "tool_calls" or item.kind.startswith("call_") or item.kind == "spelling":
        return _call_field(item, before.calls, after.calls)
    if item.kind in _TEXT_KINDS:
        return next((name for name, words in before.texts.items() if words.text != after.texts[name].text), field)
    return {"finish_reason": "finish_reason", "fault": "faults"}.get(item.kind, field)


def _call_field(item: Difference, mine: Sequence[Called], theirs: Sequence[Called]) -> str:
    """The call that one side has more than the other, or what the first that differs says otherwise."""
    more = {"call_lost": len(mine) > len(theirs), "call_added": len(theirs) > len(mine)}.get(item.kind, False)
    if more:
        return f"tool_calls[{_more(mine, theirs)}]"
    same = list(zip(mine, theirs, strict=False))
    for place, (one, other) in enumerate(same):
        if one.name != other.name:
            return f"tool_calls[{place}].name"
        if one.arguments.text != other.arguments.text:
            return f"tool_calls[{place}].arguments"
    return f"tool_calls[{len(same)}]" if len(mine) != len(theirs) else item.field


def _more(mine: Sequence[Called], theirs: Sequence[Called]) -> int:
    """Which call it is that the longer side has and the shorter has not."""
    one, other = ([(call.name, call.arguments.text) for call in side] for side in (mine, theirs))
    size = min(len(one), len(other))
    begin = next((at for at in range(size) if one[at] != other[at]), size)
    end = next((at for at in range(size) if one[-1 - at] != other[-1 - at]), size)
    if begin + end >= size:
        return begin
    return next((at for at in range(size) if one[at][0] != other[at][0]), size)


def _seqs(field: str, before: Voice, after: Voice) -> _Seqs:
    """The events on both sides that bring what differs; None where nothing does."""
    one, other = _words(field, before), _words(field, after)
    if one is not None or other is not None:
        at = first_difference(one.text if one else "", other.text if other else "")
        left, right = (None if words is None else words.at(at) for words in (one, other))
        return None if left is None else left[0], None if right is None else right[0]
    if field == "finish_reason":
        return (before.finish and before.finish[1]), (after.finish and after.finish[1])
    if field == "faults":
        shared = zip(before.faults, after.faults, strict=False)
        at = next((at for at, (a, b) in enumerate(shared) if a != b), min(len(before.faults), len(after.faults)))
        return _nth(before.fault_seqs, at), _nth(after.fault_seqs, at)
    longer = len(before.calls) - len(after.calls)
    mine, theirs = _called(field, before), _called(field, after)
    if field.endswith(".complete"):
        return (None if mine is None else mine.end), (None if theirs is None else theirs.end)
    if field.endswith("]"):  # one side has it
        mine, theirs = (mine if longer > 0 else None), (theirs if longer < 0 else None)
    return (None if mine is None else mine.seq), (None if theirs is None else theirs.seq)


def _nth(seqs: Sequence[int], at: int) -> int | None:
    return seqs[at] if at < len(seqs) else None


def _words(field: str, voice: Voice) -> Words | None:
    if field in voice.texts:
        return voice.texts[field]
    called = _called(field, voice)
    return called.arguments if called is not None and field.endswith(".arguments") else None


def _called(field: str, voice: Voice) -> Called | None:
    """The call that a field is in."""
    place = _CALL.match(field)
    return voice.calls[int(place[1])] if place and int(place[1]) < len(voice.calls) else None


def _detail(field: str, before: Voice, after: Voice) -> str:
    """Of a text the first character that differs; "" of anything else."""
    one, other = _words(field, before), _words(field, after)
    if one is None or other is None:
        return ""
    return f"text at character {first_difference(one.text, other.text)}"
