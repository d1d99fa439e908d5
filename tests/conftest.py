"""Fixtures and settings of all tests."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import settings

# Deterministic everywhere: the same examples on each run. HYPOTHESIS_PROFILE=explore looks for new ones.
settings.register_profile("default", derandomize=True, deadline=None)
settings.register_profile("ci", settings.get_profile("default"), print_blob=True)
settings.register_profile("explore", deadline=None, max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "default"))

# How wide a terminal is that somebody runs the tests in is not what they are about.
os.environ.pop("COLUMNS", None)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Begun in the background of a shell: the processes that tests start would ignore Ctrl-C, too.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Every async test (``@pytest.mark.anyio``) runs on both."""
    backend: str = request.param
    return backend
