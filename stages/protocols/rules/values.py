"""Values of any JSON type, read as the type that is wanted; nothing here raises."""

from __future__ import annotations

from typing import Any


def obj(value: Any) -> dict[str, Any]:
    """An object, empty where it is none."""
    return value if value.__class__ is dict else {}


def array(value: Any) -> list[Any]:
    """An array, empty where it is none."""
    return value if value.__class__ is list else []


def string(value: Any) -> str | None:
    """A string, None where it is none."""
    return value if value.__class__ is str else None


def integer(value: Any) -> int | None:
    """An integer, None where it is none; true and false are none."""
    return value if value.__class__ is int else None


def number(value: Any) -> float | None:
    """A finite number, None where it is none."""
    return value if value.__class__ in (int, float) and value - value == 0 else None


def same(one: Any, other: Any) -> bool:
    """Equal as JSON values: true is not 1, the order of keys is nothing."""
    if one.__class__ is dict and other.__class__ is dict:
        return len(one) == len(other) and all(key in other and same(value, other[key]) for key, value in one.items())
    if one.__class__ is list and other.__class__ is list:
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other) and (one.__class__ is bool) == (other.__class__ is bool)
