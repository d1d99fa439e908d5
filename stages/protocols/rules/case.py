"""Case: evidence, read once for all rules."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import msgspec

from stages.protocols.rules.asked import Asked
from stages.protocols.rules.asked import read as read_request
from stages.protocols.rules.evidence import Evidence, Protocol
from stages.protocols.rules.reading import Event, Reading
from stages.protocols.rules.rule import Finding, Severity
from stages.protocols.rules.said import Said
from stages.protocols.rules.said_chat import of_stream as _chat
from stages.protocols.rules.said_chat import of_whole as _chat_whole
from stages.protocols.rules.said_completions import of_stream as _completions
from stages.protocols.rules.said_completions import of_whole as _completions_whole
from stages.protocols.rules.said_messages import of_stream as _messages
from stages.protocols.rules.said_messages import of_whole as _messages_whole
from stages.protocols.rules.said_responses import of_stream as _responses
from stages.protocols.rules.said_responses import of_whole as _responses_whole
from stages.strict import parse

_SHOWN = 200
_encode = msgspec.json.Encoder().encode
_STREAM = {"chat": _chat, "completions": _completions, "responses": _responses, "messages": _messages}
_WHOLE = {
    "chat": _chat_whole, "completions": _completions_whole, "responses": _responses_whole, "messages": _messages_whole,
}  # fmt: skip


def said_in(protocol: Protocol, reading: Reading) -> Said:
    """What a stream of a protocol says."""
    return _STREAM[protocol](reading)


def said_whole(protocol: Protocol, body: dict[str, Any]) -> Said:
    """What a whole body of a protocol says."""
    return _WHOLE[protocol](body)


class Case:
    """What checks are given. Everything is made on first use and kept."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.own = evidence.own

    @cached_property
    def request(self) -> dict[str, Any]:
        """The request, for rules that need it."""
        return self.evidence.request or {}

    @cached_property
    def asked(self) -> Asked:
        """The request, read, for rules that need it. Without one: what an empty request asks for."""
        return read_request(self.request, self.evidence.protocol)

    @cached_property
    def reading(self) -> Reading:
        """The body's blocks."""
        return Reading(self.evidence.body, self.evidence.first)

    @cached_property
    def said(self) -> Said:
        """What the body says."""
        return said_in(self.evidence.protocol, self.reading)

    def unfinished(self, index: int) -> bool:
        """A choice has a call that is not complete, as far as it is known what was meant, or whose arguments are no
        JSON object."""
        meant = next((one for one in self.evidence.meant or () if one.choice == index), None)
        if meant is not None:
            return not all(call.complete and _object(call.arguments) for call in meant.tool_calls)
        said = self.said.choices.get(index)
        calls = [] if said is None else [call for call in said.calls if not call.free]
        return not all(_object(call.arguments) for call in calls)

    @cached_property
    def failed(self) -> bool:
        """The stream has an error event."""
        return bool(self.said.errors)

    @cached_property
    def ended(self) -> bool:
        """Nobody said that the body was cut off, so that what its end lacks was never sent."""
        return self.evidence.marked not in ("truncated", "client_closed")


def _object(arguments: str | None) -> bool:
    return isinstance(parse(arguments or "{}")[0], dict)


def shown(value: object) -> str:
    """A value as it is shown in ``seen``: compact JSON in one line, cut to 200 characters."""
    if isinstance(value, str):
        value = value[: _SHOWN + 1]
    try:
        text = _encode(value).decode()
    except (TypeError, ValueError, RecursionError):
        text = repr(value) if isinstance(value, str | float) else type(value).__name__
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def at(event: Event, seen: str, want: str | None = None, severity: Severity | None = None) -> Finding:
    """A finding at a block."""
    return Finding(event.number, event.byte, seen, want, severity)


def nowhere(seen: str, want: str | None = None) -> Finding:
    """A finding about the response as a whole."""
    return Finding(-1, 0, seen, want)
