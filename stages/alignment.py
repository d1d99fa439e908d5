"""Alignment: for each generated token, what its bytes became.

Tokens and kinds of text do not share borders: a token may end one kind and begin the next, and a character may be
spread over several tokens. Both count the bytes that the choice wrote, so the ``src`` ranges of the semantic events
tell the parts of each token.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal, TypeAlias

import msgspec

from stages.events import (
    CallArguments,
    CallStart,
    Content,
    Dropped,
    Fault,
    Input,
    Marker,
    Reasoning,
    Refusal,
    Src,
    TokensInput,
)

Kind: TypeAlias = Literal["reasoning", "content", "refusal", "name", "arguments", "marker", "dropped", "fault"]

_KINDS: Final[dict[type, Kind]] = {
    Reasoning: "reasoning", Content: "content", Refusal: "refusal", CallStart: "name", CallArguments: "arguments",
    Marker: "marker", Dropped: "dropped", Fault: "fault",
}  # fmt: skip


class Part(msgspec.Struct, frozen=True, gc=False):
    """A run of a token's bytes that became one kind of text. ``src``: where in what the choice wrote; ``call``: for a
    name and for arguments, the call; else -1."""

    kind: Kind
    src: Src
    call: int = -1


class Aligned(msgspec.Struct, frozen=True, gc=False):
    """A token. ``src``: its bytes; ``parts``: what they became, in order; none where nothing owns them, as at the end
    of a session that broke off."""

    id: int
    src: Src
    parts: tuple[Part, ...]


def align(tokens: Iterable[tuple[int, int]], events: Iterable[Any]) -> list[Aligned]:
    """The tokens of one choice, given as (id, number of bytes), over that choice's semantic events."""
    owners = _owners(events)
    aligned: list[Aligned] = []
    start = at = 0
    for number, size in tokens:
        end = start + size
        # Owners that end here have no more to say; the last one may go on in the next token.
        while at < len(owners) and owners[at].src[1] <= start:
            at += 1
        parts: list[Part] = []
        place = at
        # A token without bytes became nothing, also in the middle of a text.
        while start < end and place < len(owners) and owners[place].src[0] < end:
            parts.append(_clipped(owners[place], start, end))
            place += 1
        aligned.append(Aligned(number, (start, end), _merged(parts)))
        start = end
    return aligned


def align_session(inputs: Iterable[Input], semantic: Iterable[Any]) -> dict[int, list[Aligned]]:
    """The tokens of every choice whose engine tells their bytes."""
    tokens: dict[int, list[tuple[int, int]]] = {}
    untold: set[int] = set()
    for event in inputs:
        if isinstance(event, TokensInput):
            if len(event.pieces) != len(event.ids) or (event.text and not event.pieces):
                untold.add(event.choice)
            tokens.setdefault(event.choice, []).extend(zip(event.ids, map(len, event.pieces), strict=False))
    events: dict[int, list[Any]] = {}
    for made in semantic:
        if _KINDS.get(made.__class__) is not None:
            events.setdefault(made.choice, []).append(made)
    return {
        choice: align(held, events.get(choice, ())) for choice, held in sorted(tokens.items()) if choice not in untold
    }


def _owners(events: Iterable[Any]) -> list[Part]:
    """What owns bytes, in the order in which it was written."""
    owners: list[Part] = []
    for event in events:
        kind = _KINDS.get(event.__class__)
        if kind is None or event.src[0] == event.src[1] or (kind == "fault" and not event.text):
            continue
        owners.append(Part(kind, event.src, event.index if kind in ("name", "arguments") else -1))
    # A name may be written behind the arguments.
    return sorted(owners, key=lambda owner: owner.src)


def _clipped(owner: Part, start: int, end: int) -> Part:
    return Part(owner.kind, (max(owner.src[0], start), min(owner.src[1], end)), owner.call)


def _merged(parts: list[Part]) -> tuple[Part, ...]:
    """Neighbours of one kind are one part."""
    merged: list[Part] = []
    for part in parts:
        last = merged[-1] if merged else None
        if last is not None and (last.kind, last.call, last.src[1]) == (part.kind, part.call, part.src[0]):
            merged[-1] = Part(part.kind, (last.src[0], part.src[1]), part.call)
        else:
            merged.append(part)
    return tuple(merged)
