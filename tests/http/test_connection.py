"""What is on the wire, and what a session is told of its socket, on both event loops that a server may run."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
import uvloop
from starlette.types import ASGIApp, Receive, Scope, Send

from pipeline.http.connection import UNSENT, Connection, Link, link_of
from stages.events import Head
from tests.support.server import PATIENCE, Running
from tests.support.sockets import Reader

HEAD = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]}
REQUEST = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
BLOCK = b"x" * 1000
LOOPS = {"asyncio": asyncio.run, "uvloop": uvloop.run}


def on_each_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[Any], None]:
    """Runs the test on asyncio's loop and on uvloop."""

    def run(runner: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        runner(asyncio.wait_for(test(), PATIENCE))

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    made: Callable[[Any], None] = pytest.mark.parametrize("runner", LOOPS.values(), ids=LOOPS)(run)
    return made


@asynccontextmanager
async def client_of(app: ASGIApp) -> AsyncGenerator[socket.socket]:
    """A client that has sent a request to the application and takes in little."""
    server = uvicorn.Server(uvicorn.Config(app, http=Connection, lifespan="off", log_level="warning", ws="none"))
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(PATIENCE)
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        await asyncio.to_thread(client.connect, listening.getsockname())
        client.sendall(REQUEST)
        yield client
        client.close()
        server.should_exit = True
        await serving


def link(scope: Scope) -> Link:
    found = link_of(scope)
    assert found is not None
    return found


async def fill(send: Send, link: Link) -> int:
    """Write until the socket takes no more; the bytes of the body."""
    size = 0
    while not link.unsent:
        await send({"type": "http.response.body", "body": BLOCK, "more_body": True})
        size += len(BLOCK)
    return size


@on_each_loop
async def test_small_writes_are_not_held_back() -> None:
    told: asyncio.Queue[int] = asyncio.Queue()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        connection = link(scope)
        assert isinstance(connection, Connection)
        sock = connection.transport.get_extra_info("socket")
        told.put_nowait(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        await send(HEAD)
        await send({"type": "http.response.body"})

    async with client_of(app):
        assert await told.get() == 1


@on_each_loop
async def test_a_write_waits_for_a_client_that_does_not_read() -> None:
    """Little is taken before it does, and all of it is there when it does."""
    filled: asyncio.Queue[int] = asyncio.Queue()
    drained = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        connection = link(scope)
        await send(HEAD)
        await connection.drained()
        assert connection.unsent == 0
        filled.put_nowait(await fill(send, connection))
        assert 0 < connection.unsent < connection.unread
        await connection.drained()
        assert connection.unsent == 0
        drained.set()
        await send({"type": "http.response.body"})

    async with client_of(app) as client:
        size = await filled.get()
        assert size < UNSENT + 100_000
        await asyncio.sleep(0)
        assert not drained.is_set()
        reader = await asyncio.to_thread(Reader, client)
        assert b"".join(await asyncio.to_thread(reader.rest)) == b"x" * size
        await drained.wait()


@on_each_loop
async def test_what_is_unread_falls_as_the_client_reads() -> None:
    """And not before: so one that is slow can be told from one that stalls."""
    told: asyncio.Queue[int] = asyncio.Queue()
    fallen = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        connection = link(scope)
        await send(HEAD)
        await fill(send, connection)
        before = connection.unread
        told.put_nowait(before)
        while connection.unread >= before:  # noqa: ASYNC110  (the kernel tells nobody)
            await asyncio.sleep(0.001)
        fallen.set()
        await connection.abort()

    async with client_of(app) as client:
        size = await told.get()
        assert not fallen.is_set()
        # More than its side of the connection holds.
        for _ in range(size // 4096):
            if not fallen.is_set():
                await asyncio.to_thread(client.recv, 4096)
        await fallen.wait()


@on_each_loop
async def test_an_abort_closes_at_once_and_says_so() -> None:
    seen: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        connection = link(scope)
        await receive()
        await send(HEAD)
        await fill(send, connection)
        await connection.abort()
        await connection.abort()
        with pytest.raises(ConnectionResetError):
            await connection.drained()
        assert isinstance(connection, Connection)
        while connection.transport.get_extra_info("socket").fileno() >= 0:  # noqa: ASYNC110  (the loop closes it)
            await asyncio.sleep(0)
        # Who looks now, because its patience ended in the same moment, finds nothing, and nothing to fail on.
        assert (connection.unsent, connection.unread) == (0, 0)
        seen.put_nowait(dict(await receive()))

    async with client_of(app) as client:
        assert await seen.get() == {"type": "http.disconnect"}
        reader = await asyncio.to_thread(Reader, client)
        with pytest.raises(ConnectionResetError):
            await asyncio.to_thread(reader.rest)


def test_under_another_server_there_is_no_link() -> None:
    assert link_of({"type": "http"}) is None
    assert link_of({"type": "http", "extensions": {"http.response.debug": {}}}) is None


# --- the whole server -----------------------------------------------------------------------------------------------


def ask(running: Running, body: bytes) -> bytes:
    """A request as a client writes it that takes compressed answers and calls JSON what it wants."""
    head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    head += (
        f"accept: application/json\r\naccept-encoding: gzip, deflate, br, zstd\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def test_a_stream_on_the_wire(server: Running) -> None:
    """Twice over one connection: the first body ends with its last event, and nothing of it is left."""
    body = b'{"messages": [{"role": "user", "content": "?"}], "stream": true}'
    with running_socket(server) as client:
        seen: set[str] = set()
        for _ in range(2):
            client.sendall(ask(server, body))
            reader = Reader(client)
            assert reader.status == "HTTP/1.1 200 OK"
            names = [name for name, _ in reader.headers]
            assert len(names) == len(set(names))
            headers = dict(reader.headers)
            assert headers["content-type"] == "text/event-stream; charset=utf-8"
            assert headers["cache-control"] == "no-cache, no-transform"
            assert headers["x-accel-buffering"] == "no"
            assert headers["transfer-encoding"] == "chunked"
            assert not {"content-length", "content-encoding"} & set(names)
            assert headers.get("connection", "keep-alive") == "keep-alive"
            chunks = reader.rest()
            assert all(chunk.endswith(b"\n\n") for chunk in chunks)
            assert chunks[-1].endswith(b"data: [DONE]\n\n")
            trace = server.recorded(headers["x-request-id"])
            head, *frames = trace.events("served", "frame")
            assert isinstance(head, Head)
            assert set(head.headers) <= set(reader.headers)
            assert b"".join(chunks) == b"".join(frame.data for frame in frames)
            seen.add(headers["x-request-id"])
        assert len(seen) == 2


def test_a_body_on_the_wire(server: Running) -> None:
    with running_socket(server) as client:
        client.sendall(ask(server, b'{"messages": [{"role": "user", "content": "?"}]}'))
        reader = Reader(client)
    headers = dict(reader.headers)
    assert headers["content-type"] == "application/json"
    assert int(headers["content-length"]) > 0
    assert not {"transfer-encoding", "content-encoding"} & set(headers)
    assert headers["x-request-id"].startswith("chatcmpl-")


def running_socket(running: Running) -> socket.socket:
    host, _, port = running.address.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), PATIENCE)
