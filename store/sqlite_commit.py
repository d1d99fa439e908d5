"""The writer thread of the SQLite store: its transactions, failure and recovery."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any, TypeAlias

from store import block
from store.api import Overtaken, State, StoreError, StoreUnavailable
from store.lease import Lease
from store.rules import Counters
from store.sqlite_record import Recording
from store.sqlite_rows import Stored, select_sessions
from store.sqlite_schema import Durability, connect, is_older, unavailable
from store.sqlite_settle import is_torn, settle, sweep, transaction
from store.sqlite_writer import CommitHook, Item, Queue, Session, log
from store.watch import Watchers

COMMIT_BYTES = 4 << 20
"""About the most that one transaction takes from the queue."""

File: TypeAlias = tuple[int, int]
"""Device and inode."""

BACKOFF = (0.05, 2.0)
"""Seconds to wait after the first failure, and at most."""


class Committer:
    """Everything that happens in the writer thread."""

    def __init__(
        self, path: str, conn: sqlite3.Connection, queue: Queue, counters: Counters, *, busy_s: float,
        durability: Durability, hook: CommitHook | None, let_go: Callable[[], None], watchers: Watchers,
    ) -> None:  # fmt: skip
        """``conn``: a connection to the store at ``path``, which is the committer's from now on. ``let_go``: closes the
        others that this process has to it.

        What dead writers left there is put in order; not in tables of an older layout, before something is written."""
        self._path = path
        self._conn: sqlite3.Connection | None = None
        if is_older(conn):
            conn.close()
        else:
            self._conn = conn
            sweep(conn, path, block.Packer())
        self._identity = identity(path)
        self._queue = queue
        self._counters = counters
        self._busy_s = busy_s
        self._durability: Durability = durability
        self._hook = hook
        self._let_go = let_go
        self._watchers = watchers
        self._log: tuple[File | None, File | None] = (None, None)
        self._lease: Lease | None = None
        self.recording = Recording(path)
        self._unsettled: dict[str, None] = {}
        self._lock = threading.Lock()
        self._backoff = 0.0
        self._reported = False

    # --- losing -----------------------------------------------------------------------------------------------------

    def drop(self, session: Session, error: StoreError) -> None:
        """Queue nothing more of a session. Any thread."""
        with self._lock:
            if session.lost is not None:
                return
            session.lost = error
        self._counters.add(failures=1)
        self._report(error)
        self._watchers.tell([session.opening.session])

    def _kill(self, session: Session, error: StoreError, *, settled: bool) -> None:
        """Write nothing more of a session; ``settled``: what is stored of it stays as it is."""
        if session.dead is None:
            session.dead = error
            self.recording.forget(session)
            if session.row and not settled:
                self._unsettled[session.opening.session] = None
        session.lost = session.lost or error
        self._watchers.tell([session.opening.session])

    def _report(self, error: StoreError) -> None:
        if not self._reported:
            self._reported = True
            log.warning("recording failed, sessions are incomplete: %s", error)

    # --- the thread -------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Until the queue is ended and empty."""
        while (items := self._taken()) != []:
            if items is None:
                self._recover()
                continue
            start, began = 0, time.monotonic()
            for end, item in enumerate(items):
                if item.call is not None:
                    self._commit(items[start:end])
                    _resolve(item, None)
                    start = end + 1
            self._commit(items[start:])
            self._queue.took(time.monotonic() - began)
            if self._backoff and not self._queue.ended:
                self._queue.pause(self._backoff)
        if self._unsettled:
            self._recover()
        self._leave()
        if self._conn is not None:
            self._conn.close()

    def _taken(self) -> list[Item] | None:
        # What was lost is marked in quiet times, too: until then other processes take it to be running.
        return self._queue.take(COMMIT_BYTES, BACKOFF[1] if self._unsettled else None)

    def _leave(self) -> None:
        if self._lease is None:
            return
        try:
            if not self.recording.live and not self._unsettled:
                self.connected().execute("DELETE FROM writers WHERE epoch=?", (self.recording.epoch,))
        except (sqlite3.Error, StoreError) as error:
            log.debug("the lease's row stays: %s", error)
        self._lease.release()

    def _commit(self, items: Sequence[Item]) -> None:
        """One transaction: all of the items are recorded, or none."""
        if not any(item.session is not None and item.future is None for item in items):
            for item in items:
                _resolve(item, item.session.dead if item.session else None)
            return
        refused: list[tuple[Session, StoreError]] = []
        touched: list[Session] = []
        try:
            conn = self.connected()
            with transaction(conn):
                touched = self.recording.write(conn, items, refused)
        except Exception as error:  # whatever it is: serving goes on, and so does this thread
            self._failed(items, error)
        else:
            self._succeeded(items, touched, refused)
        for item in items:
            _resolve(item, item.session.dead if item.session else None)

    def _failed(self, items: Iterable[Item], error: Exception) -> None:
        reason = error if isinstance(error, StoreError) else unavailable(self._path, error)
        self.recording.rolled_back()
        self._counters.add(failures=1, lost_records=sum(item.n + item.lost for item in items))
        for item in items:
            if item.session is not None:
                self._kill(item.session, reason, settled=False)
        self._report(reason)
        self._backoff = min(max(self._backoff * 2, BACKOFF[0]), BACKOFF[1])
        if self._conn is not None and "locked" not in str(error):
            self._conn.close()
            self._conn = None

    def _succeeded(
        self, items: Sequence[Item], touched: Iterable[Session], refused: Iterable[tuple[Session, StoreError]]
    ) -> None:
        self.recording.committed()
        self._log = self._identity, identity(f"{self._path}-wal")
        for session, error in refused:
            if not isinstance(error, Overtaken):
                self._counters.add(failures=1)
                self._report(error)
            self._kill(session, error, settled=session.attached)
        kept = [item for item in items if item.n]
        self._counters.add(
            commits=1, batches=sum(len(item.parts) for item in kept), records=sum(item.n for item in kept),
            bytes=sum(item.size for item in kept), lost_records=sum(item.lost for item in items),
        )  # fmt: skip
        self._watchers.tell(session.opening.session for session in touched)
        if self._hook is not None:
            self._tell(self._hook, touched)
        self._backoff = 0.0
        if self._unsettled:
            self._recover()
        if not self._unsettled and not self._queue.full:
            self._reported = False

    def _tell(self, hook: CommitHook, touched: Iterable[Session]) -> None:
        durable: list[tuple[str, str, str, int]] = [
            (session.opening.session, track, layer, held.next)
            for session in touched
            for (track, layer), held in session.layers.items()
        ]
        try:
            hook(durable)
        except Exception:  # the hook is the caller's, the thread is everybody's
            log.exception("on_commit raised")

    def state(self, stored: Stored) -> State:
        """The state of a session, also where its row does not say it yet: its writer is dead, or lost it. Any
        thread."""
        if is_torn(self._path, stored):
            return "torn"
        lost = stored.info.state == "open" and stored.info.session in self._unsettled
        return "incomplete" if lost else stored.info.state

    # --- connection -------------------------------------------------------------------------------------------------

    def connected(self) -> sqlite3.Connection:
        """The connection, with a lease. Notices a file that is gone or replaced. Raises StoreError, sqlite3.Error."""
        if self._identity != identity(self._path):
            self._moved()
        if self._conn is None:
            self.check_place()
            self._conn = connect(self._path, create=True, busy_s=self._busy_s, durability=self._durability)
            sweep(self._conn, self._path, self.recording.squeeze)
            self._identity = identity(self._path)
        conn = self._conn
        if self._lease is None:
            self.recording.epoch, self._lease = _take_lease(conn, self._path)
        return conn

    def check_place(self) -> None:
        """Raises StoreUnavailable where another file is there now, beside the log of the one before: SQLite would write
        the old pages into the new file. Any thread."""
        of, log_of = self._log
        here = identity(self._path)
        if here is not None and here != of and log_of is not None and log_of == identity(f"{self._path}-wal"):
            raise StoreUnavailable(
                f"{self._path} was replaced while {self._path}-wal holds records of the file before; move that one "
                "back, or remove the -wal file to begin anew."
            )

    def _moved(self) -> None:
        """What was recorded of the running sessions is gone with the file; new ones go to a new file."""
        if self._conn is not None:
            self._conn.close()
            self._conn = None
        self._let_go()
        if self._lease is not None:
            self._lease.release()
            self._lease = None
        self._identity = None
        error = StoreUnavailable(f"{self._path} was deleted or replaced while sessions were recorded.")
        self._unsettled.clear()
        for session in self.recording.moved():
            self._kill(session, error, settled=True)
            self._counters.add(failures=1)
            self._report(error)

    def _recover(self) -> None:
        """Mark the sessions that were lost while the store failed."""
        where = "WHERE s.session=? AND s.state='open' AND s.epoch=?"
        try:
            conn = self.connected()
            for name in list(self._unsettled)[:16]:
                with transaction(conn):
                    for stored in select_sessions(conn, where, (name, self.recording.epoch)):
                        settle(conn, stored, "incomplete", self.recording.squeeze)
                self._unsettled.pop(name, None)
                self._watchers.tell([name])
        except (sqlite3.Error, StoreError) as error:
            log.debug("incomplete sessions wait to be marked: %s", error)


def identity(path: str) -> File | None:
    """Which file is there, if any."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _take_lease(conn: sqlite3.Connection, path: str) -> tuple[int, Lease]:
    # The lock is held before the row can be seen.
    with transaction(conn):
        (last,) = conn.execute("SELECT max(epoch) FROM writers").fetchone()
        epoch = max(time.time_ns() // 1_000_000, (last or 0) + 1)
        conn.execute("INSERT INTO writers (epoch, pid) VALUES (?, ?)", (epoch, os.getpid()))
        try:
            lease = Lease(path, epoch)
        except OSError as error:
            raise StoreUnavailable(f"{path}: no lock file can be made beside it ({error.strerror}).") from error
    return epoch, lease


def _resolve(item: Item, error: StoreError | None) -> None:
    future: Future[Any] | None = item.future
    if future is None or not future.set_running_or_notify_cancel():
        return
    if error is not None:
        future.set_exception(error)
    elif item.call is None:
        future.set_result(None)
    else:
        try:
            result = item.call()
        except BaseException as raised:  # the caller's to handle
            future.set_exception(raised)
        else:
            future.set_result(result)
