"""How much a process got done of the time that passed: where others keep the processors busy, that is little."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import NamedTuple


class Spent(NamedTuple):
    """Seconds that all the threads of a process, and of those below it, ran, and waited for a processor. ``runs``: one
    runs or waits now; how long it waits, the system does not say until it runs again."""

    ran: float
    waited: float
    runs: bool


def spent(pid: int) -> Spent:
    """What a process has spent until now; nothing where the system does not tell (it is Linux that does)."""
    ran, waited, runs = 0, 0, False
    below = [pid]
    while below:
        for thread in Path(f"/proc/{below.pop()}/task").glob("*"):
            # One that ends meanwhile is not counted.
            with contextlib.suppress(OSError, ValueError):
                one, other, _ = map(int, (thread / "schedstat").read_text().split())
                ran, waited = ran + one, waited + other
                runs = runs or (thread / "stat").read_text().rpartition(")")[2].split()[0] == "R"
                below += map(int, (thread / "children").read_text().split())
    return Spent(ran / 1e9, waited / 1e9, runs)
