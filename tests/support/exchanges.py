"""What tests of the HTTP client share: requests, what became of them, and the loops on which aiohttp runs."""

from __future__ import annotations

from functools import partial
from typing import Any

import anyio.to_thread
import pytest

from pipeline.upstream.client import Client, Exchange, RequestBody
from pipeline.upstream.errors import UpstreamFault
from pipeline.upstream.settings import from_url
from tests.support.upstreams import PATIENCE, Server

PARTS = (b"data: a\n\n", b"data: bcd\n\n", b"data: [DONE]\n\n")
LOOPS = pytest.mark.parametrize(
    "anyio_backend", [("asyncio", {"use_uvloop": False}), ("asyncio", {"use_uvloop": True})], ids=["asyncio", "uvloop"]
)
"""Not trio: aiohttp is asyncio's."""


def client(server: Server | str, **fields: Any) -> Client:
    """A client of this server."""
    url = server if isinstance(server, str) else server.url
    return Client(from_url(url, {}, name="a", **fields))


async def post(one: Client, body: RequestBody = b"{}") -> Exchange:
    """A chat request."""
    return await one.send("POST", "/v1/chat/completions", [("content-type", "application/json")], body)


async def whole(exchange: Exchange) -> bytes:
    """The body to its end."""
    return b"".join([data async for data in exchange.reads()])


async def read_on(exchange: Exchange, into: list[bytes]) -> None:
    """The body, read by read."""
    while data := await exchange.read():
        into.append(data)


async def fault_of(one: Client) -> tuple[UpstreamFault, bytes]:
    """The fault of a request, and what came before it."""
    read: list[bytes] = []
    with pytest.raises(UpstreamFault) as raised:
        await read_on(await post(one), read)
    return raised.value, b"".join(read)


async def gone(server: Server) -> None:
    """A client has left while the server held its answer."""
    assert await anyio.to_thread.run_sync(partial(server.gone.acquire, timeout=PATIENCE))
