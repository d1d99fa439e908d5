"""What a server is, whatever answers its requests: the sessions that run, their recording, what becomes of them after
their end, and the answers to what has no session."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from math import inf

import anyio
import msgspec
from anyio.abc import TaskGroup
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from pipeline import ids
from pipeline.config import Config
from pipeline.http.auth import RequireKey
from pipeline.http.connection import link_of
from pipeline.http.guard import TOO_LARGE, HeadLimit
from pipeline.http.live import Held, Live, Session
from pipeline.http.metrics import Metrics
from pipeline.http.serve import Stall, run_unserved, serve_session
from pipeline.http.wishes import PLAIN, Wish, wish_of
from pipeline.recorder import Recorder
from pipeline.shadow import Shadows
from pipeline.validation import Validator
from stages import catalog
from stages.catalog import protocol_at
from stages.errors import RequestError
from stages.events import ErrorChunk, FailureKind, Input, Semantic
from stages.protocols import anthropic
from stages.sse import ids_of
from stages.stage import Stage

log = logging.getLogger("playhead.http")

NO_KEY = RequestError(
    "The API key is wrong or missing: send it as 'authorization: Bearer KEY' or 'x-api-key: KEY'.",
    code="invalid_api_key",
    status=401,
)
NO_SHADOWS = ("none",)
LONG_HEAD = RequestError(TOO_LARGE, code="headers_too_large", status=431)


class Host:
    """What the endpoints share: the recorder, the settings, the sessions that run."""

    def __init__(self, config: Config, recorder: Recorder) -> None:
        """Raises ReplayError or UnknownName for a shadow that does not exist."""
        self.config = config
        self.recorder = recorder
        self.live = Live()
        self.validator = Validator(recorder, config.validate)
        self.shadows = Shadows(recorder, () if config.shadow == NO_SHADOWS else config.shadow)
        self.metrics = Metrics(self.live, recorder, self.validator, self.shadows)
        self.stall = Stall(config.stall, inf if config.stall == "wait" else config.stall_after)
        self.started = ids.unix_ns() // 1_000_000_000
        self._launched: TaskGroup | None = None

    serves: str
    """Whom it serves, for people: no blanks."""
    example: str
    """A model to ask for."""
    how: str
    """Who makes the responses, for people."""

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """What works beside the requests."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.validator.running())
            await stack.enter_async_context(self.shadows.running())
            async with anyio.create_task_group() as self._launched:
                yield
                # A shutdown has aborted them already, and waited.
                self._launched.cancel_scope.cancel()

    def finish_by(self, deadline: float) -> None:
        """Until when, on the event loop's clock, what follows the end of sessions may be done once the server stops."""
        self.validator.finish_by(deadline)
        self.shadows.finish_by(deadline)

    async def serve(
        self, session: Session, scope: Scope, receive: Receive, send: Send, shadows: Sequence[str] = (),
        wish: Wish = PLAIN,
    ) -> None:  # fmt: skip
        """Serve a session to its end, and hand it to who looks at it afterwards. ``shadows``: parsers that look at this
        one where the settings name none."""
        with self._held(session, shadows) as held:
            await serve_session(held, receive, send, link=link_of(scope), stall=self.stall, wish=wish)

    def wish(self, scope: Scope) -> Wish:
        """What a request asks of its stream. Raises RequestError."""
        return wish_of(scope["query_string"], self.config.resume, self.config.max_resume)

    def parser_of(self, name: str) -> Stage[Input, Semantic] | None:
        """The parser of this name, if it is loaded here."""
        return None

    def launch(self, session: Session, shadows: Sequence[str] = ()) -> None:
        """Run a session to its end without a client, while the host is ``running``; it is live when this returns.
        ``shadows``: as for ``serve``. What it makes is read from the record: see ``pipeline.http.streams``."""
        assert self._launched is not None, "the host is not running"
        holding = ExitStack()
        self._launched.start_soon(self._unserved, holding, holding.enter_context(self._held(session, shadows)))

    async def _unserved(self, holding: ExitStack, held: Held) -> None:
        with holding:
            await run_unserved(held)

    @contextmanager
    def _held(self, session: Session, shadows: Sequence[str]) -> Generator[Held]:
        try:
            with self.live.holding(session) as held:
                yield held
        finally:
            self.validator.offer(session.opening, session.recorder, session.keep_alive)
            default = () if self.config.shadow == NO_SHADOWS else shadows
            self.shadows.offer(session.opening, session.recorder, default)


# --- answers without a session ----------------------------------------------------------------------------------------


def json_response(value: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A JSON body, under an id of its own: what has no session can still be told apart."""
    named = {"x-request-id": ids.new_request_id(), **(headers or {})}
    return Response(msgspec.json.encode(value), status, named, "application/json")


def error_response(error: RequestError, protocol: str = "chat") -> Response:
    """A refused request in the protocol's error body."""
    kinds: dict[int, FailureKind] = {404: "not_found", 413: "too_large", 401: "unauthorized"}
    kind = kinds.get(error.status, "bad_request")
    chunk = catalog.PROTOCOLS[protocol].error(kind, error.message, error.code, error.param)
    response = _chunk_response(chunk, error.status, protocol)
    if error.status == 401:
        response.headers["www-authenticate"] = "Bearer"
    if error.status == 408:
        # What the client may still send belongs to this request.
        response.headers["connection"] = "close"
    return response


def failure_response(kind: FailureKind, message: str, code: str | None = None, protocol: str = "chat") -> Response:
    """A failure before there is a session."""
    chunk = catalog.PROTOCOLS[protocol].error(kind, message, code, None)
    return _chunk_response(chunk, chunk.status, protocol)


def _chunk_response(chunk: ErrorChunk, status: int, protocol: str) -> Response:
    number = ids.new_request_id()
    body = anthropic.error_body(chunk, status, number) if protocol == "messages" else chunk.body
    return json_response(body, status, {**dict.fromkeys(ids_of(protocol), number), **dict(chunk.headers)})


def http_exception(paths: str) -> Callable[[Request, Exception], Awaitable[Response]]:
    """The handler of requests that no route takes. ``paths``: a sentence that tells what there is."""

    async def refused(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        what, code = {404: ("No such path", "not_found"), 405: ("Method not allowed", "method_not_allowed")}.get(
            status, ("Request refused", None)
        )
        hint = f". {paths}" if status == 404 else ""
        message = f"{what}: {request.method} {request.url.path[:100]}{hint}"
        path = request.url.path
        response = error_response(RequestError(message, code=code, status=status), protocol_at(path))
        if isinstance(error, HTTPException) and error.headers:
            response.headers.update(error.headers)
        return response

    return refused


async def crashed(request: Request, error: Exception) -> Response:
    """The handler of what should not happen."""
    log.error("%s %s failed: %s", request.method, request.url.path, type(error).__name__)
    why = "The server failed on this request."
    return failure_response("engine", why, "internal_error", protocol_at(request.url.path))


def middleware(config: Config) -> list[Middleware]:
    """What stands before every endpoint."""
    made = [Middleware(HeadLimit, refused=_refusing(LONG_HEAD))]
    if config.allow_origins:
        # Outside the keys: a browser's preflight request carries none.
        made.append(
            Middleware(
                CORSMiddleware, allow_origins=config.allow_origins, allow_methods=["*"], allow_headers=["*"],
                expose_headers=["x-request-id"],
            )
        )  # fmt: skip
    if config.keys:
        made.append(Middleware(RequireKey, keys=config.keys, refused=_refusing(NO_KEY)))
    return made


def _refusing(error: RequestError) -> ASGIApp:
    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        await error_response(error, protocol_at(scope["path"]))(scope, receive, send)

    return refuse
