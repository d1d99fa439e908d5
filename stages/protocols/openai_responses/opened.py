"""OpenItem: an output item in the making. Its text is a list of pieces, joined once."""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET

from stages.events import CallArguments, CallEnd
from stages.protocols.openai_chat import LogprobEntry
from stages.protocols.openai_responses.objects import (
    FunctionCallItem,
    Item,
    MessageItem,
    OutputText,
    Part,
    ReasoningItem,
    ReasoningText,
    RefusalPart,
    SummaryText,
)

PartKind: TypeAlias = Literal["output_text", "refusal", "reasoning_text", "summary_text"]

_PARTS: Final[dict[PartKind, type[RefusalPart] | type[ReasoningText] | type[SummaryText]]] = {
    "refusal": RefusalPart, "reasoning_text": ReasoningText, "summary_text": SummaryText,
}  # fmt: skip


class OpenItem(msgspec.Struct):
    """``kind``: its type; ``call``: a call's index in the semantic layer; ``parts``: those that are done; ``part``: the
    kind of the open one; ``pieces``, ``logprobs``: of the open part, or of a call's arguments; ``ended``: nothing is
    added to the arguments any more."""

    kind: str
    id: str
    call: int = -1
    call_id: str = ""
    name: str = ""
    parts: list[Part] = []
    part: PartKind | None = None
    pieces: list[str] = []
    logprobs: list[LogprobEntry] = []
    ended: bool = False

    @property
    def text(self) -> str:
        """The text of the open part, or the arguments."""
        return "".join(self.pieces)

    def copied(self) -> OpenItem:
        """A copy that shares nothing which changes."""
        return msgspec.structs.replace(
            self, parts=list(self.parts), pieces=list(self.pieces), logprobs=list(self.logprobs)
        )

    def takes(self, event: CallArguments | CallEnd) -> bool:
        """It is the call that the event is about."""
        return self.kind == "function_call" and not self.ended and self.call == event.index

    def made(self, text: str, logprobs: tuple[LogprobEntry, ...]) -> Part:
        """A part of the open part's kind."""
        if self.part is None or self.part == "output_text":
            return OutputText(text, (), logprobs)
        return _PARTS[self.part](text)

    def close(self) -> Any:
        """The open part is done; returns it."""
        done = self.made(self.text, tuple(self.logprobs))
        self.parts.append(done)
        self.part, self.pieces, self.logprobs = None, [], []
        return done

    def item(self, status: str) -> Item:
        """What it is so far, but for an open part."""
        parts: Any = tuple(self.parts)
        if self.kind == "function_call":
            return FunctionCallItem(self.id, self.call_id, self.name, self.text, status)
        if self.kind == "message":
            return MessageItem(self.id, status, "assistant", parts)
        if parts and isinstance(parts[0], SummaryText):
            return ReasoningItem(self.id, parts, status)
        return ReasoningItem(self.id, (), status, parts or UNSET)
