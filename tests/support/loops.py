"""The real engine loop over a backend whose every forward pass waits for a test, as an Engine for a server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Self

import anyio
import anyio.to_thread

from pipeline.engines.base import Conversation, EngineRequest, EngineStream
from pipeline.engines.jobs import Sampled
from pipeline.engines.loop import EngineLoop
from pipeline.engines.prompt import Prepared, Prompt
from pipeline.engines.toy import ToyTokenizer
from stages.constraint import Constraint
from stages.events import TokenLogprob
from stages.opening import EngineFacts, TokenizerFacts
from tests.support.server import PATIENCE

CHUNKS = 100
"""Forward passes that a prompt takes."""


class GatedEngine:
    """Admits what it is asked when ``admission`` lets it, and makes a pass when ``gate`` does. It never stops to write.

    ``begun``: a permit for each pass that waits at the gate or went through; ``passes``: how many these are.
    """

    def __init__(self, *, max_live: int = 32) -> None:
        self.toy = ToyTokenizer()
        self.template = None
        self.tokenizer: TokenizerFacts = self.toy.facts(None)
        self.facts = EngineFacts(kind="gated", model="gated", max_tokens=100_000)
        self.admission = threading.Event()
        self.admission.set()
        self.gate = threading.Semaphore(0)
        self.begun = threading.Semaphore(0)
        self.passes: dict[str, int] = {}
        self._max_live = max_live

    @property
    def alive(self) -> bool:
        """See Engine."""
        return self.loop.alive

    def submit(self, request: EngineRequest) -> EngineStream:
        """See Engine."""
        return self.loop.submit(request)

    async def count(self, conversation: Conversation) -> int:
        """See Engine: every prompt is of the same length here."""
        return CHUNKS

    async def __aenter__(self) -> Self:
        self.loop = EngineLoop(self, self._max_live)
        self.loop.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.admission.set()
        self.gate.release(1000)
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self.loop.stop)

    async def at_the_gate(self) -> None:
        """Wait until a pass has begun."""
        assert await anyio.to_thread.run_sync(partial(self.begun.acquire, timeout=PATIENCE))

    async def rested(self) -> None:
        """Wait until the loop has nothing left to do, with every pass let through."""
        self.gate.release(1000)
        with anyio.fail_after(PATIENCE):
            while self.loop.live:  # noqa: ASYNC110  # another thread's
                await anyio.sleep(0.001)

    # --- the backend ------------------------------------------------------------------------------------------------

    @property
    def pieces(self) -> Sequence[bytes]:
        """See Backend."""
        return [b"word "]

    eos = special = frozenset[int]()
    context = 100_000

    def prepare(self, request: EngineRequest) -> list[Prepared]:
        """See Backend."""
        assert self.admission.wait(PATIENCE)
        return [Prepared(Prompt(tuple(range(CHUNKS)), ""), range(request.n))]

    def hold(
        self, constraint: Constraint, prompts: Sequence[Prepared], wanted: Callable[[], bool]
    ) -> Sequence[Prepared]:
        """See Backend."""
        return prompts

    def attached(self) -> AbstractContextManager[object]:
        """See Backend."""
        return nullcontext()

    def begin(self, request: EngineRequest, prepared: Prepared) -> _Work:
        """See Backend."""
        return _Work(self, request)

    def passed(self, session: str) -> None:
        """One forward pass."""
        self.passes[session] = self.passes.get(session, 0) + 1
        self.begun.release()
        assert self.gate.acquire(timeout=PATIENCE)


class _Work:
    def __init__(self, engine: GatedEngine, request: EngineRequest) -> None:
        self._engine = engine
        self._request = request
        self._computed = 0

    def prefill(self) -> tuple[int, int]:
        self._engine.passed(self._request.session)
        self._computed += 1
        return self._computed - 1, self._computed

    def logprobs(self) -> list[TokenLogprob]:
        return []

    def samplers(self) -> list[_Sampler]:
        return [_Sampler(self._engine, self._request.session) for _ in range(self._request.n)]


class _Sampler:
    def __init__(self, engine: GatedEngine, session: str) -> None:
        self._engine = engine
        self._session = session

    def step(self) -> Sampled:
        self._engine.passed(self._session)
        return Sampled(0, None)
