"""A response in the making, or one that was never made: the object that tells of it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET

from stages.events import Failure, FailureKind, Semantic
from stages.opening import Opening
from stages.protocols.openai_chat import error_chunk
from stages.protocols.openai_responses.accumulate import Accumulator
from stages.protocols.openai_responses.base import base_of
from stages.protocols.openai_responses.chunks import CODES, OTHER_CODE
from stages.protocols.openai_responses.encoder import ENCODER
from stages.protocols.openai_responses.objects import Item, Response, ResponseError
from stages.stage import fold


def so_far(opening: Opening, semantic: Sequence[Semantic]) -> Response:
    """The response after these events, which need not be all: with what its items say until now. As the terminal event
    has it, where there is one; ``queued`` before it was admitted; ``failed`` where it never was."""
    # A stream shows what there is, whatever the client asked for.
    opening = msgspec.structs.replace(opening, ask=msgspec.structs.replace(opening.ask, stream=True))
    seen = Accumulator()
    for chunk in fold(ENCODER.start(opening), semantic):
        seen.take(chunk)
    response = seen.response()
    if response is not None:
        return response
    response = base_of(opening)
    for event in semantic:
        if isinstance(event, Failure):
            return failed(response, event.kind, event.message, event.param)
    return msgspec.structs.replace(response, status="queued")


def failed(response: Response, kind: FailureKind, message: str, param: str | None = None) -> Response:
    """The response, which failed for this reason."""
    told = error_chunk(kind, message).body["error"]["message"]
    error = ResponseError(CODES.get(kind, OTHER_CODE), told, UNSET if param is None else param)
    return msgspec.structs.replace(response, status="failed", error=error, output=_broken_off(response))


def cancelled(response: Response) -> Response:
    """The response, which somebody ended."""
    return msgspec.structs.replace(response, status="cancelled", error=None, output=_broken_off(response))


def _broken_off(response: Response) -> tuple[Item, ...]:
    return tuple(
        msgspec.structs.replace(item, status="incomplete") if item.status == "in_progress" else item
        for item in response.output
    )
