"""What lies in a folder of sessions and is none: the results of a replay, and its report."""

from __future__ import annotations

from pathlib import Path

import pytest
import zstandard

from replay import ReplayError, run_replay, to_json
from replay.report import from_json
from store import trace
from tests.replay.mass.corpora import FINE, file_of, ids, sessions, store_of


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_in_a_folder_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: int) -> None:
    monkeypatch.chdir(tmp_path)
    file_of(tmp_path / "a.jsonl", sessions(ids(3)))
    report = run_replay(["a.jsonl"], FINE)
    for _ in range(2):  # made, and gone on with
        report = run_replay(["."], FINE, resume="r.jsonl", jobs=jobs)
        assert (report.summary.same, report.summary.sessions, report.summary.unreadable) == (3, 3, 0)
        assert report.left_out == ("r.jsonl",)
    (tmp_path / "deep").mkdir()
    Path("deep/then.jsonl").write_bytes(to_json(report))
    Path("deep/line.jsonl").write_bytes(to_json(report).replace(b"\n", b" "))
    again = run_replay(["."], FINE, jobs=jobs)
    assert (again.summary.same, again.summary.unreadable, again.digest) == (3, 0, report.digest)
    assert again.left_out == ("deep/line.jsonl", "deep/then.jsonl", "r.jsonl")
    assert from_json(to_json(again)).left_out == again.left_out


def test_named_directly_they_are_an_error(tmp_path: Path) -> None:
    source, results = file_of(tmp_path / "a.jsonl", sessions(ids(2))), str(tmp_path / "r.jsonl")
    run_replay([source], FINE, resume=results)
    report = run_replay([source, results], FINE)
    assert (report.summary.same, report.left_out) == (2, ())
    assert [each.source for each in report.unreadable] == [results]


def test_a_folder_of_nothing_else_has_no_session(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    run_replay([store_of(tmp_path / "a.db", ids(1))], FINE, resume=str(tmp_path / "kept/r.jsonl"))
    report = run_replay([str(tmp_path / "kept")], FINE)
    assert [each.error for each in report.unreadable] == ["no session in it"]


@pytest.mark.parametrize("end", [".jsonl", ".jsonl.zst"])
def test_an_id_that_is_empty_is_not_every_id(tmp_path: Path, end: str) -> None:
    """A header that tells no id may be that of any session, and is told as what cannot be read."""
    source = tmp_path / f"a{end}"
    text = b"".join(map(trace.dumps, sessions(["", "zz"])))
    source.write_bytes(zstandard.compress(text) if end.endswith(".zst") else text)
    assert [each.session for each in run_replay([str(source)], FINE).sessions] == ["", "zz"]
    report = run_replay([str(source)], FINE, sessions=["zz"])
    assert ([each.session for each in report.sessions], report.unreadable) == (["zz"], ())
    (nothing,) = run_replay([str(source)], FINE, sessions=["y"]).unreadable
    assert nothing.error == "no session y in it"


def test_an_earlier_report_without_any_of_the_sessions(tmp_path: Path) -> None:
    """As where no split applies: wrong use, for nothing was compared."""
    few, others = (store_of(tmp_path / f"{name}.db", ids(2, name)) for name in "12")
    nothing = tmp_path / "nothing.json"
    nothing.write_bytes(to_json(run_replay([], FINE)))
    then = tmp_path / "then.json"
    then.write_bytes(to_json(run_replay([few], FINE)))
    for baseline in (nothing, then):
        with pytest.raises(ReplayError) as raised:
            run_replay([others], FINE, baseline=str(baseline))
        assert str(raised.value) == f"no session of {others} is in {baseline}: nothing was compared"
    both = run_replay([few, others], FINE, baseline=str(then))
    assert (both.summary.same, both.summary.uncompared) == (2, 2)
    results = str(tmp_path / "r.jsonl")
    for _ in range(2):
        assert run_replay([few], FINE, baseline=str(then), resume=results).summary.same == 2
