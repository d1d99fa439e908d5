"""A backend whose every forward pass a test can hold and count, and the loop over it."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext

import anyio
import anyio.to_thread

from pipeline.engines.base import EngineRequest
from pipeline.engines.jobs import Sampled
from pipeline.engines.loop import EngineLoop
from pipeline.engines.prompt import Prepared, Prompt
from stages.constraint import Constraint
from stages.errors import RequestError
from stages.events import (
    TokenLogprob,
)

EOS = 9
PROMPT = 6
CHUNK = 2


class Counter:
    """A backend that writes 0, 1, 2, ... 8, 0, 1, ... and notes who made each pass.

    ``gate``: with it, a pass waits for a permit, so that a test decides when the loop moves. ``begun`` and ``made``
    count the passes that came to the gate, and those that went through.
    """

    pieces: Sequence[bytes] = [bytes([0x30 + token]) for token in range(10)]
    eos = frozenset({EOS})
    special = frozenset({EOS})

    def __init__(self, *, context: int = 100_000, gate: threading.Semaphore | None = None) -> None:
        self.context = context
        self.gate = gate
        self.begun = threading.Semaphore(0)
        self.made = threading.Semaphore(0)
        self.passes: list[str] = []
        self.prepare_hook: Callable[[EngineRequest], None] = lambda request: None
        self.hold_hook: Callable[[Callable[[], bool]], None] = lambda wanted: None
        self.step_hook: Callable[[str], None] = lambda session: None

    def prepare(self, request: EngineRequest) -> list[Prepared]:
        self.prepare_hook(request)
        if request.conversation is not None:
            return [Prepared(Prompt(tuple(range(PROMPT)), "tail"), range(request.n))]
        each = request.n // len(request.prompts)
        return [
            Prepared(Prompt(tuple(map(int, text)), "tail", str(text)), range(number * each, (number + 1) * each))
            for number, text in enumerate(request.prompts)
        ]

    def hold(
        self, constraint: Constraint, prompts: Sequence[Prepared], wanted: Callable[[], bool]
    ) -> Sequence[Prepared]:
        self.hold_hook(wanted)
        return prompts

    def attached(self) -> AbstractContextManager[object]:
        return nullcontext()

    def begin(self, request: EngineRequest, prepared: Prepared) -> Counting:
        return Counting(self, request, prepared)

    def made_pass(self, session: str) -> None:
        self.begun.release()
        if self.gate is not None:
            self.gate.acquire()
        self.passes.append(session)
        self.made.release()
        self.step_hook(session)


class Counting:
    """The work of one prompt."""

    def __init__(self, backend: Counter, request: EngineRequest, prepared: Prepared) -> None:
        self.backend = backend
        self.request = request
        self.prepared = prepared
        self.computed = 0

    def prefill(self) -> tuple[int, int]:
        self.backend.made_pass(self.request.session)
        begin = self.computed
        self.computed = min(begin + CHUNK, len(self.prepared.prompt.ids))
        return begin, self.computed

    def logprobs(self) -> list[TokenLogprob]:
        return [TokenLogprob(token, self.backend.pieces[token], -0.5) for token in self.prepared.prompt.ids[1:]]

    def samplers(self) -> list[Digits]:
        return [Digits(self.backend, self.request.session) for _ in self.prepared.choices]


class Digits:
    """One choice."""

    def __init__(self, backend: Counter, session: str) -> None:
        self.backend = backend
        self.session = session
        self.next = 0

    def step(self) -> Sampled:
        self.backend.made_pass(self.session)
        self.next += 1
        return Sampled((self.next - 1) % 9, None)


@asynccontextmanager
async def running(backend: Counter, max_live: int = 32) -> AsyncGenerator[EngineLoop]:
    """The loop over a backend; afterwards both threads are gone."""
    loop = EngineLoop(backend, max_live)
    loop.start()
    try:
        yield loop
    finally:
        if backend.gate is not None:
            backend.gate.release(1000)
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(loop.stop)
        assert not loop.alive
        assert loop.live == 0


async def counted(passes: threading.Semaphore, count: int) -> None:
    """Wait for so many passes of the loop's thread."""

    def wait() -> None:
        for _ in range(count):
            assert passes.acquire(timeout=20)

    await anyio.to_thread.run_sync(wait)


def refuse_the_last(request: EngineRequest) -> None:
    """Requests are admitted one after the other: when this one is refused, all before it are admitted."""
    if request.session == "last":
        raise RequestError("refused")
