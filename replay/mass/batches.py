"""batches: the units of sources in the right numbers, those that are done left out."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from replay.mass.spool import key
from replay.mass.units import WITHIN, Unit, files_once, find
from replay.mass.worker import Batch
from replay.totals import Unreadable
from store import open_store, trace
from store.api import StoreError

MOST = 50
"""Units in a batch."""
_BYTES = 4 << 20
"""Of trace files in a batch, about."""
_SHARE = 8
"""A worker's first units come in about so many batches, so that a few sessions keep all workers busy."""


class Finder:
    """The units of sources that are not done. ``done``: keys of those that are; ``lost``: is told what cannot be read,
    and its place in the order; ``again``: a file that another source, or path, has led to; ``left``: one
    in a folder that holds results of a replay."""

    def __init__(
        self, sources: Sequence[str], sessions: Sequence[str], done: set[int],
        lost: Callable[[Unreadable, int], None], again: Callable[[str], None] | None = None,
        left: Callable[[str], None] | None = None,
    ) -> None:  # fmt: skip
        self._sources = sources
        self._sessions = sessions
        self._done = done
        self._lost = lost
        self._told = again
        self._left = left
        self._seen = [False] * len(sources)
        self._ends = [0] * len(sources)
        self._index = 0
        self._units = self._bytes = 0
        self._expected: tuple[int, int] | None = None

    def left(self) -> Iterator[Unit]:
        """Those to run."""
        for unit in find(self._sources, self._sessions, self._again, self._left):
            # Whatever comes next of a source has a place before that of a source that has nothing.
            self._ends[unit.index :] = [unit.at + WITHIN - 1] * (len(self._ends) - unit.index)
            if unit.kind == "unreadable":
                self.see(unit.index)
                self._lost(Unreadable(unit.file, unit.error), unit.at)
            elif unit.kind == "packed":
                yield self._packed(unit)
            else:
                self.see(unit.index)
                if unit.kind == "trace":
                    self._units += 1
                    self._bytes += unit.length
                if key(unit.index, unit.file, unit.place) not in self._done:
                    yield unit

    def _packed(self, unit: Unit) -> Unit:
        """Without those at its begin that are done; how many there are is not known."""
        first = 0
        while key(unit.index, unit.file, str(first)) in self._done:
            first += 1
        if first:
            self.see(unit.index)
        return msgspec.structs.replace(unit, first=first)

    def _again(self, index: int, file: str) -> None:
        self.see(index)
        if self._told is not None:
            self._told(file)

    def see(self, index: int) -> None:
        """Something came of a source."""
        self._seen[index] = True

    def empty(self) -> None:
        """Tell of the sources that nothing came of, at the end: they would pass for unchanged."""
        why = f"no session {' or '.join(self._sessions)} in it" if self._sessions else "no session in it"
        for index, source in enumerate(self._sources):
            if not self._seen[index]:
                self._lost(Unreadable(source, why), self._ends[index])

    def expected(self) -> int | None:
        """How many sessions there are, about: those of trace files are known from what was read of them so far. None:
        nothing can be said."""
        if self._sessions:
            return None
        if self._expected is None:
            self._expected = _weight(self._sources)
        sessions, size = self._expected
        if not size:
            return sessions
        return sessions + size * self._units // self._bytes if self._bytes else None


def _weight(sources: Sequence[str]) -> tuple[int, int]:
    """Sessions in stores, and bytes of trace files."""
    sessions = size = 0
    for _, file in files_once(sources):
        try:
            if file.endswith(trace.SUFFIXES):
                size += os.path.getsize(file)
            else:
                store = open_store(file, create=False)
                sessions += sum(1 for _ in store.sessions())
                store.close()
        except (OSError, StoreError):
            continue  # whoever reads it tells
    return sessions, size


def batches(units: Iterable[Unit], jobs: int) -> Iterator[Batch]:
    """The units in batches, small ones first."""
    batch: list[Unit] = []
    given = size = 0
    for unit in units:
        batch.append(unit)
        size += unit.length
        if len(batch) >= min(MOST, 1 + given // (jobs * _SHARE)) or size >= _BYTES:
            yield Batch(batch)
            given += len(batch)
            batch, size = [], 0
    if batch:
        yield Batch(batch)
