"""Replayer: recorded sessions in, a result per session out."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from replay.baseline import Baseline, baseline, is_open
from replay.derive import Assemble, Derived, StageFailure, derive_layers, failure, run
from replay.diff import Comparison, Session, compare
from replay.errors import BadSplit, ParserNotFound, ReplayError
from replay.message_diff import differences, in_words
from replay.resolve import Parser, resolve
from replay.split import check, regroup
from replay.verdict import VERDICTS, Depth, Difference, Divergence, Verdict, worst
from stages import catalog
from stages.catalog import Layers
from stages.errors import StagesError
from stages.events import Input, Layer, Semantic, TokensInput
from stages.message import Message, collect
from stages.opening import Opening
from store import codec
from store.api import Mode, State, Trace

_DERIVED: tuple[Layer, Layer, Layer] = ("semantic", "chunk", "frame")
_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_decode_semantic = msgspec.msgpack.Decoder(list[Semantic]).decode


class SessionResult(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What replaying one session shows.

    ``parser``: id of the stage it was replayed with; ``stages``: where an id differs, the recorded one and the present
    one; ``layers``: verdict per layer compared, and for the message; ``splits``: verdict per split; ``split_groups``:
    where the replayed message depends on the split, the splits that agree, group by group (``recorded`` is always among
    them); ``not_compared``: splits that this session's tokens do not allow; ``unreplayed``: why no stage could be run;
    ``first``: the first divergence of the worst of layers and splits; ``faults_appeared``, ``faults_gone``: codes, once
    per occurrence; ``error``: the stage that failed; ``tokens``: recorded token ids (steps, where there are none);
    ``digest``: the same whenever the session replays the same.
    """

    session: str
    verdict: Verdict
    source: str = ""
    state: State = "closed"
    mode: Mode = "full"
    model: str = ""
    parser: str = ""
    stages: dict[str, tuple[str | None, str | None]] = {}
    layers: dict[str, Verdict] = {}
    splits: dict[str, Verdict] = {}
    split_groups: tuple[tuple[str, ...], ...] = ()
    not_compared: tuple[str, ...] = ()
    unreplayed: str = ""
    first: Divergence | None = None
    differences: tuple[Difference, ...] = ()
    faults_appeared: tuple[str, ...] = ()
    faults_gone: tuple[str, ...] = ()
    error: StageFailure | None = None
    notes: tuple[str, ...] = ()
    tokens: int = 0
    digest: str = ""


class Finding(msgspec.Struct):
    """The fields of a SessionResult that come out of the replay, in the making."""

    verdict: Verdict = "same"
    layers: dict[str, Verdict] = {}
    splits: dict[str, Verdict] = {}
    split_groups: tuple[tuple[str, ...], ...] = ()
    not_compared: tuple[str, ...] = ()
    unreplayed: str = ""
    first: Divergence | None = None
    differences: tuple[Difference, ...] = ()
    faults_appeared: tuple[str, ...] = ()
    faults_gone: tuple[str, ...] = ()
    error: StageFailure | None = None
    notes: tuple[str, ...] = ()


class Replayer:
    """Replays recorded sessions through a parser and compares what comes out with what was recorded.

    ``parser``: a stage, or a name as ``--parser`` takes it; None: each session's own. ``splits``: how the recorded
    tokens are grouped; under any other than ``recorded`` only messages are compared. ``layer``: how deep.
    ``fail_fast``: ``replay_many`` ends with the first session that is changed or failed. ``assemble``: makes the stages
    of a session. One thread at a time. Raises ReplayError for a parser or split that cannot be had; after that, a
    session whose own parser cannot be had has the verdict ``uncompared``, and ``unreplayed`` says why.
    """

    def __init__(
        self,
        parser: Parser | str | None = None,
        *,
        splits: Sequence[str] = ("recorded",),
        layer: Depth = "frame",
        fail_fast: bool = False,
        assemble: Assemble = catalog.layers,
    ) -> None:
        self._parser = resolve(parser) if isinstance(parser, str) and parser != "auto" else parser
        self._splits = tuple(check(split) for split in splits)
        self._depth: Depth = layer
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
        inputs: list[Input] = trace.events("input", "engine")
        try:
            layers = self._layers(opening)
            recorded = baseline(trace, inputs, lambda: self._assemble(opening, self._named(opening.parser, opening)))
        except (ReplayError, StagesError) as error:
            why = _absent(opening.parser, error) if self._parser is None else str(error)
            return _result(trace, source, Finding("uncompared", unreplayed=why), None, None)
        session = Session(opening, inputs, layers, is_open(trace.info.state), len(inputs))
        found, derived = self._compared(session, recorded)
        return _result(trace, source, found, layers, derived)

    def _layers(self, opening: Opening) -> Layers:
        parser = self._parser
        if parser is None:
            parser = opening.parser
        return self._assemble(opening, self._named(parser, opening) if isinstance(parser, str) else parser)

    def _named(self, name: str, opening: Opening) -> Parser:
        """A parser by its name; loaded once a Replayer."""
        if name == "auto":
            return resolve(name, opening)
        parser = self._resolved.get(name)
        if parser is None:
            parser = self._resolved[name] = resolve(name, opening)
        return parser

    def _compared(self, session: Session, recorded: Baseline) -> tuple[Finding, Derived]:
        derived = derive_layers(session.opening, [*session.inputs, *recorded.flush], session.layers, depth=self._depth)
        failed = _failed(session, recorded.derived, derived)
        if failed is not None:
            return Finding("failed", error=failed, notes=recorded.notes), derived
        before = recorded.derived
        found = Finding(notes=recorded.notes)
        if before is None:
            found.layers, found.first = recorded.against(derived, self._depth)
            found.verdict = worst(*found.layers.values())
        else:
            found.faults_appeared, found.faults_gone = _faults(before, derived)
            if "recorded" in self._splits:
                _take(found, compare(session, before, derived, self._depth))
        if "recorded" in self._splits:
            found.splits["recorded"] = found.verdict
        wanted = derived if before is None or session.open else before
        expected = collect(wanted.semantic.events, named=session.opening.ask.named)
        says = {"recorded": collect(derived.semantic.events, named=session.opening.ask.named)}
        for split in self._splits:
            if split != "recorded":
                got = self._split(session, recorded, split, expected, found)
                if got is not None:
                    says[split] = got
        if not found.splits:
            found.verdict = "uncompared"
        _depends(found, says)
        return found, derived

    def _split(
        self, session: Session, recorded: Baseline, split: str, expected: list[Message], found: Finding
    ) -> list[Message] | None:
        """Replay under a split and put what it shows into ``found``; gives the messages, None where there are none."""
        opening = session.opening
        try:
            inputs = regroup([*session.inputs, *recorded.flush], split, opening.tokenizer)
        except BadSplit as error:
            found.notes += (f"not compared: {error}",)
            found.not_compared += (split,)
            return None
        track, failed = run(session.layers.semantic, "semantic", opening, inputs, range(len(inputs)))
        got = collect(track.events, named=opening.ask.named)
        said = () if failed else differences(expected, got, track.events, opening.tokenizer)
        verdict: Verdict = "failed" if failed else "changed" if said else "same"
        found.splits[split] = verdict
        found.verdict = worst(found.verdict, verdict)
        found.error = found.error or failed
        if said and found.first is None:
            # Causes in a regrouped stream are not those of the record.
            item = said[0]
            found.first = Divergence(
                layer="semantic", kind=item.kind, seq=-1, cause=-1, choice=item.choice, split=split,
                detail=in_words(item), worst=item.kind,
            )  # fmt: skip
        return None if failed else got


def at_least(verdict: Verdict, threshold: Verdict) -> bool:
    """The verdict is as far from ``same`` as the threshold, or further."""
    return VERDICTS.index(verdict) >= VERDICTS.index(threshold)


def _absent(parser: str, error: Exception) -> str:
    """Why a session cannot be replayed through the parser it was recorded with."""
    reason = str(error).removeprefix(f"parser {parser!r}: ")
    if isinstance(error, ParserNotFound):
        return f"recorded with {parser}, which is not found from here; give --parser ({reason})"
    return f"recorded with {parser}: {reason}"


def _depends(found: Finding, says: dict[str, list[Message]]) -> None:
    """Group the splits by what the replayed message is under them. That it depends on them is a change of its own."""
    groups: list[tuple[list[Message], list[str]]] = []
    for split, messages in says.items():
        same = next((names for known, names in groups if not differences(known, messages)), None)
        if same is None:
            groups.append((messages, [split]))
        else:
            same.append(split)
    if len(groups) > 1:
        found.split_groups = tuple(tuple(names) for _, names in groups)
        found.verdict = worst(found.verdict, "changed")
        found.notes += (f"depends on the split: {' and '.join(f'`{names[0]}`' for _, names in groups)} differ",)
    elif len(says) > 1 and found.verdict == "changed":
        found.notes += (f"does not depend on the split: the same under {', '.join(f'`{name}`' for name in says)}",)


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


def _result(trace: Trace, source: str, found: Finding, layers: Layers | None, derived: Derived | None) -> SessionResult:
    opening, info = trace.opening, trace.info
    tokens = sum(len(event.ids) or 1 for event in trace.events("input", "engine") if isinstance(event, TokensInput))
    result = SessionResult(
        session=opening.session, source=source, state=info.state, mode=info.mode, model=opening.model, tokens=tokens,
        parser=layers.parts["parser"].id if layers else "", stages=_stages(opening, layers) if layers else {},
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
    if error is None and derived is not None and result.verdict != "same":
        told += [codec.digest(derived.track(layer).events).sha256 for layer in _DERIVED]
    return hashlib.sha256(_encode(told)).hexdigest()
