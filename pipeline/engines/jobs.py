"""The work of one admitted request: what a model is to it, and what it emits, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from pipeline.engines.base import EngineRequest
from pipeline.engines.prompt import Detokenizer, Prepared
from pipeline.engines.stream import Handover
from stages.constraint import Constraint
from stages.events import (
    Echo,
    FinishInput,
    Input,
    PrefillInput,
    PromptInput,
    ScheduledInput,
    TokenLogprob,
    TokensInput,
    UsageInput,
)


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

    def hold(
        self, constraint: Constraint, prompts: Sequence[Prepared], wanted: Callable[[], bool]
    ) -> Sequence[Prepared]:
        """The prompts, with what holds their choices to the request's constraint. May take seconds, and is called in
        several threads at once. Raises RequestError; CancelledError once ``wanted`` says no."""
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


class Job:
    """One admitted request: what it emits, in order. Used by the thread that admits it first, then by the loop thread.

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
