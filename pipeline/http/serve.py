"""ASGI and sessions: reads a body within its limit, writes a session's frames, notices who leaves."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Sequence
from math import inf
from typing import Literal, NamedTuple

import anyio
from starlette.types import Message, Receive, Send

from pipeline import channels
from pipeline.failing import Sent
from pipeline.http.connection import Link
from pipeline.http.live import Held, Session
from pipeline.http.wishes import PLAIN, Wish
from pipeline.session import AbortBy
from stages.errors import RequestError
from stages.events import Block, Body, Comment, ErrorInput, Failure, Frame, Head, UsageInput
from stages.positions import Positions
from stages.upstream.frames import is_encoded
from store.api import Ended, StoreError

log = logging.getLogger("playhead.http")


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
    seconds without a byte taken until a write raises Stalled. ``positions``: each event of a stream is given its own
    as its id.
    """

    def __init__(
        self, send: Send, link: Link | None = None, patience: float = inf, positions: Positions | None = None
    ) -> None:
        self._send = send
        self._link = link
        self._patience = patience
        self._positions = positions
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
                    if is_encoded(headers):
                        self._positions = None
                    self._handed(1)
                case Block(data=data) | Comment(data=data) | Body(data=data):
                    parts.append(data)
        if parts:
            data = b"".join(parts if self._positions is None else self._positions.with_ids(frames))
            await self._put({"type": "http.response.body", "body": data, "more_body": True})
            # Ids are not of the record: what was handed over of it is counted.
            self._handed(len(parts), sum(map(len, parts)))

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


class _Client:
    """Who asked for a session. When it leaves, the session is aborted, or goes on until nobody has read it for
    ``resume`` seconds."""

    def __init__(self, held: Held, resume: float) -> None:
        self._held = held
        session = held.session
        self._resume = resume if session.opening.ask.stream and session.recorder.recorded else 0.0
        self._left = anyio.Event()
        self._why: AbortBy = "client"

    def left(self, why: AbortBy = "client") -> None:
        """It has left, or was left."""
        if self._resume:
            self._why = why
            self._left.set()
        else:
            self._held.session.abort(why)

    async def awaited(self) -> None:
        """Abort the session once nobody takes it up."""
        await self._left.wait()
        await self._held.unread(self._resume)
        self._held.session.abort(self._why)


async def serve_session(
    held: Held,
    receive: Receive,
    send: Send,
    *,
    link: Link | None = None,
    stall: Stall = WAIT,
    wish: Wish = PLAIN,
) -> None:
    """Run a session against one client, to its end, whatever the client does."""
    session, writing = held.session, held.writing
    writer = FrameWriter(send, link, stall.after, Positions() if wish.event_ids else None)
    client = _Client(held, wish.resume)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_watch_client, client, writer, receive)
            tasks.start_soon(client.awaited)
            async with anyio.create_task_group() as running:
                running.start_soon(session.run)
                with writing:
                    await _write_frames(session, client, writer, stall)
                if writing.cancelled_caught:
                    writer.missed = True
                    await writer.drop()
            tasks.cancel_scope.cancel()
    finally:
        session.recorder.sent(writer.seq, writer.size)
        session.recorder.close(_state(session, writer))
        _log(session, writer)


async def run_unserved(held: Held) -> None:
    """Run a session to its end without a client."""
    session = held.session
    try:
        async with anyio.create_task_group() as running:
            running.start_soon(session.run)
            with held.writing:
                async with session.frames as frames:
                    with contextlib.suppress(anyio.EndOfStream):
                        while True:
                            await channels.receive(frames)
    finally:
        session.recorder.sent(0, 0)
        session.recorder.close("aborted" if session.aborted_by or not session.ended else "closed")
        _log(session, None)


def _state(session: Session, writer: FrameWriter) -> Ended:
    if session.aborted_by or not session.ended:
        # Without an end of its own: a stage of ours that raised.
        return "aborted"
    return "detached" if writer.missed else "closed"


def _log(session: Session, writer: FrameWriter | None) -> None:
    """A line of facts: nothing that was said. ``writer``: None: there was no client."""
    last = session.last
    tokens = f"tokens {last.prompt} + {last.completion}" if isinstance(last, UsageInput) else "tokens unknown"
    failed = f", {last.code or last.kind}" if isinstance(last, ErrorInput) else ""
    detached = ", detached" if writer is not None and writer.missed else ""
    aborted = f", aborted by {session.aborted_by}" if session.aborted_by else detached
    log.info(
        "POST %s %s: session %.14s, %s, %.0f ms%s%s",
        session.path, (writer and writer.status) or "-", session.opening.session, tokens,
        session.recorder.elapsed() / 1e6, failed, aborted,
    )  # fmt: skip


async def _write_frames(session: Session, client: _Client, writer: FrameWriter, stall: Stall) -> None:
    held: list[Frame] = []
    sent = Sent()
    async with session.frames as frames:
        with contextlib.suppress(anyio.EndOfStream):
            while True:
                # All that waits leaves together: under pressure a write carries many frames, else one step's.
                batch = await channels.receive(frames)
                if session.recorder.strict and session.ended:
                    # The last frames leave only after everything before them is on disk.
                    held += batch
                else:
                    if session.recorder.strict:
                        sent.take(batch)
                    await _write(client, writer, batch, stall)
    if session.recorder.strict:
        # There may be none: a response that another server has ended without a word.
        last = held if writer.gone else await _when_durable(session, held, sent)
        if last:
            await _write(client, writer, last, stall)
    if writer.seq and not writer.gone:
        try:
            await (writer.break_off() if session.broken else writer.finish())
        except OSError:
            await writer.drop()


async def _when_durable(session: Session, held: list[Frame], sent: Sent) -> list[Frame]:
    """The last frames of a strict session once all is committed; an error in their place where it cannot be."""
    try:
        await session.recorder.committed()
    except StoreError:
        failure = Failure("overloaded", "The session could not be recorded, and this server must.", "store_unavailable")
        return session.error_frames(failure, sent)
    return held


async def _write(client: _Client, writer: FrameWriter, frames: list[Frame], stall: Stall) -> None:
    if writer.gone:
        writer.missed = True
        return
    try:
        await writer.write(frames)
    except Stalled:
        writer.missed = True
        if stall.then == "abort":
            client.left("timeout")
        await writer.drop()
    except OSError:
        # The connection was lost under the write.
        writer.missed = True
        _left(client, writer)


async def _watch_client(client: _Client, writer: FrameWriter, receive: Receive) -> None:
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            _left(client, writer)
            return


def _left(client: _Client, writer: FrameWriter) -> None:
    """The client has left, unless it was left before."""
    if not writer.gone:
        writer.gone = True
        client.left()
