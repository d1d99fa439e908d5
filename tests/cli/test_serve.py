"""``playhead serve`` as it is started: what it says, and what it refuses."""

from __future__ import annotations

import re
import signal
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
        code = said[said.index("from openai") : said.index("Then run")]
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert "Name three rivers." in done.stdout
        # It works in any folder.
        assert f"replay {running.store} --parser hermes\n" in said


def test_a_line_in_the_log_for_every_session(tmp_path: Path) -> None:
    with serve(tmp_path, script=["Two ", "a ", "day."]) as running:
        # A field that has no meaning is named once.
        ids = [running.post(max_tokens=2, max_token=1, **{"x\ny": 1}).json()["id"] for _ in range(2)]
        assert running.stop() == 0
    log = running.log.read_text()
    assert len(re.findall(r"INFO playhead.http: ignored fields of a request: 'max_token', 'x\\ny'\n", log)) == 1
    lines = re.findall(r"POST /v1/chat/completions 200: session (\w{14}), tokens \d+ \+ 2, \d+ ms\n", log)
    assert lines == [name.removeprefix("chatcmpl-")[:14] for name in ids]


def test_what_it_says_at_the_end(tmp_path: Path) -> None:
    with serve(tmp_path, "--pace", "3600", "--shutdown-grace", "0.1") as running, running.stream() as wire:
        wire.until(b'"role"')
        assert running.stop(signal.SIGINT) == 0
        log = running.log.read_text()
        stopping, aborted, stopped = log.splitlines()
    assert stopping == "Stopping: up to 0.1 s for 1 session (Ctrl-C again: now)."
    assert re.search(r"200: session \w{14}, tokens unknown, \d+ ms, aborted by shutdown$", aborted)
    assert stopped.startswith(f"Stopped. 1 new session in {running.store}; see: ")
    assert stopped.endswith(f"playhead sessions list --store {running.store}")


def test_at_the_end_of_nothing(tmp_path: Path) -> None:
    with serve(tmp_path) as running:
        assert running.stop() == 0
        assert running.log.read_text() == f"Stopped. No new sessions in {running.store}\n"
    with serve(tmp_path, "--record", "off") as running:
        assert running.stop() == 0
        assert running.log.read_text() == "Stopped.\n"


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
        (["--sample", "nan"], 2, "nan is not a number"),
        (["--stall-after", "NaN"], 2, "NaN is not a number"),
        (["--script", "nowhere.json"], 2, "nowhere.json"),
        (["--script", "broken.json"], 1, "broken.json is no script"),
        (["--store", "broken.json"], 3, "broken.json"),
        (["--store", "no/such/folder.db"], 3, "does not exist"),
        (["--script", "flat.json"], 1, 'flat.json is no script, {"scripts": [{"steps": ["text", ...]}]}: '),
        (["--engine", "hf", "--model", "./nowhere"], 1, "there is no model at nowhere"),
        (["--engine", "hf", "--model", "smollm"], 1, "no model 'smollm'; the built-in one is smollm2."),
        (["--engine", "hf", "--model", "."], 1, "there is no model in the folder .: missing config.json"),
        (["--engine", "hf", "--script", "flat.json"], 2, "--script needs --engine scripted"),
        (["--engine", "hf", "--pace", "1"], 2, "--pace needs --engine scripted"),
    ],
)
def test_what_it_refuses(playhead: Playhead, tmp_path: Path, options: list[str], code: int, says: str) -> None:
    (tmp_path / "broken.json").write_text('{"scripts": 7}')
    (tmp_path / "flat.json").write_text('{"steps": ["Hi."]}')
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
    assert result.stderr == f"Error: cannot listen on 127.0.0.1, port {port}: Address already in use; try --port 0\n"
    result = playhead("serve", "--engine", "scripted", "--host", "203.0.113.1", "--no-api-key")
    assert result.exit_code == 1
    assert "cannot listen on 203.0.113.1, port 8000" in result.stderr


def test_version_and_help(playhead: Playhead) -> None:
    assert version("playhead") in playhead("--version").stdout
    result = playhead("-h")
    assert result.exit_code == 0
    for command in ("serve", "sessions", "replay", "export", "import"):
        assert f"  {command} " in result.stdout
    assert playhead("sing").exit_code == 2
