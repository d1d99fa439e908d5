"""pool: worker processes, each with a connection of its own, so that one that dies disturbs no other.

Not a library's pool: in those that were tried all workers write into one pipe, so that one that is killed while it
writes ends the run, and one that ends with exit code 0 is not missed.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerProcess
from types import ModuleType
from typing import Any

import msgspec

from replay import errors
from replay.errors import ReplayError
from replay.mass import worker
from replay.mass.plan import Plan
from replay.mass.units import Unit
from replay.mass.worker import Batch, Fate, Item
from replay.totals import Unreadable

START_LIMIT_S = 300.0
"""How long a worker may take until it is ready."""
_STARTS = 3
"""So many workers in a row that end before they are ready end the run."""
_QUEUED = 2
"""Batches that a worker has, so that it need not wait for the next."""


@contextmanager
def _without_main() -> Generator[None]:
    """What is started here does not run the caller's script again, as multiprocessing has it: nothing of it is needed,
    and the command's takes longer to import than a worker to start."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@contextmanager
def _quiet() -> Generator[None]:
    """What is started here never sees Ctrl-C, which a terminal sends to all processes of a command: the fork server,
    and so every worker, also before it has come to its first line."""
    resource_tracker.ensure_running()  # or it is started within, and lets the signal through
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Worker:
    def __init__(self, plan: bytes) -> None:
        context = get_context("forkserver")
        context.set_forkserver_preload(["replay.mass.worker"])
        self.connection, theirs = context.Pipe()
        self.process: ForkServerProcess = context.Process(
            target=worker.main, args=(theirs, plan, dict(os.environ)), daemon=True, name="playhead-replay"
        )
        try:
            with _quiet(), _without_main():
                self.process.start()
        except OSError as error:  # no process, no memory, or a TMPDIR whose name is too long for a socket
            raise _not_started(str(error.strerror or error)) from error
        self.pid = self.process.pid or 0
        theirs.close()
        self.batches: deque[Batch] = deque()
        self.ready = False
        self.place: tuple[int, int] = (0, 0)
        """The unit of its first batch, and the session in it, that it is at."""
        self.heard = time.monotonic()
        self.late = False

    def give(self, batch: Batch) -> None:
        if not self.batches:
            self.heard = time.monotonic()
        self.batches.append(batch)
        try:
            self.connection.send_bytes(worker.encode(batch))
        except ConnectionError:
            pass  # it is dead, which its sentinel tells

    def late_at(self, limit: float) -> float | None:
        """When it has been silent for too long; None: it has nothing to say."""
        if not self.ready:
            return self.heard + START_LIMIT_S
        return self.heard + limit if self.batches else None

    def kill(self) -> None:
        """End it, and what its parser started."""
        for end in (os.killpg, os.kill):
            try:
                end(self.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass  # it has no group yet, or is gone

    def close(self) -> str:
        """After its end; returns how that was, in words."""
        self.process.join()
        code = self.process.exitcode or 0
        self.process.close()
        self.connection.close()
        return (
            f"its process was killed by signal {-code}" if code < 0 else f"it ended its process with exit code {code}"
        )


class Pool:
    """Runs batches in ``jobs`` worker processes. ``limit``: seconds that one session may take. A context manager, at
    whose end no worker is left."""

    def __init__(self, plan: Plan, jobs: int, limit: float) -> None:
        self._plan = msgspec.json.encode(plan)
        self._jobs = jobs
        self._limit = limit
        self._workers: list[_Worker] = []
        self._again: deque[Batch] = deque()
        self._starts = 0
        self._known = False
        """The plan can be had."""

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._workers:
            each.kill()
        for each in self._workers:
            each.close()
        self._workers.clear()

    def run(self, batches: Iterator[Batch]) -> Generator[Item]:
        """What comes of the batches, as it comes. Raises ReplayError where no worker can run the plan."""
        while True:
            self._hand_out(batches)
            if not self._again and not any(each.batches for each in self._workers):
                return
            yield from self._heard()

    def _hand_out(self, batches: Iterator[Batch]) -> None:
        """Give out what there is, as long as somebody can take it."""
        while True:
            least = min(self._workers, key=lambda each: len(each.batches), default=None)
            # The first one tells whether the plan can be had.
            more = len(self._workers) < (self._jobs if self._known else 1)
            if more and (least is None or least.batches):
                least = None
            elif least is None or len(least.batches) >= _QUEUED:
                return
            batch = self._again.popleft() if self._again else next(batches, None)
            if batch is None:
                return
            if least is None:
                least = _Worker(self._plan)
                self._workers.append(least)
            least.give(batch)

    def _heard(self) -> Iterator[Item]:
        """Wait until somebody says something, or nothing for too long."""
        now = time.monotonic()
        times = [at for each in self._workers if (at := each.late_at(self._limit)) is not None]
        # A worker's sentinel tells its end, whatever it is.
        waited: list[Any] = [each.connection for each in self._workers]
        waited += [each.process.sentinel for each in self._workers]
        ready = set(wait(waited, max(0.0, min(times, default=now) - now)))
        for each in [*self._workers]:
            ended = each.process.sentinel in ready
            if each.connection in ready or ended:
                ended = not (yield from self._read(each)) or ended
            late_at = each.late_at(self._limit)
            if not ended and late_at is not None and time.monotonic() > late_at:
                each.late = ended = True
            if ended:
                each.kill()
                yield from self._bury(each)

    def _read(self, each: _Worker) -> Generator[Item, None, bool]:
        """All that a worker has said; returns whether it can say more."""
        try:
            while each.connection.poll():
                told = worker.told(each.connection.recv_bytes())
                each.heard = time.monotonic()
                if told.error is not None:
                    raise _error(*told.error)
                yield from told.items
                each.place = told.unit, told.number
                if told.ready:
                    each.ready = self._known = True
                    self._starts = 0
                if told.over:
                    each.batches.popleft()
                    each.place = 0, 0
        except (EOFError, OSError, msgspec.DecodeError):
            return False  # it has ended, or a parser wrote into its connection
        return True

    def _bury(self, each: _Worker) -> Iterator[Item]:
        """What becomes of the batches of a worker that has ended."""
        self._workers.remove(each)
        how = each.close()
        if not each.ready:
            self._starts += 1
            if each.late or self._starts == _STARTS:
                what = f"it was not ready within {START_LIMIT_S:g} s" if each.late else how
                raise _not_started(what)
        elif each.batches:
            why = f"no end within {self._limit:g} s" if each.late else how
            first = each.batches.popleft()
            if first.mode == "blame":
                unit = first.units[0]
                lost = Unreadable(unit.file, f"its session at {unit.place} cannot be loaded: {why}")
                yield Item(unit.at + unit.first, unit.index, lost=lost)
            else:
                self._again.extend(_retries(first, *each.place, "Timeout" if each.late else "Crashed", why))
        self._again.extend(each.batches)


def _retries(batch: Batch, unit: int, number: int, fate: Fate, why: str) -> Iterator[Batch]:
    """What to do after the end of a worker that was at this session of its batch: all but the one at fault lose
    nothing. A batch is run again one by one; so the session at fault is known; then that one alone, since it may have
    met what others left, or an accident; then it is to blame."""
    left = batch.units[unit:]
    number = max(number, left[0].first)
    left[:1] = [_from(left[0], number)]
    if batch.mode == "batch":
        yield Batch(left, "singly")
        return
    session = msgspec.structs.replace(left[0], count=1)
    if batch.mode == "singly" and fate == "Crashed":
        yield Batch([session], "alone")
    else:
        yield Batch([session], "blame", fate, why)
    left[:1] = [_from(left[0], number + 1)] if left[0].kind == "packed" and batch.mode == "singly" else []
    if left:
        yield Batch(left, "singly")


def _from(unit: Unit, number: int) -> Unit:
    return msgspec.structs.replace(unit, first=number) if unit.kind == "packed" else unit


def _not_started(why: str) -> ReplayError:
    return ReplayError(f"a worker process cannot be started: {why}. --jobs 1 runs without any")


def _error(name: str, message: str) -> ReplayError:
    kind: Any = getattr(errors, name, None)
    return kind(message) if isinstance(kind, type) and issubclass(kind, ReplayError) else ReplayError(message)
