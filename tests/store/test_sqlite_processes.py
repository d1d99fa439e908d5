"""Several processes on one SQLite store, and the death of one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import msgspec
import pytest

from stages.events import Content
from store.api import SHADOW, CorruptRecord, Record, StillOpen, Trace
from store.rules import stored_in
from store.sqlite import SqliteStore
from tests.store.child import plan
from tests.support.store import opening, record, records, same

ROOT = Path(__file__).parents[2]


def child(path: Path, *args: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-W", "ignore", "-m", "tests.store.child", str(path), *args]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def wait_ready(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"


def kill(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    with process:
        process.wait()


def test_open_there_then_torn(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    process = child(path, "hold", "held-7")
    wait_ready(process)
    made = plan("held-7")[1]
    half = made[: len(made) // 2]
    store = SqliteStore(path)
    try:
        assert [info.state for info in store.sessions()] == ["open"]
        assert store.load("held-7").info.state == "open"
    finally:
        kill(process)
    # Its writer is dead: seen at once, and by those who were there before.
    assert [info.state for info in store.sessions(state="torn")] == ["torn"]
    assert list(store.sessions(state="open")) == []
    torn = store.load("held-7")
    assert same(torn, opening("held-7"), half)
    assert torn.info.state == store.info("held-7").state == "torn"
    assert torn.info.message[0]["content"]
    store.close()
    # The next to open it seals what the dead left.
    store = SqliteStore(path)
    (listed,) = store.sessions()
    assert listed == torn.info
    assert same(store.load("held-7"), opening("held-7"), half)
    assert [info.session for info in store.search("licence")] == ["held-7"]
    store.close()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["sessions.db"]


def test_a_torn_session_is_taken_up_again(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    process = child(path, "hold", "held-7")
    wait_ready(process)
    kill(process)
    store = SqliteStore(path)
    made = plan("held-7")[1]
    writer = record(store.writer(opening("held-7")), made)
    writer.close("closed")
    writer.committed().result(10)
    found = store.load("held-7")
    assert same(found, opening("held-7"), made)
    assert found.info.state == "closed"
    assert found.info.finish_reasons == ("eos",)
    store.close()


def test_a_session_of_a_dead_writer_is_added_to(tmp_path: Path) -> None:
    """Before anybody opened the store anew; and what was added stays when its recording goes on."""
    path = tmp_path / "sessions.db"
    process = child(path, "hold", "held-7")
    wait_ready(process)
    store = SqliteStore(path)
    shadow = [Record(0, 0, 0, Content(0, "a", (0, 1)))]
    with pytest.raises(StillOpen):
        store.attach("held-7", "shadow:x", {"semantic": shadow}, "changed")
    kill(process)
    store.attach("held-7", "shadow:x", {"semantic": shadow}, "changed")
    found = store.load("held-7")
    assert (found.info.state, found.info.shadows) == ("torn", {"x": "changed"})
    assert found.records["shadow:x", "semantic"] == shadow
    made = plan("held-7")[1]
    assert same(_recorded(found), opening("held-7"), made[: len(made) // 2])
    record(store.writer(opening("held-7")), made).close("closed")
    store.flush()
    found = store.load("held-7")
    assert (found.info.state, found.info.shadows) == ("closed", {"x": "changed"})
    assert found.records["shadow:x", "semantic"] == shadow
    assert same(_recorded(found), opening("held-7"), made)
    store.close()


def test_two_processes_write(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    others = [child(path, "many", prefix, "15") for prefix in ("a", "b")]
    store = SqliteStore(path, window_s=0.001)
    for number in range(15):
        mode, made = plan(f"c-{number}")
        record(store.writer(opening(f"c-{number}"), mode), made).close("closed")
    for process in others:
        with process:
            assert process.wait() == 0
    store.flush()
    assert store.stats()["lost_records"] == 0
    for name in (f"{prefix}-{number}" for prefix in "abc" for number in range(15)):
        mode, made = plan(name)
        expected = {key: held for key, held in records(made).items() if stored_in(mode, *key)}
        assert store.load(name).records == expected
    store.close()


def test_killed_ten_times(tmp_path: Path) -> None:
    """The store opens, sessions are whole or torn, and what was noted as committed is there."""
    path = tmp_path / "sessions.db"
    chance = Random(20)
    torn = 0
    for turn in range(10):
        side = tmp_path / f"side-{turn}"
        process = child(path, "forever", f"k{turn}", str(side))
        enough = chance.randrange(1, 60_000)
        while not side.exists() or side.stat().st_size < enough:
            assert process.poll() is None
            os.sched_yield()
        moment = time.perf_counter() + chance.uniform(0, 0.005)
        while time.perf_counter() < moment:
            pass
        kill(process)
        torn += check(path, f"k{turn}-", side.read_text())
    assert torn >= 10


def check(path: Path, prefix: str, noted: str) -> int:
    """How many of the killed process's sessions are torn."""
    durable: dict[tuple[str, str, str], int] = {}
    lines = noted.splitlines(keepends=True)
    for line in lines:
        # The last line may be cut: the note itself is not a transaction.
        if line.endswith("\n"):
            session, track, layer, seq = line.split()
            durable[session, track, layer] = int(seq)
    store = SqliteStore(path)
    infos = {info.session: info for info in store.sessions() if info.session.startswith(prefix)}
    for info in infos.values():
        assert info.state in ("closed", "torn")
        mode, made = plan(info.session)
        found = store.load(info.session)
        for key, expected in records(made).items():
            held = found.records.get(key, [])
            if not stored_in(mode, *key):
                assert held == []
                continue
            assert held == expected[: len(held)]
            assert len(held) >= durable.get((info.session, *key), 0)
            if info.state == "closed":
                assert len(held) == len(expected)
    assert {session for session, _, _ in durable} <= infos.keys()
    assert list(store.sessions(state="open")) == []
    store.close()
    return sum(info.state == "torn" for info in infos.values())


def test_a_torn_session_with_a_damaged_journal(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    process = child(path, "hold", "held-1")
    wait_ready(process)
    import sqlite3

    conn = sqlite3.connect(path)
    conn.execute("UPDATE journal SET crc32=crc32+1 WHERE layer='chunk'")
    conn.commit()
    conn.close()
    kill(process)
    store = SqliteStore(path)
    assert store.info("held-1").state == "torn"
    with pytest.raises(CorruptRecord, match="session held-1, track served, layer chunk, seq 0"):
        store.load("held-1")
    store.close()


def _recorded(found: Trace) -> Trace:
    """Without what was attached."""
    kept = {key: held for key, held in found.records.items() if not key[0].startswith(SHADOW)}
    return msgspec.structs.replace(found, records=kept)
