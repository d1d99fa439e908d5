"""A call is required of a model that nothing holds to one: the log says why, once."""

from __future__ import annotations

import json
import logging
from typing import Any

import msgspec
import pytest

from pipeline.engines.scripted import ScriptedEngine
from stages.opening import EngineFacts
from tests.support.asgi import Exchange, serving

TOOLS = [{"type": "function", "function": {"name": "tide"}}]


class Holding(ScriptedEngine):
    """Says that it holds what it is asked to."""

    @property
    def facts(self) -> EngineFacts:
        return msgspec.structs.replace(super().facts, constrains=True)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("parser", "choice", "says"),
    [
        ("plain", "required", ["the parser plain reads no calls"]),
        ("plain", {"type": "function", "function": {"name": "tide"}}, ["the parser plain reads no calls"]),
        ("step3", "required", []),
        ("plain", "auto", []),
        ("hermes", "required", []),
    ],
)
async def test_the_log_says_that_a_call_is_only_asked_for(
    parser: str, choice: Any, says: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "tools": TOOLS, "tool_choice": choice}
    with caplog.at_level(logging.WARNING, "playhead.http"):
        async with serving(engine=Holding([["Two ", "a ", "day."]]), parser=parser) as server:
            for _ in range(2):
                exchange = Exchange(json.dumps({**body, "model": server.model}).encode())
                await exchange.run(server)
                assert exchange.status == 200
    assert len(caplog.messages) == len(says)
    for message, want in zip(caplog.messages, says, strict=True):
        assert want in message
