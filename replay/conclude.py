"""conclude: what a session's replay shows beside its verdict: lag, oracles, marks, rules, signature; and its digest."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, overload

import msgspec

from replay import oracles, rules_of, signature, visible
from replay.derive import Derived, Track
from replay.diff import Session
from replay.relayed import default_track
from replay.result import Breach, Finding, SessionResult
from replay.upstream_layers import stages_of
from replay.verdict import Mark
from stages import catalog
from stages.catalog import Layers
from stages.events import Layer, TokensInput
from stages.message import Message
from stages.opening import Opening
from store.api import Rows, Trace

_DERIVED: tuple[Layer, Layer, Layer] = ("semantic", "chunk", "frame")
_encode = msgspec.msgpack.Encoder(order="deterministic").encode


class Half(msgspec.Struct):
    """One side of a comparison. ``track``: its semantic events; None: not at hand, or its parser failed; ``told``: how
    its message compares with the record, and what other runs of it broke; ``rules``: of the protocol, that it
    breaks."""

    track: Track | None
    told: Finding
    rules: Mapping[str, int] = {}


def conclude(found: Finding, session: Session, before: Half, after: Half) -> None:
    """Put into a finding all that follows from both sides. ``after``: the replay."""
    mine, theirs = before.track, after.track
    equal = mine is not None and theirs is not None and theirs.share(mine)
    if mine is not None and theirs is not None and not equal:
        found.lag = visible.lag(mine, theirs, session.inputs)
    found.rules_appeared = rules_of.appeared(before.rules, after.rules)
    found.rules_gone = rules_of.appeared(after.rules, before.rules)
    broken = _breaches(session, theirs)
    found.breaches += broken
    if theirs is not None:
        found.message = hashed(theirs.messages(named=session.opening.ask.named))
    found.marks = _marks(session, after, found.breaches)
    held = broken if equal else _breaches(session, mine)
    found.marks_before = _marks(session, before, (*before.told.breaches, *held))
    found.signature = signature.signature(session, found, session.layers, mine, theirs)


def _marks(session: Session, half: Half, broken: Sequence[Breach]) -> tuple[Mark, ...]:
    messages = [] if half.track is None else half.track.messages(named=session.opening.ask.named)
    return oracles.marks(half.told, messages, broken, half.rules)


def _breaches(session: Session, track: Track | None) -> tuple[Breach, ...]:
    if track is None:
        return ()
    messages = track.messages(named=session.opening.ask.named)
    return oracles.breaches(session.opening, session.inputs, track.events, _Steps(track), messages)


class _Steps(Sequence[int]):
    """The steps of a track, made when the first is asked for: of nearly every session nobody asks."""

    def __init__(self, track: Track) -> None:
        self._track = track

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[int]: ...
    def __getitem__(self, place: int | slice) -> int | Sequence[int]:
        return self._track.steps[place]

    def __len__(self) -> int:
        return len(self._track.events)


def faults(session: Session, before: Derived | None, after: Derived) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The codes that appeared, and those that went. Another engine's parser tells none."""
    if before is None or session.foreign or after.semantic.share(before.semantic):
        return (), ()
    named = session.opening.ask.named
    mine, theirs = (
        Counter(code for message in side.semantic.messages(named=named) for code in message.faults)
        for side in (before, after)
    )
    return tuple(sorted((theirs - mine).elements())), tuple(sorted((mine - theirs).elements()))


def hashed(messages: Sequence[Message]) -> str:
    """Hash of messages, ids of calls left out: 32 hex digits."""
    told = [
        (
            message.choice, message.reasoning, message.content, message.refusal,
            [(call.name, call.arguments, call.complete) for call in message.tool_calls],
            message.finish_reason, message.faults,
        )
        for message in messages
    ]  # fmt: skip
    try:
        data = _encode(told)
    except UnicodeEncodeError:  # half of a surrogate pair, of a user's parser
        data = repr(told).encode("utf-8", "backslashreplace")
    return hashlib.sha256(data).hexdigest()[:32]


# --- the result -------------------------------------------------------------------------------------------------------


def result_of(
    trace: Trace,
    source: str,
    found: Finding,
    layers: Layers | None = None,
    derived: Derived | None = None,
    *,
    track: str = "",
    baseline: str = "",
    foreign: bool = False,
) -> SessionResult:
    """The result of a session. ``track``, ``baseline``: see SessionResult; ``derived``: the replay's layers."""
    opening, info = trace.opening, trace.info
    result = SessionResult(
        session=opening.session, source=source, track=track, baseline=baseline, state=info.state, mode=info.mode,
        model=opening.model, parser=layers.parts["parser"].id if layers else "",
        stages=_stages(opening, layers) if layers else {}, tokens=_tokens(trace),
        **{name: getattr(found, name) for name in found.__struct_fields__},
    )  # fmt: skip
    return msgspec.structs.replace(result, digest=_digest(result, None if foreign else derived))


def _tokens(trace: Trace) -> int:
    records = trace.records.get(("input", "engine"), ())
    inputs = records.events if isinstance(records, Rows) else [record.event for record in records]
    steps = [event.ids for event in inputs if event.__class__ is TokensInput]
    return sum(map(len, steps)) + steps.count(())


def _stages(opening: Opening, layers: Layers) -> dict[str, tuple[str | None, str | None]]:
    """Where the stages in force are not those of the record."""
    present = catalog.stage_ids(layers)
    if default_track(opening) == "upstream":
        # The response is another server's: no stage of ours made it.
        present = {"parser": present["parser"]}
    present |= stages_of(opening)
    return {
        name: (opening.stages.get(name), present.get(name))
        for name in {**opening.stages, **present}
        if opening.stages.get(name) != present.get(name)
    }


def _digest(result: SessionResult, derived: Derived | None) -> str:
    """Hash of what the session replays to: all that is told of it, but for words and times. ``derived``: its layers, of
    which the record tells where all is the same."""
    error, first = result.error, result.first
    told: list[Any] = [
        result.session, result.verdict, result.layers, result.splits, result.split_groups, result.parser, result.track,
        result.baseline, error and [error.layer, error.stage, error.seq, error.type],
        first and [first.layer, first.kind, first.seq, first.cause, first.split], result.message, result.marks,
        result.marks_before, result.signature, sorted(result.lag.items()), result.cuts, result.not_compared,
        [(item.choice, item.kind, item.field) for item in result.differences],
        [(item.oracle, item.choice, item.step, item.split) for item in result.breaches],
        [result.faults_appeared, result.faults_gone, result.rules_appeared, result.rules_gone],
        result.split_pair and [result.split_pair.groups, result.split_pair.other],
    ]  # fmt: skip
    if error is None and derived is not None and result.verdict != "same":
        told += [derived.track(layer).digest().sha256 for layer in _DERIVED]
    return hashlib.sha256(_encode(told)).hexdigest()
