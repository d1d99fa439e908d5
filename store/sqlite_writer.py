"""The writer of the SQLite store: a bounded queue, one thread, one transaction for all sessions every few ms."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from itertools import chain, repeat
from typing import Any, Literal, TypeAlias

import msgspec

from stages.opening import Opening
from store import block, codec
from store.api import Batch, Ended, Mode, Overtaken, StoreError, StoreUnavailable
from store.projection import Projection
from store.rules import Counters, Key, check_batch

_NEVER = 1 << 62

log = logging.getLogger("playhead.store")

Ending: TypeAlias = Ended | Literal["incomplete"]

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
        "attached", "dead", "digests", "ending", "known", "layers", "lost", "mode", "opening", "projection", "row",
        "shut", "spoiled",
    )  # fmt: skip

    def __init__(self, opening: Opening, mode: Mode, known: Collection[str] | None = None) -> None:
        self.opening = opening
        self.mode: Mode = mode
        self.known = known
        """See ``EventStore.writer``."""
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
        self.spoiled: set[Key] = set()
        """Layers that were given an event that cannot be encoded."""
        self.shut = False
        """It was attached to a session that had ended."""


Part: TypeAlias = tuple[int, Sequence[Any], Sequence[int]]
"""A batch without its place: at, events, causes."""


class Item(msgspec.Struct):
    """Something queued: consecutive batches of one layer (``key``), ``n`` records from ``first`` on; or the end of the
    session; or a future to resolve; or a call to make between two commits. With none of these: the session begins.
    ``size``: bytes it may hold, about; ``taken``: the writer thread has it; ``lost``: records that it gave up."""

    size: int
    session: Session | None = None
    key: Key | None = None
    first: int = 0
    n: int = 0
    parts: list[Part] = []
    taken: bool = False
    lost: int = 0
    ending: Ending | None = None
    future: Future[Any] | None = None
    call: Callable[[], Any] | None = None

    def give_up(self) -> None:
        """Nothing of it is recorded."""
        self.lost, self.n = self.lost + self.n, 0

    def spoiled(self) -> StoreError | None:
        """Give up the first batch that cannot be encoded and all after it; returns why, or None where there is none."""
        for index, (_, events, _) in enumerate(self.parts):
            try:
                codec.encode(events)
            except (TypeError, ValueError, OverflowError, RecursionError) as error:
                self.lost = sum(len(part[1]) for part in self.parts[index:])
                self.n -= self.lost
                del self.parts[index:]
                return StoreError(f"{'/'.join(self.key or ())}: an event cannot be encoded: {error}")
        return None

    def encoded(self, blobs: dict[bytes, bytes]) -> block.Run:
        """The batches as one run. Raises what msgspec raises for an event that cannot be encoded: see ``spoiled``."""
        parts = self.parts
        causes: Sequence[int] = ()
        if any(part[2] for part in parts):
            causes = list(chain.from_iterable(part[2] or repeat(-1, len(part[1])) for part in parts))
        events = parts[0][1] if len(parts) == 1 else list(chain.from_iterable(part[1] for part in parts))
        data = codec.encode(codec.stow(events, blobs))
        return block.Run(self.first, self.n, [(len(part[1]), part[0]) for part in parts], causes, data)


def weight(events: Sequence[Any]) -> int:
    """Bytes that events hold, about."""
    size = 200 * len(events)
    for event in events:
        payload = getattr(event, "data", None) or getattr(event, "text", None)
        if isinstance(payload, str | bytes):
            size += len(payload)
    return size


SHARE = 10
"""So many times as long as a commit takes, records wait for the next."""
LONGEST = 0.25
"""Seconds that they wait at most."""


class Queue:
    """Items between the threads, bounded in bytes. The taker waits for company: ``window`` s, or ``plenty`` bytes;
    longer where its work takes long (``took``)."""

    def __init__(self, limit: int, window: float, plenty: int) -> None:
        self._items: deque[Item] = deque()
        self._bytes = 0
        self._limit = limit
        self._window = self._least = window
        self._plenty = self._few = plenty
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

    def extend(self, item: Item, first: int, part: Part, size: int) -> bool:
        """Add a batch to an item that waits; False where it does not wait any more, or what it holds is not followed by
        ``first``, or the queue is full or ended."""
        with self._lock:
            if item.taken or item.first + item.n != first or self._ended or self._bytes >= self._limit:
                return False
            item.parts.append(part)
            item.n += len(part[1])
            item.size += size
            self._bytes = size = self._bytes + size
            if size >= self._wanted:
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

    def took(self, seconds: float) -> None:
        """What was taken last was so much work. A row of a layer costs much the same whether it has one event or ten:
        under load more is gained by waiting than by hurrying."""
        self._window = min(max(self._least, SHARE * seconds), LONGEST)
        self._plenty = round(self._few * self._window / self._least) if self._least else self._few

    def take(self, most: int, patience: float | None = None) -> list[Item] | None:
        """What waits, at most about ``most`` bytes of it; empty only at the end; None where nothing came within
        ``patience`` seconds."""
        with self._lock:
            if not self._items:
                self._wanted = 1
                if not self._wake.wait_for(lambda: self._items or self._ended, patience):
                    return None
            self._wanted = self._plenty
            self._wake.wait_for(lambda: self._urgent or self._bytes >= self._plenty, self._window)
            self._wanted = _NEVER
            taken: list[Item] = []
            size = 0
            while self._items and size < most:
                item = self._items.popleft()
                size += item.size
                item.taken = True
                taken.append(item)
            self._bytes -= size
            self._urgent = self._ended or (self._urgent and bool(self._items))
            return taken


class SqliteWriter:
    """See SessionWriter. What is appended to a layer between two commits becomes one row: an append costs a lock and a
    few attributes, and the writer thread encodes what came together in one go."""

    def __init__(
        self, session: Session, queue: Queue, counters: Counters, drop: Callable[[Session, StoreError], None]
    ) -> None:
        self._session = session
        self._queue = queue
        self._counters = counters
        self._drop = drop
        self._next: dict[Key, int] = {}
        self._waiting: dict[Key, Item] = {}
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
        events, causes, first = batch.events, batch.causes, batch.first_seq
        n = len(events)
        key: Key = (batch.track, batch.layer)
        following = self._next.get(key, 0)
        if first != following or (causes and len(causes) != n):
            check_batch(batch, following)
        self._next[key] = max(following, first + n)
        if not n:
            return
        if self._session.lost is not None:
            if not isinstance(self._session.lost, Overtaken):
                self._counters.add(lost_records=n)
            return
        # Copies: the lists are the caller's.
        part: Part = batch.at, tuple(events), tuple(causes)
        size = weight(events)
        waiting = self._waiting.get(key)
        if waiting is not None and self._queue.extend(waiting, first, part, size):
            return
        item = self._waiting[key] = Item(300 + size, self._session, key, first, n, [part])
        if not self._queue.put(item):
            self._lose(self._refused(), n)

    def close(self, state: Ended) -> None:
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
