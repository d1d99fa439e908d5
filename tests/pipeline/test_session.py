"""A live session under pressure, aborted, ticking, cancelled, with a parser that fails."""

from __future__ import annotations

from typing import Any

import anyio
import msgspec
import pytest
from anyio.lowlevel import checkpoint

from pipeline.channels import MAX_BYTES, MAX_EVENTS, slices
from pipeline.http.live import Held
from pipeline.http.serve import serve_session
from pipeline.recorder import SessionRecorder
from pipeline.session import Session, stop_watch
from replay import derive
from stages import catalog
from stages.events import AbortInput, Block, Comment, Content, Event, Failure, Frame, Head, Input, Tick, TokensInput
from stages.opening import Opening
from tests.support.live import OUTPUTS, ListStream, Taps, drained, opening, run_live, tokens, whole

SIZE = 2
CHANNELS = 4
# Each of the four channels holds SIZE lists and one in its writer's hand; the reader of each holds one batch, for which
# it may have taken one list more than it needed.
CEILING = CHANNELS * (SIZE + 1 + 2) * MAX_EVENTS


def started(opened: Opening, stream: ListStream, taps: Taps, **options: Any) -> Session:
    layers = catalog.layers(opened, options.pop("parser", None))
    return Session(opened, layers, stream, SessionRecorder(taps, lambda: 0), channel_size=SIZE, **options)


async def settle() -> None:
    """Let every task run until all of them wait."""
    for _ in range(2000):
        await checkpoint()


@pytest.mark.anyio
async def test_a_slow_reader_stops_the_engine_within_the_ceiling() -> None:
    inputs = whole([tokens("word " * 20_000, 1)])
    stream = ListStream([inputs[i : i + 100] for i in range(0, len(inputs), 100)])
    taps = Taps()
    session = started(opening("plain"), stream, taps, keep_alive=0)
    frames: list[Frame] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.run)
        await settle()
        # Nothing was read: what the engine gave is in the channels, and no more than they hold.
        assert 0 < stream.taken <= CEILING < len(inputs)
        before = stream.taken
        await settle()
        assert stream.taken == before
        async with session.frames as reader:
            async for batch in reader:
                assert len(batch) <= MAX_EVENTS
                frames += batch
                await checkpoint()
                # Semantic events: a Tokens and a text each; inputs that are in flight have not all become frames.
                assert stream.taken - (len(frames) - 5) <= CEILING
    assert frames == derive(session.opening, inputs).frame.events
    assert taps.events("engine") == inputs


def test_lists_on_channels_obey_the_limits() -> None:
    texts = [Content(0, "x" * size, (0, size)) for size in (10, 70_000, 10, *[5_000] * 40, *[1] * 600)]
    parts = list(slices(texts))
    assert [event for part in parts for event in part] == texts
    for part in parts:
        assert len(part) <= MAX_EVENTS
        assert len(part) == 1 or sum(len(event.text) for event in part) <= MAX_BYTES
    assert list(slices(texts[:3])) == [texts[:3]]


@pytest.mark.anyio
@pytest.mark.parametrize("by", ["client", "timeout", "cancel", "shutdown"])
@pytest.mark.parametrize("taken", [0, 1, 3, 10])
async def test_an_abort_is_the_last_input_and_the_stages_run_to_their_end(by: Any, taken: int) -> None:
    inputs = whole([tokens(OUTPUTS[2], 1)])[:taken]
    stream = ListStream([[event] for event in inputs], endless=True)
    taps = Taps()
    opened = opening()
    session = started(opened, stream, taps, keep_alive=0)
    frames: list[Frame] = []

    async def read() -> None:
        async with session.frames as reader:
            async for batch in reader:
                frames.extend(batch)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.run)
        tasks.start_soon(read)
        await settle()
        session.abort(by)
        session.abort("cancel")
    assert stream.aborted
    assert taps.events("engine") == [*inputs, AbortInput(by)]
    assert frames == derive(opened, [*inputs, AbortInput(by)]).frame.events
    assert session.aborted_by == by


@pytest.mark.anyio
async def test_an_abort_after_the_last_input_changes_nothing() -> None:
    inputs = whole([tokens("Two a day.", 1)])
    session = started(opening(), ListStream([inputs]), Taps(), keep_alive=0)
    frames: list[Frame] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.run)
        await settle()
        session.abort("client")
        frames += await drained(session)
    assert session.aborted_by is None
    assert frames == derive(session.opening, inputs).frame.events


@pytest.mark.anyio
async def test_an_abort_while_the_source_is_blocked_loses_nothing() -> None:
    inputs = whole([tokens("word " * 5_000, 1)])
    stream = ListStream([inputs[i : i + 256] for i in range(0, len(inputs), 256)])
    taps = Taps()
    session = started(opening("plain"), stream, taps, keep_alive=0)
    frames: list[Frame] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.run)
        await settle()
        session.abort("client")
        frames += await drained(session)
    recorded = taps.events("engine")
    assert recorded == [*inputs[: len(recorded) - 1], AbortInput("client")]
    assert frames == derive(session.opening, recorded).frame.events


@pytest.mark.anyio
async def test_a_reader_that_leaves_does_not_stop_the_recording() -> None:
    inputs = whole([tokens("word " * 5_000, 1)])
    taps = Taps()
    session = started(
        opening("plain"), ListStream([inputs[i : i + 50] for i in range(0, len(inputs), 50)]), taps, keep_alive=0
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.run)
        async with session.frames as reader:
            await reader.receive()
    assert taps.events("engine") == inputs
    assert taps.events("frame") == derive(session.opening, inputs).frame.events


@pytest.mark.anyio
async def test_cancelled_from_outside_it_still_ends_its_record() -> None:
    inputs = whole([tokens("Two a day.", 1)])[:4]
    stream = ListStream([inputs], endless=True)
    taps = Taps()
    session = started(opening(), stream, taps, keep_alive=0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.run)
        await settle()
        tasks.cancel_scope.cancel()
    session.frames.close()
    assert stream.aborted
    assert taps.events("engine") == [*inputs, AbortInput("shutdown")]
    assert taps.events("frame") == derive(session.opening, [*inputs, AbortInput("shutdown")]).frame.events


@pytest.mark.anyio
@pytest.mark.parametrize("room", [False, True])
async def test_what_comes_in_the_moment_of_an_abort_is_not_lost(room: bool) -> None:
    """The engine's stream returns, and in the same turn of the loop the session is interrupted."""
    inputs = whole([tokens("word " * (10 if room else 5_000), 1)])[:-2]
    groups = [inputs[i : i + 256] for i in range(0, len(inputs), 256)]

    class Stream(ListStream):
        async def receive(self) -> list[Input]:
            group = await super().receive()
            # The last ones find the channel full, where nobody reads.
            if self.taken == len(inputs) or self.taken > CEILING - 2 * MAX_EVENTS:
                session.abort("client")
            return group

    stream, taps = Stream(groups, endless=True), Taps()
    session = started(opening("plain"), stream, taps, keep_alive=0)
    frames: list[Frame] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.run)
        if not room:
            await settle()
        frames += await drained(session)
    assert taps.events("engine") == [*inputs[: stream.taken], AbortInput("client")]
    assert frames == derive(session.opening, taps.events("engine")).frame.events


@pytest.mark.anyio
async def test_an_abort_in_the_moment_of_the_end_changes_nothing() -> None:
    inputs = whole([tokens("Two a day.", 1)])

    class Stream(ListStream):
        async def receive(self) -> list[Input]:
            group = await super().receive()
            session.abort("client")
            return group

    taps = Taps()
    session = started(opening(), Stream([inputs]), taps, keep_alive=0)
    frames: list[Frame] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.run)
        frames += await drained(session)
    assert session.aborted_by is None
    assert taps.events("engine") == inputs
    assert frames == derive(session.opening, inputs).frame.events


@pytest.mark.anyio
async def test_silence_ticks_and_the_first_tick_decides_the_status() -> None:
    stream = ListStream([], endless=True)
    taps = Taps()
    session = started(opening(), stream, taps, commit_after=0.01, keep_alive=0.02)
    frames: list[Frame] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.run)
        async with session.frames as reader:
            async for batch in reader:
                frames += batch
                if len(frames) >= 4:
                    session.abort("cancel")
    head, *comments, error, done = frames
    assert isinstance(head, Head) and head.status == 200
    assert len(comments) >= 3
    assert set(comments) == {Comment(b": keep-alive\n\n")}
    assert isinstance(error, Block) and b'"error"' in error.data
    assert done == Block(b"data: [DONE]\n\n")
    assert taps.events("engine") == [*[Tick()] * len(comments), AbortInput("cancel")]
    assert frames == derive(session.opening, taps.events("engine")).frame.events


class Breaks:
    """A user's parser that raises: at its start, or on the nth token."""

    id = "breaks@1"

    def __init__(self, after: int) -> None:
        self._after = after

    def start(self, opening: Opening) -> Any:
        """See Stage."""
        if self._after < 0:
            raise ValueError("no start")
        inner = catalog.parser("plain").start(opening)
        left = self._after

        class Machine:
            def step(self, event: Input, out: list[Any]) -> None:
                nonlocal left
                if isinstance(event, TokensInput):
                    left -= 1
                    if left < 0:
                        out.append(Content(0, "half a step", (0, 0)))
                        raise ValueError("secret text")
                inner.step(event, out)

            def snapshot(self) -> Any:
                return inner.snapshot()

        return Machine()

    def resume(self, opening: Opening, snapshot: Any) -> Any:
        """Not used here."""
        raise NotImplementedError


@pytest.mark.anyio
@pytest.mark.parametrize("after", [-1, 0, 3])
async def test_a_parser_that_raises_ends_the_session_with_the_protocol_s_error(
    after: int, caplog: pytest.LogCaptureFixture
) -> None:
    inputs = whole([tokens("Two a day and more words.", 1)])
    taps = Taps()
    frames, _ = await run_live(opening("plain"), [[event] for event in inputs], writer=taps, parser=Breaks(after))
    bodies = b"".join(getattr(frame, "data", b"") for frame in frames)
    assert b'"code":"parser_error"' in bodies
    assert b"half a step" not in bodies
    assert "secret text" not in caplog.text
    status = [frame.status for frame in frames if isinstance(frame, Head)]
    assert status == [500 if after < 0 else 200]
    semantic: list[Event] = taps.events("semantic")
    assert [type(event) for event in semantic].count(Failure) == 1
    # What the engine had said by then is recorded.
    assert taps.events("engine") == inputs[: len(taps.events("engine"))]
    assert len(taps.events("engine")) > after


class BrokenFramer:
    """A stage of ours with a bug."""

    id = "broken@1"

    def start(self, opening: Opening) -> Any:
        """See Stage."""
        return self

    def resume(self, opening: Opening, snapshot: Any) -> Any:
        """See Stage."""
        return self

    def step(self, event: Any, out: list[Any]) -> None:
        """See Machine."""
        raise ValueError("a bug")

    def snapshot(self) -> Any:
        """Not used here."""
        raise NotImplementedError


@pytest.mark.anyio
@pytest.mark.parametrize(("broken", "state"), [(False, "closed"), (True, "aborted")])
async def test_closed_is_only_what_came_to_its_own_end(broken: bool, state: str) -> None:
    inputs = whole([tokens("Two a day.", 1)])[: 4 if broken else None]
    opened = opening("plain")
    layers = catalog.layers(opened)
    if broken:
        layers = msgspec.structs.replace(layers, framer=BrokenFramer())
    taps = Taps()
    stream = ListStream([[event] for event in inputs], endless=broken)
    session = Session(opened, layers, stream, SessionRecorder(taps, lambda: 0), keep_alive=0)

    async def silent() -> Any:
        await anyio.sleep_forever()

    async def send(message: Any) -> None:
        await checkpoint()

    try:
        with anyio.fail_after(20):
            await serve_session(Held(session), silent, send)
    except* ValueError as raised:
        assert broken, raised
    assert taps.state == state


def test_the_watch_sees_the_stop_string_on_the_step_that_completes_it() -> None:
    opened = opening(stop=("STOP",))
    watch = stop_watch(opened, catalog.layers(opened))
    assert watch is not None
    said: list[str] = []
    answers: list[str | None] = []
    for event in whole([[*tokens("<think>a ST", 1), *tokens("O</think>b S", 2), *tokens("TOP after", 3)]]):
        if isinstance(event, TokensInput):
            said.append(event.pieces[0].decode())
        answers.append(watch(event))
        if answers[-1]:
            break
    assert answers[-1] == "STOP"
    assert set(answers[:-1]) == {None}
    text = "".join(said)
    assert "STOP" in text and "STOP" not in text[: -len(said[-1])]
    without = opening()
    assert stop_watch(without, catalog.layers(without)) is None
