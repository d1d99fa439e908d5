"""When bytes leave: the first packet, keep-alive comments, the status of a slow admission."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import anyio
import pytest
from starlette.types import Message

from pipeline.engines.base import EngineRequest, EngineStream
from pipeline.engines.scripted import ScriptedEngine
from replay import Replayer
from stages.errors import RequestError
from stages.events import Comment, Input, Tick
from store import MemoryStore
from tests.support.asgi import WORDS, Exchange, chat, serving
from tests.support.server import Running, blocks, objects, serve

KEEP_ALIVE = ": keep-alive"


@pytest.mark.parametrize("n", [1, 3])
def test_the_role_chunks_are_the_first_packet(still: Running, n: int) -> None:
    """The engine takes an hour for a token: what arrives arrives before the first one."""
    with still.stream(n=n) as wire:
        chunks = objects(wire.until(b'"role"', n))
    assert wire.response.status_code == 200
    assert [chunk["choices"] for chunk in chunks] == [
        [{"index": index, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}]
        for index in range(n)
    ]


def test_the_response_head(still: Running) -> None:
    with still.stream() as wire:
        wire.until(b'"role"')
        headers = wire.response.headers
    assert headers["content-type"] == "text/event-stream; charset=utf-8"
    assert headers["cache-control"] == "no-cache, no-transform"
    assert headers["x-accel-buffering"] == "no"
    assert headers["transfer-encoding"] == "chunked"
    assert "content-length" not in headers
    assert "content-encoding" not in headers
    assert headers["x-request-id"] == objects(wire.read)[0]["id"]


# --- keep-alive -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A token every 0.3 s, a comment after every 0.08 s of silence."""
    folder = tmp_path_factory.mktemp("slow")
    with serve(folder, "--pace", "0.3", "--keep-alive", "0.08", script=["Two ", "a day."]) as running:
        yield running


def test_comments_keep_a_silent_stream_alive(slow: Running) -> None:
    with slow.stream(stream_options={"include_usage": True}) as wire:
        found = blocks(wire.rest())
    # Between the role and the first word, and between all that follow it.
    told = [KEEP_ALIVE if block == KEEP_ALIVE else "data" for block in found]
    assert told[0] == "data"
    assert told[1] == KEEP_ALIVE
    assert told.count(KEEP_ALIVE) >= 3
    assert found[-1] == "data: [DONE]"
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in objects(wire.read)[:-1]) == "Two a day."
    trace = slow.recorded(wire.id)
    assert trace.events("input", "engine").count(Tick()) == told.count(KEEP_ALIVE)
    assert trace.events("served", "frame").count(Comment(b": keep-alive\n\n")) == told.count(KEEP_ALIVE)
    assert Replayer().replay(trace).verdict == "same"


def test_the_sdk_does_not_mind_comments(slow: Running) -> None:
    with slow.client() as client, slow.helper(client) as stream:
        texts = [event.delta for event in stream if event.type == "content.delta"]
    # The role chunk has an empty content, as the protocol wants it.
    assert texts == ["", "Two ", "a day."]


# --- a slow admission -----------------------------------------------------------------------------------------------


class Waiting:
    """An engine that admits nothing until ``gate`` is set."""

    def __init__(self, engine: ScriptedEngine) -> None:
        self._engine = engine
        self.gate = anyio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def submit(self, request: EngineRequest) -> EngineStream:
        return WaitingStream(self._engine.submit(request), self.gate)

    async def __aenter__(self) -> Self:
        await self._engine.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._engine.__aexit__(*exc)


class WaitingStream:
    """Its stream."""

    def __init__(self, stream: EngineStream, gate: anyio.Event) -> None:
        self._stream = stream
        self._gate = gate
        self.abort = stream.abort

    async def receive(self) -> list[Input]:
        await self._gate.wait()
        return await self._stream.receive()


@pytest.mark.anyio
async def test_a_slow_admission_gets_its_status_and_a_comment() -> None:
    store = MemoryStore()
    engine: Any = Waiting(ScriptedEngine(WORDS))
    async with serving(store, engine, commit_after=0.02) as server:
        exchange = Exchange(chat())

        def admit(message: Message) -> None:
            if message.get("body"):
                engine.gate.set()

        exchange.on_send = admit
        with anyio.fail_after(10):
            await exchange.run(server)
    assert exchange.status == 200
    first, *rest = blocks(exchange.body)
    assert first == KEEP_ALIVE
    assert '"role":"assistant"' in rest[0]
    assert rest[-1] == "data: [DONE]"
    [info] = store.sessions()
    trace = store.load(info.session)
    assert trace.events("input", "engine")[0] == Tick()
    assert Replayer().replay(trace).verdict == "same"


@pytest.mark.anyio
async def test_a_refusal_after_the_status_is_an_error_in_the_stream() -> None:
    store = MemoryStore()
    engine: Any = Waiting(ScriptedEngine([[RequestError("The prompt is too long.", param="messages")]]))
    async with serving(store, engine, commit_after=0.02) as server:
        exchange = Exchange(chat())

        def admit(message: Message) -> None:
            if message.get("body"):
                engine.gate.set()

        exchange.on_send = admit
        with anyio.fail_after(10):
            await exchange.run(server)
    assert exchange.status == 200
    comment, error, done = blocks(exchange.body)
    assert (comment, done) == (KEEP_ALIVE, "data: [DONE]")
    assert '"message":"The prompt is too long."' in error
    [info] = store.sessions()
    assert Replayer().replay(store.load(info.session)).verdict == "same"


@pytest.mark.anyio
@pytest.mark.parametrize("stream", [True, False])
async def test_a_refusal_at_admission_is_a_status(stream: bool) -> None:
    async with serving(None, ScriptedEngine(WORDS, context=8)) as server:
        exchange = await Exchange(chat(stream=stream)).run(server)
    assert exchange.status == 400
    assert exchange.headers["content-type"] == "application/json"
    assert (exchange.error["param"], exchange.error["code"]) == ("messages", "context_length_exceeded")
    assert exchange.complete


@pytest.mark.anyio
async def test_without_streaming_there_is_no_comment() -> None:
    engine: Any = Waiting(ScriptedEngine(WORDS))
    async with serving(None, engine, commit_after=0.0, keep_alive=0.001) as server:
        exchange = Exchange(chat(stream=False))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(exchange.run, server)
            await anyio.wait_all_tasks_blocked()
            assert exchange.sent == []
            engine.gate.set()
    assert exchange.headers["content-type"] == "application/json"
    assert int(exchange.headers["content-length"]) == len(exchange.body)
