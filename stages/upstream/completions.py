"""What the model wrote, from ``POST /v1/completions``, asked with special tokens visible: text, and whatever else is
told.

    text                                TokensInput; its ids where there are any (vLLM's ``token_ids``)
    prompt_token_ids                    PromptInput, on the first chunk (vLLM)
    logprobs                            with it, where there is an entry for each id. Without ids each entry stands for
                                        a token of id -1. Both shapes: that of completions, and that of chat (llama.cpp)
    finish_reason, stop_reason          FinishInput
    matched_stop                        the same (SGLang), of end tokens too
    usage                               UsageInput, at the end; of a chunk with choices (transformers) the last one
                                        counts if there is no other

Some servers leave a matched stop string out of the text, and do not tell which it was.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from stages.events import Input, TokenLogprob, TokensInput, TopLogprob
from stages.upstream.entries import UNKNOWN, Entry, joined, number_of, sorted_top
from stages.upstream.machine import ChoiceState, Inputs, InputsState
from stages.upstream.openai import OpenAiMachine, Usage
from stages.upstream.wire import Event, Number


class Logprobs(msgspec.Struct, frozen=True, gc=False):
    """Parallel lists (an alternative's key is its text), or in ``content`` entries as chat has them."""

    tokens: tuple[str, ...] | None = None
    token_logprobs: tuple[float | None, ...] | None = None
    top_logprobs: tuple[dict[str, float | None] | None, ...] | None = None
    content: tuple[Entry, ...] | None = None


class Choice(msgspec.Struct, frozen=True, gc=False):
    """A choice's part of a chunk, or a whole one."""

    index: Annotated[int, Meta(ge=0)] | None = None
    text: str | None = None
    token_ids: tuple[Number, ...] | None = None
    prompt_token_ids: tuple[Number, ...] | None = None
    finish_reason: str | None = None
    stop_reason: Number | str | None = None
    matched_stop: Number | str | None = None
    logprobs: Logprobs | None = None


class Chunk(Event, frozen=True, gc=False):
    """A chunk, or a whole response."""

    choices: tuple[Choice, ...] = ()
    usage: Usage | None = None


class CompletionsInputs(OpenAiMachine):
    """The machine."""

    chunk = Chunk
    decoder = msgspec.json.Decoder(Chunk)

    def _prompt_ids(self, chunk: Chunk) -> tuple[int, ...] | None:
        return chunk.choices[0].prompt_token_ids

    def _tokens(self, index: int, state: ChoiceState, choice: Choice, out: list[Input]) -> None:
        ids, text, said = choice.token_ids or (), choice.text or "", choice.logprobs
        logprobs: tuple[TokenLogprob, ...] = ()
        if said is not None:
            entries = said.content or ()
            ids = ids or (UNKNOWN,) * (len(entries) or len(said.tokens or ()))
            logprobs = joined(ids, entries) if entries else _parallel(ids, said)
            if not logprobs and not choice.token_ids:
                ids = ()
        if ids:
            state.ids += len(ids)
        elif text:
            state.bare += 1
        else:
            return
        out.append(TokensInput(index, ids, (), text, logprobs))

    def _finished(self, index: int, state: ChoiceState, choice: Choice, out: list[Input]) -> bool:
        said = choice.finish_reason or ""
        if choice.stop_reason is None:
            return self._finish_matched(index, state, said, choice.matched_stop, out)
        return self._finish(index, state, said, choice.stop_reason, out)


def _parallel(ids: tuple[int, ...], said: Logprobs) -> tuple[TokenLogprob, ...]:
    tokens, numbers = said.tokens or (), said.token_logprobs or ()
    if not len(ids) == len(tokens) == len(numbers):
        return ()
    top = [*(said.top_logprobs or ()), *[None] * len(ids)]
    return tuple(
        TokenLogprob(number, _piece(token), number_of(logprob), sorted_top(_others(more)))
        for number, token, logprob, more in zip(ids, tokens, numbers, top, strict=False)
    )


def _others(top: dict[str, float | None] | None) -> list[TopLogprob]:
    return [TopLogprob(UNKNOWN, _piece(token), number_of(logprob)) for token, logprob in (top or {}).items()]


def _piece(token: str) -> bytes:
    return token.encode("utf-8", "replace")


COMPLETIONS: Final = Inputs("inputs.completions@1", CompletionsInputs, InputsState)
