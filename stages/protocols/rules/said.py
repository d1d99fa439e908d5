"""Said: what a response says, in no protocol's terms, each piece with the block that carries it.

The rules that hold in every protocol read this; so do the ones that compare two bodies. Each protocol's room here has
two functions: one for its streams, one for its whole bodies. They are lenient: what has the wrong type is left out here
and reported by the rule about types.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from stages.protocols.rules.reading import Event

Kind: TypeAlias = Literal["content", "reasoning", "refusal", "arguments"]


class Delta(msgspec.Struct, gc=False):
    """One piece of text of a choice. ``call``: for arguments, the call's place among the choice's calls."""

    event: Event
    kind: Kind
    text: str
    call: int = -1


class SaidCall(msgspec.Struct):
    """One call. ``arguments``: its joined fragments (None: none was ever a string); ``event``: where it begins."""

    event: Event
    id: str | None
    name: str | None
    arguments: str | None = None


class SaidFinish(msgspec.Struct):
    """The end of a choice. ``reason``: the protocol's own word; ``kind``: the class of the mapping table: ``stop``,
    ``length``, ``calls``, ``filter``, ``refusal``, ``other``; ``stop``: the stop string, where the wire has one."""

    event: Event
    reason: str
    kind: str
    stop: str | int | None = None


class SaidUsage(msgspec.Struct):
    """Final token counts; None where the wire has none. ``raw``: the object itself. Prompt tokens include cached ones."""

    event: Event
    raw: dict[str, Any]
    prompt: int | None
    completion: int | None
    total: int | None = None
    cached: int | None = None
    reasoning: int | None = None


class SaidChoice(msgspec.Struct):
    """One choice, in the order in which it was sent. ``after``: pieces that came after its first finish."""

    index: int
    deltas: list[Delta] = []
    calls: list[SaidCall] = []
    finishes: list[SaidFinish] = []
    after: list[Event] = []

    def text(self, kind: Kind) -> str | None:
        """The joined text of a kind; None where there is no piece of it."""
        pieces = [delta.text for delta in self.deltas if delta.kind == kind]
        return "".join(pieces) if pieces else None


class Said(msgspec.Struct):
    """A whole response. ``usages``: every usage object in order, the last one counts; ``errors``: error events;
    ``terminals``: the protocol's end markers (``[DONE]``, a terminal response event, ``message_stop``)."""

    choices: dict[int, SaidChoice] = {}
    usages: list[SaidUsage] = []
    errors: list[Event] = []
    terminals: list[Event] = []

    def choice(self, index: int) -> SaidChoice:
        """The choice of this index, made where it is new."""
        found = self.choices.get(index)
        if found is None:
            found = self.choices[index] = SaidChoice(index)
        return found
