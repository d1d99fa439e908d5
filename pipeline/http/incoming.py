"""What is asked of a request before its body is read."""

from __future__ import annotations

from starlette.requests import Request

from stages.errors import RequestError


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
