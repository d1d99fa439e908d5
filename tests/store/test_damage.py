"""Files that are damaged, or made by somebody else: what is wrong and where, as a StoreError, whatever it is."""

from __future__ import annotations

import json
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import zstandard

from store import trace
from store.api import CorruptRecord, StoreError, StoreUnavailable
from store.sqlite import SqliteStore
from tests.support.store import batches, opening, record, words

GOLDEN = Path(__file__).parent / "golden" / "schema-1.jsonl"
VALUES: list[Any] = [None, "x", "[1]", b"\xff", 1 << 62, -1, 1.5]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "sessions.db"
    store = SqliteStore(path)
    record(store.writer(opening("a")), batches(words(5), size=3)).close("closed")
    store.close()
    return path


def read_all(path: Path) -> None:
    """Everything that reads; StoreErrors may come of it."""
    store = SqliteStore(path, create=False)
    try:
        for read in (lambda: list(store.sessions()), lambda: list(store.search("w1")), lambda: store.load("a")):
            try:
                read()
            except StoreError as error:
                assert str(error)
    finally:
        store.close()


def test_any_value_in_any_column(path: Path) -> None:
    whole = path.read_bytes()
    for table in ("sessions", "messages", "segments", "blobs"):
        with sqlite3.connect(path) as conn:
            columns = [row[1] for row in conn.execute(f"PRAGMA table_info({table})")]
        conn.close()
        for column in columns:
            conn = sqlite3.connect(path)
            for value in VALUES:
                # An id takes numbers only.
                with suppress(sqlite3.IntegrityError), conn:
                    conn.execute(f"UPDATE OR IGNORE {table} SET {column}=?", (value,))
                read_all(path)
            conn.close()
            path.write_bytes(whole)


def test_a_schema_that_is_no_text(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data.replace(b"tablesessions", b"table\x87essions", 1))
    assert path.read_bytes() != data
    with pytest.raises(StoreUnavailable, match="damaged"):
        SqliteStore(path, create=False)


def test_an_empty_file_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    with pytest.raises(StoreUnavailable, match="is empty"):
        SqliteStore(tmp_path / "empty.db", create=False)
    assert (tmp_path / "empty.db").stat().st_size == 0


# --- traces ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["cause", "at", "opened", "message"])
def test_a_trace_with_what_cannot_be_stored(field: str) -> None:
    header, first, *rest = GOLDEN.read_text().splitlines()
    opened, line = json.loads(header), json.loads(first)
    if field == "opened":
        opened["opening"][field] = 10**30
    elif field == "message":
        opened["info"][field] = [{"content": "x", "tool_calls": 5}]
    else:
        line[field] = 10**30
    data = "\n".join([json.dumps(opened), json.dumps(line), *rest]).encode()
    with pytest.raises(CorruptRecord, match=r"line [12]"):
        list(trace.loads(data))


def test_a_small_file_that_unpacks_to_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "MAX_UNPACKED", 1 << 20)
    path = tmp_path / "bomb.jsonl.zst"
    path.write_bytes(zstandard.compress(bytes(4 << 20)))
    with pytest.raises(CorruptRecord, match="unpacks to more than"):
        trace.read(path)


@pytest.mark.parametrize("session", ["../a", "/a", "a/b", "..", "", "a\0", "a" * 300])
def test_an_id_that_leads_out_of_the_folder(session: str) -> None:
    with pytest.raises(StoreError, match="cannot be the name of a file"):
        trace.file_name(session)
    assert trace.file_name("0123-ab.c_d") == "0123-ab.c_d.jsonl"
