"""POST /v1/responses/input_tokens: how long the prompt of a request is, with all that it goes on from. Nothing is
generated, or recorded."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pipeline.http import plans
from pipeline.http.host import json_response
from pipeline.http.incoming import understood
from pipeline.http.responses.create import looked_up
from pipeline.http.responses.state import Answer
from stages.protocols import openai_responses

if TYPE_CHECKING:
    from pipeline.http.app import Server

PATH = "/v1/responses/input_tokens"


def routes(server: Server) -> list[Route]:
    """The route."""

    async def count(request: Request) -> Response:
        body = await server.state.body(request)
        refused = server.refused("responses")
        if refused is not None:
            return refused
        asked = await understood(len(body), partial(openai_responses.decode_request, body))
        said, stored = await looked_up(server.state, asked)
        understand = partial(plans.plan, "responses", body, server.model, before=said.items, stored=stored)
        plan = await anyio.to_thread.run_sync(understand)
        assert plan.conversation is not None, "a responses request is a conversation"
        tokens = await server.engine.count(plan.conversation)
        return json_response({"object": "response.input_tokens", "input_tokens": tokens})

    return [Route(PATH, Answer(count), methods=["POST"])]
