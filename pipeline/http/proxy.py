"""The HTTP edge in front of other servers.

A request that makes a model write is a session: relayed, or (``--parser``) asked for what our stages can read, which
then make the response. Everything else passes as it is, and is not recorded.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from pipeline import ids
from pipeline.config import Config
from pipeline.engines.base import SHUTDOWN
from pipeline.http import proxy_state, responses, streams
from pipeline.http.connection import link_of
from pipeline.http.host import Host, crashed, error_response, http_exception, json_response, middleware
from pipeline.http.serve import FrameWriter, read_body
from pipeline.http.wishes import without_wishes
from pipeline.recorder import Recorder
from pipeline.upstream.client import Exchange
from pipeline.upstream.errors import UpstreamFault
from pipeline.upstream.headers import downward
from pipeline.upstream.pool import Pool
from pipeline.upstream.sessions import MadeSession, Request, Sessions, while_there
from pipeline.upstream.settings import UpstreamSettings
from pipeline.upstream.stream import UpstreamStream
from pipeline.vocabulary import Vocabulary
from stages import catalog
from stages.errors import RequestError, StagesError
from stages.events import Block, Body, ErrorInput, FailureKind, Head
from stages.opening import Opening
from stages.stage import fold
from stages.upstream.asked import model_of
from stages.upstream.relay import RELAY
from store.api import StoreError

PROTOCOLS = {entry.path.removeprefix("/v1"): name for name, entry in catalog.PROTOCOLS.items()}
"""What a path ends in → the protocol of the session that a POST to it is."""
PATHS = "/health, /metrics and /v1/streams/ID are Playhead's own; everything else is the upstream's."
_KINDS: dict[int, FailureKind] = {404: "not_found", 413: "too_large", 408: "timeout"}
_CONFLICT = 409


def protocol_of(method: str, path: str) -> str | None:
    """The protocol of a request that makes a model write; None for any other."""
    if method != "POST":
        return None
    return next((protocol for end, protocol in PROTOCOLS.items() if path.endswith(end)), None)


class Proxy(Host):
    """A host whose engines are other servers."""

    def __init__(self, config: Config, pool: Pool, recorder: Recorder) -> None:
        """Raises ReplayError or UnknownName for a shadow that does not exist."""
        super().__init__(config, recorder)
        self.pool = pool
        self.metrics.watch(pool)
        settings = [upstream.settings for upstream in pool.upstreams]
        self.serves = settings[0].url if len(settings) == 1 else ",".join(one.name for one in settings)
        self.example = next((name for one in settings for name in one.models if "*" not in name), "MODEL")
        parsers = sorted({one.parser for one in settings if one.parser is not None})
        self.how = f"parser {', '.join(parsers)}" if parsers else "relayed"
        self._vocabularies: dict[str, Vocabulary] = {}
        self._sessions = Sessions(config, pool, recorder, self._vocabularies)
        self.state = responses.State(self)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """See Host. Raises EngineLoadError for a tokenizer that cannot be had."""
        for upstream in self.pool.upstreams:
            where = upstream.settings.tokenizer
            if where is not None and where not in self._vocabularies:
                self._vocabularies[where] = await anyio.to_thread.run_sync(Vocabulary.load, where)
        async with super().running():
            yield

    async def take(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Any request."""
        method, path = scope["method"], scope["path"]
        protocol = protocol_of(method, path)
        try:
            if self.live.closing:
                raise _Refused(SHUTDOWN)
            if protocol is None:
                await self._pass(scope, receive, send)
            else:
                await self._session(protocol, scope, receive, send)
        except _Refused as refused:
            await _answer(refused.error, protocol or catalog.protocol_at(path), send)
        except (StoreError, StagesError) as error:
            if not isinstance(error, RequestError):
                await responses.unreadable(error)(scope, receive, send)
                return
            if error.status == _CONFLICT:
                # What is stored here says so, and no upstream does: there is no kind for it.
                await error_response(error, protocol or catalog.protocol_at(path))(scope, receive, send)
                return
            refusal = ErrorInput(_KINDS.get(error.status, "bad_request"), error.message, error.code, error.param)
            await _answer(refusal, protocol or catalog.protocol_at(path), send)

    async def _session(self, protocol: str, scope: Scope, receive: Receive, send: Send) -> None:
        body = await read_body(receive, self.config.max_body, self.config.body_timeout)
        if body is None:
            return
        model = model_of(body)
        upstreams = self.pool.choose(model)
        if not upstreams:
            raise RequestError(
                f"No upstream serves the model {model or ''!r:.100}; the settings name {self._models()}.",
                param="model", code="model_not_found", status=404,
            )  # fmt: skip
        wish = self.wish(scope)
        turn = await self._turn(protocol, upstreams[0].settings, body)
        request = Request(protocol, scope["path"], _target(scope), _headers(scope), body, model, turn)
        opened = await self._sessions.open(request, upstreams, receive)
        session = opened.session
        if isinstance(session, MadeSession):
            send = _with_limits(send, session.upstream)
            if turn is not None and turn.known is not None:
                await self._alone(session, turn.conversation)
        if turn is not None and turn.background and isinstance(session, MadeSession):
            self.launch(session, opened.shadows)
            answer = await responses.begun(self, session, wish)
            await answer(scope, receive, send)
        else:
            await self.serve(session, scope, receive, send, opened.shadows, wish)

    async def _alone(self, session: MadeSession, conversation: str) -> None:
        """See ``responses.alone``. What is refused comes to its end without a client: an upstream may be at work."""
        try:
            await responses.alone(session.recorder, conversation)
        except BaseException:  # whatever ended the wait: nobody else would end the session
            session.abort("cancel")
            self.launch(session)
            raise

    async def _turn(self, protocol: str, settings: UpstreamSettings, body: bytes) -> responses.Turn | None:
        """What a request goes on from, where our stages make its response; the upstream knows nothing of that. None:
        it goes on from something that is not stored here, of an upstream that may have it. Raises RequestError."""
        spoken = protocol in settings.protocols
        if protocol != "responses" or (spoken and settings.parser is None):
            return responses.ALONE
        try:
            return await responses.turn(self.state, body)
        except RequestError:
            if spoken:
                return None
            raise

    def vocabulary(self, model: str | None) -> Vocabulary | None:
        """The tokenizer of the upstream that serves a model."""
        upstreams = self.pool.choose(model)
        return self._vocabularies.get(upstreams[0].settings.tokenizer or "") if upstreams else None

    def _models(self) -> str:
        names = [name for upstream in self.pool.upstreams for name in upstream.settings.models]
        return ", ".join(names[:10])

    # --- what is no session -----------------------------------------------------------------------------------------

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        upload = _Upload(receive, there=_has_body(scope))
        refused = await while_there(upload.behind, lambda: self._passed(scope, upload, send))
        if isinstance(refused, ErrorInput):
            raise _Refused(refused)

    async def _passed(self, scope: Scope, upload: _Upload, send: Send) -> ErrorInput | None:
        """Ask, and pass on the answer; why there is none."""
        writer = FrameWriter(send, link_of(scope), self.stall.after)
        headers = _headers(scope)
        body = upload.parts() if upload.there else b""
        try:
            if scope["method"] == "GET" and scope["path"] == "/v1/models" and len(self.pool.upstreams) > 1:
                await _tell(await self.pool.models(headers), writer)
                return None
            _, answer = await self.pool.ask(self.pool.choose(None), scope["method"], _target(scope), headers, body)
        except UpstreamFault as fault:
            return fault.input()
        except _Left:
            return None
        try:
            await _copy(answer, writer)
        finally:
            with anyio.CancelScope(shield=True):
                await answer.close()
        return None

    async def health(self, request: HttpRequest) -> Response:
        """GET /health: 200 while an upstream can be reached, as far as is known, else 503."""
        up = {upstream.settings.name: upstream.state for upstream in self.pool.upstreams}
        store = self.recorder.store
        alive = any(state != "down" for state in up.values())
        body = {
            "status": "ok" if alive else "upstreams_down",
            "upstreams": up,
            "sessions": len(self.live),
            "record": self.recorder.mode,
            "store": store.stats() if store is not None else None,
        }
        return json_response(body, 200 if alive else 503)


def _with_limits(send: Send, stream: UpstreamStream) -> Send:
    """Sends the head with what the upstream said of its limits, which is not recorded: it is the moment's."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            more = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in stream.limits]
            known = {name for name, _ in more}
            own = [item for item in message.get("headers", ()) if item[0] not in known]
            message = {**message, "headers": [*own, *more]}
        await send(message)

    return sent


class _Refused(Exception):
    def __init__(self, error: ErrorInput) -> None:
        super().__init__(error.message)
        self.error = error


async def _answer(error: ErrorInput, protocol: str, send: Send) -> None:
    """An error before there is a session."""
    opening = Opening(
        session="", key="", response_id=ids.new_request_id(), created=0, opened=0, model="", protocol=protocol
    )
    writer = FrameWriter(send)
    await writer.write(fold(RELAY.start(opening), [error]))
    await writer.finish()


async def _copy(answer: Exchange, writer: FrameWriter) -> None:
    try:
        await writer.write([Head(answer.status, tuple(downward(answer.headers)))])
        while data := await answer.read():
            await writer.write([Block(data)])
        await writer.finish()
    except UpstreamFault:
        # Nothing can be said any more.
        await writer.break_off()
    except OSError:
        await writer.drop()


async def _tell(value: object, writer: FrameWriter) -> None:
    made = json_response(value)
    headers = tuple((name.decode("latin-1"), item.decode("latin-1")) for name, item in made.raw_headers)
    await writer.write([Head(200, headers), Body(bytes(made.body))])
    await writer.finish()


class _Left(Exception):
    """The client left before its request was whole: nobody is to take what came of it for all."""


class _Upload:
    """A request's body on its way up. ``there``: there is one."""

    def __init__(self, receive: Receive, *, there: bool) -> None:
        self.there = there
        self._receive = receive
        self._over = anyio.Event()
        if not there:
            self._over.set()

    async def parts(self) -> AsyncIterator[bytes]:
        """The body as it comes. Raises _Left."""
        try:
            more = True
            while more:
                message = await self._receive()
                if message["type"] == "http.disconnect":
                    raise _Left
                yield message.get("body", b"")
                more = message.get("more_body", False)
        finally:
            self._over.set()

    async def behind(self) -> Message:
        """What comes behind the body, see ASGI: that the client leaves."""
        await self._over.wait()
        return await self._receive()


def _headers(scope: Scope) -> list[tuple[str, str]]:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]


def _has_body(scope: Scope) -> bool:
    return any(name in (b"content-length", b"transfer-encoding") for name, _ in scope["headers"])


def _target(scope: Scope) -> str:
    path: str = scope["raw_path"].decode("latin-1") if scope.get("raw_path") else scope["path"]
    query = without_wishes(scope["query_string"].decode("latin-1"))
    return f"{path}?{query}" if query else path


def app(proxy: Proxy) -> Starlette:
    """The ASGI application of a proxy."""

    class Take:
        # See pipeline.http.app: raw ASGI.
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            await proxy.take(scope, receive, send)

    application = Starlette(
        routes=[
            Route("/health", proxy.health, methods=["GET"]),
            Route("/metrics", proxy.metrics.answer, methods=["GET"]),
            *streams.routes(proxy),
            *proxy_state.routes(proxy, Take()),
            Route("/{path:path}", Take()),
        ],
        middleware=middleware(proxy.config),
        exception_handlers={HTTPException: http_exception(PATHS), Exception: crashed},
    )
    application.router.redirect_slashes = False
    return application
