"""The loop thread of an engine that runs in this process: requests join and leave between iterations.

The numeric half is a ``Backend`` (torch is one; see hf). An iteration gives every live choice one token and the oldest
request that is still in prefill one chunk of it, so that several streams make progress together and a long prompt
delays the others by one chunk at most. Rendering and tokenising happen on a second thread, so that a request is
admitted or refused without waiting for the iteration that runs.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from typing import NamedTuple, Protocol

from pipeline.engines.base import DEAD, FAILED, SHUTDOWN, EngineRequest, Unservable, refusal
from pipeline.engines.prompt import Detokenizer, Prepared
from pipeline.engines.stream import Handover
from stages.errors import RequestError
from stages.events import (
    Echo,
    ErrorInput,
    FinishInput,
    Input,
    PrefillInput,
    PromptInput,
    ScheduledInput,
    TokenLogprob,
    TokensInput,
    UsageInput,
)

logger = logging.getLogger("playhead.engine")


class Sampled(NamedTuple):
    """One new token; ``logprob`` where the request asks for logprobs."""

    id: int
    logprob: TokenLogprob | None


class Sampler(Protocol):
    """The numeric state of one choice."""

    def step(self) -> Sampled:
        """One forward pass over the last token (none before the first) and one draw."""
        ...


class Work(Protocol):
    """The numeric state of one prompt of a request. Used by the loop thread only."""

    def prefill(self) -> tuple[int, int]:
        """Compute the next chunk [start, end) of the prompt."""
        ...

    def logprobs(self) -> Sequence[TokenLogprob]:
        """Of all tokens of the prompt but the first, once it is computed, where the request has ``echo`` and
        ``logprobs``."""
        ...

    def samplers(self) -> Sequence[Sampler]:
        """One per choice of the prompt, in order, after the whole prompt is computed. Called once."""
        ...


class Backend(Protocol):
    """A model, as the loop sees it."""

    @property
    def pieces(self) -> Sequence[bytes]:
        """The bytes of every token id."""
        ...

    @property
    def eos(self) -> frozenset[int]:
        """Ids that end a choice."""
        ...

    @property
    def special(self) -> frozenset[int]:
        """Ids whose text is not released."""
        ...

    @property
    def context(self) -> int:
        """Tokens that fit, prompt and answer together."""
        ...

    def prepare(self, request: EngineRequest) -> Sequence[Prepared]:
        """Render, tokenise, check: its prompts. Raises RequestError. Runs on the admission thread."""
        ...

    def attached(self) -> AbstractContextManager[object]:
        """Held by the loop thread around all that it does."""
        ...

    def begin(self, request: EngineRequest, prepared: Prepared) -> Work:
        """Start to work on a prompt of an admitted request."""
        ...


class _Choice:
    """A choice that is being generated."""

    def __init__(self, index: int, sampler: Sampler, special: frozenset[int]) -> None:
        self.index = index
        self.sampler = sampler
        self.detokenizer = Detokenizer(special)
        self.count = 0


class _Job:
    """One admitted request: what it emits, in order. Used by the admission thread first, then by the loop thread.

    Its prompts are worked on one after the other: more caches at once would make none of them faster.
    """

    def __init__(self, request: EngineRequest, prompts: Sequence[Prepared], stream: Handover, backend: Backend) -> None:
        self.request = request
        self.stream = stream
        self._backend = backend
        self._sizes = [len(prepared.prompt.ids) for prepared in prompts]
        self._waiting = deque(prompts)
        self._prepared = prompts[0]
        self._work: Work | None = None
        self._choices: list[_Choice] = []
        self._completion = 0
        self._stop_ids = frozenset(request.sampling.stop_token_ids)

    @property
    def prefilling(self) -> bool:
        """Some of a prompt is computed next."""
        return self._work is not None

    def admit(self) -> None:
        """The request is served: tell the client."""
        for prompt, *_ in self._waiting:
            self._emit(PromptInput(prompt.ids, prompt.tail, len(prompt.ids)))

    def schedule(self) -> None:
        """The request joins the iterations."""
        self._begin()
        self._emit(ScheduledInput())

    def _begin(self) -> None:
        self._prepared = self._waiting.popleft()
        self._work = self._backend.begin(self.request, self._prepared)

    def iterate(self) -> int:
        """One prefill chunk, or one token for every live choice. Returns the forward passes made."""
        if self._work is not None:
            self._prefill(self._work)
            return 1
        steps = 0
        for choice in tuple(self._choices):
            if self.stream.closed:
                break
            self._advance(choice)
            steps += 1
        return steps

    def _prefill(self, work: Work) -> None:
        start, computed = work.prefill()
        self._emit(PrefillInput(start, computed))
        if computed < len(self._prepared.prompt.ids):
            return
        if self.request.echo:
            self._echo(work)
        if self.request.sampling.max_tokens != 0:
            special = self._backend.special
            numbered = zip(self._prepared.choices, work.samplers(), strict=True)
            self._choices = [_Choice(index, sampler, special) for index, sampler in numbered]
        else:
            for index in self._prepared.choices:
                self._emit(FinishInput(index, "length"))
        self._work = None
        self._go_on()

    def _echo(self, work: Work) -> None:
        prompt = self._prepared.prompt
        number = len(self._sizes) - len(self._waiting) - 1
        if self.request.logprobs is None:
            self._emit(Echo(number, prompt.text))
        else:
            self._emit(Echo(number, prompt.text, self._backend.pieces[prompt.ids[0]], tuple(work.logprobs())))

    def _go_on(self) -> None:
        """To the next prompt, once no choice of this one is left; behind the last one is the usage."""
        if self._choices:
            return
        if self._waiting:
            self._begin()
        else:
            self._emit(UsageInput(sum(self._sizes), self._completion))

    def _advance(self, choice: _Choice) -> None:
        token = choice.sampler.step()
        choice.count += 1
        self._completion += 1
        ending = self._ending(choice, token.id)
        ids, pieces = (token.id,), (self._backend.pieces[token.id],)
        text = choice.detokenizer.text(ids, pieces, last=ending is not None)
        logprobs = () if token.logprob is None else (token.logprob,)
        tokens = TokensInput(choice.index, ids, pieces, text, logprobs)
        stop = self._watched(tokens)
        if stop is not None:
            ending = FinishInput(choice.index, "stop", stop)
        if ending is None:
            self.stream.put([tokens])
            return
        self._choices.remove(choice)
        self._watched(ending)
        self.stream.put([tokens, ending])
        self._go_on()

    def _ending(self, choice: _Choice, token: int) -> FinishInput | None:
        sampling = self.request.sampling
        if token in self._backend.eos and not sampling.ignore_eos:
            return FinishInput(choice.index, "eos", token)
        if token in self._stop_ids:
            return FinishInput(choice.index, "stop_token", token)
        if sampling.max_tokens is not None and choice.count >= sampling.max_tokens:
            return FinishInput(choice.index, "length")
        if len(self._prepared.prompt.ids) + choice.count >= self._backend.context:
            return FinishInput(choice.index, "context")
        return None

    def _watched(self, event: Input) -> str | None:
        watch = self.request.watch
        return None if watch is None else watch(event)

    def _emit(self, event: Input) -> None:
        self._watched(event)
        self.stream.put([event])


class EngineLoop:
    """The two threads of an engine and what runs on them. ``steps``: forward passes made so far."""

    def __init__(self, backend: Backend, max_live: int) -> None:
        self._backend = backend
        self._max_live = max_live
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._inbox: deque[_Job] = deque()
        self._live: list[_Job] = []
        self._open: set[Handover] = set()
        self._stopping = False
        self._admission = ThreadPoolExecutor(1, "playhead-admission")
        self._thread = threading.Thread(target=self._run, name="playhead-engine", daemon=True)
        self.alive = True
        self.steps = 0

    def start(self) -> None:
        """Start the loop thread."""
        self._thread.start()

    def stop(self) -> None:
        """End every request and both threads; waits for them (one step, one rendering)."""
        with self._lock:
            self.alive = False
        self._stopping = True
        self._wake.set()
        self._admission.shutdown(cancel_futures=True)
        self._thread.join()

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
            if not stream.closed:
                job = _Job(request, self._backend.prepare(request), stream, self._backend)
                job.admit()
                self._inbox.append(job)

        self._guarded(request, stream, work)
        if stream.closed:
            self._forget(stream)
        self._wake.set()

    def _guarded(self, request: EngineRequest, stream: Handover, work: Callable[[], None]) -> None:
        """One request's failure fails that request alone."""
        try:
            work()
        except RequestError as error:
            stream.put([refusal(error)])
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

    def _count(self, job: _Job) -> None:
        self.steps += job.iterate()
