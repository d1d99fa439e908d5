"""diff: recorded against replayed, layer by layer, to a verdict and the first divergence."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from replay.coalesce import Run, merge, unnumbered
from replay.custom import NONE, Custom
from replay.derive import Derived, Track, run
from replay.locate import changed, moved, raw, settled
from replay.message_diff import differences, shortened
from replay.message_place import place as message_place
from replay.message_place import worst_of
from replay.verdict import Depth, Difference, Divergence, Verdict, worst
from stages.catalog import Layers
from stages.events import Input, Layer
from stages.opening import Opening

_DERIVED: tuple[Layer, Layer, Layer] = ("semantic", "chunk", "frame")
_SOON = (64, 512)
"""How many events behind the first that differs are looked at before all are: most changes show at once."""


class Session(msgspec.Struct):
    """What a comparison needs to know of the session. ``open``: the record stops somewhere, so each recorded layer must
    be a prefix of the replayed one; ``end``: number of recorded inputs (a replay may have been ended by one more);
    ``custom``: the user's own comparer and rules; ``foreign``: a side is another engine's parser."""

    opening: Opening
    inputs: Sequence[Input]
    layers: Layers
    open: bool
    end: int
    custom: Custom = NONE
    foreign: bool = False


class Comparison(msgspec.Struct):
    """A verdict per layer, and for the message; ``first``: the divergence that explains the worst of them."""

    layers: dict[str, Verdict]
    verdict: Verdict
    first: Divergence | None
    differences: tuple[Difference, ...]


def compare(session: Session, recorded: Derived, replayed: Derived, depth: Depth = "frame") -> Comparison:
    """Compare two derivations of one session down to a depth. Raises ReplayError for what a custom function raises.

    A layer below a change inherits its verdict as long as the recorded layer follows from the recorded one above it: so
    what is blamed is the stage that changed. With anything custom the depth is ``message``; where the events are equal,
    so is the message, and nobody is asked.
    """
    a, b = recorded.semantic, replayed.semantic
    if depth == "message" or session.custom.given:
        return _messages(session, a, b)
    found: dict[str, Verdict] = {}
    places: dict[str, Divergence] = {}
    verdict, place = _semantic(session, a, b)
    message = () if verdict == "same" else said(session, a, b)
    found["message"] = "changed" if message else "same"
    if place is not None:
        place = _told(place, message)
        places["semantic"] = place
        if message:
            places["message"] = place
    found["semantic"] = verdict
    for layer in _DERIVED[1:] if depth == "frame" else _DERIVED[1:2] if depth == "chunk" else ():
        verdict, place = _below(session, layer, recorded, replayed, verdict, bool(message))
        found[layer] = verdict
        if place is not None:
            places[layer] = place
    overall = worst(*found.values())
    first = next((places[layer] for layer in found if found[layer] == overall and layer in places), None)
    return Comparison(found, overall, first, message)


def _messages(session: Session, a: Track, b: Track) -> Comparison:
    """The comparison that ends with the message."""
    message = () if _equal(session, a, b) else said(session, a, b)
    if not message:
        return Comparison({"message": "same"}, "same", None, ())
    if session.custom.given:
        # What is not reported is no difference, wherever it comes.
        place: Divergence | None = message_place(session.inputs, a, b, message)
    else:
        _, place = _semantic(session, a, b)
    return Comparison({"message": "changed"}, "changed", place and _told(place, message), message)


def prefix(shorter: Sequence[object], longer: Sequence[object]) -> bool:
    """``longer`` begins with ``shorter``."""
    return len(shorter) <= len(longer) and shorter == longer[: len(shorter)]


def _semantic(session: Session, a: Track, b: Track) -> tuple[Verdict, Divergence | None]:
    if not _equal(session, a, b):
        verdict, place = _classified(session, "semantic", a, b)
        return verdict, _one_sided(place, a, b) if verdict == "changed" else place
    if prefix(a.causes, b.causes):
        return "same", None
    return "moved", raw(session.inputs, "semantic", a, b, "timing")


def _below(
    session: Session, layer: Layer, recorded: Derived, replayed: Derived, above: Verdict, message: bool
) -> tuple[Verdict, Divergence | None]:
    """The verdict on the chunk or frame layer. ``above``: the one on the layer before; ``message``: the message
    differs."""
    a, b = recorded.track(layer), replayed.track(layer)
    # Looked at first, for it nearly always makes the recorded events, which then need not be decoded.
    follows = above != "same" and _follows(session, layer, recorded)
    if _equal(session, a, b):
        # Where the layer above differs, its numbers do too: then the engine's steps are what is comparable.
        ours, theirs = (a.causes, b.causes) if above == "same" else (a.steps, b.steps)
        if prefix(ours, theirs):
            return "same", None
        return "moved", raw(session.inputs, layer, a, b, "cause" if prefix(a.steps, b.steps) else "timing")
    if not follows:
        if layer == "chunk":
            return _classified(session, layer, a, b)
        return "changed", raw(session.inputs, layer, a, b, "frame")
    if layer == "chunk" and above == "changed" and not message:
        # What differs above may be hidden from clients: markers, byte ranges.
        return _classified(session, layer, a, b)
    return above, None


def _equal(session: Session, a: Track, b: Track) -> bool:
    """The layers are equal; of an open session, the recorded one is a prefix of what its inputs alone give."""
    if not session.open:
        return b.share(a)
    return prefix(a.events, b.events[: bisect_left(b.steps, session.end)])


def _follows(session: Session, layer: Layer, recorded: Derived) -> bool:
    """The recorded layer is what the stage before it makes of the recorded layer above."""
    above, stage = (
        (recorded.semantic, session.layers.encoder) if layer == "chunk" else (recorded.chunk, session.layers.framer)
    )
    made, _ = run(stage, layer, session.opening, above.events, above.steps)
    have = recorded.track(layer)
    if session.open:
        return prefix(have.events, made.events) and prefix(have.causes, made.causes)
    return made.share(have) and have.causes == made.causes


def _classified(session: Session, layer: Layer, a: Track, b: Track) -> tuple[Verdict, Divergence]:
    """The verdict on a layer whose events differ."""
    # What both begin with changes nothing, however it is merged.
    rows = zip(zip(a.events, a.steps, strict=True), zip(b.events, b.steps, strict=True), strict=False)
    first = next((seq for seq, (one, other) in enumerate(rows) if one != other), min(len(a.events), len(b.events)))
    place = _soon(session, layer, a, b, first)
    if place is not None:
        return "changed", place
    steps_a = merge(layer, a.events, a.steps, "step", first)
    steps_b = merge(layer, b.events, b.steps, "step", first)
    cut = steps_b[: len(steps_a)] if session.open else steps_b
    last = len(steps_a) - 1
    if len(steps_a) == len(cut) and all(
        one.steps[0] == other.steps[0] and one.same(other, prefix=session.open and place == last)
        for place, (one, other) in enumerate(zip(steps_a, cut, strict=True))
    ):
        return "rechunked", raw(session.inputs, layer, a, b, "chunking")
    lanes_a = merge(layer, a.events, a.steps, "lane", first)
    lanes_b = merge(layer, b.events, b.steps, "lane", first)
    place = changed(session.inputs, layer, (a, lanes_a), (b, lanes_b), first, session.open)
    if place is not None:
        return "changed", place
    return "moved", moved(session.inputs, layer, (a, lanes_a), (b, lanes_b))


def _soon(session: Session, layer: Layer, a: Track, b: Track, first: int) -> Divergence | None:
    """Where the layers part for good, if the events behind the first that differs tell it."""
    for size in _SOON:
        if first + size >= min(len(a.events), len(b.events)):
            return None
        # Whole steps only: a lane may go on in the rest of one.
        until = min(a.steps[first + size], b.steps[first + size])
        sides: list[tuple[Track, list[Run]]] = []
        for track in (a, b):
            end = bisect_left(track.steps, until, first)
            sides.append((track, merge(layer, track.events[:end], track.steps, "lane", first)))
        place = settled(session.inputs, layer, sides[0], sides[1], first)
        if place is not None:
            return place
    return None


def said(session: Session, recorded: Track, replayed: Track) -> tuple[Difference, ...]:
    """What the replayed message says otherwise, and counts. Raises ReplayError for what a custom function raises."""
    custom = session.custom
    named = session.opening.ask.named
    before, after = recorded.messages(named=named), replayed.messages(named=named)
    if session.open:
        after = shortened(before, after)
    if custom.compare is not None:
        return custom.compared(before, after)
    return custom.kept(differences(before, after, recorded.events, session.opening.tokenizer))


def _told(place: Divergence, message: tuple[Difference, ...]) -> Divergence:
    """Of a changed message, the divergence says what it does, at its worst, to the message."""
    return msgspec.structs.replace(place, worst=worst_of(message).kind) if message else place


# --- which side has more ----------------------------------------------------------------------------------------------


def _one_sided(place: Divergence, a: Track, b: Track) -> Divergence:
    """Where one side only has something more, what the other goes on with is chance: then it has nothing there."""
    one, other = place.recorded, place.replayed
    if one is None or other is None or one.type == other.type:
        return place
    here, there = (a, one.seq), (b, other.seq)
    for follows in (_comes, _behind):
        if follows(here, there):
            return msgspec.structs.replace(place, replayed=None)
        if follows(there, here):
            return msgspec.structs.replace(place, recorded=None, seq=other.seq)
    return place


_Spot: TypeAlias = tuple[Track, int]
"""A track and a seq in it."""


def _comes(spot: _Spot, other: _Spot) -> bool:
    """The first goes on with the event at the other soon behind its own."""
    (track, seq), (theirs, place) = spot, other
    return unnumbered(theirs.events[place]) in map(unnumbered, track.events[seq + 1 : seq + 8])


def _behind(spot: _Spot, other: _Spot) -> bool:
    """What the other has there was written behind what the first has."""
    (track, seq), (theirs, place) = spot, other
    mine, written = (getattr(event, "src", None) for event in (track.events[seq], theirs.events[place]))
    return mine is not None and written is not None and 0 < mine[1] <= written[0]
