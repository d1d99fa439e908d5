"""Runs: texts of one kind in one choice, many at a time, as nearly all of a session are. For whole lists of events; one
by one, the encoder's ``step`` makes the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Any, Final, TypeAlias

from msgspec import UNSET

from stages.events import CallArguments, Content, Reasoning, Semantic, Tokens
from stages.protocols.openai_chat.chunks import Delta, FunctionDelta, ToolCallDelta

Said: TypeAlias = Content | Reasoning | CallArguments
SAID: Final[frozenset[type]] = frozenset((Content, Reasoning, CallArguments))
_NONE: Final[Any] = repeat(UNSET)


def gather(like: Said, rest: Iterator[Semantic], texts: list[str], ends: list[int], end: int) -> Semantic | None:
    """Add the texts of the events that go on as ``like`` does, as long as nothing but Tokens, which give nothing, comes
    between them; returns the first other event. ``end``: how many outputs there are before; to ``ends`` goes the end of
    each step."""
    kind, choice, tokens = type(like), like.choice, Tokens
    index = like.index if isinstance(like, CallArguments) else None
    for event in rest:
        made = type(event)
        if made is tokens:
            ends.append(end)
        elif made is kind:
            said: Any = event
            text = said.text
            if said.choice is not choice or not text or (index is not None and said.index is not index):
                return event
            texts.append(text)
            end += 1
            ends.append(end)
        else:
            return event
    return None


def deltas(like: Said, texts: list[str], field: str, place: int) -> Iterable[Delta]:
    """The deltas that bring texts of the kind that ``like`` is. ``field``: that of the reasoning, as in the Ask;
    ``place``: the call's."""
    if type(like) is Content:
        return map(Delta, _NONE, texts)
    if type(like) is Reasoning:
        one = _NONE if field == "reasoning_content" else texts
        other = _NONE if field == "reasoning" else texts
        return map(Delta, _NONE, _NONE, _NONE, one, other)
    entries = map(ToolCallDelta, repeat(place), _NONE, _NONE, map(FunctionDelta, _NONE, texts))
    return map(Delta, _NONE, _NONE, _NONE, _NONE, _NONE, zip(entries, strict=False))
