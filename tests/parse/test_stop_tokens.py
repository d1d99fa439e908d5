"""Stop tokens: what the request names as an end is no text, unless it is part of the format."""

from __future__ import annotations

from typing import Any

import pytest

from stages.events import TokensInput
from stages.message import Message, collect
from tests.support.parse import QWEN, opening, semantic, session, tokens

STOP_ID = 300


def _stopped(
    piece: bytes, *, number: int = STOP_ID, parser: str = "hermes", before: str = "Done.", **ask: Any
) -> Message:
    """What a choice says that ended at a token which the request names."""
    written = [*tokens(before), TokensInput(0, (number,), (piece,), "")]
    made = opening(parser, stop_ids=(number,), **ask)
    [said] = collect(semantic(made, session(written, finish="stop_token", stop=number)))
    return said


@pytest.mark.parametrize("parser", ["plain", "hermes"])
@pytest.mark.parametrize("piece", [b"<|user|>", b" the end", b"\xf0\x9f"])
def test_the_text_of_a_stop_token_is_not_delivered(parser: str, piece: bytes) -> None:
    assert _stopped(piece, parser=parser).content == "Done."
    assert _stopped(b"<|user|>", parser=parser, include_stop=True).content == "Done.<|user|>"


def test_a_marker_that_is_a_stop_token_still_ends_its_call() -> None:
    number = QWEN.added["</tool_call>"]
    said = _stopped(b"</tool_call>", number=number, before='<tool_call>{"name": "moon", "arguments": {}}')
    assert [(call.name, call.arguments, call.complete) for call in said.tool_calls] == [("moon", "{}", True)]
    assert said.content is None
