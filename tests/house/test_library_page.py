"""docs/library.md: each of its programs runs as it stands, over a store and a folder of traces."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from replay import traces
from store import trace
from tests.support.server import serve
from tests.support.tree import ROOT

PAGE = (ROOT / "docs/library.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
SAYS = ["same", "changed", "{'same'}", "0 of 2\n"]
"""What each prints, in its first line."""


@pytest.fixture(name="folder", scope="module")
def fixture_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the page names: a store, traces and a parser."""
    folder = tmp_path_factory.mktemp("library")
    with serve(folder, "--parser", "plain", script=["Two ", "a day."]) as running:
        with running.client() as client:
            running.create(client)
        stored = running.store
    assert stored == folder / "playhead.db"
    (folder / "traces").mkdir()
    for found in traces(stored):
        trace.write(found, folder / "traces/one.jsonl")
    shutil.copy(ROOT / "examples/modified_parser.py", folder / "my_parser.py")
    return folder


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_program_of_the_page(folder: Path, number: int) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "error", "-c", BLOCKS[number]]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(SAYS[number])


def test_these_are_all() -> None:
    assert len(BLOCKS) == len(SAYS)
