"""diff: recorded against replayed, layer by layer, to a verdict and the first divergence."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import msgspec

from replay.coalesce import merge
from replay.derive import Derived, Track, run
from replay.locate import changed, moved, raw
from replay.message_diff import differences, shortened
from replay.verdict import Depth, Difference, Divergence, Verdict, worst
from stages.catalog import Layers
from stages.events import Input, Layer
from stages.message import collect
from stages.opening import Opening

_DERIVED: tuple[Layer, Layer, Layer] = ("semantic", "chunk", "frame")


class Session(msgspec.Struct):
    """What a comparison needs to know of the session. ``open``: the record stops somewhere, so each recorded layer must
    be a prefix of the replayed one; ``end``: number of recorded inputs (a replay may have been ended by one more)."""

    opening: Opening
    inputs: Sequence[Input]
    layers: Layers
    open: bool
    end: int


class Comparison(msgspec.Struct):
    """A verdict per layer, and for the message; ``first``: the divergence that explains the worst of them."""

    layers: dict[str, Verdict]
    verdict: Verdict
    first: Divergence | None
    differences: tuple[Difference, ...]


def compare(session: Session, recorded: Derived, replayed: Derived, depth: Depth = "frame") -> Comparison:
    """Compare two derivations of one session down to a depth.

    A layer below a change inherits its verdict as long as the recorded layer follows from the recorded one above it: so
    what is blamed is the stage that changed.
    """
    found: dict[str, Verdict] = {}
    places: dict[str, Divergence] = {}
    verdict, place = _semantic(session, recorded.semantic, replayed.semantic)
    message = () if verdict == "same" else _message(session, recorded, replayed)
    found["message"] = "changed" if message else "same"
    if place is not None:
        place = _told(place, message)
        places["semantic"] = place
        if message:
            places["message"] = place
    if depth != "message":
        found["semantic"] = verdict
        for layer in _DERIVED[1:] if depth == "frame" else _DERIVED[1:2] if depth == "chunk" else ():
            verdict, place = _below(session, layer, recorded, replayed, verdict, bool(message))
            found[layer] = verdict
            if place is not None:
                places[layer] = place
    overall = worst(*found.values())
    first = next((places[layer] for layer in found if found[layer] == overall and layer in places), None)
    return Comparison(found, overall, first, message)


def prefix(shorter: Sequence[object], longer: Sequence[object]) -> bool:
    """``longer`` begins with ``shorter``."""
    return len(shorter) <= len(longer) and shorter == longer[: len(shorter)]


def _semantic(session: Session, a: Track, b: Track) -> tuple[Verdict, Divergence | None]:
    if not _equal(session, a.events, b.events, b.steps):
        return _classified(session, "semantic", a, b)
    if prefix(a.causes, b.causes):
        return "same", None
    return "moved", raw(session.inputs, "semantic", a, b, "timing")


def _below(
    session: Session, layer: Layer, recorded: Derived, replayed: Derived, above: Verdict, message: bool
) -> tuple[Verdict, Divergence | None]:
    """The verdict on the chunk or frame layer. ``above``: the one on the layer before; ``message``: the message
    differs."""
    a, b = recorded.track(layer), replayed.track(layer)
    if _equal(session, a.events, b.events, b.steps):
        # Where the layer above differs, its numbers do too: then the engine's steps are what is comparable.
        ours, theirs = (a.causes, b.causes) if above == "same" else (a.steps, b.steps)
        if prefix(ours, theirs):
            return "same", None
        return "moved", raw(session.inputs, layer, a, b, "cause" if prefix(a.steps, b.steps) else "timing")
    if above == "same" or not _follows(session, layer, recorded):
        if layer == "chunk":
            return _classified(session, layer, a, b)
        return "changed", raw(session.inputs, layer, a, b, "frame")
    if layer == "chunk" and above == "changed" and not message:
        # What differs above may be hidden from clients: markers, byte ranges.
        return _classified(session, layer, a, b)
    return above, None


def _equal(session: Session, a: list[object], b: list[object], steps: list[int]) -> bool:
    """The layers are equal; of an open session, the recorded one is a prefix of what its inputs alone give."""
    if not session.open:
        return a == b
    return prefix(a, b[: bisect_left(steps, session.end)])


def _follows(session: Session, layer: Layer, recorded: Derived) -> bool:
    """The recorded layer is what the stage before it makes of the recorded layer above."""
    above, stage = (
        (recorded.semantic, session.layers.encoder) if layer == "chunk" else (recorded.chunk, session.layers.framer)
    )
    made, _ = run(stage, layer, session.opening, above.events, above.steps)
    have = recorded.track(layer)
    if session.open:
        return prefix(have.events, made.events) and prefix(have.causes, made.causes)
    return have.events == made.events and have.causes == made.causes


def _classified(session: Session, layer: Layer, a: Track, b: Track) -> tuple[Verdict, Divergence]:
    """The verdict on a layer whose events differ."""
    # What both begin with changes nothing, however it is merged.
    rows = zip(zip(a.events, a.steps, strict=True), zip(b.events, b.steps, strict=True), strict=False)
    first = next((seq for seq, (one, other) in enumerate(rows) if one != other), min(len(a.events), len(b.events)))
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


def _message(session: Session, recorded: Derived, replayed: Derived) -> tuple[Difference, ...]:
    named = session.opening.ask.named
    before, after = collect(recorded.semantic.events, named=named), collect(replayed.semantic.events, named=named)
    if session.open:
        after = shortened(before, after)
    return differences(before, after, recorded.semantic.events, session.opening.tokenizer)


def _told(place: Divergence, message: tuple[Difference, ...]) -> Divergence:
    """Of a changed message, the divergence says what it does, at its worst, to the message."""
    mine = [item for item in message if place.choice is None or item.choice == place.choice]
    return msgspec.structs.replace(place, worst=mine[0].kind) if mine else place
