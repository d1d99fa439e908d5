"""Logprob entries that a server sent → the tokens that they tell of."""

from __future__ import annotations

from typing import Any, Final

from stages.events import TokenLogprob, TopLogprob
from stages.protocols.lenient import as_float, as_ints, as_objects, as_text

UNKNOWN: Final = -1
"""The id of a token: none is told."""
_FLOOR: Final = -9999.0


def tokens_of(entries: Any) -> tuple[TokenLogprob, ...]:
    """The tokens of an array of entries; nothing of what is none."""
    made: list[TokenLogprob] = []
    for entry in as_objects(entries):
        top = tuple(TopLogprob(UNKNOWN, *_told(other)) for other in as_objects(entry.get("top_logprobs")))
        made.append(TokenLogprob(UNKNOWN, *_told(entry), top))
    return tuple(made)


def _told(entry: dict[str, Any]) -> tuple[bytes, float]:
    number = as_float(entry.get("logprob"))
    # Not a number and minus infinity fail the comparison.
    logprob = number if number is not None and number > _FLOOR else _FLOOR
    values = as_ints(entry.get("bytes"))
    if values is None or not all(0 <= value < 256 for value in values):
        return (as_text(entry.get("token")) or "").encode(), logprob
    return bytes(values), logprob
