"""The HTTP edge of a server with an engine of its own: routes, and what becomes of a request."""

from __future__ import annotations

import logging
from functools import partial
from typing import NamedTuple

import anyio
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
from pipeline.engines.base import Engine, EngineRequest, Watch
from pipeline.http import count, openapi, plans, responses, streams
from pipeline.http.host import (
    Host,
    crashed,
    error_response,
    failure_response,
    http_exception,
    json_response,
    middleware,
)
from pipeline.http.incoming import require_json, understood
from pipeline.http.plans import Plan
from pipeline.http.serve import read_body
from pipeline.recorder import Recorder, SessionRecorder
from pipeline.session import Session, stop_watch
from replay.resolve import resolve
from stages import catalog
from stages.catalog import Layers
from stages.constraint import Constraint, constraint_of
from stages.errors import RequestError, StagesError
from stages.events import Input, Semantic
from stages.opening import Opening
from stages.parse.parser import Parser
from stages.protocols import openai_chat
from stages.stage import Stage
from store.api import StoreError

log = logging.getLogger("playhead.http")

PATHS = (
    f"There are POST {', '.join(entry.path for entry in catalog.PROTOCOLS.values())} and what belongs to them, "
    "GET /v1/streams/ID, /v1/models, /health, /metrics and /openapi.json."
)
RAW = "plain"
"""The parser of completions."""
SPELT = 2
"""Requests whose calls are spelled at once: each takes the lock that all threads share."""
MAX_NOTED = 100
"""Names of ignored fields that are remembered; who sends more than that makes them up."""


class _Opened(NamedTuple):
    """A session that the engine knows nothing of yet."""

    opening: Opening
    layers: Layers
    plan: Plan
    constraint: Constraint | None
    recorder: SessionRecorder


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
        self.state = responses.State(self)
        self._ignored: set[str] = set()
        self._unheld = False
        self.spelling = anyio.CapacityLimiter(SPELT)

    def parser_of(self, name: str) -> Stage[Input, Semantic] | None:
        """See Host."""
        return self.parser if name == self.parser_name else None

    def session(self, protocol: str, plan: Plan, body: bytes) -> Session:
        """Open a session: from here on everything is recorded."""
        return self._started(self._opened(protocol, plan, body, responses.ALONE, self._constraint(protocol, plan)))

    def _opened(
        self, protocol: str, plan: Plan, body: bytes, turn: responses.Turn, constraint: Constraint | None
    ) -> _Opened:
        """A session whose recording has begun, and nothing else."""
        session_id, opened = ids.new_session_id(), ids.unix_ns()
        name, parser = self._parser(protocol)
        elapsed = ids.stopwatch()
        opening = Opening(
            session=session_id,
            key=ids.new_key(),
            response_id=f"{catalog.PROTOCOLS[protocol].prefix}{session_id}",
            created=opened // 1_000_000_000,
            opened=opened,
            model=self.model,
            protocol=protocol,
            request=body,
            ask=msgspec.structs.replace(plan.ask, constrained=constraint is not None),
            parser=name,
            calls=self.config.calls,
            engine=self.engine.facts,
            tokenizer=self.engine.tokenizer,
            conversation=turn.conversation,
        )
        layers = catalog.layers(opening, parser)
        opening = msgspec.structs.replace(opening, stages=catalog.stage_ids(layers))
        return _Opened(opening, layers, plan, constraint, self.recorder.open(opening, elapsed, turn.known))

    async def _alone(self, opened: _Opened, conversation: str) -> None:
        try:
            await responses.alone(opened.recorder, conversation)
        except BaseException:  # whatever ended the wait: nobody else would end the session
            opened.recorder.close("aborted")
            raise

    def _started(self, opened: _Opened) -> Session:
        opening, layers, plan, constraint, recorder = opened
        stream = self.engine.submit(_wanted(opening.session, plan, constraint, stop_watch(opening, layers)))
        session = Session(
            opening, layers, stream, recorder, commit_after=self.config.commit_after,
            keep_alive=self.config.keep_alive if plan.keep_alive is None else plan.keep_alive,
        )  # fmt: skip
        if self.live.closing:
            # It was opened before.
            session.abort("shutdown")
        return session

    def _parser(self, protocol: str) -> tuple[str, Stage[Input, Semantic] | None]:
        """Its name, and what it is (None: the catalog knows)."""
        # A completion is the model's text as it wrote it.
        return (RAW, None) if protocol == "completions" else (self.parser_name, self.parser)

    async def _grammar(self, protocol: str, plan: Plan) -> Constraint | None:
        """The same as ``_constraint``."""
        if not plan.ask.tools:
            return self._constraint(protocol, plan)
        # How a call is written takes a second at worst: others do not wait for it.
        return await anyio.to_thread.run_sync(self._constraint, protocol, plan, limiter=self.spelling)

    def _constraint(self, protocol: str, plan: Plan) -> Constraint | None:
        """What the engine is to hold the output to. With forced tokens, or a parser that is none of ours: nothing."""
        name, own = self._parser(protocol)
        parser = own or catalog.parser(name)
        forced = plan.sampling.forced_ids or plan.sampling.forced_text is not None
        if forced or not self.engine.facts.constrains or not isinstance(parser, Parser):
            return None
        constraint = constraint_of(plan.ask, parser.format, self.engine.tokenizer, protocol)
        called = bool(plan.ask.tools) and (plan.ask.function is not None or plan.ask.tool_choice == "required")
        if called and constraint is None and not self._unheld:
            self._unheld = True
            log.warning(
                "a request requires a call: the model is only asked for it, because the parser %s reads no calls "
                "(--parser)",
                self.parser_name,
            )
        return constraint

    async def generate(self, protocol: str, scope: Scope, receive: Receive, send: Send) -> None:
        """POST to a protocol's path."""
        try:
            require_json(Request(scope))
            body = await read_body(receive, self.config.max_body, self.config.body_timeout)
            if body is None:
                return
            wish = self.wish(scope)
            turn = await responses.turn(self.state, body) if protocol == "responses" else responses.ALONE
            plan = await self._plan(protocol, body, turn)
            constraint = await self._grammar(protocol, plan)
            self._note(plan.ignored)
            refused = self.refused(protocol)
            if refused is not None:
                await refused(scope, receive, send)
                return
            opened = self._opened(protocol, plan, body, turn, constraint)
            if turn.known is not None:
                await self._alone(opened, turn.conversation)
        except RequestError as error:
            await error_response(error, protocol)(scope, receive, send)
            return
        except (StoreError, StagesError) as error:
            await responses.unreadable(error)(scope, receive, send)
            return
        session = self._started(opened)
        if turn.background:
            self.launch(session)
            answer = await responses.begun(self, session, wish)
            await answer(scope, receive, send)
        else:
            await self.serve(session, scope, receive, send, wish=wish)

    async def _plan(self, protocol: str, body: bytes, turn: responses.Turn) -> Plan:
        understand = partial(
            plans.plan, protocol, body, self.model, before=turn.before, stored=turn.stored,
            allow_forced=self.config.allow_forced, reasoning_field=self.config.reasoning_field,
        )  # fmt: skip
        # What was said before may be long.
        return await (anyio.to_thread.run_sync(understand) if turn.before else understood(len(body), understand))

    def _note(self, names: tuple[str, ...]) -> None:
        """Log the names of fields that have no meaning here, each once: one of them may be misspelt."""
        new = [name for name in names if name not in self._ignored]
        if new and len(self._ignored) < MAX_NOTED:
            self._ignored.update(new[:MAX_NOTED])
            log.info("ignored fields of a request: %s", ", ".join(f"{name!r:.50}" for name in new[:10]))

    def refused(self, protocol: str) -> Response | None:
        """The answer to every request, where no more are taken."""
        if not self.engine.alive:
            return failure_response("overloaded", "The engine is not running.", "engine_down", protocol)
        if self.live.closing:
            return failure_response("overloaded", "The server is shutting down.", "shutdown", protocol)
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


def _wanted(session: str, plan: Plan, constraint: Constraint | None, watch: Watch | None) -> EngineRequest:
    """A plan, in the engine's terms."""
    return EngineRequest(
        session=session,
        conversation=plan.conversation,
        sampling=plan.sampling,
        prompts=plan.prompts,
        special=plan.special,
        echo=plan.ask.echo,
        n=plan.ask.n,
        logprobs=plan.ask.top_logprobs if plan.ask.logprobs else None,
        constraint=constraint,
        watch=watch,
    )


def app(server: Server) -> Starlette:
    """The ASGI application of a server whose engine is running."""

    class Generate:
        # Starlette hands raw ASGI to an endpoint that is an instance, not a function: no request or response object
        # stands between a session and its socket.
        def __init__(self, protocol: str) -> None:
            self._protocol = protocol

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            await server.generate(self._protocol, scope, receive, send)

    application = Starlette(
        routes=[
            *(Route(entry.path, Generate(name), methods=["POST"]) for name, entry in catalog.PROTOCOLS.items()),
            *count.routes(server),
            *responses.routes(server.state),
            *responses.counting.routes(server),
            *streams.routes(server),
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
