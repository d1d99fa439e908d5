"""Writer: the items and parts of a response, one open at a time, and the events that show them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import count, repeat
from typing import Any, Final

import msgspec

from stages.events import CallArguments, CallStart, Content, Reasoning, Semantic
from stages.protocols.openai_chat import LogprobEntry, gather
from stages.protocols.openai_responses.chunks import (
    ArgumentsDelta,
    ArgumentsDone,
    ItemAdded,
    ItemDone,
    PartAdded,
    PartDone,
    ReasoningDelta,
    ReasoningDone,
    RefusalDelta,
    RefusalDone,
    StreamEvent,
    SummaryAdded,
    SummaryDelta,
    SummaryDone,
    SummaryTextDone,
    TextDelta,
    TextDone,
)
from stages.protocols.openai_responses.objects import Item
from stages.protocols.openai_responses.opened import OpenItem, PartKind

_PREFIXES: Final = {"message": "msg_", "reasoning": "rs_", "function_call": "fc_"}
_DELTAS: Final[dict[PartKind, Callable[..., StreamEvent]]] = {
    "output_text": TextDelta, "refusal": RefusalDelta, "reasoning_text": ReasoningDelta, "summary_text": SummaryDelta,
}  # fmt: skip
_DONES: Final[dict[PartKind, type[StreamEvent]]] = {
    "output_text": TextDone, "refusal": RefusalDone, "reasoning_text": ReasoningDone, "summary_text": SummaryTextDone,
}  # fmt: skip


class Written(msgspec.Struct, frozen=True):
    """What was written: plain data. ``number``: of the next event; ``broken``: what to say of the first call that is
    not complete."""

    number: int = 0
    output: tuple[Item, ...] = ()
    open: OpenItem | None = None
    broken: str | None = None


class Writer:
    """The machine's hand. ``stream``: events are wanted; else only the items are kept. ``broken``: as in Written."""

    def __init__(self, response: str, stream: bool, state: Written) -> None:
        self._response = response
        self._stream = stream
        self._number = state.number
        self.output = list(state.output)
        self.open = None if state.open is None else state.open.copied()
        self.broken = state.broken

    def snapshot(self) -> Written:
        """What was written so far."""
        return Written(self._number, tuple(self.output), None if self.open is None else self.open.copied(), self.broken)

    def send(self, out: list[Any], kind: Callable[..., StreamEvent], *fields: Any) -> None:
        """An event."""
        if self._stream:
            made: Any = kind(self._number, *fields)
            out.append(made)
            self._number += 1

    # --- texts

    def say(self, part: PartKind, text: str, out: list[Any], logprobs: tuple[LogprobEntry, ...] | None = None) -> None:
        """A piece of a text, in a part of this kind. ``logprobs``: of an answer's tokens."""
        item = self.open
        if item is None or item.part != part:
            item = self._opened(part, out)
        item.pieces.append(text)
        if logprobs:
            item.logprobs += logprobs
        more = () if logprobs is None else (logprobs,)
        self.send(out, _DELTAS[part], len(self.output), item.id, len(item.parts), text, *more)

    def _opened(self, part: PartKind, out: list[Any]) -> OpenItem:
        """An item with an open part of this kind, which the open one has not."""
        kind = "message" if part in ("output_text", "refusal") else "reasoning"
        item = self.open
        if item is not None and item.kind == kind:
            self._close_part(item, out)
        else:
            self.close(out)
            item = self._add(OpenItem(kind, self._id(kind)), out)
        item.part = part
        added = SummaryAdded if part == "summary_text" else PartAdded
        self.send(out, added, len(self.output), item.id, len(item.parts), item.made("", ()))
        return item

    def run(self, like: Semantic, rest: Iterator[Semantic], out: list[Any], ends: list[int]) -> Semantic | None:
        """Write what goes on as this text did, which was written just now; returns the first other event. See
        ``openai_chat.gather``; nobody wants logprobs."""
        item = self.open
        texts: list[str] = []
        if item is None or not self._stream or not isinstance(like, Content | Reasoning | CallArguments):
            return None
        if isinstance(like, CallArguments) and not item.takes(like):
            return None
        try:
            return gather(like, rest, texts, ends, len(out))
        finally:
            out += self._deltas(item, texts)

    def _deltas(self, item: OpenItem, texts: list[str]) -> Iterable[Any]:
        numbers, place, number = count(self._number), repeat(len(self.output)), repeat(item.id)
        item.pieces += texts
        self._number += len(texts)
        if item.part is None:
            return map(ArgumentsDelta, numbers, place, number, texts)
        return map(_DELTAS[item.part], numbers, place, number, repeat(len(item.parts)), texts)

    # --- calls

    def call(self, event: CallStart, out: list[Any]) -> None:
        """A call begins."""
        self.close(out)
        kind = "function_call"
        self._add(OpenItem(kind, self._id(kind), event.index, event.id, event.name), out)

    def argue(self, item: OpenItem, text: str, out: list[Any]) -> None:
        """A piece of the open call's arguments."""
        item.pieces.append(text)
        self.send(out, ArgumentsDelta, len(self.output), item.id, text)

    def end_call(self, item: OpenItem, complete: bool, out: list[Any]) -> None:
        """The open call has all its arguments."""
        if item.ended:
            return
        item.ended = True
        if not complete and self.broken is None:
            self.broken = f"The model's call of {item.name!r} is not complete."
        self.send(out, ArgumentsDone, len(self.output), item.id, item.text)

    # --- items

    def close(self, out: list[Any], status: str = "completed") -> None:
        """The open item is done, and with it its part, or the arguments that nobody ended."""
        item = self.open
        if item is None:
            return
        self._close_part(item, out)
        if item.kind == "function_call":
            self.end_call(item, False, out)
        done = item.item(status)
        self.send(out, ItemDone, len(self.output), done)
        self.output.append(done)
        self.open = None

    def _id(self, kind: str) -> str:
        # Made of the response's id: it leads back to the response (a stored item is referred to by it), and whoever has
        # the stream can write it again.
        return f"{_PREFIXES[kind]}{self._response.removeprefix('resp_')}o{len(self.output)}"

    def _add(self, item: OpenItem, out: list[Any]) -> OpenItem:
        self.open = item
        self.send(out, ItemAdded, len(self.output), item.item("in_progress"))
        return item

    def _close_part(self, item: OpenItem, out: list[Any]) -> None:
        part = item.part
        if part is None:
            return
        place = (len(self.output), item.id, len(item.parts))
        text = item.text
        made = item.close()
        more = (made.logprobs,) if part == "output_text" else ()
        self.send(out, _DONES[part], *place, text, *more)
        self.send(out, SummaryDone if part == "summary_text" else PartDone, *place, made)
