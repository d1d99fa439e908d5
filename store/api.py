"""What every store does: EventStore, its records and its errors.

A store keeps facts and never changes one. Identity of a record is (session, track, layer, seq), seq from 0 without
gaps. Tracks: ``input`` (engine layer), ``served`` (the three derived layers), ``socket`` (what the socket took),
``upstream`` (what another server sent, and what that means), ``shadow:P`` (what parser P makes of the inputs),
``expected``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from itertools import chain
from typing import Any, Literal, Protocol, TypeAlias, cast, overload

import msgspec

from stages.events import Layer
from stages.opening import Opening

Mode: TypeAlias = Literal["full", "lean"]
"""``full``: all layers; ``lean``: the facts (``store.rules.stored_in``), plus a digest per derived layer. (``off``
opens no session.)"""

Ended: TypeAlias = Literal["closed", "aborted", "detached"]
"""``closed``: ended by itself (also by an error); ``aborted``: somebody ended it; ``detached``: ended by itself, but
its client did not get all of it."""

ENDED: tuple[Ended, ...] = ("closed", "aborted", "detached")

State: TypeAlias = Literal["open", "torn", "incomplete"] | Ended
"""``open``: its writer lives; ``torn``: its writer died; ``incomplete``: the store failed or lagged and records were
lost; else how it ended."""

ShadowVerdict: TypeAlias = Literal["same", "uncompared", "restyled", "changed", "failed"]
"""What another parser makes of a session, beside what its client got: the ``same`` message; ``restyled``: another
server's message, the same but for white space and how JSON is written; ``changed``; ``failed``: it raised, or was
ended; ``uncompared``: there was nothing to run it on, or nothing to compare with."""

SHADOW = "shadow:"
"""Tracks of other parsers: this, then the parser's name."""


class Record(msgspec.Struct, frozen=True, gc=False):
    """A stored event. ``cause``: seq of the last event of the layer before that was needed to produce it (-1 for an
    input); ``at``: ns since the opening, shown and measured, never compared."""

    seq: int
    cause: int
    at: int
    event: Any


class Part(Protocol):
    """Consecutive records as they are stored: columns that are decoded when they are asked for. Each method raises
    CorruptRecord, UnknownSchema for what does not decode."""

    n: int

    def causes(self) -> list[int]:
        """As ``Rows.causes``."""
        ...

    def ats(self) -> list[int]:
        """As ``Rows.ats``."""
        ...

    def events(self) -> list[Any]:
        """As ``Rows.events``."""
        ...

    def data(self) -> memoryview:
        """The canonical bytes of the events; see ``store.codec.encode``. Raises nothing."""
        ...


class Rows(Sequence[Record]):
    """Consecutive records of one layer, from seq ``first`` on, as columns: a Record is made when it is asked for. Equal
    to any sequence of the same records.

    ``parts``: the records as they are stored, in place of columns; then each column is decoded when it is first asked
    for, and raises what the parts raise.
    """

    __slots__ = ("_ats", "_causes", "_events", "_parts", "first")

    def __init__(
        self, causes: list[int] | None = None, ats: list[int] | None = None, events: list[Any] | None = None,
        first: int = 0, parts: Sequence[Part] = (),
    ) -> None:  # fmt: skip
        self._parts = list(parts)
        self._causes: list[int] | None = None if parts else causes or []
        self._ats: list[int] | None = None if parts else ats or []
        self._events: list[Any] | None = None if parts else events or []
        self.first = first

    @property
    def causes(self) -> list[int]:
        """The cause of each."""
        if self._causes is None:
            self._causes = _joined([part.causes() for part in self._parts])
        return self._causes

    @property
    def ats(self) -> list[int]:
        """When each came."""
        if self._ats is None:
            self._ats = _joined([part.ats() for part in self._parts])
        return self._ats

    @property
    def events(self) -> list[Any]:
        """The event of each."""
        if self._events is None:
            self._events = _joined([part.events() for part in self._parts])
        return self._events

    def data(self) -> bytes | None:
        """The canonical bytes of the events (see ``store.codec.encode``); None where they were decoded already."""
        return b"".join([part.data() for part in self._parts]) if self._events is None else None

    def extend(self, more: Rows) -> None:
        """Add the next ones."""
        if not len(self):
            self._parts, self._causes, self._ats, self._events = more._parts[:], more._causes, more._ats, more._events
        elif self._undecoded and more._undecoded:
            self._parts += more._parts
        else:
            self._causes, self._ats = self.causes + more.causes, self.ats + more.ats
            self._events = self.events + more.events
            self._parts = []

    @property
    def _undecoded(self) -> bool:
        return self._causes is self._ats is self._events is None

    def __len__(self) -> int:
        return sum([part.n for part in self._parts]) if self._events is None else len(self._events)

    @overload
    def __getitem__(self, at: int) -> Record: ...
    @overload
    def __getitem__(self, at: slice) -> list[Record]: ...
    def __getitem__(self, at: int | slice) -> Record | list[Record]:
        seqs = range(self.first, self.first + len(self.events))
        if isinstance(at, slice):
            return list(map(Record, seqs[at], self.causes[at], self.ats[at], self.events[at]))
        return Record(seqs[at], self.causes[at], self.ats[at], self.events[at])

    def __iter__(self) -> Iterator[Record]:
        return iter(self[:])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return self[:] == list(cast("Sequence[object]", other))

    __hash__ = None  # type: ignore[assignment]  # it changes, as a list does

    def __repr__(self) -> str:
        return repr(self[:])


def _joined(columns: list[list[Any]]) -> list[Any]:
    return columns[0] if len(columns) == 1 else list(chain.from_iterable(columns))


class Batch(msgspec.Struct, frozen=True):
    """Consecutive events of one (track, layer), tapped at one moment. ``causes`` is parallel to ``events``, or empty
    for inputs."""

    track: str
    layer: Layer
    first_seq: int
    at: int
    events: Sequence[Any]
    causes: Sequence[int] = ()


class Digest(msgspec.Struct, frozen=True):
    """What ``lean`` keeps of a derived layer: how many events, and the SHA-256 (hex) over their encodings
    (``store.codec.digest`` is the definition)."""

    n: int
    sha256: str


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The projection that people query. Times in unix ns or ns; ``message`` is the final message per choice. Where
    another server generates: ``upstream``: its name; ``depth``: what is known of what the model wrote (``tokens``,
    ``text``, ``verbatim``); ``relayed``: the client got its own response, where the message comes from."""

    session: str
    opened: int
    closed: int | None = None
    state: State = "open"
    mode: Mode = "full"
    model: str = ""
    protocol: str = "chat"
    parser: str = ""
    stages: dict[str, str] = {}
    n: int = 1
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    ttft_ns: int | None = None
    max_gap_ns: int | None = None
    finish_reasons: tuple[str, ...] = ()
    faults: dict[str, int] = {}
    error: str | None = None
    message: tuple[dict[str, Any], ...] = ()
    events: dict[str, int] = {}
    """``track/layer`` → number of records."""
    digests: dict[str, Digest] = {}
    """``track/layer`` → digest, where the mode is ``lean``."""
    validated: bool = False
    """The protocol rules were run over what it served; the next two say what they found."""
    rules: dict[str, int] = {}
    """Broken rule (``INV-044``) → how often."""
    rule_errors: int = 0
    """How many of these breaches are errors; the others are warnings."""
    upstream: str = ""
    depth: str = ""
    relayed: bool = False
    shadows: dict[str, ShadowVerdict] = {}
    """Other parser → its verdict."""
    conversation: str = ""
    """The stored conversation that it belongs to."""

    @property
    def differs(self) -> str:
        """The parsers whose message is another one, or that failed, with a space between; a column in SQL."""
        return " ".join(name for name, verdict in self.shadows.items() if verdict in ("changed", "failed"))


class Trace(msgspec.Struct, kw_only=True):
    """One session in memory, as a store or a trace file gives it: whole, or with the layers that were asked for.
    ``info`` is of the whole session. ``blobs``, codecs and packing are resolved."""

    opening: Opening
    info: SessionInfo
    records: Mapping[tuple[str, Layer], Sequence[Record]]

    def events(self, track: str, layer: Layer) -> list[Any]:
        """The bare events of one track and layer; empty where none were recorded. The list is the caller's."""
        records = self.records.get((track, layer), ())
        return records.events[:] if isinstance(records, Rows) else [record.event for record in records]

    def causes(self, track: str, layer: Layer) -> list[int]:
        """The causes of one track and layer, parallel to its events. The list is the caller's."""
        records = self.records.get((track, layer), ())
        return records.causes[:] if isinstance(records, Rows) else [record.cause for record in records]


class Piece(msgspec.Struct, frozen=True):
    """Consecutive records of a layer, and the session's ``state`` in the moment they were read: none, of a session that
    is not ``open``, is the layer's end."""

    records: Sequence[Record]
    state: State
    mode: Mode


class StoreError(Exception):
    """Base of the errors of this package. The message names what, where and what to do."""


class StoreUnavailable(StoreError):
    """The store cannot be opened or written: full, locked, read-only, not a store."""


class SessionNotFound(StoreError):
    """No session of this id (or unique prefix of an id)."""


class StillOpen(StoreError):
    """The session is being recorded: it has no end to be judged by."""


class SequenceConflict(StoreError):
    """Other records are already stored at this identity."""


class Overtaken(StoreError):
    """The session's conversation went on since it was looked at."""


class BadQuery(StoreError):
    """A condition that is no SQL over the columns of a session."""


class CorruptRecord(StoreError):
    """Stored bytes fail their checksum, or do not decode."""


class UnknownSchema(StoreError):
    """Written by a newer Playhead: a schema, codec or event tag that this one does not know."""


class SessionWriter(Protocol):
    """The recording of one session. Used from one thread; the store does its work in another."""

    @property
    def incomplete(self) -> bool:
        """Records of this session were lost."""
        ...

    def append(self, batch: Batch) -> None:
        """Queue a batch. Never blocks, never raises on a failing store: the session becomes ``incomplete``."""
        ...

    def close(self, state: Ended) -> None:
        """Queue the end: seals the journal, completes the projection. Once; appends after it raise ValueError."""
        ...

    def committed(self) -> Future[None]:
        """Resolves when all that was queued before is durable; fails with StoreError if it was lost."""
        ...


class EventStore(Protocol):
    """A place that keeps sessions. All methods may be called from any thread; ``writer`` objects from one."""

    def writer(self, opening: Opening, mode: Mode = "full", known: Collection[str] | None = None) -> SessionWriter:
        """Begin to record a session. Raises nothing on a failing store: the writer is then ``incomplete``. ``known``:
        all sessions of its conversation that the caller knows; where these are not all, or not there any more, nothing
        is recorded, and ``committed`` fails with Overtaken. So of two that know the same one is recorded."""
        ...

    def sessions(
        self, where: str | None = None, *, state: State | None = None, limit: int | None = None
    ) -> Iterator[SessionInfo]:
        """Newest first. ``where``: a condition in SQL over the columns of ``store.query.COLUMNS``, which are the fields
        of SessionInfo (lists and dicts as JSON text); of a running session they say what was known when it began.
        Raises BadQuery."""
        ...

    def search(self, text: str, *, limit: int | None = None) -> Iterator[SessionInfo]:
        """Full text over the final message; best first."""
        ...

    def info(self, session: str) -> SessionInfo:
        """``session``: an id or a unique prefix. Raises SessionNotFound."""
        ...

    def load(self, session: str, layers: Collection[tuple[str, Layer]] | None = None, *, lazy: bool = False) -> Trace:
        """The whole session, or only these of its layers, by (track, layer): the others are not read, so nothing is
        known of damage to them. ``lazy``: checksums and hash chains are checked now, but the records of derived layers
        are decoded when they are first asked for, and what does not decode is raised then. Raises SessionNotFound,
        CorruptRecord, UnknownSchema."""
        ...

    def opening(self, session: str) -> Opening:
        """``session``: an id, whole. Raises SessionNotFound, CorruptRecord, UnknownSchema."""
        ...

    def read(self, session: str, track: str, layer: Layer, first: int = 0, *, about: int = 256) -> Piece:
        """The next records of a layer from seq ``first`` on, ``about`` so many, at least one where there is one; what
        comes before is not read. ``session``: an id, whole. Raises SessionNotFound, CorruptRecord, UnknownSchema."""
        ...

    def watch(self, session: str, wake: Callable[[], object]) -> Callable[[], None]:
        """Call ``wake``, in any thread, whenever something of a session that is written through this object has become
        durable or was lost; it must not block. Returns what ends that."""
        ...

    def save(self, traces: Iterable[Trace]) -> int:
        """Import whole sessions; returns how many were new. Raises SequenceConflict if one has other records."""
        ...

    def note_rules(self, session: str, rules: Mapping[str, int], errors: int) -> None:
        """Note in the projection of an ended session what the protocol rules found, in place of what was noted before;
        see ``SessionInfo.rules``, ``rule_errors``. Raises SessionNotFound, StillOpen, StoreUnavailable."""
        ...

    def attach(
        self, session: str, track: str, records: Mapping[Layer, Sequence[Record]], verdict: ShadowVerdict | None = None
    ) -> None:
        """Add whole layers to a session that has ended, on a track that no recording writes to. ``verdict``: for a
        track ``shadow:P``, noted in ``SessionInfo.shadows`` in place of what was noted before. A lean session keeps a
        digest of each layer. A layer that is there already must be the same. A session counts as ended that is torn or
        incomplete, too. Raises SessionNotFound, StillOpen, SequenceConflict, StoreUnavailable; ValueError for another
        track, or records that do not begin at seq 0 or have gaps."""
        ...

    def delete(self, session: str) -> None:
        """Remove an ended session. What sessions share (prompt ids, tools, templates) stays, and so may bytes in free
        pages of a file until it is vacuumed. Raises SessionNotFound, StillOpen, StoreUnavailable."""
        ...

    def flush(self) -> None:
        """Wait until all that was queued before is durable (or lost and counted)."""
        ...

    def close(self) -> None:
        """Flush, then release everything. Idempotent."""
        ...

    def stats(self) -> dict[str, int]:
        """Counters since opening: ``batches``, ``records``, ``commits``, ``bytes``, ``lost_records``, ``failures``."""
        ...
