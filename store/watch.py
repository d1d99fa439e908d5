"""Who waits for more of a session."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable


class Watchers:
    """Functions to call when something of a session has become durable, or was lost. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, dict[object, Callable[[], object]]] = {}

    def add(self, session: str, wake: Callable[[], object]) -> Callable[[], None]:
        """See ``EventStore.watch``."""
        key = object()
        with self._lock:
            self._waiting.setdefault(session, {})[key] = wake

        def end() -> None:
            with self._lock:
                waiting = self._waiting.get(session, {})
                if waiting.pop(key, None) is not None and not waiting:
                    del self._waiting[session]

        return end

    def tell(self, sessions: Iterable[str]) -> None:
        """Something of these became durable, or was lost."""
        if not self._waiting:
            return
        with self._lock:
            woken = [wake for session in sessions for wake in self._waiting.get(session, {}).values()]
        for wake in woken:
            wake()
