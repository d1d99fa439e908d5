"""derive: what follows from a session's opening and inputs. Serving, recorded and replayed are all this one fold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias, get_args

import msgspec

from replay.place import place
from replay.resolve import Parser, resolve
from replay.text import describe, sound
from replay.verdict import Depth
from stages import catalog
from stages.catalog import Layers
from stages.events import Input, Layer, Semantic
from stages.opening import Opening
from stages.stage import Chain, Stage

Assemble: TypeAlias = Callable[[Opening, Parser | None], Layers]
"""The stages of a session under a parser; ``stages.catalog.layers`` is the one that serving uses."""

SEMANTIC: frozenset[type] = frozenset(get_args(Semantic))


class StageFailure(msgspec.Struct, frozen=True):
    """A stage raised, or gave what is no event of its layer.

    ``layer``: what it was to produce; ``seq``: the event it was at, in the layer before (-1: it did not start);
    ``step``: the engine-layer input that event came from, and ``input`` that event, for people; ``type`` and
    ``message``: the exception's; ``where``: file:line of the parser's code that raised, where that is known.
    """

    layer: Layer
    stage: str
    seq: int
    step: int
    input: str
    type: str
    message: str
    where: str = ""


class Track(msgspec.Struct):
    """One layer: its events; beside each, in ``causes``, the seq in the layer before, and in ``steps`` the seq of the
    engine-layer input that it came from in the end (-1: nothing that is known)."""

    events: list[Any]
    causes: list[int]
    steps: list[int]


class Derived(msgspec.Struct):
    """The three derived layers. ``failed``: a stage failed; what it gave before is there, and what follows from it."""

    semantic: Track
    chunk: Track
    frame: Track
    failed: StageFailure | None = None

    def track(self, layer: Layer) -> Track:
        """The track of a derived layer. Raises ValueError for the engine layer."""
        match layer:
            case "semantic":
                return self.semantic
            case "chunk":
                return self.chunk
            case "frame":
                return self.frame
            case "engine":
                raise ValueError("the engine layer is not derived")


def derive(
    opening: Opening,
    inputs: Iterable[Input],
    parser: Parser | str | None = None,
    *,
    assemble: Assemble = catalog.layers,
) -> Derived:
    """Derive a session's semantic, chunk and frame layers.

    ``parser``: a stage, or a name as ``--parser`` takes it; None is the opening's own. A stage that raises does not
    raise here: see ``Derived.failed``. Raises ReplayError for a parser that cannot be had, UnknownName for a protocol.
    """
    stage = resolve(opening.parser if parser is None else parser, opening)
    return derive_layers(opening, inputs, assemble(opening, stage))


def derive_layers(opening: Opening, inputs: Iterable[Input], layers: Layers, *, depth: Depth = "frame") -> Derived:
    """Like ``derive``, with all stages given. ``depth``: layers below it stay empty."""
    given = list(inputs)
    semantic, failed = run(layers.semantic, "semantic", opening, given, range(len(given)))
    chunk, frame = Track([], [], []), Track([], [], [])
    if depth in ("chunk", "frame"):
        chunk, failed_encoder = run(layers.encoder, "chunk", opening, semantic.events, semantic.steps)
        failed = failed or failed_encoder
    if depth == "frame":
        frame, failed_framer = run(layers.framer, "frame", opening, chunk.events, chunk.steps)
        failed = failed or failed_framer
    return Derived(semantic, chunk, frame, failed)


def run(
    stage: Stage[Any, Any], layer: Layer, opening: Opening, events: Sequence[Any], steps: Sequence[int]
) -> tuple[Track, StageFailure | None]:
    """Run one stage over the layer before it, whose engine-layer steps are ``steps``.

    As live, a step that raises gives nothing and is the last.
    """
    out: list[Any] = []
    causes: list[int] = []
    seq = -1
    done = 0
    error: BaseException | None = None
    try:
        step = stage.start(opening).step
        for seq, event in enumerate(events):
            step(event, out)
            made = len(out) - done
            if made:
                done += made
                causes += [seq] * made
    except (Exception, SystemExit) as raised:  # a user's or a foreign parser may raise anything
        error = raised
        del out[done:]
    if error is None and layer == "semantic" and not {event.__class__ for event in out} <= SEMANTIC:
        strange = next(i for i, event in enumerate(out) if event.__class__ not in SEMANTIC)
        error = TypeError(f"emitted {out[strange].__class__.__name__}, which is no semantic event")
        seq = causes[strange]
        del out[strange:], causes[strange:]
    track = Track(out, causes, [steps[cause] for cause in causes])
    if error is None:
        return track, None
    name = stage.id
    if isinstance(stage, Chain):
        # What follows the parser in its layer is total on events: alone, the parser shows what it did.
        first: Stage[Any, Any] = stage.stages[0]
        name = first.id
        if len(stage.stages) > 1:
            _, blamed = run(first, layer, opening, events[: seq + 1], steps)
            if blamed is not None:
                return track, blamed
    return track, failure(error, name, layer, seq, events, steps, place(error))


def failure(
    error: BaseException,
    stage: str,
    layer: Layer,
    seq: int,
    events: Sequence[Any],
    steps: Sequence[int],
    where: str = "",
) -> StageFailure:
    """What to tell of a stage that raised at ``events[seq]``."""
    known = 0 <= seq < len(events)
    return StageFailure(
        layer, stage, seq, steps[seq] if known else -1, describe(events[seq]) if known else "", type(error).__name__,
        sound(str(error)), where,
    )  # fmt: skip
