"""Clients: many streams at once on raw sockets, and when each frame came. A process of its own, for ``proxy``.

``python -m tests.bench.load PORT STREAMS MODEL`` prints a JSON list: ``{"id", "asked", "came"}`` for each stream, with
unix ns.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from typing import Any, cast

import uvloop

STAGGER = 1.0
"""Seconds over which the streams begin."""
_ID = re.compile(rb'"id":"([^"]+)"')


class Client(asyncio.Protocol):
    """One stream."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._tail = b""
        self._head = b""
        self.asked = 0
        self.came: list[int] = []
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask."""
        self.asked = time.time_ns()
        cast("asyncio.Transport", transport).write(self._request)  # uvloop's is no subclass

    def data_received(self, data: bytes) -> None:
        """Count the blank lines; those of HTTP itself have a carriage return between."""
        now = time.time_ns()
        if len(self._head) < 1000:
            self._head += data
        self.came += [now] * (self._tail + data).count(b"\n\n")
        self._tail = data[-1:] if data[-2:] != b"\n\n" else b""

    def connection_lost(self, exc: Exception | None) -> None:
        """The server ends the connection behind the answer."""
        self.over.set_result(None)

    def report(self) -> dict[str, Any]:
        """What is printed of it."""
        found = _ID.search(self._head)
        assert found is not None, self._head
        return {"id": found.group(1).decode(), "asked": self.asked, "came": self.came}


async def load(port: int, streams: int, model: str) -> list[dict[str, Any]]:
    """Run them all."""
    body = json.dumps({"model": model, "stream": True, "messages": [{"role": "user", "content": "go"}]}).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nConnection: close\r\n"
    )
    request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    clients: list[Client] = []
    for _ in range(streams):
        _, client = await asyncio.get_running_loop().create_connection(lambda: Client(request), "127.0.0.1", port)
        clients.append(client)
        await asyncio.sleep(STAGGER / streams)
    await asyncio.gather(*(client.over for client in clients))
    return [client.report() for client in clients]


def main() -> None:
    """Run, and print."""
    port, streams, model = sys.argv[1:]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        json.dump(runner.run(load(int(port), int(streams), model)), sys.stdout)


if __name__ == "__main__":
    main()
