"""Message: what one choice says in the end, collected from its semantic events. There is no second, one-shot parse."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

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
    __slots__ = ("calls", "faults", "reason", "texts")

    def __init__(self) -> None:
        self.texts: dict[type, list[str]] = {Reasoning: [], Content: [], Refusal: []}
        self.calls: dict[int, _Call] = {}
        self.faults: list[str] = []
        self.reason: FinishReason | None = None

    def take(self, event: Any) -> None:
        kind = event.__class__
        if kind in self.texts:
            self.texts[kind].append(event.text)
        elif kind is CallStart:
            self.calls.setdefault(event.index, _Call(event.id, event.name))
        elif kind is CallArguments or kind is CallEnd:
            self.call(event)
        elif kind is Fault:
            self.faults.append(str(event.code))
        elif kind is Finish:
            self.reason = event.reason

    def call(self, event: Any) -> None:
        call = self.calls.get(event.index)
        if call is None:
            return
        if event.__class__ is CallArguments:
            call.arguments.append(event.text)
        else:
            call.complete = event.complete

    def message(self, choice: int) -> Message:
        texts = {kind: "".join(pieces) or None for kind, pieces in self.texts.items()}
        calls = tuple(
            ToolCall(call.id, call.name, "".join(call.arguments), call.complete) for call in self.calls.values()
        )
        return Message(
            choice, texts[Reasoning], texts[Content], texts[Refusal], calls, finish_reason(self.reason, calls),
            tuple(self.faults),
        )  # fmt: skip


_TAKEN = frozenset((Start, Reasoning, Content, Refusal, CallStart, CallArguments, CallEnd, Fault, Finish))


def collect(events: Iterable[Any]) -> list[Message]:
    """The messages of a session, in choice order, from its semantic events. Total: what is no semantic event is
    passed over, and so is what belongs to a call that has not begun."""
    choices: dict[int, _Choice] = {}
    for event in events:
        if event.__class__ in _TAKEN:
            choice = choices.get(event.choice)
            if choice is None:
                choice = choices[event.choice] = _Choice()
            choice.take(event)
    return [choices[number].message(number) for number in sorted(choices)]


def finish_reason(reason: FinishReason | None, calls: tuple[ToolCall, ...]) -> str | None:
    """The chat protocol's finish reason: ``tool_calls`` where a choice ends by itself, or by a stop string, with
    calls that are all complete."""
    match reason:
        case None:
            return None
        case "length" | "context":
            return "length"
        case "filter":
            return "content_filter"
        case "eos" | "stop" | "stop_token":
            return "tool_calls" if calls and all(call.complete for call in calls) else "stop"
