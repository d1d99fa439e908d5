"""What is asked of a request before its body is read, and where the body is understood."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import anyio.to_thread
from starlette.requests import Request

from stages.errors import RequestError

T = TypeVar("T")
LARGE = 256 * 1024
"""Bytes. A hostile body of some megabytes takes seconds to understand: the others do not wait for a larger one."""


async def understood(size: int, work: Callable[[], T]) -> T:
    """What ``work`` makes of a body of so many bytes; in a thread where it is large. Raises what ``work`` raises."""
    return work() if size <= LARGE else await anyio.to_thread.run_sync(work)


def require_json(request: Request) -> None:
    """Raises RequestError (415) for a body that says it is something else than plain JSON."""
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind and kind != "application/json":
        raise RequestError(f"The content type must be application/json, not {kind[:80]}.", status=415)
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding not in ("", "identity"):
        raise RequestError(
            f"The body must be sent as it is, not {coding[:80]}: leave out content-encoding.", status=415
        )
