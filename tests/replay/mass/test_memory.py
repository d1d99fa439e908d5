"""A run takes no more memory for more sessions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from store import open_store, trace
from tests.replay.mass.corpora import ids, sessions
from tests.support.tree import ROOT

_KEPT = 1000
"""Bytes that a session may add, at the most: its place in the results, and what allocators keep. Its records are ten
times that, and its result in the report is more."""

_PROGRAM = """
import resource, sys
from replay import run_replay
from replay.report import write_json
report = run_replay([sys.argv[1]], "examples/modified_parser.py:Parser", layer="message")
with open(sys.argv[2], "wb") as file:
    write_json(report, file)
assert report.summary.changed == report.summary.sessions == int(sys.argv[3]), report.summary
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def peak(source: Path, count: int, out: Path) -> int:
    """Bytes at the most, of a process that replays it and writes the report."""
    command = [sys.executable, "-c", _PROGRAM, str(source), str(out), str(count)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def corpus(path: Path, count: int) -> None:
    """A store, or a trace file. Of one session, under many names: that is quick."""
    [one] = sessions(["0" * 32])
    text = trace.dumps(one)
    names = ids(count)
    with open(path.with_suffix(".jsonl"), "wb") as file:
        for name in names:
            file.write(text.replace(b"0" * 32, name.encode()))
    if path.suffix == ".db":
        store = open_store(str(path), durability="normal")
        store.save(trace.read_many(path.with_suffix(".jsonl")))
        store.close()


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "few", "many"), [("jsonl", 400, 4000), ("db", 400, 1600)])
def test_more_sessions_take_no_more(tmp_path: Path, kind: str, few: int, many: int) -> None:
    # Below 400 sessions a store's pages and the caches are not full.
    small, large = tmp_path / f"small.{kind}", tmp_path / f"large.{kind}"
    corpus(small, few)
    corpus(large, many)
    out = tmp_path / "out.json"
    grown = -peak(small, few, out) + peak(large, many, out)
    assert grown < _KEPT * (many - few)
    assert out.stat().st_size > _KEPT * many
