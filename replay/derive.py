"""derive: what follows from a session's opening and inputs. Serving, recorded and replayed are all this one fold."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, repeat
from operator import sub
from typing import Any, TypeAlias, get_args

import msgspec

from replay.errors import PeerError
from replay.place import place
from replay.resolve import Parser, resolve
from replay.text import complaint, describe, sound
from replay.verdict import Depth
from stages import catalog
from stages.catalog import Layers
from stages.events import Input, Layer, Semantic
from stages.message import Message, collect
from stages.opening import Opening
from stages.stage import Chain, Stage, run_steps
from store import codec
from store.api import Digest, Rows

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


Numbers: TypeAlias = list[int] | Callable[[], list[int]]
"""Seqs, or what makes them when they are first asked for."""


class Once:
    """What a function gives, asked for once. A track's seqs that follow from others of its own are made of it: a track
    that its own functions knew would not go before the collector comes, with all its events."""

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], list[int]]) -> None:
        self._make = make
        self._made: list[int] | None = None

    def __call__(self) -> list[int]:
        """What it gives. Nobody changes the list."""
        if self._made is None:
            self._made = self._make()
        return self._made


class Track:
    """One layer: its events; beside each, in ``causes``, the seq in the layer before, and in ``steps`` the seq of the
    engine-layer input that it came from in the end (-1: nothing that is known).

    ``events`` may be records as a store gives them: they are decoded when somebody asks for more than whether they are
    equal. Raises then what they raise.
    """

    __slots__ = ("_causes", "_data", "_events", "_said", "_steps")

    def __init__(self, events: list[Any] | Rows, causes: Numbers, steps: Numbers) -> None:
        self._events = events
        self._causes = causes
        self._steps = steps
        self._said: dict[bool, list[Message]] = {}
        self._data: bytes | None = None

    @property
    def events(self) -> list[Any]:
        """See the class. Nobody changes the list."""
        if isinstance(self._events, Rows):
            self._events = self._events.events
        return self._events

    @property
    def causes(self) -> list[int]:
        """See the class."""
        if callable(self._causes):
            self._causes = self._causes()
        return self._causes

    @property
    def steps(self) -> list[int]:
        """See the class."""
        if callable(self._steps):
            self._steps = self._steps()
        return self._steps

    def messages(self, *, named: bool = False) -> list[Message]:
        """What the semantic events say, collected once; see ``stages.message.collect``."""
        if named not in self._said:
            self._said[named] = collect(self.events, named=named)
        return self._said[named]

    def data(self) -> bytes:
        """The canonical bytes of the events; see ``store.codec.encode``, also for what it raises."""
        if self._data is None:
            self._data = codec.encode(self.events)
        return self._data

    def digest(self) -> Digest:
        """See ``store.codec.digest``, also for what it raises."""
        rolling = codec.RollingDigest()
        rolling.add(len(self.events), self.data())
        return rolling.value()

    def share(self, other: Track) -> bool:
        """Whether the other has equal events; then both have one list of them from here on, which is quick to compare
        again, and say one message."""
        if self._events is other._events:
            return True
        stored = other._events.data() if isinstance(other._events, Rows) else None
        if stored is not None and self._encodes_to(stored):
            # Events that are stored as the same bytes are equal: the others need not be decoded.
            other._events, other._said, other._data = self._events, self._said, self._data
            return True
        if self.events != other.events:
            return False
        self._events, self._said, self._data = other._events, other._said, other._data
        return True

    def _encodes_to(self, stored: bytes) -> bool:
        try:
            return self.data() == stored
        except Exception:  # whatever a user's parser put into a field
            return False

    def cut(self, keep: int) -> None:
        """Keep only the first events."""
        self._causes, self._steps = self.causes[:keep], self.steps[:keep]
        self._events = self.events[:keep]
        self._said, self._data = {}, None


class Derived(msgspec.Struct):
    """The three derived layers. ``failed``: a stage failed; what it gave before is there, and what follows from it.

    ``ns``: CPU time of the semantic stage; ``one_shot``: what the parser makes of the whole text at once, of a parser
    that has such a path of its own (another engine's); ``one_shot_error``: what that path raised, "" where it did not.
    """

    semantic: Track
    chunk: Track
    frame: Track
    failed: StageFailure | None = None
    ns: int = 0
    one_shot: list[Message] | None = None
    one_shot_error: str = ""

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
    given = inputs if isinstance(inputs, list) else list(inputs)
    ran = _run(layers.semantic, "semantic", opening, given, None)
    semantic, failed = ran.track, ran.failed
    chunk, frame = Track([], [], []), Track([], [], [])
    if depth in ("chunk", "frame"):
        encoded = _run(layers.encoder, "chunk", opening, semantic.events, lambda: semantic.steps)
        chunk, failed = encoded.track, failed or encoded.failed
    if depth == "frame":
        framed = _run(layers.framer, "frame", opening, chunk.events, lambda: chunk.steps)
        frame, failed = framed.track, failed or framed.failed
    return Derived(semantic, chunk, frame, failed, ran.ns, ran.one_shot, ran.one_shot_error)


def run(
    stage: Stage[Any, Any], layer: Layer, opening: Opening, events: Sequence[Any], steps: Sequence[int]
) -> tuple[Track, StageFailure | None]:
    """Run one stage over the layer before it, whose engine-layer steps are ``steps``.

    As live, a step that raises gives nothing and is the last. Another engine's stage (``foreign = True``) with a method
    ``prepared(opening, events)`` is asked for one that knows these events already, and that is run; of a chain, the
    first stage is asked.
    """
    ran = _run(stage, layer, opening, events, None if isinstance(steps, range) else lambda: steps)
    return ran.track, ran.failed


class _Ran(msgspec.Struct):
    """What running one stage gave. ``failed`` and what follows: see Derived."""

    track: Track
    failed: StageFailure | None
    ns: int = 0
    one_shot: list[Message] | None = None
    one_shot_error: str = ""


def _run(
    stage: Stage[Any, Any],
    layer: Layer,
    opening: Opening,
    events: Sequence[Any],
    steps: Callable[[], Sequence[int]] | None,
) -> _Ran:
    """``steps``: makes those of ``events``; None: they are the events' own seqs."""
    above = steps or (lambda: range(len(events)))
    try:
        ready = _prepared(stage, opening, events)
    except (Exception, SystemExit) as raised:  # as below
        return _Ran(Track([], [], []), failure(raised, first_of(stage).id, layer, -1, events, (), place(raised)))
    out: list[Any] = []
    ends: list[int] = []
    seq, error = -1, None
    began = time.thread_time_ns()
    try:
        machine = ready.start(opening)
        seq = 0
        run_steps(machine, events, out, ends)
    except (Exception, SystemExit) as raised:  # a user's or a foreign parser may raise anything
        error = raised
        seq += len(ends)
        del out[ends[-1] if ends else 0 :]
    ns = time.thread_time_ns() - began
    if layer == "semantic" and not SEMANTIC.issuperset(map(type, out)):
        strange = next(at for at, event in enumerate(out) if event.__class__ not in SEMANTIC)
        error = TypeError(f"emitted {out[strange].__class__.__name__}, which is no semantic event")
        seq = _causes(ends, len(out))[strange]
        del out[strange:]
    track = _track(out, ends, steps and above)
    failed = None if error is None else _blamed(ready, layer, opening, events, above(), seq, error)
    made = _Ran(track, failed, ns)
    parser: Any = first_of(ready)
    if _foreign(parser):
        made.ns, made.one_shot = getattr(parser, "ns", ns), getattr(parser, "one_shot", None)
        made.one_shot_error = getattr(parser, "one_shot_error", "")
    return made


def _foreign(stage: Any) -> bool:
    """See ``replay.loose.is_foreign``: only another engine's has what a user's stage may have by chance."""
    return getattr(stage, "foreign", False) is True


def first_of(stage: Stage[Any, Any]) -> Stage[Any, Any]:
    """The first stage of a chain; the stage itself where it is none."""
    first: Stage[Any, Any] = stage.stages[0] if isinstance(stage, Chain) else stage
    return first


def _prepared(stage: Stage[Any, Any], opening: Opening, events: Sequence[Any]) -> Stage[Any, Any]:
    """The stage, or one that knows the events already where it makes such."""
    first: Any = first_of(stage)
    prepare = getattr(first, "prepared", None)
    if not _foreign(first) or not callable(prepare):
        return stage
    ready: Any = prepare(opening, events)
    return Chain((ready, *stage.stages[1:])) if isinstance(stage, Chain) else ready


def _track(out: list[Any], ends: list[int], above: Callable[[], Sequence[int]] | None) -> Track:
    """``ends``: how many events there were after each step; ``above``: makes the steps of the layer before."""
    size = len(out)
    causes = Once(lambda: _causes(ends, size))
    return Track(out, causes, causes if above is None else lambda: list(map(above().__getitem__, causes())))


def _causes(ends: list[int], size: int) -> list[int]:
    """The cause of each of the first ``size`` events."""
    more = list(map(sub, ends, chain((0,), ends)))
    if more and min(more) < 0:
        return _taken_back(ends, size)
    causes = list(chain.from_iterable(map(repeat, range(len(ends)), more)))
    del causes[size:]
    return causes


def _taken_back(ends: list[int], size: int) -> list[int]:
    """The same where a step takes back what was given before, as a user's parser may."""
    causes: list[int] = []
    done = 0
    for seq, end in enumerate(ends):
        if end > done:
            causes += [seq] * (end - done)
        else:
            del causes[end:]
        done = end
    del causes[size:]
    return causes


def _blamed(
    stage: Stage[Any, Any],
    layer: Layer,
    opening: Opening,
    events: Sequence[Any],
    steps: Sequence[int],
    seq: int,
    error: BaseException,
) -> StageFailure:
    """The stage that failed at ``events[seq]``. What follows the parser in its layer is total on events: alone, the
    parser shows what it did."""
    first = first_of(stage)
    if isinstance(stage, Chain) and len(stage.stages) > 1:
        alone = _run(first, layer, opening, events[: seq + 1], lambda: steps)
        if alone.failed is not None:
            return alone.failed
    return failure(error, first.id, layer, seq, events, steps, place(error))


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
    kind, where = (error.kind, error.where) if isinstance(error, PeerError) else (type(error).__name__, where)
    return StageFailure(
        layer, stage, seq, steps[seq] if known else -1, describe(events[seq]) if known else "", sound(kind),
        complaint(error), sound(where),
    )  # fmt: skip
