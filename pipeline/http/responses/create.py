"""POST /v1/responses: what a request goes on from, before it is understood; and what runs in the background."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from pipeline.http.host import Host, json_response
from pipeline.http.incoming import understood
from pipeline.http.live import Session
from pipeline.http.responses.history import Conversation, History
from pipeline.http.responses.items import Item
from pipeline.http.responses.state import State, busy, unreadable
from pipeline.http.streams import follow
from pipeline.http.wishes import Place, Wish
from pipeline.recorder import SessionRecorder
from stages.errors import RequestError
from stages.protocols import openai_responses
from stages.protocols.openai_responses import ResponsesRequest
from store.api import Overtaken, StoreError


class Turn(msgspec.Struct, frozen=True):
    """What a request is beside what it asks. ``before``: the items that were said; ``stored``: those that its input
    refers to, by id; ``conversation``: its id, or ""; ``known``: its sessions, where it is to be one."""

    before: Sequence[Item] = ()
    stored: dict[str, Item] = {}
    conversation: str = ""
    known: Collection[str] | None = None
    background: bool = False


ALONE = Turn()


async def turn(state: State, body: bytes) -> Turn:
    """What a request goes on from. Raises RequestError, StoreError, StagesError."""
    request = await understood(len(body), partial(openai_responses.decode_request, body))
    conversation = request.conversation_id or ""
    if request.background or conversation:
        _storable(state, request)
    made, stored = await looked_up(state, request)
    if made.busy:
        raise busy(conversation)
    return Turn(made.items, stored, conversation, made.sessions if conversation else None, request.background)


async def alone(recorder: SessionRecorder, conversation: str) -> None:
    """Wait until a session that knows its conversation is on record: from then on until its end it is the one that is
    at work there. Raises RequestError (409) where another one was faster, at whatever process; StoreError."""
    try:
        await recorder.committed()
    except Overtaken:
        raise busy(conversation) from None


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


async def looked_up(state: State, request: ResponsesRequest) -> tuple[Conversation, dict[str, Item]]:
    """What was said before a request, in its conversation or not, and the items that its input refers to, by id. Raises
    RequestError, StoreError, StagesError."""
    wanted = openai_responses.references(request)
    previous, conversation = request.previous_response_id, request.conversation_id
    if previous is None and conversation is None and not wanted:
        return Conversation(""), {}
    if previous is not None and state.host.recorder.store is None:
        raise RequestError(
            "previous_response_id: this server records nothing, so there is nothing to go on from.",
            param="previous_response_id", code="previous_response_not_found",
        )  # fmt: skip

    def look(history: History) -> tuple[Conversation, dict[str, Item]]:
        made = Conversation("", items=[] if previous is None else history.before(previous))
        if conversation is not None:
            made = history.conversation(conversation)
        return made, _by_id(history, made.items, wanted)

    return await state.look(look)


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
