"""A session that relays: the client gets the upstream's own response, and what it tells is recorded on the way.

upstream ──reads──▶ frames ──RELAY──▶ whoever reads ``frames``
                      └──▶ read for what they mean, behind what is sent
"""

from __future__ import annotations

import contextlib
import re
from typing import Any, Self, TypeAlias

import anyio

from pipeline.engines.base import SHUTDOWN
from pipeline.failing import Sent, error_frames
from pipeline.recorder import SessionRecorder
from pipeline.session import AbortBy, to_its_end
from pipeline.upstream.client import Exchange
from pipeline.upstream.errors import UpstreamFault
from pipeline.upstream.reader import Reader
from stages.events import AbortInput, Block, End, ErrorInput, Failure, Frame, Head, Input
from stages.opening import Opening
from stages.upstream.relay import RELAY

Last: TypeAlias = End | ErrorInput | AbortInput
"""How a response ended."""
SESSION = "x-playhead-session"
"""The header of a relayed response that names its session."""
_CLOSING = re.compile(
    rb"""(?:^|[\r\n])(?:\xef\xbb\xbf)?(?:data:[ ]?\[DONE\]|(?:event:[ ]?|data:[ ]?\{[ ]?"type":[ ]?")
    (?:message_stop|response\.(?:completed|incomplete|failed))["\r\n])""",
    re.VERBOSE,
)
"""In blocks with which a client may think that it has all."""


class RelaySession:
    """``run`` it in a task group, read ``frames`` to the end, or leave it; call ``abort`` at any time. See
    ``pipeline.session``. One reader.

    ``answer``: the upstream's, or why there is none.
    """

    keep_alive = 0.0

    def __init__(
        self,
        opening: Opening,
        path: str,
        answer: Exchange | Last,
        reader: Reader,
        recorder: SessionRecorder,
    ) -> None:
        self.opening = opening
        self.path = path
        self.recorder = recorder
        self.aborted_by: AbortBy | None = None
        self.last: Input | None = None
        self.ended = False
        self.broken = False
        """The response ended before it was whole, and cannot say so: it is compressed."""
        self._begun = False
        """Something of the response was given to the client."""
        self._answer = answer
        self._reader = reader
        self._relay = RELAY.start(opening)
        self._served = recorder.tap("served", "frame")
        self._inputs = recorder.tap("input", "engine")
        self._taken = 0
        self._headed = False
        self._held: list[Frame] = []
        self._unread: list[Frame] = []
        """Frames that were given to the client and are still to be read."""
        self._over = False
        self._left = anyio.Event()

    @property
    def frames(self) -> Self:
        """See ``receive``."""
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._left.set()

    def abort(self, by: AbortBy) -> None:
        """End the session: the upstream's response is closed, what came is recorded to its end. Idempotent; without
        effect on a session that has ended."""
        if self.aborted_by is None and not self.ended:
            self.aborted_by = by
            if isinstance(self._answer, Exchange):
                self._answer.abandon()

    def error_frames(self, failure: Failure, sent: Sent) -> list[Frame]:
        """The frames of a failure that is not part of the session's record, behind what was sent."""
        if sent.begun and self._reader.opaque:
            self.broken = True
            return []
        return error_frames(self.opening, failure, sent)

    async def run(self) -> None:
        """Wait for the end. Where the reader of ``frames`` leaves before it, relay for the record alone. Cancelled from
        outside, it aborts (``shutdown``)."""
        await to_its_end(self._for_the_record, self.abort)

    async def _for_the_record(self) -> None:
        await self._left.wait()
        with contextlib.suppress(anyio.EndOfStream):
            while True:
                await self.receive()

    def receive_nowait(self) -> list[Frame]:
        """Nothing is ever waiting. Raises WouldBlock."""
        raise anyio.WouldBlock

    async def receive(self) -> list[Frame]:
        """The next frames for the client. Raises EndOfStream behind the last."""
        while not self._over:
            # What the client was given is read for what it means while it waits for more.
            unread, self._unread = self._unread, []
            self._read(unread)
            frames = await self._next()
            if frames:
                return frames
        raise anyio.EndOfStream

    async def _next(self) -> list[Frame]:
        """What comes next; nothing is possible."""
        answer = self._answer
        if not isinstance(answer, Exchange):
            return self._finish(answer)
        if not self._headed:
            self._headed = True
            return self._given(self._reader.head(answer))
        try:
            data = b"" if self.aborted_by is not None else await answer.read()
            if data:
                frames = self._reader.take(data)
                if self._reader.failed is None:
                    return self._given(frames)
            last = self._aborted() or self._reader.failed or End()
        except UpstreamFault as fault:
            last = fault.input()
        with anyio.CancelScope(shield=True):
            await answer.close()
        return self._finish(last)

    def _aborted(self) -> Last | None:
        if self.aborted_by is None:
            return None
        return SHUTDOWN if self.aborted_by == "shutdown" else AbortInput(self.aborted_by)

    def _given(self, frames: list[Frame]) -> list[Frame]:
        made = self._relayed(frames)
        self._unread = frames
        return self._hold(made) if self.recorder.strict else made

    def _relayed(self, events: list[Any]) -> list[Frame]:
        """What the client gets of these; recorded."""
        made: list[Frame] = []
        causes: list[int] = []
        for event in events:
            self._relay.step(event, made)
            causes += [self._taken] * (len(made) - len(causes))
            self._taken += not isinstance(event, Last)
        if made:
            self._begun = True
            self._served(made, causes)
            if isinstance(made[0], Head):
                # Cookies are the client's, but not the record's; the session's id is for who wants to find it again.
                own = (*self._reader.withheld, (SESSION, self.opening.session))
                passed = (item for item in made[0].headers if item[0] != SESSION)
                return [Head(made[0].status, (*passed, *own)), *made[1:]]
        return made

    def _hold(self, frames: list[Frame]) -> list[Frame]:
        """In a strict session what closes the stream waits until all is on disk."""
        for place, frame in enumerate(frames):
            if self._held or (isinstance(frame, Block) and _CLOSING.search(frame.data)):
                self._held += frames[place:]
                return frames[:place]
        return frames

    def _read(self, events: list[Any]) -> None:
        if not events or not self.recorder.recorded:
            return
        inputs, causes = self._reader.read(events)
        if inputs:
            self.last = inputs[-1]
            self._inputs(inputs, causes)

    def _finish(self, last: Last) -> list[Frame]:
        frames = self._reader.rest() if isinstance(self._answer, Exchange) else []
        self._read([*frames, last])
        self.ended = self._over = True
        self.broken = self._begun and self._reader.opaque and isinstance(last, ErrorInput)
        return [*self._held, *self._relayed([*frames, last])]
