"""``playhead replay``: a report never takes the place of what the run reads."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from replay import from_json
from tests.cli.conftest import Playhead
from tests.replay.mass.corpora import FINE, PARSERS, file_of, ids, sessions, store_of

pytestmark = pytest.mark.slow


@pytest.fixture(name="here")
def fixture_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with sources, and other names of them."""
    monkeypatch.chdir(tmp_path)
    for folder in ("src", "links"):
        (tmp_path / folder).mkdir()
    file_of(tmp_path / "src/real.jsonl", sessions(ids(3)))
    os.link("src/real.jsonl", "hard.jsonl")
    os.symlink("../src/real.jsonl", "links/a.jsonl")
    store_of(tmp_path / "src/a.db", ids(2, "1"))
    os.symlink("../src/a.db", "links/a.db")
    for end in ("-wal", "-shm"):
        (tmp_path / f"src/a.db{end}").touch()
    os.link("src/a.db-wal", "log")
    (tmp_path / "mine.py").write_text(Path(PARSERS).read_text())
    return tmp_path


@pytest.mark.parametrize(
    ("source", "report"),
    [
        ("src/real.jsonl", "hard.jsonl"),
        ("links", "src/real.jsonl"),
        ("links/a.jsonl", "hard.jsonl"),
        ("src", "hard.jsonl"),
        ("links", "src/a.db"),
        ("src/a.db", "src/a.db-wal"),
        ("links", "src/a.db-shm"),
        ("links/a.db", "src/a.db-journal"),
        ("src", "log"),
    ],
)
@pytest.mark.parametrize("option", ["--json", "--html", "--junit", "--resume"])
def test_a_source_by_another_name(here: Path, playhead: Playhead, source: str, report: str, option: str) -> None:
    before = _files(here)
    result = playhead("replay", source, option, report)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{option} {report} would overwrite what is read" in " ".join(result.stderr.split())
    assert _files(here) == before


@pytest.mark.parametrize(
    ("arguments", "report"),
    [
        (["--baseline", "then.json"], "then.json"),
        (["--baseline", "then.json"], "./same.json"),
        (["--parser", "mine.py:Fine"], "mine.py"),
        (["--baseline", "mine.py:Fine"], "mine.py"),
        (["--compare", "mine.py:fn"], "mine.py"),
        (["--ignore", "mine.py:fn"], "mine.py"),
        (["--parser", "vllm:mine.py:mine"], "mine.py"),
        (["--tokenizer", "tokenizer.json"], "tokenizer.json"),
        (["--peer-python", "A=mine.py"], "mine.py"),
    ],
)
def test_what_else_is_read(here: Path, playhead: Playhead, arguments: list[str], report: str) -> None:
    assert playhead("replay", "src", "--json", "then.json").exit_code == 0
    (here / "same.json").symlink_to("then.json")
    (here / "tokenizer.json").write_text("{}")
    before = _files(here)
    result = playhead("replay", "src", *arguments, "--json", report)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"--json {report} would overwrite what is read" in " ".join(result.stderr.split())
    assert _files(here) == before


def test_two_reports_in_one_file(here: Path, playhead: Playhead) -> None:
    (here / "one").touch()
    os.link("one", "two")
    result = playhead("replay", "src", "--json", "one", "--html", "two")
    assert result.exit_code == 2
    assert "--json and --html both name two" in " ".join(result.stderr.split())


def test_reports_beside_the_sources(here: Path, playhead: Playhead) -> None:
    """An earlier report is replaced, also in a folder of the sources, and results are kept there."""
    for _ in range(2):
        result = playhead(
            "replay", "src", "--json", "src/out.json", "--html", "src/out.html", "--resume", "src/r.jsonl"
        )
        assert (result.exit_code, result.stderr) == (0, "Left out, as they hold results of a replay: src/r.jsonl\n")
        report = from_json((here / "src/out.json").read_bytes())
        assert (report.summary.same, report.left_out) == (5, ("src/r.jsonl",))


def test_a_baseline_without_any_of_the_sessions(here: Path, playhead: Playhead) -> None:
    assert playhead("replay", "src/a.db", "--json", "z.json").exit_code == 0
    result = playhead("replay", "src/real.jsonl", "--baseline", "z.json", "--parser", FINE)
    assert result.exit_code == 2
    assert result.stderr.endswith("no session of src/real.jsonl is in z.json: nothing was compared\n")
    assert playhead("replay", "src", "--baseline", "z.json").exit_code == 0


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
