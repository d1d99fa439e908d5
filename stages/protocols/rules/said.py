"""Said: what a response says, in no protocol's terms, each piece with the block that carries it.

The rules that hold in every protocol read this; so do the ones that compare two bodies. Each protocol's room here has
two functions: one for its streams, one for its whole bodies. They are lenient: what has the wrong type is left out
here and reported by the rule about types. A whole body has no blocks: all its pieces carry one event of number 0.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from stages.protocols.rules.reading import Event

Kind: TypeAlias = Literal["content", "reasoning", "refusal", "arguments"]
FinishKind: TypeAlias = Literal["stop", "length", "calls", "filter", "refusal", "other"]


class Delta(msgspec.Struct, gc=False):
    """One piece of text of a choice, never empty. ``call``: of arguments, the place of the call in the choice."""

    event: Event
    kind: Kind
    text: str
    call: int = -1


class SaidCall(msgspec.Struct):
    """One call, as it began. ``id``, ``name``: None where they are absent or no strings; ``arguments``: its joined
    fragments, the empty ones too (None: none was ever a string; where the protocol has an empty text stand for ``{}``,
    and the call was closed, it is ``{}``); ``free``: they are free text, no JSON (a custom tool's input); ``event``:
    where it begins."""

    event: Event
    id: str | None
    name: str | None
    arguments: str | None = None
    free: bool = False


class SaidFinish(msgspec.Struct):
    """The end of a choice. ``reason``: the protocol's own word; ``kind``: the class of the mapping table (``calls``
    where that word itself says that there are calls, ``other`` where the protocol does not have it); ``stop``: the
    stop string or token, where the wire has one."""

    event: Event
    reason: str
    kind: FinishKind
    stop: str | int | None = None


class SaidUsage(msgspec.Struct):
    """Token counts; None where the wire has none, or no int. ``raw``: the object itself. Prompt tokens include cached
    ones. ``final``: a count of the whole response, no running one."""

    event: Event
    raw: dict[str, Any]
    prompt: int | None
    completion: int | None
    total: int | None = None
    cached: int | None = None
    reasoning: int | None = None
    final: bool = True


class SaidChoice(msgspec.Struct):
    """One choice, in the order in which it was sent. ``calls``: in the order in which they began; ``after``: blocks
    that bring it text, calls or logprob entries after its first finish; ``tokens``: blocks that bring it logprob
    entries or token ids."""

    index: int
    deltas: list[Delta] = []
    calls: list[SaidCall] = []
    finishes: list[SaidFinish] = []
    after: list[Event] = []
    tokens: list[Event] = []

    def text(self, kind: Kind) -> str | None:
        """The joined text of a kind; None where there is no piece of it."""
        pieces = [delta.text for delta in self.deltas if delta.kind == kind]
        return "".join(pieces) if pieces else None

    @property
    def finish(self) -> SaidFinish | None:
        """The finish that counts: the first one."""
        return self.finishes[0] if self.finishes else None


class Said(msgspec.Struct):
    """A whole response.

    ``choices``: one for each choice that is there, silent or not; ``usages``: usage objects in order, running ones
    too, but none beside an error; ``errors``: error events; ``terminals``: the protocol's end markers (``[DONE]``, a
    terminal response event, ``message_stop``; in responses and messages an error event, too); ``empty``: blocks whose
    delta is empty and that the protocol has no use for.

    What follows the first end marker is nobody's, and another rule tells: but for further markers, nothing of it is
    here.
    """

    choices: dict[int, SaidChoice] = {}
    usages: list[SaidUsage] = []
    errors: list[Event] = []
    terminals: list[Event] = []
    empty: list[Event] = []

    def choice(self, index: int) -> SaidChoice:
        """The choice of this index, made where it is new."""
        found = self.choices.get(index)
        if found is None:
            found = self.choices[index] = SaidChoice(index)
        return found

    @property
    def usage(self) -> SaidUsage | None:
        """The last final usage."""
        return next((usage for usage in reversed(self.usages) if usage.final), None)
