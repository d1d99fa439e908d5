"""POST /v1/messages/count_tokens: how long the prompt of a messages request is. Nothing is generated, or recorded."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pipeline.http import plans
from pipeline.http.host import json_response
from pipeline.http.incoming import understood
from pipeline.http.responses.state import Answer
from stages import catalog

if TYPE_CHECKING:
    from pipeline.http.app import Server

PATH = f"{catalog.PROTOCOLS['messages'].path}/count_tokens"


def routes(server: Server) -> list[Route]:
    """The route."""

    async def count(request: Request) -> Response:
        body = await server.state.body(request)
        refused = server.refused("messages")
        if refused is not None:
            return refused
        conversation = await understood(len(body), partial(plans.counted, body, server.model))
        return json_response({"input_tokens": await server.engine.count(conversation)})

    return [Route(PATH, Answer(count, "messages"), methods=["POST"])]
