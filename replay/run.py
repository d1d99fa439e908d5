"""Replayer: recorded sessions in, a result per session out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from replay import arguments, relayed
from replay.baseline import flush_of, is_open
from replay.conclude import result_of
from replay.custom import Comparer, Custom, Ignore
from replay.derive import Assemble, StageFailure
from replay.diff import Session
from replay.errors import ParserNotFound, ReplayError
from replay.loose import is_foreign, is_foreign_track
from replay.resolve import Parser, resolve
from replay.result import Finding, SessionResult, Signature
from replay.sides import Both, Compared, Plan, against, paired, served
from replay.sizes import Histogram
from replay.verdict import DEPTHS, VERDICTS, Depth, Verdict
from stages import catalog
from stages.catalog import Layers
from stages.errors import StagesError
from stages.events import Input
from stages.opening import Opening
from store.api import SHADOW, Trace

RECORDED = "recorded"
"""The baseline that is the record."""


class Replayer:
    """Replays recorded sessions through a parser and compares what comes out with what was recorded.

        from replay import Replayer, traces

        replayer = Replayer("hermes", layer="message", ignore=[lambda item: item.kind == "finish_reason"])
        for result in replayer.replay_many(traces("playhead.db")):
            print(result.verdict, result.session, *(item.field for item in result.differences))

    ``parser``: a stage, a class or function without arguments that makes one, or a name as ``--parser`` takes it; None:
    each session's own. ``splits``: how the recorded tokens are grouped; under any other than ``recorded`` only messages
    are compared. ``layer``: how deep. ``track``: the recorded track to compare with; None: what the client got, which
    is ``served``, or ``upstream`` where another server's response was relayed. ``fail_fast``: ``replay_many`` ends with
    the first session that is changed or failed. ``assemble``: makes the stages of a session.

    ``baseline``: what is compared with: the record (None, ``recorded``), or what this other parser makes of the same
    inputs today; then of a relayed session the semantic layer is the last that is compared. Where the baseline fails,
    the session is ``uncompared``.

    ``compare``: finds the differences of messages in place of the built-in comparison; ``ignore``: rules, each of which
    may leave a difference out. With either, the comparison is at the depth ``message``, whatever ``layer`` says: a
    session in which nothing is left to differ is ``same``, however its deltas, its timing and its bytes differ. A
    comparer is asked where the semantic events differ only, and is given messages without call ids where a side is
    another engine's. Oracles, marks and the dependence on splits are not theirs to ignore.

    ``cut``: also end each session early, at each of its tokens. ``histogram``: tokens in a step → how often, for the
    split that draws from it. One thread at a time. Raises ReplayError for a parser
    or split that cannot be had, and, while it replays, for what ``compare`` or ``ignore`` raise; a session whose own
    parser cannot be had has the verdict ``uncompared``, and ``unreplayed`` says why.
    """

    def __init__(
        self,
        parser: Parser | str | None = None,
        *,
        splits: Sequence[str] = (RECORDED,),
        layer: Depth = "frame",
        track: str | None = None,
        fail_fast: bool = False,
        assemble: Assemble = catalog.layers,
        baseline: Parser | str | None = None,
        compare: Comparer | None = None,
        ignore: Sequence[Ignore] = (),
        cut: bool = False,
        histogram: Histogram = (),
    ) -> None:
        if layer not in DEPTHS:
            raise ReplayError(f"there is no layer {layer!r} to compare down to: use {', '.join(DEPTHS)}")
        if track == SHADOW:
            raise ReplayError(f"track {track!r} names no parser: {SHADOW}P is what P made of a session")
        self._parser = _had(parser)
        self._baseline = None if baseline == RECORDED else _had(arguments.baseline(baseline))
        if self._baseline is not None and track is not None:
            raise ReplayError(f"track {track!r} and a baseline parser: a replay is compared with one of them")
        self._track = track
        self._fail_fast = fail_fast
        self._assemble = assemble
        if compare is not None:
            arguments.function(compare, "comparer")
        self._custom = Custom(compare, arguments.rules(ignore))
        self._plan = Plan(
            splits=arguments.splits(splits), depth="message" if self._custom.given else layer, cut=cut,
            own=parser is None, track=track, histogram=arguments.histogram(histogram),
        )  # fmt: skip
        self._resolved: dict[str, Parser] = {}

    def replay_many(
        self, traces: Iterable[Trace], source: str = "", *, fail_fast: bool | None = None
    ) -> Iterator[SessionResult]:
        """A result per session, in order, as they are asked for. ``fail_fast``: None: as the Replayer was told. Raises
        as ``replay`` does."""
        return self._each(arguments.traces(traces), source, self._fail_fast if fail_fast is None else fail_fast)

    def _each(self, traces: Iterable[Trace], source: str, ends: bool) -> Iterator[SessionResult]:
        for trace in traces:
            result = self.replay(trace, source)
            yield result
            if ends and at_least(result.verdict, "changed"):
                return

    def replay(self, trace: Trace, source: str = "") -> SessionResult:
        """Replay one session. ``source``: where it comes from, for the result. Raises nothing for what a stage does;
        ReplayError for what a custom function raises, and for what is no session."""
        opening = arguments.trace(trace).opening
        default = relayed.default_track(opening)
        track = self._track or default
        made = partial(result_of, trace, source, track=track if track != default else "")
        try:
            layers, base = self._stages(opening, track)
        except (ReplayError, StagesError) as error:
            why = _absent(_own_name(opening, track), error) if self._parser is None else str(error)
            return made(Finding(verdict="uncompared", unreplayed=why))
        compared = self._compared(self._plan, trace, track, layers, base)
        return made(
            compared.found, layers, compared.derived, baseline="" if base is None else base.parts["parser"].id,
            foreign=_foreign(layers, base),
        )  # fmt: skip

    def both(self, trace: Trace) -> Both | None:
        """Both sides of a session's comparison, for who wants to look at them; None where nothing was replayed. Raises
        as ``replay`` does."""
        track = self._track or relayed.default_track(arguments.trace(trace).opening)
        try:
            layers, base = self._stages(trace.opening, track)
        except (ReplayError, StagesError):
            return None
        plan = msgspec.structs.replace(self._plan, splits=(RECORDED,), cut=False)
        compared = self._compared(plan, trace, track, layers, base)
        if compared.derived is None:
            return None
        inputs = trace.events("input", "engine")
        loose = track == "upstream" or is_foreign_track(track) or _foreign(layers, base)
        return Both([*inputs, *flush_of(trace, inputs)], compared.before, compared.derived.semantic, loose)

    def failed(self, trace: Trace, source: str, error: StageFailure) -> SessionResult:
        """The result of a session whose replay ended the process that it ran in, or did not end: nothing of it runs
        again."""
        default = relayed.default_track(trace.opening)
        track = self._track or default
        layers = base = None
        with suppress(ReplayError, StagesError):
            layers, base = self._stages(trace.opening, track)
        told = error if layers is None else msgspec.structs.replace(error, stage=layers.parts["parser"].id)
        kind = Signature(verdict="failed", kind=error.type, layer=error.layer)
        return result_of(
            trace, source, Finding(verdict="failed", error=told, marks=("failed", "differs"), signature=kind), layers,
            track=track if track != default else "", baseline="" if base is None else base.parts["parser"].id,
        )  # fmt: skip

    def _stages(self, opening: Opening, track: str) -> tuple[Layers, Layers | None]:
        """The stages of the replay, and those of the baseline parser. Raises ReplayError, StagesError."""
        layers = self._layers(opening, track, self._parser)
        return layers, None if self._baseline is None else self._layers(opening, track, self._baseline)

    def _compared(self, plan: Plan, trace: Trace, track: str, layers: Layers, base: Layers | None) -> Compared:
        opening = trace.opening
        inputs: list[Input] = trace.events("input", "engine")
        open = is_open(trace.info.state)
        foreign = _foreign(layers, base) or is_foreign_track(track)
        session = Session(opening, inputs, layers, open, len(inputs), self._custom, foreign)
        if base is not None:
            return paired(plan, session, trace, base)
        if track == relayed.default_track(opening) == "served":
            return served(plan, session, trace, lambda: self._layers(opening, track, None))
        return against(plan, session, trace, track)

    def _layers(self, opening: Opening, track: str, parser: Parser | str | None) -> Layers:
        """The stages with a parser; None: the one that the track was recorded with."""
        if parser is None:
            parser = _own_name(opening, track)
        stage = self._named(parser, opening) if isinstance(parser, str) else parser
        if relayed.default_track(opening) == "upstream" and opening.protocol not in catalog.PROTOCOLS:
            # Nothing is encoded: what any protocol has in front of its encoder is the same.
            opening = msgspec.structs.replace(opening, protocol="chat")
        return self._assemble(opening, stage)

    def _named(self, name: str, opening: Opening) -> Parser:
        """A parser by its name; loaded once a Replayer."""
        if name == "auto":
            return resolve(name, opening)
        parser = self._resolved.get(name)
        if parser is None:
            parser = self._resolved[name] = resolve(name, opening)
        return parser


def at_least(verdict: Verdict, threshold: Verdict) -> bool:
    """The verdict is as far from ``same`` as the threshold, or further."""
    return VERDICTS.index(verdict) >= VERDICTS.index(threshold)


def _foreign(layers: Layers, base: Layers | None) -> bool:
    """A side is another engine's parser."""
    return any(is_foreign(each.parts["parser"]) for each in (layers, base) if each is not None)


def _had(parser: Any) -> Any:
    """The stage that is meant, where that is the same for all sessions."""
    return parser if parser is None or parser == "auto" else resolve(parser)


def _own_name(opening: Opening, track: str) -> str:
    """The parser that a track was recorded with."""
    return track.removeprefix(SHADOW) if track.startswith(SHADOW) else opening.parser


def _absent(parser: str, error: Exception) -> str:
    """Why a session cannot be replayed through the parser it was recorded with."""
    reason = str(error).removeprefix(f"parser {parser!r}: ")
    if isinstance(error, ParserNotFound):
        return f"recorded with {parser}, which is not found from here; give --parser ({reason})"
    return f"recorded with {parser}: {reason}"
