"""The golden chat streams, rebuilt byte for byte from semantic events."""

from __future__ import annotations

from typing import Any

import pytest

from stages.events import Head
from tests.support.chat import CASES, body_of, frames_of
from tests.support.wire import golden, write


def expected(name: str) -> bytes:
    """The golden bytes, or where the encoder differs from a golden by decision, the bytes that follow from it."""
    stream = golden(name)
    if name == "G02":
        # The golden role chunk has content null: calls only. At that moment nobody knows yet, so we send "".
        first, *rest = stream.elements
        first["choices"][0]["delta"]["content"] = ""
        return write("chat", [first, *rest])
    if name == "G06":
        # The golden packs a step's entries with its text. We send them first, on an empty delta.
        return write("chat", [part for element in stream.elements for part in carried(element)])
    return stream.body


def carried(element: Any) -> list[Any]:
    """A golden element as carrier and text."""
    if element == "[DONE]" or element["choices"][0]["logprobs"] is None:
        return [element]
    choice: dict[str, Any] = element["choices"][0]
    empty: dict[str, Any] = {}
    carrier = {"choices": [{**choice, "delta": empty}]}
    text = {"choices": [{**choice, "logprobs": None}]}
    return [carrier, text] if choice["delta"]["content"] else [carrier]


@pytest.mark.parametrize("name", sorted(CASES))
def test_golden(name: str) -> None:
    ask, events = CASES[name]
    frames = frames_of(ask, events)
    assert body_of(frames) == expected(name)
    assert isinstance(frames[0], Head)
    assert sum(isinstance(frame, Head) for frame in frames) == 1


def test_head_of_a_stream() -> None:
    ask, events = CASES["G01"]
    assert frames_of(ask, events)[0] == Head(
        200,
        (
            ("content-type", "text/event-stream; charset=utf-8"),
            ("cache-control", "no-cache, no-transform"),
            ("x-accel-buffering", "no"),
            ("x-request-id", "chatcmpl-7a1"),
        ),
    )
