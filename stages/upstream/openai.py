"""What chat completions and completions have in common, read for what the model wrote."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from stages.events import ErrorInput, Input, UsageInput
from stages.upstream.machine import ChoiceState, InputsMachine, InputsState
from stages.upstream.wire import Count, Event, read


class Details(msgspec.Struct, frozen=True, gc=False):
    """Of the prompt's tokens."""

    cached_tokens: Count | None = None


class Usage(msgspec.Struct, frozen=True, gc=False):
    """Token counts."""

    prompt_tokens: Count = 0
    completion_tokens: Count = 0
    prompt_tokens_details: Details | None = None

    @property
    def cached(self) -> int:
        """Prompt tokens that were cached."""
        return (self.prompt_tokens_details and self.prompt_tokens_details.cached_tokens) or 0


class OpenAiMachine(InputsMachine[InputsState]):
    """A usage that comes with choices is a running one, of that choice; one without is the whole response's. A way's
    own says what a choice means."""

    chunk: ClassVar[type[Event]]
    """A chunk, or a whole response; with ``choices`` and ``usage``."""
    decoder: ClassVar[msgspec.json.Decoder[Any]]
    """Of ``chunk``."""

    def _event(self, data: bytes, whole: bool, out: list[Input]) -> None:
        chunk: Any = read(self.chunk, self.decoder, data)
        if isinstance(chunk, ErrorInput):
            self._fail(chunk, out)
            return
        choices, usage = chunk.choices, chunk.usage
        if choices and self._state.prompt < 0:
            ids = self._prompt_ids(chunk) or ()
            self._begin(ids, len(ids) or (usage.prompt_tokens if usage else 0), 0, out)
        for place, choice in enumerate(choices):
            index = place if choice.index is None else choice.index
            state = self._choice(index)
            if state is None:
                continue
            self._tokens(index, state, choice, out)
            if usage is not None and len(choices) == 1:
                self._running_usage(state, usage)
            if choice.finish_reason and not self._finished(index, state, choice, out):
                return
        if usage is not None and (whole or not choices):
            self._state.usage = UsageInput(usage.prompt_tokens, usage.completion_tokens, usage.cached)

    def _running_usage(self, choice: ChoiceState, usage: Usage) -> None:
        state = self._state
        state.prompt = usage.prompt_tokens or state.prompt
        state.cached = usage.cached or state.cached
        choice.told = usage.completion_tokens or choice.told

    # --- what a way's own does

    def _prompt_ids(self, chunk: Any) -> tuple[int, ...] | None:
        """Of the first chunk that has choices."""
        raise NotImplementedError

    def _tokens(self, index: int, state: ChoiceState, choice: Any, out: list[Input]) -> None:
        """What the choice says that the model wrote."""
        raise NotImplementedError

    def _finished(self, index: int, state: ChoiceState, choice: Any, out: list[Input]) -> bool:
        """The choice has a finish reason. False: it is a failure, and nothing more counts."""
        raise NotImplementedError
