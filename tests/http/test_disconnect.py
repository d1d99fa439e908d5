"""A client that leaves: the engine stops, the session is aborted, and it replays the same.

First as raw ASGI callables, where a client can leave at any moment; then over a real socket.
"""

from __future__ import annotations

import anyio
import pytest
from starlette.types import Message

from pipeline.engines.scripted import ScriptedEngine
from replay import Replayer
from stages.events import AbortInput, Block, Failure, FinishInput, Frame, Head, PromptInput, Sent, TokensInput
from store import MemoryStore
from store.api import Trace
from tests.support.asgi import WORDS, Exchange, chat, serving
from tests.support.server import Running, blocks, eventually


def only(store: MemoryStore) -> Trace:
    """The one session of a store. It replays the same, and the record of the socket has one entry."""
    [info] = store.sessions()
    trace = store.load(info.session)
    assert Replayer().replay(trace).verdict == "same"
    return trace


def sent(trace: Trace) -> tuple[list[Frame], int]:
    """The frames that the socket took, by its record, and the bytes of their bodies."""
    [record] = trace.events("socket", "frame")
    assert isinstance(record, Sent)
    frames = trace.events("served", "frame")[: record.seq]
    assert sum(len(frame.data) for frame in frames if not isinstance(frame, Head)) == record.size
    return frames, record.size


@pytest.mark.anyio
@pytest.mark.parametrize("parts", [(None,), (b'{"messages": [', None)])
async def test_before_the_body_is_whole(parts: tuple[bytes | None, ...]) -> None:
    store = MemoryStore()
    async with serving(store) as server:
        exchange = Exchange(*parts)
        exchange.leave()
        await exchange.run(server)
    assert exchange.sent == []
    assert list(store.sessions()) == []


@pytest.mark.anyio
async def test_with_the_body() -> None:
    store = MemoryStore()
    engine = ScriptedEngine(WORDS, pace=3600)
    async with serving(store, engine) as server:
        exchange = Exchange(chat())
        exchange.leave()
        await exchange.run(server)
        assert engine.live == 0
    trace = only(store)
    assert trace.info.state == "aborted"
    assert trace.events("input", "engine")[-1] == AbortInput("client")
    assert sent(trace)[1] == len(exchange.body)


@pytest.mark.anyio
async def test_right_after_the_head() -> None:
    store = MemoryStore()
    engine = ScriptedEngine(WORDS, pace=3600)
    async with serving(store, engine) as server:
        exchange = Exchange(chat(n=2))
        exchange.on_send = lambda message: exchange.leave()
        await exchange.run(server)
        assert engine.live == 0
    trace = only(store)
    assert trace.info.state == "aborted"
    assert exchange.sent[0]["type"] == "http.response.start"
    assert not exchange.complete
    frames, size = sent(trace)
    assert isinstance(frames[0], Head)
    assert size == len(exchange.body)


@pytest.mark.anyio
@pytest.mark.parametrize("stream", [True, False])
async def test_before_the_first_token(stream: bool) -> None:
    """The engine would take an hour for it."""
    store = MemoryStore()
    engine = ScriptedEngine(WORDS, pace=3600)
    async with serving(store, engine) as server:
        exchange = Exchange(chat(stream=stream))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(exchange.run, server)
            await anyio.wait_all_tasks_blocked()
            assert engine.live == len(server.live) == 1
            exchange.leave()
        assert engine.live == len(server.live) == 0
    trace = only(store)
    assert trace.info.state == "aborted"
    inputs = trace.events("input", "engine")
    assert isinstance(inputs[0], PromptInput)
    assert inputs[-1] == AbortInput("client")
    assert not any(isinstance(event, TokensInput | FinishInput) for event in inputs)
    assert trace.events("served", "semantic")[-2] == Failure("client_closed", "the client closed the connection")
    # Nobody is there to read an error: none is made.
    assert exchange.sent == [] if not stream else b"error" not in exchange.body
    assert not any(b"error" in frame.data for frame in trace.events("served", "frame") if isinstance(frame, Block))
    assert sent(trace)[1] == len(exchange.body)


@pytest.mark.anyio
async def test_after_the_end() -> None:
    store = MemoryStore()
    async with serving(store) as server:
        exchange = Exchange(chat())

        def leave(message: Message) -> None:
            if message.get("more_body") is False:
                exchange.leave()

        exchange.on_send = leave
        await exchange.run(server)
    assert exchange.complete
    trace = only(store)
    assert trace.info.state == "closed"
    frames, size = sent(trace)
    assert (frames, size) == (trace.events("served", "frame"), len(exchange.body))


def endless(_request: object) -> list[list[str]]:
    """More than channels hold: its engine is never at the end while frames are written."""
    return [["word "] * 20_000]


@pytest.mark.anyio
@pytest.mark.parametrize("good", range(5))
async def test_a_write_that_raises(good: int) -> None:
    """Some servers raise where others ignore a write to a closed connection."""
    store = MemoryStore()
    engine = ScriptedEngine(endless)
    async with serving(store, engine) as server:
        exchange = Exchange(chat())

        def breaks(message: object) -> None:
            if len(exchange.sent) == good:
                raise ConnectionResetError("gone")

        exchange.on_send = breaks
        await exchange.run(server)
        assert engine.live == 0
        assert engine.steps < 15_000
    assert len(exchange.sent) == good
    trace = only(store)
    assert trace.info.state == "aborted"
    assert trace.events("input", "engine")[-1] == AbortInput("client")
    frames, size = sent(trace)
    assert size == len(exchange.body)
    assert bool(frames) == (good > 0)


@pytest.mark.anyio
async def test_the_last_write_raises() -> None:
    store = MemoryStore()
    async with serving(store) as server:
        exchange = Exchange(chat())

        def breaks(message: Message) -> None:
            if message.get("more_body") is False:
                raise ConnectionResetError("gone")

        exchange.on_send = breaks
        await exchange.run(server)
    trace = only(store)
    assert trace.info.state == "closed"
    assert sent(trace)[0] == trace.events("served", "frame")


@pytest.mark.anyio
async def test_in_the_middle_of_a_stream() -> None:
    """The server takes what is written after it and throws it away: that does not count as sent."""
    store = MemoryStore()
    engine = ScriptedEngine(endless)
    async with serving(store, engine) as server:
        exchange = Exchange(chat())

        def leave(message: object) -> None:
            if exchange.body.count(b"word ") > 1000:
                exchange.leave()

        exchange.on_send = leave
        await exchange.run(server)
        assert engine.live == 0
        assert engine.steps < 15_000
    trace = only(store)
    assert trace.info.state == "aborted"
    frames, size = sent(trace)
    assert size == len(exchange.body)
    assert len(frames) < len(trace.events("served", "frame"))


# --- over a socket --------------------------------------------------------------------------------------------------


def test_closing_the_connection_stops_the_engine(still: Running) -> None:
    with still.stream(n=2) as wire:
        read = wire.until(b'"role"', 2)
        assert still.health()["sessions"] == 1
    trace = still.recorded(wire.id)
    assert still.health()["sessions"] == 0
    assert trace.info.state == "aborted"
    assert trace.events("input", "engine")[-1] == AbortInput("client")
    frames, size = sent(trace)
    assert size == len(read)
    assert len(frames) == 3
    assert "error" not in read.decode()
    assert len(blocks(read)) == 2


def test_leaving_without_streaming(still: Running) -> None:
    """The client gives up its request before there is an answer."""
    before = {info.session for info in still.sessions()}
    with still.raw():
        eventually(lambda: still.health()["sessions"] or None)

    def new() -> str | None:
        found = [info.session for info in still.sessions() if info.session not in before]
        return found[0] if found else None

    trace = still.recorded(eventually(new))
    assert trace.info.state == "aborted"
    assert trace.events("served", "frame") == []
