"""The loop thread of an engine that runs in this process: requests join and leave between iterations.

The numeric half is a ``Backend`` (torch is one; see hf). An iteration gives every live choice one token and the oldest
request that is still in prefill one chunk of it, so that several streams make progress together and a long prompt
delays the others by one chunk at most. Rendering and tokenising happen on a second thread, so that a request is
admitted or refused without waiting for the iteration that runs; what a constraint needs is made on further ones, so
that no request waits for another's schema.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from functools import partial

from pipeline.engines.base import DEAD, FAILED, SHUTDOWN, EngineRequest, Unservable, refusal
from pipeline.engines.jobs import Backend, Job
from pipeline.engines.prompt import Prepared
from pipeline.engines.stream import Handover
from stages.constraint import Constraint
from stages.errors import RequestError
from stages.events import ErrorInput

logger = logging.getLogger("playhead.engine")


class EngineLoop:
    """The threads of an engine and what runs on them. ``steps``: forward passes made so far."""

    def __init__(self, backend: Backend, max_live: int) -> None:
        self._backend = backend
        self._max_live = max_live
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._inbox: deque[Job] = deque()
        self._live: list[Job] = []
        self._open: set[Handover] = set()
        self._stopping = False
        self._admission = ThreadPoolExecutor(1, "playhead-admission")
        # More requests than are worked on need not be ready.
        self._holding = ThreadPoolExecutor(max_live, "playhead-holding")
        self._thread = threading.Thread(target=self._run, name="playhead-engine", daemon=True)
        self.alive = True
        self.steps = 0

    def start(self) -> None:
        """Start the loop thread."""
        self._thread.start()

    def stop(self) -> None:
        """End every request and all threads; waits for them (one step, one rendering, the grammars that are being
        compiled)."""
        with self._lock:
            self.alive = False
        self._stopping = True
        self._wake.set()
        self._admission.shutdown(cancel_futures=True)
        self._thread.join()
        self._holding.shutdown(cancel_futures=True)

    @property
    def live(self) -> int:
        """Requests that are not over."""
        return len(self._open)

    def submit(self, request: EngineRequest) -> Handover:
        """See Engine."""
        stream = Handover(self._wake.set)
        with self._lock:
            if self.alive:
                self._open.add(stream)
                self._admission.submit(self._admit, request, stream)
                return stream
        stream.put([DEAD])
        return stream

    def _admit(self, request: EngineRequest, stream: Handover) -> None:
        def work() -> None:
            if stream.closed:
                return
            prompts = self._backend.prepare(request)
            if request.constraint is None:
                self._join(request, stream, prompts)
            else:
                self._holding.submit(self._hold, request, stream, request.constraint, prompts)

        self._guarded(request, stream, work)
        self._settle(stream)

    def _hold(
        self, request: EngineRequest, stream: Handover, constraint: Constraint, prompts: Sequence[Prepared]
    ) -> None:
        def wanted() -> bool:
            return not (stream.closed or self._stopping)

        def work() -> None:
            if wanted():
                self._join(request, stream, self._backend.hold(constraint, prompts, wanted))

        self._guarded(request, stream, work)
        self._settle(stream)

    def _join(self, request: EngineRequest, stream: Handover, prompts: Sequence[Prepared]) -> None:
        job = Job(request, prompts, stream, self._backend)
        job.admit()
        self._inbox.append(job)

    def _settle(self, stream: Handover) -> None:
        """It is admitted, or over."""
        if stream.closed:
            self._forget(stream)
        self._wake.set()

    def _guarded(self, request: EngineRequest, stream: Handover, work: Callable[[], None]) -> None:
        """One request's failure fails that request alone."""
        try:
            work()
        except RequestError as error:
            stream.put([refusal(error)])
        except CancelledError:  # its reader has left, or all must
            pass
        except Unservable as error:
            logger.warning("session %s: %s", request.session, error)
            stream.put([ErrorInput("engine", str(error), "unservable")])
        except Exception:  # whatever the model's code raises for this request, the others go on
            logger.exception("session %s: the engine failed on it; the others go on", request.session)
            stream.put([FAILED])

    def _forget(self, stream: Handover) -> None:
        with self._lock:
            self._open.discard(stream)

    def _run(self) -> None:
        last = SHUTDOWN
        try:
            with self._backend.attached():
                while not self._stopping:
                    self._wake.clear()
                    self._join_and_leave()
                    if not self._iterate():
                        self._wake.wait()
        except BaseException:  # the thread ends here, and whoever waits for it must be told
            logger.critical("the engine's loop died; nothing can be served any more", exc_info=True)
            last = DEAD
        finally:
            with self._lock:
                self.alive = False
                streams, self._open = self._open, set()
            self._live = []
            self._inbox.clear()
            for stream in streams:
                stream.put([last])

    def _join_and_leave(self) -> None:
        for job in self._live:
            if job.stream.closed:
                self._forget(job.stream)
        self._live = [job for job in self._live if not job.stream.closed]
        for job in [job for job in self._inbox.copy() if job.stream.closed]:
            self._inbox.remove(job)
            self._forget(job.stream)
        while self._inbox and len(self._live) < self._max_live:
            job = self._inbox.popleft()
            self._live.append(job)
            self._guarded(job.request, job.stream, job.schedule)

    def _iterate(self) -> bool:
        """Give every live request its share. False: there was nothing to do."""
        worked = prefilled = False
        for job in self._live:
            if self._stopping:
                break
            if job.stream.full or (job.prefilling and prefilled):
                continue
            prefilled = prefilled or job.prefilling
            worked = True
            if not job.stream.closed:
                self._guarded(job.request, job.stream, partial(self._count, job))
        return worked

    def _count(self, job: Job) -> None:
        self.steps += job.iterate()
