"""Every command and every snippet of the README works, as written, in the order in which a reader meets them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.house.readme_commands import ELSEWHERE, EXITS, PRINTS, SERVER
from tests.support.make import environment
from tests.support.server import reserved
from tests.support.tree import ROOT

ADDRESS = "http://127.0.0.1:8000"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """One thing to run: a command line (``sh``) with its continuation lines, or a whole snippet (``python``)."""

    language: str
    text: str


def blocks() -> list[Block]:
    """All of the README, in order."""
    found: list[Block] = []
    for language, body in FENCE.findall((ROOT / "README.md").read_text()):
        if language == "sh":
            found += [Block("sh", command) for command in _commands(body)]
        elif language == "python":
            found.append(Block("python", body))
    return found


def _commands(body: str) -> list[str]:
    """The commands of a block. A line that ends in a backslash, or inside a quoted text, goes on in the next."""
    found: list[str] = []
    for line in body.splitlines():
        if found and (found[-1].endswith("\\") or found[-1].count("'") % 2):
            found[-1] += "\n" + line
        elif line.strip():
            found.append(line)
    return found


class Served(NamedTuple):
    """A running server, and the folder in which it records."""

    address: str
    folder: Path


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with reserved() as found:
        yield found


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[Served]:
    """SERVER on a port of its own. The environment that runs the tests stands in for ``.venv``."""
    folder = tmp_path_factory.mktemp("readme")
    (folder / ".venv").symlink_to(sys.prefix, target_is_directory=True)
    (folder / "examples").symlink_to(ROOT / "examples", target_is_directory=True)
    address = f"http://127.0.0.1:{port}"
    # The tests run, so what they need is installed: make takes that for granted (-o).
    command = [
        *SERVER.split(), "--no-print-directory", f"VENV={sys.prefix}", "-o", f"{sys.prefix}/.playhead-installed",
        f"ARGS=--port {port} --store {folder / 'playhead.db'}",
    ]  # fmt: skip
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as server:
        try:
            _wait(server, address)
            yield Served(address, folder)
        finally:
            if server.poll() is None:
                os.killpg(server.pid, signal.SIGINT)
            server.communicate(timeout=30)


def _wait(server: subprocess.Popen[str], address: str) -> None:
    """Until it prints its address: loading torch and a model takes a while."""
    assert server.stdout is not None
    said: list[str] = []
    for line in server.stdout:
        said.append(line)
        if address in line:
            return
    pytest.fail(f"the server did not start:\n{''.join(said)}")


def test_every_command_has_its_proof() -> None:
    commands = [block.text for block in blocks() if block.language == "sh"]
    assert commands[0] == SERVER
    assert {*ELSEWHERE, *EXITS} <= set(commands), "readme_commands.py lists what the README does not have"
    for start in PRINTS:
        assert any(command.startswith(start) for command in commands), start
    for test in ELSEWHERE.values():
        path, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / path).read_text(), test


@pytest.mark.model
@pytest.mark.slow
def test_the_readme_from_top_to_bottom(served: Served) -> None:
    for block in blocks():
        if block.text == SERVER or block.text in ELSEWHERE:
            continue
        text = block.text.replace(ADDRESS, served.address)
        command = ["bash", "-euo", "pipefail", "-c", text] if block.language == "sh" else [sys.executable, "-c", text]
        done = subprocess.run(command, cwd=served.folder, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == EXITS.get(block.text, 0), f"{block.text}\n{done.stdout}\n{done.stderr}"
        assert done.stdout.strip(), f"{block.text} printed nothing"
        for start, printed in PRINTS.items():
            assert printed in done.stdout or not block.text.startswith(start), f"{block.text}\n{done.stdout}"
