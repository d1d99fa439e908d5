"""The HTTP edge of a server with an engine of its own: routes, and what becomes of a request."""

from __future__ import annotations

import logging
from functools import partial

import anyio.to_thread
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
from pipeline.http import chat, openapi
from pipeline.http.chat import Plan
from pipeline.http.host import (
    Host,
    crashed,
    error_response,
    failure_response,
    http_exception,
    json_response,
    middleware,
)
from pipeline.http.serve import read_body
from pipeline.recorder import Recorder
from pipeline.session import Session, stop_watch
from replay.resolve import resolve
from stages import catalog
from stages.errors import RequestError
from stages.events import Input, Semantic
from stages.opening import Opening
from stages.protocols import openai_chat
from stages.stage import Stage

log = logging.getLogger("playhead.http")

PATHS = "There are POST /v1/chat/completions, GET /v1/models, /health, /metrics and /openapi.json."
LARGE_BODY = 256 * 1024
MAX_NOTED = 100
"""Names of ignored fields that are remembered; who sends more than that makes them up."""


class Server(Host):
    """A host whose engine runs here."""

    def __init__(self, config: Config, engine: Engine, recorder: Recorder) -> None:
        """Raises ReplayError or UnknownName for a parser that does not exist."""
        super().__init__(config, recorder)
        self.engine = engine
        self.model = config.served_name or engine.facts.model
        self.parser_name = config.parser or "auto"
        if self.parser_name == "auto":
            self.parser_name = catalog.detect(engine.template, engine.tokenizer, self.model)
        self.parser: Stage[Input, Semantic] = resolve(self.parser_name, live=True)
        self.serves = self.example = self.model
        self.how = f"parser {self.parser_name}"
        self._ignored: set[str] = set()

    def session(self, plan: Plan, body: bytes) -> Session:
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
            ask=plan.ask,
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
            opening, layers, stream, recorder, commit_after=self.config.commit_after,
            keep_alive=self.config.keep_alive if plan.keep_alive is None else plan.keep_alive,
        )  # fmt: skip

    async def chat(self, scope: Scope, receive: Receive, send: Send) -> None:
        """POST /v1/chat/completions."""
        request = Request(scope)
        try:
            require_json(request)
            body = await read_body(receive, self.config.max_body, self.config.body_timeout)
            if body is None:
                return
            plan = await self._plan(body)
            self._note(plan.ignored)
        except RequestError as error:
            await error_response(error)(scope, receive, send)
            return
        refused = self._refused()
        if refused is not None:
            await refused(scope, receive, send)
            return
        await self.serve(self.session(plan, body), scope, receive, send)

    async def _plan(self, body: bytes) -> Plan:
        understand = partial(
            chat.plan, body, self.model, allow_forced=self.config.allow_forced,
            reasoning_field=self.config.reasoning_field,
        )  # fmt: skip
        # A hostile body of some megabytes takes a second to understand: the others do not wait for it.
        return understand() if len(body) <= LARGE_BODY else await anyio.to_thread.run_sync(understand)

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

    async def describe(self, request: Request) -> Response:
        """GET /openapi.json."""
        return json_response(openapi.document(keys=bool(self.config.keys)))


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
            Route("/metrics", server.metrics.answer, methods=["GET"]),
            Route("/openapi.json", server.describe, methods=["GET"]),
        ],
        middleware=middleware(server.config),
        exception_handlers={HTTPException: http_exception(PATHS), Exception: crashed},
    )
    # A redirect would have no error body, and lead where the client's own host header says.
    application.router.redirect_slashes = False
    return application


def require_json(request: Request) -> None:
    """Raises RequestError (415) for a body that says it is something else than plain JSON."""
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind and kind != "application/json":
        raise RequestError(f"The content type must be application/json, not {kind[:80]}.", status=415)
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding not in ("", "identity"):
        raise RequestError(
            f"The body must be sent as it is, not {coding[:80]}: leave out content-encoding.", status=415
        )
