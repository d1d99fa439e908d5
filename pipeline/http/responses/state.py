"""The stored state of a host: what its endpoints, and the requests that go on from something, share."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import TypeAlias, TypeVar

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from pipeline.http.host import Host, error_response, failure_response
from pipeline.http.incoming import require_json
from pipeline.http.responses.history import Conversation, History
from pipeline.http.serve import read_body
from stages.errors import RequestError, StagesError
from stages.opening import Opening
from store.api import EventStore, StoreError

T = TypeVar("T")
Endpoint: TypeAlias = Callable[[Request], Awaitable[ASGIApp]]
log = logging.getLogger("playhead.http")


class State:
    """The stored responses and conversations of a host."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self._taken: set[str] = set()

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

    async def record(self, opening: Opening) -> None:
        """Record a session in which no engine speaks, and wait until that is durable. Raises StoreError."""
        recorder = self.host.recorder
        assert recorder.store is not None and recorder.mode != "off", "see require"
        writer = recorder.store.writer(opening, recorder.mode)
        writer.close("closed")
        await anyio.to_thread.run_sync(writer.committed().result)

    def history(self, store: EventStore) -> History:
        """What was said."""
        return History(store, self.host.parser_of)

    async def conversation(self, conversation: str) -> Conversation:
        """A conversation as it is. Raises RequestError, StoreError."""
        return await self.read(lambda store: self.history(store).conversation(conversation))

    @contextmanager
    def alone(self, conversation: str) -> Generator[None]:
        """While the block runs, nothing else happens in a conversation. Raises RequestError (409) where something
        does, or a response of it is running."""
        live = any(
            session.opening.conversation == conversation and not session.ended for session in self.host.live.sessions()
        )
        if live or conversation in self._taken:
            raise busy(conversation)
        self._taken.add(conversation)
        try:
            yield
        finally:
            self._taken.discard(conversation)

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
    """The answer where the store cannot be read or written, or what it has is not to be understood."""
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
