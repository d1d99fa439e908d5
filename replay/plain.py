"""Events as plain values, and the place at which two of them differ."""

from __future__ import annotations

from typing import Any, TypeGuard

import msgspec

from replay.text import first_difference


def is_map(value: Any) -> TypeGuard[dict[Any, Any]]:
    """It is a dict, of whatever."""
    return isinstance(value, dict)


def is_list(value: Any) -> TypeGuard[list[Any] | tuple[Any, ...]]:
    """It is a list or tuple, of whatever."""
    return isinstance(value, list | tuple)


def byte_of(one: Any, other: Any) -> int | None:
    """The first byte at which two frames differ; None for events without bytes."""
    mine, theirs = getattr(one, "data", None), getattr(other, "data", None)
    if isinstance(mine, bytes) and isinstance(theirs, bytes):
        return first_difference(mine.decode("latin-1"), theirs.decode("latin-1"))
    return None


def where(one: Any, other: Any) -> str:
    """Where two events differ: a byte of a frame, or the path of a value and the place in its text."""
    byte = byte_of(one, other)
    if byte is not None:
        return f"byte {byte}"
    return _path(_plain(one), _plain(other), "")


def _plain(event: Any) -> Any:
    """Structs as dicts with their field names, all the way down."""
    if isinstance(event, msgspec.Struct):
        return {name: _plain(value) for name, value in msgspec.structs.asdict(event).items()}
    return [_plain(item) for item in event] if is_list(event) else event


def _path(one: Any, other: Any, path: str) -> str:
    if is_map(one) and is_map(other):
        for key in {**one, **other}:
            mine, theirs = one.get(key, msgspec.UNSET), other.get(key, msgspec.UNSET)
            if mine != theirs:
                return _path(mine, theirs, f"{path}.{key}" if path else str(key))
    if is_list(one) and is_list(other) and len(one) == len(other):
        for place, (mine, theirs) in enumerate(zip(one, other, strict=True)):
            if mine != theirs:
                return _path(mine, theirs, f"{path}[{place}]")
    if isinstance(one, str) and isinstance(other, str):
        return f"{path} at character {first_difference(one, other)}"
    return path
