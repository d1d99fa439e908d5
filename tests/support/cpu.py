"""What something costs, on a machine that does other things, too."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable


def seconds(work: Callable[[], object], times: int = 3) -> float:
    """Processor time of this thread that it takes, at the least. What other threads and processes do does not count,
    nor what the collector finds to do with all that other tests hold."""
    best = float("inf")
    was = gc.isenabled()
    gc.disable()
    try:
        for _ in range(times):
            begun = time.thread_time()
            work()
            best = min(best, time.thread_time() - begun)
    finally:
        if was:
            gc.enable()
    return best
