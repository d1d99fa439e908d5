"""interrupts: Ctrl-C, and other requests to end, between two results, never within one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """While it is entered, in the main thread, SIGINT raises KeyboardInterrupt, but not within ``whole``: at its
    end. So do SIGTERM and SIGHUP, unless somebody else listens to them. One is enough: what comes after it waits until
    all is put away."""

    def __init__(self) -> None:
        self._inside = self._seen = False
        self._before: dict[signal.Signals, Callable[[int, FrameType | None], Any] | int | None] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for each in _ENDS:
                before = signal.getsignal(each)
                # Where nobody listens to it (nohup), it stays so.
                if before != signal.SIG_IGN if each == signal.SIGINT else before == signal.SIG_DFL:
                    self._before[each] = signal.signal(each, self._come)
        return self

    def __exit__(self, *_: object) -> None:
        for each, before in self._before.items():
            default = signal.default_int_handler if each == signal.SIGINT else signal.SIG_DFL
            signal.signal(each, before or default)
        self._before.clear()

    @contextmanager
    def whole(self) -> Generator[None]:
        """What is inside is done before the interrupt."""
        self._inside = True
        try:
            yield
        finally:
            self._inside = False
        if self._seen:
            self._inside = True
            raise KeyboardInterrupt

    def _come(self, signum: int, frame: FrameType | None) -> None:
        self._seen = True
        if not self._inside:
            self._inside = True
            raise KeyboardInterrupt
