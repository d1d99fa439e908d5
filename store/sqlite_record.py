"""What the writer thread of the SQLite store does inside a transaction: sessions, blocks, sealing, whole traces."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from store import block, codec, opening
from store.api import ENDED, CorruptRecord, Record, Rows, SequenceConflict, ShadowVerdict, State, StoreError, Trace
from store.rules import Key, attached, check_ended, check_known, fresh, saved_info, stored_in
from store.sqlite_rows import (
    Stored,
    blobs_of,
    insert_blobs,
    insert_journal,
    insert_message,
    insert_segments,
    insert_session,
    load_layers,
    load_opening,
    segment,
    select_sessions,
    update_row,
    update_session,
)  # fmt: skip
from store.sqlite_settle import SEAL, is_torn, settle
from store.sqlite_writer import Item, LayerState, Session

SEAL_BYTES = 128 << 10
"""Bytes of encoded events that make a segment before SEAL records do: bounds what the writer holds of a session."""

KNOWN_BLOBS = 10_000
"""How many names of stored blobs are remembered."""


def _no_blobs(name: bytes) -> bytes:
    raise CorruptRecord(f"a derived layer names the blob {name.hex()}")


class Recording:
    """The running sessions of one writer. ``epoch``: its lease."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.epoch = 0
        self.squeeze = block.Packer()
        self.live: dict[str, Session] = {}
        self._known: set[bytes] = set()
        self._written: set[bytes] = set()
        self._blobs: dict[bytes, bytes] = {}

    def committed(self) -> None:
        """What was written is durable."""
        if len(self._known) > KNOWN_BLOBS:
            self._known.clear()
        self._known |= self._written
        self._written.clear()
        for name in [name for name, session in self.live.items() if session.ending is not None]:
            del self.live[name]

    def rolled_back(self) -> None:
        """What was written is not stored; its sessions are to be forgotten."""
        self._written.clear()
        self._blobs.clear()

    def forget(self, session: Session) -> None:
        """Nothing more comes of it."""
        if self.live.get(session.opening.session) is session:
            del self.live[session.opening.session]

    def moved(self) -> list[Session]:
        """The file is another one: nothing is stored any more. Returns the sessions that lost their beginning."""
        sessions = list(self.live.values())
        self.live.clear()
        self._known.clear()
        return sessions

    # --- running sessions -------------------------------------------------------------------------------------------

    def write(
        self, conn: sqlite3.Connection, items: Sequence[Item], refused: list[tuple[Session, StoreError]]
    ) -> list[Session]:
        """Record the items; returns the sessions they are of. ``refused``: those that cannot be recorded further."""
        touched: dict[Session, None] = {}
        bad: set[Session] = set()
        for item in items:
            session = item.session
            if session is None or item.future is not None:
                continue
            if session.dead is not None or session in bad:
                item.give_up()
                continue
            touched[session] = None
            try:
                self._item(conn, session, item, refused)
            except StoreError as error:
                refused.append((session, error))
                bad.add(session)
                del touched[session]
        for item in items:
            if item.session in bad:
                item.give_up()
        for session in touched:
            self._write(conn, session, sealing=session.ending is not None)
        self._write_blobs(conn)
        return list(touched)

    def _item(
        self, conn: sqlite3.Connection, session: Session, item: Item, refused: list[tuple[Session, StoreError]]
    ) -> None:
        if item.key is None:
            if item.ending is None:
                self._begin(conn, session)
            elif session.ending is None:
                session.ending = item.ending
        elif item.key in session.spoiled:
            item.give_up()
        else:
            error = self._record(conn, session, item.key, item)
            if error is not None:
                # Every layer keeps what came before, and ends here.
                session.spoiled.add(item.key)
                session.ending = "incomplete"
                refused.append((session, error))

    def _begin(self, conn: sqlite3.Connection, session: Session) -> None:
        name = session.opening.session
        there = select_sessions(conn, "WHERE s.session=?", (name,))
        if name in self.live or (there and there[0].info.state == "open" and not is_torn(self._path, there[0])):
            session.attached = True
            raise SequenceConflict(f"session {name} is being recorded already; give the new one an id of its own.")
        self._check_known(conn, session)
        if there:
            self._attach(conn, session, there[0])
        self.live[name] = session

    def _check_known(self, conn: sqlite3.Connection, session: Session) -> None:
        """No other process writes meanwhile. Raises Overtaken."""
        if session.known is None:
            return
        conversation = session.opening.conversation
        rows = conn.execute("SELECT session FROM sessions WHERE conversation=?", (conversation,))
        # Those that begin in this transaction have no row yet.
        begun = {name for name, other in self.live.items() if other.opening.conversation == conversation}
        check_known(session.opening, session.known, begun.union(name for (name,) in rows))

    def _attach(self, conn: sqlite3.Connection, session: Session, there: Stored) -> None:
        name = session.opening.session
        session.attached = True
        if load_opening(conn, name) != session.opening:
            raise SequenceConflict(
                f"session {name} is in the store with another opening; give the new one an id of its own."
            )
        session.row = there.id
        session.shut = there.info.state in ENDED
        if not session.shut:
            settle(conn, there, "open", self.squeeze)
            conn.execute("UPDATE sessions SET epoch=? WHERE id=?", (self.epoch, there.id))
        for key, held in load_layers(conn, name, session.opening.protocol).items():
            session.layers[key] = LayerState(held.head, len(held.records))

    def _record(self, conn: sqlite3.Connection, session: Session, key: Key, item: Item) -> StoreError | None:
        """Returns why not all of the item was recorded."""
        blobs: dict[bytes, bytes] = {}
        spoiled: StoreError | None = None
        try:
            run = item.encoded(blobs)
        except (TypeError, ValueError, OverflowError, RecursionError):
            spoiled = item.spoiled()
            if not item.parts:
                return spoiled
            run = item.encoded(blobs)
        item.size = len(run.data)
        old = self._take(conn, session, key, run, blobs)
        for at, events, _ in item.parts:
            if old < len(events):
                session.projection.add(key, at, events[old:] if old else events)
            old = max(old - len(events), 0)
        return spoiled

    def _take(
        self, conn: sqlite3.Connection, session: Session, key: Key, run: block.Run, blobs: dict[bytes, bytes]
    ) -> int:
        """The next run; returns how many of its records were there already."""
        if session.mode != "full" and not stored_in(session.mode, *key):
            return self._digest(session, key, run)
        layer = session.layers.get(key)
        if layer is None:
            layer = session.layers[key] = LayerState(block.seed(session.opening.session, *key))
        self._blobs.update(blobs)
        if run.first == layer.next and not session.shut:
            layer.take(run)
            return 0
        return self._compare(conn, session, key, run, layer)

    def _digest(self, session: Session, key: Key, run: block.Run) -> int:
        rolling = session.digests.get(key)
        if rolling is None:
            rolling = session.digests[key] = codec.RollingDigest()
        known = rolling.n - run.first
        if not known:
            rolling.add(run.n, run.data)
        elif known < run.n:
            # What came before came again; there is nothing to compare it with.
            where = codec.Where(session.opening.session, *key, run.first)
            events = codec.decode(where, codec.array(run.n, run.data), session.opening.protocol, _no_blobs)
            rolling.update(events[known:])
        return known

    def _compare(self, conn: sqlite3.Connection, session: Session, key: Key, run: block.Run, layer: LayerState) -> int:
        """Records that should be there already: equal ones are passed over, the rest is new."""
        name, protocol = session.opening.session, session.opening.protocol
        self._write(conn, session, sealing=False)
        self._write_blobs(conn)
        where = codec.Where(name, *key, run.first)
        mine = block.unpack(where, run.n, block.pack([run]), protocol, blobs_of(conn, name))[:]
        held = load_layers(conn, name, protocol)[key].records if layer.next else Rows()
        theirs = held[run.first : run.first + run.n]
        if mine[: len(theirs)] != theirs:
            raise SequenceConflict(f"{where}: other records are stored there already.")
        rest = mine[len(theirs) :]
        if rest and session.shut:
            raise SequenceConflict(f"{where._replace(seq=layer.next)}: the session has ended before.")
        if rest:
            layer.take(block.run(rest, {}))
        return len(theirs)

    def _write(self, conn: sqlite3.Connection, session: Session, *, sealing: bool) -> None:
        name = session.opening.session
        journal: list[Sequence[Any]] = []
        segments: list[Sequence[Any]] = []
        for key, layer in session.layers.items():
            if layer.waiting and (sealing or layer.waiting >= SEAL or layer.waiting_bytes >= SEAL_BYTES):
                if layer.journalled:
                    conn.execute("DELETE FROM journal WHERE session=? AND track=? AND layer=?", (name, *key))
                runs = layer.take_all()
                where = codec.Where(name, *key, runs[0].first)
                layer.head, row = segment(where, self.epoch, layer.head, runs, 0, self.squeeze)
                segments.append(row)
            elif layer.fresh:
                journal.append(self._journal_row(name, key, layer))
        if segments:
            insert_segments(conn, segments)
        if journal:
            insert_journal(conn, journal)
        self._write_session(conn, session)

    def _journal_row(self, name: str, key: Key, layer: LayerState) -> Sequence[Any]:
        runs = layer.fresh
        body = block.pack(runs)
        layer.journalled += runs
        layer.fresh = []
        n = layer.next - runs[0].first
        return (name, *key, runs[0].first, n, codec.SCHEMA, block.PLAIN, block.crc(body), body)

    def _write_session(self, conn: sqlite3.Connection, session: Session) -> None:
        if not session.row or session.ending is not None:
            state: State = session.ending or "open"
            counts = {f"{track}/{layer}": held.next for (track, layer), held in session.layers.items()}
            digests = {f"{track}/{layer}": held.value() for (track, layer), held in session.digests.items()}
            info = session.projection.info(state, counts, digests)
            if not session.row:
                packed = opening.pack(session.opening, self._blobs)
                session.row = insert_session(conn, info, self.epoch, packed, self.squeeze)
                if session.ending is not None:
                    insert_message(conn, session.row, info)
            elif not session.attached:
                update_session(conn, session.row, info)
            elif not session.shut:
                for stored in select_sessions(conn, "WHERE s.id=?", (session.row,)):
                    digests = {**stored.info.digests, **digests}
                    stored.info = msgspec.structs.replace(stored.info, digests=digests)
                    settle(conn, stored, state, self.squeeze)

    def _write_blobs(self, conn: sqlite3.Connection) -> None:
        new = [(name, data) for name, data in self._blobs.items() if not (name in self._known or name in self._written)]
        if new:
            insert_blobs(conn, new, self.squeeze)
            self._written.update(self._blobs)
        self._blobs.clear()

    # --- whole sessions ---------------------------------------------------------------------------------------------

    def save(self, conn: sqlite3.Connection, trace: Trace) -> bool:
        """Store a whole session; False if it is there already. Raises SequenceConflict if with other records."""
        name = trace.opening.session
        there = select_sessions(conn, "WHERE s.session=?", (name,))
        if there:
            layers = load_layers(conn, name, trace.opening.protocol)
            held = {key: layer.records for key, layer in layers.items()}
            mine = {key: list(records) for key, records in trace.records.items() if records}
            if held != mine or load_opening(conn, name) != trace.opening:
                raise SequenceConflict(f"session {name} is in the store with other records; nothing of it was changed.")
            return False
        info = saved_info(trace)
        blobs: dict[bytes, bytes] = {}
        row_id = insert_session(conn, info, None, opening.pack(trace.opening, blobs), self.squeeze)
        insert_message(conn, row_id, info)
        self._insert(conn, name, trace.records, blobs)
        return True

    def _insert(
        self, conn: sqlite3.Connection, session: str, layers: Mapping[Key, Sequence[Record]], blobs: dict[bytes, bytes]
    ) -> None:
        """Add whole layers, and the blobs."""
        segments: list[Sequence[Any]] = []
        for key, records in layers.items():
            head = block.seed(session, *key)
            for start in range(0, len(records), SEAL):
                runs = [block.run(records[start : start + SEAL], blobs)]
                head, row = segment(codec.Where(session, *key, start), None, head, runs, 0, self.squeeze)
                segments.append(row)
        insert_blobs(conn, blobs.items(), self.squeeze)
        insert_segments(conn, segments)

    # --- sessions that have ended -----------------------------------------------------------------------------------

    def ended(self, conn: sqlite3.Connection, stored: Stored) -> Stored:
        """The session, settled if its writer is dead. Raises StillOpen."""
        if is_torn(self._path, stored):
            settle(conn, stored, "torn", self.squeeze)
            [stored] = select_sessions(conn, "WHERE s.id=?", (stored.id,))
        check_ended(stored.info)
        return stored

    def delete(self, conn: sqlite3.Connection, stored: Stored) -> None:
        """See EventStore. Raises StillOpen."""
        info = self.ended(conn, stored).info
        for table in ("journal", "segments", "sessions"):
            conn.execute(f"DELETE FROM {table} WHERE session=?", (info.session,))
        # Triggers take the message out of the index.
        conn.execute("DELETE FROM messages WHERE session=?", (stored.id,))

    def attach(
        self, conn: sqlite3.Connection, stored: Stored, track: str, given: Mapping[Key, list[Record]],
        verdict: ShadowVerdict | None,
    ) -> None:  # fmt: skip
        """See EventStore; ``given``: the layers by track and layer. Raises SequenceConflict, StillOpen."""
        info = self.ended(conn, stored).info
        name = info.session
        kept = {key: records for key, records in given.items() if stored_in(info.mode, *key)}
        there = {key: held.records for key, held in load_layers(conn, name, info.protocol, of_track=track).items()}
        new = fresh(name, kept, there)
        digests = {
            key: codec.digest([record.event for record in records])
            for key, records in given.items() if key not in kept
        }  # fmt: skip
        known = {key: info.digests["/".join(key)] for key in digests if "/".join(key) in info.digests}
        self._insert(conn, name, new, {})
        counts = {key: len(records) for key, records in new.items()}
        update_row(conn, attached(info, track, verdict, counts, fresh(name, digests, known)))
