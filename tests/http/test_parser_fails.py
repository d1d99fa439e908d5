"""A user's parser that raises: the client is told in its protocol, the server lives on, the replay says ``failed``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from pipeline.engines.scripted import ScriptedEngine
from replay import Replayer
from store import MemoryStore
from tests.support.asgi import Exchange, chat, serving
from tests.support.server import Running, blocks, serve

PARSER = '''
"""Raises where it reads "boom"; Never: before anything is read."""

from stages import catalog

PLAIN = catalog.parser("plain")


class Raises:
    id = "raises@1"

    def start(self, opening):
        return Machine(PLAIN.start(opening))

    def resume(self, opening, snapshot):
        return Machine(PLAIN.resume(opening, snapshot))


class Never(Raises):
    def start(self, opening):
        raise LookupError("no such session, says Sam")


class Machine:
    def __init__(self, inner):
        self.inner = inner
        self.snapshot = inner.snapshot

    def step(self, event, out):
        if "boom" in getattr(event, "text", ""):
            raise ZeroDivisionError("the secret word is " + event.text)
        self.inner.step(event, out)
'''
ERROR = "The parser of this server failed on the model's output."


@pytest.fixture(scope="module")
def parser(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("parser") / "raises.py"
    path.write_text(PARSER)
    return path


@pytest.fixture(scope="module")
def raising(parser: Path) -> Iterator[Running]:
    """A server with that parser. Its sessions do not replay the same: its store is not asked to."""
    folder = parser.parent
    with serve(folder, "--parser", f"{parser}:Raises", "--allow-forced", replays=False) as running:
        yield running


def forced(text: str) -> dict[str, Any]:
    return {"extra_body": {"forced_text": text}}


@pytest.mark.parametrize("stop", [None, "never"])
def test_the_stream_ends_with_the_protocols_error(raising: Running, stop: str | None) -> None:
    """With a stop string the engine runs the parser too, to see where to stop."""
    said: list[str] = []
    ids: set[str] = set()
    with raising.client() as client, pytest.raises(openai.APIError) as caught:
        asked: Any = {"stop": stop} if stop else {}
        for chunk in raising.create(client, stream=True, **asked, **forced("Two boom day.")):
            said.append(chunk.choices[0].delta.content or "")
            ids.add(chunk.id)
    assert "".join(said) == "Two "
    assert (caught.value.message, caught.value.code, caught.value.type) == (ERROR, "parser_error", "server_error")
    trace = raising.recorded(*ids)
    assert trace.info.state == "closed"
    assert trace.info.error == f"engine: {ERROR}"
    assert blocks(b"".join(frame.data for frame in trace.events("served", "frame")[1:]))[-1] == "data: [DONE]"
    result = Replayer().replay(trace)
    assert (result.verdict, result.error and result.error.type) == ("failed", "ZeroDivisionError")


def test_without_streaming_it_is_a_status(raising: Running) -> None:
    with raising.client() as client, pytest.raises(openai.InternalServerError) as caught:
        raising.create(client, **forced("boom"))
    assert caught.value.code == "parser_error"


def test_the_server_lives_on(raising: Running) -> None:
    with raising.client() as client:
        answer = raising.create(client, **forced("Two a day."))
    assert answer.choices[0].message.content == "Two a day."
    assert Replayer().replay(raising.recorded(answer.id)).verdict == "same"
    assert raising.health()["status"] == "ok"


def test_the_log_has_the_kind_of_error_and_nothing_of_the_text(raising: Running) -> None:
    log = raising.log.read_text()
    assert "raises@1 raised ZeroDivisionError" in log
    assert "secret word" not in log


@pytest.mark.anyio
@pytest.mark.parametrize("stop", [None, "never"])
async def test_a_parser_that_cannot_start(parser: Path, stop: str | None) -> None:
    store = MemoryStore()
    engine = ScriptedEngine([["Two ", "a day."]])
    async with serving(store, engine, parser=f"{parser}:Never") as server:
        exchange = await Exchange(chat(stop=stop)).run(server)
        assert engine.live == 0
    assert exchange.status == 500
    assert (exchange.error["code"], exchange.error["message"]) == ("parser_error", ERROR)
    [info] = store.sessions()
    assert json.loads(store.load(info.session).opening.request)["stream"] is True
    assert Replayer().replay(store.load(info.session)).verdict == "failed"
