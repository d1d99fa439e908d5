"""The endpoints of stored responses: retrieve, follow, cancel, delete, input items."""

from __future__ import annotations

from functools import partial
from typing import get_args

import anyio
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from pipeline.http.host import json_response
from pipeline.http.responses.items import page
from pipeline.http.responses.record import Stored
from pipeline.http.responses.state import State
from pipeline.http.streams import follow
from pipeline.http.wishes import Place
from stages.errors import RequestError
from stages.protocols import openai_responses
from stages.protocols.body import refused
from stages.protocols.openai_responses import Includable
from store.api import StillOpen

_INCLUDABLE = get_args(Includable)
_SOON = 5.0
"""Seconds that a client may take to read the end of a response that is to be deleted."""
_MOST = 1 << 40
"""A place in a stream that is beyond every end."""


class Responses:
    """The endpoints. Each raises RequestError, StoreError, StagesError."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def retrieve(self, request: Request) -> ASGIApp:
        """GET /v1/responses/{id}: the response as it is now, or (``stream``) its events behind ``starting_after``."""
        _included(request)
        after = _starting_after(request)
        if after is None:
            return json_response((await self._response(request))[1])
        found = await self._found(request)
        if not found.request.stream:
            raise RequestError(
                f"Response {found.id} was not created with stream=true: it has no events to be streamed.",
                param="stream",
            )
        return partial(self._follow, found, after)

    async def cancel(self, request: Request) -> Response:
        """POST /v1/responses/{id}/cancel: the response, cancelled if it was running."""
        found = await self._found(request)
        if not found.request.background:
            raise RequestError("Cannot cancel a synchronous response: only one with background=true can be.")
        held = self._state.host.live.held(found.session)
        if held is not None:
            held.session.abort("cancel")
            await held.over.wait()
        found, response = await self._response(request, over=True)
        if found.state == "open":
            raise RequestError(
                f"Response {found.id} is made by another process, and can only be cancelled there.", status=409
            )
        return json_response(response)

    async def delete(self, request: Request) -> Response:
        """DELETE /v1/responses/{id}: the recording goes with it."""
        found = await self._found(request)
        running = RequestError(
            f"Response {found.id} is not finished; {'cancel it' if found.request.background else 'let it end'} first.",
            code="response_in_progress", status=409,
        )  # fmt: skip
        held = self._state.host.live.held(found.session)
        if held is not None:
            # One that says its last words is over soon.
            with anyio.move_on_after(_SOON if held.session.ended else 0):
                await held.over.wait()
            if not held.over.is_set():
                raise running
        try:
            await self._state.look(lambda history: history.delete(found.session))
        except StillOpen:
            raise running from None
        return json_response({"id": found.id, "object": "response.deleted", "deleted": True})

    async def input_items(self, request: Request) -> Response:
        """GET /v1/responses/{id}/input_items."""
        _included(request)
        found = await self._found(request)
        items = await self._state.look(lambda history: history.resolved(found.input))
        return json_response(page(items, request.query_params))

    # --- what they share

    async def _found(self, request: Request) -> Stored:
        name: str = request.path_params["response"]
        return await self._state.look(lambda history: history.find(name))

    async def _response(self, request: Request, *, over: bool = False) -> tuple[Stored, openai_responses.Response]:
        """See ``History.response``."""
        name: str = request.path_params["response"]
        return await self._state.look(lambda history: history.response(name, over=over))

    async def _follow(self, found: Stored, after: int, scope: Scope, receive: Receive, send: Send) -> None:
        # Events are numbered from 0; a place is behind so many.
        place = Place(after + 1, responses=True)
        await follow(self._state.host, found.session, scope, receive, send, place, protocol="responses")


def _included(request: Request) -> None:
    """What is asked to be included is known. It changes nothing: what there is, is told. Raises RequestError."""
    for name in ("include", "include[]"):
        for value in request.query_params.getlist(name):
            if value not in _INCLUDABLE:
                raise refused("include", f"there is no {value!r:.100}; expected one of {', '.join(_INCLUDABLE)}")


def _starting_after(request: Request) -> int | None:
    """The event that the stream goes on behind, -1 for all of it; None: no stream is asked for. Raises RequestError."""
    query = request.query_params
    stream, after = query.get("stream", "false"), query.get("starting_after")
    if stream not in ("true", "false"):
        raise refused("stream", f"expected true or false, not {stream!r:.100}")
    if after is None:
        return -1 if stream == "true" else None
    if stream == "false":
        raise refused("starting_after", "only allowed when stream is true")
    if not (after.isascii() and after.isdigit()):
        raise refused("starting_after", f"expected the sequence number of an event, not {after!r:.100}")
    return min(int(after.lstrip("0")[:20] or "0"), _MOST)
