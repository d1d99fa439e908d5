"""``playhead check``: case files against what they expect."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Playhead
from tests.support.terminal import in_terminal, without_escapes
from tests.support.tree import ROOT

EXAMPLE = ROOT / "examples" / "cases.jsonl"
SAID = 'Hm.\n<tool_call>\n{"name": "tide", "arguments": {"port": "Brest", "days": [1, {"n": 3}]}}\n</tool_call>'
CALL = {"name": "tide", "arguments": {"port": "Brest", "days": [1, {"n": 3}]}}
GOOD: dict[str, Any] = {
    "id": "good", "parser": "hermes", "request": {"tools": ["tide"]}, "raw_output": SAID,
    "expected": {
        "reasoning": None, "content": "Hm.", "tool_calls": [CALL], "finish_reason": "tool_calls", "faults": [],
    },
}  # fmt: skip


def bad(name: str, **expected: Any) -> dict[str, Any]:
    """A case that does not hold."""
    return {**GOOD, "id": name, "expected": {**GOOD["expected"], **expected}}


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    """A file of which two of three cases hold."""
    path = tmp_path / "cases.jsonl"
    wrong = bad(
        "wrong", content="Hmm.", tool_calls=[{"name": "tide", "arguments": {"port": "Brest", "days": [1, {"n": 3.0}]}}]
    )
    path.write_text("".join(json.dumps(case) + "\n" for case in (GOOD, wrong, {**GOOD, "id": "also good"})))
    return path


def test_all_hold(playhead: Playhead) -> None:
    result = playhead("check", EXAMPLE)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == "4 cases, 25 runs: all hold\n"


def test_one_does_not_hold(cases: Path, playhead: Playhead) -> None:
    result = playhead("check", cases.name)
    assert (result.exit_code, result.stderr) == (1, "")
    assert result.stdout.splitlines() == [
        "failed  wrong  cases.jsonl:2",
        "  parser parse.hermes@3; calls incremental; splits one, token, marker, char, rand:1:3, rand:2:9",
        "  content at character 2",
        "    expected 'Hmm.'",
        "    came     'Hm.'",
        "  tool_calls[0].arguments.days[1].n",
        "    expected 3.0",
        "    came     3",
        "",
        "3 cases, 18 runs: 1 failed",
    ]


def test_the_report_as_json(cases: Path, playhead: Playhead, tmp_path: Path) -> None:
    result = playhead("check", cases.name, "--splits", "one,token", "--calls", "both", "--json", "-")
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert (report["cases"], report["failing"], report["runs"], report["unreadable"]) == (3, 1, 12, [])
    assert [(one["where"], one["calls"], one["splits"]) for one in report["failed"]] == [
        ("cases.jsonl:2", "incremental", ["one", "token"]), ("cases.jsonl:2", "whole", ["one", "token"]),
    ]  # fmt: skip
    assert report["failed"][0]["differences"][0] == {
        "field": "content", "place": "at character 2", "expected": "'Hmm.'", "came": "'Hm.'",
    }  # fmt: skip
    result = playhead("check", cases.name, "--json", "report.json")
    assert result.exit_code == 1
    assert json.loads((tmp_path / "report.json").read_text())["failing"] == 1
    assert "1 failed" in result.stdout
    assert playhead("check", cases.name, "--json", "no/such/report.json").exit_code == 2


def test_another_parser_and_white_space(cases: Path, playhead: Playhead, tmp_path: Path) -> None:
    assert playhead("check", cases.name, "--parser", "plain").exit_code == 1
    (tmp_path / "space.jsonl").write_text(json.dumps(bad("space", content=" Hm.\n")) + "\n")
    assert playhead("check", "space.jsonl").exit_code == 1
    assert playhead("check", "space.jsonl", "--trim").exit_code == 0


def test_many_failures_are_counted(playhead: Playhead, tmp_path: Path) -> None:
    lines = (json.dumps(bad(f"case {number}", faults=["bad_arguments"])) + "\n" for number in range(25))
    (tmp_path / "many.jsonl").write_text("".join(lines))
    result = playhead("check", "many.jsonl", "--splits", "one")
    assert result.stdout.count("failed  case") == 20
    assert "and 5 more: --limit 25 or --json F shows them" in result.stdout
    assert playhead("check", "many.jsonl", "--splits", "one", "--limit", "25").stdout.count("failed  case") == 25


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{oops}", "not JSON: Expecting property name enclosed in double quotes (column 2)"),
        ("[1]", "expected a JSON object, got list"),
        ("[" * 20_000, "not JSON"),
        (json.dumps({**GOOD, "id": None}), "Expected `str`, got `null` - at `$.id`"),
        (json.dumps({"parser": "hermes"}), "missing required field `id`; every case has an id of its own"),
        (json.dumps({**GOOD, "raw_output": None}), 'the case has no output: give it "raw_output"'),
        (json.dumps({**GOOD, "parser": None}), 'the case names no parser: give it "parser", or "model"'),
        (json.dumps({**GOOD, "expected": None}), 'the case expects nothing: give it "expected"'),
        (json.dumps({**GOOD, "parser": "hermez"}), "no parser 'hermez'; did you mean hermes?"),
        (json.dumps(bad("a", content=5)), "Expected `str | null`, got `int` - at `$.expected.content`"),
        (
            json.dumps({**GOOD, "request": {"tools": [{"function": {}}]}}),
            "tools[0]: Object missing required field `name`",
        ),
        (json.dumps({**GOOD, "engine": {"finish": "tired"}}), "engine.finish 'tired': use one of "),
        (json.dumps({**GOOD, "token_bytes": ["x"]}), "write each token's bytes as hexadecimal digits"),
        (json.dumps({**GOOD, "tokens": [[1, "a"]], "token_bytes": ["61", "62"]}), "1 tokens, but token_bytes of 2"),
    ],
)
def test_a_line_that_cannot_be_read(playhead: Playhead, tmp_path: Path, line: str, says: str) -> None:
    (tmp_path / "cases.jsonl").write_text(f"{json.dumps(GOOD)}\n{line}\n{json.dumps(GOOD)}\n")
    result = playhead("check", "cases.jsonl", "--splits", "one")
    assert (result.exit_code, result.stderr) == (3, "")
    *_, told, end = result.stdout.splitlines()
    assert told.startswith("unreadable: cases.jsonl:2: ")
    assert says in told
    assert end.endswith(" runs: all hold; 1 unreadable")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("missing.jsonl", "missing.jsonl: cannot be read: No such file or directory"),
        (".", ".: cannot be read: Is a directory"),
        ("empty.jsonl", "empty.jsonl: there is no case in it"),
        ("binary.jsonl", "binary.jsonl:1: byte 2 is not UTF-8: is this a case file?"),
    ],
)
def test_a_file_that_cannot_be_read(playhead: Playhead, tmp_path: Path, name: str, says: str) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "binary.jsonl").write_bytes(b"\x7fE\xff\n" * 1000)
    result = playhead("check", name)
    assert result.exit_code == 3
    assert result.stdout.splitlines() == [f"unreadable: {says}", "0 cases, 0 runs; 1 unreadable"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "Missing argument 'CASES...'"),
        ([EXAMPLE, "--splits", "words"], "there is no split 'words'"),
        ([EXAMPLE, "--parser", "hermez"], "did you mean hermes?"),
        ([EXAMPLE, "--calls", "some"], "incremental"),
    ],
)
def test_usage(playhead: Playhead, arguments: list[object], says: str) -> None:
    result = playhead("check", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr


def test_a_split_that_no_case_allows(playhead: Playhead, tmp_path: Path) -> None:
    case = {"id": "ids", "parser": "plain", "tokens": [[1, "a"]], "expected": {"content": "a"}}
    (tmp_path / "ids.jsonl").write_text(json.dumps(case) + "\n")
    result = playhead("check", "ids.jsonl", "--splits", "char")
    assert result.exit_code == 2
    assert "note: ids.jsonl:1: ids: not compared: split 'char' cuts tokens" in result.stdout
    assert "no case allows the splits char: nothing was compared" in result.stderr
    assert playhead("check", "ids.jsonl", EXAMPLE, "--splits", "char").exit_code == 0


def test_standard_input(cases: Path) -> None:
    command = [sys.executable, "-m", "pipeline.cli", "check", "-"]
    done = subprocess.run(command, cwd=ROOT, input=cases.read_bytes(), capture_output=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (1, b"")
    assert b"failed  wrong  <stdin>:2" in done.stdout


def test_on_a_narrow_terminal(cases: Path) -> None:
    code, shown = in_terminal("check", cases, columns=44)
    assert code == 1
    assert "\x1b[1;31mfailed\x1b[0m" in shown
    lines = without_escapes(shown).splitlines()
    assert max(map(len, lines)) <= 44
    assert "    expected 'Hmm.'" in [line.rstrip() for line in lines]
    _, shown = in_terminal("check", cases, columns=44, NO_COLOR="1")
    assert "\x1b[31m" not in shown and "\x1b[1;31m" not in shown
