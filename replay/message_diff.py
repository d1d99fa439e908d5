"""Differences between two messages: what a client notices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from replay.text import first_difference, plain_excerpt, printable
from replay.verdict import MESSAGE_KINDS, Difference, MessageKind
from stages.events import Marker
from stages.message import Message, ToolCall
from stages.opening import TokenizerFacts

_TEXTS = ("reasoning", "content", "refusal", ".arguments")
"""Fields whose values are shown in quotes."""


def differences(
    recorded: Sequence[Message],
    replayed: Sequence[Message],
    events: Iterable[Any] = (),
    tokenizer: TokenizerFacts = TokenizerFacts(),
) -> tuple[Difference, ...]:
    """What the replayed messages say otherwise, choice by choice, most telling first.

    ``events``: the recorded semantic events; with the vocabulary they tell what is markup.
    """
    before = {message.choice: message for message in recorded}
    after = {message.choice: message for message in replayed}
    if before == after:
        return ()
    markers = {event.text.strip() for event in events if event.__class__ is Marker}
    markers.update(tokenizer.special, tokenizer.added)
    found: list[Difference] = []
    for choice in sorted({*before, *after}):
        one, other = before.get(choice, Message(choice)), after.get(choice, Message(choice))
        made = [*_calls(one, other), *_texts(one, other, markers), *_rest(one, other)]
        found += sorted(made, key=lambda item: MESSAGE_KINDS.index(item.kind))
    return tuple(found)


def in_words(item: Difference) -> str:
    """A difference on one line: the field and both sides."""
    return f"{item.field}: {_side(item, item.recorded)} → {_side(item, item.replayed)}"


def _side(item: Difference, text: str | None) -> str:
    if text is None:
        return "nothing"
    return repr(text) if item.field.endswith(_TEXTS) else printable(text)


def shortened(recorded: Sequence[Message], replayed: Sequence[Message]) -> list[Message]:
    """The replayed messages without what only came after the record of an open session stops: where a replayed text
    begins with the recorded one, it counts as equal."""
    before = {message.choice: message for message in recorded}
    return [_shortened(before[message.choice], message) for message in replayed if message.choice in before]


def _shortened(one: Message, other: Message) -> Message:
    if one.finish_reason is not None:
        return other

    def text(mine: str | None, theirs: str | None) -> str | None:
        return mine if mine is None or (theirs or "").startswith(mine) else theirs

    calls = list(other.tool_calls[: len(one.tool_calls)])
    if calls and len(calls) == len(one.tool_calls):
        mine, theirs = one.tool_calls[-1], calls[-1]
        if not mine.complete and theirs.arguments.startswith(mine.arguments):
            calls[-1] = msgspec.structs.replace(theirs, arguments=mine.arguments, complete=False)
    return Message(
        one.choice, text(one.reasoning, other.reasoning), text(one.content, other.content),
        text(one.refusal, other.refusal), tuple(calls), None, other.faults[: len(one.faults)],
    )  # fmt: skip


def _difference(choice: int, kind: MessageKind, field: str, one: str | None, other: str | None) -> Difference:
    at = first_difference(one or "", other or "")
    left, right = (None if text is None else plain_excerpt(text, at) for text in (one, other))
    return Difference(choice, kind, field, left, right)


def _calls(one: Message, other: Message) -> list[Difference]:
    mine, theirs = one.tool_calls, other.tool_calls
    if len(mine) != len(theirs):
        kind: MessageKind = "call_lost" if len(mine) > len(theirs) else "call_added"
        return [Difference(one.choice, kind, "tool_calls", _shown(mine), _shown(theirs))]
    found: list[Difference] = []
    for place, (a, b) in enumerate(zip(mine, theirs, strict=True)):
        pairs: tuple[tuple[MessageKind, str, str, str], ...] = (
            ("call_name", "name", a.name, b.name),
            ("call_arguments", "arguments", a.arguments, b.arguments),
            ("call_complete", "complete", str(a.complete).lower(), str(b.complete).lower()),
            ("call_id", "id", a.id, b.id),
        )
        found += [
            _difference(one.choice, kind, f"tool_calls[{place}].{field}", x, y) for kind, field, x, y in pairs if x != y
        ]
    return found


def _shown(calls: Sequence[ToolCall]) -> str | None:
    if not calls:
        return None
    shown = ", ".join(f"{plain_excerpt(call.name)} {plain_excerpt(call.arguments)}" for call in calls)
    return f"{len(calls)} call{'' if len(calls) == 1 else 's'}: {shown}"


def _texts(one: Message, other: Message, markers: set[str]) -> list[Difference]:
    found: list[Difference] = []
    moved = one.reasoning != other.reasoning and _whole(one) == _whole(other)
    fields = (
        ("reasoning", one.reasoning, other.reasoning),
        ("content", one.content, other.content),
        ("refusal", one.refusal, other.refusal),
    )
    for field, a, b in fields:
        if a != b:
            kind: MessageKind = "marker_leaked" if _leaks(a or "", b or "", markers) else "text"
            found.append(_difference(one.choice, "boundary" if moved and field != "refusal" else kind, field, a, b))
    return found


def _whole(message: Message) -> str:
    # White space at the border is trimmed on either side of it.
    return "".join(((message.reasoning or "") + (message.content or "")).split())


def _leaks(before: str, after: str, markers: set[str]) -> bool:
    return any(marker in after and marker not in before for marker in markers if len(marker) > 1)


def _rest(one: Message, other: Message) -> list[Difference]:
    found: list[Difference] = []
    if one.finish_reason != other.finish_reason:
        found.append(_difference(one.choice, "finish_reason", "finish_reason", one.finish_reason, other.finish_reason))
    if sorted(one.faults) != sorted(other.faults):
        found.append(
            Difference(one.choice, "fault", "faults", ", ".join(one.faults) or None, ", ".join(other.faults) or None)
        )
    return found
