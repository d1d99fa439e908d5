"""What a client gets of a failure that is not part of a session's record."""

from __future__ import annotations

from typing import Any

from stages import catalog
from stages.events import End, ErrorInput, Failure, Frame, Head, Tick
from stages.opening import Opening
from stages.sse import FRAMER
from stages.stage import fold
from stages.upstream.relay import RELAY


def error_frames(opening: Opening, failure: Failure | ErrorInput, *, begun: bool) -> list[Frame]:
    """The frames, in the session's protocol. ``begun``: a head has been sent."""
    if opening.upstream is not None and opening.upstream.relayed:
        error = ErrorInput(failure.kind, failure.message, failure.code, failure.param)
        head: list[Any] = [Head(200, (("content-type", "text/event-stream"),))] if begun else []
        return fold(RELAY.start(opening), [*head, error])[len(head) :]
    encoder, framer = catalog.PROTOCOLS[opening.protocol].encoder.start(opening), FRAMER.start(opening)
    if begun:
        # What was sent, they know of: then the error is an event of the stream.
        fold(framer, fold(encoder, [Tick()]))
    told = Failure(failure.kind, failure.message, failure.code, failure.param)
    return fold(framer, fold(encoder, [told, End()]))
