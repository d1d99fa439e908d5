"""Stored responses: what the log has of one. All of it reads the store and waits for it: for threads, not for the event
loop."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import takewhile
from typing import Any, TypeAlias

import msgspec

from pipeline.http.responses.items import Item, listed
from stages import catalog
from stages.errors import RequestError
from stages.events import AbortInput, Failure, Input, Layer, Semantic
from stages.opening import Opening
from stages.protocols import openai_responses
from stages.protocols.openai_responses import Response, ResponsesRequest
from stages.stage import Stage, fold
from store.api import ENDED, EventStore, SessionInfo, SessionNotFound, State

Own: TypeAlias = Callable[[str], "Stage[Input, Semantic] | None"]
"""A parser that is loaded already, by its name: no code is loaded because a record names it."""

PREFIX = catalog.PROTOCOLS["responses"].prefix
_ID = re.compile(rf"{PREFIX}([0-9a-f]{{32}})\Z")
RUNNING = ("queued", "in_progress")
"""Statuses of a response that is not over."""
_ENDS: dict[State, str] = {
    "torn": "The server stopped before the response was finished.",
    "incomplete": "What followed was not recorded: the store failed.",
}
_STOPPED = "Generation was stopped before the response was finished."
"""Of a session whose inputs do not say how it ended."""


class Stored(msgspec.Struct, frozen=True):
    """A response that was asked for, and its session as it was when it was looked at."""

    opening: Opening
    request: ResponsesRequest
    info: SessionInfo

    @property
    def state(self) -> State:
        """Of its session."""
        return self.info.state

    @property
    def session(self) -> str:
        """Its session."""
        return self.opening.session

    @property
    def id(self) -> str:
        """Its own id."""
        return self.opening.response_id

    @property
    def input(self) -> list[Item]:
        """Its own input, as items."""
        return listed(self.session, openai_responses.input_items(self.request))


def session_of(response_id: str) -> str | None:
    """The session whose response it would be; None for what is no id of ours."""
    found = _ID.match(response_id)
    return found and found.group(1)


def no_response(response_id: str) -> RequestError:
    """The error of a response that is not there."""
    return RequestError(f"Response with id {response_id!r:.100} not found.", code="not_found", status=404)


def find(store: EventStore, response_id: str) -> Stored:
    """A stored response. Raises RequestError (404) for one that is not there, or was not to be stored."""
    session = session_of(response_id)
    if session is None:
        raise no_response(response_id)
    try:
        found = stored(store.opening(session), store.info(session))
    except SessionNotFound:
        raise no_response(response_id) from None
    if found is None or found.id != response_id or not found.request.store:
        raise no_response(response_id)
    return found


def stored(opening: Opening, info: SessionInfo) -> Stored | None:
    """The response of a session; None where the session has none."""
    if opening.protocol != "responses" or not opening.response_id.startswith(PREFIX):
        return None
    try:
        request = openai_responses.decode_request(opening.request)
    except RequestError:
        # What was taken once and is not any more: of another version, or made by hand.
        return None
    return Stored(opening, request, info)


def response_of(store: EventStore, found: Stored, own: Own) -> Response:
    """The response as it is now: the recorded one where it has ended, else what there is so far. Raises StoreError,
    StagesError."""
    if found.state == "aborted" and _aborted_by(store, found.info) in ("cancel", "client"):
        # Its terminal event, if there is one, has only the items that were done.
        return openai_responses.cancelled(_so_far(store, found, own, left=True))
    response = _last_chunk(store, found.info) if found.state in ENDED else None
    if response is None:
        response = _so_far(store, found, own)
    if found.state != "open" and response.status in RUNNING:
        return openai_responses.failed(response, "engine", _ENDS.get(found.state, _STOPPED))
    return response


def _last_chunk(store: EventStore, info: SessionInfo) -> Response | None:
    """The response of the terminal event, or the body."""
    last = _last(store, info, "served", "chunk")
    response: Response | None = getattr(last, "response", None)
    return None if response is None or response.status in RUNNING else response


def _aborted_by(store: EventStore, info: SessionInfo) -> str:
    last = _last(store, info, "input", "engine")
    return last.by if isinstance(last, AbortInput) else ""


def _last(store: EventStore, info: SessionInfo, track: str, layer: Layer) -> Any:
    n = info.events.get(f"{track}/{layer}", 0)
    return store.read(info.session, track, layer, n - 1, about=1).records[0].event if n else None


def _so_far(store: EventStore, found: Stored, own: Own, *, left: bool = False) -> Response:
    """``left``: as it was when it was left."""
    opening = found.opening
    trace = store.load(found.session, (("input", "engine"), ("served", "semantic")))
    semantic = trace.events("served", "semantic")
    if not semantic:
        # A lean recording, or nothing was said yet.
        parser = own(opening.parser) or catalog.parser(opening.parser)
        stage = catalog.layers(opening, parser).semantic
        semantic = fold(stage.start(opening), trace.events("input", "engine"))
    if left:
        semantic = list(takewhile(lambda event: not isinstance(event, Failure), semantic))
    return openai_responses.so_far(opening, semantic)


def output_of(response: Response) -> list[Item]:
    """Its output, as items."""
    made: list[Any] = msgspec.to_builtins(response.output)
    return made
