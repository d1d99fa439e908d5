"""The stored state of a host: what its endpoints, and the requests that go on from something, share."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import TypeAlias, TypeVar

import anyio
import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from pipeline.http.host import Host, error_response, failure_response
from pipeline.http.incoming import require_json
from pipeline.http.live import LAG
from pipeline.http.responses.history import Conversation, History
from pipeline.http.serve import read_body
from stages.errors import RequestError, StagesError
from stages.opening import Opening
from store.api import EventStore, Overtaken, SessionNotFound, StillOpen, StoreError

T = TypeVar("T")
Endpoint: TypeAlias = Callable[[Request], Awaitable[ASGIApp]]
log = logging.getLogger("playhead.http")
_POLL = 0.05
"""Seconds between two looks."""


class State:
    """The stored responses and conversations of a host."""

    def __init__(self, host: Host) -> None:
        self.host = host

    @property
    def keeps(self) -> bool:
        """Whatever is asked of the host is recorded, and can be gone on from."""
        recorder = self.host.recorder
        return recorder.store is not None and recorder.mode != "off" and recorder.sample >= 1.0

    def require(self, what: str) -> None:
        """Raises RequestError for what needs all to be recorded, where it is not."""
        if not self.keeps:
            raise RequestError(
                f"{what}: this server does not record every request; start it with --record full or lean, and without "
                "--sample.",
                param=what,
            )

    # --- the store

    async def read(self, work: Callable[[EventStore], T]) -> T:
        """Let a thread look into the store, after all that was recorded until now. Raises what ``work`` raises, and
        RequestError (404) where there is no store."""
        store = self.host.recorder.store
        if store is None:
            raise RequestError("This server records nothing.", code="not_found", status=404)
        return await anyio.to_thread.run_sync(partial(_flushed, store, work))

    async def look(self, work: Callable[[History], T], patience: float = LAG) -> T:
        """The same, into what was said. Where another process may be just recording what is looked for, it is waited
        for, up to so many seconds: whoever was told of it may go on from it here."""
        until = anyio.current_time() + patience
        while True:
            seen: list[History] = []
            look = partial(self._look, work, seen)
            try:
                found = await self.read(look)
            except (RequestError, StillOpen):
                if not (seen and seen[0].early) or anyio.current_time() >= until:
                    raise
            else:
                if not seen[0].early or anyio.current_time() >= until:
                    return found
            await anyio.sleep(_POLL)

    def _look(self, work: Callable[[History], T], seen: list[History], store: EventStore) -> T:
        seen.append(History(store, self.host.parser_of, lambda session: self.host.live.held(session) is not None))
        return work(seen[0])

    async def record(self, opening: Opening, known: Collection[str]) -> None:
        """Record a session in which no engine speaks, and wait until that is durable. ``known``: all others of its
        conversation. Raises RequestError (409) where there are more, StoreError."""
        recorder = self.host.recorder
        assert recorder.store is not None and recorder.mode != "off", "see require"
        writer = recorder.store.writer(opening, recorder.mode, known)
        writer.close("closed")
        try:
            await anyio.to_thread.run_sync(writer.committed().result)
        except Overtaken:
            raise busy(opening.conversation) from None

    async def conversation(self, conversation: str) -> Conversation:
        """A conversation as it is. Raises RequestError, StoreError."""
        return await self.look(lambda history: history.conversation(conversation))

    # --- requests

    async def body(self, request: Request) -> bytes:
        """A request's body. Raises RequestError, and Left."""
        require_json(request)
        config = self.host.config
        body = await read_body(request.receive, config.max_body, config.body_timeout)
        if body is None:
            raise Left
        return body


class Left(Exception):
    """The client left before its request was whole."""


def busy(conversation: str) -> RequestError:
    """The error of a conversation in which something happens."""
    return RequestError(
        f"Another request is at work in the conversation {conversation!r:.100}; wait for its end.",
        param="conversation", code="conversation_locked", status=409,
    )  # fmt: skip


def unreadable(error: StoreError | StagesError) -> Response:
    """The answer where the store cannot be read or written, or what it has is not to be understood; or where somebody
    else has deleted it since it was found."""
    if isinstance(error, SessionNotFound):
        return error_response(RequestError("It was deleted meanwhile.", code="not_found", status=404), "responses")
    log.error("the store: %s", error)
    if isinstance(error, StagesError):
        what, code = "What was recorded of it cannot be read by this server.", "not_reproducible"
        return failure_response("engine", what, code, "responses")
    return failure_response("overloaded", "The store of this server failed.", "store_unavailable", "responses")


class Answer:
    """An endpoint whose errors are the protocol's."""

    def __init__(self, work: Endpoint, protocol: str = "responses") -> None:
        self._work = work
        self._protocol = protocol

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        response: ASGIApp
        try:
            response = await self._work(Request(scope, receive))
        except Left:
            return
        except RequestError as error:
            response = error_response(error, self._protocol)
        except (StoreError, StagesError) as error:
            response = unreadable(error)
        await response(scope, receive, send)


def _flushed(store: EventStore, work: Callable[[EventStore], T]) -> T:
    store.flush()
    return work(store)
