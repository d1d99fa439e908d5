"""The sessions that run now, and who reads them."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Protocol

import anyio

from pipeline import channels
from pipeline.failing import Sent
from pipeline.recorder import SessionRecorder
from pipeline.session import AbortBy
from stages.events import Failure, Frame, Input
from stages.opening import Opening

LAG = 2.0
"""Seconds within which another process has on record what it told its clients; a session that is not on record is
waited for, so long after it began. See docs/resume.md."""


class Session(Protocol):
    """What is served: a session of our stages, or one that relays another server's response."""

    @property
    def opening(self) -> Opening:
        """What it is."""
        ...

    @property
    def path(self) -> str:
        """What the client asked for."""
        ...

    @property
    def recorder(self) -> SessionRecorder:
        """Its recording."""
        ...

    @property
    def frames(self) -> channels.Source[Frame]:
        """What the client is to get; ends with the session."""
        ...

    @property
    def aborted_by(self) -> AbortBy | None:
        """Who, other than the engine, ended it."""
        ...

    @property
    def last(self) -> Input | None:
        """What the engine said last."""
        ...

    @property
    def ended(self) -> bool:
        """It came to an end of its own: what is still to come are the last frames."""
        ...

    @property
    def broken(self) -> bool:
        """Its response has ended before it was whole, and nothing in it says so."""
        ...

    @property
    def keep_alive(self) -> float:
        """Seconds of silence before a comment; 0: never."""
        ...

    async def run(self) -> None:
        """Serve until the last frame is in ``frames``."""
        ...

    def abort(self, by: AbortBy) -> None:
        """End it. Idempotent."""
        ...

    def error_frames(self, failure: Failure, sent: Sent) -> list[Frame]:
        """The frames of a failure that is not part of the record, behind what was sent."""
        ...


class Held:
    """A session while it runs. ``writing``: the scope, shielded, of the writing of its frames: nothing but
    ``Live.leave`` cancels it."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.writing = anyio.CancelScope(shield=True)
        self.over = anyio.Event()
        """Set once it has ended, and its recording is closed."""
        self._readers = 0
        self._changed = anyio.Event()

    @contextmanager
    def read(self) -> Generator[None]:
        """Somebody other than the client that asked for it reads it while the block runs."""
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    def _count(self, change: int) -> None:
        self._readers += change
        self._changed.set()
        self._changed = anyio.Event()

    async def unread(self, seconds: float) -> None:
        """Return once nobody has read it, in this way, for so long."""
        while True:
            changed = self._changed
            if self._readers:
                await changed.wait()
                continue
            with anyio.move_on_after(seconds) as patience:
                await changed.wait()
            if patience.cancelled_caught:
                return


class Live:
    """The sessions that run now, so that they can be found, and so that a shutdown can let them finish, abort them, or
    leave their clients."""

    def __init__(self) -> None:
        self._sessions: dict[str, Held] = {}
        self.closing = False
        """The server takes no new sessions."""
        self.opened = 0
        """Sessions since the start."""

    def __len__(self) -> int:
        return len(self._sessions)

    @contextmanager
    def holding(self, session: Session) -> Generator[Held]:
        """Counts the session while the block runs."""
        self.opened += 1
        name = session.opening.session
        held = self._sessions[name] = Held(session)
        try:
            yield held
        finally:
            del self._sessions[name]
            held.over.set()

    def held(self, session: str) -> Held | None:
        """The session of this id, if it runs here."""
        return self._sessions.get(session)

    def find(self, session: str) -> Session | None:
        """The same, alone."""
        held = self._sessions.get(session)
        return None if held is None else held.session

    def sessions(self) -> list[Session]:
        """All of them."""
        return [held.session for held in self._sessions.values()]

    def abort(self, by: AbortBy) -> None:
        """Abort all."""
        for held in list(self._sessions.values()):
            held.session.abort(by)

    def leave(self) -> None:
        """Write no further to the clients that do not read."""
        for held in self._sessions.values():
            held.writing.cancel()
