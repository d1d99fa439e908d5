"""Sessions of every protocol, replayed: the same at every layer through their own parser, and through another one what
it changes, in the same words whatever the protocol."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pipeline.engines.scripted import ScriptedEngine
from replay import Replayer
from replay.verdict import DEPTHS
from stages.catalog import PROTOCOLS
from store import MemoryStore
from tests.support.asgi import Exchange, serving

WRITTEN = [["<think>", "Low ", "water.", "</think>", "\n\nTwo ", "a ", "day."]]
TURNS = [{"role": "user", "content": "When?"}]
ASKED: dict[str, dict[str, Any]] = {
    "chat": {"messages": TURNS},
    "completions": {"prompt": "When?", "max_tokens": 50},
    "responses": {"input": "When?"},
    "messages": {"messages": TURNS, "max_tokens": 50},
}


async def _session(protocol: str, *, stream: bool) -> MemoryStore:
    """A store with one session."""
    store = MemoryStore()
    body = json.dumps({**ASKED[protocol], "stream": stream}).encode()
    async with serving(store, ScriptedEngine(WRITTEN), parser="qwen3") as server:
        exchange = await Exchange(body, path=PROTOCOLS[protocol].path).run(server)
    assert exchange.status == 200
    return store


@pytest.mark.anyio
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_it_is_the_same_at_every_layer(protocol: str, stream: bool) -> None:
    store = await _session(protocol, stream=stream)
    [info] = store.sessions()
    trace = store.load(info.session)
    for layer in DEPTHS:
        result = Replayer(layer=layer).replay(trace)
        assert (result.verdict, result.differences) == ("same", ()), layer


@pytest.mark.anyio
@pytest.mark.parametrize("protocol", [name for name in PROTOCOLS if name != "completions"])
async def test_what_another_parser_changes_is_named(protocol: str) -> None:
    store = await _session(protocol, stream=True)
    [info] = store.sessions()
    result = Replayer("plain", layer="frame").replay(store.load(info.session))
    assert result.verdict == "changed"
    assert {(item.field, item.recorded) for item in result.differences} == {
        ("reasoning", "Low water."), ("content", "Two a day."),
    }  # fmt: skip
