"""Sources that are none, that are given twice, or that no one can read to the end."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from replay import run_replay
from replay.errors import ReplayError
from replay.verdict import Difference
from tests.replay.mass.corpora import FINE, MODIFIED, file_of, ids, sessions, store_of


def test_a_source_that_is_given_twice_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store_of(tmp_path / "a.db", ids(3))
    (tmp_path / "link.db").symlink_to("a.db")
    monkeypatch.chdir(tmp_path)
    report = run_replay(["a.db", "./a.db", str(tmp_path / "a.db"), "link.db"])
    assert (report.sources, report.summary.sessions, report.summary.unreadable) == (("a.db",), 3, 0)
    assert run_replay([".", f"{tmp_path}/"]).sources == (".",)


def test_a_pipe_and_no_name_are_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody writes into the pipe; the empty name is not the folder that we are in."""
    monkeypatch.chdir(tmp_path)
    good = store_of(tmp_path / "a.db", ids(3))
    for name in ("pipe.jsonl", "pipe.db", "pipe.jsonl.zst"):
        os.mkfifo(name)
    report = run_replay(["pipe.jsonl", "pipe.db", "pipe.jsonl.zst", "", good])
    assert [each.error for each in report.unreadable] == [
        "pipe.jsonl is a pipe or a device: name a file", "pipe.db is a pipe or a device: name a file",
        "pipe.jsonl.zst is a pipe or a device: name a file", "a source without a name: name a file or folder",
    ]  # fmt: skip
    assert report.summary.same == 3


def test_an_empty_id_does_not_stand_for_all(tmp_path: Path) -> None:
    with pytest.raises(ReplayError, match="a session without a name"):
        run_replay([store_of(tmp_path / "a.db", ids(3))], FINE, sessions=[""])


def test_a_function_that_exits_is_one_that_raises(tmp_path: Path) -> None:
    source = store_of(tmp_path / "a.db", ids(3))

    def leaves(item: Difference) -> bool:
        raise SystemExit(0)

    with pytest.raises(ReplayError, match=r"ignore rule .*leaves raised SystemExit: 0"):
        run_replay([source], MODIFIED, ignore=[leaves])


def test_a_disk_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Told as wrong use, and nothing temporary is left."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    source = file_of(tmp_path / "a.jsonl", sessions(ids(60)))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
    try:
        with pytest.raises(ReplayError, match=r"the results cannot be written to .*: File too large"):
            run_replay([source], FINE)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list((tmp_path / "tmp").iterdir()) == []
