"""An upstream as the engine of a session whose response our stages make."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeAlias

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from pipeline.engines.base import Watch
from pipeline.upstream.client import Exchange
from pipeline.upstream.errors import UpstreamFault
from pipeline.upstream.reader import Reader
from stages.events import (
    AbortInput,
    End,
    ErrorInput,
    FinishInput,
    Input,
    PromptInput,
    Tick,
    TimingInput,
    Tokens,
    TokensInput,
    ToldInput,
    Usage,
    UsageInput,
)
from stages.upstream.entries import UNKNOWN

Ask: TypeAlias = Callable[[], Awaitable[Exchange | ErrorInput]]
"""Gets the answer, or why there is none; may raise UpstreamFault."""
_OURS = (AbortInput, Tick, TimingInput)
LAST: Final = 1.0
"""Seconds for what comes behind the end that a response tells."""
ENCODED: Final = ErrorInput(
    "engine", "The upstream compressed its answer, though it was asked not to.", "upstream_encoded"
)


def _known(inputs: list[Input], causes: list[int]) -> tuple[list[Input], list[int]]:
    """These, up to a step of whose ids neither bytes nor text are known: what is served must not lack it silently."""
    for place, event in enumerate(inputs):
        if isinstance(event, TokensInput) and event.ids and not event.pieces and not event.text:
            told = [str(token) for token in event.ids if token != UNKNOWN]
            if told:
                message = (
                    f"The upstream told tokens that the tokenizer set for it does not have: {', '.join(told[:5])}."
                )
                return [*inputs[:place], ErrorInput("engine", message, "unknown_token")], causes[: place + 1]
    return inputs, causes


class Stops:
    """Ends choices on the step on which a stop string of theirs is complete, whatever the upstream knows of it."""

    def __init__(self, watch: Watch | None, n: int) -> None:
        """``n``: choices of the session."""
        self._watch = watch
        self._n = n
        self._done: set[int] = set()
        self.cut = False
        """A choice was ended here: the upstream may be writing still."""
        self._prompt = PromptInput((), "", 0)
        self._written = 0
        self._told = Told()

    def __call__(self, inputs: list[Input], causes: list[int]) -> tuple[list[Input], list[int]]:
        """What is left of these, with the end of a choice behind the step that completes it; the usage behind the last
        choice's, where the upstream has not told it yet. Where a choice was ended here, the usage has what was written
        until then: the upstream may have gone on."""
        if self._watch is None:
            return inputs, causes
        made: list[Input] = []
        sources: list[int] = []
        for event, cause in zip(inputs, causes, strict=True):
            events = self._seen(event, self._watch)
            made += events
            sources += [cause] * len(events)
        # What an upstream means it tells without counts: only where it is cut off are they made here.
        over = len(self._done) == self._n and (self.cut or not self._told.some)
        if over and made and not isinstance(made[-1], UsageInput | ErrorInput):
            made.append(UsageInput(self._prompt.count, self._written, self._prompt.cached))
            sources.append(causes[-1])
        return made, sources

    def _seen(self, event: Input, watch: Watch) -> list[Input]:
        if isinstance(event, TokensInput | FinishInput | ToldInput) and _choice(event) in self._done:
            return []
        stop = watch(event)
        if isinstance(event, PromptInput):
            self._prompt = event
        elif isinstance(event, TokensInput):
            self._written += len(event.ids) or 1
            if stop is not None:
                return self._stopped(event, event.choice, stop)
        elif isinstance(event, ToldInput):
            self._written = self._told(event)
            if stop is not None:
                return self._stopped(event, _choice(event), stop)
        elif isinstance(event, FinishInput):
            self._done.add(event.choice)
        elif isinstance(event, UsageInput):
            # Clients may have been told the prompt's size: it stays.
            prompt = self._prompt.count or event.prompt
            return [UsageInput(prompt, self._written if self.cut else event.completion, min(event.cached, prompt))]
        return [event]

    def _stopped(self, event: Input, choice: int, stop: str) -> list[Input]:
        self._done.add(choice)
        self.cut = True
        return [event, FinishInput(choice, "stop", stop)]


class Told:
    """Counts the tokens of what an upstream means: those that it tells, or else its steps."""

    def __init__(self) -> None:
        self._tokens = 0
        self._steps = 0

    @property
    def some(self) -> bool:
        """It tells something."""
        return self._tokens > 0 or self._steps > 0

    def __call__(self, event: ToldInput) -> int:
        """One more; how many there are."""
        if isinstance(event.event, Tokens):
            self._tokens += len(event.event.ids)
        else:
            self._steps += 1
        return self._tokens or self._steps


def _choice(event: TokensInput | FinishInput | ToldInput) -> int:
    """-1: of all."""
    if not isinstance(event, ToldInput):
        return event.choice
    return -1 if isinstance(event.event, Usage) else event.event.choice


class UpstreamStream:
    """An EngineStream. ``run`` it in a task group; what it reads waits, a few reads at most, until it is received.

    ``prompt``: what is sent, where we rendered it; what the upstream
    tells of it counts for nothing then.
    """

    def __init__(self, ask: Ask, reader: Reader, stops: Stops, prompt: PromptInput | None = None) -> None:
        self._ask = ask
        self._reader = reader
        self._stops = stops
        self._prompt = prompt
        self._begun = False
        self._over = False
        self._causes: deque[int] = deque()
        self._running = anyio.CancelScope()
        self._inbox: MemoryObjectReceiveStream[list[Input]]
        self._outbox: MemoryObjectSendStream[list[Input]]
        self._outbox, self._inbox = anyio.create_memory_object_stream[list[Input]](2)

    async def receive(self) -> list[Input]:
        """See EngineStream."""
        try:
            return await self._inbox.receive()
        except anyio.ClosedResourceError:
            raise anyio.EndOfStream from None

    def abort(self) -> None:
        """See EngineStream."""
        if not self._over or self._stops.cut:
            self._running.cancel()
        self._inbox.close()

    @property
    def limits(self) -> list[tuple[str, str]]:
        """Headers of the response that tell a client how much it may ask; none before there is one."""
        return self._reader.limits

    def causes(self, events: Sequence[Input]) -> list[int]:
        """Where inputs come from: numbers of the upstream's frames; -1 for what is not the upstream's. Asked for in the
        order in which they were received, once."""
        return [-1 if isinstance(event, _OURS) or not self._causes else self._causes.popleft() for event in events]

    async def run(self) -> None:
        """Ask, and read the answer to its end, or until the abort."""
        with anyio.CancelScope(shield=True):
            async with self._outbox:
                last = await self._read()
                await self._finish(last)

    async def _read(self) -> End | ErrorInput | AbortInput:
        try:
            with self._running:
                answer = await self._ask()
                if isinstance(answer, ErrorInput):
                    return answer
                try:
                    return await self._each_read(answer)
                finally:
                    with anyio.CancelScope(shield=True):
                        await answer.close()
        except UpstreamFault as fault:
            return fault.input()
        return AbortInput("cancel")

    async def _each_read(self, answer: Exchange) -> End | ErrorInput:
        reader = self._reader
        head: list[Any] = reader.head(answer)
        self._begun = True
        if self._prompt is not None and answer.status == 200:
            await self._send([self._prompt], [0])
        await self._give(head)
        if reader.opaque:
            return ENCODED
        while not self._over and (data := await answer.read()):
            await self._give(reader.take(data))
            if reader.failed is not None:
                return reader.failed
        if self._over and not self._stops.cut:
            # It has told its end: what is left of the response is a line or nothing, and its connection can be kept.
            with anyio.move_on_after(LAST), contextlib.suppress(UpstreamFault):
                while data := await answer.read():
                    reader.read(list(reader.take(data)))
        return End()

    async def _give(self, events: list[Any]) -> None:
        inputs, causes = self._reader.read(events)
        if self._prompt is not None:
            kept = [pair for pair in zip(inputs, causes, strict=True) if not isinstance(pair[0], PromptInput)]
            inputs, causes = [pair[0] for pair in kept], [pair[1] for pair in kept]
        if inputs and not self._over:
            await self._send(*_known(inputs, causes))

    async def _send(self, inputs: list[Input], causes: list[int]) -> None:
        inputs, causes = self._stops(inputs, causes)
        if inputs:
            self._over = isinstance(inputs[-1], UsageInput | ErrorInput)
            self._causes += causes
            await self._outbox.send(inputs)

    async def _finish(self, last: End | ErrorInput | AbortInput) -> None:
        rest: list[Any] = self._reader.rest() if self._begun else []
        if isinstance(last, AbortInput):
            # Nobody receives any more: what came is recorded, and that is all.
            self._reader.read([*rest, last])
            return
        with contextlib.suppress(anyio.BrokenResourceError):
            await self._give([*rest, last])
