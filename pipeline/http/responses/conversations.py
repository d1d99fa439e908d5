"""The conversations API.

A conversation is what its responses brought, in order, and what is done to it here. Each such deed is recorded as a
session in which no engine speaks: its request is a Note, its ``response_id`` is the id of the conversation, and so is
its ``conversation``. So conversations are exported, imported and deleted as all that is recorded.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from pipeline import ids
from pipeline.http.host import json_response
from pipeline.http.incoming import understood
from pipeline.http.responses.history import CONVERSATION, Conversation, Note
from pipeline.http.responses.items import Item, listing, page
from pipeline.http.responses.state import State, busy
from stages import catalog
from stages.errors import RequestError
from stages.opening import Opening
from stages.protocols import openai_responses
from stages.protocols.body import decoded
from stages.protocols.openai_responses import Metadata
from store.api import EventStore, SessionNotFound

T = TypeVar("T", bound=msgspec.Struct)
MOST_ITEMS = 20
"""Items that a request may bring; so the API has it."""

_Items = Annotated[list[dict[str, Any]], Meta(max_length=MOST_ITEMS)]


class _Create(msgspec.Struct, frozen=True):
    items: _Items = []
    metadata: Metadata = {}


class _Update(msgspec.Struct, frozen=True):
    metadata: Metadata = {}


class _Add(msgspec.Struct, frozen=True):
    items: _Items


class Conversations:
    """The endpoints. Each raises RequestError, StoreError."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def create(self, request: Request) -> Response:
        """POST /v1/conversations."""
        asked = await self._asked(request, _Create)
        self._state.require("conversations")
        items = await self._taken(asked.items)
        session = ids.new_session_id()
        made = Conversation(CONVERSATION + session)
        await self._do(made, Note("created", items, asked.metadata), session)
        return json_response(made.shown())

    async def retrieve(self, request: Request) -> Response:
        """GET /v1/conversations/{id}."""
        return json_response((await self._found(request)).shown())

    async def update(self, request: Request) -> Response:
        """POST /v1/conversations/{id}."""
        asked = await self._asked(request, _Update)
        made = await self._at_work(request)
        await self._do(made, Note("updated", metadata=asked.metadata))
        return json_response(made.shown())

    async def delete(self, request: Request) -> Response:
        """DELETE /v1/conversations/{id}: what its responses brought stays theirs."""
        made = await self._at_work(request)
        # From here on nobody adds to it.
        await self._do(made, Note("deleted"))
        await self._state.read(partial(_forget, made.id))
        return json_response({"id": made.id, "object": "conversation.deleted", "deleted": True})

    async def add(self, request: Request) -> Response:
        """POST /v1/conversations/{id}/items."""
        asked = await self._asked(request, _Add)
        if not asked.items:
            raise RequestError("items: expected at least one item", param="items")
        items = await self._taken(asked.items)
        made = await self._at_work(request)
        before = len(made.items)
        await self._do(made, Note("added", items))
        return json_response(listing(made.items[before:]))

    async def items(self, request: Request) -> Response:
        """GET /v1/conversations/{id}/items."""
        found = await self._found(request)
        return json_response(page(found.items, request.query_params))

    async def item(self, request: Request) -> Response:
        """GET /v1/conversations/{id}/items/{item}."""
        return json_response(_item(await self._found(request), request.path_params["item"]))

    async def remove(self, request: Request) -> Response:
        """DELETE /v1/conversations/{id}/items/{item}."""
        made = await self._at_work(request)
        name = _item(made, request.path_params["item"])["id"]
        await self._do(made, Note("removed", item=name))
        return json_response(made.shown())

    # --- what they share

    async def _asked(self, request: Request, kind: type[T]) -> T:
        body = await self._state.body(request)
        return await understood(len(body), partial(decoded, body, kind))

    async def _found(self, request: Request) -> Conversation:
        return await self._state.conversation(request.path_params["conversation"])

    async def _at_work(self, request: Request) -> Conversation:
        """The conversation, to do something to it."""
        self._state.require("conversations")
        made = await self._found(request)
        if made.busy:
            raise busy(made.id)
        return made

    async def _taken(self, items: list[Item]) -> list[Item]:
        """Items of a request, which a later request must be able to bring to the model."""
        if not items:
            return []
        body = msgspec.json.encode({"input": items})
        try:
            await understood(len(body), partial(openai_responses.decode_request, body))
        except RequestError as error:
            param = (error.param or "").replace("input", "items", 1)
            raise RequestError(error.message.replace("input", "items", 1), param=param) from None
        found = await self._state.look(lambda history: history.resolved(items))
        for place, item in enumerate(found):
            if openai_responses.kind_of(item) == "item_reference":
                name = f"items[{place}].id"
                raise RequestError(f"{name}: there is no stored item {item.get('id')!r:.100}", param=name)
        return found

    async def _do(self, made: Conversation, note: Note, session: str | None = None) -> None:
        """Record what is done, and do it. ``session``: its id, where that is known."""
        opened = ids.unix_ns()
        opening = Opening(
            session=session or ids.new_session_id(),
            key=ids.new_key(),
            response_id=made.id,
            created=opened // 1_000_000_000,
            opened=opened,
            model="",
            protocol="responses",
            request=msgspec.json.encode(note),
            conversation=made.id,
        )
        opening = msgspec.structs.replace(opening, stages=catalog.stage_ids(catalog.layers(opening)))
        await self._state.record(opening, made.sessions)
        made.note(opening)


def _forget(conversation: str, store: EventStore) -> None:
    """Delete what was done to a conversation, its beginning first: without that it is gone."""
    found = [info.session for info in store.sessions(f"conversation = '{conversation}'")]
    for session in sorted(found, key=lambda name: name != conversation.removeprefix(CONVERSATION)):
        with suppress(SessionNotFound):  # somebody else was faster
            if store.opening(session).response_id == conversation:
                store.delete(session)


def _item(found: Conversation, item_id: str) -> Item:
    for item in found.items:
        if item.get("id") == item_id:
            return item
    raise RequestError(f"Item with id {item_id!r:.100} not found.", code="not_found", status=404)
