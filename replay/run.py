"""Replayer: recorded sessions in, a result per session out."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from replay import relayed
from replay.baseline import Baseline, baseline, flush_of, is_open
from replay.derive import Assemble, Derived, StageFailure, Track, derive_layers, failure
from replay.diff import Comparison, Session, compare
from replay.errors import ParserNotFound, ReplayError
from replay.message_diff import differences
from replay.resolve import Parser, resolve
from replay.result import Finding, SessionResult
from replay.split import check
from replay.splitting import under_splits
from replay.upstream_diff import Told
from replay.upstream_layers import Checked, checked, stages_of
from replay.verdict import VERDICTS, Depth, Verdict, worst
from stages import catalog
from stages.catalog import Layers
from stages.errors import StagesError
from stages.events import Input, Layer, Semantic, TokensInput
from stages.message import collect
from stages.opening import Opening
from store import codec
from store.api import SHADOW, Trace

_DERIVED: tuple[Layer, Layer, Layer] = ("semantic", "chunk", "frame")
_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_decode_semantic = msgspec.msgpack.Decoder(list[Semantic]).decode


class Replayer:
    """Replays recorded sessions through a parser and compares what comes out with what was recorded.

    ``parser``: a stage, or a name as ``--parser`` takes it; None: each session's own. ``splits``: how the recorded
    tokens are grouped; under any other than ``recorded`` only messages are compared. ``layer``: how deep. ``track``:
    the recorded track to compare with; None: what the client got, which is ``served``, or ``upstream`` where another
    server's response was relayed. ``fail_fast``: ``replay_many`` ends with the first session that is changed or failed.
    ``assemble``: makes the stages of a session. One thread at a time. Raises ReplayError for a parser or split that
    cannot be had; after that, a session whose own parser cannot be had has the verdict ``uncompared``, and
    ``unreplayed`` says why.
    """

    def __init__(
        self,
        parser: Parser | str | None = None,
        *,
        splits: Sequence[str] = ("recorded",),
        layer: Depth = "frame",
        track: str | None = None,
        fail_fast: bool = False,
        assemble: Assemble = catalog.layers,
    ) -> None:
        if track == SHADOW:
            raise ReplayError(f"track {track!r} names no parser: {SHADOW}P is what P made of a session")
        self._parser = resolve(parser) if isinstance(parser, str) and parser != "auto" else parser
        self._splits = tuple(check(split) for split in splits)
        self._depth: Depth = layer
        self._track = track
        self._fail_fast = fail_fast
        self._assemble = assemble
        self._resolved: dict[str, Parser] = {}

    def replay_many(self, traces: Iterable[Trace], source: str = "") -> Iterator[SessionResult]:
        """A result per session, in order, as they are asked for."""
        for trace in traces:
            result = self.replay(trace, source)
            yield result
            if self._fail_fast and at_least(result.verdict, "changed"):
                return

    def replay(self, trace: Trace, source: str = "") -> SessionResult:
        """Replay one session. ``source``: where it comes from, for the result. Raises nothing for what a stage does."""
        opening = trace.opening
        track = self._track or relayed.default_track(opening)
        inputs: list[Input] = trace.events("input", "engine")
        checks = None if opening.upstream is None else checked(trace, self._depth)
        own = track == "served" and relayed.default_track(opening) == "served"
        made = partial(_result, trace, source, track if track != relayed.default_track(opening) else "")
        try:
            layers = self._layers(opening, track)
            recorded = Baseline(None, flush=flush_of(trace, inputs))
            if own:
                recorded = baseline(trace, inputs, lambda: self._layers(opening, track, recorded=True))
        except (ReplayError, StagesError) as error:
            why = _absent(self._own_name(opening, track), error) if self._parser is None else str(error)
            return made(Finding(verdict="uncompared", unreplayed=why), None, None)
        session = Session(opening, inputs, layers, is_open(trace.info.state), len(inputs))
        derived: Derived | None
        if own:
            found, derived = self._served(session, recorded)
            if checks is not None:
                relayed.add(found, checks)
        else:
            found, derived = self._against(session, recorded, trace, track, checks)
        return made(found, layers, derived)

    def _own_name(self, opening: Opening, track: str) -> str:
        """The parser that a track was recorded with."""
        return track.removeprefix(SHADOW) if track.startswith(SHADOW) else opening.parser

    def _layers(self, opening: Opening, track: str, *, recorded: bool = False) -> Layers:
        parser = None if recorded else self._parser
        if parser is None:
            parser = self._own_name(opening, track)
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

    def _served(self, session: Session, recorded: Baseline) -> tuple[Finding, Derived]:
        """Compare with what our stages served, layer by layer."""
        derived = derive_layers(session.opening, [*session.inputs, *recorded.flush], session.layers, depth=self._depth)
        failed = _failed(session, recorded.derived, derived)
        if failed is not None:
            return Finding(verdict="failed", error=failed, notes=recorded.notes), derived
        before = recorded.derived
        found = Finding(notes=recorded.notes)
        if before is None:
            found.layers, found.first = recorded.against(derived, self._depth)
            found.verdict = worst(*found.layers.values())
        else:
            found.faults_appeared, found.faults_gone = _faults(before, derived)
            if "recorded" in self._splits:
                _take(found, compare(session, before, derived, self._depth))
        wanted = derived if before is None or session.open else before
        expected = collect(wanted.semantic.events, named=session.opening.ask.named)

        def judge(made: Track) -> Told:
            got = collect(made.events, named=session.opening.ask.named)
            said = differences(expected, got, made.events, session.opening.tokenizer)
            return Told("changed" if said else "same", said)

        under_splits(self._splits, found, session, recorded.flush, derived, judge)
        return found, derived

    def _against(
        self, session: Session, recorded: Baseline, trace: Trace, track: str, checks: Checked | None
    ) -> tuple[Finding, Derived | None]:
        """Compare the message with what another track says."""
        theirs = None if checks is None else checks.theirs
        notes: tuple[str, ...] = ()
        if theirs is not None and track == "upstream":
            notes = relayed.told_by_upstream(trace, theirs)
        judge = relayed.judge_of(session, trace, track, theirs, session.layers.parts["parser"].id)
        if isinstance(judge, str):
            found = Finding(verdict="uncompared", uncompared=judge, notes=notes)
            if checks is not None:
                relayed.add(found, checks)
                if relayed.verbatim(trace) and self._parser is None and self._track is None and checks.layers:
                    found.verdict = worst(*checks.layers.values())
            return found, None
        derived = derive_layers(session.opening, [*session.inputs, *recorded.flush], session.layers, depth="message")
        failed = _failed(session, None, derived)
        if failed is not None:
            return Finding(verdict="failed", error=failed, notes=notes), derived
        found = Finding(notes=notes)
        if "recorded" in self._splits:
            relayed.take(found, judge(derived.semantic), checks)
        if track == "upstream":
            found.notes += relayed.told_by_parser(session.opening, derived.semantic, found.differences)
        under_splits(self._splits, found, session, recorded.flush, derived, judge)
        return found, derived


def at_least(verdict: Verdict, threshold: Verdict) -> bool:
    """The verdict is as far from ``same`` as the threshold, or further."""
    return VERDICTS.index(verdict) >= VERDICTS.index(threshold)


def _absent(parser: str, error: Exception) -> str:
    """Why a session cannot be replayed through the parser it was recorded with."""
    reason = str(error).removeprefix(f"parser {parser!r}: ")
    if isinstance(error, ParserNotFound):
        return f"recorded with {parser}, which is not found from here; give --parser ({reason})"
    return f"recorded with {parser}: {reason}"


def _take(found: Finding, comparison: Comparison) -> None:
    found.verdict = comparison.verdict
    found.layers = comparison.layers
    found.first = comparison.first
    found.differences = comparison.differences
    if found.verdict == "changed" and found.layers.get("chunk") == found.layers.get("frame") == "same":
        found.notes += ("clients receive the same: what differs is in the semantic layer only",)


def _stages(opening: Opening, layers: Layers) -> dict[str, tuple[str | None, str | None]]:
    """Where the stages in force are not those of the record."""
    present = catalog.stage_ids(layers)
    if relayed.default_track(opening) == "upstream":
        # The response is another server's: no stage of ours made it.
        present = {"parser": present["parser"]}
    present |= stages_of(opening)
    return {
        name: (opening.stages.get(name), present.get(name))
        for name in {**opening.stages, **present}
        if opening.stages.get(name) != present.get(name)
    }


def _failed(session: Session, recorded: Derived | None, derived: Derived) -> StageFailure | None:
    """The stage that failed. A parser whose events have fields of the wrong type is to blame for all that follows."""
    if derived.failed is not None and derived.failed.layer == "semantic":
        return derived.failed
    if derived.failed is None and recorded is not None and recorded.semantic.events == derived.semantic.events:
        return None
    events = derived.semantic.events
    if _sound(events) is None:
        return derived.failed
    seq, error = next((seq, error) for seq, event in enumerate(events) if (error := _sound([event])) is not None)
    step = derived.semantic.steps[seq]
    return failure(
        error, session.layers.parts["parser"].id, "semantic", step, session.inputs, range(len(session.inputs))
    )


def _sound(events: list[Any]) -> Exception | None:
    try:
        _decode_semantic(_encode(events))
    except Exception as error:  # whatever a foreign parser put into a field
        return error
    return None


def _faults(recorded: Derived, replayed: Derived) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The codes that appeared, and those that went."""
    if recorded.semantic.events == replayed.semantic.events:
        return (), ()
    before, after = (
        Counter(code for message in collect(derived.semantic.events) for code in message.faults)
        for derived in (recorded, replayed)
    )
    return tuple(sorted((after - before).elements())), tuple(sorted((before - after).elements()))


def _result(
    trace: Trace, source: str, track: str, found: Finding, layers: Layers | None, derived: Derived | None
) -> SessionResult:
    opening, info = trace.opening, trace.info
    tokens = sum(len(event.ids) or 1 for event in trace.events("input", "engine") if isinstance(event, TokensInput))
    result = SessionResult(
        session=opening.session, source=source, track=track, state=info.state, mode=info.mode, model=opening.model,
        parser=layers.parts["parser"].id if layers else "", stages=_stages(opening, layers) if layers else {},
        tokens=tokens,
        **msgspec.structs.asdict(found),
    )  # fmt: skip
    return msgspec.structs.replace(result, digest=_digest(result, derived))


def _digest(result: SessionResult, derived: Derived | None) -> str:
    """Hash of what the session replays to. Of a session that is the same down to its frames, the record says it."""
    error, first = result.error, result.first
    told: list[Any] = [
        result.session, result.verdict, result.layers, result.splits, result.split_groups, result.parser,
        error and [error.layer, error.stage, error.seq, error.type],
        first and [first.layer, first.kind, first.seq, first.cause, first.split],
    ]  # fmt: skip
    told += [result.track] if result.track else []
    if error is None and derived is not None and result.verdict != "same":
        told += [codec.digest(derived.track(layer).events).sha256 for layer in _DERIVED]
    return hashlib.sha256(_encode(told)).hexdigest()
