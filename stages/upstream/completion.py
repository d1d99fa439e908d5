"""What the model wrote, from llama.cpp's own ``POST /completion`` with ``return_tokens``: a stream of
``{"index", "content", "tokens", "stop", "tokens_predicted", "tokens_evaluated"}``, one event a token.

    tokens, content               TokensInput
    completion_probabilities      its logprobs, where there is an entry for each id
    stop_type of the last event   FinishInput: ``eos``; ``limit``: length, or context if ``truncated``; ``word``: stop,
                                  with the ``stopping_word``
    tokens_evaluated              PromptInput: tokens of the prompt, whose ids are not told
    timings.cache_n               how many of them were cached (``tokens_cached`` is something else); in the last event
    tokens_predicted              UsageInput
    {"error": {"message"}}        ErrorInput

**Ids get lost**: while the text ends within a character there are no events, and the one that ends the character has
the text, but only the last id. ``tokens_predicted`` counts on, so that this shows; such a step is told as text
without ids. In speculative decoding it counts a whole step ahead, so that any text that is not ASCII may have lost ids:
there it is told without. The text is exact in any case, as long as no stop strings are sent (they hold text back while
ids go on).

Read from the source of llama.cpp's server: what makes an event, what the last one has, and what its counters count. No
stream of a running server was at hand.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from stages.events import ErrorInput, FinishReason, Input, TokensInput
from stages.upstream.entries import Entry, joined
from stages.upstream.machine import ChoiceState, Inputs, InputsMachine, InputsState
from stages.upstream.wire import Count, Event, Number, read


class Timings(msgspec.Struct, frozen=True, gc=False):
    """Of the last event."""

    cache_n: Count | None = None


class Completed(Event, frozen=True, gc=False):
    """An event, or a whole response. ``index``: the choice."""

    index: Annotated[int, Meta(ge=0)] = 0
    content: str | None = None
    tokens: tuple[Number, ...] | None = None
    stop: bool = False
    stop_type: str | None = None
    stopping_word: str | None = None
    truncated: bool = False
    tokens_predicted: Count | None = None
    tokens_evaluated: Count = 0
    timings: Timings | None = None
    completion_probabilities: tuple[Entry, ...] | None = None


class CompletionState(InputsState):
    """Also: ``counted``: ``tokens_predicted`` of each choice's last event; ``ahead``: it counts tokens before they are
    told."""

    counted: dict[int, int] = {}
    ahead: bool = False


_EVENT: Final = msgspec.json.Decoder(Completed)


class CompletionInputs(InputsMachine[CompletionState]):
    """The machine."""

    def _event(self, data: bytes, whole: bool, out: list[Input]) -> None:
        event = read(Completed, _EVENT, data)
        if isinstance(event, ErrorInput):
            self._fail(event, out)
            return
        if self._state.prompt < 0:
            self._begin((), event.tokens_evaluated, 0, out)
        index = event.index
        choice = self._choice(index)
        if choice is None:
            return
        # Servers that repeat everything in the last event of a stream have been about.
        if not event.stop or not choice.ids + choice.bare:
            self._tokens(event, choice, whole, out)
        choice.told = event.tokens_predicted or choice.told
        if event.stop:
            if event.timings is not None:
                self._state.cached = event.timings.cache_n or 0
            self._finished_with(index, choice, *_ended(event), out)

    def _tokens(self, event: Completed, choice: ChoiceState, whole: bool, out: list[Input]) -> None:
        ids, text = event.tokens or (), event.content or ""
        if self._lost(event, len(ids), text) and not whole:
            ids = ()
        if ids:
            choice.ids += len(ids)
            entries = event.completion_probabilities
            logprobs = joined(ids, entries, self._opening.ask.top_logprobs) if entries else ()
            out.append(TokensInput(event.index, ids, (), text, logprobs))
        elif text:
            choice.bare += 1
            out.append(TokensInput(event.index, (), (), text))

    def _lost(self, event: Completed, size: int, text: str) -> bool:
        """Whether the text may be of more than these ``size`` ids."""
        state, counted = self._state, event.tokens_predicted
        if not counted:
            return False
        before = state.counted.get(event.index, 0)
        state.counted[event.index] = counted
        if counted == before and size:
            state.ahead = True
        return (state.ahead or counted - before > size) and not text.isascii()


def _ended(event: Completed) -> tuple[FinishReason, str | None]:
    match event.stop_type:
        case "limit":
            return ("context" if event.truncated else "length"), None
        case "word":
            return "stop", event.stopping_word or None
        case _:
            return "eos", None


COMPLETION: Final = Inputs("inputs.completion@1", CompletionInputs, CompletionState)
