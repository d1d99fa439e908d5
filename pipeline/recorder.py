"""Taps to store: what flows through a session's channels, and what became of it, goes to the store's writer."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Literal, TypeAlias

import anyio.to_thread

from pipeline.channels import Tap
from stages.events import Layer, Sent
from stages.opening import Opening
from store.api import Batch, Ended, EventStore, SessionWriter

Record: TypeAlias = Literal["full", "lean", "off"]


class SessionRecorder:
    """The recording of one session. Recording never breaks serving: nothing here raises for a failing store, and
    nothing waits for it unless ``strict``."""

    def __init__(self, writer: SessionWriter | None, elapsed: Callable[[], int], *, strict: bool = False) -> None:
        self._writer = writer
        self.elapsed = elapsed
        """ns since the opening, now."""
        self.strict = strict and writer is not None

    @property
    def recorded(self) -> bool:
        """The session is one of the sample, and there is a store."""
        return self._writer is not None

    @property
    def lost(self) -> bool:
        """Something of it could not be stored."""
        return self._writer is not None and self._writer.incomplete

    def tap(self, track: str, layer: Layer) -> Tap:
        """A tap that appends to (track, layer), seq from 0."""
        writer, elapsed = self._writer, self.elapsed
        if writer is None:
            return _nothing
        append = writer.append
        seq = 0

        def record(events: list[Any], causes: list[int], /) -> None:
            nonlocal seq
            append(Batch(track, layer, seq, elapsed(), events, causes))
            seq += len(events)

        return record

    def sent(self, seq: int, size: int) -> None:
        """Every frame below ``seq``, ``size`` body bytes in all, was handed to the socket."""
        if self._writer is not None:
            self._writer.append(Batch("socket", "frame", 0, self.elapsed(), [Sent(seq, size)]))

    def close(self, state: Ended) -> None:
        """The session is over."""
        if self._writer is not None:
            self._writer.close(state)

    async def committed(self) -> None:
        """Wait until all that was tapped before is durable. Raises StoreError where it is not."""
        if self._writer is not None:
            await anyio.to_thread.run_sync(self._writer.committed().result, abandon_on_cancel=True)


class Recorder:
    """Opens a SessionRecorder per session. ``sample``: the share of sessions recorded, chosen by the session's key, so
    that the choice is a function of the session."""

    def __init__(
        self, store: EventStore | None, *, mode: Record = "full", strict: bool = False, sample: float = 1.0
    ) -> None:
        self.store = store
        self.mode: Record = mode
        self.strict = strict
        self.sample = sample
        self.opened = 0
        """Sessions whose recording has begun."""

    def open(
        self, opening: Opening, elapsed: Callable[[], int], known: Collection[str] | None = None
    ) -> SessionRecorder:
        """``elapsed``: ns since the opening; ``known``: see ``EventStore.writer``."""
        mode = self.mode
        if self.store is None or mode == "off" or not self._chosen(opening):
            return SessionRecorder(None, elapsed)
        self.opened += 1
        return SessionRecorder(self.store.writer(opening, mode, known), elapsed, strict=self.strict)

    def _chosen(self, opening: Opening) -> bool:
        return self.sample >= 1.0 or int(opening.key[:8], 16) < self.sample * 2**32


def _nothing(events: list[Any], causes: list[int], /) -> None:
    """The tap of a session that is not recorded."""
