"""Every example runs, as its first lines say, and does what they say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from replay import traces
from store import trace
from tests.support.answers import CASES
from tests.support.server import replayed, serve
from tests.support.tree import ROOT

EXAMPLES = sorted(path.name for path in (ROOT / "examples").glob("*.py"))


def run(name: str, *arguments: str | Path) -> str:
    """What an example prints."""
    command = [sys.executable, str(ROOT / "examples" / name), *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store made by the example."""
    path = tmp_path_factory.mktemp("examples") / "sessions.db"
    printed = run("record.py", path, "When is high tide?", "And low tide?")
    assert printed.count("data: [DONE]\n\n") == 2
    return path


def test_these_are_all() -> None:
    assert EXAMPLES == ["modified_parser.py", "openai_client.py", "record.py", "replay_sessions.py", "small_parser.py"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_docstring_says_how_to_run_it(name: str) -> None:
    text = (ROOT / "examples" / name).read_text()
    assert re.search(rf"^    (python|playhead) .*examples/{name}", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["record.py"], "usage: python examples/record.py STORE QUESTION...\n"),
        (["record.py", "some.db"], "usage: python examples/record.py STORE QUESTION...\n"),
        (["replay_sessions.py"], "usage: python examples/replay_sessions.py SOURCE [PARSER]\n"),
        (["replay_sessions.py", "no.db"], "no.db"),
        (["replay_sessions.py", "no_folder/"], "no_folder"),
        (["openai_client.py"], "usage: python examples/openai_client.py ADDRESS QUESTION\n"),
        (["openai_client.py", "http://127.0.0.1:9", "?"], "no server answers at http://127.0.0.1:9; start one: "),
    ],
)
def test_what_cannot_work_is_said_in_a_line(arguments: list[str], says: str) -> None:
    name, *others = arguments
    command = [sys.executable, str(ROOT / "examples" / name), *others]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_record(recorded: Path) -> None:
    results = replayed(recorded)
    assert [(result.state, result.verdict) for result in results] == [("closed", "same")] * 2


def test_replay(recorded: Path) -> None:
    lines = run("replay_sessions.py", recorded).splitlines()
    assert [line.split()[0] for line in lines] == ["same", "same"]


def test_replay_of_trace_files(recorded: Path, tmp_path: Path) -> None:
    expected = run("replay_sessions.py", recorded)
    for at, found in enumerate(traces(recorded)):
        (tmp_path / f"{at}.jsonl").write_bytes(trace.dumps(found))
    assert run("replay_sessions.py", tmp_path).splitlines() == expected.splitlines()
    assert run("replay_sessions.py", tmp_path / "0.jsonl").splitlines() == expected.splitlines()[:1]


def test_replay_with_the_small_parser(recorded: Path) -> None:
    lines = run("replay_sessions.py", recorded, "examples/small_parser.py:Parser").splitlines()
    assert [line.split()[0] for line in lines] == ["same", "same"]


def test_replay_with_the_modified_parser(recorded: Path) -> None:
    lines = run("replay_sessions.py", recorded, "examples/modified_parser.py:Parser").splitlines()
    assert [line.split()[0] for line in lines] == ["changed", "changed"]
    # What was content is taken for reasoning.
    assert all(line.split()[2] == "boundary" for line in lines)


def test_the_openai_client(tmp_path: Path) -> None:
    script = ["<think>", "\nIt wants ", "a tide.\n", "</think>", "\n\n", CASES["parallel calls"].written]
    # The script calls a tool that the example does not offer.
    with serve(tmp_path, "--parser", "hermes", script=script, allow={"INV-036"}) as running:
        printed = run("openai_client.py", running.address, "When is high tide in Brest?")
    assert printed.splitlines() == [
        "",
        "[reasoning] It wants a tide.",
        "[content] Looking.",
        '[call 0] tide {"port": "Brest", "days": [1, 2]}',
        "[call 1] moon {}",
        "[tool_calls]",
    ]
