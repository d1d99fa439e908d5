"""A store with one session of every kind, recorded without a socket, and the command line to look at it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from click.testing import CliRunner, Result

from pipeline.cli import main
from pipeline.engines.base import EngineRequest
from pipeline.engines.scripted import ScriptedEngine
from store import open_store
from tests.support.answers import CASES, TOOLS
from tests.support.asgi import Exchange, chat, serving

SAID: dict[str, list[Any]] = {
    "text": ["Two tides a day, says the almanac, and the almanac is right, mostly, about such things."],
    "calls": ["<think>", "\nWhich port?\n", "</think>", "\n\n", CASES["parallel calls"].written],
    "fails": ["Two ", RuntimeError("out of memory")],
    "leaves": ["word "] * 5000,
}

Playhead = Callable[..., Result]


def _scripts(request: EngineRequest) -> list[list[Any]]:
    assert request.conversation is not None
    asked = str(request.conversation.messages[-1]["content"])
    return [SAID[asked]] * request.n


def _leave(exchange: Exchange, _message: object) -> None:
    exchange.leave()


async def _record(path: Path) -> None:
    store = open_store(str(path))
    async with serving(store, ScriptedEngine(_scripts), parser="hermes") as server:
        for asked in SAID:
            fields: dict[str, Any] = {"messages": [{"role": "user", "content": asked}]}
            if asked == "calls":
                fields |= {"tools": TOOLS, "n": 2}
            exchange = Exchange(chat(**fields))
            if asked == "leaves":
                exchange.on_send = partial(_leave, exchange)
            await exchange.run(server)
    await anyio.to_thread.run_sync(store.close)


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four sessions, in the order of SAID; nobody writes to it."""
    path = tmp_path_factory.mktemp("recorded") / "sessions.db"
    anyio.run(_record, path)
    return path


@pytest.fixture(scope="session")
def ids(recorded: Path) -> dict[str, str]:
    """The sessions' ids by what was asked."""
    store = open_store(str(recorded), create=False)
    found = [info.session for info in store.sessions()]
    store.close()
    return dict(zip(SAID, reversed(found), strict=True))


@pytest.fixture
def playhead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Playhead:
    """``playhead ARGUMENTS…`` in an empty folder and a terminal of 80 columns; a traceback fails the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")

    def run(*arguments: object) -> Result:
        result = CliRunner().invoke(main, [str(argument) for argument in arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run
