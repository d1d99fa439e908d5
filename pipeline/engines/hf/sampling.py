"""Choosing a token: what changes the logits before the draw, and the randomness of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from transformers.generation import logits_process

from pipeline.engines.base import EngineRequest, Sampling
from pipeline.engines.constrained import Held
from pipeline.engines.prompt import number_of

GREEDY_BELOW = 1e-5
"""Temperatures below this one divide logits out of float32's range; they mean greedy."""


class _Penalties(logits_process.LogitsProcessor):
    """Presence and frequency penalties over the generated tokens (the prompt does not count)."""

    def __init__(self, prompt: int, presence: float, frequency: float) -> None:
        self._prompt = prompt
        self._presence = presence
        self._frequency = frequency

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **_: Any) -> torch.Tensor:
        counts = torch.bincount(input_ids[0, self._prompt :], minlength=scores.shape[-1]).to(scores.dtype)
        return scores - self._frequency * counts - self._presence * (counts > 0)


class _Forced(logits_process.LogitsProcessor):
    """Leaves the next forced id as the only finite score; after the last one, an end token."""

    def __init__(self, prompt: int, ids: Sequence[int]) -> None:
        self._prompt = prompt
        self._ids = ids

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **_: Any) -> torch.Tensor:
        position = input_ids.shape[-1] - self._prompt
        if position >= len(self._ids):
            return scores
        only = torch.full_like(scores, -torch.inf)
        only[:, self._ids[position]] = 0.0
        return only


class _Allowed(logits_process.LogitsProcessor):
    """Leaves the tokens that a grammar allows next, and where it is complete the ids in ``ends`` too."""

    def __init__(self, held: Held, ends: Sequence[int]) -> None:
        self._held = held
        self._ends = list(ends)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **_: Any) -> torch.Tensor:
        bits = torch.frombuffer(bytearray(self._held.mask()), dtype=torch.uint8)
        allowed = ((bits[:, None] >> _BITS) & 1).bool().view(-1)[: scores.shape[-1]]
        if self._ends and self._held.complete:
            allowed[self._ends] = True
        left = scores.nan_to_num(nan=-torch.inf, posinf=torch.finfo(scores.dtype).max, neginf=-torch.inf)
        left = left.masked_fill(~allowed, -torch.inf)
        # Nothing but ends is allowed, and ``min_tokens`` forbids them: the grammar wins.
        return left if bool(left.isfinite().any()) else torch.zeros_like(scores).masked_fill(~allowed, -torch.inf)


_BITS = torch.arange(8, dtype=torch.uint8)


def processors_of(
    sampling: Sampling, prompt: int, eos: Sequence[int], forced: Sequence[int] | None, held: Held | None = None
) -> list[Any]:
    """What changes the logits [1, vocabulary] before the draw, in order: (ids [1, tokens], scores) -> scores."""
    made: list[Any] = []
    if sampling.repetition_penalty != 1.0:
        made.append(logits_process.RepetitionPenaltyLogitsProcessor(float(sampling.repetition_penalty)))
    if sampling.presence_penalty or sampling.frequency_penalty:
        made.append(_Penalties(prompt, sampling.presence_penalty, sampling.frequency_penalty))
    if sampling.logit_bias:
        bias: list[Any] = [[[token], float(value)] for token, value in sampling.logit_bias.items()]
        made.append(logits_process.SequenceBiasLogitsProcessor(bias))
    ends = [*eos, *sampling.stop_token_ids]
    if sampling.min_tokens and ends:
        made.append(logits_process.MinNewTokensLengthLogitsProcessor(prompt, sampling.min_tokens, ends))
    if held is not None:
        made.append(_Allowed(held, sampling.stop_token_ids))
    if sampling.temperature >= GREEDY_BELOW:
        made += _warpers(sampling)
    if forced is not None:
        made.append(_Forced(prompt, [*forced, *eos[:1]]))
    return made


def _warpers(sampling: Sampling) -> Iterable[Any]:
    if sampling.temperature != 1.0:
        yield logits_process.TemperatureLogitsWarper(float(sampling.temperature))
    if sampling.top_k > 0:
        yield logits_process.TopKLogitsWarper(sampling.top_k)
    if sampling.top_p < 1.0:
        yield logits_process.TopPLogitsWarper(sampling.top_p)
    if sampling.min_p > 0.0:
        yield logits_process.MinPLogitsWarper(sampling.min_p)


def generator_of(request: EngineRequest, choice: int) -> torch.Generator:
    """Randomness that depends on the seed (else the session id) and the choice alone."""
    seed = request.sampling.seed
    root = f"session {request.session}" if seed is None else f"seed {seed}"
    return torch.Generator().manual_seed(number_of(f"{root}, choice {choice}"))
