"""ASGI and sessions: reads a body within its limit, writes a session's frames, notices who leaves."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from math import inf
from typing import Literal, NamedTuple, Protocol

import anyio
from starlette.types import Message, Receive, Send

from pipeline import channels
from pipeline.http.connection import Link
from pipeline.recorder import SessionRecorder
from pipeline.session import AbortBy
from stages.errors import RequestError
from stages.events import Block, Body, Comment, ErrorInput, Failure, Frame, Head, Input, UsageInput
from stages.opening import Opening
from store.api import Ended, StoreError

log = logging.getLogger("playhead.http")


class Session(Protocol):
    """What is served: a session of our stages, or one that relays another server's response."""

    @property
    def opening(self) -> Opening:
        """What it is."""
        ...

    @property
    def path(self) -> str:
        """What the client asked for."""
        ...

    @property
    def recorder(self) -> SessionRecorder:
        """Its recording."""
        ...

    @property
    def frames(self) -> channels.Source[Frame]:
        """What the client is to get; ends with the session."""
        ...

    @property
    def aborted_by(self) -> AbortBy | None:
        """Who, other than the engine, ended it."""
        ...

    @property
    def last(self) -> Input | None:
        """What the engine said last."""
        ...

    @property
    def ended(self) -> bool:
        """It came to an end of its own: what is still to come are the last frames."""
        ...

    @property
    def broken(self) -> bool:
        """Its response has ended before it was whole, and nothing in it says so."""
        ...

    @property
    def keep_alive(self) -> float:
        """Seconds of silence before a comment; 0: never."""
        ...

    async def run(self) -> None:
        """Serve until the last frame is in ``frames``."""
        ...

    def abort(self, by: AbortBy) -> None:
        """End it. Idempotent."""
        ...

    def error_frames(self, failure: Failure, *, begun: bool) -> list[Frame]:
        """The frames of a failure that is not part of the record. ``begun``: a head has been sent."""
        ...


class Live:
    """The sessions that run now, so that a shutdown can let them finish, abort them, or leave their clients."""

    def __init__(self) -> None:
        self._sessions: dict[Session, anyio.CancelScope] = {}
        self.closing = False
        """The server takes no new sessions."""
        self.opened = 0
        """Sessions since the start."""

    def __len__(self) -> int:
        return len(self._sessions)

    @contextmanager
    def holding(self, session: Session) -> Generator[anyio.CancelScope]:
        """Counts the session while the block runs. The scope is for the writing of its frames: nothing but ``leave``
        cancels it."""
        self.opened += 1
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


class Stall(NamedTuple):
    """What becomes of a client that takes nothing of a write for ``after`` seconds: ``wait`` for it, ``detach`` it and
    let the session go on, or ``abort`` the session."""

    then: Literal["wait", "detach", "abort"] = "wait"
    after: float = inf


WAIT = Stall()
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


class Stalled(OSError):
    """The client takes nothing."""


class FrameWriter:
    """Writes frames to an ASGI ``send`` until the client is gone, and counts what the socket has taken.

    ``link``: the connection beneath, which tells what was taken; without one, it is what ``send`` took. ``patience``:
    seconds without a byte taken until a write raises Stalled.
    """

    def __init__(self, send: Send, link: Link | None = None, patience: float = inf) -> None:
        self._send = send
        self._link = link
        self._patience = patience
        self.seq = 0
        """Frames that the socket took."""
        self.size = 0
        """Body bytes among them."""
        self.status = 0
        """Of the response; 0: none was begun."""
        self.gone = False
        """The client has left, or was left: servers take what is written then, and throw it away."""
        self.missed = False
        """There were frames that the client did not get."""

    async def write(self, frames: Sequence[Frame]) -> None:
        """Frames that wait together leave in one write, whole. Raises OSError where the server does, or the client does
        not take it."""
        parts: list[bytes] = []
        for frame in frames:
            match frame:
                case Head(status=status, headers=headers):
                    raw = _on_wire(status, headers)
                    await self._put({"type": "http.response.start", "status": status, "headers": raw})
                    self.status = status
                    self._handed(1)
                case Block(data=data) | Comment(data=data) | Body(data=data):
                    parts.append(data)
        if parts:
            data = b"".join(parts)
            await self._put({"type": "http.response.body", "body": data, "more_body": True})
            self._handed(len(parts), len(data))

    def _handed(self, frames: int, size: int = 0) -> None:
        if self.gone:
            self.missed = True
        else:
            self.seq += frames
            self.size += size

    async def finish(self) -> None:
        """End the body. Raises as ``write`` does."""
        await self._put({"type": "http.response.body", "body": b"", "more_body": False})

    async def break_off(self) -> None:
        """Close the connection behind what was written: the body is not whole, and nothing else can say so."""
        self.gone = True
        if self._link is not None:
            with anyio.CancelScope(shield=True):
                await self._link.close()

    async def drop(self) -> None:
        """Close the connection now: the client is not waited for any more."""
        self.gone = True
        if self._link is not None:
            with anyio.CancelScope(shield=True):
                await self._link.abort()

    async def _put(self, message: Message) -> None:
        link = self._link
        if link is None or link.unsent:
            with anyio.move_on_after(self._patience) as scope:
                await self._send(message)
            if scope.cancelled_caught:
                raise Stalled
        else:
            # There is room: the server does not wait. A scope would cost as much as the rest.
            await self._send(message)
        if link is not None:
            await (self._taken(link) if link.unsent else link.drained())

    async def _taken(self, link: Link) -> None:
        """Wait until the socket has taken all. A client that takes little is slow, and may be; four looks in a row tell
        one that takes nothing."""
        idle, unread = 0, link.unread if link.unsent else 0
        while link.unsent:
            with anyio.move_on_after(self._patience / 4):
                await link.drained()
            before, unread = unread, link.unread
            idle = idle + 1 if unread == before else 0
            if idle == 4:
                raise Stalled
        await link.drained()


def _on_wire(status: int, headers: Sequence[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    """A head's fields as the server takes them: it refuses control characters, and the length of a body that there
    cannot be (RFC 9110, 5.5 and 8.6, lets both be left out)."""
    bodiless = status in (204, 304)
    return [
        (name.encode("latin-1"), _CONTROL.sub(b" ", value.encode("latin-1")))
        for name, value in headers
        if not (bodiless and name == "content-length")
    ]


async def serve_session(
    session: Session,
    receive: Receive,
    send: Send,
    writing: anyio.CancelScope,
    *,
    link: Link | None = None,
    stall: Stall = WAIT,
) -> None:
    """Run a session against one client, to its end, whatever the client does. ``writing``: shielded; cancelled by who
    gives the client up."""
    writer = FrameWriter(send, link, stall.after)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_watch_client, session, writer, receive)
            async with anyio.create_task_group() as running:
                running.start_soon(session.run)
                with writing:
                    await _write_frames(session, writer, stall)
                if writing.cancelled_caught:
                    writer.missed = True
                    await writer.drop()
            tasks.cancel_scope.cancel()
    finally:
        session.recorder.sent(writer.seq, writer.size)
        session.recorder.close(_state(session, writer))
        _log(session, writer)


def _state(session: Session, writer: FrameWriter) -> Ended:
    if session.aborted_by or not session.ended:
        # Without an end of its own: a stage of ours that raised.
        return "aborted"
    return "detached" if writer.missed else "closed"


def _log(session: Session, writer: FrameWriter) -> None:
    """A line of facts: nothing that was said."""
    last = session.last
    tokens = f"tokens {last.prompt} + {last.completion}" if isinstance(last, UsageInput) else "tokens unknown"
    failed = f", {last.code or last.kind}" if isinstance(last, ErrorInput) else ""
    aborted = f", aborted by {session.aborted_by}" if session.aborted_by else ", detached" if writer.missed else ""
    log.info(
        "POST %s %s: session %.14s, %s, %.0f ms%s%s",
        session.path, writer.status or "-", session.opening.session, tokens, session.recorder.elapsed() / 1e6, failed,
        aborted,
    )  # fmt: skip


async def _write_frames(session: Session, writer: FrameWriter, stall: Stall) -> None:
    held: list[Frame] = []
    async with session.frames as frames:
        with contextlib.suppress(anyio.EndOfStream):
            while True:
                # All that waits leaves together: under pressure a write carries many frames, else one step's.
                batch = await channels.receive(frames)
                if session.recorder.strict and session.ended:
                    # The last frames leave only after everything before them is on disk.
                    held += batch
                else:
                    await _write(session, writer, batch, stall)
    if session.recorder.strict:
        # There may be none: a response that another server has ended without a word.
        last = held if writer.gone else await _when_durable(session, held, writer.seq > 0)
        if last:
            await _write(session, writer, last, stall)
    if writer.seq and not writer.gone:
        try:
            await (writer.break_off() if session.broken else writer.finish())
        except OSError:
            await writer.drop()


async def _when_durable(session: Session, held: list[Frame], begun: bool) -> list[Frame]:
    """The last frames of a strict session once all is committed; an error in their place where it cannot be."""
    try:
        await session.recorder.committed()
    except StoreError:
        failure = Failure("overloaded", "The session could not be recorded, and this server must.", "store_unavailable")
        return session.error_frames(failure, begun=begun)
    return held


async def _write(session: Session, writer: FrameWriter, frames: list[Frame], stall: Stall) -> None:
    if writer.gone:
        writer.missed = True
        return
    try:
        await writer.write(frames)
    except Stalled:
        writer.missed = True
        if stall.then == "abort":
            session.abort("timeout")
        await writer.drop()
    except OSError:
        # The connection was lost under the write.
        writer.missed = True
        _left(session, writer)


async def _watch_client(session: Session, writer: FrameWriter, receive: Receive) -> None:
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            _left(session, writer)
            return


def _left(session: Session, writer: FrameWriter) -> None:
    """The client has left, unless it was left before."""
    if not writer.gone:
        writer.gone = True
        session.abort("client")
