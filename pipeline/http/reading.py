"""The frames of a recorded session, in order and in pieces: as they were recorded, or derived again.

Of a lean session the frames are not in the record: they are made from what is, by the stages that made them. So is what
a client would have got of a session that ended without a word: torn, incomplete, or aborted because its client left.
What it had made of its inputs follows, then the protocol's own error, and its end.

Nothing here is async: it reads a store.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import msgspec

from pipeline.failing import Sent, error_frames
from stages import catalog
from stages.errors import RequestError, StagesError
from stages.events import AbortInput, Block, End, ErrorInput, Frame, Head, Input, Semantic, UsageInput
from stages.opening import Opening
from stages.stage import Machine, Stage
from stages.upstream.frames import is_encoded
from stages.upstream.relay import RELAY
from store.api import ENDED, EventStore, Piece, Rows, State
from store.rules import Key

Own: TypeAlias = Callable[[str], "Stage[Input, Semantic] | None"]
"""A parser that is loaded already, by its name."""

SERVED: Key = ("served", "frame")
FACTS: Key = ("input", "engine")
THEIRS: Key = ("upstream", "frame")

PIECE = 256
"""Frames that are read at once."""

_TORN = ErrorInput(
    "engine", "The server was interrupted while it generated this response; nothing follows.", "interrupted"
)
_LOST = ErrorInput(
    "engine", "What followed was not recorded: the store failed or lagged behind. It cannot be had any more.",
    "record_incomplete",
)  # fmt: skip
_LEFT = ErrorInput("cancelled", "Generation ended here, because nobody was reading any more.", "client_closed")
_ENDS: dict[State, ErrorInput] = {"torn": _TORN, "incomplete": _LOST, "aborted": _LEFT}
_FAILED = ErrorInput("engine", "The parser of this server failed on the model's output.", "parser_error")
_encode = msgspec.msgpack.Encoder().encode


def _relayed(opening: Opening) -> bool:
    return opening.upstream is not None and opening.upstream.relayed


class Reading:
    """One reader's way through a session. One thread at a time.

    ``tail``: what comes from now on is not of the record, but says how it ended; ``over``: nothing more comes;
    ``broken``: then the response is not whole, and cannot say so; ``lost``: to be set where it is known that nothing
    more of the session will be stored; ``sent``: what was read, as far as an error behind it must know; ``plain``: its
    blocks are whole events.
    """

    def __init__(self, store: EventStore, session: str, own: Own) -> None:
        """Raises SessionNotFound and what else a store raises; RequestError for a session whose frames cannot be made
        again."""
        self._store = store
        self.opening = store.opening(session)
        self._own = own
        self.plain = not _relayed(self.opening)
        self._next = 0
        self._count = 0
        self.sent = Sent()
        self._encoded = False
        self._fold: _Fold | None = None
        self.tail = self.over = self.broken = self.lost = False
        if store.read(session, *SERVED, about=1).mode == "lean":
            self._fold = _Fold(self.opening, own)

    def read(self, about: int = PIECE) -> list[Frame]:
        """The next frames, ``about`` so many; none where no more are there yet, or ``over``. Raises what a store
        raises."""
        while not self.over:
            frames, state = self._frames(about)
            if frames:
                self._count += len(frames)
                self._note(frames)
                if isinstance(frames[0], Head):
                    self._encoded = is_encoded(frames[0].headers)
                return frames
            if state == "open":
                break
        return []

    def _note(self, frames: list[Frame]) -> None:
        if self.plain and self.opening.protocol != "messages":
            # Their errors follow from the last event: the others, of which there may be many, need not be looked at.
            last = next((frame for frame in reversed(frames) if isinstance(frame, Block)), None)
            frames = [frame for frame in (frames[0], last) if frame is not None]
        self.sent.take(frames)

    def _frames(self, about: int) -> tuple[list[Frame], State]:
        key = SERVED if self._fold is None else self._fold.key
        piece = self._store.read(self.opening.session, *key, self._next, about=about)
        events = _events(piece)
        self._next += len(events)
        state: State = "incomplete" if self.lost and piece.state == "open" else piece.state
        if self._fold is None:
            frames: list[Frame] = events
            if not frames and state != "open":
                return self._recorded_ends(state), state
            return frames, state
        try:
            if events:
                return self._fold.feed(events), state
            return (self._derived_ends(self._fold, state) if state != "open" else []), state
        except Exception:  # a user's parser may raise anything
            self._fold = None
            return self._honest_end(state), state

    def _recorded_ends(self, state: State) -> list[Frame]:
        """All that is recorded was read: what follows."""
        told = self._told() if state in ENDED else None
        if state in ("closed", "detached") or isinstance(told, ErrorInput) or _is_told(told):
            self.over = True
            self.broken = self._encoded and isinstance(told, ErrorInput)
            return []
        try:
            # The facts are read from the beginning, so that the stages come to where they stood.
            self._fold = _Fold(self.opening, self._own, behind=self._count, seen=self._digest())
        except RequestError:
            return self._honest_end(state)
        self._next = 0
        return []

    def _digest(self) -> bytes:
        """Of the frames that were read: most sessions end without anybody having to know."""
        seen, count = hashlib.sha256(), 0
        while count < self._count:
            piece = self._store.read(self.opening.session, *SERVED, count)
            events = _events(piece)[: self._count - count]
            if not events:
                break
            seen.update(b"".join(map(_encode, events)))
            count += len(events)
        return seen.digest()

    def _derived_ends(self, fold: _Fold, state: State) -> list[Frame]:
        """All that was recorded of the facts was read: what follows."""
        self.over = True
        if not fold.follows:
            return self._honest_end(state)
        if fold.ended:
            return []
        if fold.key == THEIRS and state in ENDED:
            told = self._told()
            if state != "aborted" or isinstance(told, ErrorInput):
                return self._relayed_end(fold, told)
        if state in ("closed", "detached"):
            # Without an end among its inputs there is none.
            return self._honest_end(state)
        self.tail = True
        self.broken = self._encoded
        return fold.step(_ENDS[state])

    def _relayed_end(self, fold: _Fold, told: Input | None) -> list[Frame]:
        """Of a lean session: an error at its end may be the upstream's own, which its frames tell, or the
        connection's; the number of frames says which."""
        self.broken = self._encoded and isinstance(told, ErrorInput)
        digest = self._store.info(self.opening.session).digests.get("/".join(SERVED))
        made: list[Frame] = []
        for last in (told, End(), AbortInput("client")):
            if isinstance(last, ErrorInput | End | AbortInput):
                made = fold.tried(last)
                if digest is None or self._count + len(made) == digest.n:
                    break
        return made

    def _told(self) -> Input | None:
        """The last input."""
        count = self._store.info(self.opening.session).events.get("/".join(FACTS), 0)
        found = self._store.read(self.opening.session, *FACTS, max(count - 1, 0)).records
        return found[-1].event if found else None

    def _honest_end(self, state: State) -> list[Frame]:
        """What the stages cannot say, as they stood."""
        self.over = self.tail = True
        self.broken = self._encoded
        return [] if self._encoded else error_frames(self.opening, _ENDS.get(state, _FAILED), self.sent)


def _events(piece: Piece) -> list[Any]:
    records = piece.records
    return records.events if isinstance(records, Rows) else [record.event for record in records]


def _is_told(last: Input | None) -> bool:
    """An end that the client was told."""
    return isinstance(last, AbortInput) and last.by != "client"


class _Fold:
    """The stages of a session, run again over its facts. ``behind``: only the frames after so many are given, which are
    to have the digest ``seen``; ``follows``: they have, as far as is known."""

    def __init__(self, opening: Opening, own: Own, behind: int = 0, seen: bytes = b"") -> None:
        """Raises RequestError where the stages are not those that served it."""
        self.key = THEIRS if _relayed(opening) else FACTS
        self._opening = opening
        self._stages = _stages(opening, own)
        self._machines: list[Machine[Any, Any]] = [stage.start(opening) for stage in self._stages]
        self._behind = behind
        self._want = seen
        self._hash = hashlib.sha256()
        self.ended = False
        self.follows = behind == 0

    def feed(self, events: Sequence[Any]) -> list[Frame]:
        """The frames that these bring."""
        made: list[Frame] = []
        for event in events:
            # That the client left is told to nobody; whoever reads now is to know.
            if not isinstance(event, AbortInput) or _is_told(event):
                self.ended = self.ended or isinstance(event, UsageInput | ErrorInput | AbortInput)
                made += self._step(event)
        return self._past(made)

    def step(self, last: ErrorInput) -> list[Frame]:
        """The frames that an end brings."""
        return self._past(self._step(last))

    def tried(self, last: Any) -> list[Frame]:
        """The same, without coming to an end."""
        before = [machine.snapshot() for machine in self._machines]
        made = self._step(last)
        rows = zip(self._stages, before, strict=True)
        self._machines = [stage.resume(self._opening, snapshot) for stage, snapshot in rows]
        return made

    def _step(self, event: Any) -> list[Frame]:
        events: list[Any] = [event]
        for machine in self._machines:
            out: list[Any] = []
            for one in events:
                machine.step(one, out)
            events = out
        return events

    def _past(self, made: list[Frame]) -> list[Frame]:
        """Without those that were read before."""
        known, rest = made[: self._behind], made[self._behind :]
        if known:
            self._behind -= len(known)
            self._hash.update(b"".join(map(_encode, known)))
            self.follows = not self._behind and self._hash.digest() == self._want
        return rest if self.follows else []


def _stages(opening: Opening, own: Own) -> list[Stage[Any, Any]]:
    """Raises RequestError where they are not those that the session had."""
    if _relayed(opening):
        if opening.stages.get("relay") == RELAY.id:
            return [RELAY]
    else:
        try:
            parser = own(opening.parser)
            if parser is None:
                # No code is loaded because a record names it.
                parser = catalog.parser(opening.parser)
            layers = catalog.layers(opening, parser)
        except StagesError:
            pass
        else:
            if catalog.stage_ids(layers) == opening.stages:
                return [layers.semantic, layers.encoder, layers.framer]
    raise RequestError(
        f"Session {opening.session} was recorded without its frames (--record lean), by stages that are not those of "
        "this server: they cannot be made again exactly.",
        code="not_reproducible", status=409,
    )  # fmt: skip
