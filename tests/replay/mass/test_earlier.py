"""A run against an earlier report: what that has, and this run does not meet, is told."""

from __future__ import annotations

from pathlib import Path

from replay import run_replay
from replay.report import write_json
from tests.replay.mass.corpora import FINE, ids, store_of
from tests.replay.mass.test_resume import cut


def test_sessions_that_are_gone_are_told(tmp_path: Path) -> None:
    earlier = str(tmp_path / "then.json")
    many, few = store_of(tmp_path / "a.db", [*ids(4), *ids(2, "1")]), store_of(tmp_path / "b.db", ids(3))
    with open(earlier, "wb") as file:
        write_json(run_replay([many], FINE), file)
    gone = (ids(4)[3], *ids(2, "1"))
    results = tmp_path / "results.jsonl"
    for resume in (None, str(results), str(results)):
        report = run_replay([few], FINE, baseline=earlier, resume=resume)
        assert (report.summary.same, report.summary.missing, report.missing) == (3, 3, gone)
    # Those of an interrupted run were met by it.
    cut(results, 2)
    assert run_replay([few], FINE, baseline=earlier, resume=str(results)).missing == gone
    assert run_replay([few], FINE, baseline=earlier, sessions=["1", ids(4)[0]]).missing == gone[1:]
    assert run_replay([many], FINE, baseline=earlier, jobs=2).summary.missing == 0
    # One that ends at the first that changed has not looked for the others.
    assert run_replay([few], "examples/modified_parser.py:Parser", baseline=earlier, fail_fast=True).missing == ()
