"""What chat completions say."""

from __future__ import annotations

from typing import Any

from stages.protocols.rules.chat_choice import Object
from stages.protocols.rules.chat_view import ChatView, view
from stages.protocols.rules.reading import Event, Reading
from stages.protocols.rules.said import Said
from stages.protocols.rules.values import array, obj


def of_stream(reading: Reading) -> Said:
    """The stream."""
    return reading.view(view).said


def of_whole(body: Object) -> Said:
    """The completion: read as the one chunk that holds all of it."""
    chunk = {**body, "choices": [_as_choice(one) for one in array(body.get("choices"))]}
    said = ChatView([Event(0, 0, None, None, chunk)]).said
    said.empty.clear()
    for usage in said.usages:
        usage.final = True
    return said


def _as_choice(item: Any) -> Object:
    delta = {**obj(obj(item).get("message"))}
    if "tool_calls" in delta:
        delta["tool_calls"] = [{**obj(call), "index": place} for place, call in enumerate(array(delta["tool_calls"]))]
    return {**obj(item), "delta": delta}
