"""docs/add-a-format.md: what the page says is done in a copy of the tree, and comes out as the page shows."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.tree import PACKAGES, ROOT

PAGE = (ROOT / "docs/add-a-format.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"(?:^`([^`\n]+)`\n\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROGRAMS = {"playhead": [sys.executable, "-m", "pipeline.cli"], "python": [sys.executable]}
SECONDS = 60


class Block(NamedTuple):
    """A fenced block; ``file`` stands above it."""

    file: str
    kind: str
    text: str


BLOCKS = [Block(*found) for found in BLOCK.findall(PAGE)]


@pytest.fixture(name="copy", scope="module")
def fixture_copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What the page's commands need of the tree."""
    copy = tmp_path_factory.mktemp("tree")
    for name in (*PACKAGES, "tests/support"):
        shutil.copytree(ROOT / name, copy / name)
    (copy / "tests/data/formats").mkdir(parents=True)
    yield copy
    shutil.rmtree(copy)


def added(text: str, diff: str) -> str:
    """``text`` with the lines of ``diff`` that have a plus, each behind the line before it."""
    lines = text.split("\n")
    at = -1
    for line in diff.splitlines():
        sign, rest = line[:1], line[1:]
        if sign == "+":
            at += 1
            lines.insert(at, rest)
        else:
            assert lines.count(rest) == 1, f"{rest!r} is not one line of the file"
            at = lines.index(rest)
    return "\n".join(lines)


def run(copy: Path, command: str) -> str:
    """What a command prints; it must exit with 0."""
    program, *words = command.split()
    env = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1", "NO_COLOR": "1", "COLUMNS": "100"}
    done = subprocess.run(
        [*PROGRAMS[program], *words], cwd=copy, env=env, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def commands(text: str) -> list[tuple[str, str]]:
    """The commands of a block, each with what the page says that it prints."""
    return re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE)


def shows(printed: str, shown: str) -> bool:
    """What was printed is what the page shows; a line with an ellipsis stands for any lines."""
    parts = re.split("^…\n", shown, flags=re.MULTILINE)
    return re.fullmatch("(?:.*\n)*".join(map(re.escape, parts)), printed) is not None


def test_an_ellipsis_stands_for_lines() -> None:
    assert shows("a\nb\nc\n", "a\n…\nc\n")
    assert shows("a\nb\n", "a\n…\n")
    assert not shows("a\nb\n", "a\n")
    assert not shows("a\nb\nc\n", "b\n…\nc\n")


def test_the_page_holds_from_top_to_bottom(copy: Path) -> None:
    ran: list[str] = []
    for block in BLOCKS:
        path = copy / block.file
        if block.kind == "console":
            for command, shown in commands(block.text):
                assert shows(run(copy, command), shown), command
                ran.append(command)
        elif block.kind == "diff":
            path.write_text(added(path.read_text(encoding="utf-8"), block.text), encoding="utf-8")
        else:
            assert block.file, f"no file for {block.text[:40]!r}"
            assert not path.exists(), f"{block.file} is there already"
            path.write_text(block.text, encoding="utf-8")
    assert len(ran) == len(re.findall(r"^\$ ", PAGE, re.MULTILINE))
    assert any("format_checks" in command for command in ran)


def test_files_of_the_page_are_as_the_house_wants_them(copy: Path) -> None:
    """What a reader copies passes the checks."""
    files = [copy / block.file for block in BLOCKS if block.kind == "python"]
    for block in BLOCKS:
        if block.kind == "python":
            (copy / block.file).write_text(block.text, encoding="utf-8")
    shutil.copy(ROOT / "pyproject.toml", copy)
    for words in (["format", "--check"], ["check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *words, *map(str, files)], cwd=copy, capture_output=True, text=True,
            timeout=SECONDS, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
