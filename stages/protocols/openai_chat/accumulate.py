"""Accumulator: a stream's chunks → the completion that the same request has without streaming.

There is one: it makes our own answers to requests that do not stream, and reads streams as their client.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from stages.events import CommonChunk, Done, ErrorChunk
from stages.protocols.openai_chat.calls import Calls, made_id
from stages.protocols.openai_chat.chunks import (
    ChatChunk,
    ChatCompletion,
    ChoiceLogprobs,
    ChunkChoice,
    CompletionChoice,
    CompletionUsage,
    Delta,
    LogprobEntry,
    Message,
    MessageFunction,
    MessageToolCall,
    Metrics,
)

T = TypeVar("T")


class ChoiceState(msgspec.Struct):
    """A choice in the making: text as lists of pieces."""

    role: str = "assistant"
    content: list[str] = []
    refusal: list[str] = []
    reasoning: list[str] = []
    reasoning_content: list[str] = []
    calls: Calls = msgspec.field(default_factory=Calls)
    logprobs: list[LogprobEntry] | None = None
    refusal_logprobs: list[LogprobEntry] | None = None
    token_ids: list[int] | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None


class AccumulatorState(msgspec.Struct):
    """All that an Accumulator knows; plain data."""

    first: ChatChunk | None = None
    choices: dict[int, ChoiceState] = {}
    usage: CompletionUsage | None = None
    prompt_token_ids: tuple[int, ...] | None = None
    metrics: Metrics | UnsetType = UNSET
    error: ErrorChunk | None = None
    done: bool = False


class Ending(msgspec.Struct, frozen=True):
    """How a stream ended. ``finished``: all its choices have a finish reason; ``done``: it said ``[DONE]``; ``error``:
    the first error in it."""

    finished: bool
    done: bool
    error: ErrorChunk | None

    @property
    def whole(self) -> bool:
        """Nothing is missing. A stream that only stops, with neither finish nor ``[DONE]``, was cut."""
        return self.finished and self.done and self.error is None


class Accumulator:
    """Collects chunks, our own or another server's: several entries in a chunk, text on the finish chunk and null for
    absent are all taken, entries of calls in any order (see ``calls``). id, time, model and fingerprint are the first
    chunk's; the last usage wins. A call without an id gets one. A call without arguments in a choice that finished for
    its calls has ``{}``."""

    def __init__(self, state: AccumulatorState | None = None) -> None:
        self._state = AccumulatorState() if state is None else copy.deepcopy(state)

    def state(self) -> AccumulatorState:
        """A copy of what was collected so far, to continue from."""
        return copy.deepcopy(self._state)

    def take(self, chunk: ChatChunk | CommonChunk) -> None:
        """Take what comes next in a stream: a chunk, its error, its end. What follows ``[DONE]`` is passed over."""
        if self._state.done:
            return
        if isinstance(chunk, ChatChunk):
            self.add(chunk)
        elif isinstance(chunk, Done):
            self._state.done = True
        elif isinstance(chunk, ErrorChunk):
            self._state.error = self._state.error or chunk

    @property
    def ending(self) -> Ending:
        """How the stream ended, if nothing more comes."""
        choices = self._state.choices.values()
        finished = bool(choices) and all(choice.finish_reason is not None for choice in choices)
        return Ending(finished, self._state.done, self._state.error)

    def add(self, chunk: ChatChunk) -> None:
        """Take the next chunk. Raises nothing."""
        state = self._state
        if state.first is None:
            state.first = ChatChunk(chunk.id, chunk.created, chunk.model, chunk.system_fingerprint)
        if chunk.usage:
            state.usage = chunk.usage
        if chunk.prompt_token_ids:
            state.prompt_token_ids = chunk.prompt_token_ids
        if chunk.metrics is not UNSET:
            state.metrics = chunk.metrics
        for choice in chunk.choices:
            _add_choice(state.choices.setdefault(choice.index, ChoiceState()), choice)

    def completion(self) -> ChatCompletion:
        """What was collected so far as one object. Usage counts are zero where no chunk had any."""
        state = self._state
        first = state.first or ChatChunk("", 0, "")
        return ChatCompletion(
            first.id,
            first.created,
            first.model,
            first.system_fingerprint,
            tuple(_choice(first.id, index, state.choices[index]) for index in sorted(state.choices)),
            state.usage or CompletionUsage(0, 0, 0),
            UNSET if state.prompt_token_ids is None else state.prompt_token_ids,
            state.metrics,
        )


def _add_choice(state: ChoiceState, choice: ChunkChoice) -> None:
    _add_delta(state, choice.delta)
    if choice.logprobs is not None:
        state.logprobs = _extended(state.logprobs, choice.logprobs.content)
        state.refusal_logprobs = _extended(state.refusal_logprobs, choice.logprobs.refusal)
    if choice.token_ids:
        state.token_ids = _extended(state.token_ids, choice.token_ids)
    if choice.finish_reason is not None:
        state.finish_reason = choice.finish_reason
    if choice.stop_reason is not UNSET and choice.stop_reason is not None:
        state.stop_reason = choice.stop_reason


def _add_delta(state: ChoiceState, delta: Delta) -> None:
    if delta.role:
        state.role = delta.role
    for pieces, text in (
        (state.content, delta.content),
        (state.refusal, delta.refusal),
        (state.reasoning, delta.reasoning),
        (state.reasoning_content, delta.reasoning_content),
    ):
        if text:
            pieces.append(text)
    for entry in delta.tool_calls or ():
        state.calls.add(entry)


def _choice(response: str, index: int, state: ChoiceState) -> CompletionChoice:
    whole = state.finish_reason in ("tool_calls", "function_call")
    calls = tuple(
        MessageToolCall(
            call.id or made_id(response, index, place), call.type, MessageFunction(call.name, call.called(whole))
        )
        for place, call in enumerate(state.calls.made)
    )
    logprobs = None
    if state.logprobs is not None or state.refusal_logprobs is not None:
        logprobs = ChoiceLogprobs(_frozen(state.logprobs), _frozen(state.refusal_logprobs))
    message = Message(
        state.role,
        "".join(state.content) or None,
        "".join(state.refusal) or None,
        "".join(state.reasoning) or UNSET,
        "".join(state.reasoning_content) or UNSET,
        calls or UNSET,
    )
    ids: tuple[int, ...] | UnsetType = UNSET if state.token_ids is None else tuple(state.token_ids)
    stop = UNSET if state.stop_reason is None else state.stop_reason
    return CompletionChoice(index, message, logprobs, state.finish_reason, stop, ids)


def _extended(held: list[T] | None, more: Sequence[T] | None) -> list[T] | None:
    if more is None:
        return held
    if held is None:
        return list(more)
    held.extend(more)
    return held


def _frozen(entries: list[LogprobEntry] | None) -> tuple[LogprobEntry, ...] | None:
    return None if entries is None else tuple(entries)
