"""counting: which part of what a session's two sides emit was compared, so that nothing else is marked as different."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from replay.result import SessionResult
from replay.verdict import Difference

_CALL: Final = re.compile(r"tool_calls\[([0-9]{1,9})\]\.(name|id|arguments|complete)")
_PARTS: Final = {"name": "call", "id": "call", "arguments": "arguments", "complete": "call end"}
_WHOLE: Final = {"finish_reason": ("finish",), "faults": ("fault",), "tool_calls": ("call", "arguments", "call end")}
_TEXTS: Final = frozenset(("reasoning", "content", "refusal"))
_ANY: Final = ""
"""Every kind of event."""
_EACH: Final = -1
"""Every call; what is of no call has this number, too."""


class Counting(msgspec.Struct, frozen=True):
    """``parts``: choice, kind of event, and number of the call."""

    parts: frozenset[tuple[int, str, int]]

    def counts(self, choice: int, kind: str, index: int) -> bool:
        """What an event of this kind says is compared."""
        return (
            (choice, kind, index) in self.parts or (choice, kind, _EACH) in self.parts
            or (choice, _ANY, _EACH) in self.parts
        )  # fmt: skip


def counting(result: SessionResult) -> Counting | None:
    """What counts of a session; None: all of it. Where only messages were compared, or a rule leaves differences out,
    that is what the message has otherwise."""
    if result.verdict != "changed" or not result.layers or {"semantic", "timing"} & result.layers.keys():
        return None
    return Counting(frozenset(part for item in result.differences for part in _parts(item)))


def _parts(item: Difference) -> list[tuple[int, str, int]]:
    found = _CALL.fullmatch(item.field)
    if found is not None:
        return [(item.choice, _PARTS[found[2]], int(found[1]))]
    if item.field in _TEXTS:
        return [(item.choice, item.field, _EACH)]
    # A user's comparer may call a field as it likes.
    return [(item.choice, kind, _EACH) for kind in _WHOLE.get(item.field, (_ANY,))]
