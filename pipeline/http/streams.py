"""GET /v1/streams/{id}: the response of a recorded session, from any event on, again or while it is made.

A reader gets what is durable, and follows as more becomes so. It reads the store at its own pace, in pieces: it holds
up nobody, and holds no more than a piece.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Generator
from functools import partial
from math import inf
from typing import TypeVar

import anyio
import anyio.to_thread
from starlette.datastructures import Headers
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from pipeline.engines.stream import waker
from pipeline.failing import error_frames
from pipeline.http.connection import link_of
from pipeline.http.host import Host, error_response, failure_response
from pipeline.http.live import LAG, Held
from pipeline.http.reading import PIECE, SERVED, Reading
from pipeline.http.serve import FrameWriter
from pipeline.http.wishes import START, Place, place_of
from pipeline.ids import is_new
from stages import catalog
from stages.errors import RequestError
from stages.events import Comment, Failure, Frame, Head
from stages.positions import Positions
from stages.upstream.frames import is_encoded, is_event_stream
from store.api import EventStore, SessionNotFound, StoreError

log = logging.getLogger("playhead.http")
T = TypeVar("T")

PATH = "/v1/streams/{id}"
POLL = 0.25
"""Seconds between two looks at a session that another process writes."""
SOON = 0.05
"""The same, while what a client has got from there already is waited for."""
_WHOLE = 32
"""Digits of the id of a session."""
_KEEP_ALIVE = Comment(b": keep-alive\n\n")
_UNREADABLE = Failure("overloaded", "The record of this session cannot be read now.", "store_unavailable")
_DELETED = Failure("not_found", "This session was deleted while it was read.", "session_not_found")


def routes(host: Host) -> list[Route]:
    """The endpoint."""

    class Get:
        # See pipeline.http.app: raw ASGI.
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            protocol, session = split(scope["path_params"]["id"])
            try:
                place = place_of(scope["query_string"], Headers(scope=scope))
            except RequestError as error:
                await error_response(error, protocol)(scope, receive, send)
                return
            await follow(host, session, scope, receive, send, place, protocol=protocol)

    return [Route(PATH, Get(), methods=["GET"])]


async def follow(
    host: Host, session: str, scope: Scope, receive: Receive, send: Send, place: Place = START, *,
    protocol: str = "chat",
) -> None:  # fmt: skip
    """Answer a request with the response of a session (its id, whole), from ``place`` on, to its end. What cannot be
    had is answered with the protocol's error. ``protocol``: whose error, where there is no such session.

    Of a session that runs here all that it has made until now is waited for. As long as somebody reads it here, it does
    not end for want of a client.
    """
    held = host.live.held(session)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_until_left, receive, tasks.cancel_scope)
        with contextlib.nullcontext() if held is None else held.read():
            await _answer(_Reader(host, session, held, place, protocol), scope, receive, send)
        tasks.cancel_scope.cancel()


def split(name: str) -> tuple[str, str]:
    """(protocol, session's id) of the id of a session or of its response."""
    for protocol, entry in catalog.PROTOCOLS.items():
        if name.startswith(entry.prefix):
            return protocol, name.removeprefix(entry.prefix)
    return "chat", name


async def _answer(reader: _Reader, scope: Scope, receive: Receive, send: Send) -> None:
    try:
        store = await reader.store()
        with reader.watching(store):
            await reader.begin(store)
            await reader.write(send, scope)
    except RequestError as error:
        await error_response(error, reader.protocol)(scope, receive, send)
    except StoreError as error:
        told = reader.complain(error)
        await failure_response(told.kind, told.message, told.code, reader.protocol)(scope, receive, send)


async def _until_left(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


class _Reader:
    """One response that is read from the store. ``protocol``: the session's, once that is known."""

    def __init__(self, host: Host, session: str, held: Held | None, place: Place, protocol: str) -> None:
        self.protocol = protocol
        self._place = place
        self._host = host
        self._session = session
        self._held = held
        self._keep_alive = host.config.keep_alive or inf
        self._late = anyio.current_time() + LAG
        """When what another process has told its client is on record."""
        self._wake = anyio.Event()
        self._soon = waker()
        self._reading: Reading
        self._head: Head
        self._rest: list[Frame] = []

    async def store(self) -> EventStore:
        """The store, once all that the session has made until now is in it. Raises RequestError."""
        config, store, held = self._host.config, self._host.recorder.store, self._held
        if store is None:
            raise _missing(f"This server records nothing (--record {config.record}): no stream can be taken up again.")
        if held is not None:
            if not held.session.recorder.recorded:
                raise _missing(f"Session {self._session} is not recorded: a share of {config.sample:g} of all is.")
            with contextlib.suppress(StoreError):  # what is there of it is served, and how that ends
                await held.session.recorder.committed()
        return store

    @contextlib.contextmanager
    def watching(self, store: EventStore) -> Generator[None]:
        """Be told of what becomes durable while the block runs."""
        end = store.watch(self._session, self._word)
        try:
            yield
        finally:
            end()

    def _word(self) -> None:
        """In any thread."""
        with contextlib.suppress(RuntimeError):  # the event loop is over
            self._soon(self._woken)

    def _woken(self) -> None:
        self._wake.set()
        self._wake = anyio.Event()

    async def begin(self, store: EventStore) -> None:
        """Find the place. Raises RequestError, StoreError."""
        after, own = self._place.after, self._host.parser_of
        try:
            self._reading = await self._made(store, lambda: Reading(store, self._session, own))
        except SessionNotFound as error:
            raise _missing(self._unknown()) from error
        self.protocol = self._reading.opening.protocol
        frames = await self._next() if not after else await self._known()
        if not frames:
            raise _beyond(self._place, 0, more=not self._reading.over)
        head, rest = frames[0], frames[1:]
        assert isinstance(head, Head)
        self._head = head
        self._rest = await self._behind(after, rest) if after else rest

    async def _made(self, store: EventStore, make: Callable[[], Reading]) -> Reading:
        """A session that has just ended may not be in the store yet, or not all of it: then that is waited for. Raises
        SessionNotFound and what else a store raises."""
        if self._held is not None:
            return await _in_thread(make)
        state = "open"
        with contextlib.suppress(SessionNotFound):
            state = (await _in_thread(lambda: store.read(self._session, *SERVED, about=1))).state
        if state == "open":
            await _in_thread(store.flush)
        while is_new(self._session, LAG):
            # Another process may have told its client of it before it was on record.
            with contextlib.suppress(SessionNotFound):
                return await _in_thread(make)
            await anyio.sleep(SOON)
        return await _in_thread(make)

    def _unknown(self) -> str:
        share = self._host.config.sample
        if len(self._session) < _WHOLE:
            return f"There is no session {self._session!r} on record: an id has {_WHOLE} digits, and must be whole."
        why = f"it never was, was not in the share of {share:g} that is, or" if share < 1 else "it never was, or it"
        return f"There is no session {self._session[:100]!r} on record: {why} was deleted."

    async def _behind(self, after: int, frames: list[Frame]) -> list[Frame]:
        """What has been made behind so many events."""
        if not is_event_stream(self._head.headers):
            raise _misplaced(self._place, "is not a stream: it has no events")
        if is_encoded(self._head.headers):
            raise _misplaced(self._place, "is compressed: its events cannot be told apart")
        positions = Positions()
        while True:
            frames = positions.behind(after, frames, plain=self._reading.plain)
            if positions.n == after:
                return frames
            frames = await self._known()
            if not frames or self._reading.tail:
                raise _beyond(self._place, positions.n, more=not self._reading.over)

    async def write(self, send: Send, scope: Scope) -> None:
        """Answer, as far as the client takes it. Raises StoreError before it has begun."""
        place = self._place
        frames = self._rest or await self._next(patience=0)
        over = place.reconnects and not frames and self._reading.over
        positions = Positions(place.after) if place.numbered else None
        writer = FrameWriter(send, link_of(scope), self._host.stall.after, positions)
        try:
            await writer.write([Head(204, _named(self._head)) if over else self._head])
            if not over and scope["method"] != "HEAD":
                await self._write_on(writer, frames)
            await (writer.break_off() if self._reading.broken else writer.finish())
        except OSError:
            # Gone, or it takes nothing: it may come again.
            await writer.drop()

    async def _write_on(self, writer: FrameWriter, frames: list[Frame]) -> None:
        comments = is_event_stream(self._head.headers) and not is_encoded(self._head.headers)
        try:
            while True:
                await writer.write(frames)
                if self._reading.over:
                    return
                frames = await self._next(patience=self._keep_alive if comments else inf)
                if not frames and not self._reading.over:
                    frames = [_KEEP_ALIVE]
        except StoreError as error:
            told = self.complain(error)
            if comments:
                await writer.write(error_frames(self._reading.opening, told, self._reading.sent))
            else:
                self._reading.broken = True

    def complain(self, error: StoreError) -> Failure:
        """Of a store that cannot be read; what a client is told."""
        if isinstance(error, SessionNotFound):
            return _DELETED
        log.error("session %.14s cannot be read: %s", self._session, type(error).__name__)
        return _UNREADABLE

    async def _known(self) -> list[Frame]:
        """The next frames that a client may have got already."""
        patience = 0 if self._held is not None else max(self._late - anyio.current_time(), 0)
        return await self._next(patience=patience, every=SOON, about=16 * PIECE)

    async def _next(self, *, patience: float = inf, every: float = POLL, about: int = PIECE) -> list[Frame]:
        """The next frames, about so many, comments left out; none at the end, or where nothing came within ``patience``
        seconds. ``every``: seconds between two looks at another process's session."""
        reading = self._reading
        until = anyio.current_time() + patience
        while True:
            woken = self._wake
            reading.lost = self._held is not None and self._held.session.recorder.lost
            frames = await _in_thread(partial(reading.read, about))
            kept: list[Frame] = [frame for frame in frames if not isinstance(frame, Comment)]
            if kept or reading.over:
                return kept
            if frames:
                continue
            left = until - anyio.current_time()
            if left <= 0:
                return []
            with anyio.move_on_after(left if self._held is not None else min(left, every)):
                await woken.wait()


def _named(head: Head) -> tuple[tuple[str, str], ...]:
    return tuple(field for field in head.headers if field[0] == "x-request-id")


async def _in_thread(work: Callable[[], T]) -> T:
    return await anyio.to_thread.run_sync(work)


def _missing(why: str) -> RequestError:
    return RequestError(why, code="session_not_found", status=404)


def _misplaced(place: Place, why: str) -> RequestError:
    field, _ = _asked(place)
    message = f"There is nothing behind event {place.after}: the response {why}. Ask without {field}."
    return RequestError(message, param=field, code="position_beyond_tail", status=409)


def _beyond(place: Place, n: int, *, more: bool) -> RequestError:
    count = f"{n} event{'' if n == 1 else 's'}"
    coming = "More may be coming: ask again behind one of these" if more else "No more are coming"
    field, event = _asked(place)
    message = f"There is nothing behind {event} yet: {count} of this stream are on record. {coming}."
    if not more:
        message = f"There is nothing behind {event}: this stream has {count} on record. {coming}."
    return RequestError(message, param=field, code="position_beyond_tail", status=409)


def _asked(place: Place) -> tuple[str, str]:
    """The field that names a place, and the event, as it counts."""
    return (
        ("starting_after", f"event number {place.after - 1}") if place.responses else ("after", f"event {place.after}")
    )
