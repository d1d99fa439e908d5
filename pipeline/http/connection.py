"""One HTTP connection, as a session sees it: has the socket taken what was written, and how to be rid of it at once."""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from typing import Protocol, cast

from starlette.types import Scope

from pipeline.http.guard import Guarded

if sys.platform == "linux":
    import fcntl
    import termios

UNSENT = 64 * 1024
"""Bytes that the kernel takes beyond what is on its way to the client. Its own limit is megabytes for each client."""
_RESET = struct.pack("ii", 1, 0)


class Link(Protocol):
    """What a session's writer needs of a connection."""

    @property
    def unsent(self) -> int:
        """Bytes written that the socket has not taken yet."""
        ...

    @property
    def unread(self) -> int:
        """Bytes written that the client's side has not taken yet, as far as the system tells: ``unsent`` and what the
        kernel holds. As long as it falls, the client reads."""
        ...

    async def drained(self) -> None:
        """Wait until the socket has taken everything. Raises ConnectionResetError where the connection is lost."""
        ...

    async def abort(self) -> None:
        """Close now, whatever is unsent, and return when it is closed. Idempotent."""
        ...

    async def close(self) -> None:
        """Close behind what was written, and return when it is closed. Idempotent."""
        ...


def link_of(scope: Scope) -> Link | None:
    """The connection of a request; None under a server that does not tell."""
    found = scope.get("extensions", {}).get("playhead", {}).get("link")
    return cast("Link | None", found)


class Connection(Guarded):
    """uvicorn's HTTP/1.1 protocol, and a Link, which every request finds in its scope.

    uvicorn lets 64 KiB wait in the process before a write waits, and closes a connection only when its client has read
    all of that. Here a write waits for the socket, and a client that does not read cannot hold the connection.
    """

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        made = cast(asyncio.Transport, transport)
        super().connection_made(made)
        self._lost = asyncio.Event()
        made.set_write_buffer_limits(high=0)
        self._socket: socket.socket = made.get_extra_info("socket")
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        lowat: int | None = getattr(socket, "TCP_NOTSENT_LOWAT", None)
        if lowat is not None:
            self._socket.setsockopt(socket.IPPROTO_TCP, lowat, UNSENT)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        super().connection_lost(exc)
        self._lost.set()

    def on_message_begin(self) -> None:
        """See httptools."""
        super().on_message_begin()
        self.scope["extensions"] = {"playhead": {"link": self}}

    @property
    def unsent(self) -> int:
        """See Link."""
        return self.transport.get_write_buffer_size()

    @property
    def unread(self) -> int:
        """See Link."""
        return 0 if self._lost.is_set() else self.unsent + _unacknowledged(self._socket)

    async def drained(self) -> None:
        """See Link."""
        await self.flow.drain()
        if self._lost.is_set():
            raise ConnectionResetError

    async def abort(self) -> None:
        """See Link. The peer is sent a reset: after a mere close the kernel would go on offering it the rest."""
        if not self._lost.is_set():
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self.transport.abort()
            await self._lost.wait()

    async def close(self) -> None:
        """See Link."""
        self.transport.close()
        await self._lost.wait()


def connection(patience: float) -> type[Connection]:
    """The protocol of a server that gives a client ``patience`` seconds to send a request's head."""
    return type("Connection", (Connection,), {"patience": patience})


def _unacknowledged(sock: socket.socket) -> int:
    if sys.platform != "linux":
        return 0
    return int.from_bytes(fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4)), sys.byteorder)
