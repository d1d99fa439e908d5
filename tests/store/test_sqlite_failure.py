"""Stores that cannot be written: serving goes on, the loss is told once and counted, and recording comes back.

The causes are real: another connection's lock, a file that is deleted or replaced, a limit on the size of files.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stages.events import Content, PromptInput
from store.api import Batch, SessionWriter, StoreError, StoreUnavailable
from store.sqlite import SqliteStore
from tests.support.server import eventually
from tests.support.store import batches, opening, record, records, same, words

ROOT = Path(__file__).parents[2]
MADE = batches(words(50), size=3)
PROMPT = Batch("input", "engine", 0, 0, [PromptInput((1, 2, 3), "tail", 3)])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


@contextmanager
def locked(path: Path) -> Generator[None]:
    """Another connection writes and does not end."""
    conn = sqlite3.connect(path, isolation_level=None)
    conn.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        conn.execute("ROLLBACK")
        conn.close()


def lost(writer: SessionWriter, match: str) -> None:
    """The session is incomplete, and says why; nothing raises."""
    with pytest.raises(StoreUnavailable, match=match):
        writer.committed().result(10)
    assert writer.incomplete
    writer.append(Batch("socket", "frame", 0, 0, []))
    writer.close("closed")


def recorded(store: SqliteStore, name: str) -> None:
    """A session that is recorded whole."""
    writer = record(store.writer(opening(name)), MADE)
    writer.close("closed")
    writer.committed().result(10)
    assert not writer.incomplete
    assert same(store.load(name), opening(name), MADE)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [entry.getMessage() for entry in caplog.records if entry.name == "playhead.store" and entry.levelno >= 30]


def test_a_lock_that_is_not_let_go(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = SqliteStore(path, busy_s=0.02, window_s=0.001)
    early = record(store.writer(opening("early")), MADE[:5])
    early.committed().result(10)
    with locked(path):
        early.append(MADE[5])
        lost(early, "locked; another program holds its lock")
        new = record(store.writer(opening("new")), MADE)
        lost(new, "locked")
        assert len(warnings(caplog)) == 1
        assert "locked" in warnings(caplog)[0]
    recorded(store, "late")
    store.flush()
    assert store.stats()["failures"] >= 2
    assert store.stats()["lost_records"] == len(MADE[5].events) + sum(len(batch.events) for batch in MADE)
    found = store.load("early")
    assert found.info.state == "incomplete"
    assert found.records == records(MADE[:5])
    assert [info.session for info in store.sessions()] == ["late", "early"]
    assert [info.session for info in store.sessions(state="incomplete")] == ["early"]
    # Failing anew after it recovered is told again.
    with locked(path):
        lost(record(store.writer(opening("again")), MADE), "locked")
    assert len(warnings(caplog)) == 2
    store.close()


def test_what_was_lost_is_not_taken_to_be_running(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not as long as nobody can write that it was, and then not for want of anything else to write."""
    monkeypatch.setattr("store.sqlite_commit.BACKOFF", (0.001, 0.01))
    store = SqliteStore(path, busy_s=0.02, window_s=0.001)
    other = SqliteStore(path, busy_s=0.02)
    early = record(store.writer(opening("early")), MADE[:5])
    early.committed().result(10)
    with locked(path):
        early.append(MADE[5])
        lost(early, "locked")
        assert store.info("early").state == "incomplete"
        assert store.load("early").info.state == "incomplete"
        assert store.read("early", "input", "engine").state == "incomplete"
        assert [info.session for info in store.sessions(state="incomplete")] == ["early"]
        assert list(store.sessions(state="open")) == []
        assert other.info("early").state == "open"
    eventually(lambda: True if other.info("early").state == "incomplete" else None)
    assert other.load("early").records == records(MADE[:5])
    other.close()
    store.close()


def test_a_short_lock_is_waited_for(path: Path) -> None:
    store = SqliteStore(path, window_s=0.001)
    with locked(path):
        writer = record(store.writer(opening()), MADE)
        writer.close("closed")
        committed = writer.committed()
        assert not committed.done()
    committed.result(10)
    assert same(store.load(opening().session), opening(), MADE)
    store.close()


def test_a_full_queue_drops_sessions_whole(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = SqliteStore(path, busy_s=60, window_s=0.001, queue_bytes=200_000)
    early = record(store.writer(opening("early")), MADE[:5])
    early.committed().result(10)
    with locked(path):
        number = 0
        while not early.incomplete:
            early.append(Batch("served", "semantic", 7 + number, number, [Content(0, "x" * 1000, (0, 1000))], [0]))
            number += 1
        refused = store.writer(opening("refused"))
        assert refused.incomplete
        refused.append(PROMPT)
        with pytest.raises(StoreUnavailable, match="queue is full"):
            early.committed().result(10)
        early.append(Batch("served", "semantic", 7 + number, 0, [Content(0, "y", (0, 1))], [0]))
        for writer in (early, refused):
            writer.close("closed")
    store.flush()
    found = store.load("early")
    assert found.info.state == "incomplete"
    held = found.events("served", "semantic")
    # What fitted is there, without a hole; what came after the first loss is not.
    assert 10 < len(held) < 7 + number
    assert all(event.text == "x" * 1000 for event in held[7:])
    assert [info.session for info in store.sessions()] == ["early"]
    assert store.stats()["lost_records"] == 3
    assert store.stats()["failures"] == 2
    assert len(warnings(caplog)) == 1
    recorded(store, "late")
    store.close()


@pytest.mark.parametrize("what", ["*", "sessions.db"])
def test_the_file_is_deleted(path: Path, caplog: pytest.LogCaptureFixture, what: str) -> None:
    store = SqliteStore(path, window_s=0.001)
    running = record(store.writer(opening("running")), MADE[:5])
    running.committed().result(10)
    recorded(store, "before")
    for file in path.parent.glob(what):
        file.unlink()
    running.append(MADE[5])
    lost(running, "deleted or replaced")
    # A new file takes the new sessions.
    recorded(store, "after")
    assert [info.session for info in store.sessions()] == ["after"]
    assert len(warnings(caplog)) == 1
    store.close()
    again = SqliteStore(path)
    assert same(again.load("after"), opening("after"), MADE)
    again.close()


def test_the_file_is_replaced(path: Path) -> None:
    store = SqliteStore(path, window_s=0.001)
    recorded(store, "before")
    aside = path.with_name("aside")
    path.rename(aside)
    other = b"something else, but not a database; " * 100
    path.write_bytes(other)
    # The old file's log must not meet the new file.
    lost(record(store.writer(opening("meanwhile")), MADE), "was replaced while .*-wal holds records")
    with pytest.raises(StoreError, match="was replaced"):
        list(store.sessions())
    assert path.read_bytes() == other
    path.unlink()
    aside.rename(path)
    recorded(store, "after")
    assert {info.session for info in store.sessions()} == {"before", "after"}
    store.close()


def test_the_folder_is_gone_for_a_while(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    store = SqliteStore(folder / "sessions.db", window_s=0.001)
    recorded(store, "before")
    shutil.rmtree(folder)
    lost(record(store.writer(opening("meanwhile")), MADE), "folder .*data does not exist")
    with pytest.raises(StoreUnavailable, match="does not exist"):
        store.info("before")
    folder.mkdir()
    recorded(store, "after")
    store.close()


def test_closing_a_store_that_cannot_be_written(path: Path) -> None:
    store = SqliteStore(path, busy_s=0.02, window_s=0.001)
    recorded(store, "before")
    with locked(path):
        writer = record(store.writer(opening("running")), MADE)
        store.close()
        assert writer.incomplete
    again = SqliteStore(path)
    assert [info.session for info in again.sessions()] == ["before"]
    again.close()


def test_an_event_that_cannot_be_encoded(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = SqliteStore(path)
    writer = record(store.writer(opening()), MADE[:3])
    # A lone surrogate has no UTF-8; no parser makes one, but a user's may.
    writer.append(Batch("served", "semantic", 1, 5, [Content(0, "\ud800", (0, 1))], [0]))
    writer.close("closed")
    store.flush()
    assert writer.incomplete
    found = store.load(opening().session)
    assert found.info.state == "incomplete"
    assert found.records == records(MADE[:3])
    assert store.stats()["lost_records"] == 1
    assert "cannot be encoded" in warnings(caplog)[0]
    recorded(store, "after")
    store.close()


def test_a_hook_that_raises(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def hook(durable: list[tuple[str, str, str, int]]) -> None:
        raise RuntimeError("not today")

    store = SqliteStore(path, on_commit=hook)
    recorded(store, "one")
    store.close()
    assert any("not today" in (entry.exc_text or "") for entry in caplog.records)


FULL = """
import logging, resource, sys
from pathlib import Path
from store.sqlite import SqliteStore
from tests.support.store import batches, opening, record, same, words

told = []
class Keep(logging.Handler):
    def emit(self, entry):
        told.append(entry.getMessage())
logging.getLogger("playhead.store").addHandler(Keep())

path = Path(sys.argv[1])
made = batches(words(50))
store = SqliteStore(path, window_s=0.001)
early = record(store.writer(opening("early")), made[:5])
early.committed().result(10)
# No file of this process may grow beyond what its largest has: to SQLite, the disk is full.
largest = max(file.stat().st_size for file in path.parent.iterdir())
resource.setrlimit(resource.RLIMIT_FSIZE, (largest + 5000, resource.RLIM_INFINITY))
big = batches(words(5000), size=100)
writer = record(store.writer(opening("big")), big)
writer.close("closed")
assert isinstance(writer.committed().exception(30), Exception)
assert writer.incomplete
store.flush()
assert len(told) == 1, told
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
late = record(store.writer(opening("late")), big)
late.close("closed")
late.committed().result(10)
early_goes_on = record(early, made[5:])
early.close("closed")
early.committed().result(10)
assert same(store.load("late"), opening("late"), big)
assert same(store.load("early"), opening("early"), made)
assert store.stats()["lost_records"] == sum(len(batch.events) for batch in big)
store.close()
print(told[0])
"""


def test_the_disk_is_full(path: Path) -> None:
    command = [sys.executable, "-c", FULL, str(path)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert str(path) in done.stdout
