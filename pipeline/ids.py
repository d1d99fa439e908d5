"""The only clock and the only source of random ids. What it gives enters a session through its Opening."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable


def new_session_id() -> str:
    """32 hex digits that sort by creation time: 48 bits of unix milliseconds, then 80 random bits."""
    return f"{time.time_ns() // 1_000_000:012x}{secrets.token_hex(10)}"


def is_new(session: str, seconds: float) -> bool:
    """Whether what looks like an id of a session is not older than so many seconds. False for what is no id."""
    try:
        age = time.time_ns() // 1_000_000 - int(session[:12], 16)
    except ValueError:
        return False
    return -1000 * seconds <= age <= 1000 * seconds


def new_request_id() -> str:
    """Of a request without a session."""
    return f"req-{new_session_id()}"


def new_key() -> str:
    """16 random bytes in hex: what a session's call ids are derived from."""
    return secrets.token_hex(16)


def unix_ns() -> int:
    """Wall clock, unix ns."""
    return time.time_ns()


def stopwatch() -> Callable[[], int]:
    """A function that tells the ns since this call, on a clock that never goes back."""
    start = time.monotonic_ns()
    now = time.monotonic_ns
    return lambda: now() - start
