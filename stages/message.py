"""Message: what one choice says in the end, collected from its semantic events. There is no second, one-shot parse."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Final

import msgspec

from stages.events import (
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    Fault,
    Finish,
    FinishReason,
    Reasoning,
    Refusal,
    Start,
)


class ToolCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """One call. ``arguments``: the JSON text as delivered, a prefix of it where ``complete`` is false."""

    id: str
    name: str
    arguments: str
    complete: bool = True


class Message(msgspec.Struct, frozen=True, omit_defaults=False):
    """One choice. None: nothing of this kind was written. ``finish_reason`` in the chat protocol's words; None: the
    choice did not finish. ``faults``: codes in order of appearance."""

    choice: int
    reasoning: str | None = None
    content: str | None = None
    refusal: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str | None = None
    faults: tuple[str, ...] = ()


class _Call:
    __slots__ = ("arguments", "complete", "id", "name")

    def __init__(self, id: str, name: str) -> None:
        self.id = id
        self.name = name
        self.arguments: list[str] = []
        self.complete = False


class _Choice:
    """Lists of pieces, joined once."""

    __slots__ = ("calls", "faults", "reason", "texts")

    def __init__(self) -> None:
        self.texts: dict[type, list[str]] = {Reasoning: [], Content: [], Refusal: []}
        self.calls: dict[int, _Call] = {}
        self.faults: list[str] = []
        self.reason: FinishReason | None = None

    def message(self, choice: int, named: bool) -> Message:
        texts = {kind: "".join(pieces) or None for kind, pieces in self.texts.items()}
        calls = tuple(
            ToolCall(call.id, call.name, "".join(call.arguments), call.complete) for call in self.calls.values()
        )
        reason = None
        if self.reason is not None:
            reason = finish_reason(self.reason, bool(calls) and all(call.complete for call in calls) and not named)
        return Message(choice, texts[Reasoning], texts[Content], texts[Refusal], calls, reason, tuple(self.faults))


_TEXTS: Final = frozenset((Reasoning, Content, Refusal))


class Collector:
    """The messages of a session, from its semantic events, an event at a time.

    Total: what is no semantic event is passed over, and so is what belongs to a call that has not begun. ``limit``:
    characters kept over all choices; what comes after them is left out. ``named``: the request named a function.
    """

    __slots__ = ("_choices", "_left", "_named")

    def __init__(self, limit: int | None = None, *, named: bool = False) -> None:
        self._choices: dict[int, _Choice] = {}
        self._left = limit
        self._named = named

    def take(self, event: Any) -> None:
        """The next event."""
        take = self._takes.get(event.__class__)
        if take is not None:
            choice = self._choices.get(event.choice)
            if choice is None:
                choice = self._choices[event.choice] = _Choice()
            take(self, choice, event)

    def take_all(self, events: Iterable[Any]) -> None:
        """The next events."""
        takes, take = self._takes, self.take
        # Runs of one kind of text of one choice are most of a session.
        kind: Any = None
        number = index = None
        pieces: list[str] = []
        for event in events:
            of = event.__class__
            if of is kind and event.choice == number and (of is not CallArguments or event.index == index):
                pieces.append(event.text)
            elif of in takes:
                take(event)
                kind = None
                if of in _TEXTS and self._left is None:
                    kind, number = of, event.choice
                    pieces = self._choices[number].texts[of]
                elif of is CallArguments and self._left is None:
                    number, index = event.choice, event.index
                    call = self._choices[number].calls.get(index)
                    if call is not None:
                        kind, pieces = of, call.arguments

    def messages(self) -> list[Message]:
        """What the choices say so far, in choice order."""
        return [self._choices[number].message(number, self._named) for number in sorted(self._choices)]

    def _keep(self, pieces: list[str], text: str) -> None:
        if self._left is None:
            pieces.append(text)
        elif self._left > 0:
            pieces.append(text[: self._left])
            self._left -= len(text)

    def _start(self, choice: _Choice, event: Start) -> None:
        """It is there, whether it says anything or not."""

    def _text(self, choice: _Choice, event: Reasoning | Content | Refusal) -> None:
        self._keep(choice.texts[event.__class__], event.text)

    def _call_start(self, choice: _Choice, event: CallStart) -> None:
        choice.calls.setdefault(event.index, _Call(event.id, event.name))

    def _call_arguments(self, choice: _Choice, event: CallArguments) -> None:
        call = choice.calls.get(event.index)
        if call is not None:
            self._keep(call.arguments, event.text)

    def _call_end(self, choice: _Choice, event: CallEnd) -> None:
        call = choice.calls.get(event.index)
        if call is not None:
            call.complete = event.complete

    def _fault(self, choice: _Choice, event: Fault) -> None:
        choice.faults.append(str(event.code))

    def _finish(self, choice: _Choice, event: Finish) -> None:
        choice.reason = event.reason

    _takes: ClassVar[dict[type, Callable[[Collector, _Choice, Any], None]]] = {
        Start: _start,
        Reasoning: _text,
        Content: _text,
        Refusal: _text,
        CallStart: _call_start,
        CallArguments: _call_arguments,
        CallEnd: _call_end,
        Fault: _fault,
        Finish: _finish,
    }


def collect(events: Iterable[Any], *, named: bool = False) -> list[Message]:
    """The messages of a session, in choice order, from its semantic events; see Collector."""
    collector = Collector(named=named)
    collector.take_all(events)
    return collector.messages()


def finish_reason(reason: FinishReason, calls: bool) -> str:
    """The chat protocol's finish reason. ``calls``: there are some, all complete, and no function was named; then a
    choice that ends by itself, or by a stop string, ends for them."""
    if reason in ("length", "context"):
        return "length"
    if reason == "filter":
        return "content_filter"
    return "tool_calls" if calls else "stop"
