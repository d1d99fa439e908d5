"""A run in several processes: nothing depends on how many, in what order, or which of them die."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
from pathlib import Path

import pytest
import zstandard

from replay import run_replay
from replay.errors import ReplayError
from replay.report import RunReport
from replay.result import SessionResult
from replay.verdict import Difference
from store import trace
from tests.replay.mass.corpora import BAD, FINE, MODIFIED, PARSERS, ids, sessions, store_of


def told(report: RunReport) -> tuple[object, ...]:
    """All of a report that must not depend on how it was made."""
    return (
        report.digest, report.summary, report.lag, report.paired, report.unreadable,
        [(each.signature, each.count, each.tokens, each.models, each.sessions) for each in report.clusters],
        [(each.parser, each.models, each.verdicts, each.marks, each.lag) for each in report.families],
        [(each.session, each.digest) for each in report.sessions],
    )  # fmt: skip


def workers() -> set[int]:
    """The processes of a run."""
    children = multiprocessing.active_children()
    return {each.pid for each in children if each.pid is not None and each.name == "playhead-replay"}


def test_nothing_depends_on_the_number_of_workers(tmp_path: Path) -> None:
    source = store_of(tmp_path / "a.db", ids(60))
    one, two, three = (run_replay([source], MODIFIED, jobs=jobs) for jobs in (1, 2, 3))
    assert told(one) == told(two) == told(three)
    assert (one.jobs, two.jobs, three.jobs) == (1, 2, 3)
    assert one.summary.changed == 60
    assert sum(each.count for each in one.clusters) == 60
    # The example is the shortest, and of those the first by its id.
    shortest = min((each.tokens, each.session) for each in one.sessions if each.signature == one.clusters[0].signature)
    assert (one.clusters[0].example.tokens, one.clusters[0].example.session) == shortest


def test_nothing_depends_on_the_order(tmp_path: Path) -> None:
    traces = sessions(ids(40))
    digests: set[str] = set()
    for seed in range(3):
        random.Random(seed).shuffle(traces)
        folder = tmp_path / str(seed)
        folder.mkdir()
        for number, each in enumerate(traces):
            trace.write(each, folder / f"{number:02}.jsonl{'.zst' if number % 2 else ''}")
        digests.add(run_replay([str(folder)], FINE, jobs=2).digest)
    assert len(digests) == 1


@pytest.mark.parametrize("first", range(3))
def test_workers_that_are_killed_cost_nothing(tmp_path: Path, first: int) -> None:
    """Two of them: three that are killed at one session would show that it is at fault."""
    source = store_of(tmp_path / "a.db", ids(80))
    expected = run_replay([source], FINE)
    killed: list[int] = []
    results = 0

    def kill(result: SessionResult) -> None:
        nonlocal results
        results += 1
        others = workers() - {*killed}
        if len(killed) < 2 and others and results > first * 20:
            killed.append(min(others))
            os.kill(killed[-1], signal.SIGKILL)

    report = run_replay([source], FINE, jobs=2, on_result=kill)
    assert len(killed) == 2
    assert told(report) == told(expected)
    assert not workers()


@pytest.mark.usefixtures("only_hanging_is_late")
def test_sessions_that_end_their_process_or_do_not_end(tmp_path: Path) -> None:
    names = ids(30)
    for number, letter in enumerate("abcde"):
        names.insert(5 * number + 3, letter * 32)
    source = store_of(tmp_path / "a.db", names)
    report = run_replay([source], BAD, jobs=2, time_limit=1.0)
    failed = {each.session[0]: each for each in report.sessions if each.verdict == "failed"}
    types = {letter: each.error.type for letter, each in failed.items() if each.error is not None}
    assert types == {"a": "Timeout", "b": "Crashed", "c": "Crashed", "d": "Crashed", "e": "RuntimeError"}
    why = {letter: each.error.message for letter, each in failed.items() if each.error is not None}
    assert why["a"] == "no end within 1 s"
    assert why["c"] == "it ended its process with exit code 7"
    assert why["d"] == "its process was killed by signal 9"
    assert all(each.parser == "test.bad@1" and each.marks[:1] == ("failed",) for each in failed.values())
    assert failed["d"].tokens == next(each.tokens for each in run_replay([source], sessions=["d"]).sessions)
    # The others lose nothing, and all is the same a second time.
    assert (report.summary.same, report.summary.failed) == (30, 5)
    assert {each.signature.kind for each in report.clusters} == {"Timeout", "Crashed", "RuntimeError"}
    assert run_replay([source], BAD, jobs=3, time_limit=1.0).digest == report.digest


def test_a_compressed_file_of_which_some_end_their_process(tmp_path: Path) -> None:
    names = [*ids(6), "c" * 32, *ids(6, "1"), "d" * 32]
    path = tmp_path / "all.jsonl"
    path.write_bytes(b"".join(map(trace.dumps, sessions(names))))
    packed = tmp_path / "all.jsonl.zst"
    packed.write_bytes(zstandard.compress(path.read_bytes()))
    plain, small = (run_replay([str(each)], BAD, jobs=2) for each in (path, packed))
    assert plain.digest == small.digest
    assert (small.summary.same, small.summary.failed) == (12, 2)
    assert [each.session for each in small.sessions] == names
    only = run_replay([str(packed)], BAD, jobs=2, sessions=["d", "1"])
    assert (only.summary.same, only.summary.failed) == (6, 1)


def test_a_parser_that_cannot_be_had_ends_the_run(tmp_path: Path) -> None:
    source = store_of(tmp_path / "a.db", ids(3))
    with pytest.raises(ReplayError, match="has no Nobody"):
        run_replay([source], f"{PARSERS}:Nobody", jobs=2)
    with pytest.raises(ReplayError, match="exit code 5"):
        run_replay([source], f"{PARSERS}:broken", jobs=2)
    assert not workers()


def test_bad_sources_cost_nothing(tmp_path: Path) -> None:
    good = store_of(tmp_path / "a.db", ids(40))
    traces = sessions(ids(3, "9"))
    text = [trace.dumps(each) for each in traces]
    (tmp_path / "mixed.jsonl").write_bytes(text[0] + text[1].replace(b'"engine"', b'"motor"', 1) + text[2])
    line = (text[0] + text[1]).count(b"\n", 0, (text[0] + text[1]).index(b"\n", len(text[0]))) + 2
    (tmp_path / "empty.jsonl").write_bytes(b"")
    (tmp_path / "notes.db").write_text("no store " * 100)
    sources = [good, *(str(tmp_path / name) for name in ("mixed.jsonl", "empty.jsonl", "notes.db", "gone.jsonl"))]
    for jobs in (1, 2):
        report = run_replay(sources, FINE, jobs=jobs)
        assert (report.summary.same, report.summary.unreadable) == (42, 4)
        assert [Path(each.source).name for each in report.unreadable] == [
            "mixed.jsonl", "empty.jsonl", "notes.db", "gone.jsonl",
        ]  # fmt: skip
        # Lines are counted from the begin of the file.
        assert f"mixed.jsonl, line {line}:" in report.unreadable[0].error


def test_few_sessions_of_our_own_parsers_need_no_workers(tmp_path: Path) -> None:
    source = store_of(tmp_path / "a.db", ids(32))
    assert run_replay([source], "hermes", jobs=2).jobs == 1
    assert run_replay([source], FINE, jobs=2).jobs == 2


def test_what_has_no_name_is_not_given_to_workers(tmp_path: Path) -> None:
    source = store_of(tmp_path / "a.db", ids(3))

    def ignore(item: Difference) -> bool:
        return True

    assert run_replay([source], MODIFIED, ignore=[ignore]).summary.same == 3
    with pytest.raises(ReplayError, match=r"name it, as in file\.py:Attr"):
        run_replay([source], MODIFIED, ignore=[ignore], jobs=2)


def test_splits_and_fail_fast_in_workers(tmp_path: Path) -> None:
    source = store_of(tmp_path / "a.db", ids(40))
    splits = ("recorded", "token", "histogram:3")
    one, two = (run_replay([source], FINE, splits, "message", jobs=jobs) for jobs in (1, 2))
    assert told(one) == told(two)
    assert one.summary.same == 40
    assert run_replay([source], MODIFIED, jobs=2, fail_fast=True).summary.changed == 1


ASKS = """
import multiprocessing, signal
from stages import catalog


class Parser:
    id = "asks@1"

    def start(self, opening):
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        assert multiprocessing.parent_process() is None or signal.SIGINT in blocked
        return catalog.parser(opening.parser).start(opening)
"""


def test_workers_never_see_ctrl_c(tmp_path: Path) -> None:
    """Not even before their first line: the terminal sends it to every process of a command."""
    (tmp_path / "asks.py").write_text(ASKS)
    source = store_of(tmp_path / "a.db", ids(8))
    report = run_replay([source], f"{tmp_path / 'asks.py'}:Parser", jobs=2)
    assert (report.summary.same, report.jobs) == (8, 2)
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
