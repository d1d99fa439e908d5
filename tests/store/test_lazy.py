"""Sessions that are decoded when somebody asks: equal to what is read at once, and checked as well."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from stages.events import Layer
from store import block, codec, open_store
from store.api import CorruptRecord, EventStore, Rows, StoreError, UnknownSchema
from store.memory import MemoryStore
from store.sqlite import SqliteStore
from tests.support.store import batches, opening, record, records, words

NAME = opening().session
_OF = "WHERE session=? AND layer='semantic' AND track='served'"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "sessions.db"
    store = SqliteStore(made)
    record(store.writer(opening()), batches(words(600), size=7)).close("closed")
    store.close()
    return made


@pytest.mark.parametrize("make", [MemoryStore, lambda: None])
def test_a_session_is_the_same(make: Callable[[], EventStore | None], path: Path) -> None:
    made = batches(words(600), size=7)
    store = make()
    if store is None:
        store = open_store(str(path), create=False)
    else:
        record(store.writer(opening()), made).close("closed")
    found = store.load(NAME, lazy=True)
    assert (found.opening, found.info) == (store.load(NAME).opening, store.load(NAME).info)
    assert {key: len(held) for key, held in found.records.items()} == {
        key: len(held) for key, held in records(made).items()
    }
    assert found.records == records(made)
    store.close()


def test_what_is_not_sealed_yet_comes_too(path: Path) -> None:
    """Segments and journal are parts alike."""
    store = SqliteStore(path)
    made = batches(words(600), size=7)
    other = opening("b" * 32)
    record(store.writer(other), made)
    store.flush()
    assert store.load(other.session, lazy=True).records == records(made)
    store.close()


def rows_of(path: Path, layer: Layer) -> Rows:
    store = open_store(str(path), create=False)
    rows = store.load(NAME, lazy=True).records["served", layer]
    store.close()
    assert isinstance(rows, Rows)
    return rows


@pytest.mark.parametrize("layer", ["semantic", "chunk", "frame"])
def test_the_bytes_are_the_canonical_ones(path: Path, layer: Layer) -> None:
    events = [item.event for item in records(batches(words(600), size=7))["served", layer]]
    rows = rows_of(path, layer)
    assert rows.data() == codec.encode(events)
    assert rows.causes == [item.cause for item in records(batches(words(600), size=7))["served", layer]]
    assert rows.data() == codec.encode(events)  # causes are another column
    assert rows.events == events
    assert rows.data() is None


def test_rows_grow_by_parts_and_by_columns(path: Path) -> None:
    made = records(batches(words(600), size=7))["served", "semantic"]
    for decoded in (False, True):
        rows, more = rows_of(path, "semantic"), Rows([9], [9], ["x"], len(made))
        if decoded:
            assert len(rows.events) == len(made)
        rows.extend(more)
        assert len(rows) == len(made) + 1
        assert rows[:-1] == made
        assert rows[-1] == more[0]


def forge(path: Path, session: str, old: bytes, new: bytes) -> None:
    """Other bytes in the only segment of the semantic layer, with sums and hashes that fit."""
    with sqlite3.connect(path) as conn:
        row = conn.execute(f"SELECT codec, crc32, body FROM segments {_OF}", (session,)).fetchall()
        body = block.check("", *row[0])
        assert old in body
        body = body.replace(old, new, 1)
        head = block.link(block.seed(session, "served", "semantic"), body)
        conn.execute(
            f"UPDATE segments SET hash=?, crc32=?, codec=0, body=? {_OF}", (head, block.crc(body), body, session)
        )
    conn.close()


@pytest.mark.parametrize(
    ("old", "new", "error", "said"),
    [
        (b"\xa5start", b"\xa5newer", UnknownSchema, "unknown event 'newer'"),
        (b"\xa3tok\x00", b"\xa3tok\xc0", CorruptRecord, "does not decode"),
    ],
)
def test_what_does_not_decode_is_told_when_it_is_asked_for(
    tmp_path: Path, old: bytes, new: bytes, error: type[StoreError], said: str
) -> None:
    path = tmp_path / "one.db"
    writing = SqliteStore(path)
    record(writing.writer(opening()), batches(words(20))).close("closed")
    writing.close()
    forge(path, NAME, old, new)
    store = open_store(str(path), create=False)
    with pytest.raises(error, match=said):
        store.load(NAME)
    found = store.load(NAME, lazy=True)
    assert len(found.records["served", "semantic"]) == len(records(batches(words(20)))["served", "semantic"])
    assert found.events("served", "frame")
    for _ in range(2):  # told each time
        with pytest.raises(error, match=f"session {NAME}, track served, layer semantic, seq .*{said}"):
            found.events("served", "semantic")
    store.close()


@pytest.mark.parametrize(
    "change", ["body=body || x'00'", "n=n+1", "hash=prev_hash", "schema=99", "codec=7", "first_seq=first_seq+1"]
)
def test_damage_is_told_at_once(path: Path, change: str) -> None:
    with sqlite3.connect(path) as conn:
        conn.execute(f"UPDATE segments SET {change} WHERE layer='frame' AND track='served' AND first_seq=0")
    conn.close()
    store = open_store(str(path), create=False)
    told: list[str] = []
    for lazy in (False, True):
        with pytest.raises(StoreError) as caught:
            store.load(NAME, lazy=lazy)
        told.append(f"{type(caught.value)} {caught.value}")
    assert told[0] == told[1]
    store.close()


def test_an_opening_is_read_anew_when_somebody_wrote(path: Path) -> None:
    """Parts of openings are kept: not beyond a change of the file."""
    store = open_store(str(path), create=False)
    first, second = store.load(NAME), store.load(NAME)
    assert first.opening == second.opening
    assert first.opening.tokenizer is second.opening.tokenizer
    with sqlite3.connect(path) as conn:
        conn.execute("DELETE FROM blobs")
    conn.close()
    with suppress(StoreError):
        store.load(NAME)
        pytest.fail("the parts of the opening are gone")
    store.close()
