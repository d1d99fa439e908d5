"""``playhead replay``: verdicts, exit codes, the report."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from replay import from_json
from store import trace
from tests.cli.conftest import SAID, Playhead
from tests.support.captures import captures
from tests.support.tree import ROOT
from tests.support.upstream_traces import relayed

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
    assert "worst: boundary; first: semantic event " in result.stdout
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


def test_an_upstream_that_lost_something(playhead: Playhead, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    for name in ("vllm_dsv31-tool_multitoken_b", "vllm_qwen3_hermes-tool_multitoken"):
        trace.write(relayed(captures()[name]), tmp_path / f"{name}.jsonl")
    result = playhead("replay", tmp_path, "--json", tmp_path / "out.json")
    assert result.exit_code == 1
    lines = [line.rstrip() for line in result.stdout.splitlines()]
    at = next(number for number, line in enumerate(lines) if line.startswith("changed  vllm-dsv31-tool-multitoken-b"))
    parser = "parser deepseek_v3+deepseek_v31"
    assert lines[at + 1 : at + 3] == [
        "  message: changed  upstream: same  relay: same",
        "  worst: call lost; first: text at upstream's frame 2",
    ]
    assert lines[at + 3].startswith("  cause: engine step 1: tokens choice=0 ids=[5718, ")
    text = " ".join(" ".join(lines).split())
    assert f"choice 0, call lost: upstream's frame 11: no call; {parser}: call 1 of 'get_weather'" in text
    assert f"choice 0, text: upstream's frame 2: no content; {parser}: 'Let me check.'" in text
    # The other session's white space is told in one line.
    assert "restyled: the message differs in white space only (1 session)" in lines
    assert "| restyled  |        1 |" in lines
    first = from_json((tmp_path / "out.json").read_bytes()).sessions[0]
    assert [item.frame for item in first.differences] == [11, 10, 2]


def test_a_track(playhead: Playhead, recorded: Path, ids: dict[str, str]) -> None:
    result = playhead("replay", recorded, "--track", "shadow:plain", "--session", ids["text"])
    # A track that no session has would otherwise pass for unchanged.
    assert result.exit_code == 2
    says = " ".join(result.stderr.split())
    assert "nothing was compared with track shadow:plain: no track shadow:plain was recorded" in says
    # What the client got is the default.
    assert playhead("replay", recorded, "--track", "served").exit_code == 0


def test_what_was_not_compared_is_said(playhead: Playhead, tmp_path: Path) -> None:
    trace.write(relayed(captures()["vllm_plain-plain"], depth="verbatim"), tmp_path / "one.jsonl")
    result = playhead("replay", tmp_path)
    assert result.exit_code == 0
    text = " ".join(result.stdout.split())
    assert "not compared: recorded verbatim: what the model wrote is not known (1 session)" in text
    trace.write(relayed(captures()["vllm_plain-plain"], pieces=False), tmp_path / "one.jsonl")
    text = " ".join(playhead("replay", tmp_path).stdout.split())
    assert "the bytes of its tokens are not known: playhead import --tokenizer joins them (1 session)" in text


def test_reports_in_files_and_a_baseline(recorded: Path, playhead: Playhead, tmp_path: Path) -> None:
    options = ("--parser", MODIFIED, "--layer", "message", "--jobs", "2")
    result = playhead("replay", recorded, *options, "--json", "a.json", "--html", "a.html", "--junit", "a.xml")
    assert result.exit_code == 1
    before = from_json((tmp_path / "a.json").read_bytes())
    assert (tmp_path / "a.html").read_text().lower().startswith("<!doctype html>")
    assert (tmp_path / "a.xml").read_text().startswith("<?xml")
    # Against the report of the same run nothing has changed; against another parser it has.
    result = playhead("replay", recorded, *options, "--baseline", "a.json", "--json", "-")
    after = from_json(result.stdout_bytes)
    assert (result.exit_code, after.summary.same, after.baseline) == (0, before.summary.sessions, "a.json")
    result = playhead("replay", recorded, *options, "--baseline", "hermes", "--json", "-")
    assert (result.exit_code, from_json(result.stdout_bytes).baseline) == (1, "hermes")
    for option in ("--html", "--junit"):
        failed = playhead("replay", recorded, option, "no/such/folder")
        assert failed.exit_code == 2
        assert "cannot write no/such/folder" in failed.stderr


def test_a_comparer_and_rules_of_ones_own(recorded: Path, playhead: Playhead, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def nothing(before, after):\n    return []\n\ndef all(item):\n    return True\n")
    for options in (("--compare", "mine.py:nothing"), ("--ignore", "mine.py:all")):
        result = playhead("replay", recorded, "--parser", MODIFIED, *options, "--json", "-")
        assert (result.exit_code, from_json(result.stdout_bytes).summary.same) == (0, len(SAID)), options
