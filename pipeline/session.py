"""One session, live: engine inputs through the stages to frames, over bounded channels, recorded by taps.

    source ──inputs──▶ semantic stage ──semantic──▶ encoder ──chunks──▶ framer ──frames──▶ whoever reads ``frames``

One task a stage, never one per choice. What is not a function of what came before (ticks, aborts) enters as an input
in ``source``, so everything after it can be derived again from the record.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable
from math import inf
from typing import Any, Literal, NoReturn

import anyio
import msgspec
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from pipeline.channels import Tap, run_stage, send
from pipeline.engines.base import EngineStream, Watch
from pipeline.failing import Sent, error_chunks, error_frames
from pipeline.recorder import SessionRecorder
from pipeline.timings import Timings
from stages.catalog import PROTOCOLS, Layers
from stages.events import (
    AbortInput,
    End,
    ErrorInput,
    Failure,
    Finish,
    Frame,
    Input,
    Semantic,
    Tick,
    UsageInput,
)
from stages.opening import Opening
from stages.stage import Machine

log = logging.getLogger("playhead.session")

AbortBy = Literal["client", "timeout", "cancel", "shutdown"]


def stop_watch(opening: Opening, layers: Layers) -> Watch | None:
    """What the engine folds to end generation on the step on which a stop string is complete; None without any.

    The same stages that serve the session, so that both see the same match on the same step. Where a user's parser
    raises it stops watching: the session's own run of it is the one that fails the session.
    """
    if not opening.ask.stop:
        return None
    machine: Machine[Input, Semantic] | None = None
    with contextlib.suppress(Exception):  # a user's parser may raise anything
        machine = layers.semantic.start(opening)

    def watch(event: Input) -> str | None:
        nonlocal machine
        if machine is None:
            return None
        out: list[Semantic] = []
        try:
            machine.step(event, out)
        except Exception:  # as above
            machine = None
            return None
        for made in out:
            if isinstance(made, Finish) and made.reason == "stop":
                return str(made.detail)
        return None

    return watch


async def to_its_end(work: Callable[[], Awaitable[None]], abort: Callable[[AbortBy], None]) -> None:
    """Do the work of a session to its end. Cancelled from outside, it is aborted (``shutdown``), and still ends."""

    async def watch(scope: anyio.CancelScope) -> None:
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            if not scope.cancel_called:
                abort("shutdown")
            raise

    async with anyio.create_task_group() as outer:
        outer.start_soon(watch, outer.cancel_scope)
        with anyio.CancelScope(shield=True):
            await work()
        outer.cancel_scope.cancel()


class Session:
    """A live session. ``run`` it in a task group, read ``frames`` to the end, call ``abort`` at any time."""

    def __init__(
        self,
        opening: Opening,
        layers: Layers,
        stream: EngineStream,
        recorder: SessionRecorder,
        *,
        channel_size: int = 2,
        commit_after: float = 10.0,
        keep_alive: float = 15.0,
    ) -> None:
        """``channel_size``: lists per channel; ``commit_after``: seconds until a stream begins without admission;
        ``keep_alive``: seconds without a frame until there is a comment; 0: none but the one that begins it."""
        self.opening = opening
        self.path = PROTOCOLS[opening.protocol].path
        self._layers = layers
        self._stream = stream
        self.recorder = recorder
        self._causes: Callable[[list[Input]], list[int]] = getattr(stream, "causes", _nowhere)
        """Where the record says that inputs come from."""
        self._channel_size = channel_size
        self._commit_after = commit_after
        self._keep_alive = keep_alive
        self.aborted_by: AbortBy | None = None
        """Who, other than the engine, ended the session."""
        self._timings = Timings(recorder.elapsed) if opening.ask.metrics else None
        self._waiting = anyio.CancelScope()
        self._receiving = False
        self._tick_due = False
        self._tick_at = inf
        """When the client will have heard nothing for too long; frames put it off."""
        self._framed = anyio.Event()
        self._over = False
        self.last: Input | None = None
        """What the engine said last."""
        self.ended = False
        """The semantic layer has ended: what is still to come are the last frames."""
        self._last_chunk: Any = None
        """What came out of the encoder last."""
        self._frames_in, self.frames = self._channel()

    @property
    def broken(self) -> bool:
        """Its response ended before it was whole, and nothing in it says so: our stages always say so."""
        return False

    @property
    def keep_alive(self) -> float:
        """Seconds of silence before a comment; 0: never."""
        return self._keep_alive

    def _channel(self) -> tuple[MemoryObjectSendStream[list[Any]], MemoryObjectReceiveStream[list[Any]]]:
        return anyio.create_memory_object_stream[list[Any]](self._channel_size)

    def abort(self, by: AbortBy) -> None:
        """End the session: the engine stops within a step, the abort is the last input, the stages run to their end.
        Idempotent; without effect on a session that has ended."""
        if self.aborted_by is None and not self._over:
            self.aborted_by = by
            self._stream.abort()
            self._interrupt()

    def _interrupt(self) -> None:
        if self._receiving:
            self._waiting.cancel()

    def error_frames(self, failure: Failure, sent: Sent) -> list[Frame]:
        """The frames of a failure that is not part of the session's record, behind what was sent."""
        return error_frames(self.opening, failure, sent)

    async def run(self) -> None:
        """Serve until the last frame is in ``frames``. Cancelled from outside, it aborts (``shutdown``) and still runs
        to its end, which never waits for the engine and for a reader only as long as it reads."""
        try:
            await to_its_end(self._pipeline, self.abort)
        finally:
            self._stream.abort()

    async def _pipeline(self) -> None:
        opening, layers, tap = self.opening, self._layers, self.recorder.tap
        inputs_in, inputs = self._channel()
        semantic_in, semantic = self._channel()
        chunks_in, chunks = self._channel()
        async with anyio.create_task_group() as tasks:
            start = tasks.start_soon
            start(self._source, inputs_in, tasks)
            start(
                run_stage, self._start_parser(), inputs, semantic_in, self._noting(tap("served", "semantic")),
                self._parser_failed,
            )  # fmt: skip
            start(
                run_stage, layers.encoder.start(opening), semantic, chunks_in, self._keeping(tap("served", "chunk")),
                self._encoder_failed,
            )  # fmt: skip
            start(run_stage, layers.framer.start(opening), chunks, self._frames_in, self._heard(tap("served", "frame")))

    def _start_parser(self) -> Machine[Input, Semantic]:
        try:
            machine = self._layers.semantic.start(self.opening)
            return _Checked(machine, self.opening.ask.n) if ":" in self.opening.parser else machine
        except Exception as error:
            # A user's parser: the session ends with the protocol's error on its first input.
            return _Raises(error)

    def _noting(self, tap: Tap) -> Tap:
        def noted(events: list[Any], causes: list[int], /) -> None:
            tap(events, causes)
            if isinstance(events[-1], End):
                self.ended = True

        return noted

    def _keeping(self, tap: Tap) -> Tap:
        def kept(events: list[Any], causes: list[int], /) -> None:
            tap(events, causes)
            self._last_chunk = _last(events, self._last_chunk)

        return kept

    def _heard(self, tap: Tap) -> Tap:
        """Frames are what ends a silence: of inputs that give none a client hears nothing."""

        def heard(events: list[Any], causes: list[int], /) -> None:
            tap(events, causes)
            self._tick_at = anyio.current_time() + self._keep_alive if self._keep_alive else inf
            self._tick_due = False
            self._framed.set()

        return heard

    def _parser_failed(self, error: Exception, _made: list[Any]) -> list[Any]:
        self._stage_failed(self._layers.semantic.id, error)
        return [_PARSER_FAILED, End()]

    def _encoder_failed(self, error: Exception, made: list[Any]) -> list[Any]:
        # Events that a user's parser put together wrongly: a choice that nobody asked for, a call without a beginning.
        self._stage_failed(self._layers.encoder.id, error)
        return error_chunks(self.opening, _PARSER_FAILED, _last(made, self._last_chunk))

    def _stage_failed(self, stage: str, error: Exception) -> None:
        log.error("session %s: stage %s raised %s", self.opening.session, stage, type(error).__name__)
        self._stream.abort()

    async def _source(self, outbox: MemoryObjectSendStream[list[Input]], tasks: TaskGroup) -> None:
        tap = self.recorder.tap("input", "engine")
        ticker = anyio.CancelScope()
        if self.opening.ask.stream:
            self._tick_at = anyio.current_time() + min(self._commit_after, self._keep_alive or inf)
            tasks.start_soon(self._ticker, ticker)
        async with outbox:
            while not self._over:
                late: list[Input] = []
                # One scope for many receives: making one costs as much as a hop.
                with anyio.CancelScope() as self._waiting:
                    late = await self._pass_on(outbox, tap)
                await self._pass([*late, *self._interruptions()], outbox, tap)
        ticker.cancel()

    async def _pass_on(self, outbox: MemoryObjectSendStream[list[Input]], tap: Tap) -> list[Input]:
        """Pass on what the engine gives, until the end or an interruption. Returns what came with the interruption:
        once the scope is cancelled, a channel that is full would lose it."""
        while not self._over and not self._interrupted:
            events = await self._received()
            if self._waiting.cancel_called:
                return events
            await self._pass(events, outbox, tap)
        return []

    async def _pass(self, events: list[Input], outbox: MemoryObjectSendStream[list[Input]], tap: Tap) -> None:
        if events:
            tap(events, self._causes(events))
            await send(outbox, events)

    async def _received(self) -> list[Input]:
        """What the engine gave, in arrival order, nothing at its end; sets ``_over`` with the last."""
        self._receiving = True
        try:
            events = await self._stream.receive()
        except anyio.EndOfStream:
            self._over = not self._interrupted
            return []
        finally:
            self._receiving = False
        self.last = events[-1]
        self._over = isinstance(self.last, UsageInput | ErrorInput)
        if self._over:
            # It was faster than who wanted to end it in the same moment.
            self.aborted_by = None
        return events if self._timings is None else self._timings.told(events)

    @property
    def _interrupted(self) -> bool:
        return self._tick_due or self.aborted_by is not None

    def _interruptions(self) -> list[Input]:
        """The inputs that are not the engine's and are due now."""
        tick, self._tick_due = self._tick_due, False
        if self._over:
            return []
        if self.aborted_by is not None:
            self._over = True
            return [AbortInput(self.aborted_by)]
        return [Tick()] if tick else []

    async def _ticker(self, scope: anyio.CancelScope) -> None:
        """A tick whenever the client has heard nothing for ``keep_alive`` seconds; the first after ``commit_after``
        already, which decides the status. The next silence begins with the frame that the tick becomes."""
        with scope:
            while self._tick_at < inf:
                wait = self._tick_at - anyio.current_time()
                if wait > 0:
                    await anyio.sleep(wait)
                else:
                    self._framed = anyio.Event()
                    self._tick_due = True
                    self._interrupt()
                    await self._framed.wait()


def _nowhere(events: list[Input]) -> list[int]:
    return []


def _last(chunks: list[Any], before: Any) -> Any:
    """The last chunk; a Tick only where there is nothing else."""
    for chunk in reversed(chunks):
        if not isinstance(chunk, Tick):
            return chunk
    return chunks[-1] if chunks and before is None else before


_PARSER_FAILED = Failure("engine", "The parser of this server failed on the model's output.", "parser_error")
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Semantic]).decode


class _Checked:
    """A user's parser, held to what a semantic layer of ``n`` choices is: raises where events or their values are of
    other types, or of another choice, and where the last input brings no End."""

    def __init__(self, machine: Machine[Input, Semantic], n: int) -> None:
        self._n = n
        self._step = machine.step
        self._ended = False
        self.snapshot = machine.snapshot

    def step(self, event: Input, out: list[Semantic]) -> None:
        made: list[Semantic] = []
        self._step(event, made)
        made = _decode(_encode(made))
        for one in made:
            self._ended = self._ended or isinstance(one, End)
            if not 0 <= getattr(one, "choice", 0) < self._n:
                raise ValueError("no such choice")
        if not self._ended and isinstance(event, UsageInput | ErrorInput | AbortInput):
            raise ValueError("no End after the last input")
        out += made


class _Raises:
    """The machine of a stage that could not start."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def step(self, event: Input, out: list[Semantic]) -> None:
        raise self._error

    def snapshot(self) -> NoReturn:
        raise self._error
