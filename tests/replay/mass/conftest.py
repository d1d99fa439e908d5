"""A limit of time that a busy machine does not make short."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from replay.mass import pool
from tests.replay.mass.parsers import HANGS


@pytest.fixture
def only_hanging_is_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is that of a worker that says that it hangs (see ``parsers``). Another may be slow because it is not
    let run; it is looked at again after as long."""
    folder = tmp_path / "hanging"
    folder.mkdir()
    monkeypatch.setenv(HANGS, str(folder))
    worker: Any = vars(pool)["_Worker"]
    late_at: Callable[[Any, float], float | None] = worker.late_at

    def patiently(self: Any, limit: float) -> float | None:
        at = late_at(self, limit)
        if at is None or (folder / str(self.pid)).exists():
            return at
        return time.monotonic() + limit

    monkeypatch.setattr(worker, "late_at", patiently)
