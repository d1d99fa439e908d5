"""A call is required of a model that nothing holds to one: the log says why, once."""

from __future__ import annotations

import json
import logging
from typing import Any

import anyio.lowlevel
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


@pytest.mark.anyio
async def test_others_are_served_while_calls_are_spelled() -> None:
    """How 300 tools are written takes a second: the event loop goes on."""
    schema = {"type": "object", "properties": {f"p{number}": {"type": ["string", "null"]} for number in range(6)}}
    tools = [{"type": "function", "function": {"name": f"tide_{n}", "parameters": schema}} for n in range(300)]
    body = {"messages": [{"role": "user", "content": "hi"}], "tools": tools, "tool_choice": "required"}
    engine, seen = Holding([["Two "]]), 0
    exchange = Exchange(json.dumps({**body, "model": engine.facts.model}).encode())
    async with serving(engine=engine, parser="pythonic") as server, anyio.create_task_group() as tasks:
        tasks.start_soon(exchange.run, server)
        with anyio.fail_after(60):
            while not exchange.sent:
                seen += server.spelling.borrowed_tokens
                await anyio.lowlevel.checkpoint()
    assert (exchange.status, seen > 0) == (200, True)
