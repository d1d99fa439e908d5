"""Sessions that were recorded with a user's own parser, and are replayed without naming one."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from replay import run_replay
from store import open_store
from store.api import Trace
from tests.replay.mass.corpora import BAD, FINE, PARSERS, ids, sessions
from tests.replay.mass.test_resume import Replayed


def recorded_with(path: Path, parser: str, names: list[str]) -> str:
    """A store of sessions that say they were recorded with a parser."""
    store = open_store(str(path))
    store.save([_with(each, parser) for each in sessions(names)])
    store.close()
    return str(path)


def _with(found: Trace, parser: str) -> Trace:
    opening = msgspec.structs.replace(found.opening, parser=parser)
    info = msgspec.structs.replace(found.info, parser=parser)
    return msgspec.structs.replace(found, opening=opening, info=info)


@pytest.mark.usefixtures("only_hanging_is_late")
def test_the_time_limit_holds_for_a_few_of_them(tmp_path: Path) -> None:
    source = recorded_with(tmp_path / "a.db", BAD, [*ids(3), "a" * 32])
    report = run_replay([source], jobs=2, time_limit=1.0)
    assert (report.jobs, report.summary.failed) == (2, 1)
    [failed] = [each for each in report.sessions if each.verdict == "failed"]
    assert failed.session == "a" * 32
    assert failed.error is not None and failed.error.type == "Timeout"


def test_results_do_not_outlive_the_file_of_the_parser(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    shutil.copy(PARSERS, mine)
    source = recorded_with(tmp_path / "a.db", f"{mine}:Fine", ids(3))
    other = recorded_with(tmp_path / "b.db", FINE, ids(2, "1"))
    file = str(tmp_path / "results.jsonl")
    run_replay([source, other], resume=file)
    replayed = Replayed()
    run_replay([source, other], resume=file, on_result=replayed)
    assert replayed.sessions == []
    mine.write_text(mine.read_text() + "\n# changed\n")
    run_replay([source, other], resume=file, on_result=replayed)
    assert sorted(replayed.sessions) == ids(3)
