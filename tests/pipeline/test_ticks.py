"""When a comment is due: the clock is the test's own, so every time is exact, in seconds since the session began."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

import anyio
import pytest
from trio.testing import MockClock

from pipeline.recorder import SessionRecorder
from pipeline.session import Session
from replay import derive
from stages import catalog
from stages.events import Block, Comment, ErrorInput, Frame, Head, Input, PrefillInput, ScheduledInput, Tick
from stages.opening import Opening
from tests.support.live import Taps, opening, tokens, whole


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    """A clock that jumps to the next thing that is due, whenever all tasks wait."""
    return "trio", {"clock": MockClock(autojump_threshold=0)}


class Timed:
    """An engine's stream that gives each group at its time, and then nothing."""

    def __init__(self, groups: Sequence[tuple[float, list[Input]]]) -> None:
        self._groups = list(groups)
        self._over = anyio.Event()

    async def receive(self) -> list[Input]:
        """See EngineStream. A wait that is cancelled begins again where it was."""
        at, group = self._groups[0] if self._groups else (inf, [])
        with anyio.CancelScope(deadline=at) as waiting:
            await self._over.wait()
        if not waiting.cancelled_caught:
            raise anyio.EndOfStream
        self._groups.pop(0)
        return group

    def abort(self) -> None:
        """See EngineStream."""
        self._over.set()


KINDS: dict[type[Any], str] = {Head: "head", Block: "block", Comment: "comment"}


async def heard(
    opened: Opening, groups: Sequence[tuple[float, list[Input]]], until: float, **options: Any
) -> list[tuple[float, str]]:
    """What a client hears, and when. It leaves at ``until``. The clock begins at 0, and the session with it."""
    taps = Taps()
    session = Session(opened, catalog.layers(opened), Timed(groups), SessionRecorder(taps, lambda: 0), **options)
    found: list[tuple[float, str]] = []
    frames: list[Frame] = []

    async def listen() -> None:
        async with session.frames as reader:
            async for batch in reader:
                frames.extend(batch)
                if session.aborted_by is None:
                    found.extend((anyio.current_time(), KINDS[type(frame)]) for frame in batch)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.run)
        tasks.start_soon(listen)
        await anyio.sleep(until)
        session.abort("client")
    # A tick is recorded, and the frames are a function of what is recorded.
    assert frames == derive(opened, taps.events("engine")).frame.events
    return found


def comments(found: list[tuple[float, str]]) -> list[float]:
    return [at for at, kind in found if kind == "comment"]


[_prompt, _scheduled, *TOKENS] = whole([tokens("Two a day.", 1, largest=1)])[:12]
PROMPT, SCHEDULED = [_prompt], [_scheduled]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("commit_after", "keep_alive", "due"),
    [(10, 5, [5, 10]), (2, 6, [2, 8]), (10, 15, [10]), (10, 0, [10]), (3, 0, [3]), (20, 15, []), (0, 0, [0])],
)
async def test_the_head_is_there_after_the_shorter_of_both_times(
    commit_after: float, keep_alive: float, due: list[float]
) -> None:
    found = await heard(opening(), [(12, PROMPT)], 12.5, commit_after=commit_after, keep_alive=keep_alive)
    assert comments(found) == due
    assert found[0] == ((due[0] if due else 12), "head")
    assert (12, "block") in found


@pytest.mark.anyio
async def test_admission_in_time_needs_no_comment() -> None:
    found = await heard(opening(), [(9, PROMPT)], 1000, commit_after=10, keep_alive=0)
    assert found == [(9, "head"), (9, "block")]


@pytest.mark.anyio
async def test_a_silence_begins_with_the_last_frame() -> None:
    """Whenever that was: it is never longer than the interval."""
    groups = [(1.0, PROMPT), *[(at, [token]) for at, token in zip((2.0, 6.5, 16.0), TOKENS, strict=False)]]
    found = await heard(opening("plain"), groups, 20, keep_alive=5)
    assert comments(found) == [11.5]
    assert [at for at, kind in found if kind == "block"] == [1, 2, 6.5, 16]


@pytest.mark.anyio
async def test_frames_more_often_than_the_interval_leave_no_room_for_a_comment() -> None:
    groups = [(0.0, PROMPT), *[(4.0 * at, [token]) for at, token in enumerate(TOKENS, 1)]]
    assert comments(await heard(opening("plain"), groups, 41, keep_alive=5)) == []


@pytest.mark.anyio
async def test_a_long_prefill_is_silent() -> None:
    """The engine speaks every second, and its client hears nothing of it."""
    prefill: list[tuple[float, list[Input]]] = [(float(at), [PrefillInput(at - 1, at)]) for at in range(1, 13)]
    found = await heard(opening(), [(0, [*PROMPT, *SCHEDULED]), *prefill], 12.5, keep_alive=5)
    assert found == [(0, "head"), (0, "block"), (5, "comment"), (10, "comment")]


@pytest.mark.anyio
async def test_text_that_is_withheld_is_silent() -> None:
    """A call that only comes out whole: every step is an input, and none gives a frame."""
    held = tokens('<tool_call>\n{"name": "tide", "arguments": {"port": "Brest"}}', 1, largest=2)
    groups = [(0.0, PROMPT), *[(float(at), [token]) for at, token in enumerate(held, 1)]]
    found = await heard(opening(calls="whole"), groups, 12.5, keep_alive=5)
    assert len(held) > 12
    assert found == [(0, "head"), (0, "block"), (5, "comment"), (10, "comment")]


@pytest.mark.anyio
async def test_an_error_after_a_comment_is_in_the_stream() -> None:
    found = await heard(opening(), [(7, [ErrorInput("bad_request", "Too long.")])], 8, keep_alive=5)
    assert [kind for _, kind in found] == ["head", "comment", "block", "block"]


@pytest.mark.anyio
async def test_a_client_that_does_not_read_gets_no_more_comments_than_channels_hold() -> None:
    """A thousand times the interval passes."""
    opened = opening()
    taps = Taps()
    session = Session(
        opened, catalog.layers(opened), Timed([(0, PROMPT)]), SessionRecorder(taps, lambda: 0), keep_alive=1
    )
    frames: list[Frame] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.run)
        await anyio.sleep(1000)
        session.abort("client")
        async with session.frames as reader:
            frames += [frame async for batch in reader for frame in batch]
    assert 1 <= taps.events("engine").count(Tick()) <= 4
    assert frames == derive(opened, taps.events("engine")).frame.events


@pytest.mark.anyio
async def test_a_comment_that_is_late_is_left_out() -> None:
    """It was due while everything waited for the client, and now there are frames."""
    opened, taps = opening("plain"), Taps()
    inputs = whole([tokens("word " * 3000, 1)])
    stream = Timed([(0, inputs[at : at + 256]) for at in range(0, len(inputs), 256)])
    session = Session(opened, catalog.layers(opened), stream, SessionRecorder(taps, lambda: 0), keep_alive=5)
    frames: list[Frame] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.run)
        await anyio.sleep(100)
        async with session.frames as reader:
            frames += [frame async for batch in reader for frame in batch]
    assert taps.events("engine") == inputs
    assert comments([(0, KINDS[type(frame)]) for frame in frames]) == []


@pytest.mark.anyio
async def test_without_streaming_there_is_no_tick() -> None:
    found = await heard(opening(stream=False), [(50, PROMPT), (60, [ScheduledInput()])], 100, keep_alive=1)
    assert found == []
