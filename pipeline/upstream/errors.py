"""What can go wrong with an upstream, as its clients hear of it."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from stages.events import ErrorInput, FailureKind

FaultCode: TypeAlias = Literal[
    "upstream_refused", "upstream_connect_timeout", "upstream_first_token_timeout", "upstream_token_timeout",
    "upstream_cut", "upstream_protocol",
]  # fmt: skip
"""``refused``: no connection: nobody listens, no such host, no trust (TLS). ``connect_timeout``: none in time, TLS and
the wait for a free one included. ``first_token_timeout``, ``token_timeout``: silence. ``cut``: the connection ended
before the response did. ``protocol``: what came is no HTTP."""

_KINDS: Final[dict[FaultCode, FailureKind]] = {
    "upstream_refused": "overloaded",
    "upstream_connect_timeout": "timeout",
    "upstream_first_token_timeout": "timeout",
    "upstream_token_timeout": "timeout",
    "upstream_cut": "engine",
    "upstream_protocol": "engine",
}


class UpstreamFault(Exception):
    """An upstream did not answer, or not to the end. ``message`` is for clients: it names the upstream and what
    happened, never a URL, a header or a key.

    ``away``: the upstream itself seems to be away, so that another one may be asked, or the same one a little later.
    """

    def __init__(self, code: FaultCode, message: str, *, away: bool = False) -> None:
        super().__init__(message)
        self.code: FaultCode = code
        self.kind: FailureKind = _KINDS[code]
        self.message = message
        self.away = away

    def input(self) -> ErrorInput:
        """The fault as a session's last input."""
        return ErrorInput(self.kind, self.message, self.code)
