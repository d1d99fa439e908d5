"""The store in a SQLite file: what comes after a session's end, and files with older tables."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
import zstandard

from stages.events import Content
from stages.opening import UpstreamFacts
from store import open_store
from store.api import BadQuery, CorruptRecord, Record, StoreError, UnknownSchema
from store.sqlite_schema import LAYOUT
from tests.store.test_sqlite import NAME, damaged, query, recorded
from tests.support.store import batches, opening, record, same, words


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


def test_an_upstream_and_its_shadows_are_there_for_sql(path: Path) -> None:
    store = open_store(str(path))
    hosted = UpstreamFacts(name="hosted", url="https://host", path="/v1/messages", depth="verbatim")
    record(store.writer(opening(upstream=hosted)), []).close("closed")
    store.attach(NAME, "shadow:hermes", {}, "changed")
    store.attach(NAME, "shadow:qwen3", {}, "failed")
    store.attach(NAME, "shadow:llama3", {}, "same")
    store.attach(NAME, "shadow:auto", {}, "uncompared")
    store.close()
    assert query(path, "SELECT upstream, depth, relayed, differs FROM sessions") == [
        ("hosted", "verbatim", 1, "hermes qwen3")
    ]
    found = query(path, "SELECT key, value FROM sessions, json_each(shadows) ORDER BY 1")
    assert found == [("auto", "uncompared"), ("hermes", "changed"), ("llama3", "same"), ("qwen3", "failed")]


def test_damage_to_what_was_attached_is_found(path: Path) -> None:
    recorded(path, 20)
    store = open_store(str(path))
    store.attach(NAME, "shadow:x", {"semantic": [Record(0, 0, 0, Content(0, "a", (0, 1)))]}, "same")
    store.close()
    query(path, "UPDATE segments SET prev_hash=hash WHERE track='shadow:x'")
    store = open_store(str(path))
    with pytest.raises(CorruptRecord, match="track shadow:x, layer semantic, seq 0"):
        store.load(NAME)
    with pytest.raises(CorruptRecord, match="track shadow:x"):
        store.attach(NAME, "shadow:x", {}, "same")
    store.close()
    assert "1 records were stored" in damaged(path, "DELETE FROM segments WHERE track='shadow:x'")


def test_what_cannot_be_encoded_is_not_attached(path: Path) -> None:
    recorded(path, 20)
    store = open_store(str(path))
    for event in (Content(0, "\ud800", (0, 1)), Content(1 << 70, "a", (0, 1)), object()):
        with pytest.raises(StoreError, match=NAME):
            store.attach(NAME, "shadow:x", {"semantic": [Record(0, 0, 0, event)]}, "changed")
    with pytest.raises(StoreError, match="number"):
        store.attach(NAME, "shadow:x", {"semantic": [Record(0, 0, 1 << 70, Content(0, "a", (0, 1)))]}, "changed")
    assert store.info(NAME).shadows == {}
    assert store.stats()["failures"] == 0
    assert same(store.load(NAME), opening(), batches(words(20), size=7))
    store.close()


def test_a_condition_does_not_hide_that_the_file_is_damaged(path: Path) -> None:
    recorded(path, 20)
    query(path, "UPDATE sessions SET shadows='{'")
    store = open_store(str(path))
    with pytest.raises(CorruptRecord, match=NAME):
        list(store.sessions("1"))
    store.close()


def test_what_the_rules_found_is_there_for_sql(path: Path) -> None:
    recorded(path, 20)
    store = open_store(str(path))
    store.note_rules(NAME, {"INV-044": 3, "INV-030": 1}, 3)
    store.close()
    assert query(path, "SELECT validated, rule_errors FROM sessions") == [(1, 3)]
    found = query(path, "SELECT session, value FROM sessions, json_each(rules) WHERE key='INV-044'")
    assert found == [(NAME, 3)]


# --- older tables ---------------------------------------------------------------------------------------------------


def test_a_store_of_layout_1(path: Path) -> None:
    """One session that ended, one whose process died."""
    path.write_bytes(zstandard.decompress((Path(__file__).parent / "golden" / "layout-1.zst").read_bytes()))
    assert query(path, "PRAGMA user_version") == [(1,)]
    store = open_store(str(path), create=False)
    assert same(store.load(NAME), opening(), batches(words(20)))
    assert [(info.session, info.state, info.validated) for info in store.sessions()] == [
        ("f" * 32, "torn", False), (NAME, "closed", False),
    ]  # fmt: skip
    store.note_rules(NAME, {"INV-044": 3}, 2)
    record(store.writer(opening("new")), batches(words(3))).close("closed")
    store.close()
    assert query(path, "PRAGMA user_version") == [(LAYOUT,)]
    store = open_store(str(path), create=False)
    info = store.info(NAME)
    assert (info.validated, info.rules, info.rule_errors) == (True, {"INV-044": 3}, 2)
    assert store.info("new").state == "closed"
    store.close()


def test_a_store_of_layout_2(path: Path) -> None:
    """One session that ended and was judged, one that is lean, one whose process died."""
    path.write_bytes(zstandard.decompress((Path(__file__).parent / "golden" / "layout-2.zst").read_bytes()))
    assert query(path, "PRAGMA user_version") == [(2,)]
    store = open_store(str(path), create=False)
    assert same(store.load(NAME), opening(), batches(words(20)))
    assert [(info.session, info.state, info.mode, info.rules) for info in store.sessions("upstream = ''")] == [
        ("f" * 32, "torn", "full", {}), ("e" * 32, "aborted", "lean", {}), (NAME, "closed", "full", {"INV-044": 3}),
    ]  # fmt: skip
    shadow = [Record(0, 0, 0, Content(0, "a", (0, 1)))]
    for name in (NAME, "e" * 32, "f" * 32):
        store.attach(name, "shadow:x", {"semantic": shadow}, "changed")
    store.close()
    assert query(path, "PRAGMA user_version") == [(LAYOUT,)]
    store = open_store(str(path), create=False)
    assert [info.differs for info in store.sessions("differs = 'x'")] == ["x"] * 3
    assert [("shadow:x", "semantic") in store.load(name).records for name in (NAME, "e" * 32, "f" * 32)] == [
        True, False, True,
    ]  # fmt: skip
    store.close()


def test_a_store_of_layout_3(path: Path) -> None:
    """One session that ended, was judged and looked at, one that is lean, one whose process died."""
    path.write_bytes(zstandard.decompress((Path(__file__).parent / "golden" / "layout-3.zst").read_bytes()))
    assert query(path, "PRAGMA user_version") == [(3,)]
    store = open_store(str(path), create=False)
    assert store.load(NAME).events("shadow:x", "semantic") == [Content(0, "a", (0, 1))]
    record(store.writer(opening("d" * 32, conversation="conv_1")), []).close("closed")
    store.close()
    assert query(path, "PRAGMA user_version") == [(LAYOUT,)]
    store = open_store(str(path), create=False)
    assert [info.session for info in store.sessions("conversation = 'conv_1'")] == ["d" * 32]
    assert [(info.session, info.state, info.mode, info.differs) for info in store.sessions("conversation = ''")] == [
        ("f" * 32, "torn", "full", ""), ("e" * 32, "aborted", "lean", ""), (NAME, "closed", "full", "x"),
    ]  # fmt: skip
    store.close()


# --- older tables, only read ----------------------------------------------------------------------------------------


@pytest.fixture(params=range(1, LAYOUT))
def older(path: Path, request: pytest.FixtureRequest) -> int:
    """The layout of the store at ``path``, which is in WAL mode."""
    name = f"layout-{request.param}.zst"
    path.write_bytes(zstandard.decompress((Path(__file__).parent / "golden" / name).read_bytes()))
    layout: int = request.param
    return layout


def test_reading_leaves_a_file_of_older_tables_as_it_is(older: int, path: Path) -> None:
    before = path.read_bytes()
    store = open_store(str(path), create=False)
    every = [info.session for info in store.sessions()]
    assert NAME in every
    for name in every:
        assert store.info(name).session == store.load(name).info.session == name
        assert store.opening(name).session == name
        assert store.read(name, "input", "engine").records
    assert store.info("f" * 32).state == "torn"
    assert store.info(NAME).conversation == ""
    assert [info.session for info in store.sessions("conversation = '' and rule_errors >= 0 and opened > 0")] == every
    assert list(store.search("nowhere")) == []
    with pytest.raises(BadQuery, match="prohibited"):
        list(store.sessions("opening is not null"))
    store.flush()
    store.close()
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]
    assert query(path, "PRAGMA user_version") == [(older,)]


def test_what_is_written_migrates_it_under_its_readers(older: int, path: Path) -> None:
    reader, writer = open_store(str(path), create=False), open_store(str(path), create=False)
    assert "y" not in reader.info(NAME).differs
    seen = [Record(0, 0, 0, Content(0, "a", (0, 1)))]
    writer.attach(NAME, "shadow:y", {"semantic": seen}, "changed")
    assert query(path, "PRAGMA user_version") == [(LAYOUT,)]
    for store in (reader, writer):
        assert "y" in store.info(NAME).differs
        assert store.load(NAME).events("shadow:y", "semantic") == [seen[0].event]
        assert [info.session for info in store.sessions("differs like '%y%'")] == [NAME]
    assert [info.session for info in reader.sessions("state = 'torn'")] == ["f" * 32]
    for store in (reader, writer):
        store.close()


def test_a_newer_playhead_migrates_it_under_a_reader(older: int, path: Path) -> None:
    """What its tables have become the reader does not know."""
    reader = open_store(str(path), create=False)
    assert reader.info(NAME).session == NAME
    with sqlite3.connect(path) as newer:
        newer.execute(f"PRAGMA user_version={LAYOUT + 1}")
    newer.close()
    with pytest.raises(UnknownSchema, match="Install a newer one"):
        reader.info(NAME)
    reader.close()


def test_what_makes_a_store_migrates_it_at_once(older: int, path: Path) -> None:
    open_store(str(path)).close()
    assert query(path, "PRAGMA user_version") == [(LAYOUT,)]


def test_deleting_from_older_tables(older: int, path: Path) -> None:
    store = open_store(str(path), create=False)
    store.delete(NAME)
    assert NAME not in [info.session for info in store.sessions()]
    store.close()
    assert query(path, "SELECT count(*) FROM sessions WHERE session=?", NAME) == [(0,)]
