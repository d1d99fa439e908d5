"""Streams that are cut and taken up again: requests of each protocol, an engine that goes on when a test lets it, and
what a client has of a stream."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Self

import anyio
from anyio.abc import TaskGroup

from pipeline.engines.base import EngineRequest, EngineStream
from pipeline.engines.scripted import ScriptedEngine
from pipeline.http.app import Server
from stages.catalog import PROTOCOLS
from stages.events import Block, Input
from store import open_store
from store.api import EventStore, SessionNotFound, Trace
from tests.support.asgi import Exchange
from tests.support.server import PATIENCE, Running, eventually

ASKED: dict[str, dict[str, Any]] = {
    "chat": {"messages": [{"role": "user", "content": "Hello"}]},
    "completions": {"prompt": "Hello", "max_tokens": 500},
    "responses": {"input": "Hello"},
    "messages": {"model": "scripted", "max_tokens": 500, "messages": [{"role": "user", "content": "Hello"}]},
}


def asked(protocol: str, *, query: str = "", **fields: Any) -> Exchange:
    """A request that streams, unless told otherwise."""
    body = json.dumps({**ASKED[protocol], "stream": True, **fields}).encode()
    return Exchange(body, path=PROTOCOLS[protocol].path, query=query)


def again(name: str, query: str = "", **headers: str) -> Exchange:
    """GET /v1/streams/{name}."""
    return Exchange(b"", method="GET", path=f"/v1/streams/{name}", query=query, **headers)


def events(body: bytes) -> list[bytes]:
    """The events of a stream that is made of whole blocks, comments left out; each with its blank line."""
    *blocks, rest = body.split(b"\n\n")
    assert rest == b"", rest
    return [block + b"\n\n" for block in blocks if not block.startswith(b":")]


def served(trace: Trace) -> list[bytes]:
    """The events of the response that was recorded."""
    return [frame.data for frame in trace.events("served", "frame") if isinstance(frame, Block)]


def until_stored(running: Running, names: Iterable[str], count: int) -> None:
    """So many events of each of these responses are in the server's store. A client may be ahead of it."""
    store = open_store(str(running.store), create=False)
    for name in names:
        eventually(partial(_has, store, name[-32:], count))
    store.close()


def _has(store: EventStore, session: str, count: int) -> bool | None:
    with suppress(SessionNotFound):
        return len(served(store.load(session))) >= count or None
    return None


class Stepping:
    """An engine that gives one input for each permit, in one step."""

    def __init__(self, *steps: str) -> None:
        self._engine = ScriptedEngine([list(steps) or ["Two ", "a ", "day."]])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def __aenter__(self) -> Self:
        self.permits = anyio.Semaphore(0)
        self.given = anyio.Semaphore(0)
        await self._engine.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._engine.__aexit__(*exc)

    def submit(self, request: EngineRequest) -> EngineStream:
        """See Engine."""
        return _Stepped(self._engine.submit(request), self)

    def go(self, inputs: int) -> None:
        """Give so many inputs more."""
        for _ in range(inputs):
            self.permits.release()

    async def step(self) -> None:
        """Give one input more, and wait until all that follows from it is done."""
        while self.given.value:
            await self.given.acquire()
        self.permits.release()
        with anyio.fail_after(PATIENCE):
            await self.given.acquire()
        await anyio.wait_all_tasks_blocked()


class _Stepped:
    def __init__(self, stream: EngineStream, engine: Stepping) -> None:
        self._stream = stream
        self._engine = engine
        self._inputs: list[Input] = []
        self.abort = stream.abort

    async def receive(self) -> list[Input]:
        await self._engine.permits.acquire()
        if not self._inputs:
            self._inputs = list(await self._stream.receive())
        self._engine.given.release()
        return [self._inputs.pop(0)]


class Client:
    """Who reads a response, event by event."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self._more = anyio.Event()
        exchange.on_send = lambda message: self._came()

    def _came(self) -> None:
        self._more.set()
        self._more = anyio.Event()

    @contextmanager
    def asking(self, server: Server, tasks: TaskGroup) -> Generator[Self]:
        """Ask, and leave with the block."""
        tasks.start_soon(self.exchange.run, server)
        try:
            yield self
        finally:
            self.exchange.leave()

    @property
    def events(self) -> list[bytes]:
        """What has come."""
        return events(self.exchange.body) if self.exchange.sent else []

    async def has(self, count: int) -> list[bytes]:
        """Wait until so many events are there: these."""
        with anyio.fail_after(PATIENCE):
            while len(self.events) < count:
                await self._more.wait()
        return self.events[:count]

    async def whole(self) -> list[bytes]:
        """Wait for the end: all events."""
        with anyio.fail_after(PATIENCE):
            while not self.exchange.complete:
                await self._more.wait()
        return self.events
