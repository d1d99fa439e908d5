"""``playhead serve`` as it is started: what it says, and what it refuses."""

from __future__ import annotations

import socket
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.cli.conftest import Playhead
from tests.support.server import serve


def test_it_says_what_to_try_next(tmp_path: Path) -> None:
    with serve(tmp_path, "--served-name", "demo-1", "--parser", "plain") as running:
        said = running.said
        assert running.model == "demo-1"
        assert f"(parser plain, recording full to {running.store})" in said
        assert f'OpenAI(base_url="{running.address}/v1"' in said
        # The curl line works as it is printed.
        start = said.index("curl ")
        curl = said[start : said.index("\n\n", start)]
        done = subprocess.run(["bash", "-euc", curl], capture_output=True, text=True, check=True)
        assert done.stdout.endswith("data: [DONE]\n\n")
        snippet = said[said.index("  from openai") : said.index("Then run")]
        code = "\n".join(line[2:] for line in snippet.splitlines())
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert "Name three rivers." in done.stdout
        assert f"replay {running.store} --parser examples/modified_parser.py:Parser" in said


def test_the_format_is_detected(tmp_path: Path) -> None:
    with serve(tmp_path) as running:
        assert "parser hermes" in running.said


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (["--parser", "hermez"], 2, "hermes"),
        (["--parser", "nowhere.py:Parser"], 2, "there is no file nowhere.py"),
        (["--engine", "magic"], 2, "scripted"),
        (["--port", "70000"], 2, "65535"),
        (["--pace", "-1"], 2, "pace"),
        (["--sample", "2"], 2, "sample"),
        (["--script", "nowhere.json"], 2, "nowhere.json"),
        (["--script", "broken.json"], 1, "broken.json is no script"),
        (["--store", "broken.json"], 3, "broken.json"),
        (["--store", "no/such/folder.db"], 3, "does not exist"),
        (["--engine", "hf", "--model", "./nowhere"], 1, "there is no model at nowhere"),
    ],
)
def test_what_it_refuses(playhead: Playhead, tmp_path: Path, options: list[str], code: int, says: str) -> None:
    (tmp_path / "broken.json").write_text('{"scripts": 7}')
    result = playhead("serve", "--engine", "scripted", "--port", "0", *options)
    assert (result.exit_code, result.stdout) == (code, "")
    assert says in " ".join(result.stderr.split())


def test_an_address_that_cannot_be_had(playhead: Playhead) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = playhead("serve", "--engine", "hf", "--port", port)
    # Nothing was loaded before it was known.
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"Error: cannot listen on 127.0.0.1, port {port}: Address already in use\n"
    result = playhead("serve", "--engine", "scripted", "--host", "203.0.113.1")
    assert result.exit_code == 1
    assert "cannot listen on 203.0.113.1, port 8000" in result.stderr


def test_version_and_help(playhead: Playhead) -> None:
    assert version("playhead") in playhead("--version").stdout
    result = playhead("-h")
    assert result.exit_code == 0
    for command in ("serve", "sessions", "replay", "export", "import"):
        assert f"  {command} " in result.stdout
    assert playhead("sing").exit_code == 2
