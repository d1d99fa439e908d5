"""What the decoders of chat completions and of completions have in common: tokens, usage, errors, the end.

token ids, entries   Tokens; -1 for an id that is not told (only entries, or only a running usage that grew)
finish_reason        Finish
usage                TimingInput of each of its metrics, Usage
an error             Failure
Done                 End; before it Failure if a choice has no finish, or a usage that had no chunk of its own
Tick                 Tick
End                  the body has ended: as Done, which some servers never send; but of ours, a stream without it was
                     cut: Failure (code ``truncated``) and End
ErrorInput           the body broke off: Failure and End
AbortInput           the client left: End
"""

from __future__ import annotations

import copy
from typing import Any, ClassVar, Final, Generic, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from stages.events import (
    AbortInput,
    Done,
    End,
    ErrorChunk,
    ErrorInput,
    Failure,
    Finish,
    FinishReason,
    Semantic,
    Tick,
    TimingInput,
    TokenLogprob,
    Tokens,
    Usage,
)
from stages.protocols.openai_chat.chunks import TIMINGS, CompletionUsage, Metrics, failure_of
from stages.protocols.telling import TRUNCATED

MOST: Final = 128
"""Choices of a stream; one beyond them is passed over."""
LONGEST: Final = 1 << 16
"""Tokens of a chunk that only a running usage tells of; what it counts beyond them is passed over."""
UNKNOWN: Final = -1
"""The id of a token whose id is not told."""

_REASONS: Final[dict[str, FinishReason]] = {
    "stop": "eos", "tool_calls": "eos", "function_call": "eos", "length": "length", "content_filter": "filter",
    "repetition": "length", "max_tokens": "length",
}  # fmt: skip
"""Other words count as the model's own end, but for these:"""
_BROKEN: Final = frozenset(("abort", "error", "insufficient_system_resource"))


def ending(said: str, stop: str | int | UnsetType | None) -> tuple[FinishReason, str | int | None] | None:
    """How a choice ended that finished with ``said``, and what matched; None where it broke. ``stop``: what the server
    says that matched."""
    if said in _BROKEN:
        return None
    detail = stop or None if stop != 0 else 0
    reason = _REASONS.get(said, "eos")
    if reason == "eos" and detail is not None:
        reason = "stop" if isinstance(detail, str) else "stop_token"
    return reason, detail


def broken(said: str) -> Failure:
    """What a finish reason that is a failure tells."""
    return Failure("engine", f"The stream ended with the finish reason {said!r}.", said)


class SharedChoice(msgspec.Struct):
    """A choice so far. ``size``: bytes of its text; ``tokens``: how many were told."""

    size: int = 0
    tokens: int = 0
    finished: bool = False


C = TypeVar("C", bound=SharedChoice)


class SharedState(msgspec.Struct, Generic[C]):
    """All that a decoder knows; plain data. ``response``: its id."""

    response: str = ""
    choices: dict[int, C] = {}
    usage: CompletionUsage | None = None
    told: bool = False
    failed: bool = False
    ended: bool = False


class SharedDecoder(Generic[C]):
    """The machine; a protocol's own says what a choice of a chunk means. ``own``: the stream is one of ours."""

    kind: ClassVar[type]
    """Of its chunks."""

    def __init__(self, own: bool, state: SharedState[C]) -> None:
        self._own = own
        self._state = copy.deepcopy(state)

    def snapshot(self) -> SharedState[C]:
        """See Machine."""
        return copy.deepcopy(self._state)

    def step(self, event: Any, out: list[Semantic]) -> None:
        """See Machine."""
        state = self._state
        if state.ended:
            return
        # What follows an error is void.
        if isinstance(event, self.kind):
            if not state.failed:
                self._chunk(event, out)
        elif isinstance(event, Tick):
            out.append(event)
        elif isinstance(event, Done | End | ErrorInput | AbortInput):
            self._end(event, out)
        elif isinstance(event, ErrorChunk) and not state.failed:
            self._fail(failure_of(event), out)

    def _chunk(self, chunk: Any, out: list[Semantic]) -> None:
        state = self._state
        state.response = state.response or chunk.id
        usage = chunk.usage or None
        for choice in chunk.choices:
            if not 0 <= choice.index < MOST or state.failed:
                continue
            told = state.choices.get(choice.index) or self._introduce(choice, chunk, out)
            if not told.finished:
                self._choice(choice, told, usage if len(chunk.choices) == 1 else None, out)
        if usage is None:
            return
        state.usage = usage
        if not chunk.choices and not state.told and not state.failed:
            self._tell(usage, chunk.metrics or None, out)

    # --- what a protocol's own does

    def _introduce(self, choice: Any, chunk: Any, out: list[Semantic]) -> C:
        """A choice that was not seen before. ``chunk``: which it is of."""
        raise NotImplementedError

    def _choice(self, choice: Any, state: C, running: CompletionUsage | None, out: list[Semantic]) -> None:
        """What a choice of a chunk says. ``running``: its usage, where the chunk has no other choice."""
        raise NotImplementedError

    def _close(self, choice: int, state: C, finish: str | None, out: list[Semantic]) -> None:
        """Nothing more comes for a choice. ``finish``: its finish reason; None: it is cut off."""

    # --- what they have in common

    def _tokens(
        self,
        choice: Any,
        entries: tuple[TokenLogprob, ...],
        state: C,
        running: CompletionUsage | None,
        out: list[Semantic],
    ) -> None:
        ids = choice.token_ids or ()
        if not ids:
            # A running usage tells how many there are.
            grown = 0 if running is None else running.completion_tokens - state.tokens
            state.tokens += max(grown - LONGEST, 0)
            ids = (UNKNOWN,) * max(min(grown, LONGEST), len(entries))
        if ids or entries:
            state.tokens += len(ids)
            out.append(Tokens(choice.index, ids, entries))

    def _finish(self, choice: Any, state: C, out: list[Semantic]) -> None:
        said = choice.finish_reason or ""
        ended = ending(said, choice.stop_reason)
        if ended is None:
            self._fail(broken(said), out)
            return
        state.finished = True
        self._close(choice.index, state, said, out)
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
        self._cut(out)
        self._state.failed = True
        out.append(failure)

    def _cut(self, out: list[Semantic]) -> None:
        for index, choice in self._state.choices.items():
            if not choice.finished:
                self._close(index, choice, None, out)

    def _end(self, event: Done | End | ErrorInput | AbortInput, out: list[Semantic]) -> None:
        state = self._state
        state.ended = True
        if not state.failed:
            finished = bool(state.choices) and all(choice.finished for choice in state.choices.values())
            if isinstance(event, ErrorInput):
                self._fail(Failure(event.kind, event.message, event.code, event.param), out)
            elif isinstance(event, AbortInput):
                self._cut(out)
            elif not state.choices or (isinstance(event, End) and (self._own or not finished)):
                self._fail(Failure("engine", "The stream broke off before its end.", TRUNCATED), out)
            elif not finished:
                self._fail(Failure("engine", "The stream ended without a finish reason.", TRUNCATED), out)
            elif state.usage is not None and not state.told:
                self._tell(state.usage, None, out)
        out.append(End())
