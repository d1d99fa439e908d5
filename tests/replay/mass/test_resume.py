"""The results file: a run that ended early goes on where it was, and never with results of another replay."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import msgspec
import pytest
import zstandard

from replay import run_replay
from replay.errors import ReplayError
from replay.report import RunReport, from_json, to_json
from replay.result import SessionResult
from tests.replay.mass.corpora import FINE, MODIFIED, PARSERS, file_of, ids, sessions, store_of
from tests.replay.mass.test_jobs import told


class Replayed:
    """Collects the sessions that are replayed in truth, not read from the file."""

    def __init__(self) -> None:
        self.sessions: list[str] = []

    def __call__(self, result: SessionResult) -> None:
        self.sessions.append(result.session)


def cut(path: Path, lines: int, torn: bytes = b"") -> None:
    """Keep the header and so many results."""
    held = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(held[: lines + 1]) + torn)


@pytest.mark.parametrize("torn", [b"", b'{"at":12,"index":0,"place":"1', b"\x00\xff"])
def test_it_goes_on_where_it_was(tmp_path: Path, torn: bytes) -> None:
    source = store_of(tmp_path / "a.db", ids(20))
    file = tmp_path / "results.jsonl"
    whole = told(run_replay([source], MODIFIED, resume=str(file)))
    assert whole == told(run_replay([source], MODIFIED))
    cut(file, 12, torn)
    replayed = Replayed()
    again = run_replay([source], MODIFIED, resume=str(file), on_result=replayed)
    assert len(replayed.sessions) == 8
    assert told(again) == whole
    # All is there now: a third run replays nothing.
    nothing = Replayed()
    assert told(run_replay([source], MODIFIED, resume=str(file), on_result=nothing)) == whole
    assert nothing.sessions == []


def test_an_empty_file_is_a_new_one(tmp_path: Path) -> None:
    source = store_of(tmp_path / "a.db", ids(5))
    file = tmp_path / "results.jsonl"
    file.touch()
    assert told(run_replay([source], MODIFIED, resume=str(file))) == told(run_replay([source], MODIFIED))
    assert file.read_bytes().count(b"\n") == 6


def test_in_several_processes_and_of_compressed_files(tmp_path: Path) -> None:
    source = store_of(tmp_path / "a.db", ids(40))
    packed = tmp_path / "b.jsonl.zst"
    packed.write_bytes(zstandard.compress(Path(file_of(tmp_path / "b.jsonl", sessions(ids(20, "1")))).read_bytes()))
    sources = [source, str(packed)]
    file = tmp_path / "results.jsonl"
    first = run_replay(sources, FINE, jobs=2, resume=str(file))
    assert first.summary.same == 60
    whole = told(first)
    for kept in (0, 25, 50, 59):
        cut(file, kept)
        again = run_replay(sources, FINE, jobs=2, resume=str(file))
        assert told(again) == whole


def test_new_sessions_of_a_store_are_added(tmp_path: Path) -> None:
    source = store_of(tmp_path / "a.db", ids(5))
    file = str(tmp_path / "results.jsonl")
    run_replay([source], resume=file)
    store_of(tmp_path / "a.db", ids(3, "7"))
    replayed = Replayed()
    assert run_replay([source], resume=file, on_result=replayed).summary.same == 8
    assert sorted(replayed.sessions) == ids(3, "7")


def test_a_trace_file_that_was_edited_is_replayed_again(tmp_path: Path) -> None:
    one = file_of(tmp_path / "one.jsonl", sessions(ids(3, "1")))
    two = file_of(tmp_path / "two.jsonl", sessions(ids(3, "2")))
    file = str(tmp_path / "results.jsonl")
    before = run_replay([one, two], resume=file)
    # The first session's last event says something else now.
    Path(two).write_bytes(Path(two).read_bytes().replace(b'"Tid', b'"Tod', 1))
    replayed = Replayed()
    after = run_replay([one, two], resume=file, on_result=replayed)
    assert replayed.sessions == ids(3, "2")
    assert (before.summary.same, after.summary.same, after.summary.sessions) == (6, 5, 6)
    assert after.digest == run_replay([one, two]).digest
    os.unlink(two)
    gone = run_replay([one, two], resume=file)
    assert (gone.summary.sessions, gone.summary.unreadable) == (3, 1)


def test_results_of_another_replay_are_refused(tmp_path: Path) -> None:
    source = store_of(tmp_path / "a.db", ids(3))
    parser = tmp_path / "mine.py"
    shutil.copy(PARSERS, parser)
    file = str(tmp_path / "results.jsonl")
    run_replay([source], f"{parser}:Fine", resume=file)
    with pytest.raises(ReplayError, match=r"layer was frame and is message\. Undo that to go on"):
        run_replay([source], f"{parser}:Fine", layer="message", resume=file)
    with pytest.raises(ReplayError, match="splits was recorded and is recorded,one"):
        run_replay([source], f"{parser}:Fine", splits=["recorded", "one"], resume=file)
    with pytest.raises(ReplayError, match=r"parser was .*mine\.py:Fine and is hermes"):
        run_replay([source], "hermes", resume=file)
    parser.write_text(parser.read_text() + "\n# changed\n")
    with pytest.raises(ReplayError, match=r"Changed since: .*mine\.py"):
        run_replay([source], f"{parser}:Fine", resume=file)


@pytest.mark.parametrize(
    "text", [b"notes\n", b'{"playhead_replay": 99, "fingerprint": {}}\n', b'{"playhead_replay": 1']
)
def test_a_file_of_something_else_is_left_alone(tmp_path: Path, text: bytes) -> None:
    source = store_of(tmp_path / "a.db", ids(3))
    file = tmp_path / "notes.txt"
    file.write_bytes(text)
    with pytest.raises(ReplayError, match="holds no results of a replay: name another file, or remove it"):
        run_replay([source], resume=str(file))
    assert file.read_bytes() == text
    with pytest.raises(ReplayError, match="cannot be written"):
        run_replay([source], resume=str(tmp_path / "no" / "folder.jsonl"))


def test_a_line_in_between_that_is_no_result(tmp_path: Path) -> None:
    source = store_of(tmp_path / "a.db", ids(6))
    file = tmp_path / "results.jsonl"
    run_replay([source], resume=str(file))
    file.write_bytes(file.read_bytes().replace(b'"verdict":"same"', b'"verdict":"fine"', 1))
    held = file.read_bytes()
    with pytest.raises(ReplayError, match="a line is no result"):
        run_replay([source], resume=str(file))
    assert file.read_bytes() == held
    assert sorted(each.name for each in tmp_path.iterdir() if "results" in each.name) == ["results.jsonl"]


def test_the_report_reads_from_the_file_and_takes_it_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    (tmp_path / "tmp").mkdir()
    source = store_of(tmp_path / "a.db", ids(5))
    report: RunReport | None = run_replay([source], MODIFIED)
    assert report is not None
    assert len(report.sessions) == 5
    assert [each.session for each in report.sessions] == [each.session for each in report.sessions[:]]
    assert report.sessions[-1].session == list(report.sessions)[-1].session
    text = to_json(report)
    assert from_json(text) == report
    lines = text.splitlines()
    begin = lines.index(b'"sessions": [')
    # One session a line: it can be read as a stream.
    read = [msgspec.json.decode(line.rstrip(b","), type=SessionResult) for line in lines[begin + 1 : begin + 6]]
    assert read == report.sessions
    assert list((tmp_path / "tmp").iterdir())
    report = None
    assert list((tmp_path / "tmp").iterdir()) == []


def test_two_runs_do_not_write_into_one_file(tmp_path: Path) -> None:
    """Not even at its begin, and the first loses nothing."""
    source = store_of(tmp_path / "a.db", ids(5))
    file = str(tmp_path / "results.jsonl")
    refused: list[str] = []

    def again(result: SessionResult) -> None:
        with pytest.raises(ReplayError, match="another run is writing its results there") as raised:
            run_replay([source], MODIFIED, resume=file)
        refused.append(str(raised.value))

    first = run_replay([source], MODIFIED, resume=file, on_result=again)
    assert len(refused) == 5
    assert told(first) == told(run_replay([source], MODIFIED, resume=file))
    assert sorted(each.name for each in tmp_path.iterdir() if "results" in each.name) == ["results.jsonl"]
