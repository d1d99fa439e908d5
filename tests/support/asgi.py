"""The server's ASGI application, called without a server: one exchange, message by message."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
from starlette.types import Message, Scope

from pipeline.config import Config
from pipeline.engines.base import Engine
from pipeline.engines.scripted import ScriptedEngine
from pipeline.http.app import Server, app
from pipeline.recorder import Recorder
from store import MemoryStore
from store.api import EventStore
from tests.support.validated import hold

WORDS = [["Two ", "a ", "day."]]


@asynccontextmanager
async def serving(
    store: EventStore | None = None, engine: Engine | None = None, *, strict: bool = False, **config: Any
) -> AsyncGenerator[Server]:
    """A server whose engine runs, without a socket. It says "Two a day.", unless there is another engine. What it
    sent is held to the protocol rules, where a store in memory has it."""
    async with engine or ScriptedEngine(WORDS) as running:
        server = Server(Config(**config), running, Recorder(store, strict=strict))
        async with server.running():
            yield server
    if isinstance(store, MemoryStore):
        hold(store)


class Exchange:
    """One request. ``body``: its parts; None for the parts that never come."""

    def __init__(
        self, *body: bytes | None, method: str = "POST", path: str = "/v1/chat/completions", query: str = "",
        **headers: str,
    ) -> None:  # fmt: skip
        self._inbox: deque[Message] = deque()
        for index, part in enumerate(body):
            if part is not None:
                self._inbox.append({"type": "http.request", "body": part, "more_body": index < len(body) - 1})
        self._left = anyio.Event()
        self.on_send: Callable[[Message], None] = lambda message: None
        """Called with every message as it is sent; may raise."""
        self.sent: list[Message] = []
        """What the client got."""
        self.scope: Scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
            "path": path, "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
            "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()],
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
        }  # fmt: skip

    def leave(self) -> None:
        """The client disconnects. What is sent from now on is taken and thrown away, as servers do."""
        self._left.set()

    async def receive(self) -> Message:
        """The parts of the body, then nothing until the client leaves."""
        await anyio.lowlevel.checkpoint()
        if self._inbox:
            return self._inbox.popleft()
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Takes what the server sends."""
        await anyio.lowlevel.checkpoint()
        if self._left.is_set():
            # Whoever waits for the disconnect is told first.
            await anyio.lowlevel.checkpoint()
            return
        self.on_send(message)
        self.sent.append(message)

    async def run(self, server: Server) -> Exchange:
        """The whole exchange."""
        await app(server)(self.scope, self.receive, self.send)
        return self

    @property
    def status(self) -> int:
        """Of the response."""
        status: int = self.sent[0]["status"]
        return status

    @property
    def headers(self) -> dict[str, str]:
        """Of the response."""
        return {name.decode(): value.decode() for name, value in self.sent[0]["headers"]}

    @property
    def body(self) -> bytes:
        """What was sent of it."""
        return b"".join(message.get("body", b"") for message in self.sent)

    @property
    def complete(self) -> bool:
        """The response ended."""
        return bool(self.sent) and self.sent[-1].get("more_body") is False

    @property
    def error(self) -> dict[str, Any]:
        """The protocol's error object."""
        error: dict[str, Any] = json.loads(self.body)["error"]
        return error


def chat(**fields: Any) -> bytes:
    """The body of a chat request that streams, unless told otherwise."""
    return json.dumps({"messages": [{"role": "user", "content": "Hello"}], "stream": True, **fields}).encode()
