"""Values that other servers sent, read as the type that is wanted; nothing here raises.

A value of the wrong type is None, or empty. Numbers as text count; half of a surrogate pair becomes U+FFFD.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from math import isfinite
from typing import Any, TypeGuard, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from stages.strict import parse

T = TypeVar("T")
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|-?Infinity|NaN')
_NUMBERS = {"Infinity": "1e999", "-Infinity": "-1e999", "NaN": "null"}
"""What is no JSON, but comes of numbers that are: as JSON that reads the same, if there is any."""


def value_of(data: str | bytes) -> Any | UnsetType:
    """The JSON value of a text; UNSET where it is none to anybody. Malformed UTF-8 becomes U+FFFD."""
    try:
        return _decode(data)
    except (ValueError, RecursionError):
        return parse(data if isinstance(data, str) else data.decode("utf-8", "replace"))[0]


def as_text(value: Any) -> str | None:
    """A text that can be written as UTF-8."""
    if not isinstance(value, str):
        return None
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return value


def as_int(value: Any) -> int | None:
    """An integer of 64 bits, also as a short text or as a float."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 10:
        return int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if is_int(value) else None


def is_int(value: Any) -> TypeGuard[int]:
    """An integer of 64 bits: what is larger no store takes."""
    return isinstance(value, int) and not isinstance(value, bool) and -(1 << 63) <= value < 1 << 63


def as_float(value: Any) -> float | None:
    """A number."""
    return float(value) if isinstance(value, float) or is_int(value) else None


def as_count(value: Any) -> int:
    """A number of something; 0 where it is none, or negative."""
    number = as_int(value)
    return number if number is not None and number >= 0 else 0


def as_list(value: Any) -> list[Any]:
    """An array."""
    # Not isinstance: it leaves the two type checkers with different opinions of what is inside.
    found: list[Any] = value if value.__class__ is list else []
    return found


def as_object(value: Any) -> dict[str, Any]:
    """An object."""
    found: dict[str, Any] = value if value.__class__ is dict else {}
    return found


def as_objects(value: Any) -> list[dict[str, Any]]:
    """The objects of an array."""
    return [as_object(item) for item in as_list(value) if isinstance(item, dict)]


def as_ints(value: Any) -> tuple[int, ...] | None:
    """The integers of an array."""
    if not isinstance(value, list):
        return None
    return tuple(item for item in as_list(value) if is_int(item))


def written(value: dict[str, Any]) -> str:
    """An object as JSON text; of one that is nested too deeply, nothing. An infinity is a number that reads as one:
    JSON has no word for it."""
    for write in (_compact, _escaped):
        try:
            return write(value)
        except (UnicodeEncodeError, OverflowError, ValueError):
            continue  # half of a surrogate pair, which stays an escape
        except RecursionError:
            break
    return ""


def _compact(value: dict[str, Any]) -> str:
    text = _encode(value).decode()
    return _encode(_finite(value)).decode() if "null" in text else text


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in as_object(value).items()}
    if isinstance(value, list):
        return [_finite(one) for one in as_list(value)]
    return msgspec.Raw(_NUMBERS[json.dumps(value)]) if isinstance(value, float) and not isfinite(value) else value


def _escaped(value: dict[str, Any]) -> str:
    return _TOKEN.sub(lambda found: _NUMBERS.get(found[0], found[0]), json.dumps(value, separators=(",", ":")))


def each(value: Any, read: Callable[[dict[str, Any]], T]) -> tuple[T, ...] | None:
    """What ``read`` makes of the objects of an array."""
    return tuple(read(item) for item in as_objects(value)) if isinstance(value, list) else None


def or_unset(value: T | None) -> T | UnsetType:
    """UNSET for None."""
    return UNSET if value is None else value
