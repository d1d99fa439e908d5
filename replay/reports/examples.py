"""examples: the sessions that a report shows in full, loaded and replayed once more, both sides step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

import msgspec

from replay.errors import ReplayError
from replay.reports.align import LIMIT, Aligned, align
from replay.reports.counting import counting
from replay.result import SessionResult
from replay.run import Replayer
from replay.signature import EARLIER
from replay.text import plain_excerpt
from stages.message import Message
from store.api import StoreError, Trace

Load: TypeAlias = Callable[[str, str], Trace]
"""A session, by its source and its id. Raises StoreError, OSError."""

_SAID = 8
"""Lines of what a message says."""


def aligned(result: SessionResult, load: Load, replayer: Replayer, *, limit: int = LIMIT) -> Aligned | str:
    """Both sides of a session; or why they cannot be shown. ``limit``: rows. Raises nothing for what is recorded or
    what a parser does: one that failed is not run again, for it may hang, or end this process."""
    if result.error is not None:
        return "the parser failed here, and is not run a second time"
    try:
        trace = load(result.source, result.session)
        both = replayer.both(trace)
    except (StoreError, ReplayError, OSError) as error:
        return f"it cannot be read again: {error}"
    if both is None:
        return "it cannot be replayed again"
    if both.before is None:
        return "the events that it is compared with are not recorded"
    made = align(
        both.inputs, both.before, both.after, trace.opening.tokenizer, loose=both.loose, counting=counting(result),
        limit=limit,
    )  # fmt: skip
    if made.differing or result.signature is None or result.signature.layer != EARLIER:
        return made
    # Of what the session was before there are no events; as it is now, it is as recorded.
    return msgspec.structs.replace(made, now=tuple(_says(both.after.messages())[:_SAID]))


def _says(messages: Iterable[Message]) -> list[str]:
    """What a message says, a line for each part."""
    told: list[str] = []
    for message in messages:
        who = f"now, choice {message.choice}, "
        texts = ("reasoning", message.reasoning), ("content", message.content), ("refusal", message.refusal)
        told += [f"{who}{name}: {plain_excerpt(text)!r}" for name, text in texts if text]
        told += [f"{who}call of {call.name!r}: {plain_excerpt(call.arguments)!r}" for call in message.tool_calls]
    return told
