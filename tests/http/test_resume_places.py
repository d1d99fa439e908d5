"""Where a stream can be taken up, and what is said where it cannot; ids of events; responses that are no stream."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import anyio
import pytest
from starlette.types import Message

from pipeline.config import Config
from pipeline.engines.scripted import ScriptedEngine
from pipeline.http.app import Server
from pipeline.recorder import Recorder
from stages.catalog import PROTOCOLS
from stages.events import ErrorInput
from stages.sse import SseDecoder
from store import MemoryStore
from tests.support.asgi import WORDS, Exchange, serving
from tests.support.resuming import Client, Stepping, again, asked, events

ALL = pytest.mark.parametrize("protocol", list(PROTOCOLS))
pytestmark = pytest.mark.anyio


def named(exchange: Exchange) -> str:
    return exchange.headers["x-request-id"]


def error(exchange: Exchange) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(exchange.body)["error"]
    return found


# --- ids ------------------------------------------------------------------------------------------------------------


@ALL
async def test_ids_are_positions(protocol: str) -> None:
    async with serving(MemoryStore()) as server:
        plain = await asked(protocol).run(server)
        numbered = await asked(protocol, query="event_ids=true").run(server)
        whole = events(numbered.body)
        assert len(whole) == len(events(plain.body))
        assert [event.split(b"\n")[0] for event in whole] == [b"id: %d" % n for n in range(1, len(whole) + 1)]
        # The record has none.
        again_plain = await again(named(numbered)).run(server)
        assert events(again_plain.body) == [event.partition(b"\n")[2] for event in whole]
        for after in range(len(whole)):
            for got in (
                await again(named(numbered), f"after={after}&event_ids=1").run(server),
                await again(named(numbered), last_event_id=str(after)).run(server),
            ):
                assert events(got.body) == whole[after:]
        read = SseDecoder().feed(numbered.body)
        assert [event.id for event in read] == [str(n) for n in range(1, len(whole) + 1)]


async def test_what_the_socket_took_is_counted_without_ids() -> None:
    store = MemoryStore()
    async with serving(store) as server:
        got = await asked("chat", query="event_ids=true").run(server)
    trace = store.load(named(got).removeprefix("chatcmpl-"))
    [sent] = trace.events("socket", "frame")
    assert sent.size == sum(len(event.partition(b"\n")[2]) for event in events(got.body))


async def test_a_comment_behind_an_id_ends_no_event() -> None:
    """No blank line follows it: some clients take any that follows an id for an event without data."""
    engine = ScriptedEngine([["Two ", "a day."]], pace=0.3)
    async with serving(MemoryStore(), engine, keep_alive=0.1) as server:
        for got in (
            await asked("chat", query="event_ids=true").run(server),
            await again(named(await asked("chat", query="event_ids=true").run(server)), last_event_id="1").run(server),
        ):
            body = got.body
            assert b"\n\n\n" not in body
            for block in body.split(b"\n\n")[:-1]:
                lines = [line for line in block.split(b"\n") if line != b": keep-alive"]
                assert lines[0].startswith(b"id: ")
                assert lines[-1].startswith(b"data: ")
        first = await asked("chat", query="event_ids=true").run(server)
        assert b"\n\n: keep-alive\n" in first.body
        assert len(SseDecoder().feed(first.body)) == 5


async def test_who_reconnects_behind_the_end_is_told_to_stop() -> None:
    async with serving(MemoryStore()) as server:
        first = await asked("chat").run(server)
        n = len(events(first.body))
        over = await again(named(first), last_event_id=str(n)).run(server)
        assert (over.status, over.body, over.complete) == (204, b"", True)
        assert over.headers == {"x-request-id": named(first)}
        # What a header says is newer than the address, which stays as it was.
        assert (await again(named(first), "after=1", last_event_id=str(n)).run(server)).status == 204
        assert (await again(named(first), f"after={n}").run(server)).status == 200
        assert (await again(named(first), last_event_id=str(n + 1)).run(server)).status == 409
        assert (
            events((await again(named(first), "after=3", last_event_id="").run(server)).body) == events(first.body)[3:]
        )


# --- what cannot be had ---------------------------------------------------------------------------------------------


@ALL
async def test_behind_what_is_on_record(protocol: str) -> None:
    async with serving(MemoryStore()) as server:
        first = await asked(protocol).run(server)
        n = len(events(first.body))
        for after in (n + 1, 10**17):
            got = await again(named(first), f"after={after}").run(server)
            assert got.status == 409
            assert f"this stream has {n} events on record" in error(got)["message"]
            assert got.headers["x-should-retry"] == "false"
            if protocol != "messages":
                assert error(got)["code"] == "position_beyond_tail"
                assert error(got)["param"] == "after"


async def test_behind_what_a_live_stream_has_made() -> None:
    engine: Any = Stepping()
    async with serving(MemoryStore(), engine) as server, anyio.create_task_group() as tasks:
        with Client(asked("chat")).asking(server, tasks) as client:
            await engine.step()
            await engine.step()
            await client.has(1)
            n = len(client.events)
            got = await again(named(client.exchange), f"after={n + 1}").run(server)
            assert got.status == 409
            assert f"{n} event of this stream are on record" in error(got)["message"] or n > 1
            assert "More may be coming" in error(got)["message"]
            engine.go(50)
            await client.whole()


@pytest.mark.parametrize(
    ("query", "headers", "param"),
    [
        ("after=-1", {}, "after"), ("after=1.0", {}, "after"), ("after=", {}, "after"), ("after=x", {}, "after"),
        ("after=٣", {}, "after"), (f"after={'9' * 5000}", {}, "after"), ("event_ids=maybe", {}, "event_ids"),
        ("", {"last_event_id": "seven"}, "Last-Event-ID"),
    ],
)  # fmt: skip
async def test_places_that_are_none(query: str, headers: dict[str, str], param: str) -> None:
    async with serving(MemoryStore()) as server:
        first = await asked("chat").run(server)
        got = await again(named(first), query, **headers).run(server)
        assert (got.status, error(got)["param"]) == (400, param)


@pytest.mark.parametrize("query", ["resume=-1", "resume=soon", "resume=nan", "resume=", "event_ids=yes"])
async def test_wishes_that_are_none(query: str) -> None:
    store = MemoryStore()
    async with serving(store) as server:
        got = await asked("chat", query=query).run(server)
        assert (got.status, error(got)["param"]) == (400, query.partition("=")[0])
    assert list(store.sessions()) == []


@ALL
async def test_sessions_that_are_not_there(protocol: str) -> None:
    prefix = PROTOCOLS[protocol].prefix
    async with serving(MemoryStore()) as server:
        first = await asked("chat").run(server)
        session = named(first).removeprefix("chatcmpl-")
        # A part of an id is no id: it could be guessed.
        for name in ("", session[:-1], session + "0", "0" * 32, "%2e%2e"):
            got = await again(f"{prefix}{name}").run(server)
            assert got.status == 404
            assert "on record" in error(got)["message"]
            assert ("type" in json.loads(got.body)) == (protocol == "messages")


async def test_a_server_that_records_nothing() -> None:
    async with serving(None, record="off") as server:
        got = await again(named(await asked("chat").run(server))).run(server)
        assert got.status == 404
        assert "--record off" in error(got)["message"]


async def test_a_session_that_was_not_in_the_sample() -> None:
    engine: Any = Stepping()
    async with engine:
        server = Server(Config(sample=0.0), engine, Recorder(MemoryStore(), sample=0.0))
        async with server.running(), anyio.create_task_group() as tasks:
            client = Client(asked("chat", query="resume=60"))
            with client.asking(server, tasks):
                await engine.step()
                await engine.step()
                await client.has(1)
                got = await again(named(client.exchange)).run(server)
                assert got.status == 404
                assert "a share of 0 of all is" in error(got)["message"]
            # And it does not go on for anybody: nobody could take it up.
            with anyio.fail_after(20):
                while len(server.live):  # noqa: ASYNC110  # it ends in its own time
                    await anyio.sleep(0.001)
            got = await again(named(client.exchange)).run(server)
            assert "was not in the share of 0 that is" in error(got)["message"]


# --- what is no stream ----------------------------------------------------------------------------------------------


@ALL
async def test_a_whole_answer(protocol: str) -> None:
    async with serving(MemoryStore()) as server:
        first = await asked(protocol, stream=False).run(server)
        for query in ("", "after=0", "event_ids=true"):
            got = await again(named(first), query).run(server)
            assert (got.status, got.headers, got.body) == (200, first.headers, first.body)
        got = await again(named(first), "after=1").run(server)
        assert got.status == 409
        assert "is not a stream" in error(got)["message"]


async def test_a_whole_answer_that_is_being_made() -> None:
    engine: Any = Stepping()
    async with serving(MemoryStore(), engine, keep_alive=0.05) as server:
        async with anyio.create_task_group() as tasks:
            with Client(asked("chat", stream=False)).asking(server, tasks) as client:
                await engine.step()
                [session] = server.live.sessions()
                with Client(again(session.opening.session)).asking(server, tasks) as reader:
                    # It is silent: nothing can be said before the head.
                    await anyio.sleep(0.2)
                    assert reader.exchange.sent == []
                    engine.go(50)
                    with anyio.fail_after(20):
                        while not (reader.exchange.complete and client.exchange.complete):  # noqa: ASYNC110  # both end in their time
                            await anyio.sleep(0.001)
                    assert reader.exchange.body == client.exchange.body


async def test_an_error_before_the_first_byte() -> None:
    engine = ScriptedEngine([[ErrorInput("overloaded", "Too much.")]])
    async with serving(MemoryStore(), engine) as server:
        first = await asked("chat").run(server)
        got = await again(named(first)).run(server)
        assert (got.status, got.body) == (first.status, first.body)


async def test_a_head_alone() -> None:
    async with serving(MemoryStore()) as server:
        first = await asked("chat").run(server)
        head = Exchange(b"", method="HEAD", path=f"/v1/streams/{named(first)}")
        got = await head.run(server)
        assert (got.status, got.headers, got.body, got.complete) == (200, first.headers, b"", True)


# --- lean -----------------------------------------------------------------------------------------------------------


@ALL
@pytest.mark.parametrize("stream", [True, False])
async def test_a_lean_session_is_made_again(protocol: str, stream: bool) -> None:
    store = MemoryStore()
    async with ScriptedEngine(WORDS) as engine:
        server = Server(Config(record="lean"), engine, Recorder(store, mode="lean"))
        async with server.running():
            first = await asked(protocol, stream=stream).run(server)
            assert ("served", "frame") not in store.load(named(first)[-32:]).records
            whole = events(first.body) if stream else [first.body]
            for after in range(len(whole) if stream else 1):
                got = await again(named(first), f"after={after}").run(server)
                assert (got.status, got.headers, got.body) == (200, first.headers, b"".join(whole[after:]))


async def test_a_lean_session_is_followed() -> None:
    engine: Any = Stepping()
    async with engine:
        server = Server(Config(record="lean"), engine, Recorder(MemoryStore(), mode="lean"))
        async with server.running(), anyio.create_task_group() as tasks:
            with Client(asked("chat", query="resume=60")).asking(server, tasks) as client:
                await engine.step()
                await engine.step()
                await client.has(1)
            with Client(again(named(client.exchange))).asking(server, tasks) as reader:
                await reader.has(1)
                engine.go(50)
                whole = await reader.whole()
            assert (whole[: len(client.events)], whole[-1]) == (client.events, b"data: [DONE]\n\n")


# --- readers --------------------------------------------------------------------------------------------------------


async def test_a_slow_reader_holds_up_nobody_and_costs_a_piece() -> None:
    """It takes one write, and then no more; the session ends, others read all of it, and what waits for the slow one
    is not in memory."""
    engine = ScriptedEngine(lambda _request: [["word " * 50] * 2500])
    async with serving(MemoryStore(), engine) as server, anyio.create_task_group() as tasks:
        first = await asked("chat").run(server)
        slow = again(named(first))
        taken = 0
        never = anyio.Event()
        put = slow.send

        async def send(message: Message) -> None:
            nonlocal taken
            taken += len(message.get("body", b""))
            if taken:
                await never.wait()
            await put(message)

        slow.send = send  # type: ignore[method-assign]  # a client that does not read
        tracemalloc.start()
        tasks.start_soon(slow.run, server)
        with anyio.fail_after(20):
            while not taken:  # noqa: ASYNC110  # a thread reads
                await anyio.sleep(0.001)
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert held < len(first.body) // 4
        assert taken < len(first.body) // 4
        got = await again(named(first)).run(server)
        assert got.body == first.body
        slow.leave()


@ALL
async def test_what_is_deleted_while_it_is_read_says_so(protocol: str) -> None:
    store = MemoryStore()
    async with serving(store, ScriptedEngine([["Two "] * 600])) as server:
        first = await asked(protocol, max_tokens=1000).run(server)
        await anyio.to_thread.run_sync(store.flush)
        [info] = store.sessions()
        reader = again(info.session)

        def deleted(message: Message) -> None:
            if message.get("body") and list(store.sessions()):
                store.delete(info.session)

        reader.on_send = deleted
        await reader.run(server)
    whole, told = events(first.body), events(reader.body)
    read = next(n for n, (one, other) in enumerate(zip(whole, told, strict=False)) if one != other)
    assert read > 100
    if protocol == "messages":
        assert told[read].startswith(b"event: content_block_stop\n")
        read += 1
    assert b"was deleted while it was read" in told[read]
    if protocol == "responses":
        assert b'"sequence_number":%d,' % read in told[read]
    assert len(told) - read <= 2  # the error, and [DONE]
