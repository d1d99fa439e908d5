"""rules_of: which numbered rules of the protocol a derivation breaks, and which appear or go with a replay.

The rules judge the frames with all that is known of the session; when frames left is taken from the recorded inputs, so
that both sides are judged alike. What the socket took is left out: it is of the recorded frames only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec

from replay.derive import Derived, Track
from replay.evidence import evidence_of
from stages.errors import UnknownName
from stages.events import Block, Body, Comment, Head
from stages.protocols.rules import Evidence, check
from store.api import Rows, Trace

_FRAMES = frozenset((Head, Block, Comment, Body))


class Judge:
    """Judges derivations of one session."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        records = trace.records.get(("input", "engine"), [])
        self._inputs = records
        self._ats = records.ats if isinstance(records, Rows) else [record.at for record in records]
        self._like: Evidence | None = None

    def broken(self, derived: Derived) -> dict[str, int]:
        """Breaches by rule (``INV-044``) of the session if these are its layers. Empty where there is nothing to judge:
        no frames, a protocol without rules, or a stage of a user's that gives other things than frames."""
        frames = derived.frame
        if not frames.events or not _FRAMES.issuperset(map(type, frames.events)):
            return {}
        shown = Trace(
            opening=self._trace.opening,
            info=msgspec.structs.replace(self._trace.info, mode="full"),
            records={
                ("input", "engine"): self._inputs,
                ("served", "semantic"): self._records(derived.semantic),
                ("served", "frame"): self._records(frames),
            },
        )
        try:
            self._like = evidence_of(shown, like=self._like)
            return check(self._like, keep=0).counts
        except UnknownName:
            return {}

    def _records(self, track: Track) -> Rows:
        known = range(len(self._ats))
        at = [self._ats[step] if step in known else 0 for step in track.steps]
        return Rows(track.causes, at, track.events)


def appeared(before: Mapping[str, int], after: Mapping[str, int]) -> tuple[str, ...]:
    """The rules that are broken after and were not before, or more often: each as often as it is more."""
    return tuple(sorted((Counter(after) - Counter(before)).elements()))
