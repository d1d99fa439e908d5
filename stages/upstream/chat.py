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
from stages.upstream.wire import Event, Number


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


class ChatInputs(OpenAiMachine):
    """The machine."""

    chunk = Chunk
    decoder = msgspec.json.Decoder(Chunk)

    def _prompt_ids(self, chunk: Chunk) -> tuple[int, ...] | None:
        return chunk.prompt_token_ids

    def _finished(self, index: int, state: ChoiceState, choice: Choice, out: list[Input]) -> bool:
        if self._parsed and not state.ids and not isinstance(choice.stop_reason, str):
            # Who writes nothing writes an end token. What is served would be empty, whatever the model wrote.
            self._fail(UNTOLD, out)
            return False
        return self._finish(index, state, choice.finish_reason or "", choice.stop_reason, out)

    def _tokens(self, index: int, state: ChoiceState, choice: Choice, out: list[Input]) -> None:
        ids, said = choice.token_ids, choice.logprobs
        if not ids:
            return
        state.ids += len(ids)
        logprobs = () if said is None else joined(ids, (*(said.content or ()), *(said.refusal or ())))
        out.append(TokensInput(index, ids, (), "", logprobs))


CHAT: Final = Inputs("inputs.chat@1", ChatInputs, InputsState)
