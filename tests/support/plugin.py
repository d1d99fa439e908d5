"""pytest runs within tests, of the plugin that replays sessions. A test module that uses the fixtures imports them, and
names ``pytester`` in ``pytest_plugins``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.replay.mass.corpora import file_of, ids, sessions
from tests.support.tree import ROOT

ONE, OTHER = ids(2)
MODIFIED = f"{ROOT / 'examples/modified_parser.py'}:Parser"
LATE = """
from stages import catalog
from stages.events import Content
from tests.support.replay import Mutant, late, only
Parser = Mutant(catalog.parser("hermes"), late(only(Content)))
"""
"""A parser that sends content a step later."""
PASSES = "def test_it():\n    pass\n"
OPTIONS = ("-p", "pytest_playhead", "-W", "error", "-rA")
Run = Callable[..., pytest.RunResult]


@pytest.fixture(name="run")
def fixture_run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """pytest, without other projects' plugins: they take seconds to load."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("COLUMNS", "200")
    return partial(pytester.runpytest_inprocess, *OPTIONS)


@pytest.fixture(name="spawn")
def fixture_spawn(pytester: pytest.Pytester, run: Run) -> Run:
    """The same in a process of its own."""
    return partial(pytester.runpytest_subprocess, *OPTIONS)


def settings(pytester: pytest.Pytester, **values: str) -> None:
    """An ini file with these."""
    pytester.makeini("\n".join(["[pytest]", *(f"playhead_{name} = {value}" for name, value in values.items())]))


def said(result: pytest.RunResult) -> str:
    """All that it printed."""
    return f"{result.stdout.str()}\n{result.stderr.str()}"


def collected(result: pytest.RunResult) -> list[str]:
    """The node ids that ``--collect-only -q`` prints."""
    return [line for line in result.outlines if "::" in line]


def two(path: Path) -> str:
    """A trace file with two sessions."""
    path.parent.mkdir(exist_ok=True)
    return file_of(path, sessions([ONE, OTHER]))
