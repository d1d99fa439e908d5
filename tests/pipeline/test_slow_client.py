"""A client that is slower than the engine: memory stays where it is, and what waits leaves together.

Nothing before the encoder may see it: inputs and semantic events stay single events, as they come.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest
from starlette.types import Message

from pipeline.channels import MAX_BYTES, MAX_EVENTS
from pipeline.engines.scripted import ScriptedEngine
from stages.events import Block, Head, TokensInput
from store import MemoryStore
from store.api import Trace
from tests.support.asgi import Exchange, chat, serving
from tests.support.server import serve
from tests.support.sockets import Reader, memory, rested

WORDS = 20_000
CLIENTS = 12


def only(store: MemoryStore) -> Trace:
    [info] = store.sessions()
    return store.load(info.session)


def bodies(exchange: Exchange) -> list[bytes]:
    """What each write carried."""
    return [message["body"] for message in exchange.sent if message.get("body")]


@pytest.mark.parametrize("record", ["full", "off"])
def test_memory_stays_where_it_is(tmp_path: Path, record: str) -> None:
    """Each client would get 9 MB; none reads. What the process holds for one is far less, and the same for ever."""
    with (
        serve(tmp_path, "--record", record, "--stall", "wait", script=["word "] * 2 * WORDS, effort=False) as running,
        ExitStack() as stack,
    ):
        # What a whole session needs, recorded and read, the process has had once.
        with running.stream() as wire:
            wire.rest()
        rested(running)
        before = memory(running)
        for _ in range(CLIENTS):
            stack.enter_context(running.raw(stream=True))
        rested(running)
        assert running.health()["sessions"] == CLIENTS
        assert memory(running) - before < CLIENTS * 1.5e6


def test_what_waits_leaves_in_one_write(tmp_path: Path) -> None:
    """Over a socket every write is a chunk of the body. All are whole events, and together they are the frames."""
    with serve(tmp_path, "--stall", "wait", script=["word "] * WORDS, effort=False) as running:
        with running.raw(stream=True) as client:
            rested(running)
            reader = Reader(client)
            chunks = reader.rest()
        [info] = running.sessions()
        trace = running.recorded(info.session)
    frames = trace.events("served", "frame")
    assert b"".join(chunks) == b"".join(frame.data for frame in frames[1:])
    assert all(chunk.endswith(b"\n\n") for chunk in chunks)
    assert len(chunks) < len(frames) / 20
    # A frame each, as if they had left alone; and an input each.
    assert max(frame.data.count(b"\n\n") for frame in frames[1:]) == 1
    assert sum(isinstance(event, TokensInput) for event in trace.events("input", "engine")) == WORDS + 1


@pytest.mark.anyio
async def test_a_write_is_bounded() -> None:
    """However long the client did not read. Three lists at most are waiting for it."""
    store = MemoryStore()
    async with serving(store, ScriptedEngine([["word "] * WORDS])) as server:
        exchange = Exchange(chat())
        pause = anyio.Event()
        send = exchange.send

        async def slow(message: Message) -> None:
            if message.get("body") and not pause.is_set():
                await anyio.wait_all_tasks_blocked()
                pause.set()
            await send(message)

        exchange.send = slow  # type: ignore[method-assign]  # a client that reads late
        await exchange.run(server)
    writes = bodies(exchange)
    assert b"".join(writes) == b"".join(frame.data for frame in only(store).events("served", "frame")[1:])
    largest = max(writes, key=len)
    assert len(largest) <= 3 * MAX_BYTES
    assert MAX_EVENTS / 4 < largest.count(b"\n\n") <= 3 * MAX_EVENTS


class Gated:
    """Its engine makes a step when the one before has reached the client."""

    def __init__(self, engine: ScriptedEngine) -> None:
        self._engine = engine
        self.gate = anyio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def submit(self, request: Any) -> Any:
        stream, outer = self._engine.submit(request), self

        class Stream:
            abort = stream.abort

            async def receive(self) -> Any:
                await outer.gate.wait()
                outer.gate = anyio.Event()
                return await stream.receive()

        return Stream()

    async def __aenter__(self) -> Any:
        await self._engine.__aenter__()
        self.gate.set()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._engine.__aexit__(*exc)


@pytest.mark.anyio
async def test_a_client_that_reads_gets_every_step_by_itself() -> None:
    store, words = MemoryStore(), [f"{number} " for number in range(50)]
    engine: Any = Gated(ScriptedEngine([words], awaited=True))
    async with serving(store, engine, keep_alive=0) as server:
        exchange = Exchange(chat(max_tokens=len(words)))

        def taken(message: Message) -> None:
            if message.get("body"):
                engine.gate.set()

        exchange.on_send = taken
        with anyio.fail_after(20):
            await exchange.run(server)
    role, *writes = bodies(exchange)
    assert role.count(b"\n\n") == 1
    # One for each word; the last brings the end of the choice with it, and of the session after it.
    assert [f'"content":"{word}"'.encode() in write for word, write in zip(words, writes, strict=False)] == [True] * 50
    assert [write.count(b"\n\n") for write in writes[:49]] == [1] * 49
    head, *frames = only(store).events("served", "frame")
    assert isinstance(head, Head)
    assert all(isinstance(frame, Block) for frame in frames)


@pytest.mark.anyio
async def test_lists_that_wait_apart_leave_together() -> None:
    """Two steps were made one after the other, while the client took the role."""
    engine: Any = Gated(ScriptedEngine([["one ", "two ", "three "]], awaited=True))
    async with serving(None, engine, keep_alive=0) as server:
        exchange = Exchange(chat())
        send = exchange.send

        async def slow(message: Message) -> None:
            await send(message)
            if b'"role"' in message.get("body", b""):
                for _ in range(2):
                    engine.gate.set()
                    await anyio.wait_all_tasks_blocked()
            elif message.get("body"):
                engine.gate.set()

        exchange.send = slow  # type: ignore[method-assign]  # a client that reads late, once
        with anyio.fail_after(20):
            await exchange.run(server)
    _, first, second, *_ = bodies(exchange)
    assert [first.count(b'"content":"' + word) for word in (b"one ", b"two ", b"three ")] == [1, 1, 0]
    assert b'"content":"three "' in second
