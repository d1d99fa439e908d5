"""MemoryStore: sessions in this process's memory, for tests and short work. Nothing is bounded, nothing is durable."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from itertools import islice
from typing import Any

from stages.events import Layer
from stages.opening import Opening
from store import codec
from store.api import (
    ENDED,
    Batch,
    Ended,
    Mode,
    Overtaken,
    Piece,
    Record,
    SequenceConflict,
    SessionInfo,
    ShadowVerdict,
    State,
    StoreError,
    StoreUnavailable,
    Trace,
)
from store.projection import Projection
from store.query import matching_infos
from store.rules import (
    Counters,
    Key,
    attached,
    check_attached,
    check_batch,
    check_ended,
    check_known,
    fresh,
    kept,
    not_found,
    noted,
    ordered,
    saved_info,
    shadowed,
    stored_in,
)
from store.watch import Watchers

_WORD = re.compile(r"\w+")
_TERM = re.compile(r'"([^"]*)"?|(\S+)')


class _Held:
    """A session. ``live``: it has a writer. ``given``: its projection, where it was imported. ``noted``: what the
    protocol rules found, ``shadows``: what other parsers made of it."""

    def __init__(self, opening: Opening, mode: Mode, given: SessionInfo | None = None) -> None:
        self.opening = opening
        self.mode: Mode = mode
        self.state: State = given.state if given else "open"
        self.given = given
        self.noted: tuple[Mapping[str, int], int] | None = None
        self.shadows: dict[str, ShadowVerdict] = {} if given is None else given.shadows
        self.live = given is None
        self.records: dict[Key, list[Record]] = {}
        self.projection = Projection(opening, mode)
        self.digests: dict[Key, codec.RollingDigest] = {}

    def info(self) -> SessionInfo:
        """The projection now."""
        info = self.given or self._projected()
        return info if self.noted is None else noted(info, *self.noted)

    def _projected(self) -> SessionInfo:
        counts = {f"{track}/{layer}": len(held) for (track, layer), held in self.records.items()}
        digests = {f"{track}/{layer}": held.value() for (track, layer), held in self.digests.items()}
        return self.projection.info(self.state, counts, digests, self.shadows)

    def attach(self, track: str, layers: Mapping[Key, list[Record]], verdict: ShadowVerdict | None) -> None:
        """See EventStore. Raises SequenceConflict, StillOpen."""
        info = self.info()
        check_ended(info)
        stored = {key: records for key, records in layers.items() if stored_in(info.mode, *key)}
        new = fresh(info.session, stored, self.records)
        rolling = {key: codec.RollingDigest() for key in layers.keys() - stored}
        for key, made in rolling.items():
            made.update([record.event for record in layers[key]])
        known = {key: info.digests["/".join(key)] for key in rolling if "/".join(key) in info.digests}
        digests = fresh(info.session, {key: made.value() for key, made in rolling.items()}, known)
        if self.given is not None:
            counts = {key: len(records) for key, records in new.items()}
            self.given = attached(self.given, track, verdict, counts, digests)
        self.records.update(new)
        self.digests.update((key, rolling[key]) for key in digests)
        self.shadows = shadowed(self.shadows, track, verdict)


class MemoryWriter:
    """See SessionWriter. Everything is done at once, in the caller's thread."""

    def __init__(self, store: MemoryStore, opening: Opening, mode: Mode, known: Collection[str] | None = None) -> None:
        self._store = store
        self._opening = opening
        self._mode: Mode = mode
        self._next: dict[Key, int] = {}
        self._lost: StoreError | None = None
        self._closed = False
        self._held: _Held | None = None
        try:
            self._held = store.begin(opening, mode, known)
        except StoreError as error:
            self._lose(error)

    def _lose(self, error: StoreError) -> None:
        self._lost = error
        if not isinstance(error, Overtaken):
            self._store.counters.add(failures=1)
        if self._held is not None:
            self._held.live = False
            if self._held.state == "open":
                self._held.state = "incomplete"

    @property
    def incomplete(self) -> bool:
        """See SessionWriter."""
        return self._lost is not None

    def append(self, batch: Batch) -> None:
        """See SessionWriter. Raises ValueError after ``close``, and where records were left out."""
        if self._closed:
            raise ValueError("append after close")
        key: Key = (batch.track, batch.layer)
        n = len(batch.events)
        following = self._next.get(key, 0)
        check_batch(batch, following)
        self._next[key] = max(following, batch.first_seq + n)
        if not n:
            return
        if self._held is not None and self._lost is None:
            try:
                with self._store.lock:
                    self._store.check_open()
                    self._take(self._held, key, batch)
            except StoreError as error:
                self._lose(error)
        if self._lost is not None:
            self._store.counters.add(lost_records=n)
        else:
            self._store.counters.add(batches=1, records=n, commits=1)
        self._store.watchers.tell([self._opening.session])

    def _take(self, held: _Held, key: Key, batch: Batch) -> None:
        n, first = len(batch.events), batch.first_seq
        if not stored_in(self._mode, *key):
            rolling = held.digests.setdefault(key, codec.RollingDigest())
            new = batch.events[rolling.n - first :]
            held.projection.add(key, batch.at, new)
            rolling.update(new)
            return
        records = held.records.setdefault(key, [])
        causes = batch.causes or [-1] * n
        mine = list(map(Record, range(first, first + n), causes, [batch.at] * n, batch.events))
        theirs = records[first : first + n]
        if mine[: len(theirs)] != theirs:
            raise SequenceConflict(
                f"{self._opening.session}, {key}, seq {first}: other records are stored there already."
            )
        rest = mine[len(theirs) :]
        if rest and held.state in ENDED:
            raise SequenceConflict(f"{self._opening.session}, {key}, seq {len(records)}: the session has ended before.")
        records += rest
        held.projection.add(key, batch.at, [record.event for record in rest])

    def close(self, state: Ended) -> None:
        """See SessionWriter."""
        if self._closed:
            raise ValueError("closed already")
        self._closed = True
        if self._held is not None and self._lost is None:
            self._held.live = False
            if self._held.state not in ENDED:
                self._held.state = state
            self._store.watchers.tell([self._opening.session])

    def committed(self) -> Future[None]:
        """See SessionWriter."""
        future: Future[None] = Future()
        if self._lost is not None:
            future.set_exception(self._lost)
        else:
            future.set_result(None)
        return future


class MemoryStore:
    """See EventStore."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.counters = Counters()
        self.watchers = Watchers()
        self._sessions: dict[str, _Held] = {}
        self._closed = False

    def check_open(self) -> None:
        """Raises StoreUnavailable once the store is closed."""
        if self._closed:
            raise StoreUnavailable("the store is closed; nothing more is recorded.")

    def begin(self, opening: Opening, mode: Mode, known: Collection[str] | None) -> _Held:
        """The session to write to. Raises SequenceConflict, Overtaken, StoreUnavailable."""
        with self.lock:
            self.check_open()
            if known is not None:
                of = opening.conversation
                check_known(
                    opening, known, [name for name, held in self._sessions.items() if held.opening.conversation == of]
                )
            held = self._sessions.get(opening.session)
            if held is None:
                held = self._sessions[opening.session] = _Held(opening, mode)
                return held
            if held.live or held.opening != opening:
                raise SequenceConflict(f"session {opening.session} is in the store; give the new one an id of its own.")
            return held

    def writer(self, opening: Opening, mode: Mode = "full", known: Collection[str] | None = None) -> MemoryWriter:
        """See EventStore."""
        return MemoryWriter(self, opening, mode, known)

    def save(self, traces: Iterable[Trace]) -> int:
        """See EventStore."""
        new = 0
        for trace in traces:
            mine = {key: list(records) for key, records in trace.records.items() if records}
            with self.lock:
                self.check_open()
                held = self._sessions.get(trace.opening.session)
                if held is None:
                    held = _Held(trace.opening, trace.info.mode, saved_info(trace))
                    held.records = mine
                    self._sessions[trace.opening.session] = held
                    new += 1
                elif held.opening != trace.opening or held.records != mine:
                    raise SequenceConflict(f"session {trace.opening.session} is in the store with other records.")
        return new

    def sessions(
        self, where: str | None = None, *, state: State | None = None, limit: int | None = None
    ) -> Iterator[SessionInfo]:
        """See EventStore."""
        with self.lock:
            infos = [held.info() for held in reversed(self._sessions.values())]
        infos.sort(key=lambda info: info.opened, reverse=True)
        found = infos if where is None else matching_infos(infos, where)
        return islice((info for info in found if state is None or info.state == state), limit)

    def search(self, text: str, *, limit: int | None = None) -> Iterator[SessionInfo]:
        """See EventStore. All words must be there, in any order; ``"quoted words"`` stand together."""
        terms = [_words(quoted or word) for quoted, word in _TERM.findall(text)]
        terms = [term for term in terms if term]
        found: list[tuple[int, SessionInfo]] = []
        for info in self.sessions():
            score = max((_score(terms, message) for message in info.message), default=0) if terms else 0
            if score:
                found.append((score, info))
        found.sort(key=lambda item: item[0], reverse=True)
        return iter([info for _, info in found][:limit])

    def _find(self, session: str) -> _Held:
        held = self._sessions.get(session)
        if held is not None:
            return held
        names = sorted(name for name in self._sessions if name.startswith(session))
        if len(names) != 1 or not session:
            raise not_found(session, names)
        return self._sessions[names[0]]

    def info(self, session: str) -> SessionInfo:
        """See EventStore."""
        with self.lock:
            return self._find(session).info()

    def load(self, session: str, layers: Collection[Key] | None = None, *, lazy: bool = False) -> Trace:
        """See EventStore. Nothing is encoded here, so all is there at once."""
        with self.lock:
            held = self._find(session)
            records = {key: list(records) for key, records in kept(held.records, layers).items()}
            return Trace(opening=held.opening, info=held.info(), records=ordered(records))

    def _exactly(self, session: str) -> _Held:
        held = self._sessions.get(session)
        if held is None:
            raise not_found(session, [])
        return held

    def opening(self, session: str) -> Opening:
        """See EventStore."""
        with self.lock:
            return self._exactly(session).opening

    def read(self, session: str, track: str, layer: Layer, first: int = 0, *, about: int = 256) -> Piece:
        """See EventStore."""
        with self.lock:
            held = self._exactly(session)
            return Piece(held.records.get((track, layer), [])[first : first + about], held.state, held.mode)

    def watch(self, session: str, wake: Callable[[], object]) -> Callable[[], None]:
        """See EventStore."""
        return self.watchers.add(session, wake)

    def delete(self, session: str) -> None:
        """See EventStore."""
        with self.lock:
            self.check_open()
            info = self._find(session).info()
            check_ended(info)
            del self._sessions[info.session]

    def note_rules(self, session: str, rules: Mapping[str, int], errors: int) -> None:
        """See EventStore."""
        with self.lock:
            self.check_open()
            held = self._find(session)
            noted(held.info(), rules, errors)
            held.noted = dict(rules), errors

    def attach(
        self, session: str, track: str, records: Mapping[Layer, Sequence[Record]], verdict: ShadowVerdict | None = None
    ) -> None:
        """See EventStore."""
        given = check_attached(track, records, verdict)
        with self.lock:
            self.check_open()
            self._find(session).attach(track, given, verdict)

    def flush(self) -> None:
        """See EventStore."""

    def close(self) -> None:
        """See EventStore. What is there can still be read."""
        self._closed = True

    def stats(self) -> dict[str, int]:
        """See EventStore."""
        return self.counters.get()


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def _score(terms: list[list[str]], message: dict[str, Any]) -> int:
    """How often the terms are there; 0 unless all are."""
    fields: list[str | None] = [message["reasoning"], message["content"], message.get("refusal")]
    fields += [f"{call['name']} {call['arguments']}" for call in message["tool_calls"]]
    words = [_words(field) for field in fields if field]
    counts = [sum(_count(term, some) for some in words) for term in terms]
    return sum(counts) if all(counts) else 0


def _count(term: list[str], words: list[str]) -> int:
    return sum(words[at : at + len(term)] == term for at in range(len(words)))
