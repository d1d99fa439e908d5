"""Work on sessions that have ended: off the path of requests, one session at a time, in a process of its own.

That process has the lowest priority, so serving does not wait for it; where it lags, sessions are skipped and counted.
It reads the store itself; what a store in memory holds is handed to it. Whatever goes wrong is counted, and logged
without a word of what was said.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import tempfile
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import lru_cache
from math import inf
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar, TypeVarTuple, Unpack

import anyio
import anyio.to_process
import anyio.to_thread
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from pipeline.busy import spent
from pipeline.recorder import Recorder, SessionRecorder
from store import SqliteStore, open_store
from store.api import EventStore, StoreError, Trace

WAITING = 64
"""Sessions that may wait."""

PATIENCE = 60.0
"""Seconds that one piece of work may take; then its process is ended. A user's parser may hang. Where others keep the
processors busy, the seconds that it waited for one are not counted (see ``busy``)."""

Wanted = TypeVar("Wanted")
Args = TypeVarTuple("Args")
T = TypeVar("T")


class Due(NamedTuple, Generic[Wanted]):
    """A session to work on, and what is wanted of it."""

    session: str
    recorder: SessionRecorder
    wanted: Wanted


class Afterwards(Generic[Wanted]):
    """A queue of sessions, and what works it off while ``running``. Without a store there is nothing to do.

    ``done``: what becomes of a session, for the log.
    """

    def __init__(self, recorder: Recorder, log: logging.Logger, done: str) -> None:
        self._store: EventStore | None = recorder.store
        self._log = log
        self._done = done
        self._inbox: MemoryObjectSendStream[Due[Wanted]] | None = None
        self._deadline = -inf
        self._limiter: anyio.CapacityLimiter | None = None
        self._tasks: TaskGroup | None = None
        self._mark = Path()
        self._begun = 0
        self._told: set[str] = set()
        self.skipped = 0
        """Sessions that nothing was done with, because others waited already."""
        self.failed = 0
        """Sessions whose work came to no end."""

    @property
    def waiting(self) -> int:
        """Sessions that wait."""
        return 0 if self._inbox is None else self._inbox.statistics().current_buffer_used

    def _put(self, due: Due[Wanted]) -> None:
        """A session has ended. Never waits, never raises."""
        if self._inbox is None or not due.recorder.recorded:
            return
        try:
            self._inbox.send_nowait(due)
        except anyio.WouldBlock:
            self.skipped += 1

    def finish_by(self, deadline: float) -> None:
        """Until when, on the event loop's clock, what waits may be done after the server has stopped."""
        self._deadline = deadline

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Work while the block runs; then on what waits, until the deadline of ``finish_by``, if there is one."""
        if self._store is None:
            yield
            return
        inbox, due = anyio.create_memory_object_stream[Due[Wanted]](WAITING)
        with tempfile.TemporaryDirectory(prefix="playhead-") as folder:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._work, self._store, due)
                self._tasks, self._mark, self._inbox = tasks, Path(folder, "mark"), inbox
                try:
                    yield
                finally:
                    self._inbox = None
                    inbox.close()
                    tasks.cancel_scope.deadline = self._deadline

    async def _work(self, store: EventStore, due: MemoryObjectReceiveStream[Due[Wanted]]) -> None:
        self._limiter = anyio.CapacityLimiter(1)
        async with due:
            async for one in due:
                try:
                    await self._do(store, one.session, await self._stored(store, one), one.wanted)
                except (Exception, KeyboardInterrupt, SystemExit) as error:
                    # The last two come from the other process: a Ctrl-C before it looks away, a parser that ends it.
                    self._failed(one.session, error)

    async def _stored(self, store: EventStore, one: Due[Wanted]) -> str | Trace:
        """Where the other process finds the session, once all of it is there."""
        # Of a session that lost records what is there is taken, as of one that was cut.
        with contextlib.suppress(StoreError):
            await one.recorder.committed()
        await anyio.to_thread.run_sync(store.flush, abandon_on_cancel=True)
        if isinstance(store, SqliteStore):
            return store.path
        return await anyio.to_thread.run_sync(store.load, one.session)

    async def _do(self, store: EventStore, session: str, where: str | Trace, wanted: Wanted) -> None:
        """All that is to be done with one session."""
        raise NotImplementedError

    async def _elsewhere(self, work: Callable[[Unpack[Args]], T], *args: *Args) -> T:
        """Call a function in the other process. Raises TimeoutError, BrokenWorkerProcess, and what it raises."""
        # Its start is not given up half-way, which would leave it behind, and takes nothing of the time for the work.
        with anyio.CancelScope(shield=True):
            try:
                await anyio.to_process.run_sync(step_back, limiter=self._limiter)
            except anyio.BrokenWorkerProcess as error:
                raise RuntimeError("the other process does not start") from error
        self._begun += 1
        working, watching = anyio.CancelScope(), anyio.CancelScope()
        assert self._tasks is not None
        self._tasks.start_soon(self._watch, working, watching)
        try:
            with working:
                return await anyio.to_process.run_sync(
                    marked, self._mark, self._begun, work, args, cancellable=True, limiter=self._limiter
                )
        finally:
            watching.cancel()
        raise TimeoutError

    async def _watch(self, working: anyio.CancelScope, watching: anyio.CancelScope) -> None:
        """End the work when its time is over."""
        left = PATIENCE
        with watching:
            while left > 0:
                # A process that hardly runs is not asked without end.
                await anyio.sleep(max(left, PATIENCE / 60))
                left = PATIENCE - self._took()
            working.cancel()

    def _took(self) -> float:
        """How many of the seconds since the work began count: what it computed; where it does not compute, all but what
        others had of the processors."""
        try:
            number, pid, *before = self._mark.read_text().split()
        except (OSError, ValueError):
            return 0.0
        if int(number) != self._begun:
            return 0.0
        began, ran, waited = map(float, before)
        now = spent(int(pid))
        return now.ran - ran if now.runs else time.monotonic() - began - max(now.waited - waited, 0.0)

    def _failed(self, session: str, error: BaseException) -> None:
        self.failed += 1
        self._tell(session, type(error).__name__)

    def _tell(self, session: str, why: str) -> None:
        if why not in self._told:
            # Once each: a store that cannot be read fails for every session.
            self._told.add(why)
            self._log.warning("session %.14s could not be %s: %s", session, self._done, why)


# --- in the other process -------------------------------------------------------------------------------------------


def marked(mark: Path, number: int, work: Callable[[Unpack[Args]], T], args: tuple[*Args]) -> T:
    """Do a piece of work. ``mark``: the file that tells of it."""
    step_back()  # this may be another process than the one that was started for it
    before = spent(os.getpid())
    mark.write_text(f"{number} {os.getpid()} {time.monotonic()} {before.ran} {before.waited}")
    return work(*args)


@lru_cache(maxsize=1)
def step_back() -> None:
    """Serving comes first; and a Ctrl-C is the server's, which ends this process when it is time."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(AttributeError, OSError):  # not everywhere
        os.nice(19)


def loaded(where: str | Trace, session: str) -> Trace:
    """The session, of the store at a path, or as it was handed over. Raises StoreError."""
    return _read(where, session) if isinstance(where, str) else where


@lru_cache(maxsize=1)
def _read(path: str, session: str) -> Trace:
    # One session has several pieces of work, one after the other. The store is closed again at once: at a stop the
    # server is the last to close it, which makes it one whole file.
    store = open_store(path, create=False)
    try:
        return store.load(session)
    finally:
        store.close()
