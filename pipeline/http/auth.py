"""API keys: who may ask. Only digests of the keys are kept; every one is compared, in constant time."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from pathlib import Path

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

OPEN_PATHS = frozenset({"/health"})
"""What is looked at without a key: load balancers have none."""
VARIABLE = "PLAYHEAD_API_KEYS"


class BadKeys(Exception):
    """A key file cannot be read, or holds something that no header can carry. The message never quotes a key."""


def keys_in(file: str | None, variable: str | None) -> tuple[bytes, ...]:
    """Digests of the keys of a file (one a line; empty lines and those that begin with ``#`` are none) and of an
    environment variable (separated by commas). Raises BadKeys."""
    found: list[bytes] = []
    if file is not None:
        try:
            lines = Path(file).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise BadKeys(f"the key file {file} cannot be read: {error}") from error
        found += _digests(((f"{file}, line {number}", line) for number, line in enumerate(lines, 1)), comments=True)
        if not found:
            raise BadKeys(f"the key file {file} holds no key: write one a line")
    found += _digests(((VARIABLE, part) for part in (variable or "").split(",")), comments=False)
    return tuple(dict.fromkeys(found))


def _digests(parts: Iterable[tuple[str, str]], *, comments: bool) -> list[bytes]:
    made: list[bytes] = []
    for where, part in parts:
        key = part.strip()
        if not key or (comments and key.startswith("#")):
            continue
        if not (key.isascii() and key.isprintable()) or " " in key:
            raise BadKeys(f"{where}: a key is printable ASCII without blanks, or no header can carry it")
        made.append(_digest(key))
    return made


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "replace")).digest()


class RequireKey:
    """ASGI middleware: requests without a key that is known are answered by ``refused``, before their body is read."""

    def __init__(self, app: ASGIApp, keys: tuple[bytes, ...], refused: ASGIApp) -> None:
        """``keys``: digests, see ``keys_in``."""
        self._app = app
        self._keys = keys
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        open_ = scope["type"] != "http" or (scope["path"] in OPEN_PATHS and scope["method"] in ("GET", "HEAD"))
        allowed = open_ or self._known(Headers(scope=scope))
        await (self._app if allowed else self._refused)(scope, receive, send)

    def _known(self, headers: Headers) -> bool:
        digest = _digest(_given(headers))
        # No early end: how long it takes tells nothing about which key is near.
        return sum([hmac.compare_digest(digest, key) for key in self._keys]) > 0


def _given(headers: Headers) -> str:
    """The key of ``authorization: Bearer …``, or of ``x-api-key``."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
