"""A client that leaves: the engine stops, the session is aborted, and it replays the same.

First as raw ASGI callables, where a client can leave at any moment; then over a real socket.
"""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from starlette.types import Message

from pipeline.engines.scripted import ScriptedEngine
from replay import Replayer
from stages.events import (
    AbortInput,
    Block,
    Failure,
    FinishInput,
    Frame,
    Head,
    PrefillInput,
    PromptInput,
    ScheduledInput,
    Sent,
    TokensInput,
    Usage,
    UsageInput,
)
from store import MemoryStore
from store.api import Trace
from tests.support.asgi import WORDS, Exchange, chat, serving
from tests.support.loops import CHUNKS, GatedEngine
from tests.support.server import PATIENCE, Running, blocks, eventually


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


# --- before there is anything to write ------------------------------------------------------------------------------

PREFILL: list[Any] = [
    PromptInput(tuple(range(1000)), "", 1000),
    ScheduledInput(),
    *[PrefillInput(at, at + 1) for at in range(1000)],
]


@pytest.mark.anyio
@pytest.mark.parametrize("stream", [True, False])
async def test_in_the_middle_of_a_prefill(stream: bool) -> None:
    """A client of a streaming answer has heard of its role, another of nothing."""
    store = MemoryStore()
    engine = ScriptedEngine([PREFILL], pace=0.005, awaited=True)
    before = 0
    async with serving(store, engine) as server:
        exchange = Exchange(chat(stream=stream))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(exchange.run, server)
            with anyio.fail_after(PATIENCE):
                while engine.steps < 10:  # noqa: ASYNC110  # an engine tells nobody how far it is
                    await anyio.sleep(0.005)
            exchange.leave()
            before = engine.steps
        assert engine.live == len(server.live) == 0
        assert engine.steps <= before + 1
    trace = only(store)
    left_in_the_prefill(trace)
    assert len(trace.events("input", "engine")) == engine.steps + 1
    assert sent(trace)[1] == len(exchange.body)


def left_in_the_prefill(trace: Trace) -> None:
    """The session is aborted by its client: no token, and no usage, which nobody should be billed for."""
    assert trace.info.state == "aborted"
    *inputs, last = trace.events("input", "engine")
    assert last == AbortInput("client")
    assert isinstance(inputs[-1], PrefillInput)
    assert not any(isinstance(event, TokensInput | UsageInput) for event in inputs)
    assert not any(isinstance(event, Usage) for event in trace.events("served", "semantic"))
    assert trace.info.completion_tokens is None


@pytest.mark.anyio
@pytest.mark.parametrize("stream", [True, False])
async def test_in_the_middle_of_a_forward_pass(stream: bool) -> None:
    """The session does not wait for the pass to end; and the loop begins no other for it."""
    store, engine = MemoryStore(), GatedEngine()
    async with serving(store, engine) as server:
        exchange = Exchange(chat(stream=stream))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(exchange.run, server)
            engine.gate.release()
            for _ in range(2):
                await engine.at_the_gate()
            # The second pass waits at the gate until the session is over.
            await anyio.wait_all_tasks_blocked()
            exchange.leave()
        assert len(server.live) == 0
        await engine.rested()
        assert list(engine.passes.values()) == [2]
    left_in_the_prefill(only(store))


@pytest.mark.anyio
@pytest.mark.parametrize("stream", [True, False])
async def test_while_it_waits_for_its_turn(stream: bool) -> None:
    """Admitted, and another request has the engine: no pass is ever made for it."""
    store, engine = MemoryStore(), GatedEngine(max_live=1)
    async with serving(store, engine) as server:
        first, second = Exchange(chat(max_tokens=3)), Exchange(chat(stream=stream))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first.run, server)
            await engine.at_the_gate()
            async with anyio.create_task_group() as waiting:
                waiting.start_soon(second.run, server)
                with anyio.fail_after(PATIENCE):
                    while not queued(store):  # noqa: ASYNC110  # a store tells nobody what it has
                        await anyio.sleep(0.001)
                second.leave()
            assert len(server.live) == 1
            engine.gate.release(1000)
    assert first.complete
    assert list(engine.passes.values()) == [CHUNKS + 3]
    [left, _] = store.sessions()
    trace = store.load(left.session)
    assert trace.info.state == "aborted"
    prompt, *rest = trace.events("input", "engine")
    assert isinstance(prompt, PromptInput)
    assert rest == [AbortInput("client")]


def queued(store: MemoryStore) -> bool:
    """The last session is admitted."""
    newest, *older = store.sessions()
    return bool(older) and newest.events.get("input/engine", 0) == 1


@pytest.mark.anyio
@pytest.mark.parametrize("stream", [True, False])
async def test_while_it_waits_for_admission(stream: bool) -> None:
    store, engine = MemoryStore(), GatedEngine()
    engine.admission.clear()
    async with serving(store, engine) as server:
        exchange = Exchange(chat(stream=stream))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(exchange.run, server)
            await anyio.wait_all_tasks_blocked()
            assert len(server.live) == 1
            exchange.leave()
        assert len(server.live) == 0
        engine.admission.set()
        await engine.rested()
        assert engine.passes == {}
    trace = only(store)
    assert trace.info.state == "aborted"
    assert trace.events("input", "engine") == [AbortInput("client")]
    assert exchange.sent == []


@pytest.mark.anyio
async def test_after_the_engine_and_before_the_last_frame() -> None:
    """Nobody ended it, and its client did not get all of it."""
    store = MemoryStore()
    # Three lists of inputs, for which the channel has room, and more frames than one write may carry.
    async with serving(store, ScriptedEngine([["word "] * 700])) as server:
        exchange = Exchange(chat())
        send = exchange.send

        async def leave(message: Message) -> None:
            await send(message)
            if message.get("body"):
                # The engine and the stages are ahead, as far as they can be.
                await anyio.wait_all_tasks_blocked()
                exchange.leave()

        exchange.send = leave  # type: ignore[method-assign]  # a client that leaves under a write
        await exchange.run(server)
    trace = only(store)
    assert trace.info.state == "detached"
    assert isinstance(trace.events("input", "engine")[-1], UsageInput)
    assert trace.info.finish_reasons == ("eos",)
    assert 2 <= len(sent(trace)[0]) < 600 < len(trace.events("served", "frame"))


# --- over a socket --------------------------------------------------------------------------------------------------


def test_closing_the_connection_stops_the_engine(still: Running) -> None:
    with still.stream(n=2) as wire:
        read = wire.until(b'"role"', 2)
        # Those of other tests may be about to end.
        eventually(lambda: still.health()["sessions"] == 1 or None)
    trace = still.recorded(wire.id)
    eventually(lambda: still.health()["sessions"] == 0 or None)
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

    def new() -> str | None:
        found = [info.session for info in still.sessions() if info.session not in before]
        return found[0] if found else None

    with still.raw():
        session = eventually(new)
    trace = still.recorded(session)
    assert trace.info.state == "aborted"
    assert trace.events("served", "frame") == []
