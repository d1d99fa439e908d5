"""Playhead in front of another server: a real process, and what its store has of a session."""

from __future__ import annotations

import re
import socket
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httptools

from stages.events import Head
from store import open_store
from store.api import Trace
from tests.support.server import PATIENCE, Running, eventually, serve

_BEGUN = re.compile(r"^playhead_sessions_recorded_total (\S+)$", re.MULTILINE)


@contextmanager
def proxied(folder: Path, upstream: str, *options: str) -> Generator[Running]:
    """A proxy in front of the server at this address, or of those of this file."""
    with serve(folder, "--upstream", upstream, *options, engine="upstream") as running:
        yield running


class Got(NamedTuple):
    """A response as it came from the socket. ``whole``: its body came to its end as HTTP has it."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes
    chunks: list[bytes]
    whole: bool

    def header(self, name: str) -> str | None:
        """The first of this name."""
        return next((value for key, value in self.headers if key == name), None)


class _Reading:
    def __init__(self) -> None:
        self.headers: list[tuple[str, str]] = []
        self.chunks: list[bytes] = []
        self.whole = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.decode("latin-1").lower(), value.decode("latin-1")))

    def on_body(self, data: bytes) -> None:
        self.chunks.append(data)

    def on_message_complete(self) -> None:
        self.whole = True


def post(address: str, path: str, body: bytes, headers: dict[str, str] | None = None, method: str = "POST") -> Got:
    """One request on a connection of its own, and the bytes of the answer."""
    host, _, port = address.removeprefix("http://").partition(":")
    named = {"host": f"{host}:{port}", "content-type": "application/json", "connection": "close", **(headers or {})}
    named["content-length"] = str(len(body))
    head = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    with socket.create_connection((host, int(port)), PATIENCE) as client:
        client.sendall(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
        return received(client)


def received(client: socket.socket) -> Got:
    """Read a response to the end of its connection."""
    reading = _Reading()
    parser: Any = httptools.HttpResponseParser(reading)
    while data := client.recv(1 << 16):
        parser.feed_data(data)
    return Got(parser.get_status_code(), reading.headers, b"".join(reading.chunks), reading.chunks, reading.whole)


def ended(running: Running) -> int:
    """How many sessions of its store have ended, once all have that were begun: the record of an answer that a test has
    read to its end comes to its own a moment later."""

    def all_of_them() -> int | None:
        [begun] = _BEGUN.findall(running.http.get("/metrics").text)
        count = _ended(running)
        return count if count == int(float(begun)) else None

    return eventually(all_of_them)


def _ended(running: Running) -> int:
    return sum(info.state != "open" for info in running.sessions()) if running.store.exists() else 0


def latest(running: Running, count: int) -> Trace:
    """The newest session of its store, once ``count`` have ended."""

    def found() -> Trace | None:
        if _ended(running) < count:
            return None
        store = open_store(str(running.store), create=False)
        try:
            return store.load(next(iter(store.sessions(limit=1))).session)
        finally:
            store.close()

    return eventually(found)


def session_of(running: Running, got: Got) -> Trace:
    """The session of a response, once it has ended."""
    named = got.header("x-playhead-session") or (got.header("x-request-id") or "").removeprefix("chatcmpl-")
    return running.recorded(f"chatcmpl-{named}")


def all_of(running: Running, count: int) -> list[Trace]:
    """All sessions of its store, oldest first, once ``count`` have ended."""
    latest(running, count)
    store = open_store(str(running.store), create=False)
    try:
        return [store.load(info.session) for info in reversed(list(store.sessions()))]
    finally:
        store.close()


def bytes_of(trace: Trace, track: str) -> bytes:
    """The recorded body of a track."""
    return b"".join(frame.data for frame in trace.events(track, "frame") if not isinstance(frame, Head))
