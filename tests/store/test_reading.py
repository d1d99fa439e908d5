"""Reading a layer of a SQLite file in pieces: what is read of it, and what damage is told."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from store.api import CorruptRecord, StoreUnavailable
from store.rules import Key
from store.sqlite import SqliteStore
from tests.support.store import batches, opening, record, records, words

FRAMES: Key = ("served", "frame")
NAME = opening().session


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


@pytest.fixture
def sealed(path: Path) -> Iterator[SqliteStore]:
    """A session of four segments a layer."""
    store = SqliteStore(path, window_s=0.001)
    made = batches(words(1000))
    writer = store.writer(opening())
    for start in range(0, len(made), 256):
        record(writer, made[start : start + 256])
        store.flush()
    writer.close("closed")
    store.flush()
    yield store
    store.close()


def change(path: Path, sql: str, *values: Any) -> int:
    conn = sqlite3.connect(path)
    try:
        count = conn.execute(sql, values).rowcount
        conn.commit()
        return count
    finally:
        conn.close()


def firsts(path: Path) -> list[int]:
    conn = sqlite3.connect(path)
    try:
        rows = conn.execute("SELECT first_seq FROM segments WHERE track='served' AND layer='frame' ORDER BY first_seq")
        return [first for (first,) in rows]
    finally:
        conn.close()


def test_a_piece_is_a_few_blocks(sealed: SqliteStore, path: Path) -> None:
    begins = firsts(path)
    assert len(begins) >= 3
    for begin, end in pairwise(begins):
        piece = sealed.read(NAME, *FRAMES, begin + 5, about=1).records
        assert [item.seq for item in piece] == [*range(begin + 5, end)]


def test_what_comes_before_is_not_read(sealed: SqliteStore, path: Path) -> None:
    """Damage there is found by who reads it."""
    last = firsts(path)[-1]
    assert change(path, "UPDATE segments SET body=x'00' WHERE first_seq < ?", last) > 0
    whole = records(batches(words(1000)))[FRAMES]
    assert sealed.read(NAME, *FRAMES, last).records == whole[last:]
    with pytest.raises(CorruptRecord, match="checksum"):
        sealed.read(NAME, *FRAMES, 0)


def test_a_block_that_is_gone_is_told(sealed: SqliteStore, path: Path) -> None:
    second = firsts(path)[1]
    assert change(path, "DELETE FROM segments WHERE layer='frame' AND first_seq=?", second) == 1
    with pytest.raises(CorruptRecord, match=f"seq {second}: the records up to"):
        sealed.read(NAME, *FRAMES, 0, about=10_000)
    with pytest.raises(CorruptRecord, match="are missing"):
        sealed.read(NAME, *FRAMES, second + 3)


def test_a_last_block_that_is_gone_is_told(sealed: SqliteStore, path: Path) -> None:
    last = firsts(path)[-1]
    assert change(path, "DELETE FROM segments WHERE layer='frame' AND first_seq=?", last) == 1
    assert len(sealed.read(NAME, *FRAMES, last - 1).records) == 1
    with pytest.raises(CorruptRecord, match=f"seq {last}: 1002 records were stored"):
        sealed.read(NAME, *FRAMES, last)


def test_a_block_of_another_chain_is_told(sealed: SqliteStore, path: Path) -> None:
    second = firsts(path)[1]
    change(path, "UPDATE segments SET prev_hash=hash WHERE layer='frame' AND first_seq=?", second)
    with pytest.raises(CorruptRecord, match="hash chain"):
        sealed.read(NAME, *FRAMES, second)


def test_nothing_of_a_deleted_session_is_in_a_row(sealed: SqliteStore, path: Path) -> None:
    sealed.delete(NAME)
    conn = sqlite3.connect(path)
    try:
        for table in ("sessions", "segments", "journal", "messages"):
            assert conn.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,), table
        found = conn.execute("SELECT count(*) FROM messages_fts WHERE messages_fts MATCH 'licence'").fetchone()
        assert found == (0,)
    finally:
        conn.close()


def test_another_process_reads_along(path: Path) -> None:
    """Two stores on one file: what one has committed the other reads, and it sees that the writer lives, then not."""
    store, other = SqliteStore(path, window_s=0.001), SqliteStore(path)
    made = batches(words(300))
    writer = record(store.writer(opening()), made[:500])
    store.flush()
    piece = other.read(NAME, *FRAMES, about=10_000)
    assert (piece.records, piece.state) == (records(made[:500])[FRAMES], "open")
    record(writer, made[500:]).close("closed")
    store.flush()
    rest = other.read(NAME, *FRAMES, len(piece.records), about=10_000)
    assert [*piece.records, *rest.records] == records(made)[FRAMES]
    assert rest.state == "closed"
    other.delete(NAME)
    store.close()
    other.close()
    with pytest.raises(StoreUnavailable):
        other.read(NAME, *FRAMES)
