"""One session's result, in words, line by line."""

from __future__ import annotations

from collections.abc import Iterator

from replay.message_diff import in_words
from replay.reports.words import counted, spaced
from replay.result import SessionResult
from replay.text import printable
from replay.verdict import Divergence, Verdict

_NAMED = ("boundary", "marker_leaked", "call_lost", "call_added")
"""Kinds that say more than the field."""
_ELSE = ("chunking", "timing", "cause", "order", "unknown")
"""Kinds that no place in an event tells."""
_MOST = 8
"""Lines of a kind that are shown."""


def head_in_words(result: SessionResult) -> Iterator[str]:
    """Verdicts, what failed, and the first place at which the sides part."""
    verdicts: dict[str, Verdict] = dict(result.layers)
    verdicts.update((f"split {split}", verdict) for split, verdict in result.splits.items() if split != "recorded")
    if len(verdicts) > 1:
        yield "  ".join(f"{name}: {verdict}" for name, verdict in verdicts.items())
    if result.error is not None:
        error = result.error
        place = f"at event {error.seq}: {error.input}" if error.seq >= 0 else "before its first event"
        where = f"{error.where}, " if error.where else ""
        yield f"{error.stage} raised {error.type}: {error.message} ({where}{place})"
    if result.first is not None:
        yield from _first(result.first)


def rest_in_words(result: SessionResult) -> Iterator[str]:
    """Each difference of the message, and all else that is told of the session."""
    for item in result.differences[:_MOST]:
        if item.place:
            yield f"choice {item.choice}, {spaced(item.kind)}: {item.place}"
            continue
        kind = f" ({spaced(item.kind)})" if item.kind in _NAMED else ""
        yield f"choice {item.choice}, {in_words(item)}{kind}"
    if len(result.differences) > _MOST:
        yield f"and {counted(len(result.differences) - _MOST, 'more difference')} of the message: see --json"
    if result.faults_appeared:
        yield f"faults that appeared: {', '.join(result.faults_appeared)}"
    if result.faults_gone:
        yield f"faults that went: {', '.join(result.faults_gone)}"
    if result.rules_appeared:
        yield f"rules that are broken now: {', '.join(result.rules_appeared)}"
    if result.rules_gone:
        yield f"rules that are broken no more: {', '.join(result.rules_gone)}"
    for breach in result.breaches[:_MOST]:
        yield f"{spaced(breach.oracle)}: {printable(breach.detail)}"
    if len(result.breaches) > _MOST:
        yield f"and {counted(len(result.breaches) - _MOST, 'more breach')}: see --json"
    yield from result.notes


def _first(first: Divergence) -> Iterator[str]:
    """The worst difference of the message, and the first place, which may be another matter."""
    worst = f"worst: {spaced(first.worst)}; " if first.worst else ""
    split = "" if first.split == "recorded" else f" under split {first.split}"
    if is_told(first):
        # Both sides stand among the differences of the message; under a split those are not told.
        place = f"upstream's frame {first.frame}" if first.frame >= 0 else "the upstream's stream"
        yield f"{worst}first{split}: {first.detail if split else f'{spaced(first.kind)} at {place}'}"
    else:
        layer = f"{first.track}/{first.layer}" if first.track else first.layer
        where = f"{layer} {first.seq}" if first.seq >= 0 else f"{layer} layer"
        yield f"{worst}first: {where}{split}, {_parting(first)}"
    if first.cause < 0 <= first.frame and first.input:
        yield f"cause: upstream's frame {first.frame}: {first.input}"
    if first.cause >= 0:
        yield f"cause: engine {first.cause}: {first.input or 'no recorded input'}"


def is_told(first: Divergence) -> bool:
    """It is a place of another server's stream, and ``detail`` has both sides."""
    return first.worst is not None and first.track == "upstream"


def _parting(first: Divergence) -> str:
    """What differs at the first place: the events' names, or where in the event, or what else of it."""
    mine, theirs = (side.type if side is not None else "nothing" for side in (first.recorded, first.replayed))
    if mine != theirs:
        return f"{mine} → {theirs}"
    told = [spaced(first.kind)] if first.kind in _ELSE or not first.detail else []
    told += [first.detail] if first.detail else []
    return ": ".join(told) if first.recorded is None else f"{mine} ({': '.join(told)})"
