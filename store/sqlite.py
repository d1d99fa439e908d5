"""SqliteStore: sessions in one SQLite file.

Tables: ``sessions`` (one row a session, what people query), ``messages`` (the final message per choice, searched
through ``messages_fts``), ``segments`` (sealed records), ``journal`` (records not sealed yet), ``blobs`` (by hash),
``writers`` (who records). Several processes may write to one file; SQLite lets them in one after the other.
"""

from __future__ import annotations

import atexit
import os
import sqlite3
import threading
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice, zip_longest
from typing import TypeVar

import msgspec
from sqlite_utils import Database

from stages.events import Layer
from stages.opening import Opening
from store.api import (
    ENDED,
    CorruptRecord,
    Mode,
    Piece,
    Record,
    SessionInfo,
    ShadowVerdict,
    State,
    StoreError,
    StoreUnavailable,
    Trace,
)
from store.opening import Known
from store.query import matching
from store.rules import Counters, Key, check_attached, kept, not_found, noted
from store.sqlite_commit import Committer, identity
from store.sqlite_rows import Stored, load_layers, load_opening, read_layer, select_sessions, update_row
from store.sqlite_schema import SQLITE_ERRORS, Durability, connect, is_outdated, unavailable
from store.sqlite_settle import project, transaction
from store.sqlite_writer import CommitHook, Item, Queue, Session, SqliteWriter
from store.watch import Watchers

PAGE = 200
"""Sessions read at once."""

T = TypeVar("T")


class SqliteStore:
    """See EventStore. Reads see what is committed: ``flush`` first to see all that was appended.

    ``durability``: ``full`` survives a power cut, ``normal`` a killed process. ``create``: make the file if it is
    missing, and migrate one of an older layout; else that is read as it is, and migrated when something is written.
    ``window_s``: how long a record waits for company before its commit. ``busy_s``: how long to wait for another
    process's lock. ``queue_bytes``: what may wait to be written; beyond it sessions are dropped, whole from there on.
    ``on_commit``: called after each commit, in the writer thread, with what became durable.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: Durability = "full",
        create: bool = True,
        window_s: float = 0.015,
        busy_s: float = 5.0,
        queue_bytes: int = 64 << 20,
        on_commit: CommitHook | None = None,
    ) -> None:
        """Raises StoreUnavailable, UnknownSchema."""
        self._path: str = os.path.abspath(os.fspath(path))
        self._busy_s = busy_s
        conn = connect(self._path, create=create, busy_s=busy_s, durability=durability)
        self._counters = Counters()
        self._watchers = Watchers()
        self._queue = Queue(queue_bytes, window_s, 256 << 10)
        self._committer = Committer(
            self._path, conn, self._queue, self._counters, busy_s=busy_s, durability=durability, hook=on_commit,
            let_go=self._let_go, watchers=self._watchers,
        )  # fmt: skip
        self._thread: threading.Thread | None = None
        self._closed = False
        self._lock = threading.Lock()
        self._reader: sqlite3.Connection | None = None
        self._reader_of: tuple[int, int] | None = None
        self._reading = threading.Lock()
        self._read_before = Known()
        self._read_at: tuple[object, int] | None = None
        atexit.register(self.close)

    # --- writing ----------------------------------------------------------------------------------------------------

    @property
    def path(self) -> str:
        """The file, absolute."""
        return self._path

    def _start(self) -> None:
        with self._lock:
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._committer.run, name="playhead-store", daemon=True)
                self._thread.start()

    def writer(self, opening: Opening, mode: Mode = "full", known: Collection[str] | None = None) -> SqliteWriter:
        """See EventStore. Recording a session that is there already is allowed where all that comes is equal."""
        self._start()
        return SqliteWriter(Session(opening, mode, known), self._queue, self._counters, self._committer.drop)

    def _call(self, call: Callable[[], T] | None) -> Future[T]:
        self._start()
        future: Future[T] = Future()
        if not self._queue.put(Item(0, future=future, call=call), urgent=True, must=True):
            future.set_exception(StoreUnavailable(f"{self._path}: the store is closed."))
        return future

    def save(self, traces: Iterable[Trace]) -> int:
        """See EventStore. One transaction a trace."""
        return sum(self._call(partial(self._save, trace)).result() for trace in traces)

    def _save(self, trace: Trace) -> bool:
        with self._writing(trace.opening.session) as conn:
            return self._committer.recording.save(conn, trace)

    def note_rules(self, session: str, rules: Mapping[str, int], errors: int) -> None:
        """See EventStore. After all that was queued before."""
        self._call(partial(self._note, session, rules, errors)).result()

    def _note(self, session: str, rules: Mapping[str, int], errors: int) -> None:
        with self._writing(session) as conn:
            stored = self._committer.recording.ended(conn, self._find(conn, session))
            update_row(conn, noted(stored.info, rules, errors))

    def attach(
        self, session: str, track: str, records: Mapping[Layer, Sequence[Record]], verdict: ShadowVerdict | None = None
    ) -> None:
        """See EventStore. After all that was queued before."""
        given = check_attached(track, records, verdict)
        self._call(partial(self._attach, session, track, given, verdict)).result()

    def _attach(
        self, session: str, track: str, given: Mapping[Key, list[Record]], verdict: ShadowVerdict | None
    ) -> None:
        with self._writing(session) as conn:
            self._committer.recording.attach(conn, self._find(conn, session), track, given, verdict)

    def delete(self, session: str) -> None:
        """See EventStore. After all that was queued before."""
        self._call(partial(self._delete, session)).result()

    def _delete(self, session: str) -> None:
        with self._writing(session) as conn:
            self._committer.recording.delete(conn, self._find(conn, session))

    @contextmanager
    def _writing(self, session: str) -> Generator[sqlite3.Connection]:
        """One transaction of the writer thread, about a session. Raises StoreError."""
        try:
            conn = self._committer.connected()
            with transaction(conn):
                yield conn
        except SQLITE_ERRORS as error:
            raise unavailable(self._path, error) from error
        except OverflowError as error:
            raise StoreError(f"session {session}: a number in it cannot be stored ({error}).") from error
        except (TypeError, ValueError, RecursionError) as error:
            raise StoreError(f"session {session}: an event cannot be encoded: {error}") from error

    def flush(self) -> None:
        """See EventStore."""
        if self._thread is not None and not self._closed:
            self._call(None).result()

    def close(self) -> None:
        """See EventStore."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        atexit.unregister(self.close)
        self._queue.end()
        if self._thread is None:
            self._committer.run()
        else:
            self._thread.join()
        self._let_go()

    def _let_go(self) -> None:
        with self._reading:
            if self._reader is not None:
                self._reader.close()
                self._reader = None

    def stats(self) -> dict[str, int]:
        """See EventStore."""
        return self._counters.get()

    # --- reading ----------------------------------------------------------------------------------------------------

    @contextmanager
    def _read(self) -> Generator[sqlite3.Connection]:
        """A connection that sees one moment. Raises StoreUnavailable, CorruptRecord."""
        with self._reading:
            try:
                conn = self._connected()
                conn.execute("BEGIN")
                try:
                    yield conn
                finally:
                    conn.rollback()
            except sqlite3.OperationalError as error:
                raise unavailable(self._path, error) from error
            except SQLITE_ERRORS as error:
                raise CorruptRecord(f"{self._path}: {error}. Restore the file from a backup.") from error

    def _connected(self) -> sqlite3.Connection:
        if self._closed:
            raise StoreUnavailable(f"{self._path}: the store is closed.")
        there = identity(self._path)
        if self._reader is not None and (self._reader_of != there or is_outdated(self._reader)):
            self._reader.close()
            self._reader = None
        if self._reader is None:
            self._committer.check_place()
            self._reader = connect(self._path, create=False, busy_s=self._busy_s, durability="full")
            self._reader_of = there
        return self._reader

    def _known(self, conn: sqlite3.Connection) -> Known:
        """What was read of openings since somebody wrote: damage is told to who reads after it."""
        at = self._reader_of, conn.execute("PRAGMA data_version").fetchone()[0]
        if at != self._read_at:
            self._read_before, self._read_at = Known(), at
        return self._read_before

    def _shown(self, stored: Stored) -> SessionInfo:
        return msgspec.structs.replace(stored.info, state=self._committer.state(stored))

    def sessions(
        self, where: str | None = None, *, state: State | None = None, limit: int | None = None
    ) -> Iterator[SessionInfo]:
        """See EventStore."""
        found = self._newest(state) if where is None else self._matching(where, state)
        return islice(found, limit)

    def _newest(self, state: State | None) -> Iterator[SessionInfo]:
        after: tuple[int, int] | None = None
        # A torn session that nobody swept yet is stored as open, and so may one be that lost records.
        states = ("open", state) if state in ("torn", "incomplete") else (state,)
        where = f"s.state IN ({', '.join('?' * len(states))})" if state else "1"
        while True:
            page, values = where, [*states] if state else []
            if after is not None:
                page += " AND (s.opened, s.id) < (?, ?)"
                values += [*after]
            with self._read() as conn:
                found = select_sessions(
                    conn, f"WHERE {page}", values, f"ORDER BY s.opened DESC, s.id DESC LIMIT {PAGE}"
                )
            yield from self._in_state(found, state)
            if len(found) < PAGE:
                return
            after = (found[-1].info.opened, found[-1].id)

    def _matching(self, where: str, state: State | None) -> Iterator[SessionInfo]:
        with self._read() as conn:
            ids = matching(conn, where)
        for start in range(0, len(ids), PAGE):
            with self._read() as conn:
                found = self._by_id(conn, ids[start : start + PAGE])
            yield from self._in_state(found, state)

    def _in_state(self, found: Iterable[Stored], state: State | None) -> Iterator[SessionInfo]:
        for stored in found:
            info = self._shown(stored)
            if state is None or info.state == state:
                yield info

    def _by_id(self, conn: sqlite3.Connection, ids: Sequence[int]) -> list[Stored]:
        """The rows, in this order."""
        where = f"WHERE s.id IN ({', '.join('?' * len(ids))})"
        found = {stored.id: stored for stored in select_sessions(conn, where, ids)}
        return [found[row] for row in ids if row in found]

    def search(self, text: str, *, limit: int | None = None) -> Iterator[SessionInfo]:
        """See EventStore. All words must be there, in any order; ``"quoted words"`` stand together."""
        with self._read() as conn:
            if not any(char.isalnum() for char in text):
                return
            db = Database(conn)
            try:
                query = db.table("messages").search_sql(columns=["session"])
            except ValueError as error:
                raise CorruptRecord(f"{self._path}: {error}. Restore the file from a backup.") from error
            rows: list[tuple[int]] = conn.execute(query, {"query": db.quote_fts(text)}).fetchall()
            ids = list(dict.fromkeys(session for (session,) in rows))[:limit]
            found = [one for start in range(0, len(ids), PAGE) for one in self._by_id(conn, ids[start : start + PAGE])]
        if len(found) < len(ids):
            gone = next(row for row, one in zip_longest(ids, found) if one is None or one.id != row)
            raise CorruptRecord(f"{self._path}: message of a session {gone!r} that is not there. Restore the file.")
        yield from self._in_state(found, None)

    def _find(self, conn: sqlite3.Connection, session: str) -> Stored:
        exact = select_sessions(conn, "WHERE s.session=?", (session,))
        if exact:
            return exact[0]
        found = select_sessions(
            conn,
            "WHERE s.session >= ? AND s.session < ?",
            (session, session + "\U0010ffff"),
            "ORDER BY s.session LIMIT 3",
        )
        if len(found) == 1 and session:
            return found[0]
        raise not_found(session, [stored.info.session for stored in found])

    def info(self, session: str) -> SessionInfo:
        """See EventStore."""
        with self._read() as conn:
            stored = self._find(conn, session)
            if stored.info.state == "open":
                # Its row has only what was known when it began.
                with suppress(StoreError):
                    return self._load(conn, stored).info
            return self._shown(stored)

    def _exactly(self, conn: sqlite3.Connection, session: str) -> Stored:
        found = select_sessions(conn, "WHERE s.session=?", (session,))
        if not found:
            raise not_found(session, [])
        return found[0]

    def opening(self, session: str) -> Opening:
        """See EventStore."""
        with self._read() as conn:
            self._exactly(conn, session)
            return load_opening(conn, session, self._known(conn))

    def read(self, session: str, track: str, layer: Layer, first: int = 0, *, about: int = 256) -> Piece:
        """See EventStore."""
        piece = self._piece(session, (track, layer), first, about)
        # A writer that died while this was read may have written more before it did.
        return self._piece(session, (track, layer), first, about) if piece.state == "torn" else piece

    def _piece(self, session: str, key: Key, first: int, about: int) -> Piece:
        with self._read() as conn:
            info = self._shown(self._exactly(conn, session))
            rows = read_layer(conn, session, info.protocol, key, first, about)
            count = info.events.get("/".join(key), 0)
            if not rows and info.state in ENDED and first < count:
                raise _cut_short(info, "/".join(key), first, count)
            return Piece(rows, info.state, info.mode)

    def watch(self, session: str, wake: Callable[[], object]) -> Callable[[], None]:
        """See EventStore."""
        return self._watchers.add(session, wake)

    def load(self, session: str, layers: Collection[Key] | None = None, *, lazy: bool = False) -> Trace:
        """See EventStore."""
        with self._read() as conn:
            return self._load(conn, self._find(conn, session), layers, lazy=lazy)

    def _load(
        self, conn: sqlite3.Connection, stored: Stored, layers: Collection[Key] | None = None, *, lazy: bool = False
    ) -> Trace:
        info = stored.info
        opening = load_opening(conn, info.session, self._known(conn))
        # What is known of a session without an end follows from all of its records.
        only = layers if info.state != "open" else None
        found = load_layers(conn, info.session, opening.protocol, only=only, lazy=lazy)
        records = {key: held.records for key, held in found.items()}
        if info.state != "open":
            _all_there(info, records, only)
        else:
            info = project(opening, info, self._committer.state(stored), records)
        return Trace(opening=opening, info=info, records=kept(records, layers))


def _all_there(info: SessionInfo, records: Mapping[Key, Sequence[Record]], only: Collection[Key] | None) -> None:
    """The last segments of a layer may be gone without a gap: the projection knows how many there were."""
    counts = {f"{track}/{layer}": len(held) for (track, layer), held in records.items()}
    read = None if only is None else {"/".join(key) for key in only}
    for name, count in info.events.items():
        if counts.get(name, 0) != count and (read is None or name in read):
            raise _cut_short(info, name, counts.get(name, 0), count)


def _cut_short(info: SessionInfo, name: str, seq: int, count: int) -> CorruptRecord:
    track, _, layer = name.rpartition("/")
    where = f"session {info.session}, track {track}, layer {layer}, seq {seq}"
    return CorruptRecord(f"{where}: {count} records were stored. Restore the file from a backup.")
