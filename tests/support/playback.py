"""A server that plays captures back (data/captures): the same bytes in the same HTTP chunks, and what goes wrong on the
way where a test wants that. It runs in a thread of its own, on raw sockets: nothing between a test and the bytes.

It stands for the server that sent the capture: it answers what that one answers to ``return_token_ids``, and to the
questions that tell servers apart.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from tests.support.captures import Capture, captures
from tests.support.playback_answers import PLAIN, Asked, How, Response, looked_up, model_of
from tests.support.playback_answers import response as answer


@dataclass
class Playback:
    """A running one. ``asked``: the POSTs so far; ``looked``: paths of the GETs; ``left``: clients that were gone
    before their answer was over."""

    address: str
    capture: Capture
    how: How = PLAIN
    asked: list[Asked] = field(default_factory=list[Asked])
    looked: list[str] = field(default_factory=list[str])
    left: int = 0
    connections: int = 0
    """How many were made."""
    queue: list[tuple[Capture, How]] = field(default_factory=list[tuple[Capture, How]])
    """See ``first``."""
    pages: dict[str, Any] = field(default_factory=dict[str, Any])
    """What GETs of these paths are told, instead of what the server would tell."""

    def play(self, capture: Capture | str, how: How = PLAIN) -> None:
        """From now on."""
        self.capture = capture if isinstance(capture, Capture) else captures()[capture]
        self.how = how

    def first(self, how: How, capture: Capture | str | None = None) -> None:
        """For one request, before what is played otherwise; several stand in line."""
        found = captures()[capture] if isinstance(capture, str) else capture or self.capture
        self.queue.append((found, how))

    def next(self) -> tuple[Capture, How]:
        """What the next request gets."""
        return self.queue.pop(0) if self.queue else (self.capture, self.how)

    @property
    def model(self) -> str:
        """What the server calls its model."""
        return model_of(self.capture)


@contextmanager
def playback(capture: Capture | str, how: How = PLAIN) -> Generator[Playback]:
    """A server on a free port of this machine. At the end nothing of it is left."""
    found = captures()[capture] if isinstance(capture, str) else capture
    running = Playback("", found, how)
    ready, stop = threading.Event(), threading.Event()
    failed: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(_serve(running, ready, stop))
        except BaseException as error:
            failed.append(error)
            ready.set()

    thread = threading.Thread(target=run, name="playback")
    thread.start()
    ready.wait()
    try:
        yield running
    finally:
        stop.set()
        thread.join()
    assert failed == []


async def _serve(running: Playback, ready: threading.Event, stop: threading.Event) -> None:
    tasks: set[asyncio.Task[Any]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        running.connections += 1
        try:
            await _Connection(running, reader, writer).serve()
        except (ConnectionError, asyncio.IncompleteReadError):
            running.left += 1
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0, limit=1 << 24)
    host, port = server.sockets[0].getsockname()
    running.address = f"http://{host}:{port}"
    ready.set()
    await asyncio.to_thread(stop.wait)
    server.close()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class _Connection:
    """The requests of one client, one after the other."""

    def __init__(self, running: Playback, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._running = running
        self._reader = reader
        self._writer = writer

    async def serve(self) -> None:
        while True:
            asked = await self._request()
            if asked is None:
                return
            if asked.method != "POST":
                self._running.looked.append(asked.path)
                await self._whole(looked_up(self._running.capture, self._running.pages, asked.path))
            else:
                self._running.asked.append(asked)
                if not await self._answer(asked):
                    return

    async def _request(self) -> Asked | None:
        try:
            head = await self._reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as error:
            if error.partial:
                raise
            return None
        first, *lines = head[:-4].decode("latin-1").split("\r\n")
        method, path, _ = first.split(" ")
        pairs = [line.partition(":") for line in lines]
        headers = [(name.lower(), value.strip()) for name, _, value in pairs]
        size = next((int(value) for name, value in headers if name == "content-length"), None)
        if size is not None:
            return Asked(method, path, headers, await self._reader.readexactly(size))
        chunked = ("transfer-encoding", "chunked") in headers
        return Asked(method, path, headers, await self._chunked() if chunked else b"")

    async def _chunked(self) -> bytes:
        parts: list[bytes] = []
        while size := int(await self._reader.readuntil(b"\r\n"), 16):
            parts.append(await self._reader.readexactly(size))
            await self._reader.readexactly(2)
        await self._reader.readexactly(2)
        return b"".join(parts)

    async def _answer(self, asked: Asked) -> bool:
        """Returns whether the connection stays."""
        capture, how = self._running.next()
        if how.silent:
            await self._wait_for_leave()
        elif how.instead is not None:
            self._writer.write(how.instead)
            await self._writer.drain()
        if how.silent or how.gone or how.instead is not None:
            return False
        response = answer(asked, capture, how)
        self._head(response)
        if not await self._body(response, how):
            return False
        if capture.marked == "client_closed" and response.capture is capture:
            # The server would have gone on: it was the client that left.
            await self._wait_for_leave()
            return False
        if response.chunked:
            self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()
        return how.keep_alive

    async def _body(self, response: Response, how: How) -> bool:
        """Returns whether all of it was sent."""
        sent = 0
        loop = asyncio.get_running_loop()
        begun = loop.time()
        limit = min((end for end in (how.cut, how.stall) if end is not None), default=None)
        for chunk, at in response.chunks:
            if how.pace:
                await asyncio.sleep(max(begun + at * how.pace - loop.time(), 0))
            if self._reader.at_eof() or self._reader.exception() is not None:
                raise ConnectionResetError
            frame = b"%x\r\n%b\r\n" % (len(chunk), chunk) if response.chunked else chunk
            left = None if limit is None else limit - sent
            if left is not None and left < len(chunk):
                # The chunk's own head says how long it was to be.
                frame = frame[: left + (frame.index(b"\n") + 1 if response.chunked else 0)] if left else b""
            self._writer.write(frame)
            if how.pace:
                await self._writer.drain()
            sent += len(chunk)
            if limit is not None and sent >= limit:
                break
        await self._writer.drain()
        if limit is None:
            return True
        if how.stall is not None:
            await self._wait_for_leave()
        elif how.reset:
            # Without this the reset takes back what the client has not read yet.
            await asyncio.sleep(0.05)
            raw: socket.socket = self._writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return False

    def _head(self, response: Response) -> None:
        lines = "".join(f"{name}: {value}\r\n" for name, value in response.headers)
        head = f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}\r\n{lines}\r\n"
        self._writer.write(head.encode("latin-1"))

    async def _whole(self, response: Response) -> None:
        self._head(response)
        self._writer.write(b"".join(chunk for chunk, _ in response.chunks))
        await self._writer.drain()

    async def _wait_for_leave(self) -> None:
        with contextlib.suppress(ConnectionError):
            while await self._reader.read(1 << 16):
                pass
        self._running.left += 1
