"""Values that take long to make, shared by the threads that want them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Made(NamedTuple, Generic[T]):
    """A value, and what it costs to keep it."""

    value: T
    cost: int


class Once(Generic[T]):
    """Values by key. However many threads want one at once, it is made once; the latest are kept.

    ``most``: values that are kept; ``room``: their costs together, the latest one's aside; ``slots``: how many are made
    at once.
    """

    def __init__(self, most: int, room: int, slots: int) -> None:
        self._most = most
        self._room = room
        self._slots = threading.Semaphore(slots)
        self._lock = threading.Lock()
        self._futures: OrderedDict[str, Future[Made[T]]] = OrderedDict()

    def get(self, key: str, make: Callable[[], Made[T]], wanted: Callable[[], bool]) -> T:
        """The value, made now or before; blocks while it is made. ``wanted``: asked before it is: where it says no,
        CancelledError is raised. Else raises what ``make`` does, to all who wait for it; that is not kept."""
        while True:
            mine: Future[Made[T]] = Future()
            with self._lock:
                found = self._futures.setdefault(key, mine)
                self._futures.move_to_end(key)
            if found is mine:
                return self._make(key, mine, make, wanted)
            try:
                return found.result().value
            except CancelledError:  # whose turn it was has left
                if not wanted():
                    raise

    def _make(self, key: str, mine: Future[Made[T]], make: Callable[[], Made[T]], wanted: Callable[[], bool]) -> T:
        try:
            with self._slots:
                if not wanted():
                    raise CancelledError
                made = make()
        except BaseException as error:  # whatever it is: those who wait for it are told, and it goes on
            with self._lock:
                del self._futures[key]
            mine.set_exception(error)
            raise
        with self._lock:
            mine.set_result(made)
            self._trim()
        return made.value

    def _trim(self) -> None:
        """Those that are being made are nobody's to drop."""
        done = [(key, future.result().cost) for key, future in self._futures.items() if future.done()]
        total = sum(cost for _, cost in done)
        for spare, (key, cost) in zip(range(len(done) - 1, 0, -1), done, strict=False):
            if spare < self._most and total <= self._room:
                break
            del self._futures[key]
            total -= cost
