"""The writer of the SQLite store: a bounded queue, one thread, one transaction for all sessions every few ms."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Literal, TypeAlias

import msgspec

from stages.opening import Opening
from store import block, codec
from store.api import Batch, Mode, StoreError, StoreUnavailable
from store.projection import Projection
from store.rules import Counters, Key, check_batch

_NEVER = 1 << 62

log = logging.getLogger("playhead.store")

Ending: TypeAlias = Literal["closed", "aborted", "incomplete"]

CommitHook: TypeAlias = Callable[[list[tuple[str, str, str, int]]], None]
"""Called in the writer thread after each commit with (session, track, layer, next_seq) of what became durable."""


class LayerState:
    """One stored layer of a session in the writer thread. ``journalled``: durable, not sealed; ``fresh``: neither."""

    __slots__ = ("fresh", "head", "journalled", "next", "waiting", "waiting_bytes")

    def __init__(self, head: bytes, following: int = 0) -> None:
        self.head = head
        self.next = following
        self.journalled: list[block.Run] = []
        self.fresh: list[block.Run] = []
        self.waiting = 0
        self.waiting_bytes = 0

    def take(self, run: block.Run) -> None:
        """The next run."""
        self.fresh.append(run)
        self.next = run.first + run.n
        self.waiting += run.n
        self.waiting_bytes += len(run.data)

    def take_all(self) -> list[block.Run]:
        """Hand over what waits to be sealed."""
        runs = self.journalled + self.fresh
        self.journalled, self.fresh, self.waiting, self.waiting_bytes = [], [], 0, 0
        return runs


class Session:
    """A session in the writer thread. ``row``: of the sessions table, 0 before it is there."""

    __slots__ = (
        "attached", "dead", "digests", "ending", "layers", "lost", "mode", "opening", "projection", "row", "shut",
    )  # fmt: skip

    def __init__(self, opening: Opening, mode: Mode) -> None:
        self.opening = opening
        self.mode: Mode = mode
        self.row = 0
        self.layers: dict[Key, LayerState] = {}
        self.digests: dict[Key, codec.RollingDigest] = {}
        self.projection = Projection(opening, mode)
        self.ending: Ending | None = None
        self.lost: StoreError | None = None
        """Why nothing more of it is queued. Set by any thread, once."""
        self.dead: StoreError | None = None
        """Why nothing more of it is written. Set by the writer thread."""
        self.attached = False
        """It was in the store before: what comes is compared with what is there."""
        self.shut = False
        """It was attached to a session that had ended."""


class Item(msgspec.Struct, gc=False):
    """Something queued: ``run`` with its place and, for the projection, its events; or the end of the session; or a
    future to resolve; or a call to make between two commits. With none of these: the session begins."""

    size: int
    session: Session | None = None
    key: Key | None = None
    run: block.Run | None = None
    events: Sequence[Any] = ()
    blobs: dict[bytes, bytes] | None = None
    ending: Ending | None = None
    future: Future[Any] | None = None
    call: Callable[[], Any] | None = None


class Queue:
    """Items between the threads, bounded in bytes. The taker waits for company: ``window`` s, or ``plenty`` bytes."""

    def __init__(self, limit: int, window: float, plenty: int) -> None:
        self._items: deque[Item] = deque()
        self._bytes = 0
        self._limit = limit
        self._window = window
        self._plenty = plenty
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._wanted = 1
        """Bytes that the taker sleeps for."""
        self._urgent = False
        self._ended = False

    def put(self, item: Item, *, urgent: bool = False, must: bool = False) -> bool:
        """Queue; False where it is full (unless ``must``) or ended. ``urgent``: do not wait for company."""
        with self._lock:
            size = self._bytes
            if self._ended or (size >= self._limit and not must):
                return False
            self._items.append(item)
            self._bytes = size = size + item.size
            if urgent:
                self._urgent = True
                self._wake.notify()
            elif size >= self._wanted:
                self._wanted = _NEVER
                self._wake.notify()
            return True

    def end(self) -> None:
        """Take nothing more in; ``take`` gives what is left, then nothing."""
        with self._lock:
            self._ended = self._urgent = True
            self._wake.notify()

    @property
    def full(self) -> bool:
        """Whether ``put`` would refuse."""
        return self._bytes >= self._limit

    @property
    def ended(self) -> bool:
        """Whether ``end`` was called."""
        return self._ended

    def pause(self, seconds: float) -> None:
        """Wait, however much comes, unless something is urgent."""
        with self._lock:
            self._wanted = _NEVER
            self._wake.wait_for(lambda: self._urgent, seconds)

    def take(self, most: int) -> list[Item]:
        """What waits, at most about ``most`` bytes of it; empty only at the end."""
        with self._lock:
            while not self._items and not self._ended:
                self._wanted = 1
                self._wake.wait()
            self._wanted = self._plenty
            self._wake.wait_for(lambda: self._urgent or self._bytes >= self._plenty, self._window)
            self._wanted = _NEVER
            taken: list[Item] = []
            size = 0
            while self._items and size < most:
                item = self._items.popleft()
                size += item.size
                taken.append(item)
            self._bytes -= size
            self._urgent = self._ended or (self._urgent and bool(self._items))
            return taken


class SqliteWriter:
    """See SessionWriter. Encodes in the caller's thread, so that the queue is bounded by what it holds."""

    def __init__(
        self, session: Session, queue: Queue, counters: Counters, drop: Callable[[Session, StoreError], None]
    ) -> None:
        self._session = session
        self._queue = queue
        self._counters = counters
        self._drop = drop
        self._next: dict[Key, int] = {}
        self._closed = False
        if not queue.put(Item(1000 + len(session.opening.request), session)):
            drop(session, self._refused())

    def _refused(self) -> StoreError:
        if self._queue.ended:
            return StoreUnavailable("the store is closed; nothing more is recorded.")
        return StoreUnavailable(
            "the store lags behind and its queue is full; running sessions are not recorded further."
        )

    def _lose(self, error: StoreError, n: int) -> None:
        self._counters.add(lost_records=n)
        self._drop(self._session, error)
        # What is queued already is still recorded; this is its end.
        self._queue.put(Item(100, self._session, ending="incomplete"), must=True)

    @property
    def incomplete(self) -> bool:
        """See SessionWriter."""
        return self._session.lost is not None

    def append(self, batch: Batch) -> None:
        """See SessionWriter. Raises ValueError after ``close``, and where records were left out."""
        if self._closed:
            raise ValueError("append after close")
        events, causes, first, layer = batch.events, batch.causes, batch.first_seq, batch.layer
        n = len(events)
        key: Key = (batch.track, layer)
        following = self._next.get(key, 0)
        if first != following or (causes and len(causes) != n):
            check_batch(batch, following)
        self._next[key] = max(following, first + n)
        if not n:
            return
        session = self._session
        if session.lost is not None:
            self._counters.add(lost_records=n)
            return
        kept: tuple[Any, ...] = ()
        blobs: dict[bytes, bytes] | None = None
        size = 300
        try:
            if layer == "engine":
                kept, blobs, size = tuple(events), {}, size + 200 * n
                data = codec.encode(codec.stow(events, blobs))
                size += sum(map(len, blobs.values()))
            else:
                data = codec.encode(events)
                if layer == "semantic" and key[0] == "served":
                    kept, size = tuple(events), size + 200 * n
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            self._lose(StoreError(f"{batch.track}/{layer}: an event cannot be encoded: {error}"), n)
            return
        run = block.Run(first, n, batch.at, tuple(causes), data)
        if not self._queue.put(Item(size + len(data), session, key, run, kept, blobs)):
            self._lose(self._refused(), n)

    def close(self, state: Literal["closed", "aborted"]) -> None:
        """See SessionWriter."""
        if self._closed:
            raise ValueError("closed already")
        self._closed = True
        if self._session.lost is None and not self._queue.put(Item(100, self._session, ending=state), must=True):
            self._drop(self._session, self._refused())

    def committed(self) -> Future[None]:
        """See SessionWriter."""
        future: Future[None] = Future()
        lost = self._session.lost
        if lost is None and not self._queue.put(Item(100, self._session, future=future), must=True):
            lost = self._refused()
        if lost is not None:
            future.set_exception(lost)
        return future
