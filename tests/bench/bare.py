"""A bare proxy, to compare with: the same client and the same server, and nothing between them.

``python -m tests.bench.bare URL PORT``
"""

from __future__ import annotations

import sys
from typing import Any

import aiohttp
import uvicorn


class Bare:
    """An ASGI application that passes every request on, and every read of the answer back."""

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self._client: aiohttp.ClientSession | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """See ASGI."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        body = b""
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        assert self._client is not None
        kind = {"content-type": "application/json"}
        async with self._client.request(
            scope["method"], self._upstream + scope["path"], data=body, headers=kind
        ) as answer:
            headers = [(b"content-type", answer.headers.get("content-type", "").encode())]
            await send({"type": "http.response.start", "status": answer.status, "headers": headers})
            async for data in answer.content.iter_any():
                await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _live(self, receive: Any, send: Any) -> None:
        await receive()
        limit = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=limit, auto_decompress=False) as self._client:
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})


def main() -> None:
    """Serve."""
    upstream, port = sys.argv[1:]
    uvicorn.run(Bare(upstream), host="127.0.0.1", port=int(port), log_level="warning", loop="uvloop", http="httptools")


if __name__ == "__main__":
    main()
