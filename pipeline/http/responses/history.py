"""What was said before: the items that a request goes on from, out of the log.

A response brings its input and its output, once it has ended as it should (``completed`` or ``incomplete``). What comes
before it is what its ``previous_response_id`` names, or what its conversation had then. As ``pipeline.http.responses.
record``, this reads the store and waits for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Literal, TypeAlias

import msgspec

from pipeline.http.live import LAG
from pipeline.http.responses.items import Item, listed, session_of
from pipeline.http.responses.record import RUNNING, Own, Stored, find, output_of, response_of, stored
from pipeline.http.responses.record import session_of as response_of_session
from pipeline.ids import is_new
from stages.errors import RequestError
from stages.opening import Opening
from stages.protocols import openai_responses
from stages.protocols.openai_responses import Response
from store.api import EventStore, SessionInfo, SessionNotFound, StillOpen

MAX_TURNS = 2_000
"""Responses, and changes of a conversation, that a request may go on from; items that its input may refer to."""
MAX_SIZE = 64 << 20
"""Bytes of all the requests that it goes on from."""
TOO_LONG = "conversation_too_long"
CONVERSATION = "conv_"
_ID = re.compile(rf"{CONVERSATION}[0-9a-f]{{32}}\Z")
_ENDED = ("completed", "incomplete")

Change: TypeAlias = Literal["created", "updated", "added", "removed", "deleted"]


class Note(msgspec.Struct, frozen=True):
    """What somebody did to a conversation beside talking in it: the request of a session in which no engine speaks.

    ``created``: with ``items`` and ``metadata``; ``updated``: ``metadata`` in place of what there was; ``added``:
    ``items``; ``removed``: the item ``item``; ``deleted``: it is gone, and its notes will be."""

    change: Change
    items: list[Item] = []
    metadata: dict[str, str] = {}
    item: str = ""


class Conversation(msgspec.Struct):
    """A conversation as it is. ``busy``: a response of it is not finished; ``sessions``: those that it was read of."""

    id: str
    created: int = 0
    metadata: dict[str, str] = {}
    items: list[Item] = []
    exists: bool = False
    busy: bool = False
    sessions: list[str] = []

    def shown(self) -> dict[str, Any]:
        """The object of the API."""
        return {"id": self.id, "object": "conversation", "created_at": self.created, "metadata": self.metadata}

    def note(self, opening: Opening) -> None:
        """Something was done to it."""
        note = _note_of(opening)
        match note.change:
            case "created":
                self.exists, self.created, self.metadata = True, opening.created, note.metadata
            case "updated":
                self.metadata = note.metadata
            case "deleted":
                self.exists = False
            case "removed":
                self.items = [item for item in self.items if item.get("id") != note.item]
            case "added":
                pass
        self.items += _added(opening)


def _note_of(opening: Opening) -> Note:
    try:
        return msgspec.json.decode(opening.request, type=Note)
    except msgspec.DecodeError:
        # Made by hand: nothing was done.
        return Note("added")


def _added(opening: Opening) -> list[Item]:
    return listed(opening.session, _note_of(opening).items)


def no_conversation(conversation: str) -> RequestError:
    """The error of a conversation that is not there."""
    return RequestError(
        f"Conversation with id {conversation!r:.100} not found.", param="conversation", code="not_found", status=404
    )


def _ours(session: str) -> bool:
    return True


class History:
    """Reads what was said, out of a store, for one request. ``ours``: whether a session that runs is of this process:
    then all that it has said is on record."""

    def __init__(self, store: EventStore, own: Own, ours: Callable[[str], bool] = _ours) -> None:
        self._store = store
        self._own = own
        self._ours = ours
        self.early = False
        """Another process may be just recording what was looked for: soon it may be there."""
        self._references = 0
        self._size = 0

    # --- what may be there soon

    def find(self, response_id: str) -> Stored:
        """See ``record.find``."""
        try:
            return find(self._store, response_id)
        except RequestError:
            self._missed(response_of_session(response_id) or "")
            raise

    def response(self, response_id: str, *, over: bool) -> tuple[Stored, Response]:
        """A response as it is now. ``over``: where it runs in the background, too, its end may have been told. Raises
        RequestError, StoreError, StagesError."""
        found = self.find(response_id)
        if found.state == "open" and (over or not found.request.background):
            self._open(found.session)
        return found, response_of(self._store, found, self._own)

    def opening(self, session: str) -> Opening | None:
        """What a session is; None where there is none."""
        try:
            return self._store.opening(session)
        except SessionNotFound:
            self._missed(session)
            return None

    def delete(self, session: str) -> None:
        """Delete a session. Raises StillOpen, and what else a store raises."""
        try:
            self._store.delete(session)
        except StillOpen:
            self._open(session)
            raise

    def _missed(self, session: str) -> None:
        """It was not found. One that is there is of another kind."""
        if is_new(session, LAG):
            try:
                self._store.opening(session)
            except SessionNotFound:
                self.early = True

    def _open(self, session: str) -> None:
        self.early = self.early or not self._ours(session)

    # --- by the response before

    def before(self, response_id: str) -> list[Item]:
        """All items up to this response and with it, in order. Raises RequestError, StoreError."""
        turns: list[list[Item]] = []
        while response_id:
            if len(turns) == MAX_TURNS:
                raise _too_long("previous_response_id")
            found, turn = self._previous(response_id)
            turns.append(turn)
            conversation = found.request.conversation_id
            if conversation is not None:
                turns.append(self.conversation(conversation, until=found.session).items)
                break
            response_id = found.request.previous_response_id or ""
        return [item for turn in reversed(turns) for item in turn]

    def _previous(self, response_id: str) -> tuple[Stored, list[Item]]:
        try:
            found = self.find(response_id)
        except RequestError:
            raise _not_previous(response_id, "not found") from None
        self._weigh(found.opening)
        try:
            response = response_of(self._store, found, self._own)
        except SessionNotFound:
            raise _not_previous(response_id, "was deleted meanwhile") from None
        if response.status in RUNNING:
            self._open(found.session)
        if response.status not in _ENDED:
            raise _not_previous(response_id, f"is {response.status}")
        return found, self._brought(found, response)

    def _brought(self, found: Stored, response: Response) -> list[Item]:
        return [*self.resolved(found.input), *output_of(response)]

    # --- by the conversation

    def conversation(self, conversation: str, *, until: str = "") -> Conversation:
        """A conversation as it is, or as it was when the session ``until`` of it began. Raises RequestError (404, or
        one that is too long), StoreError."""
        made = Conversation(conversation)
        for info in self._of_conversation(conversation):
            if info.session == until:
                break
            made.sessions.append(info.session)
            # Of what was deleted meanwhile nothing was said.
            with suppress(SessionNotFound):
                self._step(made, info)
        # What was said in a conversation stays where somebody goes on from it, when the conversation is gone.
        if not made.exists and not until:
            raise no_conversation(conversation)
        return made

    def _of_conversation(self, conversation: str) -> Iterable[SessionInfo]:
        """Its sessions, the oldest first."""
        if not is_conversation(conversation):
            return []
        found = list(self._store.sessions(f"conversation = '{conversation}'", limit=MAX_TURNS + 1))
        if len(found) > MAX_TURNS:
            raise _too_long("conversation")
        return reversed(found)

    def _step(self, made: Conversation, info: SessionInfo) -> None:
        opening = self._opening(info.session)
        found = stored(opening, info)
        if opening.response_id == made.id:
            made.note(opening)
        elif found is not None:
            # One that says its last words is not closed yet, and is over all the same.
            response = response_of(self._store, found, self._own)
            if response.status in RUNNING:
                made.busy = True
                self._open(info.session)
            if response.status in _ENDED:
                made.items += self._brought(found, response)

    # --- by the item

    def resolved(self, items: Iterable[Item]) -> list[Item]:
        """The items, with what references refer to in their place; a reference to nothing stays. Raises
        RequestError, StoreError."""
        made = list(items)
        places = [place for place, item in enumerate(made) if openai_responses.kind_of(item) == "item_reference"]
        self._references += len(places)
        if self._references > MAX_TURNS:
            raise RequestError(f"There are more than {MAX_TURNS} references to stored items.", param="input")
        for place in places:
            made[place] = self.item(str(made[place].get("id"))) or made[place]
        return made

    def item(self, item_id: str) -> Item | None:
        """The stored item of this id; None where there is none. An id leads to the session that brought the item."""
        session = session_of(item_id)
        for item in self._all_of(session) if session else ():
            if item.get("id") == item_id and openai_responses.kind_of(item) != "item_reference":
                return item
        return None

    def _all_of(self, session: str) -> list[Item]:
        """All that a session brought, whatever became of it."""
        try:
            opening = self._opening(session)
            if is_conversation(opening.response_id):
                return _added(opening)
            found = stored(opening, self._store.info(session))
            if found is None or not found.request.store:
                return []
            return [*found.input, *output_of(response_of(self._store, found, self._own))]
        except SessionNotFound:
            self._missed(session)
            return []

    # --- what is read

    def _opening(self, session: str) -> Opening:
        opening = self._store.opening(session)
        self._weigh(opening)
        return opening

    def _weigh(self, opening: Opening) -> None:
        """Raises RequestError where what a request goes on from is more than anybody's."""
        self._size += len(opening.request)
        if self._size > MAX_SIZE:
            raise RequestError(
                f"What the request goes on from has more than {MAX_SIZE} bytes; send what matters of it as input.",
                param="previous_response_id", code=TOO_LONG,
            )  # fmt: skip


def is_conversation(conversation: str) -> bool:
    """Whether it is an id of ours."""
    return _ID.match(conversation) is not None


def _not_previous(response_id: str, why: str) -> RequestError:
    return RequestError(
        f"Previous response with id {response_id!r:.100} {why}: it must be stored, and have ended as it should.",
        param="previous_response_id", code="previous_response_not_found",
    )  # fmt: skip


def _too_long(param: str) -> RequestError:
    return RequestError(
        f"The conversation has more than {MAX_TURNS} turns; send what matters of it as input.",
        param=param, code=TOO_LONG,
    )  # fmt: skip
