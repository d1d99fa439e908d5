"""The hand-over from a thread to the event loop."""

from __future__ import annotations

import threading
from collections.abc import Callable

import anyio
import anyio.to_thread
import pytest

from pipeline.engines.stream import UNREAD, Handover
from stages.events import ErrorInput, Input, PrefillInput, UsageInput
from tests.support.engines import drain

pytestmark = pytest.mark.anyio


def nothing() -> None:
    """No one waits for room."""


def numbered(start: int, end: int) -> list[Input]:
    return [PrefillInput(index, index + 1) for index in range(start, end)]


async def test_everything_arrives_once_and_in_order_from_a_thread() -> None:
    stream = Handover(nothing)

    def produce() -> None:
        for index in range(0, 5000, 5):
            stream.put(numbered(index, index + 5))
        stream.put([UsageInput(1, 2)])

    thread = threading.Thread(target=produce)
    thread.start()
    assert await drain(stream) == [*numbered(0, 5000), UsageInput(1, 2)]
    thread.join()


async def test_a_sleeping_reader_is_woken_and_gets_all_that_waits() -> None:
    stream = Handover(nothing)
    got: list[list[Input]] = []

    async def read() -> None:
        got.append(await stream.receive())
        got.append(await stream.receive())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        await anyio.wait_all_tasks_blocked()
        # Two puts before the loop runs again: one wake-up, one list.
        stream.put(numbered(0, 2))
        stream.put(numbered(2, 3))
        await anyio.wait_all_tasks_blocked()
        assert got == [numbered(0, 3)]
        await anyio.to_thread.run_sync(lambda: stream.put([UsageInput(1, 1)]))
    assert got[1] == [UsageInput(1, 1)]


async def test_one_wake_up_for_many_puts() -> None:
    stream = Handover(nothing)
    wake_ups: list[Callable[[], object]] = []
    # In place of the loop, which tells nobody how often it was woken.
    stream._call_soon = wake_ups.append  # pyright: ignore[reportPrivateUsage]

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(drain, stream)
        await anyio.wait_all_tasks_blocked()
        for index in range(50):
            stream.put(numbered(index, index + 1))
        stream.put([UsageInput(1, 1)])
        assert len(wake_ups) == 1
        wake_ups[0]()


async def test_after_the_terminal_input_comes_the_end_of_stream_for_ever() -> None:
    stream = Handover(nothing)
    stream.put([*numbered(0, 1), ErrorInput("engine", "no")])
    stream.put(numbered(1, 2))
    assert await stream.receive() == [*numbered(0, 1), ErrorInput("engine", "no")]
    for _ in range(2):
        with pytest.raises(anyio.EndOfStream):
            await stream.receive()


async def test_a_cancelled_receive_loses_nothing() -> None:
    stream = Handover(nothing)
    with anyio.CancelScope() as waiting:
        waiting.cancel()
        await stream.receive()
    stream.put(numbered(0, 1))
    with anyio.CancelScope() as ready:
        ready.cancel()
        await stream.receive()
    assert ready.cancelled_caught
    stream.put(numbered(1, 2))
    assert await stream.receive() == numbered(0, 2)


async def test_a_wake_up_that_meets_a_cancellation_loses_nothing() -> None:
    stream = Handover(nothing)
    scope = anyio.CancelScope()
    got: list[Input] = []

    async def read() -> None:
        with scope:
            got.extend(await stream.receive())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        await anyio.wait_all_tasks_blocked()
        stream.put(numbered(0, 1))
        scope.cancel()
    stream.put([*numbered(1, 2), UsageInput(1, 1)])
    assert got + await drain(stream) == [*numbered(0, 2), UsageInput(1, 1)]


async def test_full_until_read_and_then_the_producer_is_told() -> None:
    told: list[bool] = []
    stream = Handover(lambda: told.append(stream.full))
    stream.put(numbered(0, UNREAD - 1))
    assert not stream.full
    stream.put(numbered(UNREAD - 1, UNREAD))
    assert stream.full
    assert len(await stream.receive()) == UNREAD
    assert told == [False]


async def test_a_reader_that_keeps_up_tells_nobody() -> None:
    told: list[None] = []
    stream = Handover(lambda: told.append(None))
    for index in range(3):
        stream.put(numbered(index, index + 1))
        await stream.receive()
    assert told == []


async def test_abort_ends_a_waiting_reader_and_takes_nothing_more() -> None:
    told: list[None] = []
    stream = Handover(lambda: told.append(None))
    ended: list[bool] = []

    async def read() -> None:
        with pytest.raises(anyio.EndOfStream):
            await stream.receive()
        ended.append(True)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        await anyio.wait_all_tasks_blocked()
        stream.abort()
        stream.abort()
    assert ended == [True]
    assert told == [None]
    assert stream.aborted
    stream.put(numbered(0, 1))
    with pytest.raises(anyio.EndOfStream):
        await stream.receive()


def test_a_producer_outlives_the_event_loop(anyio_backend_name: str) -> None:
    streams: list[Handover] = []

    async def leave_while_reading() -> None:
        stream = Handover(nothing)
        streams.append(stream)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await stream.receive()

        async def read() -> None:
            await stream.receive()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()

    anyio.run(leave_while_reading, backend=anyio_backend_name)
    streams[0].put(numbered(0, 1))
    streams[0].put([UsageInput(1, 1)])
    assert streams[0].closed
