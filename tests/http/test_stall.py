"""Clients that take nothing, over real sockets: what the server holds of them, and for how long."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from pathlib import Path

import anyio
import pytest
from starlette.types import Message
from trio.testing import MockClock

from pipeline.http.connection import Link
from pipeline.http.serve import FrameWriter, Stalled
from stages.events import AbortInput, Block, Sent, UsageInput
from store.api import Trace
from tests.support.server import Running, blocks, eventually, serve
from tests.support.sockets import Reader, held, rested

WORDS = 20_000
SCRIPT = ["word "] * WORDS
"""About 4 MB of frames."""
SOON = "0.4"


def taken(trace: Trace) -> int:
    """How many frames the socket took, by the record."""
    [sent] = trace.events("socket", "frame")
    assert isinstance(sent, Sent)
    return sent.seq


def only(running: Running) -> Trace:
    """Its one session, once that is there and has ended."""
    [info] = eventually(lambda: running.sessions() or None)
    return running.recorded(info.session)


def test_wait_has_no_limit(tmp_path: Path) -> None:
    """The client reads in the end, and gets everything."""
    with serve(tmp_path, "--stall", "wait", script=SCRIPT, effort=False) as running:
        with running.raw(stream=True) as client:
            rested(running)
            assert running.health()["sessions"] == 1
            assert held(running, client)
            read = b"".join(Reader(client).rest())
        trace = only(running)
    assert trace.info.state == "closed"
    frames = trace.events("served", "frame")
    assert read == b"".join(frame.data for frame in frames[1:])
    assert taken(trace) == len(frames)


def test_abort_ends_the_session_and_closes_the_connection(tmp_path: Path) -> None:
    with serve(tmp_path, "--stall", "abort", "--stall-after", SOON, script=SCRIPT, effort=False) as running:
        with running.raw(stream=True) as client:
            trace = only(running)
            eventually(lambda: running.health()["sessions"] == 0 or None)
            eventually(lambda: not held(running, client) or None)
            with pytest.raises((ConnectionResetError, EOFError)):
                Reader(client).rest()
    assert trace.info.state == "aborted"
    inputs = trace.events("input", "engine")
    assert inputs[-1] == AbortInput("timeout")
    assert len(inputs) < WORDS
    # The error is recorded, and nothing says that the client got it.
    frames = trace.events("served", "frame")
    assert b'"error"' in frames[-2].data
    assert taken(trace) < len(frames) - 2
    assert "aborted by timeout" in running.log.read_text()


def test_detach_lets_the_session_go_on_to_its_end(tmp_path: Path) -> None:
    with serve(tmp_path, "--stall", "detach", "--stall-after", SOON, script=SCRIPT, effort=False) as running:
        with running.raw(stream=True) as client:
            trace = only(running)
            eventually(lambda: running.health()["sessions"] == 0 or None)
            eventually(lambda: not held(running, client) or None)
    assert trace.info.state == "detached"
    inputs = trace.events("input", "engine")
    assert inputs[-1] == UsageInput(inputs[0].count, WORDS + 1)
    frames = trace.events("served", "frame")
    assert frames[-1] == Block(b"data: [DONE]\n\n")
    assert taken(trace) < WORDS
    assert trace.info.message[0]["content"] == "word " * WORDS
    assert "detached" in running.log.read_text()


@pytest.mark.parametrize("how", ["detach", "abort"])
def test_a_body_that_is_not_read(tmp_path: Path, how: str) -> None:
    """Without streaming there is one write, after the end of the session."""
    with serve(
        tmp_path, "--stall", how, "--stall-after", SOON, script=["word " * 100] * 5_000, effort=False
    ) as running:
        with running.raw() as client:
            trace = only(running)
            eventually(lambda: running.health()["sessions"] == 0 or None)
            eventually(lambda: not held(running, client) or None)
    # It came to its end before anybody was late: there was nothing left to abort.
    assert trace.info.state == "detached"
    assert isinstance(trace.events("input", "engine")[-1], UsageInput)
    assert taken(trace) == 1  # the head


class Takes(Link):
    """A connection whose client takes a byte at each of these times, and the kernel none for it."""

    def __init__(self, times: Sequence[float]) -> None:
        self._times = times
        self.written = 0

    async def send(self, message: Message) -> None:
        """What is written to it, as an ASGI application does."""
        self.written += len(message.get("body", b""))

    @property
    def unsent(self) -> int:
        """See Link."""
        return self.written - sum(at <= anyio.current_time() for at in self._times[: self.written])

    @property
    def unread(self) -> int:
        """See Link."""
        return self.unsent

    async def drained(self) -> None:
        """See Link."""
        left = self.unsent
        if left:
            await anyio.sleep_until(inf if self.written > len(self._times) else self._times[self.written - 1])

    async def abort(self) -> None:
        """See Link."""

    async def close(self) -> None:
        """See Link."""


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    """A clock that jumps to the next thing that is due, whenever all tasks wait."""
    return "trio", {"clock": MockClock(autojump_threshold=0)}


@pytest.mark.anyio
async def test_a_client_that_is_slow_is_not_one_that_stalls() -> None:
    """It takes little at a time, for many times the limit."""
    client = Takes([3.0 * (number + 1) for number in range(40)])
    writer = FrameWriter(client.send, client, patience=4)
    await writer.write([Block(b"x" * 40)])
    assert (anyio.current_time(), writer.size) == (120.0, 40)


@pytest.mark.anyio
async def test_a_client_that_takes_nothing_more_has_the_limit_from_the_last_that_it_took() -> None:
    client = Takes([3.0, 6.0, 9.5])
    writer = FrameWriter(client.send, client, patience=4)
    with pytest.raises(Stalled):
        await writer.write([Block(b"x" * 40)])
    # It is looked at four times in as long.
    assert 9.5 + 4 <= anyio.current_time() <= 9.5 + 5
    assert writer.size == 0


def test_a_stop_leaves_no_connection_behind(tmp_path: Path) -> None:
    """The server's log has no complaint, and it does not wait for who does not read."""
    with serve(tmp_path, "--stall", "wait", "--shutdown-grace", "0.1", script=SCRIPT, effort=False) as running:
        with running.raw(stream=True) as client:
            rested(running)
            assert running.stop() == 0
            with pytest.raises((ConnectionResetError, EOFError)):
                Reader(client).rest()
        trace = only(running)
    assert trace.info.state == "aborted"
    assert trace.events("input", "engine")[-1] == AbortInput("shutdown")
    assert taken(trace) < len(trace.events("served", "frame"))
    assert "ERROR" not in running.log.read_text()


def test_a_limit_without_a_consequence_is_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(AssertionError, match="--stall-after needs --stall detach or abort"),
        serve(tmp_path, "--stall", "wait", "--stall-after", "5"),
    ):
        pass


def test_the_other_clients_do_not_notice(tmp_path: Path) -> None:
    with serve(tmp_path, "--stall", "wait", script=["Two ", *["word "] * WORDS], effort=False) as running:
        with running.raw(stream=True):
            rested(running)
            with running.stream(max_tokens=1) as wire:
                assert blocks(wire.rest())[-1] == "data: [DONE]"
