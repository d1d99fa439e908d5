"""Calls in the making: which call of its choice an entry of ``delta.tool_calls`` belongs to, and what it adds.

Our own entries have an index each, and the header first. Other servers leave the index out, or give every call the same
one; they send the id late, twice or never, the name late or with every fragment, and mix the entries of several calls.

    index known, and neither its id nor its name is another one   the call of that index
    index known, but with another id, or without id another name   a new call, which has the index from now on
    no index, but an id                                            the call of that id, or a new one
    no index, no id, but a name where the last call has one        a new call
    no index, no id                                                the last call
"""

from __future__ import annotations

from typing import Final

import msgspec

from stages.parse.writer import call_id
from stages.protocols.openai_chat.chunks import ToolCallDelta

_SPACE: Final = " \t\r\n"


class CallState(msgspec.Struct):
    """A call so far; "" where nothing came yet. ``arguments``: fragments, none of them empty."""

    id: str = ""
    type: str = "function"
    name: str = ""
    arguments: list[str] = []

    @property
    def text(self) -> str:
        """The arguments so far."""
        return "".join(self.arguments)

    def called(self, whole: bool) -> str:
        """The arguments in the end. ``whole``: the choice finished for its calls; of one without arguments servers
        send nothing, or white space."""
        text = self.text
        return f"{text}{{}}" if whole and not text.strip(_SPACE) else text


class Calls(msgspec.Struct):
    """The calls of one choice, in order of appearance. ``at``: index on the wire → place in ``made``; ``by_id``: id →
    place of the first call that has it."""

    made: list[CallState] = []
    at: dict[int, int] = {}
    by_id: dict[str, int] = {}

    def add(self, entry: ToolCallDelta) -> int:
        """Take an entry; returns the place of its call."""
        name = entry.function.name if entry.function else None
        place = self._place(entry.index, entry.id or "", name or "")
        call = self.made[place]
        if entry.id and not call.id:
            call.id = entry.id
            self.by_id.setdefault(entry.id, place)
        call.type = entry.type or call.type
        if entry.function:
            call.name = call.name or entry.function.name or ""
            if entry.function.arguments:
                call.arguments.append(entry.function.arguments)
        return place

    def _place(self, index: int, number: str, name: str) -> int:
        known = self.at.get(index) if index >= 0 else len(self.made) - 1
        if known is None or known < 0:
            return self._new(index)
        call = self.made[known]
        if number:
            other = number != call.id and (bool(call.id) or index < 0)
        else:
            other = bool(name and call.name) and (index < 0 or name != call.name)
        if not other:
            return known
        found = self.by_id.get(number)
        return self._new(index) if found is None else found

    def _new(self, index: int) -> int:
        self.made.append(CallState())
        if index >= 0:
            self.at[index] = len(self.made) - 1
        return len(self.made) - 1


def made_id(response: str, choice: int, place: int) -> str:
    """The id of a call that was sent without one: the same whenever the response is read again."""
    return call_id(response, choice, place)
