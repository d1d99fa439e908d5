"""What a proxy answers itself, of what is stored here or can be counted here; all else passes to the upstreams.

/v1/responses/{id} …, /v1/conversations …    of responses that our stages made: the upstream knows nothing of them
/v1/messages/count_tokens                    of an upstream that does not speak messages: with its tokenizer
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import anyio.to_thread
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pipeline.http import count, plans, responses
from pipeline.http.host import error_response, json_response
from pipeline.http.live import LAG
from pipeline.http.responses.history import History
from pipeline.http.responses.items import session_of
from pipeline.http.responses.state import unreadable
from pipeline.http.serve import read_body
from stages.errors import RequestError
from stages.upstream.asked import model_of
from store.api import StoreError

if TYPE_CHECKING:
    from pipeline.http.proxy import Proxy


def routes(proxy: Proxy, otherwise: ASGIApp) -> list[Route]:
    """The routes. ``otherwise``: what takes requests that are not for them."""
    stored = [
        Route(route.path, _Stored(proxy, route.endpoint, otherwise), methods=[*(route.methods or ())])
        for route in responses.routes(proxy.state)
    ]
    return [*stored, Route(count.PATH, _Count(proxy, otherwise), methods=["POST"])]


class _Stored:
    """A route of what is stored: for ids that are ours; for conversations, where no upstream has any."""

    def __init__(self, proxy: Proxy, endpoint: ASGIApp, otherwise: ASGIApp) -> None:
        self._proxy = proxy
        self._endpoint = endpoint
        self._otherwise = otherwise

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        app: ASGIApp
        try:
            app = self._endpoint if await self._is_ours(scope["path_params"]) else self._otherwise
        except StoreError as error:
            app = unreadable(error)
        await app(scope, receive, send)

    async def _is_ours(self, named: dict[str, str]) -> bool:
        """Raises StoreError."""
        proxy = self._proxy
        settings = [upstream.settings for upstream in proxy.pool.upstreams]
        if not any("responses" in one.protocols for one in settings):
            return True
        session = session_of(named.get("response", ""))
        if session is None or proxy.recorder.store is None:
            return False
        # Where all is relayed, what is not on record yet is not made here: it is not waited for.
        makes = any(one.parser is not None or "responses" not in one.protocols for one in settings)
        return await proxy.state.look(partial(_made_here, session=session), LAG if makes else 0.0)


def _made_here(history: History, session: str) -> bool:
    opening = history.opening(session)
    return opening is not None and opening.upstream is not None and not opening.upstream.relayed


class _Count:
    """How long the prompt of a messages request is."""

    def __init__(self, proxy: Proxy, otherwise: ASGIApp) -> None:
        self._proxy = proxy
        self._otherwise = otherwise

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        proxy = self._proxy
        body = await read_body(receive, proxy.config.max_body, proxy.config.body_timeout)
        if body is None:
            return
        asked = proxy.pool.choose(model_of(body))
        if not asked or "messages" in asked[0].settings.protocols:
            await self._otherwise(scope, _again(body, receive), send)
            return
        try:
            response = json_response({"input_tokens": await self._counted(body)})
        except RequestError as error:
            response = error_response(error, "messages")
        await response(scope, receive, send)

    async def _counted(self, body: bytes) -> int:
        """Raises RequestError."""
        model = model_of(body)
        vocabulary = self._proxy.vocabulary(model)
        if vocabulary is None:
            raise RequestError(
                "The server behind this one does not count tokens of messages, and no tokenizer is set to count them "
                "here: set one (--tokenizer, or tokenizer in the settings of the upstream).",
                code="not_found", status=404,
            )  # fmt: skip
        conversation = await anyio.to_thread.run_sync(plans.counted, body, model or "")
        return len((await anyio.to_thread.run_sync(vocabulary.prompt, conversation)).ids)


def _again(body: bytes, receive: Receive) -> Receive:
    """Gives a body that was read already, and then what comes behind it."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return again
