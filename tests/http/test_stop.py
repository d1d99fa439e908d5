"""The server's end: a stop signal while streams run, a client that does not read, and kill -9."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import httpx2
import pytest

from replay import Replayer
from stages.events import AbortInput
from tests.support.resuming import until_stored
from tests.support.server import PATIENCE, blocks, eventually, objects, replayed, serve


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_signal_ends_streams_with_an_error(tmp_path: Path, how: signal.Signals) -> None:
    with serve(tmp_path, "--pace", "3600", "--shutdown-grace", "0.1") as running, running.stream(n=2) as wire:
        wire.until(b'"role"', 2)
        running.process.send_signal(how)
        *_, error, done = blocks(wire.rest())
        assert done == "data: [DONE]"
        assert json.loads(error[6:])["error"]["type"] == "server_error"
        assert running.process.wait(PATIENCE) == 0
        assert running.sessions()[0].state == "aborted"
        trace = running.recorded(wire.id)
        assert trace.events("input", "engine")[-1] == AbortInput("shutdown")
        assert b"".join(frame.data for frame in trace.events("served", "frame")[1:]) == wire.read
        assert list(tmp_path.glob("*-lease-*")) == []


def test_a_stream_may_finish_within_the_grace(tmp_path: Path) -> None:
    words = ["Two ", "a ", "day, ", "says ", "the ", "almanac."]
    with serve(tmp_path, "--pace", "0.05", script=words) as running, running.stream() as wire:
        wire.until(b"a ")
        running.process.send_signal(signal.SIGTERM)
        wire.rest()
        assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in objects(wire.read)) == "".join(
            words
        )
        assert running.process.wait(PATIENCE) == 0
        assert running.recorded(wire.id).info.state == "closed"


def test_a_client_that_does_not_read_does_not_hold_the_server_up(tmp_path: Path) -> None:
    with (
        serve(tmp_path, "--shutdown-grace", "0.1", script=["word " * 20] * 50_000) as running,
        running.raw(stream=True) as client,
    ):
        begun = client.recv(2000)
        assert begun.startswith(b"HTTP/1.1 200 OK\r\n")
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(PATIENCE) == 0
    [info] = running.sessions()
    assert info.state == "aborted"
    assert info.completion_tokens is not None
    assert info.completion_tokens < 50_000


def test_a_second_ctrl_c_does_not_wait(tmp_path: Path) -> None:
    with serve(tmp_path, "--pace", "3600", "--shutdown-grace", "3600") as running, running.stream() as wire:
        wire.until(b'"role"')
        running.process.send_signal(signal.SIGINT)

        def refused() -> bool | None:
            try:
                httpx2.get(f"{running.address}/health", timeout=PATIENCE)
            except httpx2.ConnectError:
                return True
            except httpx2.TransportError:
                pass  # it had a connection already, and was not asked yet
            return None

        eventually(refused)
        running.process.send_signal(signal.SIGINT)
        assert running.process.wait(PATIENCE) == 0
        assert running.recorded(wire.id).info.state == "aborted"


def test_kill_9_leaves_a_readable_store(tmp_path: Path) -> None:
    with serve(tmp_path, "--pace", "0.02", script=["Two ", "a "] * 10_000) as running:
        whole = running.post(max_tokens=2).json()["id"]
        with running.stream() as wire:
            wire.until(b'"Two "', 20)
            until_stored(running, [wire.id], 5)
            running.recorded(whole)
            running.process.kill()
            assert running.process.wait(PATIENCE) == -signal.SIGKILL
    states = {info.session: info.state for info in running.sessions()}
    assert states == {whole.removeprefix("chatcmpl-"): "closed", wire.id.removeprefix("chatcmpl-"): "torn"}
    torn = running.recorded(wire.id)
    frames = b"".join(frame.data for frame in torn.events("served", "frame")[1:])
    # What the client has read may be ahead of what was stored, or behind it.
    assert frames
    assert wire.read.startswith(frames) or frames.startswith(wire.read)
    assert Replayer().replay(torn).verdict == "same"
    # A new server takes the store over.
    with serve(tmp_path, script=["Hi."]) as again:
        assert again.post().status_code == 200
    assert sorted(result.state for result in replayed(running.store)) == ["closed", "closed", "torn"]
