"""The store in a SQLite file: the contract, and what only a file can have."""

from __future__ import annotations

import os
import sqlite3
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stages.events import PromptInput
from stages.opening import TokenizerFacts
from store import block, open_store
from store.api import Batch, CorruptRecord, EventStore, StoreUnavailable, UnknownSchema
from store.sqlite import SqliteStore
from store.sqlite_schema import LAYOUT
from tests.store.contract import StoreContract
from tests.store.contract_attach import AttachContract
from tests.store.contract_finding import FindingContract
from tests.store.contract_reading import ReadingContract
from tests.support.store import batches, opening, record, same, words

NAME = opening().session


class TestSqlite(StoreContract, FindingContract, AttachContract, ReadingContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[EventStore]:
        made = open_store(str(tmp_path / "sessions.db"))
        yield made
        made.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


def query(path: Path, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    conn = sqlite3.connect(path)
    try:
        rows = conn.execute(sql, values).fetchall()
        conn.commit()
        return rows
    finally:
        conn.close()


def recorded(path: Path, n: int = 600, size: int = 7) -> list[Batch]:
    """One closed session in a new store."""
    made = batches(words(n), size=size)
    store = open_store(str(path))
    record(store.writer(opening()), made).close("closed")
    store.close()
    return made


# --- journal and segments -------------------------------------------------------------------------------------------


def test_the_journal_empties_itself(path: Path) -> None:
    store = SqliteStore(path, window_s=0.001)
    made = batches(words(100))
    writer = store.writer(opening())
    for batch in made[:300]:
        writer.append(batch)
        if batch.first_seq % 4 == 0:
            writer.committed().result(10)
    store.flush()
    # 75 tokens: two semantic events each are not 256 yet.
    assert query(path, "SELECT count(*) FROM segments") == [(0,)]
    (rows, held) = query(path, "SELECT count(*), sum(n) FROM journal")[0]
    assert rows > 4
    assert held == sum(len(batch.events) for batch in made[:300])
    record(writer, made[300:])
    writer.close("closed")
    store.flush()
    assert query(path, "SELECT count(*) FROM journal") == [(0,)]
    assert query(path, "SELECT layer, sum(n) FROM segments WHERE track='served' GROUP BY 1 ORDER BY 1") == [
        ("chunk", 101), ("frame", 102), ("semantic", 204),
    ]  # fmt: skip
    assert same(store.load(NAME), opening(), made)
    store.close()


def test_layers_are_sealed_at_256_records(path: Path) -> None:
    store = SqliteStore(path, window_s=0.001)
    writer = store.writer(opening())
    for batch in batches(words(1000))[:-5]:
        writer.append(batch)
        if batch.layer == "frame" and batch.first_seq % 16 == 0:
            writer.committed().result(10)
    store.flush()
    sizes = query(path, "SELECT n FROM segments")
    assert len(sizes) >= 12
    assert all(256 <= n < 256 + 64 for (n,) in sizes)
    assert all(n < 256 for (n,) in query(path, "SELECT sum(n) FROM journal GROUP BY track, layer"))
    store.close()


def test_what_is_big_is_sealed_earlier(path: Path) -> None:
    store = SqliteStore(path)
    writer = store.writer(opening())
    writer.append(Batch("input", "engine", 0, 0, [PromptInput((), "x" * 200_000, 1)]))
    writer.committed().result(10)
    assert query(path, "SELECT n FROM segments") == [(1,)]
    store.close()


def test_one_transaction_for_all_that_waits(path: Path) -> None:
    store = SqliteStore(path, window_s=0.05)
    made = batches(words(30))
    for number in range(20):
        record(store.writer(opening(f"s{number}")), made).close("closed")
    store.flush()
    assert store.stats()["batches"] == 20 * len(made)
    # 2 MB: a commit each 256 KiB at most, and far fewer than sessions or batches.
    assert store.stats()["commits"] < 20
    store.close()


def test_on_commit_tells_what_is_durable(path: Path) -> None:
    told: list[tuple[str, str, str, int]] = []
    store = SqliteStore(path, on_commit=told.extend)
    made = batches(words(40))
    record(store.writer(opening()), made[:50]).committed().result(10)
    store.flush()
    durable: dict[tuple[str, str], int] = {}
    for session, track, layer, seq in told:
        assert session == NAME
        assert seq >= durable.get((track, layer), 0)
        durable[track, layer] = seq
    assert durable == {key: len(held) for key, held in store.load(NAME).records.items()}
    store.close()


def test_equal_parts_are_stored_once(path: Path) -> None:
    store = SqliteStore(path)
    vocabulary = TokenizerFacts(special={f"<|reserved_{number}|>": number for number in range(1000)})
    prompt = Batch("input", "engine", 0, 0, [PromptInput(tuple(range(5000)), "tail", 5000)])
    for number in range(10):
        record(store.writer(opening(f"s{number}", tokenizer=vocabulary)), [prompt]).close("closed")
    store.flush()
    # Tools, tokenizer, engine, prompt.
    assert query(path, "SELECT count(*) FROM blobs") == [(4,)]
    found = store.load("s7")
    assert found.opening.tokenizer == vocabulary
    assert found.events("input", "engine") == prompt.events
    assert max(length for (length,) in query(path, "SELECT length(opening) FROM sessions")) < 700
    assert max(length for (length,) in query(path, "SELECT length(body) FROM segments")) < 200
    store.close()


@pytest.mark.parametrize(("mode", "most"), [("full", 80), ("lean", 40)])
def test_stored_bytes_a_token(path: Path, mode: Any, most: int) -> None:
    store = SqliteStore(path)
    for number in range(20):
        # A time of its own for every token, as when each is awaited.
        made = batches(words(500), step_ns=9_876_543 + 1_234 * number)
        record(store.writer(opening(f"{number:032x}"), mode), made).close("closed")
    store.close()
    assert path.stat().st_size / (20 * 500) < most
    assert [file.name for file in path.parent.iterdir()] == [path.name]


# --- damage ---------------------------------------------------------------------------------------------------------


def damaged(path: Path, sql: str, *values: Any) -> str:
    """What ``load`` says of a recorded session after the damage."""
    query(path, sql, *values)
    store = open_store(str(path))
    try:
        with pytest.raises(CorruptRecord) as caught:
            store.load(NAME)
        return str(caught.value)
    finally:
        store.close()


def test_a_changed_byte_is_found(path: Path) -> None:
    recorded(path)
    ((body, first),) = query(
        path, "SELECT body, first_seq FROM segments WHERE layer='chunk' ORDER BY first_seq DESC LIMIT 1"
    )
    changed = bytearray(body)
    changed[len(body) // 2] ^= 1
    said = damaged(path, "UPDATE segments SET body=? WHERE layer='chunk' AND first_seq=?", bytes(changed), first)
    assert f"session {NAME}, track served, layer chunk, seq {first}" in said
    assert "checksum" in said


def test_a_layer_that_is_not_read_may_be_damaged(path: Path) -> None:
    recorded(path)
    damaged(path, "DELETE FROM segments WHERE layer='chunk'")
    store = open_store(str(path))
    assert len(store.load(NAME, [("served", "semantic")]).events("served", "semantic")) > 0
    with pytest.raises(CorruptRecord, match="layer chunk, seq 0"):
        store.load(NAME, [("served", "chunk")])
    store.close()


def test_a_forged_segment_is_found(path: Path) -> None:
    recorded(path)
    ((body,),) = query(path, "SELECT body FROM segments WHERE layer='frame' AND track='served' AND first_seq=0")
    forged = block.Packer().squeeze(
        block.check("", block.ZSTD, zlib.crc32(body), body).replace(b"licence", b"LICENCE")
    )[1]
    said = damaged(
        path, "UPDATE segments SET body=?, crc32=? WHERE layer='frame' AND track='served' AND first_seq=0",
        forged, zlib.crc32(forged),
    )  # fmt: skip
    assert f"session {NAME}, track served, layer frame, seq 0" in said
    assert "hash chain" in said


def test_a_missing_segment_is_found(path: Path) -> None:
    recorded(path)
    said = damaged(path, "DELETE FROM segments WHERE layer='semantic' AND first_seq=0")
    assert f"session {NAME}, track served, layer semantic, seq 0" in said


def test_a_missing_last_segment_is_found(path: Path) -> None:
    recorded(path)
    ((last,),) = query(path, "SELECT max(first_seq) FROM segments WHERE layer='semantic'")
    said = damaged(path, "DELETE FROM segments WHERE layer='semantic' AND first_seq=?", last)
    assert f"session {NAME}, track served, layer semantic, seq {last}" in said
    assert "1204 records were stored" in said


def test_a_missing_blob_is_found(path: Path) -> None:
    recorded(path)
    assert "blob" in damaged(path, "DELETE FROM blobs")


def test_a_changed_opening_is_found(path: Path) -> None:
    recorded(path)
    assert f"session {NAME}, opening" in damaged(path, "UPDATE sessions SET crc32=crc32+1")


def test_damage_is_the_sessions_alone(path: Path) -> None:
    recorded(path)
    query(path, "UPDATE segments SET crc32=crc32+1")
    store = open_store(str(path))
    made = batches(words(10))
    record(store.writer(opening("other")), made).close("closed")
    store.flush()
    assert same(store.load("other"), opening("other"), made)
    assert [info.session for info in store.sessions()].count(NAME) == 1
    store.close()


# --- other versions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("UPDATE segments SET schema=2 WHERE layer='frame'", "schema 2"),
        ("UPDATE segments SET codec=9 WHERE layer='frame'", "codec 9"),
        ("UPDATE sessions SET schema=2", "schema 2"),
    ],
)
def test_a_newer_playhead_wrote_it(path: Path, sql: str, said: str) -> None:
    recorded(path, 20)
    query(path, sql)
    store = open_store(str(path))
    with pytest.raises(UnknownSchema, match=said):
        store.load(NAME)
    store.close()


def test_tables_of_a_newer_playhead(path: Path) -> None:
    recorded(path, 20)
    query(path, f"PRAGMA user_version={LAYOUT + 1}")
    with pytest.raises(UnknownSchema, match=rf"layout {LAYOUT + 1}.*newer"):
        open_store(str(path))


# --- what is not a store --------------------------------------------------------------------------------------------


def test_a_folder_is_not_a_store(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="is a folder; name a file"):
        open_store(str(tmp_path))


def test_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=r"folder .*nowhere does not exist; make it"):
        open_store(str(tmp_path / "nowhere" / "sessions.db"))


def test_a_missing_file_where_one_must_be(path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="does not exist"):
        open_store(str(path), create=False)
    assert not path.exists()


def test_another_file_is_not_a_store(path: Path) -> None:
    path.write_text('{"playhead": 1}\n' * 100)
    with pytest.raises(StoreUnavailable, match="not a Playhead store; if it is a trace"):
        open_store(str(path))
    assert path.read_text() == '{"playhead": 1}\n' * 100


def test_another_database_is_not_a_store(path: Path) -> None:
    query(path, "CREATE TABLE mine (a)")
    with pytest.raises(StoreUnavailable, match="not a Playhead store"):
        open_store(str(path))
    assert query(path, "SELECT name FROM sqlite_schema") == [("mine",)]


@pytest.fixture
def plain_user() -> Iterator[Path]:
    """A folder, as seen by somebody for whom permissions count (root becomes nobody for the test)."""
    with tempfile.TemporaryDirectory() as folder:
        was = os.geteuid()
        if was == 0:
            os.chown(folder, 65534, -1)
            os.seteuid(65534)
        try:
            yield Path(folder)
        finally:
            os.seteuid(was)


def test_a_read_only_file(plain_user: Path) -> None:
    path = plain_user / "sessions.db"
    recorded(path, 20)
    path.chmod(0o444)
    with pytest.raises(StoreUnavailable, match="read-only; make it writable"):
        open_store(str(path))


def test_a_read_only_folder(plain_user: Path) -> None:
    plain_user.chmod(0o555)
    with pytest.raises(StoreUnavailable, match="permissions"):
        open_store(str(plain_user / "sessions.db"))


def test_an_empty_file_becomes_a_store(path: Path) -> None:
    path.touch()
    recorded(path, 20)
    assert msgspec.json.decode(query(path, "SELECT events FROM sessions")[0][0])["input/engine"] == 23


def test_reopening(path: Path) -> None:
    made = recorded(path, 300)
    for _ in range(2):
        store = open_store(str(path))
        assert same(store.load(NAME), opening(), made)
        assert store.info(NAME).state == "closed"
        store.close()
