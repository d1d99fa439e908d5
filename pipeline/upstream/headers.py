"""Which headers go up, and which are recorded. Pure functions of lists of (lower-case name, value), order kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

Headers: TypeAlias = Sequence[tuple[str, str]]
KeyHeader: TypeAlias = Literal["authorization", "x-api-key"]

HOP: Final = frozenset({
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
    "trailers", "transfer-encoding", "upgrade", "http2-settings",
})  # fmt: skip
"""Of one connection only, not of the message (RFC 9110, 7.6.1)."""
CREDENTIALS: Final = frozenset({
    "authorization", "x-api-key", "api-key", "cookie", "cookie2", "x-goog-api-key", "ocp-apim-subscription-key",
    "x-amz-security-token", "x-auth-token", "x-access-token",
})  # fmt: skip
# The client that sends them makes these itself; the server before us has answered an Expect already.
_OURS: Final = frozenset({"host", "content-length", "expect"})
_RECORDED: Final = frozenset({
    "accept", "accept-encoding", "accept-language", "anthropic-beta", "anthropic-version", "content-encoding",
    "content-type", "openai-beta", "openai-version", "traceparent", "user-agent", "x-client-request-id",
    "x-correlation-id", "x-request-id", "x-sglext-ids-framed", "x-stainless-arch", "x-stainless-async",
    "x-stainless-lang", "x-stainless-os", "x-stainless-package-version", "x-stainless-retry-count",
    "x-stainless-runtime", "x-stainless-runtime-version", "x-stainless-timeout",
})  # fmt: skip
_UNRECORDED: Final = CREDENTIALS | {
    "set-cookie", "set-cookie2", "proxy-authorization", "proxy-authenticate", "authentication-info",
    "proxy-authentication-info",
}  # fmt: skip


class Key(NamedTuple):
    """An upstream's own key, and the header that carries it."""

    header: KeyHeader
    value: str

    def __repr__(self) -> str:
        return f"Key({self.header!r}, ...)"

    def item(self) -> tuple[str, str]:
        """The header."""
        return self.header, f"Bearer {self.value}" if self.header == "authorization" else self.value


def upward(
    headers: Headers, *, key: Key | None = None, strip: bool = False, identity: bool = False, sized: bool = False
) -> list[tuple[str, str]]:
    """What of a client's request headers goes up.

    ``key``: goes up in place of the client's credentials. ``strip``: the client's credentials are for us, and never go
    up. ``identity``: the answer is to be read, so that it must not be compressed. ``sized``: the body goes up as it
    comes, so that its length, if the client told one, goes with it. Doing it twice changes nothing.
    """
    dropped = HOP | (_OURS - {"content-length"} if sized else _OURS) | _named(headers)
    if strip or key is not None:
        dropped |= CREDENTIALS
    made = [(name, value) for name, value in headers if name not in dropped]
    if identity:
        made = [(name, "identity" if name == "accept-encoding" else value) for name, value in made]
    return made if key is None else [*made, key.item()]


_VERSION: Final = ("anthropic-version", "2023-06-01")
_ANTHROPIC: Final = "anthropic-"
_OPENAI: Final = "openai-"
"""How the names of headers begin that say something in one family of protocols only."""
_TELLING: Final = ("retry-after", "retry-after-ms", "x-should-retry")
_LIMITS: Final = ("x-ratelimit-", "anthropic-ratelimit-", "ratelimit")
"""Of response headers, those that tell a client how much it may ask, and when again."""


def turned(headers: Headers, protocol: str, header: KeyHeader) -> list[tuple[str, str]]:
    """A client's request headers, for a request in another protocol. ``header``: the one that carries the key there.

    What only another family of protocols knows is left out, and what all servers of this one want is put in."""
    key, foreign = "", _OPENAI if protocol == "messages" else _ANTHROPIC
    made: list[tuple[str, str]] = []
    for name, value in headers:
        if name == "x-api-key" or (name == "authorization" and value[:7].lower() == "bearer "):
            key = key or (value if name == "x-api-key" else value[7:])
        elif not name.startswith(foreign):
            made.append((name, value))
    if key:
        made.append(Key(header, key).item())
    wants = protocol == "messages" and all(name != _VERSION[0] for name, _ in made)
    return [*made, _VERSION] if wants else made


def limits(headers: Headers) -> list[tuple[str, str]]:
    """Of an upstream's response headers those that a client needs of a response that is made anew: how much it may ask,
    and when again."""
    return [(name, value) for name, value in headers if name in _TELLING or name.startswith(_LIMITS)]


def credentials(headers: Headers) -> list[tuple[str, str]]:
    """Of a client's request headers those that say who asks: what a probe on its behalf needs."""
    return [(name, value) for name, value in headers if name in CREDENTIALS]


def downward(headers: Headers) -> list[tuple[str, str]]:
    """What of an upstream's response headers goes to the client: all but those of the connection."""
    dropped = HOP | _named(headers)
    return [(name, value) for name, value in headers if name not in dropped]


def recorded(headers: Headers) -> dict[str, str]:
    """What of a client's request headers is recorded: those on a list, so that no credentials can be among them.
    Values of a name that comes more than once are joined with a comma."""
    made: dict[str, str] = {}
    for name, value in headers:
        if name in _RECORDED:
            made[name] = f"{made[name]}, {value}" if name in made else value
    return made


def recorded_response(headers: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """What of an upstream's response headers is recorded: all but cookies and what proves who somebody is."""
    return tuple((name, value) for name, value in headers if name not in _UNRECORDED)


def _named(headers: Headers) -> frozenset[str]:
    """The headers that ``connection`` names: of this connection only, too."""
    found = [value for name, value in headers if name == "connection"]
    return frozenset(part.strip().lower() for value in found for part in value.split(","))
