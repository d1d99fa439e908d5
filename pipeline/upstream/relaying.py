"""A session that relays: the client gets the upstream's own response, and what it tells is recorded on the way.

upstream ──reads──▶ frames ──RELAY──▶ whoever reads ``frames``
                      └──▶ read for what they mean, behind what is sent
"""

from __future__ import annotations

import re
from typing import Any, TypeAlias

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from pipeline.channels import send
from pipeline.engines.base import SHUTDOWN
from pipeline.recorder import SessionRecorder
from pipeline.session import AbortBy
from pipeline.upstream.client import Exchange
from pipeline.upstream.errors import UpstreamFault
from pipeline.upstream.reader import Reader
from stages.events import AbortInput, Block, End, ErrorInput, Failure, Frame, Head, Input
from stages.opening import Opening
from stages.stage import fold
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
    """``run`` it in a task group, read ``frames`` to the end, call ``abort`` at any time. See ``pipeline.session``.

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
        *,
        channel_size: int = 2,
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
        self._held: list[Frame] = []
        self._waiting = anyio.CancelScope()
        self._outbox: MemoryObjectSendStream[list[Frame]]
        self.frames: MemoryObjectReceiveStream[list[Frame]]
        self._outbox, self.frames = anyio.create_memory_object_stream[list[Frame]](channel_size)

    def abort(self, by: AbortBy) -> None:
        """End the session: the upstream's response is closed, what came is recorded to its end. Idempotent; without
        effect on a session that has ended."""
        if self.aborted_by is None and not self.ended:
            self.aborted_by = by
            self._waiting.cancel()

    def error_frames(self, failure: Failure, *, begun: bool) -> list[Frame]:
        """The frames of a failure that is not part of the session's record. ``begun``: a head has been sent."""
        if begun and self._reader.opaque:
            self.broken = True
            return []
        head: list[Any] = [Head(200, (("content-type", "text/event-stream"),))] if begun else []
        error = ErrorInput(failure.kind, failure.message, failure.code, failure.param)
        return fold(RELAY.start(self.opening), [*head, error])[len(head) :]

    async def run(self) -> None:
        """Relay until the last frame is in ``frames``. Cancelled from outside, it aborts (``shutdown``)."""
        async with anyio.create_task_group() as outer:
            outer.start_soon(self._abort_when_cancelled, outer.cancel_scope)
            with anyio.CancelScope(shield=True):
                async with self._outbox:
                    try:
                        last = await self._pass_on()
                    finally:
                        if isinstance(self._answer, Exchange):
                            await self._answer.close()
                    await self._finish(last)
            outer.cancel_scope.cancel()

    async def _abort_when_cancelled(self, scope: anyio.CancelScope) -> None:
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            if not scope.cancel_called:
                self.abort("shutdown")
            raise

    async def _pass_on(self) -> Last:
        """Pass on what the upstream answers; how it ended."""
        answer = self._answer
        if not isinstance(answer, Exchange):
            return answer
        with self._waiting:
            try:
                return await self._each_read(answer)
            except UpstreamFault as fault:
                return fault.input()
        return AbortInput(self.aborted_by or "cancel") if self.aborted_by != "shutdown" else SHUTDOWN

    async def _each_read(self, answer: Exchange) -> Last:
        reader = self._reader
        await self._forward(reader.head(answer))
        while data := await answer.read():
            frames = reader.take(data)
            if frames:
                await self._forward(frames)
            if reader.failed is not None:
                return reader.failed
        return End()

    async def _forward(self, frames: list[Frame]) -> None:
        made = self._relayed(frames)
        try:
            if made:
                await send(self._outbox, self._hold(made) if self.recorder.strict else made)
        finally:
            # Also where the client left while this waited for it: what came is recorded to its end.
            self._read(frames)

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
        inputs, causes = self._reader.read(events)
        if inputs:
            self.last = inputs[-1]
            self._inputs(inputs, causes)

    async def _finish(self, last: Last) -> None:
        frames = self._reader.rest() if isinstance(self._answer, Exchange) else []
        self._read([*frames, last])
        self.ended = True
        self.broken = self._begun and self._reader.opaque and isinstance(last, ErrorInput)
        await send(self._outbox, [*self._held, *self._relayed([*frames, last])])
