"""``playhead replay``: verdicts, exit codes, the report."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from replay import from_json
from tests.cli.conftest import SAID, Playhead
from tests.support.tree import ROOT

WIDTH = 80
"""What COLUMNS says in these tests."""
MODIFIED = f"{ROOT / 'examples' / 'modified_parser.py'}:Parser"


def test_nothing_changed(recorded: Path, playhead: Playhead) -> None:
    result = playhead("replay", recorded)
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= WIDTH
    assert f"{len(SAID)} sessions" in result.stdout


def test_a_changed_parser(recorded: Path, ids: dict[str, str], playhead: Playhead) -> None:
    result = playhead("replay", recorded, "--parser", MODIFIED)
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= WIDTH
    # For each: the session, where it first differs, what caused it, both sides.
    assert f"changed  {ids['text']}" in result.stdout
    assert "worst: boundary; first: semantic " in result.stdout
    assert ", content → reasoning" in result.stdout
    assert "cause: engine" in result.stdout
    assert "recorded" in result.stdout
    assert "replayed" in result.stdout


def test_json_on_standard_output_is_all_there_is(recorded: Path, playhead: Playhead) -> None:
    result = playhead("replay", recorded, "--parser", MODIFIED, "--json", "-")
    assert result.exit_code == 1
    report = from_json(result.stdout_bytes)
    assert report.summary.sessions == len(SAID)
    assert report.summary.changed >= 2
    assert {one.verdict for one in report.sessions} <= {"same", "changed", "moved", "rechunked"}


def test_json_in_a_file(recorded: Path, playhead: Playhead, tmp_path: Path) -> None:
    result = playhead("replay", recorded, "--json", "report.json")
    assert result.exit_code == 0
    assert from_json((tmp_path / "report.json").read_bytes()).summary.same == len(SAID)
    assert f"{len(SAID)} sessions" in result.stdout
    assert playhead("replay", recorded, "--json", "no/such/folder.json").exit_code == 2


def test_one_session(recorded: Path, ids: dict[str, str], playhead: Playhead) -> None:
    result = playhead("replay", recorded, "--session", ids["calls"][:20], "--json", "-")
    assert [one.session for one in from_json(result.stdout_bytes).sessions] == [ids["calls"]]


def test_fail_on_and_fail_fast(recorded: Path, playhead: Playhead) -> None:
    assert playhead("replay", recorded, "--parser", MODIFIED, "--fail-on", "failed").exit_code == 0
    result = playhead("replay", recorded, "--parser", MODIFIED, "--fail-fast", "--json", "-")
    assert from_json(result.stdout_bytes).sessions[-1].verdict == "changed"
    assert len(from_json(result.stdout_bytes).sessions) < len(SAID)


def test_splits_and_layers(recorded: Path, playhead: Playhead) -> None:
    result = playhead("replay", recorded, "--splits", "recorded,one,token,rand:7:5", "--layer", "message")
    assert result.exit_code == 0
    assert "splits recorded,one,token,rand:7:5" in " ".join(result.stdout.split())


def test_traces_and_folders_are_sources_too(recorded: Path, playhead: Playhead, tmp_path: Path) -> None:
    assert playhead("export", "--all", "--store", recorded, "--to", tmp_path / "traces").exit_code == 0
    result = playhead("replay", tmp_path / "traces", "--json", "-")
    assert (result.exit_code, from_json(result.stdout_bytes).summary.same) == (0, len(SAID))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--parser", "hermez"], "Error: no parser 'hermez'; did you mean hermes?"),
        (["--parser", "nowhere.py:Parser"], "there is no file nowhere.py"),
        (["--parser", f"{MODIFIED[:-6]}Persar"], "it has: "),
        (["--splits", "sometimes"], "sometimes"),
        (["--splits", "char"], "nothing was compared"),
        (["--layer", "bytes"], "semantic"),
        (["--fail-on", "same"], "changed"),
    ],
)
def test_usage(recorded: Path, playhead: Playhead, arguments: list[str], says: str) -> None:
    result = playhead("replay", recorded, *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in " ".join(result.stderr.split())
    assert playhead("replay").exit_code == 2


def test_what_cannot_be_read(recorded: Path, playhead: Playhead, tmp_path: Path) -> None:
    (tmp_path / "notes.db").write_text("no database, but notes; " * 100)
    for source in ("missing.db", "notes.db", "missing.jsonl", "."):
        result = playhead("replay", source)
        assert result.exit_code == 3, source
        assert "unreadable" in result.stdout
        assert "digest" not in result.stdout
    assert not (tmp_path / "missing.db").exists()
    # What can be read is replayed all the same.
    result = playhead("replay", "missing.db", recorded, "--json", "-")
    assert (result.exit_code, from_json(result.stdout_bytes).summary.same) == (3, len(SAID))


def test_as_a_process_of_its_own(recorded: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pipeline.cli", "replay", str(recorded), "--parser", MODIFIED]
    plain = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=plain)
    assert (done.returncode, done.stderr) == (1, "")
    assert 80 < max(map(len, done.stdout.splitlines())) <= 120
    loads = "import sys, pipeline.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", loads], cwd=ROOT, check=False).returncode == 0
