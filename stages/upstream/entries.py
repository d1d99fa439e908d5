"""The logprobs of a step as servers send them → those of a TokensInput."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

from stages.events import TokenLogprob, TopLogprob
from stages.upstream.wire import Number

FLOOR: Final = -9999.0
"""The lowest logprob."""
UNKNOWN: Final = -1
"""The id of a token whose id is not told."""
_NAMED: Final = "token_id:"
"""What vLLM writes before an id, where the request has it tell ids for texts."""
_Byte: TypeAlias = Annotated[int, Meta(ge=0, le=255)]


class TopEntry(msgspec.Struct, frozen=True, gc=False):
    """An alternative. ``id``: llama.cpp tells it; ``bytes``: of the token, null where a server does not know them."""

    token: str = ""
    logprob: float | None = None
    bytes: tuple[_Byte, ...] | None = None
    id: Number | None = None


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A token, as the chat protocol has it."""

    token: str = ""
    logprob: float | None = None
    bytes: tuple[_Byte, ...] | None = None
    id: Number | None = None
    top_logprobs: tuple[TopEntry, ...] = ()


class Entries(msgspec.Struct, frozen=True, gc=False):
    """``logprobs`` of a choice, as the chat protocol has it."""

    content: tuple[Entry, ...] | None = None
    refusal: tuple[Entry, ...] | None = None


def joined(ids: Sequence[int], entries: Sequence[Entry], most: int | None = None) -> tuple[TokenLogprob, ...]:
    """The entries of these tokens; none where they are not as many, because nobody can tell then which is whose.
    ``most``: alternatives of each that are kept."""
    if len(ids) != len(entries):
        return ()
    return tuple(
        TokenLogprob(
            number, piece_of(entry), number_of(entry.logprob), sorted_top(map(_top, entry.top_logprobs))[:most]
        )
        for number, entry in zip(ids, entries, strict=True)
    )


def sorted_top(top: Iterable[TopLogprob]) -> tuple[TopLogprob, ...]:
    """By falling logprob."""
    return tuple(sorted(top, key=_falling))


def number_of(logprob: float | None) -> float:
    """A logprob from -9999 to 0; what is none is the lowest."""
    # Not a number fails both comparisons.
    return min(logprob, 0.0) if logprob is not None and logprob > FLOOR else FLOOR


def piece_of(entry: Entry | TopEntry) -> bytes:
    """The token's bytes; empty where only its id is told."""
    if entry.bytes is not None:
        return bytes(entry.bytes)
    return b"" if entry.token.startswith(_NAMED) else entry.token.encode("utf-8", "replace")


def _top(entry: TopEntry) -> TopLogprob:
    return TopLogprob(_id(entry), piece_of(entry), number_of(entry.logprob))


def _id(entry: TopEntry) -> int:
    if entry.id is not None:
        return entry.id
    named = entry.token.removeprefix(_NAMED)
    known = len(named) < len(entry.token) and named.isascii() and named.isdecimal() and len(named) < 10
    return int(named) if known else UNKNOWN


def _falling(top: TopLogprob) -> float:
    return -top.logprob
