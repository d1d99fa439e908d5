"""What a client gets of a failure that is not part of a session's record."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stages import catalog
from stages.events import Block, Done, End, ErrorInput, Failure, Frame, Head, Tick
from stages.opening import Opening
from stages.protocols.anthropic import BlockDelta, BlockStart, BlockStop
from stages.protocols.openai_responses import error_event
from stages.sse import FRAMER
from stages.stage import fold
from stages.upstream.frames import is_complete
from stages.upstream.refusal import OVER, content_block_after, event_of
from stages.upstream.relay import RELAY, Phase, RelaySnapshot


class Sent:
    """What of a response is out, as far as an error behind it must know. ``begun``: a head; ``last``: the last whole
    block; ``content_block``: the index of the one that is open (messages protocol), or -1; ``torn``: a block without
    its blank line is out."""

    def __init__(self) -> None:
        self.begun = False
        self.last = b""
        self.content_block = -1
        self.torn = False
        self._open = b""

    def take(self, frames: Iterable[Frame]) -> None:
        """The next frames."""
        for frame in frames:
            if type(frame) is Block:
                self._block(frame.data)
            elif isinstance(frame, Head):
                self.begun = True

    def _block(self, data: bytes) -> None:
        self.torn = not is_complete(self._open + data)
        self._open = data[-2:] if self.torn else b""
        if not self.torn:
            self.last = data
            self.content_block = content_block_after(data, self.content_block)


def error_frames(opening: Opening, failure: Failure | ErrorInput, sent: Sent) -> list[Frame]:
    """The frames, in the session's protocol, behind what was sent; none behind the end of a stream."""
    if opening.upstream is not None and opening.upstream.relayed:
        error = ErrorInput(failure.kind, failure.message, failure.code, failure.param)
        begun = RelaySnapshot(Phase.STREAM, torn=sent.torn, last=sent.last, content_block=sent.content_block)
        return fold(RELAY.resume(opening, begun) if sent.begun else RELAY.start(opening), [error])
    event = event_of(sent.last)
    if event is None or event.get("error") or event.get("type") in OVER:
        return []
    number = event.get("sequence_number", -1) + 1
    chunks = _error_chunks(opening, failure, sent.begun, number, sent.content_block)
    framer = FRAMER.start(opening)
    if sent.begun:
        fold(framer, [Tick()])
    return fold(framer, chunks)


def error_chunks(opening: Opening, failure: Failure, last: Any) -> list[Any]:
    """The chunks, behind ``last`` (None: there was none); none behind the end of a stream."""
    if isinstance(last, Done) or getattr(last, "event", "") in OVER:
        return []
    block = last.index if isinstance(last, BlockStart | BlockDelta) else -1
    return _error_chunks(opening, failure, last is not None, getattr(last, "sequence_number", -1) + 1, block)


def _error_chunks(
    opening: Opening, failure: Failure | ErrorInput, begun: bool, number: int, content_block: int
) -> list[Any]:
    """``number``: of the next event, in the responses protocol; 0 where none was sent."""
    if number and opening.protocol == "responses":
        return [error_event(failure, number)]
    encoder = catalog.PROTOCOLS[opening.protocol].encoder.start(opening)
    if begun:
        # What was sent, they know of: then the error is an event of the stream.
        fold(encoder, [Tick()])
    made: list[Any] = [] if content_block < 0 else [BlockStop(content_block)]
    return made + fold(encoder, [Failure(failure.kind, failure.message, failure.code, failure.param), End()])
