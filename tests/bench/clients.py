"""What a streamed frame costs in each HTTP client: the comparison behind docs/adr/0011.

A server in another process sends 300-byte SSE frames, a chunk each and each in a write of its own, on some streams at
once, paced so that a read has one frame; the client reads raw bytes and drops them. CPU µs of the client's process per
frame: the median of several rounds, the clients in turn within a round. ``python -m tests.bench.clients``

A client that is not installed is left out: only the first is a dependency of ours.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any, Final, TypeAlias, cast

import aiohttp
import uvloop
from rich.console import Console
from rich.table import Table

from pipeline.upstream.client import Client
from pipeline.upstream.settings import from_url

STREAMS: Final = 8
FRAMES: Final = 250
PACE: Final = 0.002
"""Seconds between two frames of a stream."""
ROUNDS: Final = 7
_DATA: Final = b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"'
FRAME: Final = _DATA + b"x" * (300 - len(_DATA) - 7) + b'"}}]}\n\n'

Read: TypeAlias = Callable[[], Awaitable[int]]
"""Reads one response to its end; its bytes."""
Opened: TypeAlias = Callable[[str], AbstractAsyncContextManager[Read]]
"""A client that stays open, for a server (host:port)."""


# --- the server -------------------------------------------------------------------------------------------------------


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    chunk = b"%x\r\n%b\r\n" % (len(FRAME), FRAME)
    try:
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
            for _ in range(FRAMES):
                await asyncio.sleep(PACE)
                writer.write(chunk)
            writer.write(b"0\r\n\r\n")
    except asyncio.IncompleteReadError:
        writer.close()


async def _serve() -> None:
    server = await asyncio.start_server(_answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextmanager
def _server() -> Generator[str]:
    command = [sys.executable, "-m", "tests.bench.clients", "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


# --- the clients ------------------------------------------------------------------------------------------------------


class _Bare(asyncio.Protocol):
    """No HTTP: what the event loop itself takes to receive."""

    def __init__(self) -> None:
        self.size = 0
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")

    def data_received(self, data: bytes) -> None:
        self.size += len(data)
        if data.endswith(b"0\r\n\r\n"):
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set_result(self.size)


@asynccontextmanager
async def _bare(address: str) -> AsyncGenerator[Read]:
    host, _, port = address.partition(":")

    async def read() -> int:
        _, protocol = await asyncio.get_running_loop().create_connection(_Bare, host, int(port))
        return int(await protocol.ended)

    yield read


@asynccontextmanager
async def _ours(address: str) -> AsyncGenerator[Read]:
    async with Client(from_url(f"http://{address}", {})) as client:

        async def read() -> int:
            return await _size((await client.send("GET", "/", [])).reads())

        yield read


@asynccontextmanager
async def _aiohttp(address: str) -> AsyncGenerator[Read]:
    async with aiohttp.ClientSession(auto_decompress=False, timeout=aiohttp.ClientTimeout(total=None)) as session:

        async def read() -> int:
            async with session.get(f"http://{address}/") as response:
                return await _size(response.content.iter_any())

        yield read


def _httpx(module: str) -> Opened:
    @asynccontextmanager
    async def opened(address: str) -> AsyncGenerator[Read]:
        httpx: Any = importlib.import_module(module)
        async with httpx.AsyncClient(timeout=None, trust_env=False) as client:

            async def read() -> int:
                async with client.stream("GET", f"http://{address}/") as response:
                    return await _size(response.aiter_raw())

            yield read

    return opened


@asynccontextmanager
async def _niquests(address: str) -> AsyncGenerator[Read]:
    niquests: Any = importlib.import_module("niquests")
    async with niquests.AsyncSession() as session:

        async def read() -> int:
            response = await session.get(f"http://{address}/", stream=True)
            return await _size(await response.iter_raw(-1))

        yield read


@asynccontextmanager
async def _curl(address: str) -> AsyncGenerator[Read]:
    curl: Any = importlib.import_module("curl_cffi")
    async with curl.AsyncSession() as session:

        async def read() -> int:
            async with session.stream("GET", f"http://{address}/") as response:
                return await _size(response.aiter_content())

        yield read


CLIENTS: Final[tuple[tuple[str, str, Opened], ...]] = (
    ("no HTTP at all", "asyncio", _bare),
    ("aiohttp", "aiohttp", _aiohttp),
    ("aiohttp, as pipeline.upstream.client has it", "aiohttp", _ours),
    ("httpx2", "httpx2", _httpx("httpx2")),
    ("httpx", "httpx", _httpx("httpx")),
    ("niquests", "niquests", _niquests),
    ("curl_cffi", "curl_cffi", _curl),
)
"""(name, module, how it is opened)."""


async def _size(reads: AsyncIterator[bytes]) -> int:
    size = 0
    async for data in reads:
        size += len(data)
    return size


async def _cost(opened: Opened, address: str) -> float:
    async with opened(address) as read:
        await read()
        gc.collect()
        start = time.process_time_ns()
        sizes = await asyncio.gather(*(read() for _ in range(STREAMS)))
        took = time.process_time_ns() - start
    assert all(size >= len(FRAME) * FRAMES for size in sizes), sizes
    return took / 1000 / (STREAMS * FRAMES)


def _installed(module: str) -> bool:
    try:
        importlib.import_module(module)
    except ImportError:
        return False
    return True


def main() -> None:
    """Run all and print the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--serve", action="store_true", help="be the server")
    if options.parse_args().serve:
        uvloop.run(_serve())
        return
    clients = [client for client in CLIENTS if _installed(client[1])]
    found: dict[str, list[float]] = {name: [] for name, _, _ in clients}
    with _server() as address:
        for _ in range(ROUNDS + 1):
            for name, _, opened in clients:
                found[name].append(uvloop.run(_cost(opened, address)))
    # The first round imports, and fills caches.
    medians = {name: statistics.median(costs[1:]) for name, costs in found.items()}
    table = Table(box=None, header_style="dim")
    for column in ("client", "µs/frame", "ratio"):
        table.add_column(column, justify="left" if column == "client" else "right")
    for name, cost in medians.items():
        table.add_row(name, f"{cost:.1f}", f"{cost / medians['aiohttp']:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
