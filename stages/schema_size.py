"""How large a JSON Schema is, as what it costs to hold an output to it."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeGuard, cast

LARGEST: Final = 5000
"""The size of all schemas of a request. Real ones stay below 300."""
WIDEST: Final = 2000
"""Of one with an object, an array or a list of more than ``_WIDE``: compiling is quadratic in these, 1 s then."""
_WIDE: Final = 500
_LISTED: Final = 10
"""Values of an enum that cost what a property costs."""
_TEXT: Final = 250
"""Characters of names and of an enum's values that do: a million take seconds to spell."""
_PATTERN: Final = 4
"""Characters of regular expressions that do: 100 000 take 12 s."""


class Size(NamedTuple):
    """``longest``: of its objects, arrays and lists the longest one's length."""

    parts: int
    longest: int


def size(schema: dict[str, Any]) -> int:
    """What compiling it costs: its objects, arrays, and names that are required; ten values of an enum count as one, so
    do 250 characters of names or of such values, and 4 of regular expressions."""
    return measured(schema).parts


def too_large(schema: dict[str, Any]) -> str:
    """Why it is; empty: it is not."""
    parts, longest = measured(schema)
    most = WIDEST if longest > _WIDE else LARGEST
    if parts <= most:
        return ""
    return f"it is too large: {parts} properties, required names and other parts, where {most} are the most"


def measured(schema: dict[str, Any]) -> Size:
    """In time linear in it, however deep it is."""
    total = longest = 0
    waiting: list[Any] = [schema]
    while waiting:
        part = waiting.pop()
        total += 1
        longest = max(longest, len(part))
        inside: list[Any] = part
        if isinstance(part, dict):
            total += _said(cast("dict[str, Any]", part))
            inside = [*part.values()]
        waiting += [each for each in inside if isinstance(each, dict | list)]
    return Size(total, longest)


def _said(schema: dict[str, Any]) -> int:
    names, values, keyed = schema.get("required"), schema.get("enum"), schema.get("patternProperties")
    text = sum(map(len, schema))
    total = len(names) if _is_list(names) else 0
    if _is_list(values):
        total += len(values) // _LISTED
        text += sum(len(value) for value in values if isinstance(value, str))
    if isinstance(value := schema.get("const"), str):
        text += len(value)
    patterns = len(value) if isinstance(value := schema.get("pattern"), str) else 0
    if isinstance(keyed, dict):
        patterns += sum(map(len, cast("dict[str, Any]", keyed)))
    return total + text // _TEXT + patterns // _PATTERN


def _is_list(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)
