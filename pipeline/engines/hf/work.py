"""The numbers of one request: its prompt, its choices."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from pipeline.engines.base import EngineRequest
from pipeline.engines.constrained import Held
from pipeline.engines.hf.model import Model
from pipeline.engines.hf.sampling import GREEDY_BELOW, generator_of, processors_of
from pipeline.engines.jobs import Sampled
from pipeline.engines.prompt import Prepared
from stages.events import TokenLogprob, TopLogprob

CHUNK = 128
"""Prompt tokens a prefill iteration computes: what other streams wait for (0.2 s for 135 M parameters on two cores)."""

LOWEST = -9999.0
"""A logprob is never less: minus infinity is no JSON number."""


class Sampler:
    """One choice: its key-value cache, its tokens, its randomness."""

    def __init__(
        self,
        model: Model,
        request: EngineRequest,
        prepared: Prepared,
        choice: int,
        cache: Any,
        logits: torch.Tensor,
    ) -> None:
        prompt = prepared.prompt.ids
        self._model = model
        self._cache = cache
        self._logits = logits
        self._logprobs = request.logprobs
        self._greedy = request.sampling.temperature < GREEDY_BELOW
        self._generator = generator_of(request, choice)
        self._held: Held | None = None if prepared.held is None else prepared.held()
        self._ends = request.sampling.stop_token_ids
        self._processors = processors_of(request.sampling, len(prompt), model.eos_ids, prepared.forced, self._held)
        limit = model.context
        if request.sampling.max_tokens is not None:
            limit = min(limit, len(prompt) + request.sampling.max_tokens)
        self._ids = torch.empty((1, limit + 1), dtype=torch.long)
        self._ids[0, : len(prompt)] = torch.tensor(prompt)
        self._length = len(prompt)
        self._fresh = True

    def step(self) -> Sampled:
        """See jobs.Sampler."""
        if not self._fresh:
            self._logits = self._model.forward(self._ids[:, self._length - 1 : self._length], self._cache)[-1]
        self._fresh = False
        ids = self._ids[:, : self._length]
        scores = self._logits[None]
        for processor in self._processors:
            scores = processor(ids, scores)
        # Extreme penalties leave the range of floats, and of infinite scores no chances can be made.
        scores = scores.nan_to_num(nan=-torch.inf, posinf=torch.finfo(scores.dtype).max, neginf=-torch.inf)
        drawn = None if self._greedy else torch.multinomial(scores[0].softmax(-1), 1, generator=self._generator)
        token = int(scores.argmax() if drawn is None else drawn)
        self._ids[0, self._length] = token
        self._length += 1
        if self._held is not None and token not in self._ends:
            self._held.take(token)
        if self._logprobs is None:
            return Sampled(token, None)
        return Sampled(token, entry(self._model.pieces, self._logits, token, self._logprobs))


def entry(pieces: Sequence[bytes], logits: torch.Tensor, token: int, alternatives: int) -> TokenLogprob:
    """The entry of a token: log-softmax of the logits [vocabulary] that it was chosen from."""
    values = logits.log_softmax(-1)
    top: tuple[TopLogprob, ...] = ()
    if alternatives:
        best: Any = values.topk(min(alternatives, values.shape[-1]))
        pairs: Iterable[tuple[int, float]] = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        top = tuple(TopLogprob(index, pieces[index], max(value, LOWEST)) for index, value in pairs)
    return TokenLogprob(token, pieces[token], max(float(values[token]), LOWEST), top)


class Work:
    """One prompt: it is computed once, every further choice starts from a copy of the cache."""

    def __init__(self, model: Model, request: EngineRequest, prepared: Prepared) -> None:
        self._model = model
        self._request = request
        self._prepared = prepared
        self._cache = model.cache()
        self._computed = 0
        self._logits = torch.empty(0)
        self._told = request.logprobs if request.echo else None
        self._entries: list[TokenLogprob] = []

    def prefill(self) -> tuple[int, int]:
        """See jobs.Work."""
        start = self._computed
        ids = self._prepared.prompt.ids[start : start + CHUNK]
        logits = self._model.forward(torch.tensor([ids]), self._cache, 1 if self._told is None else len(ids))
        # Not a view: it would keep the logits of the whole chunk.
        self._logits = logits[-1].clone()
        self._computed += len(ids)
        if self._told is not None:
            following = self._prepared.prompt.ids[start + 1 : self._computed + 1]
            for row, token in zip(logits, following, strict=False):
                self._entries.append(entry(self._model.pieces, row, token, self._told))
        return start, self._computed

    def logprobs(self) -> list[TokenLogprob]:
        """See jobs.Work."""
        return self._entries

    def samplers(self) -> list[Sampler]:
        """See jobs.Work."""
        choices = self._prepared.choices
        caches = [self._cache, *(copy.deepcopy(self._cache) for _ in choices[1:])]
        return [
            Sampler(self._model, self._request, self._prepared, choice, cache, self._logits)
            for choice, cache in zip(choices, caches, strict=True)
        ]
