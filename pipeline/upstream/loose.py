"""JSON of others, read for what may be in it: nothing here raises."""

from __future__ import annotations

import json
import re
from typing import Any, Final

_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def value(data: bytes) -> Any:
    """The JSON value; None for what is none."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def table(found: Any) -> dict[str, Any]:
    """An object; empty for anything else."""
    # Not isinstance: it leaves the two type checkers with different opinions of what is inside.
    made: dict[str, Any] = found if found.__class__ is dict else {}
    return made


def tables(found: Any) -> list[dict[str, Any]]:
    """The objects of a list; none for anything else."""
    items: list[Any] = found if found.__class__ is list else []
    return [item for item in items if item.__class__ is dict]


def text(found: Any) -> str | None:
    """A text that is not empty; none with half a character (a lone surrogate), which no store takes."""
    return found if isinstance(found, str) and found and _SURROGATE.search(found) is None else None


def count(found: Any) -> int | None:
    """A number over 0 that fits a store."""
    return found if isinstance(found, int) and not isinstance(found, bool) and 0 < found < 1 << 63 else None
