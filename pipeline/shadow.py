"""Shadows: other parsers run over sessions that have ended and are stored; see ``afterwards``.

What a parser P makes of a session's inputs becomes its track ``shadow:P``; the verdict says whether the message is the
one that the client got. Clients see nothing of it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import anyio
import anyio.to_thread
import msgspec

from pipeline.afterwards import Afterwards, Due, loaded
from pipeline.recorder import Recorder, SessionRecorder
from replay import Parser, Replayer, ReplayError, resolve
from replay.derive import run
from stages import catalog
from stages.events import Input, Semantic, TokensInput
from stages.opening import Opening
from store.api import SHADOW, EventStore, Record, ShadowVerdict, Trace

log = logging.getLogger("playhead.shadow")

MOST = 10
"""Parsers that may look at a session."""

STRIKES = 3
"""So often in a row may a parser hang or end its process; then it looks at no more sessions. Each costs the others the
time that it took."""


class Made(msgspec.Struct, array_like=True):
    """What a parser made of a session. ``causes``: seqs of inputs; ``ats``: their times."""

    verdict: ShadowVerdict
    causes: list[int] = []
    ats: list[int] = []
    events: list[Semantic] = []


_MADE = msgspec.msgpack.Decoder(Made)
_encode = msgspec.msgpack.Encoder().encode
_EVENTS = msgspec.msgpack.Decoder(list[Semantic])
_UNSOUND = (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError)


class Shadows(Afterwards[tuple[str, ...]]):
    """Parsers that look at every session beside the one that serves it. What is wanted of a session are their names."""

    def __init__(self, recorder: Recorder, names: Sequence[str] = ()) -> None:
        """``names``: as ``--parser`` takes them. Raises ReplayError for one that cannot be had, two that are equal, or
        more than MOST."""
        super().__init__(recorder, log, "shadowed")
        self._names = checked(names)
        self._strikes: Counter[str] = Counter()
        self.shadowed = 0
        """Sessions that were looked at."""
        self.verdicts: Counter[tuple[str, str]] = Counter()
        """(parser, verdict) → how often."""

    def offer(self, opening: Opening, recorder: SessionRecorder, default: Sequence[str] = ()) -> None:
        """A session has ended. Never waits, never raises. ``default``: who looks at it where the server names none."""
        wanted = self._names or tuple(default)
        if wanted:
            self._put(Due(opening.session, recorder, wanted))

    async def _do(self, store: EventStore, session: str, where: str | Trace, wanted: tuple[str, ...]) -> None:
        for name in wanted:
            if self._strikes[name] < STRIKES:
                made = await self._made(session, where, name)
                verdict = await anyio.to_thread.run_sync(attach, store, session, name, made, abandon_on_cancel=True)
                self.verdicts[name, verdict] += 1
        self.shadowed += 1

    async def _made(self, session: str, where: str | Trace, name: str) -> bytes:
        try:
            made = await self._elsewhere(look, where, session, name)
        except (TimeoutError, anyio.BrokenWorkerProcess) as error:
            self._strikes[name] += 1
            self._tell(session, f"{type(error).__name__} in {name}")
            if self._strikes[name] == STRIKES:
                log.warning("parser %s hung or ended its process %d times; it looks at no more sessions", name, STRIKES)
            return _encode(Made("failed"))
        self._strikes[name] = 0
        return made


def checked(names: Sequence[str]) -> tuple[str, ...]:
    """The names of parsers, all of which can be had, each once. Raises ReplayError."""
    if len(names) > MOST:
        raise ReplayError(f"{len(names)} shadows: at most {MOST} parsers look at a session")
    for name, count in Counter(names).items():
        if count > 1:
            raise ReplayError(f"shadow {name!r} is there twice")
        if name != "auto":
            resolve(name)
    return tuple(names)


def attach(store: EventStore, session: str, name: str, made: bytes) -> ShadowVerdict:
    """Store what a parser made. Raises StoreError."""
    found = _MADE.decode(made)
    rows = zip(found.causes, found.ats, found.events, strict=True)
    records = [Record(seq, *row) for seq, row in enumerate(rows)]
    store.attach(session, f"{SHADOW}{name}", {"semantic": records}, found.verdict)
    return found.verdict


# --- in the other process -------------------------------------------------------------------------------------------


def look(where: str | Trace, session: str, name: str) -> bytes:
    """What parser ``name`` makes of a session, as an encoded Made: nothing of the parser's own gets out of its process.

    Raises StoreError where the session cannot be read."""
    trace = loaded(where, session)
    try:
        return seen(trace, name)
    except KeyboardInterrupt:  # the parser's own: this process takes none
        return _encode(Made("failed"))


def seen(trace: Trace, name: str) -> bytes:
    """The same, of a session at hand, in this process. A Ctrl-C is for the caller."""
    if not any(isinstance(event, TokensInput) and (event.pieces or event.text) for event in _inputs(trace)):
        return _encode(Made("uncompared"))
    try:
        return _encode(_looked(trace, name))
    except KeyboardInterrupt:
        raise
    except BaseException:  # a user's parser may raise anything, and its process goes on
        return _encode(Made("failed"))


def _looked(trace: Trace, name: str) -> Made:
    opening, inputs = trace.opening, _inputs(trace)
    stage = resolve(name, opening) if name == "auto" else _resolved(name)
    known = opening
    if opening.protocol not in catalog.PROTOCOLS:
        # Nothing is encoded: what any protocol has in front of its encoder is the same.
        known = msgspec.structs.replace(opening, protocol="chat")
    track, failed = run(catalog.layers(known, stage).semantic, "semantic", opening, inputs, range(len(inputs)))
    events = _sound(track.events)
    causes = track.causes[: len(events)]
    verdict: ShadowVerdict = "failed"
    if failed is None and len(events) == len(track.events):
        verdict = _verdict(trace, stage)
    ats = [record.at for record in trace.records["input", "engine"]]
    return Made(verdict, causes, [ats[cause] for cause in causes], events)


@lru_cache(maxsize=2 * MOST)
def _resolved(name: str) -> Parser:
    """The parser, loaded once."""
    return resolve(name)


def _verdict(trace: Trace, stage: Parser) -> ShadowVerdict:
    """The verdict of ``playhead replay --layer message``."""
    verdict = Replayer(stage, layer="message").replay(trace).verdict
    match verdict:
        case "rechunked" | "moved":
            # Nothing of a message is emitted earlier or later.
            return "same"
        case _:
            return verdict


def _inputs(trace: Trace) -> list[Input]:
    return trace.events("input", "engine")


def _sound(events: list[Any]) -> list[Semantic]:
    """The events up to the first whose fields are not what they should be, which could not be read again."""
    try:
        return _EVENTS.decode(_encode(events))
    except _UNSOUND:
        sound: list[Semantic] = []
        for event in events:
            try:
                sound += _EVENTS.decode(_encode([event]))
            except _UNSOUND:
                break
        return sound
