"""ASGI and sessions: reads a body within its limit, writes a session's frames, notices who leaves."""

from __future__ import annotations

import logging
from collections.abc import Generator, Sequence
from contextlib import contextmanager

import anyio
from starlette.types import Receive, Send

from pipeline.session import AbortBy, Session
from stages.errors import RequestError
from stages.events import Block, Body, Comment, ErrorInput, Failure, Frame, Head, UsageInput
from store.api import StoreError

log = logging.getLogger("playhead.http")


class Live:
    """The sessions that run now, so that a shutdown can let them finish, abort them, or leave their clients."""

    def __init__(self) -> None:
        self._sessions: dict[Session, anyio.CancelScope] = {}
        self.closing = False
        """The server takes no new sessions."""

    def __len__(self) -> int:
        return len(self._sessions)

    @contextmanager
    def holding(self, session: Session) -> Generator[anyio.CancelScope]:
        """Counts the session while the block runs. The scope is for the writing of its frames: nothing but ``leave``
        cancels it."""
        scope = self._sessions[session] = anyio.CancelScope(shield=True)
        try:
            yield scope
        finally:
            del self._sessions[session]

    def abort(self, by: AbortBy) -> None:
        """Abort all."""
        for session in list(self._sessions):
            session.abort(by)

    def leave(self) -> None:
        """Write no further to the clients that do not read."""
        for scope in self._sessions.values():
            scope.cancel()


async def read_body(receive: Receive, limit: int, seconds: float) -> bytes | None:
    """The body; None when the client left before it was whole. Raises RequestError: 413 past ``limit`` bytes, 408 when
    it takes longer than ``seconds``."""
    try:
        with anyio.fail_after(seconds):
            return await _whole_body(receive, limit)
    except TimeoutError as error:
        message = f"The request body did not arrive within {seconds:g} seconds."
        raise RequestError(message, code="request_timeout", status=408) from error


async def _whole_body(receive: Receive, limit: int) -> bytes | None:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise RequestError(
                f"The request body is larger than the {limit} bytes that this server takes.",
                code="request_too_large",
                status=413,
            )
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


class FrameWriter:
    """Writes frames to an ASGI ``send`` until the client has left, and counts what was handed over."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.seq = 0
        """Frames handed to the socket."""
        self.size = 0
        """Body bytes among them."""
        self.status = 0
        """Of the response; 0: none was begun."""
        self.gone = False
        """The client has left: servers take what is written then, and throw it away."""

    async def write(self, frames: Sequence[Frame]) -> None:
        """Frames that wait together leave in one write, whole. Raises OSError where the server does."""
        parts: list[bytes] = []
        for frame in frames:
            match frame:
                case Head(status=status, headers=headers):
                    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
                    await self._send({"type": "http.response.start", "status": status, "headers": raw})
                    self.status = status
                    self._handed(1)
                case Block(data=data) | Comment(data=data) | Body(data=data):
                    parts.append(data)
        if parts:
            data = b"".join(parts)
            await self._send({"type": "http.response.body", "body": data, "more_body": True})
            self._handed(len(parts), len(data))

    def _handed(self, frames: int, size: int = 0) -> None:
        if not self.gone:
            self.seq += frames
            self.size += size

    async def finish(self) -> None:
        """End the body."""
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})


async def serve_session(session: Session, receive: Receive, send: Send, writing: anyio.CancelScope) -> None:
    """Run a session against one client, to its end, whatever the client does. ``writing``: shielded; cancelled by who
    gives the client up."""
    writer = FrameWriter(send)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_watch_client, session, writer, receive)
            async with anyio.create_task_group() as running:
                running.start_soon(session.run)
                with writing:
                    await _write_frames(session, writer)
            tasks.cancel_scope.cancel()
    finally:
        session.recorder.sent(writer.seq, writer.size)
        # Closed is only what came to its own end: a stage of ours that raised has none.
        session.recorder.close("closed" if session.ended and not session.aborted_by else "aborted")
        _log(session, writer)


def _log(session: Session, writer: FrameWriter) -> None:
    """A line of facts: nothing that was said."""
    last = session.last
    tokens = f"tokens {last.prompt} + {last.completion}" if isinstance(last, UsageInput) else "tokens unknown"
    failed = f", {last.kind}" if isinstance(last, ErrorInput) else ""
    aborted = f", aborted by {session.aborted_by}" if session.aborted_by else ""
    log.info(
        "POST /v1/chat/completions %s: session %.14s, %s, %.0f ms%s%s",
        writer.status or "-", session.opening.session, tokens, session.recorder.elapsed() / 1e6, failed, aborted,
    )  # fmt: skip


async def _write_frames(session: Session, writer: FrameWriter) -> None:
    held: list[Frame] = []
    async with session.frames as frames:
        async for batch in frames:
            if session.recorder.strict and session.ended:
                # The last frames leave only after everything before them is on disk.
                held += batch
            else:
                await _write(session, writer, batch)
    if held and not writer.gone:
        await _write(session, writer, await _when_durable(session, held, writer.seq > 0))
    if writer.seq and not writer.gone:
        try:
            await writer.finish()
        except OSError:
            writer.gone = True


async def _when_durable(session: Session, held: list[Frame], begun: bool) -> list[Frame]:
    """The last frames of a strict session once all is committed; an error in their place where it cannot be."""
    try:
        await session.recorder.committed()
    except StoreError:
        failure = Failure("overloaded", "The session could not be recorded, and this server must.", "store_unavailable")
        return session.error_frames(failure, begun=begun)
    return held


async def _write(session: Session, writer: FrameWriter, frames: list[Frame]) -> None:
    if writer.gone:
        return
    try:
        await writer.write(frames)
    except OSError:
        # Servers that raise on a closed connection instead of ignoring the write.
        writer.gone = True
        session.abort("client")


async def _watch_client(session: Session, writer: FrameWriter, receive: Receive) -> None:
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            writer.gone = True
            session.abort("client")
            return
