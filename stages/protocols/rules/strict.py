"""Strict JSON: one value, no duplicate keys, no NaN or Infinity, no unpaired surrogate, no byte order mark."""

from __future__ import annotations

import json
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

Json: TypeAlias = "bool | int | float | str | list[Any] | dict[str, Any] | None"
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class _Problems:
    """What a lenient reader lets pass."""

    def __init__(self) -> None:
        self.problem: str | None = None

    def pairs(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        """An object's pairs; the last of a key counts, as in all clients."""
        made = dict(pairs)
        if len(made) != len(pairs):
            self.problem = self.problem or "a key twice in one object"
        return made

    def constant(self, name: str) -> float:
        """NaN and the infinities."""
        self.problem = self.problem or f"{name}, which JSON does not have"
        return float(name)


def parse(text: str) -> tuple[Json | UnsetType, str | None]:
    """The value and what is not strict about it. (UNSET, why) where it is no JSON at all."""
    try:
        data = text.encode()
        value: Json = _decode(data)
        # What is written again as it was has no key twice, no escape of half a pair, no blanks: nearly all there is.
        if _encode(value) == data:
            return value, None
    except (ValueError, RecursionError):
        pass
    return _slowly(text)


def _slowly(text: str) -> tuple[Json | UnsetType, str | None]:
    problems = _Problems()
    mark = text.startswith("\ufeff")
    try:
        value: Json = json.loads(
            text.removeprefix("\ufeff"), object_pairs_hook=problems.pairs, parse_constant=problems.constant
        )
    except RecursionError:
        return UNSET, "nested too deeply"
    except ValueError as error:
        return UNSET, f"no JSON: {error}"
    if mark:
        problems.problem = "a byte order mark before the value"
    if problems.problem is None and not _paired(value):
        problems.problem = "half of a surrogate pair"
    return value, problems.problem


def _paired(value: Json) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True
