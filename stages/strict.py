"""Strict JSON: one value, no duplicate keys, no NaN or Infinity, no unpaired surrogate, no byte order mark."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

Json: TypeAlias = "bool | int | float | str | list[Any] | dict[str, Any] | None"
_DEEPEST = 200
_SHALLOW = 2 * _DEEPEST
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class _Problems:
    """What a lenient reader lets pass."""

    def __init__(self) -> None:
        self.problem: str | None = None
        self.key: str | None = None
        """A key that an object has twice."""

    def pairs(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        """An object's pairs; the last of a key counts, as in all clients."""
        made = dict(pairs)
        if len(made) != len(pairs):
            self.problem = self.problem or "a key twice in one object"
            self.key = self.key or Counter(key for key, _ in pairs).most_common(1)[0][0]
        return made

    def constant(self, name: str) -> float:
        """NaN and the infinities."""
        self.problem = self.problem or f"{name}, which JSON does not have"
        return float(name)


def parse(text: str) -> tuple[Json | UnsetType, str | None]:
    """The value and what is not strict about it. (UNSET, why) where it is no JSON at all, or nested more than 200 deep:
    then whoever walks the value needs no care."""
    try:
        return parse_utf8(text.encode())
    except UnicodeEncodeError:
        return _slowly(text)


def parse_utf8(data: bytes) -> tuple[Json | UnsetType, str | None]:
    """As ``parse``, of text as UTF-8. Raises UnicodeDecodeError where it is none."""
    try:
        value: Json = _decode(data)
        # What is written again as it was has no key twice, no escape of half a pair, no blanks: nearly all there is.
        if _encode(value) == data and (len(data) <= _SHALLOW or _shallow(value, data)):
            return value, None
    except (ValueError, RecursionError):
        pass
    return _slowly(data.decode())


def problem_of(data: bytes) -> str | None:
    """What is not strict about a text that is JSON to a lenient reader; None where it is none, or strict."""
    try:
        value, problem = parse_utf8(data)
    except UnicodeDecodeError:
        return None
    return None if value is UNSET else problem


def repeated_key(data: bytes, value: Json) -> str | None:
    """A key that an object has twice, or None. ``data``: JSON text; ``value``: what it is."""
    # Outside its strings, JSON has a colon for each key.
    if _STRING.sub(b"", data).count(b":") == sum(len(one) for one in _holders(value) if isinstance(one, dict)):
        return None
    problems = _Problems()
    json.loads(data, object_pairs_hook=problems.pairs)
    return problems.key


def _holders(value: Json) -> Iterator[list[Any] | dict[str, Any]]:
    left: list[Any] = [value]
    while left:
        one = left.pop()
        if isinstance(one, (dict, list)):
            yield one
            left += one.values() if isinstance(one, dict) else one


def _slowly(text: str) -> tuple[Json | UnsetType, str | None]:
    problems = _Problems()
    mark = text.startswith("\ufeff")
    try:
        value: Json = json.loads(
            text.removeprefix("\ufeff"), object_pairs_hook=problems.pairs, parse_constant=problems.constant
        )
        if not _shallow(value, text.encode("utf-8", "replace")):
            return UNSET, f"nested more than {_DEEPEST} deep"
        if mark:
            problems.problem = "a byte order mark before the value"
        return value, problems.problem or _unwritable(value)
    except RecursionError:
        return UNSET, f"nested more than {_DEEPEST} deep"
    except ValueError as error:
        return UNSET, f"no JSON: {error}"


def _shallow(value: Json, data: bytes) -> bool:
    if data.count(b"[") + data.count(b"{") <= _DEEPEST:
        return True
    level: list[Any] = [value]
    for _ in range(_DEEPEST + 1):
        inner: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                inner += one.values()
            elif isinstance(one, list):
                inner += one
        if not inner:
            return True
        level = inner
    return False


def _unwritable(value: Json) -> str | None:
    """Why a strict writer cannot have written the value."""
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        return "half of a surrogate pair"
    except ValueError:
        return "a number out of range"
    return None
