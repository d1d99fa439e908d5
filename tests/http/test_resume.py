"""A stream is taken up again: finished or live, from every event on, by several readers. What is joined is the uncut
stream, byte for byte, but for comments."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from pipeline.engines.scripted import ScriptedEngine
from pipeline.http.plans import plan
from replay import Replayer
from stages.catalog import PROTOCOLS
from stages.events import AbortInput, Block, Comment, Head
from store import MemoryStore, SqliteStore
from store.api import EventStore
from tests.support.asgi import Exchange, serving
from tests.support.resuming import Client, Stepping, again, asked, events, served
from tests.support.server import PATIENCE
from tests.support.validated import hold

ALL = pytest.mark.parametrize("protocol", list(PROTOCOLS))


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EventStore]:
    made = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "sessions.db", window_s=0.001)
    yield made
    if request.param == "sqlite":
        # In memory it was held already.
        hold(made)
    made.close()


@pytest.fixture
def file(tmp_path: Path) -> Iterator[EventStore]:
    made = SqliteStore(tmp_path / "sessions.db", window_s=0.001)
    yield made
    hold(made)
    made.close()


def named(exchange: Exchange) -> str:
    """The id of a response."""
    return exchange.headers["x-request-id"]


def session_of(name: str) -> str:
    for entry in PROTOCOLS.values():
        name = name.removeprefix(entry.prefix)
    return name


async def until_stored(store: EventStore) -> None:
    """All that ended is closed in the store."""
    await anyio.to_thread.run_sync(store.flush)


@pytest.mark.anyio
@ALL
async def test_a_finished_stream_from_every_event_on(store: EventStore, protocol: str) -> None:
    async with serving(store) as server:
        first = await asked(protocol).run(server)
        whole = events(first.body)
        assert len(whole) >= 5
        for name in (named(first), session_of(named(first))):
            for after in range(len(whole) + 1):
                got = await again(name, f"after={after}").run(server)
                assert (got.status, got.headers) == (200, first.headers)
                assert events(got.body) == whole[after:]
                assert got.complete
            got = await again(name).run(server)
            assert got.body == first.body
    # Who reads again is no session.
    assert len(list(store.sessions())) == 1


@pytest.mark.anyio
@ALL
async def test_a_client_is_cut_off_at_every_event_and_takes_its_stream_up(file: EventStore, protocol: str) -> None:
    store, count = file, 0
    async with serving(store) as server:
        count = len(events((await asked(protocol).run(server)).body))
    assert count > 3
    for cut in range(1, count):
        engine: Any = Stepping()
        async with serving(store, engine) as server, anyio.create_task_group() as tasks:
            with Client(asked(protocol, query="resume=60")).asking(server, tasks) as client:
                while len(client.events) < cut:
                    await engine.step()
                had = await client.has(cut)
                # The last events may come with one input.
                over = len(client.events) == count
            name = named(client.exchange)
            with Client(again(name, f"after={cut}")).asking(server, tasks) as reader:
                await anyio.wait_all_tasks_blocked()
                # It goes on, and would never end without a permit.
                assert (server.live.find(session_of(name)) is None) == over
                engine.go(50)
                rest = await reader.whole()
            await until_stored(store)
            trace = store.load(session_of(name))
            assert [*had, *rest] == served(trace)
            assert len([*had, *rest]) == count
            assert trace.info.state == ("closed" if over else "detached")
            assert Replayer().replay(trace).verdict == "same"


@pytest.mark.anyio
async def test_two_readers_and_the_client_at_once(store: EventStore) -> None:
    engine: Any = Stepping()
    async with serving(store, engine) as server, anyio.create_task_group() as tasks:
        with Client(asked("chat")).asking(server, tasks) as client:
            engine.go(2)
            await client.has(1)
            name = named(client.exchange)
            with (
                Client(again(name)).asking(server, tasks) as one,
                Client(again(name, "after=1")).asking(server, tasks) as two,
            ):
                await one.has(1)
                engine.go(2)
                # Each sees what comes as it comes, long before the end.
                assert await one.has(2) == await client.has(2)
                assert await two.has(1) == client.events[1:2]
                assert not client.exchange.complete
                engine.go(50)
                whole = await client.whole()
                assert await one.whole() == whole
                assert await two.whole() == whole[1:]


@pytest.mark.anyio
async def test_without_a_wish_a_session_ends_with_its_client(store: EventStore) -> None:
    """And who reads it is told so, in an event, as are those who come later."""
    engine: Any = Stepping()
    async with serving(store, engine) as server, anyio.create_task_group() as tasks:
        with Client(asked("chat")).asking(server, tasks) as client:
            engine.go(2)
            await client.has(1)
            name = named(client.exchange)
            with Client(again(name)).asking(server, tasks) as reader:
                await reader.has(1)
                client.exchange.leave()
                told = await reader.whole()
        await until_stored(store)
        trace = store.load(session_of(name))
        assert trace.events("input", "engine")[-1] == AbortInput("client")
        assert told[:-2] == served(trace)
        assert b'"code":"client_closed"' in told[-2]
        assert told[-1] == b"data: [DONE]\n\n"
        late = await again(name).run(server)
        assert events(late.body) == told
        # The last two are not of the record: there is nothing to take up behind them.
        assert (await again(name, f"after={len(told) - 2}").run(server)).status == 200
        assert (await again(name, f"after={len(told) - 1}").run(server)).status == 409


@pytest.mark.anyio
async def test_nobody_takes_it_up(store: EventStore) -> None:
    engine: Any = Stepping()
    client = Client(asked("chat"))
    async with serving(store, engine, resume=0.05) as server:
        async with anyio.create_task_group() as tasks:
            with client.asking(server, tasks):
                engine.go(2)
                await client.has(1)
        # The session ends by itself, or the group would not.
        await until_stored(store)
        trace = store.load(session_of(named(client.exchange)))
        assert trace.info.state == "aborted"
        assert trace.events("input", "engine")[-1] == AbortInput("client")


@pytest.mark.anyio
async def test_whoever_reads_keeps_it_going(store: EventStore) -> None:
    """The time begins anew when the last reader has left."""
    engine: Any = Stepping()
    async with serving(store, engine) as server, anyio.create_task_group() as tasks:
        with Client(asked("chat", query="resume=0.2")).asking(server, tasks) as client:
            engine.go(2)
            await client.has(1)
            name = named(client.exchange)
            with Client(again(name)).asking(server, tasks) as reader:
                await reader.has(1)
                client.exchange.leave()
                await anyio.sleep(0.4)
                session = server.live.find(session_of(name))
                assert session is not None
                assert session.aborted_by is None
        with anyio.fail_after(PATIENCE):
            while server.live.find(session_of(name)) is not None:  # noqa: ASYNC110  # it ends in its own time
                await anyio.sleep(0.01)
        assert session.aborted_by == "client"


@pytest.mark.anyio
@pytest.mark.parametrize(("most", "seconds"), [(0.0, 0.0), (0.05, 0.05)])
async def test_a_request_asks_for_no_more_than_the_server_allows(
    store: EventStore, most: float, seconds: float
) -> None:
    client = Client(asked("chat", query="resume=1e9"))
    engine: Any = Stepping()
    async with serving(store, engine, max_resume=most) as server, anyio.create_task_group() as tasks:
        assert server.wish({"query_string": b"resume=1e9"}).resume == seconds
        with client.asking(server, tasks):
            engine.go(2)
            await client.has(1)
    await until_stored(store)
    assert store.info(session_of(named(client.exchange))).state == "aborted"


@pytest.mark.anyio
async def test_a_stream_that_was_launched_has_no_client_and_readers(store: EventStore) -> None:
    engine: Any = Stepping()
    body = b'{"messages": [{"role": "user", "content": "Hello"}], "stream": true}'
    async with serving(store, engine) as server, anyio.create_task_group() as tasks:
        session = server.session("chat", plan("chat", body, server.model), body)
        server.launch(session)
        assert server.live.find(session.opening.session) is session
        with Client(again(session.opening.session)).asking(server, tasks) as reader:
            engine.go(2)
            await reader.has(1)
        engine.go(50)
        with Client(again(session.opening.response_id)).asking(server, tasks) as reader:
            whole = await reader.whole()
        await until_stored(store)
        trace = store.load(session.opening.session)
        assert (trace.info.state, served(trace)) == ("closed", whole)


@pytest.mark.anyio
async def test_what_was_launched_ends_with_the_server(store: EventStore) -> None:
    engine: Any = Stepping()
    body = b'{"messages": [{"role": "user", "content": "Hello"}], "stream": true}'
    async with serving(store, engine) as server:
        session = server.session("chat", plan("chat", body, server.model), body)
        server.launch(session)
        engine.go(2)
        await anyio.wait_all_tasks_blocked()
    await until_stored(store)
    trace = store.load(session.opening.session)
    assert (trace.info.state, session.aborted_by) == ("aborted", "shutdown")
    assert served(trace)[-1] == b"data: [DONE]\n\n"


@pytest.mark.anyio
async def test_comments_keep_a_silent_reader_alive(store: EventStore) -> None:
    """They are its own: the session's are left out, and none is recorded for a reader."""
    engine: Any = Stepping()
    async with serving(store, engine, keep_alive=0.05) as server, anyio.create_task_group() as tasks:
        with Client(asked("chat", stream_options={"keep_alive": 0})).asking(server, tasks) as client:
            engine.go(2)
            await client.has(1)
            name = named(client.exchange)
            with Client(again(name)).asking(server, tasks) as reader:
                with anyio.fail_after(PATIENCE):
                    while reader.exchange.body.count(b": keep-alive\n\n") < 3:  # noqa: ASYNC110  # time is what it is about
                        await anyio.sleep(0.01)
                engine.go(50)
                assert await reader.whole() == await client.whole()
        await until_stored(store)
        frames = store.load(session_of(name)).events("served", "frame")
        assert {type(frame) for frame in frames} == {Head, Block}


@pytest.mark.anyio
async def test_recorded_comments_are_left_out(store: EventStore) -> None:
    async with serving(store, ScriptedEngine([["Two ", "a ", "day."]], pace=0.3), keep_alive=0.1) as server:
        first = await asked("chat").run(server)
        assert b": keep-alive" in first.body
        await until_stored(store)
        trace = store.load(session_of(named(first)))
        assert any(isinstance(frame, Comment) for frame in trace.events("served", "frame"))
        got = await again(named(first), "after=1").run(server)
        assert got.body == b"".join(events(first.body)[1:])


@pytest.mark.anyio
@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_while_it_waits(store: EventStore, stream: bool) -> None:
    """Nothing is left behind: the session has other clients."""
    engine: Any = Stepping()
    async with serving(store, engine) as server, anyio.create_task_group() as tasks:
        with Client(asked("chat", stream=stream)).asking(server, tasks) as client:
            engine.go(1)
            await anyio.wait_all_tasks_blocked()
            [held] = server.live.sessions()
            with Client(again(held.opening.session)).asking(server, tasks):
                await anyio.wait_all_tasks_blocked()
            await anyio.wait_all_tasks_blocked()
            engine.go(50)
            with anyio.fail_after(PATIENCE):
                while not client.exchange.complete:  # noqa: ASYNC110  # it ends in its own time
                    await anyio.sleep(0.001)
