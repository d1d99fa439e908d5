"""Logprob entries, as they are on the wire."""

from __future__ import annotations

from stages.events import TokenLogprob
from stages.protocols.openai_chat.chunks import LogprobEntry, TopEntry

_FLOOR = -9999.0


def entry(item: TokenLogprob, top: int) -> LogprobEntry:
    """A token's entry, with so many alternatives at most."""
    alternatives = tuple(TopEntry(*_shown(other.piece, other.logprob)) for other in item.top[:top])
    return LogprobEntry(*_shown(item.piece, item.logprob), alternatives)


def _shown(piece: bytes, logprob: float) -> tuple[str, float, tuple[int, ...]]:
    # Not a number and minus infinity fail the first comparison.
    clamped = logprob if logprob > _FLOOR else _FLOOR
    return piece.decode("utf-8", "replace"), clamped if clamped < 0.0 else 0.0, tuple(piece)
