"""The scripted servers as processes: vLLM's and SGLang's own code, over a socket."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2

HERE = Path(__file__).parent
STARTS = 240.0
"""Seconds that a server may take to import all that it imports, on a busy machine."""
MODEL = "peer"


class Kind(NamedTuple):
    """Which server. ``way``: how our parsers ask it; ``relays_ids``: its chat tells the ids of every step."""

    name: str
    program: str
    arguments: tuple[str, ...]
    way: str
    relays_ids: bool


KINDS = (
    Kind(
        "vLLM", "vllm_server.py",
        ("--model", "{folder}", "--enable-auto-tool-choice", "--reasoning-parser", "qwen3",
         "--tool-call-parser", "hermes"),
        "/v1/chat/completions", True,
    ),
    Kind(
        "SGLang", "sglang_server.py",
        ("--model-path", "{folder}", "--device", "cpu", "--skip-server-warmup", "--reasoning-parser", "qwen3",
         "--tool-call-parser", "qwen"),
        "/generate", False,
    ),
)  # fmt: skip


class Peer:
    """A server that answers."""

    def __init__(self, kind: Kind, address: str, folder: Path) -> None:
        self.kind = kind
        self.address = address
        self._script = folder / "script.json"
        self._log = folder / "engine.jsonl"

    def play(self, script: dict[str, Any]) -> None:
        """From now on every request plays this."""
        fresh = self._script.with_suffix(".new")
        fresh.write_text(json.dumps(script))
        fresh.replace(self._script)
        self._log.write_text("")

    def told(self, key: str) -> list[Any]:
        """What its engine logged since (see ``script``)."""
        entries: list[dict[str, Any]] = [json.loads(line) for line in self._log.read_text().splitlines()]
        return [entry[key] for entry in entries if key in entry]


@contextmanager
def peer(kind: Kind, python: Path, model: Path, folder: Path) -> Generator[Peer]:
    """Start the server with the model of this folder, and stop it and all that it started."""
    port = _free_port()
    address = f"http://127.0.0.1:{port}"
    running = Peer(kind, address, folder)
    running.play({"choices": [{"steps": []}]})
    arguments = [argument.format(folder=model) for argument in kind.arguments]
    command = [str(python), "-W", "ignore", str(HERE / kind.program), *arguments]
    command += ["--served-model-name", MODEL, "--host", "127.0.0.1", "--port", str(port)]
    environment = {
        **os.environ, "PEER_SCRIPT": str(folder / "script.json"), "PEER_LOG": str(folder / "engine.jsonl"),
        "HF_HUB_OFFLINE": "1",
    }  # fmt: skip
    log = folder / "server.log"
    with (
        log.open("wb") as said,
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=environment, cwd=folder,
            start_new_session=True,
        ) as process,
    ):  # fmt: skip
        try:
            _wait(process, address, log)
            yield running
        finally:
            _end(process)


def _wait(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    until = time.monotonic() + STARTS
    while True:
        assert process.poll() is None, log.read_text()[-4000:]
        try:
            if httpx2.get(f"{address}/v1/models", timeout=5).status_code == 200:
                return
        except httpx2.TransportError:
            assert time.monotonic() < until, log.read_text()[-4000:]
            time.sleep(0.2)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Its own group, which is all of its processes."""
    for how, seconds in ((signal.SIGTERM, 10), (signal.SIGKILL, 10)):
        try:
            os.killpg(process.pid, how)
        except ProcessLookupError:
            return
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            continue


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


def chosen(names: Sequence[str]) -> list[Kind]:
    """Those of these names, or all."""
    wanted = {name.lower() for name in names}
    return [kind for kind in KINDS if not wanted or kind.name.lower() in wanted]
