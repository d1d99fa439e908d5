"""What chat completions and completions have in common, read for what the model wrote."""

from __future__ import annotations

import msgspec

from stages.events import UsageInput
from stages.upstream.machine import ChoiceState, InputsMachine, InputsState
from stages.upstream.wire import Count


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
    """A usage that comes with choices is a running one, of that choice; one without is the whole response's."""

    def _whole_usage(self, usage: Usage) -> None:
        self._state.usage = UsageInput(usage.prompt_tokens, usage.completion_tokens, usage.cached)

    def _running_usage(self, choice: ChoiceState, usage: Usage) -> None:
        state = self._state
        state.prompt = usage.prompt_tokens or state.prompt
        state.cached = usage.cached or state.cached
        choice.told = usage.completion_tokens or choice.told
