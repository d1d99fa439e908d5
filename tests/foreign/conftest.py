"""Workers end with the tests that started them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from replay.foreign import Settings, close, configure
from replay.foreign.process import Process


@pytest.fixture(autouse=True, scope="module")
def workers() -> Iterator[None]:
    yield
    close()


@pytest.fixture(autouse=True)
def settings() -> Iterator[None]:
    configure()
    yield
    configure()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits of time hold from a process's second session on. The first one is told in time on a busy machine, too."""
    exchange = Process.exchange

    def patiently(self: Process, line: bytes, limit: float, late: str) -> bytes:
        return exchange(self, line, limit if self.answered else max(limit, Settings().time_limit), late)

    monkeypatch.setattr(Process, "exchange", patiently)
