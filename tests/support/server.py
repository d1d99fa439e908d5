"""A real server in a process of its own: started, asked over a socket, stopped, and what it recorded."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx2
import openai

from replay import Replayer, SessionResult
from store import open_store
from store.api import SessionInfo, SessionNotFound, Trace
from tests.support.tree import ROOT
from tests.support.validated import assert_clean

T = TypeVar("T")

MESSAGES: list[Any] = [{"role": "user", "content": "When is high tide?"}]
ADDRESS = re.compile(r"serves (\S+) at (http://127\.0\.0\.1:\d+) ")
PATIENCE = 20.0
"""Seconds within which anything happens, on a busy machine too."""
MODEL_PATIENCE = 300.0
"""Seconds within which a real model has answered, on a busy machine too."""
IDLE_PATIENCE = 300.0
"""Seconds within which it is done what has the lowest priority: nothing of it is, as long as others want to run."""


def eventually(look: Callable[[], T | None], patience: float = PATIENCE) -> T:
    """What ``look`` gives once it gives something: for what another process does in its own time."""
    until = time.monotonic() + patience
    while True:
        found = look()
        if found is not None:
            return found
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.01)


@contextmanager
def reserved() -> Generator[int]:
    """A port that nobody else on this machine is given while the block runs, for servers that are to listen there."""
    with socket.socket() as held:
        # As a server binds: both may then have it, as long as only one listens.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
        yield port


class Running:
    """A server that answers. ``said``: what it printed until then; ``patience``: seconds that a client waits for it."""

    def __init__(
        self, process: subprocess.Popen[str], said: str, store: Path, log: Path, patience: float = PATIENCE
    ) -> None:
        self.process = process
        self.said = said
        self.store = store
        self.log = log
        self.patience = patience
        found = ADDRESS.search(said)
        assert found is not None, said
        self.model, self.address = found.groups()
        self.http = httpx2.Client(base_url=self.address, timeout=patience)

    def client(self) -> openai.OpenAI:
        """The official SDK; errors are not tried again."""
        return openai.OpenAI(base_url=f"{self.address}/v1", api_key="sk-none", max_retries=0, timeout=self.patience)

    def async_client(self) -> openai.AsyncOpenAI:
        """The same, async."""
        return openai.AsyncOpenAI(
            base_url=f"{self.address}/v1", api_key="sk-none", max_retries=0, timeout=self.patience
        )

    def create(self, client: openai.OpenAI | openai.AsyncOpenAI, **fields: Any) -> Any:
        """``client.chat.completions.create`` with the model and a question. The SDK's own types want every field by
        name, and know none of ours."""
        completions: Any = client.chat.completions
        return completions.create(**{"model": self.model, "messages": MESSAGES, **fields})

    def helper(self, client: openai.OpenAI | openai.AsyncOpenAI, **fields: Any) -> Any:
        """``client.chat.completions.stream`` with the same."""
        completions: Any = client.chat.completions
        return completions.stream(**{"model": self.model, "messages": MESSAGES, **fields})

    def post(self, **fields: Any) -> httpx2.Response:
        """A chat request with these fields, and the whole answer."""
        return self.http.post("/v1/chat/completions", json={"messages": MESSAGES, **fields})

    @contextmanager
    def stream(self, **fields: Any) -> Generator[Wire]:
        """A streaming request, read as it comes; leaving the block early is a disconnect."""
        body = {"messages": MESSAGES, "stream": True, **fields}
        with self.http.stream("POST", "/v1/chat/completions", json=body) as response:
            yield Wire(response)

    def raw(self, **fields: Any) -> socket.socket:
        """A chat request on a socket of its own; nothing is read yet, and little is taken in before it is."""
        host, _, port = self.address.removeprefix("http://").partition(":")
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(PATIENCE)
        client.connect((host, int(port)))
        body = json.dumps({"messages": MESSAGES, **fields}).encode()
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        client.sendall(b"%bcontent-length: %d\r\n\r\n%b" % (head, len(body), body))
        return client

    def health(self) -> dict[str, Any]:
        """What /health says."""
        found: dict[str, Any] = self.http.get("/health").json()
        return found

    def sessions(self) -> list[SessionInfo]:
        """What is in the store."""
        store = open_store(str(self.store), create=False)
        try:
            return list(store.sessions())
        finally:
            store.close()

    def recorded(self, response_id: str) -> Trace:
        """The session of a response, once it has ended and is stored."""
        session = re.split("[-_]", response_id)[-1]
        store = open_store(str(self.store), create=False)

        def ended() -> Trace | None:
            try:
                found = store.load(session)
            except SessionNotFound:
                return None
            return None if found.info.state == "open" else found

        try:
            return eventually(ended)
        finally:
            store.close()

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Send the signal and wait; the exit code."""
        self.process.send_signal(how)
        return self.process.wait(PATIENCE)


class Wire:
    """A streaming response."""

    def __init__(self, response: httpx2.Response) -> None:
        self.response = response
        self.id = response.headers.get("x-request-id", "")
        self._bytes = response.iter_raw()
        self.read = b""
        """What has come so far."""

    def until(self, seen: bytes, count: int = 1) -> bytes:
        """Read until this is there ``count`` times; everything so far."""
        while self.read.count(seen) < count:
            self.read += next(self._bytes)
        return self.read

    def rest(self) -> bytes:
        """Read to the end; everything."""
        self.read += b"".join(self._bytes)
        return self.read


def blocks(wire: bytes) -> list[str]:
    """A stream's blocks, comments too. Nothing may follow the last blank line."""
    *found, last = wire.decode().split("\n\n")
    assert last == ""
    return found


def objects(wire: bytes) -> list[Any]:
    """A stream's JSON objects, without comments and ``[DONE]``."""
    return [json.loads(block[6:]) for block in blocks(wire) if block.startswith("data: {")]


@contextmanager
def serve(
    folder: Path,
    *options: str,
    script: list[Any] | None = None,
    engine: str = "scripted",
    store: Path | None = None,
    module: str = "pipeline.cli",
    traceback: bool = False,
    replays: bool = True,
    allow: Collection[str] = (),
    effort: bool = True,
) -> Generator[Running]:
    """A server; one ``script`` for every request. ``module``: what is run in place of the command. Its log is in the
    folder, and its store, unless there is another.

    At the end it is stopped, if it still runs: its exit code is 0, its log has no ``traceback``, and what is in its
    store ``replays`` the same, unless a test is about that. All that it sent keeps the protocol rules, but for those of
    ``allow``, which its model or script breaks, and those that take ``effort``, where it sent megabytes.
    """
    store = store or folder / "playhead.db"
    command = [sys.executable, "-m", module, "serve", "--engine", engine, "--port", "0"]
    command += ["--store", str(store), *options]
    if script is not None:
        (folder / "script.json").write_text(json.dumps({"scripts": [{"steps": script}]}))
        command += ["--script", str(folder / "script.json")]
    with (
        (folder / "server.log").open("w") as log,
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        try:
            patience = MODEL_PATIENCE if engine == "hf" else PATIENCE
            running = Running(process, _said(process, folder), store, folder / "server.log", patience)
            with running.http:
                yield running
            if process.poll() is None:
                assert running.stop() == 0
            assert ("Traceback" in running.log.read_text()) == traceback
        finally:
            process.kill()
    if engine == "upstream" or not store.exists():
        # What another server sent is not ours to answer for.
        return
    assert_clean(store, allow, effort=effort)
    if replays:
        assert {result.session: result.verdict for result in replayed(store) if result.verdict != "same"} == {}


def _said(process: subprocess.Popen[str], folder: Path) -> str:
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if line.startswith("Stop with"):
            return said
    raise AssertionError(f"the server did not start:\n{said}{(folder / 'server.log').read_text()}")


def replayed(path: Path) -> list[SessionResult]:
    """Every session of a store through its recorded parser."""
    store = open_store(str(path), create=False)
    try:
        return list(Replayer().replay_many(store.load(info.session) for info in store.sessions()))
    finally:
        store.close()
