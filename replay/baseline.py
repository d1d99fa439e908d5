"""The baseline: what was recorded of a session's derived layers, or what stands for it.

full            the recorded layers
lean            the recorded parser's derivation, if its digests are the recorded ones; else the digests alone
open, torn      the record stops somewhere: a replay is ended by one more input, so that what is held comes out
incomplete      records were lost: what was derived from lost inputs is left out
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from replay.derive import Derived, Once, Track, derive_layers
from replay.errors import ReplayError
from replay.verdict import DEPTHS, Depth, Divergence, Verdict
from stages.catalog import Layers
from stages.errors import StagesError
from stages.events import AbortInput, ErrorInput, Input, Layer, UsageInput
from store import codec
from store.api import Digest, Rows, State, Trace

_DERIVED: tuple[Layer, Layer, Layer] = ("semantic", "chunk", "frame")


class Baseline(msgspec.Struct):
    """``derived``: what to compare with; None: only ``digests``. ``flush``: the input to add, perhaps none."""

    derived: Derived | None
    digests: dict[str, Digest] = {}
    flush: tuple[Input, ...] = ()
    notes: tuple[str, ...] = ()

    def against(self, derived: Derived, depth: Depth) -> tuple[dict[str, Verdict], Divergence | None]:
        """Where only digests can be compared: a verdict per layer, and the first layer that differs."""
        layers: dict[str, Verdict] = {}
        first: Divergence | None = None
        for layer in _DERIVED[: max(1, DEPTHS.index(depth))]:
            have, want = derived.track(layer).digest(), self.digests.get(f"served/{layer}")
            layers[layer] = "same" if have == want else "changed"
            if have != want and first is None:
                detail = "only digests were recorded: which event differs is unknown"
                if want is not None and want.n != have.n:
                    detail += f"; {want.n} events recorded, {have.n} replayed"
                first = Divergence(layer=layer, kind="unknown", seq=-1, cause=-1, detail=detail)
        return layers, first


def is_open(state: State) -> bool:
    """The record of a session in this state may stop anywhere."""
    return state in ("open", "torn", "incomplete")


def flush_of(trace: Trace, inputs: Sequence[Input]) -> tuple[Input, ...]:
    """The input that ends a session whose record does not, so that what is held comes out."""
    if is_open(trace.info.state) and not (inputs and isinstance(inputs[-1], UsageInput | ErrorInput | AbortInput)):
        return (AbortInput("shutdown"),)
    return ()


def baseline(
    trace: Trace,
    inputs: Sequence[Input],
    recorded: Callable[[], Layers],
    depth: Depth = "frame",
    made: Derived | None = None,
) -> Baseline:
    """The baseline of a session. ``recorded``: makes the stages it was recorded with; may raise ReplayError or
    StagesError, which only a lean session minds. ``depth``: layers below it stay empty; ``made``: what those stages
    give, where that is known."""
    flush = flush_of(trace, inputs)
    if trace.info.mode == "lean":
        return _lean(trace, inputs, flush, recorded, depth, made)
    derived = _recorded(trace, depth)
    if trace.info.state != "incomplete":
        return Baseline(derived, flush=flush)
    lost = sum(_cut(derived.track(layer), len(inputs)) for layer in _DERIVED)
    notes = (f"records were lost: {lost} events that lost inputs caused are left out",) if lost else ()
    return Baseline(derived, flush=flush, notes=notes)


def tracked(trace: Trace, name: str, layer: Layer, above: Track | None = None) -> Track:
    """A recorded layer as a track. ``above``: the layer before it; None: that is the engine's."""
    records = trace.records.get((name, layer), ())
    events = records if isinstance(records, Rows) else [record.event for record in records]
    causes = Once(lambda: trace.causes(name, layer))

    def steps() -> list[int]:
        if above is None:
            return causes()
        before = above.steps
        known = range(len(before))
        return [before[cause] if cause in known else -1 for cause in causes()]

    return Track(events, causes, steps)


def _recorded(trace: Trace, depth: Depth) -> Derived:
    semantic = tracked(trace, "served", "semantic")
    chunk, frame = Track([], [], []), Track([], [], [])
    if depth in ("chunk", "frame"):
        chunk = tracked(trace, "served", "chunk", semantic)
    if depth == "frame":
        frame = tracked(trace, "served", "frame", chunk)
    return Derived(semantic, chunk, frame)


def _cut(track: Track, end: int) -> int:
    """Drop the events from the first one on that no input below ``end`` caused; returns how many."""
    count = len(track.events)
    keep = next((seq for seq, step in enumerate(track.steps) if not 0 <= step < end), count)
    track.cut(keep)
    return count - keep


def _lean(
    trace: Trace,
    inputs: Sequence[Input],
    flush: tuple[Input, ...],
    recorded: Callable[[], Layers],
    depth: Depth,
    made: Derived | None,
) -> Baseline:
    digests: dict[str, Digest] = {}
    layers = _DERIVED[: max(1, DEPTHS.index(depth))]
    if trace.info.digests and not is_open(trace.info.state):
        # A layer in which nothing happened has none: a client may leave before there is anything to send.
        digests = {f"served/{layer}": codec.digest(()) for layer in _DERIVED}
        digests |= {key: value for key, value in trace.info.digests.items() if key.startswith("served/")}
    unproven = ("recorded lean and not to its end: there are no digests to compare with",) if not digests else ()
    derived = None if flush else made
    if derived is None:
        try:
            stages = recorded()
        except (ReplayError, StagesError) as error:
            return Baseline(None, digests, flush, (*unproven, f"the recorded parser cannot be had: {error}"))
        derived = derive_layers(trace.opening, inputs, stages, depth=depth)
    if not digests:
        return Baseline(derived, digests, flush, unproven)
    if all(derived.track(layer).digest() == digests.get(f"served/{layer}") for layer in layers):
        return Baseline(derived, digests, flush, ("recorded lean: derived again, and equal to the recorded digests",))
    return Baseline(None, digests, flush, ("recorded lean: the stages of today do not give the recorded digests",))
