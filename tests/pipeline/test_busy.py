"""What a process has spent, as the system tells it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from pipeline.busy import Spent, spent
from tests.support.server import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="no other system tells")


def settled(code: str, right: Callable[[Spent], bool]) -> Spent:
    """What a process of this code has spent as soon as that is right."""
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as process:
        try:
            return eventually(lambda: now if right(now := spent(process.pid)) else None)
        finally:
            process.kill()


def test_one_that_computes() -> None:
    assert settled("while True: pass", lambda now: now.ran > 0.1).runs


def test_one_that_waits_for_something_else() -> None:
    assert settled("input()", lambda now: now.ran > 0 and not now.runs).ran < 1


def test_those_below_it_count() -> None:
    # It ends when the one above it is gone.
    below = "import os; above = os.getppid()\nwhile os.getppid() == above: pass"
    below = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {below!r}])"
    assert settled(below, lambda now: now.ran > 0.5).runs


def test_one_that_is_gone() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert spent(process.pid) == Spent(0, 0, False)
