"""interrupts: Ctrl-C between two results, never within one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Interrupts:
    """While it is entered, in the main thread, SIGINT raises KeyboardInterrupt, but not within ``whole``: at its
    end."""

    def __init__(self) -> None:
        self._inside = self._seen = False
        self._before: Callable[[int, FrameType | None], Any] | int | None = None
        self._set = False

    def __enter__(self) -> Interrupts:
        # Where nobody listens to it (nohup), it stays so.
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
            self._before = signal.signal(signal.SIGINT, self._come)
            self._set = True
        return self

    def __exit__(self, *_: object) -> None:
        if self._set:
            signal.signal(signal.SIGINT, self._before or signal.default_int_handler)

    @contextmanager
    def whole(self) -> Generator[None]:
        """What is inside is done before the interrupt."""
        self._inside = True
        try:
            yield
        finally:
            self._inside = False
        if self._seen:
            raise KeyboardInterrupt

    def _come(self, signum: int, frame: FrameType | None) -> None:
        self._seen = True
        if not self._inside:
            raise KeyboardInterrupt
