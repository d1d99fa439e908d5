"""The encoder: semantic events → chat completion chunks. Nothing is held back.

    Start                  a chunk with the role; the first of the stream carries the prompt's ids, if asked for
    Reasoning              delta.reasoning, delta.reasoning_content or both, as the Ask says
    Content, Refusal       delta.content, delta.refusal
    CallStart              an entry with index, id, type, name and empty arguments
    CallArguments          an entry with a fragment of the arguments
    CallEnd                nothing
    Tokens                 nothing, or (logprobs or token ids asked for) a carrier: a chunk with the delta ``{}``
    Finish                 a chunk with the delta ``{}`` and the finish reason
    Usage                  a chunk without choices, if asked for; with the measured times, if those are asked for
    Failure                the error object; Done if streaming; nothing at all if the client is gone
    End                    Done, or (not streaming) the completion
    Marker, Dropped, Fault nothing
    Tick                   Tick while streaming
    TimingInput            nothing; kept for the usage

A carrier goes out at once and alone, before the chunks of the step's text: a machine cannot know whether its step still
brings text, and entries that waited for it would reach the client a step late. So each step that generated tokens gives
one carrier, whether its text is out, withheld or markup, and joined entries are one per token, in order. With reasoning
hidden there are none: they would tell it.

The role chunk has ``content: ""``: whether calls only will follow is not known that early.

Events that break the order of the semantic layer (a foreign parser's) are put in order as far as they can be: a choice
that speaks before its Start gets its role chunk first, calls are numbered as they appear, and what has no place (a
choice outside 0..n-1, anything after Finish or End, arguments of no open call, empty text) is left out. What is missing
(a Finish, a call's name) stays missing: the protocol's rules report it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Final, TypeAlias

import msgspec
from msgspec import UNSET

from stages.events import (
    CallArguments,
    CallEnd,
    CallStart,
    CommonChunk,
    Content,
    Finish,
    Reasoning,
    Refusal,
    Semantic,
    Start,
    Tokens,
)
from stages.message import finish_reason
from stages.opening import Opening
from stages.protocols.openai_chat.accumulate import Accumulator, AccumulatorState
from stages.protocols.openai_chat.chunks import (
    ChatChunk,
    ChatCompletion,
    ChoiceLogprobs,
    ChunkChoice,
    CompletionUsage,
    Delta,
    FunctionDelta,
    ToolCallDelta,
)
from stages.protocols.openai_chat.entries import entry
from stages.protocols.openai_chat.runs import SAID, Said, deltas
from stages.protocols.openai_chat.shared_encoder import (
    Handlers,
    SharedEncoder,
    SharedProgress,
    SharedSnapshot,
    Streaming,
    copied,
)

ChunkLayer: TypeAlias = ChatChunk | ChatCompletion | CommonChunk

_EMPTY = Delta()
_ROLE = Delta("assistant", "")


class Progress(SharedProgress):
    """A choice that was introduced and has not finished. ``open``: the semantic index of the open call, or -1;
    ``whole``: every call so far is complete, but for the open one."""

    calls: int = 0
    open: int = -1
    whole: bool = True


class ChatSnapshot(SharedSnapshot, frozen=True, kw_only=True):
    """The encoder's state."""

    live: dict[int, Progress]
    introduced: int
    prompt: int
    collected: AccumulatorState | None = None


class _Streaming(Streaming[Progress]):
    """The machine of ``stream: true``."""

    chunk = ChatChunk
    choice = ChunkChoice

    def __init__(self, opening: Opening, snapshot: ChatSnapshot | None) -> None:
        super().__init__(opening, snapshot)
        ask = opening.ask
        self._named = ask.named
        self._field = ask.reasoning_field
        self._reasoning = ask.include_reasoning
        self._logprobs = ask.logprobs and ask.include_reasoning
        self._ids = ask.return_token_ids and ask.include_reasoning
        self._prompt_ids = ask.return_token_ids
        self._per_step = self._running or self._logprobs or self._ids
        if not self._per_step:
            self._runs = SAID if self._reasoning else SAID - {Reasoning}
        self._introduced = 0
        self._prompt = 0
        if snapshot is not None:
            self._live = copied(snapshot.live)
            self._introduced = snapshot.introduced
            self._prompt = snapshot.prompt

    def snapshot(self) -> ChatSnapshot:
        """See Machine."""
        return ChatSnapshot(
            ended=self._ended, times=dict(self._times), live=copied(self._live), introduced=self._introduced,
            prompt=self._prompt,
        )  # fmt: skip

    def step(self, event: Semantic, out: list[ChunkLayer]) -> None:
        """See Machine."""
        # Most events of most sessions are of these two kinds.
        if type(event) is Content:
            self._text(event.choice, event.text, Delta(UNSET, event.text), out)
            return
        if type(event) is Tokens and not self._per_step:
            return
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(self, event, out)

    def _is_open(self, like: CallArguments, state: Progress) -> bool:
        return state.open == like.index and state.calls > 0

    def _said(self, like: Said, texts: list[str], state: Progress) -> Iterable[Delta]:
        return deltas(like, texts, self._field, state.calls - 1)

    # --- what the handlers share

    def _text(self, choice: int, text: str, delta: Delta, out: list[ChunkLayer]) -> None:
        state = self._live.get(choice) or self._admit(choice, out)
        if state is None or not text:
            return
        usage = self._usage_of(state) if self._running else self._no_usage
        choices = (ChunkChoice(choice, delta),)
        out.append(ChatChunk(self._id, self._created, self._model, self._fingerprint, choices, usage))

    def _send(self, choice: ChunkChoice, state: Progress, out: list[ChunkLayer]) -> None:
        usage = self._usage_of(state) if self._running else self._no_usage
        out.append(ChatChunk(self._id, self._created, self._model, self._fingerprint, (choice,), usage))

    def _usage_of(self, state: Progress) -> CompletionUsage:
        return CompletionUsage(self._prompt, state.tokens, self._prompt + state.tokens)

    def _admit(self, choice: int, out: list[ChunkLayer], ids: tuple[int, ...] = ()) -> Progress | None:
        """Introduce the choices up to this one, in order; None where the choice has no place (any more)."""
        if self._ended or not self._introduced <= choice < self._n:
            return None
        for index in range(self._introduced, choice + 1):
            state = self._live[index] = Progress()
            self._send(ChunkChoice(index, _ROLE), state, out)
            if ids and index == 0 and self._prompt_ids:
                out[-1] = msgspec.structs.replace(out[-1], prompt_token_ids=ids)
        self._introduced = choice + 1
        return self._live[choice]

    # --- one for each event

    def _on_start(self, event: Start, out: list[ChunkLayer]) -> None:
        if self._introduced == 0:
            self._prompt = event.prompt_tokens
        self._admit(event.choice, out, event.prompt_ids)

    def _on_tokens(self, event: Tokens, out: list[ChunkLayer]) -> None:
        state = self._live.get(event.choice) or self._admit(event.choice, out)
        if state is None:
            return
        state.tokens += len(event.ids)
        ids = event.ids if self._ids and event.ids else UNSET
        entries = None
        if self._logprobs and event.logprobs:
            shown = tuple([entry(item, self._top) for item in self._shown(event.logprobs, state)])
            entries = ChoiceLogprobs(shown) if shown else None
        if entries is not None or ids is not UNSET:
            self._send(ChunkChoice(event.choice, _EMPTY, entries, None, UNSET, ids), state, out)

    def _on_reasoning(self, event: Reasoning, out: list[ChunkLayer]) -> None:
        if not self._reasoning:
            return
        one = UNSET if self._field == "reasoning_content" else event.text
        other = UNSET if self._field == "reasoning" else event.text
        self._text(event.choice, event.text, Delta(reasoning=one, reasoning_content=other), out)

    def _on_refusal(self, event: Refusal, out: list[ChunkLayer]) -> None:
        self._text(event.choice, event.text, Delta(refusal=event.text), out)

    def _on_call_start(self, event: CallStart, out: list[ChunkLayer]) -> None:
        state = self._live.get(event.choice) or self._admit(event.choice, out)
        if state is None:
            return
        if state.open >= 0:
            state.whole = False
        head = ToolCallDelta(state.calls, event.id, "function", FunctionDelta(event.name, ""))
        state.calls += 1
        state.open = event.index
        self._send(ChunkChoice(event.choice, Delta(tool_calls=(head,))), state, out)

    def _on_call_arguments(self, event: CallArguments, out: list[ChunkLayer]) -> None:
        state = self._live.get(event.choice)
        if state is None or not event.text or not self._is_open(event, state):
            return
        more = ToolCallDelta(state.calls - 1, function=FunctionDelta(arguments=event.text))
        self._send(ChunkChoice(event.choice, Delta(tool_calls=(more,))), state, out)

    def _on_call_end(self, event: CallEnd, _out: list[ChunkLayer]) -> None:
        state = self._live.get(event.choice)
        if state is not None and state.open == event.index:
            state.open = -1
            state.whole = state.whole and event.complete

    def _on_finish(self, event: Finish, out: list[ChunkLayer]) -> None:
        state = self._live.get(event.choice) or self._admit(event.choice, out)
        if state is None:
            return
        detail = event.detail if event.reason in ("stop", "stop_token") and event.detail is not None else UNSET
        self._send(ChunkChoice(event.choice, _EMPTY, None, self._reason(event, state), detail), state, out)
        del self._live[event.choice]

    def _reason(self, event: Finish, state: Progress) -> str:
        complete = state.calls > 0 and state.whole and state.open < 0
        return finish_reason(event.reason, complete and not self._named)

    _handlers: ClassVar[Handlers] = {
        **Streaming.shared_handlers,
        Start: _on_start,
        Tokens: _on_tokens,
        Reasoning: _on_reasoning,
        Refusal: _on_refusal,
        CallStart: _on_call_start,
        CallArguments: _on_call_arguments,
        CallEnd: _on_call_end,
        Finish: _on_finish,
    }


ENCODER: Final = SharedEncoder("chat@1", _Streaming, Accumulator)
