"""One session's result, in words, line by line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from replay.derive import StageFailure
from replay.foreign import is_foreign_name
from replay.message_diff import in_words
from replay.pair import ENDED
from replay.reports.rules import counted_rules
from replay.reports.words import counted, spaced
from replay.result import SessionResult
from replay.signature import EARLIER
from replay.signature import in_words as signature_in_words
from replay.text import printable
from replay.verdict import VERDICTS, Divergence, Verdict

_NAMED = ("boundary", "marker_leaked", "call_lost", "call_added")
"""Kinds that say more than the field."""
_ELSE = ("chunking", "timing", "cause", "order", "unknown")
"""Kinds that no place in an event tells."""
_MOST = 8
"""Lines of a kind that are shown."""


def head_in_words(result: SessionResult) -> Iterator[str]:
    """Verdicts, what failed, and the first place at which the sides part."""
    if len(result.layers) > 1:
        yield "  ".join(f"{name}: {verdict}" for name, verdict in result.layers.items())
    if result.splits.keys() - {"recorded"}:
        yield f"by split: {_by_verdict(result.splits)}"
    if result.error is not None:
        yield _failed(result.error)
    earlier = result.signature is not None and result.signature.layer == EARLIER
    if earlier and result.signature is not None:
        yield signature_in_words(result.signature)
    if result.first is not None:
        told = list(_first(result.first))
        yield f"now, against the record: {told[0]}" if earlier else told[0]
        yield from told[1:]


def _by_verdict(verdicts: Mapping[str, Verdict]) -> str:
    """``same: one; changed: token, rand:1:5``."""
    present = [verdict for verdict in VERDICTS if verdict in verdicts.values()]
    return "; ".join(
        f"{verdict}: {', '.join(name for name, each in verdicts.items() if each == verdict)}" for verdict in present
    )


def _failed(error: StageFailure) -> str:
    """What failed, and where, if that is known: of one that was ended, or is another engine's, it may not be."""
    stage = error.stage or "the parser"
    ended = error.type in ENDED
    places = [error.where] if error.where else []
    if error.seq >= 0:
        places.append(f"at event {error.seq}: {error.input}")
    elif error.input:
        places.append(error.input)
    elif not ended and not is_foreign_name(stage.partition("@")[0]):
        places.append("before its first event")
    told = f" ({', '.join(places)})" if places else ""
    what = f"did not end its work ({error.type})" if ended else f"raised {error.type}"
    return f"{stage} {what}: {error.message}{told}"


def rest_in_words(result: SessionResult) -> Iterator[str]:
    """Each difference of the message, and all else that is told of the session."""
    for _, lines in _rest(result):
        yield from lines


def parts(result: SessionResult) -> list[tuple[str, list[str]]]:
    """All that is told of a session, under headings; those that have nothing are left out."""
    told = [("verdict and place", head_in_words(result)), *_rest(result)]
    return [(name, held) for name, lines in told if (held := list(lines))]


def _rest(result: SessionResult) -> Iterator[tuple[str, Iterator[str]]]:
    yield "the message", _message(result)
    yield "faults and rules", _codes(result)
    yield "broken, whatever was recorded", _broken(result)
    yield "notes", iter(result.notes)


def _message(result: SessionResult) -> Iterator[str]:
    for item in result.differences[:_MOST]:
        if item.place:
            yield f"choice {item.choice}, {spaced(item.kind)}: {item.place}"
            continue
        kind = f" ({spaced(item.kind)})" if item.kind in _NAMED else ""
        yield f"choice {item.choice}, {in_words(item)}{kind}"
    if len(result.differences) > _MOST:
        yield f"and {counted(len(result.differences) - _MOST, 'more difference')} of the message: see --json"


def _codes(result: SessionResult) -> Iterator[str]:
    if result.faults_appeared:
        yield f"faults that are new: {_times(result.faults_appeared)}"
    if result.faults_gone:
        yield f"faults that are gone: {_times(result.faults_gone)}"
    for word, rules in (("now", result.rules_appeared), ("no more", result.rules_gone)):
        codes = Counter(rules)
        for told in counted_rules(sorted(codes)[:_MOST], codes):
            yield f"rule that is broken {word}: {told}"
        if len(codes) > _MOST:
            yield f"and {counted(len(codes) - _MOST, 'more rule')} broken {word}: see --json"


def _broken(result: SessionResult) -> Iterator[str]:
    for breach in result.breaches[:_MOST]:
        yield f"{spaced(breach.oracle)}: {printable(breach.detail)}"
    if len(result.breaches) > _MOST:
        yield f"and {counted(len(result.breaches) - _MOST, 'more breach')}: see --json"


def _times(codes: Iterable[str]) -> str:
    """``unclosed_call (6 times), stray_marker``."""
    counts = Counter(codes)
    return ", ".join(code if count == 1 else f"{code} ({count:,} times)" for code, count in counts.items())


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
        where = f"{layer} event {first.seq}" if first.seq >= 0 else f"{layer} layer"
        yield f"{worst}first: {where}{split}, {_parting(first)}"
    if first.cause < 0 <= first.frame and first.input:
        yield f"cause: upstream's frame {first.frame}: {first.input}"
    if first.cause >= 0:
        yield f"cause: engine step {first.cause}: {first.input or 'no recorded input'}"


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
