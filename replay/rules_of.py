"""rules_of: which numbered rules of the protocol a derivation breaks, and which appear or go with a replay.

The rules judge the frames with all that is known of the session; when frames left is taken from the recorded inputs, so
that both sides are judged alike. What the socket took is left out: it is of the recorded frames only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from replay.derive import Derived, Track
from replay.evidence import evidence_of
from stages.errors import UnknownName
from stages.events import Block, Body, Comment, Head
from stages.protocols.rules import check
from store.api import Rows, Trace

_FRAMES = frozenset((Head, Block, Comment, Body))


def broken(trace: Trace, derived: Derived) -> dict[str, int]:
    """Breaches by rule (``INV-044``) of a session whose layers these are. Empty where there is nothing to judge: no
    frames, a protocol without rules, or a stage of a user's that gives other things than frames."""
    frames = derived.frame
    if not frames.events or not _FRAMES.issuperset(map(type, frames.events)):
        return {}
    inputs = trace.records.get(("input", "engine"), [])
    ats = [record.at for record in inputs]
    shown = Trace(
        opening=trace.opening,
        info=msgspec.structs.replace(trace.info, mode="full"),
        records={
            ("input", "engine"): inputs,
            ("served", "semantic"): _records(derived.semantic, ats),
            ("served", "frame"): _records(frames, ats),
        },
    )
    try:
        return check(evidence_of(shown), keep=0).counts
    except UnknownName:
        return {}


def appeared(before: Mapping[str, int], after: Mapping[str, int]) -> tuple[str, ...]:
    """The rules that are broken after and were not before, or more often: each as often as it is more."""
    return tuple(sorted((Counter(after) - Counter(before)).elements()))


def _records(track: Track, ats: Sequence[int]) -> Rows:
    at = [ats[step] if 0 <= step < len(ats) else 0 for step in track.steps]
    return Rows(track.causes, at, track.events)
