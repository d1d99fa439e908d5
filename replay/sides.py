"""sides: the two sides of one session's comparison, by what the replay is compared with.

served     what our stages served, layer by layer
against    another recorded track (another server's parse, a shadow's), by its message
paired     what a baseline parser makes of the same inputs today
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from replay import loose, relayed, rules_of
from replay.baseline import baseline, flush_of, tracked
from replay.conclude import Half, conclude, faults
from replay.cut import under_cuts
from replay.derive import Derived, StageFailure, Track, derive_layers, failure, first_of
from replay.diff import Comparison, Session, compare, said
from replay.relayed import Judge
from replay.result import Finding
from replay.sizes import Histogram
from replay.splitting import under_splits
from replay.upstream_diff import Told
from replay.upstream_layers import checked
from replay.verdict import DEPTHS, Depth, Verdict, worst
from stages.catalog import Layers
from stages.events import Input, Semantic
from stages.parse.parser import Parser as OurParser
from store.api import Trace

_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_decode_semantic = msgspec.msgpack.Decoder(list[Semantic]).decode


class Plan(msgspec.Struct, frozen=True):
    """How sessions are compared; see Replayer. ``own``: each is replayed through its own parser."""

    splits: tuple[str, ...]
    depth: Depth
    cut: bool
    own: bool
    track: str | None
    histogram: Histogram


class Compared(msgspec.Struct):
    """What was found, and the replay's layers; None: there was no replay. ``before``: the semantic events that it was
    compared with; None: they are not at hand."""

    found: Finding
    derived: Derived | None
    before: Track | None = None


class Both(msgspec.Struct):
    """Both sides of a session's comparison: semantic events, by the seqs of ``inputs`` in their ``steps``. ``before``:
    None: not at hand; ``loose``: only what clients see can be compared, without ids of calls."""

    inputs: list[Input]
    before: Track | None
    after: Track
    loose: bool


def served(plan: Plan, session: Session, trace: Trace, recorded: Callable[[], Layers]) -> Compared:
    """Compare with what our stages served. ``recorded``: makes the stages that served."""
    unread = relayed.unread(trace, session.layers) or _unparsed(plan, session)
    if unread:
        found = Finding(verdict="uncompared", uncompared=unread)
        if session.opening.upstream is not None:
            relayed.add(found, checked(trace, plan.depth))
        return Compared(found, None)
    depth: Depth = "message" if session.foreign else plan.depth
    flush = flush_of(trace, session.inputs)
    derived = derive_layers(session.opening, [*session.inputs, *flush], session.layers, depth=depth)
    record = baseline(trace, session.inputs, recorded, depth, derived if plan.own else None)
    before = record.derived
    found = Finding(notes=record.notes)
    error = _failed(session, before, derived)
    if error is not None:
        found.verdict, found.error = "failed", error
    elif before is None and session.foreign:
        found.verdict, found.uncompared = "uncompared", "only digests were recorded, and another engine's events differ"
    elif before is None:
        found.layers, found.first = record.against(derived, depth)
        found.verdict = worst(*found.layers.values())
    elif "recorded" in plan.splits:
        _take(found, _compared(session, before, derived, plan.depth))
    if error is None and not found.uncompared:
        found.faults_appeared, found.faults_gone = faults(session, before, derived)
        wanted = derived if before is None or session.open else before
        strict = msgspec.structs.replace(session, open=False) if session.open else session
        _others(plan, session, found, flush, derived, lambda made: _told(strict, wanted.semantic, made))
    if session.opening.upstream is not None:
        relayed.add(found, checked(trace, plan.depth))
    track = None if before is None else before.semantic
    if before is None and set(found.layers.values()) == {"same"}:
        track = derived.semantic  # so say the digests
    known, clean = dict(trace.info.rules), trace.info.validated and not trace.info.rules
    ours, theirs = ({}, {}) if error else _rules(session, trace, before, derived, known, clean=clean)
    after = Half(None if error else derived.semantic, found, theirs)
    _conclude(found, session, Half(track, Finding(layers={"message": "same"}), ours), derived, after)
    return Compared(found, derived, None if before is None else before.semantic)


def against(plan: Plan, session: Session, trace: Trace, track: str) -> Compared:
    """Compare the message with what another track says."""
    checks = None if session.opening.upstream is None else checked(trace, plan.depth)
    theirs = None if checks is None else checks.theirs
    found = Finding()
    if theirs is not None and track == "upstream":
        found.notes = relayed.told_by_upstream(trace, theirs)
    other = (track == "upstream" and _unparsed(plan, session)) or relayed.other(session, trace, track, theirs)
    if isinstance(other, str):
        found.verdict, found.uncompared = "uncompared", other
        if checks is not None:
            relayed.add(found, checks)
            if relayed.verbatim(trace) and plan.own and plan.track is None and checks.layers:
                found.verdict = worst(*checks.layers.values())
        return Compared(found, None)
    flush = flush_of(trace, session.inputs)
    derived = derive_layers(session.opening, [*session.inputs, *flush], session.layers, depth="message")
    found.error = error = _failed(session, None, derived)
    if error is not None:
        found.verdict = "failed"
    else:
        if "recorded" in plan.splits:
            relayed.take(found, other.judge(derived.semantic), checks)
        if track == "upstream":
            found.notes += relayed.told_by_parser(session.opening, derived.semantic, found.differences)
        _others(plan, session, found, flush, derived, other.judge)
    before, after = (
        Half(other.track, Finding(layers={"message": "same"})),
        Half(None if error else derived.semantic, found),
    )
    _conclude(found, session, before, derived, after)
    return Compared(found, derived, other.track)


def paired(plan: Plan, session: Session, trace: Trace, base: Layers) -> Compared:
    """Compare with what another parser makes of the same inputs. ``base``: its stages."""
    why = _unknown(trace) or relayed.unread(trace, base) or relayed.unread(trace, session.layers)
    if why:
        return Compared(Finding(verdict="uncompared", uncompared=why), None)
    shown = plan.depth
    if relayed.default_track(trace.opening) == "upstream":
        shown = DEPTHS[min(DEPTHS.index(shown), DEPTHS.index("semantic"))]
    depth: Depth = "message" if session.foreign else shown
    inputs = [*session.inputs, *flush_of(trace, session.inputs)]
    record = _record(session, trace)
    mine, theirs = (
        msgspec.structs.replace(session, inputs=inputs, layers=layers, open=False, end=len(inputs))
        for layers in (base, session.layers)
    )
    before, after = (derive_layers(side.opening, inputs, side.layers, depth=depth) for side in (mine, theirs))
    error, failing = _failed(theirs, None, after), _failed(mine, None, before)
    found = Finding(error=error)
    # What is wrong with either side is told by the record: each is compared with that, too.
    ours = Finding(error=failing) if failing else Finding(layers=record(before.semantic))
    own = found if error else Finding(layers=record(after.semantic))
    rules: tuple[dict[str, int], dict[str, int]] = ({}, {})
    if failing is None:
        _others(plan, mine, ours, (), before, lambda made: _told(mine, before.semantic, made))
    if error is not None:
        found.verdict = "failed"
    elif failing is not None:
        found.verdict, found.uncompared = "uncompared", f"the baseline failed: {failing.type}: {failing.message}"
    else:
        found.faults_appeared, found.faults_gone = faults(theirs, before, after)
        if "recorded" in plan.splits:
            _take(found, _compared(theirs, before, after, shown))
        _others(plan, theirs, found, (), after, lambda made: _told(theirs, before.semantic, made))
        rules = _rules(theirs, trace, before, after, {}, clean=False)
    first = Half(None if failing else before.semantic, ours, rules[0])
    _conclude(found, theirs, first, after, Half(None if error else after.semantic, own, rules[1]))
    return Compared(found, after, before.semantic)


def _unparsed(plan: Plan, session: Session) -> str:
    """See ``relayed.unparsed``; "" also for the parser that it was recorded with."""
    return "" if plan.own else relayed.unparsed(session.opening, session.layers)


def _unknown(trace: Trace) -> str:
    """Why parsers cannot be run on a session; "" where they can."""
    if relayed.default_track(trace.opening) == "served":
        return ""
    return relayed.unknown(trace) or relayed.untold(trace, checked(trace, "message").theirs)


def _record(session: Session, trace: Trace) -> Callable[[Track], dict[str, Verdict]]:
    """What tells how a track's message compares with what was recorded; nothing, where that is not known."""
    if relayed.default_track(trace.opening) == "upstream":
        other = relayed.other(session, trace, "upstream", checked(trace, "message").theirs)
        return lambda made: {} if isinstance(other, str) else {"message": other.judge(made).verdict}
    if trace.info.mode == "full" and ("served", "semantic") in trace.records and trace.info.state != "incomplete":
        recorded = tracked(trace, "served", "semantic")
        return lambda made: {"message": _told(session, recorded, made).verdict}
    want = None if session.open else trace.info.digests.get("served/semantic")
    return lambda made: {"message": "same"} if made.digest() == want else {}


# --- what all of them do ----------------------------------------------------------------------------------------------


def _compared(session: Session, before: Derived, after: Derived, depth: Depth) -> Comparison:
    if session.foreign:
        return loose.compare(session, before.semantic, after.semantic, depth)
    return compare(session, before, after, depth)


def _told(session: Session, wanted: Track, made: Track) -> Told:
    """A message against another."""
    if session.foreign:
        found = loose.compare(session, wanted, made, "message")
        return Told(found.verdict, found.differences, found.first)
    differing = said(session, wanted, made)
    return Told("changed" if differing else "same", differing)


def _take(found: Finding, comparison: Comparison) -> None:
    found.verdict = comparison.verdict
    found.layers = comparison.layers
    found.first = comparison.first
    found.differences = comparison.differences
    if found.verdict == "changed" and found.layers.get("chunk") == found.layers.get("frame") == "same":
        hidden = "what differs is in the semantic layer only"
        if found.layers["message"] != "same":
            # Faults, or an answer of which nothing was sent yet.
            hidden = "what the message says otherwise is not sent to them"
        found.notes += (f"clients receive the same: {hidden}",)


def _others(
    plan: Plan, session: Session, found: Finding, flush: tuple[Input, ...], derived: Derived, judge: Judge
) -> None:
    """What other runs of the replaying parser show: other splits, its own one-shot path, the session ended early."""
    if plan.splits != ("recorded",) or derived.one_shot is not None or derived.one_shot_error:
        under_splits(plan.splits, found, session, flush, derived, judge, plan.histogram)
    else:
        found.splits["recorded"] = found.verdict
    if plan.cut:
        under_cuts(found, session)


def _rules(
    session: Session, trace: Trace, before: Derived | None, after: Derived, known: dict[str, int], *, clean: bool
) -> tuple[dict[str, int], dict[str, int]]:
    """The rules of the protocol that either side breaks. ``known``: of the recorded frames, where both are those;
    ``clean``: the frames before were judged when they were recorded, and broke none."""
    if before is None or session.open or not after.frame.events:
        return {}, {}
    if after.frame.share(before.frame):
        return known, known
    judge = rules_of.Judge(trace)
    theirs = judge.broken(after)
    # Rules may have been added since: what was clean then is judged again where that would tell a new breach.
    return {} if clean and not theirs else judge.broken(before), theirs


def _conclude(found: Finding, session: Session, before: Half, derived: Derived, after: Half) -> None:
    found.ns = derived.ns
    conclude(found, session, before, after)


def _failed(session: Session, recorded: Derived | None, derived: Derived) -> StageFailure | None:
    """The stage that failed. A parser whose events have fields of the wrong type is to blame for all that follows."""
    if derived.failed is not None and derived.failed.layer == "semantic":
        return derived.failed
    if derived.failed is None:
        if isinstance(first_of(session.layers.semantic), OurParser):
            return None
        if recorded is not None and derived.semantic.share(recorded.semantic):
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
