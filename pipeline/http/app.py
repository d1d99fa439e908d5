"""The HTTP edge: routes, errors, and the one server object that endpoints share."""

from __future__ import annotations

import logging

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from pipeline import ids
from pipeline.config import Config
from pipeline.engines.base import Engine, EngineRequest
from pipeline.http import chat
from pipeline.http.serve import Live, read_body, serve_session
from pipeline.recorder import Recorder
from pipeline.session import Session, stop_watch
from replay.resolve import resolve
from stages import catalog
from stages.errors import RequestError
from stages.events import ErrorChunk, FailureKind, Input, Semantic
from stages.opening import Opening
from stages.protocols import openai_chat
from stages.stage import Stage

log = logging.getLogger("playhead.http")

PATHS = "There are POST /v1/chat/completions, GET /v1/models and GET /health."
MAX_NOTED = 100
"""Names of ignored fields that are remembered; who sends more than that makes them up."""


class Server:
    """What the endpoints share: the engine, the recorder, the settings, the sessions that run."""

    def __init__(self, config: Config, engine: Engine, recorder: Recorder) -> None:
        """Raises ReplayError or UnknownName for a parser that does not exist."""
        self.config = config
        self.engine = engine
        self.recorder = recorder
        self.live = Live()
        self.model = config.served_name or engine.facts.model
        self.parser_name = config.parser
        if config.parser == "auto":
            self.parser_name = catalog.detect(engine.template, engine.tokenizer, self.model)
        self.parser: Stage[Input, Semantic] = resolve(self.parser_name)
        self.started = ids.unix_ns() // 1_000_000_000
        self._ignored: set[str] = set()

    def session(self, plan: chat.Plan, body: bytes) -> Session:
        """Open a session: from here on everything is recorded."""
        session_id, opened = ids.new_session_id(), ids.unix_ns()
        elapsed = ids.stopwatch()
        opening = Opening(
            session=session_id,
            key=ids.new_key(),
            response_id=f"chatcmpl-{session_id}",
            created=opened // 1_000_000_000,
            opened=opened,
            model=self.model,
            protocol="chat",
            request=body,
            ask=msgspec.structs.replace(plan.ask, reasoning_field=self.config.reasoning_field),
            parser=self.parser_name,
            calls=self.config.calls,
            engine=self.engine.facts,
            tokenizer=self.engine.tokenizer,
        )
        layers = catalog.layers(opening, self.parser)
        opening = msgspec.structs.replace(opening, stages=catalog.stage_ids(layers))
        recorder = self.recorder.open(opening, elapsed)
        stream = self.engine.submit(
            EngineRequest(
                session=session_id,
                conversation=plan.conversation,
                sampling=plan.sampling,
                n=plan.ask.n,
                logprobs=plan.ask.top_logprobs if plan.ask.logprobs else None,
                watch=stop_watch(opening, layers),
            )
        )
        return Session(
            opening, layers, stream, recorder, commit_after=self.config.commit_after, keep_alive=self.config.keep_alive
        )

    async def chat(self, scope: Scope, receive: Receive, send: Send) -> None:
        """POST /v1/chat/completions."""
        request = Request(scope)
        try:
            require_json(request)
            body = await read_body(receive, self.config.max_body, self.config.body_timeout)
            if body is None:
                return
            plan = chat.plan(body, self.model, allow_forced=self.config.allow_forced)
            self._note(plan.ignored)
        except RequestError as error:
            await error_response(error)(scope, receive, send)
            return
        refused = self._refused()
        if refused is not None:
            await refused(scope, receive, send)
            return
        session = self.session(plan, body)
        with self.live.holding(session) as writing:
            await serve_session(session, receive, send, writing)

    def _note(self, names: tuple[str, ...]) -> None:
        """Log the names of fields that have no meaning here, each once: one of them may be misspelt."""
        new = [name for name in names if name not in self._ignored]
        if new and len(self._ignored) < MAX_NOTED:
            self._ignored.update(new[:MAX_NOTED])
            log.info("ignored fields of a request: %s", ", ".join(f"{name!r:.50}" for name in new[:10]))

    def _refused(self) -> Response | None:
        if not self.engine.alive:
            return failure_response("overloaded", "The engine is not running.", "engine_down")
        if self.live.closing:
            return failure_response("overloaded", "The server is shutting down.", "shutdown")
        return None

    async def models(self, request: Request) -> Response:
        """GET /v1/models."""
        facts = self.engine.facts
        return json_response(openai_chat.model_list([self.model], self.started, facts.max_tokens))

    async def health(self, request: Request) -> Response:
        """GET /health: 200 while the engine can serve, else 503; the store's counters beside it."""
        alive = self.engine.alive
        store = self.recorder.store
        body = {
            "status": "ok" if alive else "engine_down",
            "sessions": len(self.live),
            "record": self.recorder.mode,
            "store": store.stats() if store is not None else None,
        }
        return json_response(body, 200 if alive else 503)


def app(server: Server) -> Starlette:
    """The ASGI application of a server whose engine is running."""

    class Chat:
        # Starlette hands raw ASGI to an endpoint that is an instance, not a function: no request or response object
        # stands between a session and its socket.
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            await server.chat(scope, receive, send)

    application = Starlette(
        routes=[
            Route("/v1/chat/completions", Chat(), methods=["POST"]),
            Route("/v1/models", server.models, methods=["GET"]),
            Route("/health", server.health, methods=["GET"]),
        ],
        exception_handlers={HTTPException: _http_exception, Exception: _crash},
    )
    # A redirect would have no error body, and lead where the client's own host header says.
    application.router.redirect_slashes = False
    return application


def require_json(request: Request) -> None:
    """Raises RequestError (415) for a body that does not say it is JSON."""
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind and kind != "application/json":
        raise RequestError(f"The content type must be application/json, not {kind[:80]}.", status=415)


def json_response(value: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A JSON body."""
    return Response(msgspec.json.encode(value), status, headers, "application/json")


def error_response(error: RequestError) -> Response:
    """A refused request in the protocol's error body."""
    kinds: dict[int, FailureKind] = {404: "not_found", 413: "too_large", 401: "unauthorized"}
    chunk = openai_chat.error_chunk(kinds.get(error.status, "bad_request"), error.message, error.code, error.param)
    response = _chunk_response(chunk, error.status)
    if error.status == 408:
        # What the client may still send belongs to this request.
        response.headers["connection"] = "close"
    return response


def failure_response(kind: FailureKind, message: str, code: str | None = None) -> Response:
    """A failure before there is a session."""
    chunk = openai_chat.error_chunk(kind, message, code, None)
    return _chunk_response(chunk, chunk.status)


def _chunk_response(chunk: ErrorChunk, status: int) -> Response:
    return json_response(chunk.body, status, dict(chunk.headers))


async def _http_exception(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    what, code = {404: ("No such path", "not_found"), 405: ("Method not allowed", "method_not_allowed")}.get(
        status, ("Request refused", None)
    )
    hint = f". {PATHS}" if status == 404 else ""
    refused = RequestError(f"{what}: {request.method} {request.url.path[:100]}{hint}", code=code, status=status)
    response = error_response(refused)
    if isinstance(error, HTTPException) and error.headers:
        response.headers.update(error.headers)
    return response


async def _crash(request: Request, error: Exception) -> Response:
    log.error("%s %s failed: %s", request.method, request.url.path, type(error).__name__)
    return failure_response("engine", "The server failed on this request.", "internal_error")
