"""Sources that are none, that are given twice, or that no one can read to the end."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import msgspec
import pytest

from replay import run_replay
from replay.errors import ReplayError
from replay.verdict import Difference
from store import trace
from tests.replay.mass.corpora import FINE, MODIFIED, file_of, ids, sessions, store_of
from tests.replay.mass.test_jobs import told


def test_a_source_that_is_given_twice_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store_of(tmp_path / "a.db", ids(3))
    (tmp_path / "link.db").symlink_to("a.db")
    monkeypatch.chdir(tmp_path)
    report = run_replay(["a.db", "./a.db", str(tmp_path / "a.db"), "link.db"])
    assert (report.sources, report.summary.sessions, report.summary.unreadable) == (("a.db",), 3, 0)
    assert run_replay([".", f"{tmp_path}/"]).sources == (".",)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_file_that_several_sources_lead_to_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    """A folder and what is in it, links within a folder, a folder within another; and the report says so."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "all" / "deep").mkdir(parents=True)
    store_of(tmp_path / "all" / "a.db", ids(3))
    file_of(tmp_path / "all" / "deep" / "b.jsonl", sessions(ids(2, "1")))
    (tmp_path / "all" / "c.jsonl").symlink_to("deep/b.jsonl")
    os.link("all/deep/b.jsonl", "all/d.jsonl")
    store_of(tmp_path / "other.db", ids(3))
    report = run_replay(["all", "all/deep", "other.db", "all/a.db", "./other.db"], FINE, jobs=jobs)
    assert (report.summary.same, report.summary.sessions, report.summary.unreadable) == (8, 8, 0)
    # By the first of its paths, in the order of the run.
    assert [each.source for each in report.sessions] == [*["all/a.db"] * 3, *["all/c.jsonl"] * 2, *["other.db"] * 3]
    assert sorted(report.counted_once) == [
        "./other.db", "all/a.db", "all/d.jsonl", "all/deep/b.jsonl",
    ]  # fmt: skip
    assert run_replay(["all"], FINE).counted_once == ("all/d.jsonl", "all/deep/b.jsonl")


def test_sessions_of_one_name_in_two_places_are_two(tmp_path: Path) -> None:
    """Which of them is the example does not depend on the number of workers, nor on whose result came first."""
    names = ids(20)
    traces = sessions(names)
    text = [trace.dumps(each) for each in traces]
    # The same names, and as many tokens, but other words: twice in one file, and in a copy.
    changed = [each.replace(b"Brest", b"Bredt") for each in text]
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_bytes(b"".join([*text, *changed]))
    sources = [str(tmp_path / name) for name in ("a.jsonl", "b.jsonl")]
    one, two, three = (run_replay(sources, MODIFIED, jobs=jobs) for jobs in (1, 2, 3))
    assert one.summary.sessions == 80
    assert told(one) == told(two) == told(three)
    examples = [
        [msgspec.structs.replace(each.example, ns=0) for each in report.clusters] for report in (one, two, three)
    ]
    assert examples[0] == examples[1] == examples[2]


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
