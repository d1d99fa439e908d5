"""examples: the sessions that a report shows in full, loaded and replayed once more, both sides step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from replay.errors import ReplayError
from replay.reports.align import LIMIT, Aligned, align
from replay.reports.counting import counting
from replay.result import SessionResult
from replay.run import Replayer
from store.api import StoreError, Trace

Load: TypeAlias = Callable[[str, str], Trace]
"""A session, by its source and its id. Raises StoreError, OSError."""


def aligned(result: SessionResult, load: Load, replayer: Replayer, *, limit: int = LIMIT) -> Aligned | str:
    """Both sides of a session; or why they cannot be shown. ``limit``: rows. Raises nothing for what is recorded or
    what a parser does: one that failed is not run again, for it may hang, or end this process."""
    if result.error is not None:
        return "the replaying parser failed: it is not run again"
    try:
        trace = load(result.source, result.session)
        both = replayer.both(trace)
    except (StoreError, ReplayError, OSError) as error:
        return f"it cannot be read again: {error}"
    if both is None:
        return "it cannot be replayed again"
    if both.before is None:
        return "the events that it is compared with are not recorded"
    return align(
        both.inputs, both.before, both.after, trace.opening.tokenizer, loose=both.loose, counting=counting(result),
        limit=limit,
    )  # fmt: skip
