"""Sampled sessions are held to the protocol rules once they have ended and are stored.

It happens in a process of its own, one session at a time, at the lowest priority: serving does not wait for it, and
where it lags, sessions are skipped and counted. The process reads the store itself; what a store in memory holds is
handed to it. Whatever goes wrong is counted, and logged without a word of what was said.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import lru_cache
from math import inf
from typing import NamedTuple, TypeAlias

import anyio
import anyio.to_process
import anyio.to_thread
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from pipeline.recorder import Recorder, SessionRecorder
from replay.evidence import evidence_of
from stages.opening import Opening
from stages.protocols.rules import check
from store import SqliteStore, open_store
from store.api import EventStore, StoreError, Trace

log = logging.getLogger("playhead.validation")

WAITING = 64
"""Sessions that may wait to be judged."""

PATIENCE = 60.0
"""Seconds that one may take; then its process is ended. A user's parser, which a lean session runs again, may hang."""

Counts: TypeAlias = dict[str, int]


class Due(NamedTuple):
    """A session to judge. ``keep_alive``: seconds between comments that it was promised; 0: none."""

    session: str
    recorder: SessionRecorder
    keep_alive: float


class Validator:
    """Judges a share of the sessions, chosen by their keys, but not by what chooses those that are recorded.

    Without a store there is nothing to judge.
    """

    def __init__(self, recorder: Recorder, rate: float) -> None:
        """``rate``: the share, 0 to 1."""
        self._store: EventStore | None = recorder.store if rate > 0 else None
        self._rate = rate
        self._inbox: MemoryObjectSendStream[Due] | None = None
        self._deadline = -inf
        self._told: set[str] = set()
        self.validated = 0
        """Sessions that were judged."""
        self.skipped = 0
        """Sessions of the sample that were not, because others waited already."""
        self.failed = 0
        """Sessions that could not be judged."""
        self.breaches: Counter[tuple[str, str]] = Counter()
        """(rule, ``error`` or ``warning``) → how often."""

    @property
    def waiting(self) -> int:
        """Sessions that wait to be judged."""
        return 0 if self._inbox is None else self._inbox.statistics().current_buffer_used

    def offer(self, opening: Opening, recorder: SessionRecorder, keep_alive: float) -> None:
        """A session has ended. Never waits, never raises."""
        if self._inbox is None or not recorder.recorded or not self._chosen(opening):
            return
        try:
            self._inbox.send_nowait(Due(opening.session, recorder, keep_alive))
        except anyio.WouldBlock:
            self.skipped += 1

    def _chosen(self, opening: Opening) -> bool:
        # Other digits of the key than the recorder's: one sample is not part of the other.
        return self._rate >= 1.0 or int(opening.key[8:16], 16) < self._rate * 2**32

    def finish_by(self, deadline: float) -> None:
        """Until when, on the event loop's clock, what waits may be judged after the server has stopped."""
        self._deadline = deadline

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Judge while the block runs; then what waits, until the deadline of ``finish_by``, without one not at all."""
        if self._store is None:
            yield
            return
        inbox, due = anyio.create_memory_object_stream[Due](WAITING)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._work, self._store, due)
            self._inbox = inbox
            try:
                yield
            finally:
                self._inbox = None
                inbox.close()
                tasks.cancel_scope.deadline = self._deadline

    async def _work(self, store: EventStore, due: MemoryObjectReceiveStream[Due]) -> None:
        limiter = anyio.CapacityLimiter(1)
        async with due:
            async for one in due:
                try:
                    await self._judge(store, one, limiter)
                except (Exception, KeyboardInterrupt, SystemExit) as error:
                    # The last two come from the other process: a Ctrl-C before it looks away, a parser that ends it.
                    self._failed(one.session, error)

    async def _judge(self, store: EventStore, one: Due, limiter: anyio.CapacityLimiter) -> None:
        # Of a session that lost records what is there is judged, as of one that was cut.
        with contextlib.suppress(StoreError):
            await one.recorder.committed()
        await anyio.to_thread.run_sync(store.flush, abandon_on_cancel=True)
        where: str | Trace
        if isinstance(store, SqliteStore):
            where = store.path
        else:
            where = await anyio.to_thread.run_sync(store.load, one.session)
        with anyio.fail_after(PATIENCE):
            counts, errors = await anyio.to_process.run_sync(
                judge, where, one.session, one.keep_alive, cancellable=True, limiter=limiter
            )
        await anyio.to_thread.run_sync(
            store.note_rules, one.session, counts, sum(errors.values()), abandon_on_cancel=True
        )
        self.validated += 1
        for rule, count in counts.items():
            self.breaches[rule, "error"] += errors.get(rule, 0)
            self.breaches[rule, "warning"] += count - errors.get(rule, 0)

    def _failed(self, session: str, error: BaseException) -> None:
        self.failed += 1
        kind = type(error).__name__
        if kind not in self._told:
            # Once each: a store that cannot be read fails for every session.
            self._told.add(kind)
            log.warning("session %.14s could not be validated: %s", session, kind)


# --- in the other process -------------------------------------------------------------------------------------------


def judge(where: str | Trace, session: str, keep_alive: float) -> tuple[Counts, Counts]:
    """Breaches of a session of the store at a path, or of a whole session: (all, the errors), by rule."""
    _step_back()
    trace = _loaded(where, session) if isinstance(where, str) else where
    report = check(evidence_of(trace, keep_alive=keep_alive), keep=0)
    return report.counts, report.error_counts


@lru_cache(maxsize=1)
def _step_back() -> None:
    """Serving comes first; and a Ctrl-C is the server's, which ends this process when it is time."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(AttributeError, OSError):  # not everywhere
        os.nice(19)


def _loaded(path: str, session: str) -> Trace:
    # Closed again at once: at a stop the server is the last to close the store, which makes it one whole file.
    store = open_store(path, create=False)
    try:
        return store.load(session)
    finally:
        store.close()
