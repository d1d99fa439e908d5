"""There and back: one of our own streams, read as semantic events and written again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from stages.events import CallEnd, Finish, Frame, Reasoning, Semantic, Tick
from stages.opening import Ask, EngineFacts, Opening
from stages.protocols.anthropic.decode import MessagesReader
from stages.protocols.anthropic.encoder import ENCODER
from stages.protocols.lenient import as_int, as_object, as_text
from stages.sse import FRAMER
from stages.stage import fold

_OMITTED: Final = b'{"thinking":{"type":"adaptive","display":"omitted"}}'
_STOP: Final = {"type": "message_stop"}


def rewritten(values: Iterable[Any]) -> list[Frame]:
    """The frames of a stream of our own whose events are these, decoded and encoded again: the same stream. One that
    was cut off between its last two events has both. What is no object is passed over."""
    events = [as_object(value) for value in values if isinstance(value, dict)]
    if events and events[-1].get("type") == "message_delta":
        events.append(_STOP)
    opening = _opening(events)
    # An error may be all that there is: by itself it would be no stream.
    semantic: list[Semantic] = [Tick()]
    reader = MessagesReader(exact=True)
    silent: dict[int, bool] = {}
    for value in events:
        if _stops_silent(value, silent):
            # What it said nobody knows; that it was there is told.
            semantic.append(Reasoning(0, "…", (0, 0)))
        reader.event("", value, semantic)
    return fold(FRAMER.start(opening), fold(ENCODER.start(opening), _unfinished(semantic)))


def _opening(events: list[dict[str, Any]]) -> Opening:
    """Under which the encoder writes these events."""
    firsts = [as_object(value.get("message")) for value in events if value.get("type") == "message_start"]
    first = firsts[0] if firsts else as_object(None)
    silent: dict[int, bool] = {}
    omitted = any(_stops_silent(value, silent) for value in events)
    model = as_text(first.get("model")) or ""
    return Opening(
        session="", key="", response_id=as_text(first.get("id")) or "", created=0, opened=0, model=model,
        protocol="messages", request=_OMITTED if omitted else b"{}", engine=EngineFacts(kind="upstream", model=model),
        ask=Ask(stream=True),
    )  # fmt: skip


def _stops_silent(value: dict[str, Any], silent: dict[int, bool]) -> bool:
    """A block of thinking stops that has said nothing. ``silent``: the open ones, and whether they have not."""
    kind, index = value.get("type"), as_int(value.get("index"))
    if index is None:
        return False
    if kind == "content_block_start":
        silent[index] = as_object(value.get("content_block")).get("type") == "thinking"
    elif kind == "content_block_delta" and as_object(value.get("delta")).get("type") == "thinking_delta":
        silent[index] = False
    return kind == "content_block_stop" and silent.pop(index, False)


def _unfinished(events: list[Semantic]) -> list[Semantic]:
    """A stop string is told where a call is not complete: then the last one is not, whole as it may look."""
    if any(isinstance(event, Finish) and event.reason == "stop" for event in events):
        for place in range(len(events) - 1, -1, -1):
            event = events[place]
            if isinstance(event, CallEnd):
                events[place] = msgspec.structs.replace(event, complete=False)
                break
    return events
