"""load: units of work as sessions in memory."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import BinaryIO, TypeAlias

from replay.mass.units import Unit, slices
from replay.totals import Unreadable
from stages.events import Layer
from store import open_store, trace
from store.api import EventStore, StoreError, Trace

Key: TypeAlias = tuple[str, Layer]
"""Track and layer."""

Wanted: TypeAlias = Collection[Key] | None
"""The layers to load; None: all."""

_OPEN = 8
"""Stores that are kept open."""


class Loader:
    """Loads units; what it reads from stays open for the next. ``sessions``: ids, or prefixes of ids, to keep to;
    ``layers``: what to load of each that our stages made; ``lazy``: see ``EventStore.load``, of those in stores. A
    context manager."""

    def __init__(self, sessions: Sequence[str] = (), layers: Wanted = None, *, lazy: bool = False) -> None:
        self._sessions = tuple(sessions)
        self._layers = layers
        self._lazy = lazy
        self._stores: dict[str, EventStore] = {}
        self._file: BinaryIO | None = None

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of everything. Idempotent."""
        for store in self._stores.values():
            store.close()
        self._stores.clear()
        if self._file is not None:
            self._file.close()
            self._file = None

    def load(self, unit: Unit) -> Iterator[tuple[int, Trace | Unreadable]]:
        """The sessions of a unit, each with its number in the file, which is 0 but in compressed ones. Raises nothing
        for what cannot be read."""
        try:
            match unit.kind:
                case "store":
                    yield 0, self._store(unit.file).load(unit.place, self._wanted(unit.relayed), lazy=self._lazy)
                case "trace":
                    yield 0, self._trace(unit)
                case "packed":
                    yield from self._packed(unit)
                case "unreadable":
                    yield 0, Unreadable(unit.file, unit.error)
        except StoreError as error:
            yield 0, unreadable(unit, error)
        except OSError as error:
            yield 0, Unreadable(unit.file, f"{unit.file} cannot be read ({error.strerror}).")

    def _wanted(self, relayed: bool) -> Wanted:
        return None if relayed else self._layers

    def _store(self, file: str) -> EventStore:
        store = self._stores.pop(file, None)
        if store is None:
            store = open_store(file, create=False)
            if len(self._stores) >= _OPEN:
                self._stores.pop(next(iter(self._stores))).close()
        # The one that was used last is at the end.
        self._stores[file] = store
        return store

    def _trace(self, unit: Unit) -> Trace:
        if self._file is None or self._file.name != unit.file:
            if self._file is not None:
                self._file.close()
            self._file = open(unit.file, "rb")
        self._file.seek(int(unit.place))
        return _one(self._file.read(unit.length), unit.file, unit.line, self._wanted(unit.relayed))

    def _packed(self, unit: Unit) -> Iterator[tuple[int, Trace | Unreadable]]:
        data = trace.unpacked(Path(unit.file), Path(unit.file).read_bytes())
        last = unit.first + unit.count if unit.count else None
        for number, piece in islice(enumerate(slices(io.BytesIO(data))), unit.first, last):
            if not piece.is_wanted(self._sessions):
                continue
            text = data[piece.offset : piece.offset + piece.length]
            try:
                yield number, _one(text, unit.file, piece.line, self._wanted(piece.relayed))
            except StoreError as error:
                yield number, Unreadable(unit.file, str(error))
        if not data.strip():
            yield 0, _one(data, unit.file, 1, None)


def unreadable(unit: Unit, error: StoreError) -> Unreadable:
    """What cannot be read of a unit."""
    return Unreadable(unit.file, str(error), unit.place if unit.kind == "store" else "")


def example(file: str, session: str) -> Trace:
    """One session, by its whole id, out of a store or trace file. Raises StoreError, OSError."""
    if file.endswith(trace.SUFFIXES):
        with open(file, "rb") as opened:
            packed = file.endswith(".zst")
            text: BinaryIO = io.BytesIO(trace.unpacked(Path(file), opened.read())) if packed else opened
            found = next((piece for piece in slices(text) if piece.session == session), None)
            if found is None:
                raise StoreError(f"{file}: session {session} is not in it; was the file changed?")
            text.seek(found.offset)
            return _one(text.read(found.length), file, found.line, None)
    store = open_store(file, create=False)
    try:
        return store.load(session)
    finally:
        store.close()


def _one(text: bytes, file: str, line: int, layers: Wanted) -> Trace:
    return next(trace.loads(text, file, layers=layers, first=line))
