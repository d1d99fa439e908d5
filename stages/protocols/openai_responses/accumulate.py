"""Accumulator: a stream's events → the response, at any point of it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Final

import msgspec
from msgspec import UNSET

from stages.events import CommonChunk, ErrorChunk
from stages.protocols.lenient import as_object, as_text
from stages.protocols.openai_chat import LogprobEntry
from stages.protocols.openai_responses.chunks import (
    OTHER_CODE,
    ArgumentsDelta,
    ArgumentsDone,
    Chunk,
    ErrorEvent,
    ItemAdded,
    ItemDone,
    LifecycleEvent,
    PartAdded,
    PartDone,
    PartEvent,
    ReasoningDelta,
    ReasoningDone,
    RefusalDelta,
    RefusalDone,
    ResponseBody,
    SummaryAdded,
    SummaryDelta,
    SummaryDone,
    SummaryEvent,
    SummaryTextDone,
    TextDelta,
    TextDone,
)
from stages.protocols.openai_responses.objects import (
    FunctionCallItem,
    Item,
    MessageItem,
    OutputText,
    Part,
    ReasoningItem,
    ReasoningText,
    RefusalPart,
    Response,
    ResponseError,
    SummaryText,
)

_KINDS: Final[dict[type, Callable[..., OutputText | RefusalPart | ReasoningText | SummaryText]]] = {
    TextDone: OutputText, RefusalDelta: RefusalPart, RefusalDone: RefusalPart, ReasoningDelta: ReasoningText,
    ReasoningDone: ReasoningText, SummaryDelta: SummaryText, SummaryTextDone: SummaryText,
}  # fmt: skip
"""Events of texts: the part that they are about."""


class PartState(msgspec.Struct):
    """A part so far. ``done``: all of it, once that is told."""

    kind: Part
    pieces: list[str] = []
    logprobs: list[LogprobEntry] = []
    done: Part | None = None

    def made(self) -> Part:
        """The part."""
        if self.done is not None:
            return self.done
        text = "".join(self.pieces)
        if isinstance(self.kind, OutputText):
            return OutputText(text, (), tuple(self.logprobs))
        return RefusalPart(text) if isinstance(self.kind, RefusalPart) else type(self.kind)(text)


class ItemState(msgspec.Struct):
    """An item so far. ``parts``, ``summary``: by their index; ``pieces``: of the arguments; ``done``: all of it, once
    that is told."""

    item: Item
    parts: dict[int, PartState] = {}
    summary: dict[int, PartState] = {}
    pieces: list[str] = []
    done: bool = False

    def made(self) -> Item:
        """The item."""
        item = self.item
        if self.done:
            return item
        parts = [self.parts[place].made() for place in sorted(self.parts)]
        if isinstance(item, FunctionCallItem):
            return msgspec.structs.replace(item, arguments=item.arguments + "".join(self.pieces))
        if isinstance(item, MessageItem):
            texts = tuple(part for part in parts if isinstance(part, OutputText | RefusalPart))
            return msgspec.structs.replace(item, content=item.content + texts)
        thoughts = tuple(part for part in parts if isinstance(part, ReasoningText))
        told = [self.summary[place].made() for place in sorted(self.summary)]
        summary = tuple(part for part in told if isinstance(part, SummaryText))
        return msgspec.structs.replace(
            item, summary=item.summary + summary, content=(*(item.content or ()), *thoughts) or UNSET
        )


class AccumulatorState(msgspec.Struct):
    """All that an Accumulator knows; plain data. ``items``: by output index; ``over``: the terminal event came."""

    response: Response | None = None
    items: dict[int, ItemState] = {}
    over: bool = False


class Accumulator:
    """Collects events, our own or another server's, and raises on none: a delta of an item or a part that was not added
    adds it where its kind tells what it is; what is done counts more than its deltas, the response of the terminal
    event more than all."""

    def __init__(self, state: AccumulatorState | None = None) -> None:
        self._state = AccumulatorState() if state is None else copy.deepcopy(state)

    def state(self) -> AccumulatorState:
        """A copy of what was collected so far, to continue from."""
        return copy.deepcopy(self._state)

    @property
    def over(self) -> bool:
        """The terminal event came; nothing that follows it counts."""
        return self._state.over

    def take(self, chunk: Chunk | CommonChunk) -> None:
        """Take what comes next."""
        state = self._state
        if state.over:
            return
        if isinstance(chunk, LifecycleEvent | ResponseBody):
            state.response = chunk.response
            state.over = chunk.response.status not in ("queued", "in_progress", None)
        elif isinstance(chunk, ErrorEvent):
            self._fail(chunk.message)
        elif isinstance(chunk, ErrorChunk):
            self._fail(as_text(as_object(chunk.body.get("error")).get("message")) or "")
        elif isinstance(chunk, ItemAdded | ItemDone):
            self._item(chunk)
        elif isinstance(chunk, ArgumentsDelta | ArgumentsDone):
            self._argument(chunk)
        else:
            self._part(chunk)

    def response(self) -> Response | None:
        """The response so far; None where no event showed one."""
        state = self._state
        if state.response is None or (state.over and state.response.output):
            return state.response
        output = tuple(state.items[place].made() for place in sorted(state.items))
        if state.over:
            # Of what did not end, a response that is over has nothing.
            output = tuple(state.items[place].item for place in sorted(state.items) if state.items[place].done)
        return msgspec.structs.replace(state.response, output=output)

    def _fail(self, message: str) -> None:
        state = self._state
        state.over = True
        if state.response is not None:
            error = ResponseError(OTHER_CODE, message)
            state.response = msgspec.structs.replace(state.response, status="failed", error=error)

    # --- items

    def _item(self, event: ItemAdded | ItemDone) -> None:
        self._state.items[event.output_index] = ItemState(event.item, done=isinstance(event, ItemDone))

    def _argument(self, event: ArgumentsDelta | ArgumentsDone) -> None:
        held = self._state.items.get(event.output_index)
        if held is not None and not held.done:
            if isinstance(event, ArgumentsDelta):
                held.pieces.append(event.delta)
            else:
                held.pieces[:] = [event.arguments]

    # --- parts

    def _part(self, event: Chunk | CommonChunk) -> None:
        match event:
            case PartAdded() | SummaryAdded():
                self._at(event, event.part)
            case PartDone() | SummaryDone():
                self._at(event, event.part).done = event.part
            case TextDelta():
                held = self._at(event, OutputText())
                held.pieces.append(event.delta)
                held.logprobs += event.logprobs
            case RefusalDelta() | ReasoningDelta() | SummaryDelta():
                self._at(event, _KINDS[type(event)]()).pieces.append(event.delta)
            case TextDone() | RefusalDone() | ReasoningDone() | SummaryTextDone():
                self._done(event)
            case _:
                pass

    def _done(self, event: TextDone | RefusalDone | ReasoningDone | SummaryTextDone) -> None:
        text = event.refusal if isinstance(event, RefusalDone) else event.text
        held = self._at(event, _KINDS[type(event)]())
        if isinstance(event, TextDone):
            held.done = OutputText(text, (), event.logprobs or tuple(held.logprobs))
        else:
            held.done = _KINDS[type(event)](text)

    def _at(self, event: PartEvent | SummaryEvent, kind: Part) -> PartState:
        """The part that an event is about; one that nobody added is of this kind."""
        held = self._state.items.get(event.output_index)
        if held is None:
            inside = isinstance(kind, OutputText | RefusalPart)
            item = MessageItem(event.item_id) if inside else ReasoningItem(event.item_id)
            held = self._state.items[event.output_index] = ItemState(item)
        if isinstance(event, SummaryEvent):
            return held.summary.setdefault(event.summary_index, PartState(kind))
        return held.parts.setdefault(event.content_index, PartState(kind))
