"""POST /v1/messages/count_tokens: how long the prompt of a messages request is. Nothing is generated, or recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from pipeline.engines.base import Conversation
from pipeline.http import plans
from pipeline.http.host import error_response, json_response
from pipeline.http.incoming import require_json
from pipeline.http.serve import read_body
from stages import catalog
from stages.errors import RequestError

if TYPE_CHECKING:
    from pipeline.http.app import Server

PATH = f"{catalog.PROTOCOLS['messages'].path}/count_tokens"


class _Count:
    def __init__(self, server: Server) -> None:
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            response = await self._answer(Request(scope), receive)
        except RequestError as error:
            response = error_response(error, "messages")
        if response is not None:
            await response(scope, receive, send)

    async def _answer(self, request: Request, receive: Receive) -> Response | None:
        """None where the client left before its request was whole. Raises RequestError."""
        server = self._server
        require_json(request)
        body = await read_body(receive, server.config.max_body, server.config.body_timeout)
        if body is None:
            return None
        refused = server.refused("messages")
        if refused is not None:
            return refused
        conversation = await self._conversation(body)
        return json_response({"input_tokens": await server.engine.count(conversation)})

    async def _conversation(self, body: bytes) -> Conversation:
        return await anyio.to_thread.run_sync(plans.counted, body, self._server.model)


def routes(server: Server) -> list[Route]:
    """The route."""
    return [Route(PATH, _Count(server), methods=["POST"])]
