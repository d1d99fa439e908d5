"""Accumulator: a stream's chunks → the answer that the same request has without streaming."""

from __future__ import annotations

import copy

import msgspec
from msgspec import UNSET, UnsetType

from stages.protocols.openai_chat import CompletionUsage, Metrics
from stages.protocols.openai_completions.chunks import CompletionChunk, TextChoice, TextCompletion, TextLogprobs
from stages.protocols.openai_completions.logprobs import joined


class ChoiceState(msgspec.Struct):
    """A choice in the making: text and arrays as lists of pieces."""

    text: list[str] = []
    logprobs: list[TextLogprobs] = []
    token_ids: list[int] = []
    prompt_token_ids: tuple[int, ...] | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None


class AccumulatorState(msgspec.Struct):
    """All that an Accumulator knows; plain data."""

    first: CompletionChunk | None = None
    choices: dict[int, ChoiceState] = {}
    usage: CompletionUsage | None = None
    metrics: Metrics | UnsetType = UNSET


class Accumulator:
    """Collects chunks. id, time, model and fingerprint are the first chunk's; the last usage wins."""

    def __init__(self, state: AccumulatorState | None = None) -> None:
        self._state = AccumulatorState() if state is None else copy.deepcopy(state)

    def state(self) -> AccumulatorState:
        """A copy of what was collected so far, to continue from."""
        return copy.deepcopy(self._state)

    def add(self, chunk: CompletionChunk) -> None:
        """Take the next chunk. Raises nothing."""
        state = self._state
        if state.first is None:
            state.first = CompletionChunk(chunk.id, chunk.created, chunk.model, chunk.system_fingerprint)
        if chunk.usage:
            state.usage = chunk.usage
        if chunk.metrics is not UNSET:
            state.metrics = chunk.metrics
        for choice in chunk.choices:
            _add(state.choices.setdefault(choice.index, ChoiceState()), choice)

    def completion(self) -> TextCompletion:
        """What was collected so far as one object. Usage counts are zero where no chunk had any."""
        state = self._state
        first = state.first or CompletionChunk("", 0, "")
        return TextCompletion(
            first.id,
            first.created,
            first.model,
            first.system_fingerprint,
            tuple(_choice(index, state.choices[index]) for index in sorted(state.choices)),
            state.usage or CompletionUsage(0, 0, 0),
            state.metrics,
        )


def _add(state: ChoiceState, choice: TextChoice) -> None:
    if choice.text:
        state.text.append(choice.text)
    if choice.logprobs is not None:
        state.logprobs.append(choice.logprobs)
    if choice.token_ids:
        state.token_ids += choice.token_ids
    if choice.prompt_token_ids:
        state.prompt_token_ids = choice.prompt_token_ids
    if choice.finish_reason is not None:
        state.finish_reason = choice.finish_reason
    if choice.stop_reason is not UNSET and choice.stop_reason is not None:
        state.stop_reason = choice.stop_reason


def _choice(index: int, state: ChoiceState) -> TextChoice:
    return TextChoice(
        index,
        "".join(state.text),
        joined(state.logprobs) if state.logprobs else None,
        state.finish_reason,
        UNSET if state.stop_reason is None else state.stop_reason,
        tuple(state.token_ids) or UNSET,
        UNSET if state.prompt_token_ids is None else state.prompt_token_ids,
    )
