"""Accumulator: a stream's chunks → the completion that the same request has without streaming."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TypeVar

import msgspec
from msgspec import UNSET, UnsetType

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
    ToolCallDelta,
)

T = TypeVar("T")


class CallState(msgspec.Struct):
    """A call in the making."""

    id: str = ""
    type: str = "function"
    name: str = ""
    arguments: list[str] = []


class ChoiceState(msgspec.Struct):
    """A choice in the making: text as lists of pieces."""

    role: str = "assistant"
    content: list[str] = []
    refusal: list[str] = []
    reasoning: list[str] = []
    reasoning_content: list[str] = []
    calls: dict[int, CallState] = {}
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


class Accumulator:
    """Collects chunks, our own or another server's: several entries in a chunk, text on the finish chunk and null for
    absent are all taken. id, time, model and fingerprint are the first chunk's; the last usage wins."""

    def __init__(self, state: AccumulatorState | None = None) -> None:
        self._state = AccumulatorState() if state is None else copy.deepcopy(state)

    def state(self) -> AccumulatorState:
        """A copy of what was collected so far, to continue from."""
        return copy.deepcopy(self._state)

    def add(self, chunk: ChatChunk) -> None:
        """Take the next chunk. Raises nothing."""
        state = self._state
        if state.first is None:
            state.first = msgspec.structs.replace(chunk, choices=(), usage=UNSET, prompt_token_ids=UNSET)
        if chunk.usage:
            state.usage = chunk.usage
        if chunk.prompt_token_ids:
            state.prompt_token_ids = chunk.prompt_token_ids
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
            tuple(_choice(index, state.choices[index]) for index in sorted(state.choices)),
            state.usage or CompletionUsage(0, 0, 0),
            UNSET if state.prompt_token_ids is None else state.prompt_token_ids,
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
        _add_call(state.calls.setdefault(entry.index, CallState()), entry)


def _add_call(state: CallState, entry: ToolCallDelta) -> None:
    state.id = entry.id or state.id
    state.type = entry.type or state.type
    if entry.function:
        state.name = entry.function.name or state.name
        if entry.function.arguments:
            state.arguments.append(entry.function.arguments)


def _choice(index: int, state: ChoiceState) -> CompletionChoice:
    calls = tuple(
        MessageToolCall(call.id, call.type, MessageFunction(call.name, "".join(call.arguments)))
        for _, call in sorted(state.calls.items())
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
