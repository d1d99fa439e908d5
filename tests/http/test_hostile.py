"""Clients that do not keep to the rules, and parsers that return what no parser may: always the protocol's error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.engines.scripted import ScriptedEngine
from stages.catalog import PROTOCOLS
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


BODIES: dict[str, tuple[bytes, int, str]] = {
    "empty": (b"", 400, "JSON"),
    "no JSON": (b"{nope", 400, "JSON"),
    "half of it": (b'{"model": "scrip', 400, "JSON"),
    "a list": (b"[1, 2]", 400, "object"),
    "not UTF-8": (b'{"user": "\xff\xfe"}', 400, "JSON"),
    "NaN": (b'{"temperature": NaN}', 400, "JSON"),
    "a key twice": (b'{"user": "a", "user": "b"}', 400, "twice"),
    "deep": (b'{"user": ' + b"[" * 5000 + b"]" * 5000 + b"}", 400, "nested too deeply"),
    "deeper": (b"[" * 200_000, 400, "deep"),
    "a large number": (b'{"seed": 1' + b"0" * 400 + b"}", 400, "seed"),
    "nothing": (b"{}", 400, "required"),
}
GENERATING = [*((name, entry.path) for name, entry in PROTOCOLS.items()), ("messages", "/v1/messages/count_tokens")]


def _refused(protocol: str, body: dict[str, Any], words: str) -> None:
    """The protocol's error object, which says this."""
    assert words in body["error"]["message"]
    if protocol == "messages":
        assert (body["type"], body["error"]["type"]) == ("error", "invalid_request_error")
        assert set(body["error"]) == {"type", "message"}
    else:
        assert body["error"]["type"] == "invalid_request_error"
        assert set(body["error"]) == {"message", "type", "param", "code"}


@pytest.mark.anyio
@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize(("protocol", "path"), GENERATING, ids=[path for _, path in GENERATING])
async def test_a_hostile_body_of_any_protocol(protocol: str, path: str, name: str) -> None:
    sent, status, words = BODIES[name]
    store = MemoryStore()
    async with serving(store) as server:
        exchange = await Exchange(sent, path=path).run(server)
        assert list(store.sessions()) == []
    assert exchange.status == status
    _refused(protocol, json.loads(exchange.body), words)


@pytest.mark.anyio
@pytest.mark.parametrize(("protocol", "path"), GENERATING, ids=[path for _, path in GENERATING])
async def test_what_is_no_json_by_its_own_word(protocol: str, path: str) -> None:
    async with serving() as server:
        exchange = await Exchange(b"{}", path=path, content_type="text/plain").run(server)
    assert exchange.status == 415
    _refused(protocol, json.loads(exchange.body), "application/json")


@pytest.mark.anyio
@pytest.mark.parametrize("path", ["/v1/chat/completions/", "/" + "a" * 5000])
async def test_a_path_that_is_nearly_right_or_long(path: str) -> None:
    async with serving() as server:
        exchange = await Exchange(chat(), path=path).run(server)
    assert exchange.status == 404
    assert exchange.error["code"] == "not_found"
    assert len(exchange.body) < 500
