"""Sampled sessions are held to the protocol rules once they have ended and are stored; see ``afterwards``."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TypeAlias

import anyio.to_thread

from pipeline.afterwards import Afterwards, Due, loaded
from pipeline.recorder import Recorder, SessionRecorder
from replay.evidence import evidence_of
from stages.opening import Opening
from stages.protocols.rules import check
from store.api import EventStore, Trace

log = logging.getLogger("playhead.validation")

Counts: TypeAlias = dict[str, int]


class Validator(Afterwards[float]):
    """Judges a share of the sessions, chosen by their keys, but not by what chooses those that are recorded.

    What is wanted of a session is that it keeps the rules, with so many seconds between comments that were promised.
    """

    def __init__(self, recorder: Recorder, rate: float) -> None:
        """``rate``: the share, 0 to 1."""
        super().__init__(recorder, log, "validated")
        self._rate = rate
        if rate <= 0:
            self._store = None
        self.validated = 0
        """Sessions that were judged."""
        self.breaches: Counter[tuple[str, str]] = Counter()
        """(rule, ``error`` or ``warning``) → how often."""

    def offer(self, opening: Opening, recorder: SessionRecorder, keep_alive: float) -> None:
        """A session has ended. Never waits, never raises. ``keep_alive``: seconds between comments that it was
        promised; 0: none."""
        if self._chosen(opening):
            self._put(Due(opening.session, recorder, keep_alive))

    def _chosen(self, opening: Opening) -> bool:
        # Other digits of the key than the recorder's: one sample is not part of the other.
        return self._rate >= 1.0 or int(opening.key[8:16], 16) < self._rate * 2**32

    async def _do(self, store: EventStore, session: str, where: str | Trace, wanted: float) -> None:
        counts, errors = await self._elsewhere(judge, where, session, wanted)
        await anyio.to_thread.run_sync(store.note_rules, session, counts, sum(errors.values()), abandon_on_cancel=True)
        self.validated += 1
        for rule, count in counts.items():
            self.breaches[rule, "error"] += errors.get(rule, 0)
            self.breaches[rule, "warning"] += count - errors.get(rule, 0)


def judge(where: str | Trace, session: str, keep_alive: float) -> tuple[Counts, Counts]:
    """Breaches of a session of the store at a path, or of a whole session: (all, the errors), by rule. In the other
    process."""
    report = check(evidence_of(loaded(where, session), keep_alive=keep_alive), keep=0)
    return report.counts, report.error_counts
