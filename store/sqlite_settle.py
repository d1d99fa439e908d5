"""Finishing what a writer left behind: sessions of a dead process, or of a store that failed for a while."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Generator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter

from stages.opening import Opening
from store import block, codec, lease
from store.api import Record, SessionInfo, State, StoreError
from store.projection import Projection
from store.rules import Key
from store.sqlite_rows import (
    Layered,
    Stored,
    insert_segments,
    load_layers,
    load_opening,
    segment,
    select_sessions,
    update_session,
)  # fmt: skip
from store.sqlite_schema import SQLITE_ERRORS

SEAL = 256
"""Records of a layer in one segment, at least (but for the last)."""


def project(opening: Opening, row: SessionInfo, state: State, records: Mapping[Key, Sequence[Record]]) -> SessionInfo:
    """The projection of records that were not projected while they came. ``row``: has what they do not tell."""
    projection = Projection(opening, row.mode)
    for key, held in records.items():
        for at, group in groupby(held, key=attrgetter("at")):
            projection.add(key, at, [record.event for record in group])
    counts = {f"{track}/{layer}": len(held) for (track, layer), held in records.items()}
    return projection.info(state, counts, row.digests, row.shadows)


def settle(conn: sqlite3.Connection, stored: Stored, state: State, squeeze: block.Packer) -> None:
    """Seal what is in the journal and complete the projection, inside the caller's transaction.

    A session that cannot be read only gets its state; ``load`` will say what is wrong with it.
    """
    info = stored.info
    try:
        opening = load_opening(conn, info.session)
        layers = load_layers(conn, info.session, opening.protocol)
    except StoreError:
        conn.execute("UPDATE sessions SET state=? WHERE id=?", (state, stored.id))
        return
    records = {key: held.records for key, held in layers.items()}
    insert_segments(conn, (row for key, held in layers.items() for row in _rest(info.session, key, held, squeeze)))
    conn.execute("DELETE FROM journal WHERE session=?", (info.session,))
    update_session(conn, stored.id, project(opening, info, state, records))


def _rest(session: str, key: Key, held: Layered, squeeze: block.Packer) -> list[list[object]]:
    rest = held.records[held.sealed :]
    if not rest:
        return []
    where = codec.Where(session, *key, held.sealed)
    # The blobs are in the store already: these records came from there.
    return [segment(where, None, held.head, [block.run(rest, {})], block.SETTLED, squeeze)[1]]


def is_torn(path: str, stored: Stored) -> bool:
    """Whether an open session's writer is dead."""
    return stored.info.state == "open" and (stored.epoch is None or not lease.alive(path, stored.epoch))


def sweep(conn: sqlite3.Connection, path: str, squeeze: block.Packer) -> None:
    """Settle the open sessions of dead writers as ``torn``. Best effort: a store that is busy, damaged or cannot be
    written is left as it is, for the next to sweep."""
    with contextlib.suppress(StoreError, *SQLITE_ERRORS):
        dead = [epoch for (epoch,) in conn.execute("SELECT epoch FROM writers") if not lease.alive(path, epoch)]
        for epoch in dead:
            names = conn.execute("SELECT session FROM sessions WHERE state='open' AND epoch=?", (epoch,)).fetchall()
            for name in names:
                with transaction(conn):
                    for stored in select_sessions(conn, "WHERE s.session=? AND s.state='open'", name):
                        settle(conn, stored, "torn", squeeze)
            conn.execute("DELETE FROM writers WHERE epoch=?", (epoch,))
            lease.forget(path, epoch)


@contextlib.contextmanager
def transaction(conn: sqlite3.Connection) -> Generator[None]:
    """One write transaction. Rolls back on any error."""
    conn.execute("BEGIN IMMEDIATE")
    try:
        yield
        conn.execute("COMMIT")
    except BaseException:  # rolled back whatever was raised, and raised on
        # Some errors (disk full) have ended it already.
        if conn.in_transaction:
            conn.execute("ROLLBACK")
        raise
