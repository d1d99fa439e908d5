"""What the model wrote, from SGLang's own ``POST /generate``: a stream of ``{"text", "output_ids", "meta_info"}``.

    output_ids, text                     TokensInput; all so far in every event, or (``--incremental-streaming-output``)
                                         what is new: told apart by what the events have
    meta_info.output_token_logprobs,     its logprobs: ``[logprob, id, text]`` for each id, as cumulative as the ids
    .output_top_logprobs
    meta_info.finish_reason              ``{"type": "stop", "matched": id or text}``, ``{"type": "length"}``, or
                                         ``{"type": "abort", "message", "status_code"}``, which is an ErrorInput
    meta_info.prompt_tokens,             PromptInput and UsageInput; the last ones count. The prompt's ids are not told
    .cached_tokens, .completion_tokens
    index                                the choice, where there are several
    {"error": {"message"}}               ErrorInput; [DONE] follows

Ids have the end token and all of a stop string, also where the text has not. Without ``output_ids`` (older servers) the
ids are those of the logprobs, if these were asked for, or else there is text only.

Read from the source of SGLang: what its tokenizer manager puts into an event, when text and ids are cumulative, that
events which wait are merged, and how errors and aborts end a stream. No stream of a running server was at hand.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from stages.events import ErrorChunk, ErrorInput, Input, TokenLogprob, TokensInput, TopLogprob
from stages.protocols.openai_chat import failure_of
from stages.upstream.entries import UNKNOWN, number_of, sorted_top
from stages.upstream.machine import ChoiceState, Inputs, InputsMachine, InputsState
from stages.upstream.wire import Count, Event, Number, as_input, read

_Logprob = tuple[float | None, Number | None, Any]
"""Logprob, id, text."""


class Reason(msgspec.Struct, frozen=True, gc=False):
    """Why a choice ended."""

    type: str = ""
    matched: Number | str | None = None
    message: str | None = None
    status_code: Number | None = None


class MetaInfo(msgspec.Struct, frozen=True, gc=False):
    """What is told beside the tokens."""

    prompt_tokens: Count = 0
    completion_tokens: Count | None = None
    cached_tokens: Count = 0
    finish_reason: Reason | str | None = None
    output_token_logprobs: tuple[_Logprob, ...] | None = None
    output_top_logprobs: tuple[tuple[_Logprob, ...] | None, ...] | None = None


class Generated(Event, frozen=True, gc=False):
    """An event, or a whole response."""

    text: str | None = None
    output_ids: tuple[Number, ...] | None = None
    meta_info: MetaInfo = MetaInfo()
    index: Annotated[int, Meta(ge=0)] = 0


class GenerateState(InputsState):
    """Also: ``cumulative``: every event has all so far, None: not known yet; until then ``first`` has the ids, or else
    the text, of each choice's first event."""

    cumulative: bool | None = None
    first: dict[int, tuple[int, ...] | str] = {}


_EVENT: Final = msgspec.json.Decoder(Generated)


class GenerateInputs(InputsMachine[GenerateState]):
    """The machine."""

    def _event(self, data: bytes, whole: bool, out: list[Input]) -> None:
        event = read(Generated, _EVENT, data)
        if isinstance(event, ErrorInput):
            self._fail(event, out)
            return
        meta = event.meta_info
        if self._state.prompt < 0:
            self._begin((), meta.prompt_tokens, meta.cached_tokens, out)
        choice = self._choice(event.index)
        if choice is None:
            return
        self._tokens(event, choice, out)
        self._state.prompt, self._state.cached = meta.prompt_tokens or self._state.prompt, meta.cached_tokens
        choice.told = meta.completion_tokens or choice.told
        if meta.finish_reason is not None:
            self._finished(event.index, choice, meta.finish_reason, out)

    def _tokens(self, event: Generated, choice: ChoiceState, out: list[Input]) -> None:
        meta = event.meta_info
        said, top = meta.output_token_logprobs or (), meta.output_top_logprobs or ()
        ids, text = event.output_ids, event.text or ""
        if ids is None:
            ids = tuple([UNKNOWN if entry[1] is None else entry[1] for entry in said])
        if self._repeats(event, ids or text):
            said, top, ids, text = said[choice.ids :], top[choice.ids :], ids[choice.ids :], text[choice.text :]
        choice.text += len(text)
        if ids:
            choice.ids += len(ids)
            out.append(TokensInput(event.index, ids, (), text, _logprobs(ids, said, top)))
        elif text and not choice.ids:
            # Text that comes behind its ids has been told with them.
            choice.bare += 1
            out.append(TokensInput(event.index, (), (), text))

    def _repeats(self, event: Generated, now: tuple[int, ...] | str) -> bool:
        """The event has again what was there before."""
        state = self._state
        if state.cumulative is None:
            before = state.first.get(event.index)
            if not before:
                state.first[event.index] = now
                return False
            if isinstance(before, str) != isinstance(now, str):
                # Ids here, text there: nothing that can be compared.
                return False
            state.cumulative = _repeats(before, now, event.meta_info.completion_tokens)
            state.first = {}
        return state.cumulative

    def _finished(self, index: int, choice: ChoiceState, reason: Reason | str, out: list[Input]) -> None:
        if isinstance(reason, str):
            reason = Reason(reason)
        if reason.type == "abort":
            error = {"message": reason.message or "The upstream aborted the request.", "code": reason.type}
            self._fail(as_input(failure_of(ErrorChunk(reason.status_code or 500, {"error": error}))), out)
        else:
            self._finish_matched(index, choice, reason.type, reason.matched, out)


def _repeats(before: tuple[int, ...] | str, now: tuple[int, ...] | str, told: int | None) -> bool:
    """Whether a choice's second event has all of its first again. ``told``: the tokens that it has by then."""
    if now[: len(before)] != before:
        return False
    if told is None or isinstance(now, str):
        return True
    # A token may be written twice in a row.
    return abs(told - len(now)) <= abs(told - len(before) - len(now))


def _logprobs(
    ids: tuple[int, ...], said: tuple[_Logprob, ...], top: tuple[tuple[_Logprob, ...] | None, ...]
) -> tuple[TokenLogprob, ...]:
    """Bytes are left out: the texts that may come with ids are not exact."""
    if len(said) != len(ids):
        return ()
    others = [*top, *[None] * (len(ids) - len(top))]
    return tuple(
        TokenLogprob(number, b"", number_of(entry[0]), sorted_top(map(_top, more or ())))
        for number, entry, more in zip(ids, said, others, strict=False)
    )


def _top(entry: _Logprob) -> TopLogprob:
    return TopLogprob(UNKNOWN if entry[1] is None else entry[1], b"", number_of(entry[0]))


GENERATE: Final = Inputs("inputs.generate@1", GenerateInputs, GenerateState)
