"""wrote: what the model wrote in some steps, and what else came in, to be shown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, Literal, TypeAlias

import msgspec

from replay.text import readable, sound
from stages.events import Input, TokensInput

_PIECES = 24
"""Pieces that one row shows."""
_LONGEST = 160

Piece: TypeAlias = Literal["text", "special", "bytes", "input"]
"""``special``: a special or added token; ``bytes``: a part of a character, in hexadecimal; ``input``: no text, but
another input of the engine, in words."""


class Wrote(msgspec.Struct, frozen=True):
    """What the model wrote, or what else came in."""

    text: str
    piece: Piece


def wrote(inputs: Iterable[Input], special: frozenset[int]) -> tuple[Wrote, ...]:
    """The inputs, at most 25 pieces. ``special``: ids of special and added tokens."""
    found = [piece for event in inputs for piece in _pieces(event, special)]
    made: list[Wrote] = []
    for kind, run in groupby(found, _kind):
        parts = [data for _, data in run]
        if kind == "text":
            made += _text(b"".join(parts))
        else:
            made += [Wrote(_middle(sound(data.decode("utf-8", "backslashreplace"))), kind) for data in parts]
    if len(made) > _PIECES:
        made[_PIECES // 2 : len(made) - _PIECES // 2] = [Wrote("…", "input")]
    return tuple(made)


def _text(data: bytes) -> Iterator[Wrote]:
    for text, whole in readable(data):
        yield Wrote(_middle(text), "text" if whole else "bytes")


def _kind(item: tuple[Piece, bytes]) -> Piece:
    return item[0]


def _middle(text: str) -> str:
    """The text, or both its ends."""
    if len(text) <= _LONGEST:
        return text
    return f"{text[: 2 * _LONGEST // 3]}…{text[-(_LONGEST // 3) :]}"


def _pieces(event: Input, special: frozenset[int]) -> Iterator[tuple[Piece, bytes]]:
    if not isinstance(event, TokensInput):
        words = _in_words(event)
        if words:
            yield "input", words.encode("utf-8", "backslashreplace")
    elif event.pieces:
        for token, piece in zip(event.ids, event.pieces, strict=False):
            name: Piece = "special" if token in special else "text"
            yield name, piece
    elif event.text or not event.ids:
        yield "text", event.text.encode("utf-8", "backslashreplace")
    else:
        yield "input", " ".join(f"#{token}" for token in event.ids[:_PIECES]).encode()


def _in_words(event: Input) -> str:
    kind: Any = event.__class__
    name = str(kind.__struct_config__.tag)
    told = next((str(value) for field in ("reason", "by", "kind") if (value := getattr(event, field, None))), "")
    return f"{name} {told}".rstrip()
