"""Clients that do not keep to the rules, and parsers that return what no parser may: always the protocol's error."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.engines.scripted import ScriptedEngine
from store import MemoryStore
from tests.support.asgi import Exchange, chat, serving

PARSER = """
from stages.events import Content, End, Start


class Stage:
    id = "wrong@1"

    def __init__(self, made):
        self.made = made

    def start(self, opening):
        return self

    resume = snapshot = None

    def step(self, event, out):
        out.extend(self.made)


OtherEvents = Stage([1, None])
OtherValues = Stage([Content(0, b"bytes", (0, 1))])
NoText = Stage([Content(0, "\\ud800", (0, 1))])
NoSuchChoice = Stage([Content(7, "Two", (0, 3)), End()])
NoEnd = Stage([])
"""


@pytest.mark.anyio
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("name", ["OtherEvents", "OtherValues", "NoText", "NoSuchChoice", "NoEnd"])
async def test_a_parser_that_returns_what_none_may(tmp_path: Path, name: str, stream: bool) -> None:
    (tmp_path / "wrong.py").write_text(PARSER)
    store, engine = MemoryStore(), ScriptedEngine([["Two ", "a day."]])
    async with serving(store, engine, parser=f"{tmp_path / 'wrong.py'}:{name}") as server:
        exchange = await Exchange(chat(stream=stream)).run(server)
        assert engine.live == 0
    assert exchange.status == 500
    assert exchange.error["code"] == "parser_error"
    [info] = store.sessions()
    assert info.state == "closed"


@pytest.mark.anyio
async def test_a_body_that_does_not_come() -> None:
    async with serving(body_timeout=0.01) as server:
        exchange = await Exchange(b'{"messages": [', None).run(server)
    assert exchange.status == 408
    assert exchange.error["code"] == "request_timeout"
    assert exchange.headers["connection"] == "close"


@pytest.mark.anyio
@pytest.mark.parametrize("path", ["/v1/chat/completions/", "/" + "a" * 5000])
async def test_a_path_that_is_nearly_right_or_long(path: str) -> None:
    async with serving() as server:
        exchange = await Exchange(chat(), path=path).run(server)
    assert exchange.status == 404
    assert exchange.error["code"] == "not_found"
    assert len(exchange.body) < 300
