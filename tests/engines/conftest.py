"""The real model: SmolLM2-135M-Instruct on torch, loaded once."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from pipeline.engines.hf import HfEngine
from tests.support.engines import CONTEXT


@pytest.fixture(scope="session")
def loaded() -> HfEngine:
    """The model, loaded once."""
    import torch  # not for the tests that need no model

    # transformers' own generate runs on this thread, beside the engine's: see HfEngine on threads.
    torch.set_num_threads(1)
    engine = HfEngine(context=CONTEXT)
    engine.load()
    return engine


@pytest.fixture
async def engine(loaded: HfEngine, anyio_backend: str) -> AsyncGenerator[HfEngine]:
    """The engine, entered on this test's event loop."""
    async with loaded:
        yield loaded
