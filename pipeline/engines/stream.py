"""The hand-over of inputs from an engine's thread to the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Protocol, cast

import anyio
import anyio.lowlevel

from stages.events import ErrorInput, Input, UsageInput

UNREAD = 256
"""Inputs that may wait unread before the engine leaves the request out of its steps."""


class _TrioToken(Protocol):
    def run_sync_soon(self, sync_fn: Callable[[], object], *args: object) -> None: ...


def waker() -> Callable[[Callable[[], object]], object]:
    """How another thread runs a function on this event loop, without waiting for it."""
    native = anyio.lowlevel.current_token().native_token
    if isinstance(native, asyncio.AbstractEventLoop):
        return native.call_soon_threadsafe
    return cast(_TrioToken, native).run_sync_soon


class Handover:
    """An EngineStream with a producer's side for another thread.

    ``put``, ``full`` and ``aborted`` may be used from any one thread at a time; the rest is for the event loop on which
    it was made. ``on_room``: called on the event loop, must not block: the reader made room, or aborted.
    """

    def __init__(self, on_room: Callable[[], object], limit: int = UNREAD) -> None:
        self._on_room = on_room
        self._limit = limit
        self._lock = threading.Lock()
        self._items: list[Input] = []
        self._closed = False  # nothing more is taken: a terminal input was put, or the reader aborted
        self._waiting: anyio.Event | None = None  # set while the reader sleeps and no wake-up is on its way
        self._call_soon = waker()
        self.aborted = False

    @property
    def full(self) -> bool:
        """Too much waits unread: leave this request out of the next step."""
        return len(self._items) >= self._limit

    @property
    def closed(self) -> bool:
        """Ended or aborted: nothing that is put any more arrives."""
        return self._closed

    def put(self, inputs: list[Input]) -> None:
        """Hand over inputs, in order. Never blocks. Ignored after the terminal input and after an abort."""
        with self._lock:
            if self._closed or not inputs:
                return
            self._items += inputs
            kind = type(inputs[-1])
            self._closed = kind is UsageInput or kind is ErrorInput
            waiting, self._waiting = self._waiting, None
        if waiting is not None:
            # RuntimeError: the loop has ended, and its reader with it.
            with contextlib.suppress(RuntimeError):
                self._call_soon(waiting.set)

    async def receive(self) -> list[Input]:
        """See EngineStream."""
        if self._items or self._closed:
            await anyio.lowlevel.checkpoint()
        while True:
            with self._lock:
                items, self._items = self._items, []
                if not items and not self._closed:
                    self._waiting = event = anyio.Event()
                else:
                    event = None
            if event is None:
                break
            await event.wait()
        if not items:
            raise anyio.EndOfStream
        if len(items) >= self._limit:
            self._on_room()
        return items

    def abort(self) -> None:
        """See EngineStream."""
        with self._lock:
            if self.aborted:
                return
            self.aborted = self._closed = True
            self._items = []
            waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.set()
        self._on_room()

    def __repr__(self) -> str:
        return f"<Handover unread={len(self._items)} closed={self._closed} aborted={self.aborted}>"
