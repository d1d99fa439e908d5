"""Requests whose constraint takes long to compile, beside others."""

from __future__ import annotations

import threading
from collections.abc import Callable

import anyio
import anyio.to_thread
import pytest

from pipeline.engines.base import FAILED, SHUTDOWN, EngineRequest
from stages.constraint import Constraint
from stages.errors import RequestError
from stages.events import ErrorInput, PromptInput, UsageInput
from stages.grammar import Literal
from stages.parse.formats.plain import PLAIN
from tests.support.counter import PROMPT, Counter, counted, running
from tests.support.engines import ask, drain

pytestmark = pytest.mark.anyio

HELD = Constraint(Literal("x"), PLAIN)
PATIENCE = 20.0


class Compiling(Counter):
    """A hold waits until it is let go on. ``holding``: a permit for each that was begun."""

    def __init__(self) -> None:
        super().__init__()
        self.holding = threading.Semaphore(0)
        self.let = threading.Event()
        self.left: list[bool] = []
        self.hold_hook = self._hold

    def _hold(self, wanted: Callable[[], bool]) -> None:
        self.holding.release()
        assert self.let.wait(PATIENCE)
        self.left.append(not wanted())


def held(session: str = "held") -> EngineRequest:
    return ask(session=session, max_tokens=1, constraint=HELD)


async def test_others_are_served_while_one_compiles() -> None:
    backend = Compiling()
    async with running(backend) as loop:
        slow = [loop.submit(held(f"held{number}")) for number in range(3)]
        await counted(backend.holding, 3)
        assert isinstance((await drain(loop.submit(ask(max_tokens=1))))[-1], UsageInput)
        backend.let.set()
        for stream in slow:
            inputs = await drain(stream)
            assert inputs[0] == PromptInput(tuple(range(PROMPT)), "tail", PROMPT)
            assert inputs[-1] == UsageInput(PROMPT, 1)


async def test_a_refusal_is_all_that_is_sent(caplog: pytest.LogCaptureFixture) -> None:
    backend = Counter()

    def refuse(wanted: Callable[[], bool]) -> None:
        raise RequestError("no such schema", param="tools", code="unsupported_schema")

    def fail(wanted: Callable[[], bool]) -> None:
        raise KeyError("x")

    async with running(backend) as loop:
        backend.hold_hook = refuse
        assert await drain(loop.submit(held())) == [
            ErrorInput("bad_request", "no such schema", "unsupported_schema", "tools")
        ]
        backend.hold_hook = fail
        assert await drain(loop.submit(held())) == [FAILED]
    assert [record.name for record in caplog.records] == ["playhead.engine"]


async def test_a_reader_that_leaves_meanwhile_costs_no_more(caplog: pytest.LogCaptureFixture) -> None:
    backend = Compiling()
    async with running(backend, max_live=2) as loop:
        streams = [loop.submit(held(name)) for name in "abc"]
        await counted(backend.holding, 2)
        for stream in streams:
            stream.abort()
        backend.let.set()
        # Both are told that they are not wanted; the third is not begun.
        assert isinstance((await drain(loop.submit(held("d"))))[-1], UsageInput)
    assert sorted(backend.left) == [False, True, True]
    assert set(backend.passes) == {"d"}
    assert caplog.records == []


async def test_leaving_tells_all_at_once_and_waits_for_what_compiles() -> None:
    backend = Compiling()
    async with running(backend, max_live=2) as loop:
        streams = [loop.submit(held(name)) for name in "abc"]
        await counted(backend.holding, 2)

        async def told() -> None:
            for stream in streams:
                assert await drain(stream) == [SHUTDOWN]
            backend.let.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(told)
            with anyio.fail_after(PATIENCE):
                await anyio.to_thread.run_sync(loop.stop)
    assert backend.left == [True, True]
    assert backend.passes == []
