"""The layers of another server's session, derived again: its own parse, and what the client got of its response.

    upstream/frame  ──DECODERS──▶  upstream/semantic    verdict ``upstream``
                    ──RELAY─────▶  served/frame         verdict ``relay``, of a relayed session

Both stages take the frames, and then one last event: ``End``, or the error or abort that ended the session.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec

from replay.baseline import is_open
from replay.derive import Track
from replay.diff import prefix
from replay.plain import byte_of, where
from replay.text import describe, tag
from replay.verdict import VERDICTS, Depth, Divergence, Side, Verdict
from stages.events import AbortInput, End, ErrorInput, Frame, Layer
from stages.opening import Opening
from stages.stage import Stage, fold_causes
from stages.upstream.decode import DECODERS
from stages.upstream.inputs import INPUTS
from stages.upstream.relay import RELAY
from store import codec
from store.api import ENDED, Record, Trace

Last: TypeAlias = End | ErrorInput | AbortInput


class Checked(msgspec.Struct):
    """``layers``: a verdict for each layer that was derived again; ``first``: where the first that differs does;
    ``theirs``: the server's own parse, recorded or made again, its causes frames; None where there is none."""

    layers: dict[str, Verdict] = {}
    first: Divergence | None = None
    notes: tuple[str, ...] = ()
    theirs: Track | None = None


class _Layer(msgspec.Struct):
    """A layer to derive again. ``name``: of its verdict."""

    name: str
    track: str
    layer: Layer
    stage: Stage[Any, Any]

    @property
    def key(self) -> str:
        """As the store calls it."""
        return f"{self.track}/{self.layer}"


def checked(trace: Trace, depth: Depth = "frame") -> Checked:
    """Derive again what was recorded of another server's response. ``depth``: with ``message`` nothing is compared, the
    relay with ``frame`` only."""
    found = Checked(theirs=_recorded(trace, "upstream", "semantic"))
    if _recorded(trace, "upstream", "frame") is None:
        return found
    decoder = decoder_of(trace.opening)
    if decoder is not None:
        if found.theirs is None:
            found.theirs = _made(trace, decoder, _lasts(trace)[0])
        if depth != "message":
            _check(found, trace, _Layer("upstream", "upstream", "semantic", decoder))
    if depth == "frame" and relayed(trace.opening):
        _check(found, trace, _Layer("relay", "served", "frame", RELAY))
    return found


def relayed(opening: Opening) -> bool:
    """The client got another server's own response."""
    return opening.upstream is not None and opening.upstream.relayed


def translated(opening: Opening) -> bool:
    """Our stages made the response, of what another server says that its model meant."""
    upstream = opening.upstream
    return upstream is not None and not upstream.relayed and upstream.depth == "verbatim"


def decoder_of(opening: Opening) -> Stage[Any, Any] | None:
    """What reads the response of the session's upstream; None where nothing did: it speaks no protocol of clients."""
    if opening.upstream is None:
        return None
    if opening.upstream.relayed:
        return DECODERS.get(opening.protocol)
    names = {_name(number) for number in opening.stages.values()}
    return next((stage for stage in DECODERS.values() if _name(stage.id) in names), None)


def stages_of(opening: Opening) -> dict[str, str]:
    """The stages of today that read a response, in the roles in which the session has them."""
    if opening.upstream is None:
        return {}
    ids = [*(stage.id for stage in DECODERS.values()), *(stage.id for stage in INPUTS.values()), RELAY.id]
    present = {_name(number): number for number in ids}
    return {role: present[name] for role, number in opening.stages.items() if (name := _name(number)) in present}


def relay_of(trace: Trace) -> Sequence[Record]:
    """What the client of a relayed session got: recorded, or relayed again, then at the times of the upstream's
    frames."""
    records = trace.records.get(("served", "frame"))
    if records is not None or trace.info.mode == "full":
        return records or []
    times = [record.at for record in trace.records.get(("upstream", "frame"), ())] or [0]
    made = _made(trace, RELAY, _lasts(trace)[0])
    return [
        Record(seq, cause, times[max(cause, 0)], event)
        for seq, (event, cause) in enumerate(zip(made.events, made.causes, strict=True))
    ]


def _name(number: str) -> str:
    return number.partition("@")[0]


# --- one layer --------------------------------------------------------------------------------------------------------


def _check(found: Checked, trace: Trace, layer: _Layer) -> None:
    have = _recorded(trace, layer.track, layer.layer)
    want = trace.info.digests.get(layer.key)
    if have is None and want is None:
        return
    # An error at the end may be the upstream's own, which its frames tell, or the connection's.
    tried = [_made(trace, layer.stage, last) for last in _lasts(trace)]
    if have is None:
        verdict: Verdict = "same" if any(codec.digest(made.events) == want for made in tried) else "changed"
        place = None
        if verdict != "same":
            detail = f"{layer.key}: only a digest was recorded: which event differs is unknown"
            place = Divergence(layer=layer.layer, kind="unknown", seq=-1, cause=-1, detail=detail, track=layer.track)
    else:
        results = [_compared(trace, layer, have, made) for made in tried]
        verdict, place = min(results, key=lambda result: VERDICTS.index(result[0]))
    found.layers[layer.name] = verdict
    found.first = found.first or place


def _compared(trace: Trace, layer: _Layer, have: Track, made: Track) -> tuple[Verdict, Divergence | None]:
    open = is_open(trace.info.state)
    if prefix(have.events, made.events) if open else have.events == made.events:
        if have.causes == made.causes[: len(have.causes)]:
            return "same", None
        verdict: Verdict = "moved"
    else:
        verdict = "changed"
    rows = zip(zip(have.events, have.causes, strict=True), zip(made.events, made.causes, strict=True), strict=False)
    at = next(
        (
            seq for seq, (one, other) in enumerate(rows)
            if (one != other if verdict == "moved" else one[0] != other[0])
        ),
        min(len(have.events), len(made.events)),
    )  # fmt: skip
    return verdict, _place(trace.events("upstream", "frame"), layer, have, made, at)


def _place(frames: Sequence[Frame], layer: _Layer, have: Track, made: Track, at: int) -> Divergence:
    one = have.events[at] if at < len(have.events) else None
    other = made.events[at] if at < len(made.events) else None
    cause = next((track.causes[at] for track in (made, have) if at < len(track.causes)), -1)
    detail = layer.key
    byte = 0
    if one is not None and other is not None and one != other:
        byte = byte_of(one, other) or 0
        inside = where(one, other) if one.__class__ is other.__class__ else ""
        detail += f", {inside}" if inside else ""
    elif one is not None and other is not None:
        detail += f": recorded from frame {have.causes[at]}, derived again from frame {made.causes[at]}"
    sides = (None if event is None else Side(at, -1, describe(event, byte), tag(event)) for event in (one, other))
    recorded, replayed = sides
    return Divergence(
        layer=layer.layer, kind="frame" if layer.layer == "frame" else "event", seq=at, cause=-1,
        input=describe(frames[cause]) if 0 <= cause < len(frames) else "", detail=detail, recorded=recorded,
        replayed=replayed, track=layer.track, frame=cause,
    )  # fmt: skip


def _recorded(trace: Trace, track: str, layer: Layer) -> Track | None:
    """None where it was not recorded. What ended the response counts to its last frame."""
    records = trace.records.get((track, layer))
    if records is None:
        kept = trace.info.mode == "full" or (track, layer) == ("upstream", "frame")
        return Track([], [], []) if kept and trace.info.state in ENDED else None
    last = len(trace.records.get(("upstream", "frame"), ())) - 1
    causes = [min(record.cause, last) for record in records]
    return Track([record.event for record in records], causes, causes)


def _made(trace: Trace, stage: Stage[Any, Any], last: Last | None) -> Track:
    frames: list[Frame] = trace.events("upstream", "frame")
    events, causes = fold_causes(stage.start(trace.opening), [*frames, *([] if last is None else [last])])
    causes = [min(cause, len(frames) - 1) for cause in causes]
    return Track(events, causes, causes)


def _lasts(trace: Trace) -> list[Last | None]:
    """What may have ended the response, likeliest first; None: nothing yet, where the record may stop anywhere."""
    if is_open(trace.info.state):
        return [None]
    records = trace.records.get(("input", "engine"), ())
    told = records[-1].event if records else None
    if isinstance(told, AbortInput):
        return [told]
    if isinstance(told, ErrorInput):
        return [told, End()]
    # Of a response that had said all, what ended it is not told.
    return [End()] if trace.info.state == "closed" else [End(), AbortInput("client")]
