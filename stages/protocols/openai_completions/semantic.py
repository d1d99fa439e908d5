"""The decoder: completion chunks → semantic events. The encoder's way back.

    first sight of a choice   Start
    text                      Content; with logprobs whose first one is null, Echo
    logprobs, token ids       Tokens; -1 for an id that is not told (only entries, or only a running usage that grew)
    finish_reason             Finish
    usage                     TimingInput of each of its metrics, Usage
    an error                  Failure
    Done                      End; before it Failure if a choice has no finish, or a usage that had no chunk of its own
    Tick                      Tick
    End                       the body has ended without Done: Failure (code ``truncated``) and End

A prompt that is told back without logprobs cannot be told from what the model wrote: it is Content. Each choice counts
as a prompt's only one, because what several have in common is told for each of them. ``src`` counts the bytes of the
text.
"""

from __future__ import annotations

import copy
from typing import Final, TypeAlias

import msgspec
from msgspec import UNSET

from stages.events import (
    CommonChunk,
    Content,
    Done,
    Echo,
    End,
    ErrorChunk,
    Failure,
    Finish,
    Semantic,
    Start,
    Tick,
    TimingInput,
    Tokens,
    Usage,
)
from stages.opening import Opening
from stages.protocols.openai_chat import TIMINGS, CompletionUsage, Metrics, broken, ending, failure_of
from stages.protocols.openai_completions.chunks import CompletionChunk, TextChoice, TextCompletion
from stages.protocols.openai_completions.logprobs import UNKNOWN, entries, piece
from stages.protocols.telling import TRUNCATED
from stages.stage import Machine

Wire: TypeAlias = CompletionChunk | TextCompletion | CommonChunk | End
MOST: Final = 128
"""Choices of a stream; one beyond them is passed over."""
LONGEST: Final = 1 << 16
"""Tokens of a chunk that only a running usage tells of; what it counts beyond them is passed over."""


class ChoiceState(msgspec.Struct):
    """A choice so far. ``size``: bytes of its text; ``tokens``: how many were told."""

    size: int = 0
    tokens: int = 0
    finished: bool = False


class DecoderState(msgspec.Struct):
    """All that the decoder knows; plain data."""

    choices: dict[int, ChoiceState] = {}
    usage: CompletionUsage | None = None
    told: bool = False
    failed: bool = False
    ended: bool = False


class _Decoder:
    """The machine."""

    def __init__(self, state: DecoderState | None = None) -> None:
        self._state = DecoderState() if state is None else copy.deepcopy(state)

    def snapshot(self) -> DecoderState:
        """See Machine."""
        return copy.deepcopy(self._state)

    def step(self, event: Wire, out: list[Semantic]) -> None:
        """See Machine."""
        state = self._state
        if state.ended:
            return
        if isinstance(event, Tick):
            out.append(event)
        elif isinstance(event, Done | End):
            self._end(event, out)
        elif state.failed:
            pass  # what follows an error is void
        elif isinstance(event, CompletionChunk):
            self._chunk(event, out)
        elif isinstance(event, ErrorChunk):
            self._fail(failure_of(event), out)

    def _chunk(self, chunk: CompletionChunk, out: list[Semantic]) -> None:
        state = self._state
        usage = chunk.usage or None
        for choice in chunk.choices:
            if not 0 <= choice.index < MOST or state.failed:
                continue
            told = self._introduce(choice, usage, out)
            if not told.finished:
                self._choice(choice, told, usage if len(chunk.choices) == 1 else None, out)
        if usage is None:
            return
        state.usage = usage
        if not chunk.choices and not state.told and not state.failed:
            self._tell(usage, chunk.metrics or None, out)

    def _introduce(self, choice: TextChoice, usage: CompletionUsage | None, out: list[Semantic]) -> ChoiceState:
        state = self._state.choices.get(choice.index)
        if state is None:
            state = self._state.choices[choice.index] = ChoiceState()
            ids = choice.prompt_token_ids or ()
            out.append(Start(choice.index, usage.prompt_tokens if usage else len(ids), 0, ids))
        return state

    def _choice(
        self, choice: TextChoice, state: ChoiceState, running: CompletionUsage | None, out: list[Semantic]
    ) -> None:
        told = choice.logprobs
        if told is not None and told.token_logprobs[:1] == (None,):
            others = entries(told)[1:]
            out.append(Echo(choice.index, choice.text, piece(told.tokens[0]), others))
            return
        self._tokens(choice, state, running, out)
        if choice.text:
            start, state.size = state.size, state.size + len(piece(choice.text))
            out.append(Content(choice.index, choice.text, (start, state.size)))
        if choice.finish_reason is not None:
            self._finish(choice, state, out)

    def _tokens(
        self, choice: TextChoice, state: ChoiceState, running: CompletionUsage | None, out: list[Semantic]
    ) -> None:
        ids = choice.token_ids or ()
        told = () if choice.logprobs is None else entries(choice.logprobs, ids)
        if not ids:
            # A running usage tells how many there are.
            grown = 0 if running is None else running.completion_tokens - state.tokens
            state.tokens += max(grown - LONGEST, 0)
            ids = (UNKNOWN,) * max(min(grown, LONGEST), len(told))
        if ids or told:
            state.tokens += len(ids)
            out.append(Tokens(choice.index, ids, told))

    def _finish(self, choice: TextChoice, state: ChoiceState, out: list[Semantic]) -> None:
        said = choice.finish_reason or ""
        ended = ending(said, choice.stop_reason)
        if ended is None:
            self._fail(broken(said), out)
            return
        state.finished = True
        out.append(Finish(choice.index, *ended))

    def _tell(self, usage: CompletionUsage, metrics: Metrics | None, out: list[Semantic]) -> None:
        self._state.told = True
        if metrics is not None:
            for name, key in TIMINGS.items():
                ms = getattr(metrics, key)
                if ms is not UNSET:
                    out.append(TimingInput(name, round(ms * 1e6)))
        spent, sent = usage.completion_tokens_details or None, usage.prompt_tokens_details or None
        cached, reasoning = 0 if sent is None else sent.cached_tokens, 0 if spent is None else spent.reasoning_tokens
        out.append(Usage(usage.prompt_tokens, usage.completion_tokens, cached, reasoning))

    def _fail(self, failure: Failure, out: list[Semantic]) -> None:
        self._state.failed = True
        out.append(failure)

    def _end(self, event: Done | End, out: list[Semantic]) -> None:
        state = self._state
        state.ended = True
        if not state.failed:
            if isinstance(event, End) or not state.choices:
                self._fail(Failure("engine", "The stream broke off before its end.", TRUNCATED), out)
            elif not all(choice.finished for choice in state.choices.values()):
                self._fail(Failure("engine", "The stream ended without a finish reason.", TRUNCATED), out)
            elif state.usage is not None and not state.told:
                self._tell(state.usage, None, out)
        out.append(End())


class CompletionsDecoder:
    """The stage ``completions.decode@1``, for streams of our own."""

    id = "completions.decode@1"

    def start(self, opening: Opening) -> Machine[Wire, Semantic]:
        """See Stage."""
        return _Decoder()

    def resume(self, opening: Opening, snapshot: DecoderState) -> Machine[Wire, Semantic]:
        """See Stage."""
        return _Decoder(snapshot)


DECODER: Final = CompletionsDecoder()
