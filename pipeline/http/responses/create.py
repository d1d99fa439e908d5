"""POST /v1/responses: what a request goes on from, before it is understood; and what runs in the background."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import ExitStack, asynccontextmanager
from functools import partial

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from pipeline.http.host import Host, json_response
from pipeline.http.incoming import understood
from pipeline.http.live import Session
from pipeline.http.responses.history import History
from pipeline.http.responses.items import Item
from pipeline.http.responses.state import State, busy, unreadable
from pipeline.http.streams import follow
from pipeline.http.wishes import Place, Wish
from stages.errors import RequestError
from stages.protocols import openai_responses
from stages.protocols.openai_responses import ResponsesRequest
from store.api import EventStore, StoreError


class Turn(msgspec.Struct, frozen=True):
    """What a request is beside what it asks. ``before``: the items that were said; ``stored``: those that its input
    refers to, by id; ``conversation``: its id, or ""."""

    before: Sequence[Item] = ()
    stored: dict[str, Item] = {}
    conversation: str = ""
    background: bool = False


ALONE = Turn()


@asynccontextmanager
async def turn(state: State, body: bytes) -> AsyncGenerator[Turn]:
    """What a request goes on from. While the block runs nothing else happens in its conversation, and then until its
    session, which must be live at once, has said all. Raises RequestError, StoreError, StagesError."""
    request = await understood(len(body), partial(openai_responses.decode_request, body))
    conversation = request.conversation_id or ""
    if request.background or conversation:
        _storable(state, request)
    with ExitStack() as held:
        if conversation:
            held.enter_context(state.alone(conversation))
        before, stored = await looked_up(state, request, alone=True)
        yield Turn(before, stored, conversation, request.background)


async def begun(host: Host, session: Session, wish: Wish) -> ASGIApp:
    """The answer to a request whose session was launched: its events as they come, or the response as it is now. What
    cannot be recorded nobody could ask for: it is ended."""
    opening = session.opening
    try:
        await session.recorder.committed()
    except StoreError as error:
        session.abort("cancel")
        return unreadable(error)
    if not opening.ask.stream:
        headers = {"x-request-id": opening.response_id}
        return json_response(openai_responses.so_far(opening, ()), headers=headers)
    place = Place(numbered=wish.event_ids)

    async def followed(scope: Scope, receive: Receive, send: Send) -> None:
        await follow(host, opening.session, scope, receive, send, place, protocol="responses")

    return followed


async def looked_up(
    state: State, request: ResponsesRequest, *, alone: bool = False
) -> tuple[list[Item], dict[str, Item]]:
    """The items that were said before a request, and those that its input refers to, by id. ``alone``: nothing may be
    at work in its conversation. Raises RequestError, StoreError, StagesError."""
    wanted = openai_responses.references(request)
    previous, conversation = request.previous_response_id, request.conversation_id
    if previous is None and conversation is None and not wanted:
        return [], {}
    if previous is not None and state.host.recorder.store is None:
        raise RequestError(
            "previous_response_id: this server records nothing, so there is nothing to go on from.",
            param="previous_response_id", code="previous_response_not_found",
        )  # fmt: skip

    def look(store: EventStore) -> tuple[list[Item], dict[str, Item]]:
        history = state.history(store)
        before = [] if previous is None else history.before(previous)
        if conversation is not None:
            made = history.conversation(conversation)
            if alone and made.busy:
                raise busy(conversation)
            before = made.items
        return before, _by_id(history, before, wanted)

    return await state.read(look)


def _by_id(history: History, before: Sequence[Item], wanted: Sequence[str]) -> dict[str, Item]:
    """Those that are wanted, as far as they are there."""
    if not wanted:
        return {}
    said = {str(item.get("id")): item for item in before}
    more = history.resolved([{"type": "item_reference", "id": name} for name in wanted if name not in said])
    return said | {str(item["id"]): item for item in more if openai_responses.kind_of(item) != "item_reference"}


def _storable(state: State, request: ResponsesRequest) -> None:
    """Raises RequestError (400) for what is to be kept and cannot."""
    what = "background" if request.background else "conversation"
    state.require(what)
    if not request.store:
        raise RequestError(f"{what}: only allowed when store is not false.", param=what)
