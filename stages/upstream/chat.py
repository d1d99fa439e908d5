"""What the model wrote, from chat completions that tell token ids (``return_token_ids``): vLLM, Playhead.

    first chunk of the first choice     PromptInput; its ids on the first chunk, which vLLM repeats for every choice
    token_ids                           TokensInput, without text: what a parser upstream lets through tells little
    logprobs                            with them, where there is an entry for each id
    finish_reason, stop_reason          FinishInput
    usage of a chunk without choices    UsageInput, at the end

A whole response is one step. A response that hides reasoning (``include_reasoning: false``) has no ids for it, and a
stop string takes the ids behind its match away; that is not told.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from stages.events import ErrorInput, Input, TokensInput
from stages.upstream.entries import Entries, joined
from stages.upstream.machine import ChoiceState, Inputs, InputsState
from stages.upstream.openai import OpenAiMachine, Usage
from stages.upstream.wire import Event, Number, read


class Choice(msgspec.Struct, frozen=True, gc=False):
    """A choice's part of a chunk, or a whole one."""

    index: Annotated[int, Meta(ge=0)] | None = None
    token_ids: tuple[Number, ...] | None = None
    finish_reason: str | None = None
    stop_reason: Number | str | None = None
    logprobs: Entries | None = None


class Chunk(Event, frozen=True, gc=False):
    """A chunk, or a whole response."""

    choices: tuple[Choice, ...] = ()
    usage: Usage | None = None
    prompt_token_ids: tuple[Number, ...] | None = None


UNTOLD: Final = ErrorInput(
    "engine", "The upstream answered without the token ids that it was asked for.", "upstream_untold"
)
_CHUNK: Final = msgspec.json.Decoder(Chunk)


class ChatInputs(OpenAiMachine):
    """The machine."""

    def _event(self, data: bytes, whole: bool, out: list[Input]) -> None:
        chunk = read(Chunk, _CHUNK, data)
        if isinstance(chunk, ErrorInput):
            self._fail(chunk, out)
            return
        choices, usage = chunk.choices, chunk.usage
        if choices and self._state.prompt < 0:
            ids = chunk.prompt_token_ids or ()
            self._begin(ids, len(ids) or (usage.prompt_tokens if usage else 0), 0, out)
        for place, choice in enumerate(choices):
            index = place if choice.index is None else choice.index
            state = self._choice(index)
            if state is None:
                continue
            if choice.token_ids:
                self._tokens(index, state, choice.token_ids, choice.logprobs, out)
            if usage is not None and len(choices) == 1:
                self._running_usage(state, usage)
            if choice.finish_reason and not self._finished(index, state, choice, out):
                return
        if usage is not None and (whole or not choices):
            self._whole_usage(usage)

    def _finished(self, index: int, state: ChoiceState, choice: Choice, out: list[Input]) -> bool:
        if self._parsed and not state.ids and not isinstance(choice.stop_reason, str):
            # Who writes nothing writes an end token. What is served would be empty, whatever the model wrote.
            self._fail(UNTOLD, out)
            return False
        return self._finish(index, state, choice.finish_reason or "", choice.stop_reason, out)

    def _tokens(
        self, index: int, state: ChoiceState, ids: tuple[int, ...], said: Entries | None, out: list[Input]
    ) -> None:
        state.ids += len(ids)
        logprobs = () if said is None else joined(ids, (*(said.content or ()), *(said.refusal or ())))
        out.append(TokensInput(index, ids, (), "", logprobs))


CHAT: Final = Inputs("inputs.chat@1", ChatInputs, InputsState)
