"""Stores that cannot be written do not disturb a client, unless the server is told that recording comes first.

The causes are real: a folder that is gone, a limit on the size of files, another connection's lock.
"""

from __future__ import annotations

import json
import logging
import resource
import shutil
import sqlite3
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from starlette.types import Message

from pipeline.engines.scripted import ScriptedEngine
from replay import Replayer
from stages.events import End
from store import open_store
from tests.support.asgi import Exchange, chat, serving
from tests.support.resuming import asked
from tests.support.server import PATIENCE, Running, blocks, eventually, objects, serve

ANSWER = ["Two ", "a ", "day."]
# What differs between two answers to the same question.
VOLATILE = {"id": "", "created": 0}


def said(running: Running) -> list[Any]:
    """A stream's objects, but for what is different every time; it ends as it should."""
    with running.stream(stream_options={"include_usage": True}) as wire:
        wire.rest()
    assert blocks(wire.read)[-1] == "data: [DONE]"
    return [chunk | VOLATILE for chunk in objects(wire.read)]


def remove_folder(running: Running) -> None:
    shutil.rmtree(running.store.parent)


def fill_disk(running: Running) -> None:
    """No file of the server grows beyond a page or two of its store's log."""
    resource.prlimit(running.process.pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))


@pytest.mark.parametrize("breaks", [remove_folder, fill_disk])
def test_a_client_does_not_notice(tmp_path: Path, breaks: Callable[[Running], None]) -> None:
    home = tmp_path / "home"
    home.mkdir()
    store = tmp_path / "data" / "sessions.db"
    store.parent.mkdir()
    with serve(home, script=ANSWER, store=store) as running:
        good = said(running)
        breaks(running)
        assert [said(running) for _ in range(3)] == [good] * 3
        eventually(lambda: running.health()["store"]["lost_records"] or None)
        assert running.health()["store"]["failures"] >= 1
        assert running.post().json()["choices"][0]["message"]["content"] == "Two a day."
        assert running.health()["status"] == "ok"
    log = (home / "server.log").read_text()
    assert log.count("WARNING playhead.store") == 1
    assert "sessions are incomplete" in log


def test_a_store_in_a_missing_folder_is_refused_at_the_start(tmp_path: Path) -> None:
    with (
        pytest.raises(AssertionError, match=r"nowhere.* does not exist"),
        serve(tmp_path, store=tmp_path / "nowhere" / "x.db"),
    ):
        pass


# --- without a socket -----------------------------------------------------------------------------------------------


@contextmanager
def locked(path: Path) -> Generator[None]:
    """Another connection writes and does not end."""
    conn = sqlite3.connect(path, isolation_level=None)
    conn.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        conn.execute("ROLLBACK")
        conn.close()


@pytest.mark.anyio
async def test_a_lock_that_is_not_let_go(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "sessions.db"
    store = open_store(str(path), busy_s=0.02, window_s=0.001)
    async with serving(store, ScriptedEngine([ANSWER])) as server:
        good = await Exchange(chat()).run(server)
        await anyio.to_thread.run_sync(store.flush)
        with locked(path):
            meanwhile = await Exchange(chat()).run(server)
            await anyio.to_thread.run_sync(store.flush)
        assert [c | VOLATILE for c in objects(meanwhile.body)] == [c | VOLATILE for c in objects(good.body)]
        assert meanwhile.complete
        assert store.stats()["failures"] >= 1
        await Exchange(chat()).run(server)
    store.close()
    warned = [entry for entry in caplog.records if entry.levelno >= logging.WARNING]
    assert [entry.name for entry in warned] == ["playhead.store"]
    again = open_store(str(path), create=False)
    assert [info.state for info in again.sessions()] == ["closed", "closed"]
    again.close()


@pytest.mark.anyio
@pytest.mark.parametrize("stream", [True, False])
async def test_what_nobody_could_ask_for_is_not_done_in_the_background(tmp_path: Path, stream: bool) -> None:
    store = open_store(str(tmp_path / "sessions.db"), busy_s=0.02, window_s=0.001)
    async with serving(store, ScriptedEngine([ANSWER], pace=3600)) as server:
        with locked(tmp_path / "sessions.db"):
            answer = await asked("responses", stream=stream, background=True).run(server)
        assert (answer.status, answer.error["code"]) == (503, "store_unavailable")
        with anyio.fail_after(PATIENCE):
            while server.live.sessions():  # noqa: ASYNC110  # it ends in its own time
                await anyio.sleep(0.01)
    store.close()


@pytest.mark.anyio
@pytest.mark.parametrize("stream", [True, False])
async def test_strict_commits_before_the_last_frame(tmp_path: Path, stream: bool) -> None:
    path = tmp_path / "sessions.db"
    store = open_store(str(path))
    seen: list[str] = []
    async with serving(store, ScriptedEngine([ANSWER]), strict=True) as server:
        exchange = Exchange(chat(stream=stream))

        def look(message: Message) -> None:
            """Another process's view at the moment in which the last frame is written."""
            if b"[DONE]" not in message.get("body", b"") and (stream or not message.get("body")):
                return
            other = open_store(str(path), create=False)
            [info] = other.sessions()
            trace = other.load(info.session)
            other.close()
            assert trace.events("served", "semantic")[-1] == End()
            frames = trace.events("served", "frame")
            seen.append(frames[-1].data.decode())
            assert b"".join(frame.data for frame in frames[1:]) == exchange.body + message["body"]
            assert Replayer().replay(trace).verdict == "same"

        exchange.on_send = look
        await exchange.run(server)
    store.close()
    assert len(seen) == 1
    assert exchange.complete


@pytest.mark.anyio
async def test_strict_with_a_store_that_fails_is_an_error_in_the_stream(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    store = open_store(str(path), busy_s=0.02, window_s=0.001)
    async with serving(store, ScriptedEngine([ANSWER], pace=0.01), strict=True) as server:
        with locked(path):
            exchange = await Exchange(chat()).run(server)
    store.close()
    assert exchange.status == 200
    *_, error, done = blocks(exchange.body)
    assert done == "data: [DONE]"
    assert json.loads(error[6:])["error"]["code"] == "store_unavailable"
    assert exchange.complete


@pytest.mark.anyio
async def test_strict_with_a_store_that_fails_is_a_status_before_the_body(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    store = open_store(str(path), busy_s=0.02, window_s=0.001)
    async with serving(store, ScriptedEngine([ANSWER]), strict=True) as server:
        with locked(path):
            exchange = await Exchange(chat(stream=False)).run(server)
        assert (exchange.status, exchange.error["code"]) == (503, "store_unavailable")
        assert exchange.headers["retry-after"] == "1"
        assert b"Two" not in exchange.body
        # It recovers with its store.
        assert (await Exchange(chat(stream=False)).run(server)).status == 200
    store.close()


@pytest.mark.anyio
async def test_strict_does_not_hold_back_what_is_not_the_end(tmp_path: Path) -> None:
    """Text goes out as it comes; only what is left when the session has ended waits for the disk."""
    path = tmp_path / "sessions.db"
    store = open_store(str(path), busy_s=30)
    async with serving(store, ScriptedEngine([ANSWER], awaited=True, pace=0.01), strict=True) as server:
        exchange = Exchange(chat())
        async with anyio.create_task_group() as tasks:
            with locked(path):
                seen = anyio.Event()

                def look(message: Message) -> None:
                    if b"day." in message.get("body", b""):
                        seen.set()

                exchange.on_send = look
                tasks.start_soon(exchange.run, server)
                with anyio.fail_after(10):
                    await seen.wait()
                assert b"[DONE]" not in exchange.body
    store.close()
    assert blocks(exchange.body)[-1] == "data: [DONE]"


def test_strict_over_a_socket(tmp_path: Path) -> None:
    with serve(tmp_path, "--durability", "strict", script=ANSWER) as running, running.stream() as wire:
        wire.until(b"[DONE]")
        store = open_store(str(running.store), create=False)
        trace = store.load(wire.id.removeprefix("chatcmpl-"))
        store.close()
        assert b"".join(frame.data for frame in trace.events("served", "frame")[1:]) == wire.read
        wire.rest()
