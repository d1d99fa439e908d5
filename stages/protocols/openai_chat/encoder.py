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

from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from typing import Any, ClassVar, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from stages.events import (
    CallArguments,
    CallEnd,
    CallStart,
    CommonChunk,
    Content,
    Done,
    End,
    ErrorChunk,
    Failure,
    Finish,
    Reasoning,
    Refusal,
    Semantic,
    Start,
    Tick,
    TimingInput,
    TokenLogprob,
    Tokens,
    Usage,
)
from stages.message import finish_reason
from stages.opening import Opening
from stages.protocols.openai_chat.accumulate import Accumulator, AccumulatorState
from stages.protocols.openai_chat.chunks import (
    TIMINGS,
    ChatChunk,
    ChatCompletion,
    ChoiceLogprobs,
    ChunkChoice,
    CompletionDetails,
    CompletionUsage,
    Delta,
    FunctionDelta,
    LogprobEntry,
    Metrics,
    PromptDetails,
    ToolCallDelta,
    error_chunk,
)
from stages.protocols.openai_chat.entries import entry
from stages.protocols.openai_chat.runs import SAID, Said, deltas, gather
from stages.stage import Machine

ChunkLayer: TypeAlias = ChatChunk | ChatCompletion | CommonChunk

_EMPTY = Delta()
_ROLE = Delta("assistant", "")


class Progress(msgspec.Struct):
    """A choice that was introduced and has not finished. ``open``: the semantic index of the open call, or -1;
    ``whole``: every call so far is complete, but for the open one; ``left_out``: its end token was."""

    tokens: int = 0
    calls: int = 0
    open: int = -1
    whole: bool = True
    left_out: bool = False


class ChatSnapshot(msgspec.Struct, frozen=True):
    """The encoder's state. ``message``: what was collected, when not streaming; ``times``: ms by key of Metrics."""

    live: dict[int, Progress]
    introduced: int
    prompt: int
    ended: bool
    message: AccumulatorState | None = None
    times: dict[str, float] = {}


class _Streaming:
    """The machine of ``stream: true``."""

    def __init__(self, opening: Opening, snapshot: ChatSnapshot | None = None) -> None:
        ask = opening.ask
        self._id = opening.response_id
        self._created = opening.created
        self._model = opening.model
        self._fingerprint = opening.engine.fingerprint
        self._n = ask.n
        self._named = ask.named
        self._field = ask.reasoning_field
        self._reasoning = ask.include_reasoning
        self._logprobs = ask.logprobs and ask.include_reasoning
        self._top = ask.top_logprobs
        self._left_out = frozenset[int]() if ask.end_token else opening.ends
        self._ids = ask.return_token_ids and ask.include_reasoning
        self._prompt_ids = ask.return_token_ids
        self._asked = ask.include_usage
        self._metrics = ask.metrics
        self._times: dict[str, float] = {}
        self._running = ask.include_usage and ask.continuous_usage
        self._per_step = self._running or self._logprobs or self._ids
        self._no_usage: UnsetType | None = None if ask.include_usage else UNSET
        self._runs = frozenset[type]() if self._per_step else SAID if self._reasoning else SAID - {Reasoning}
        self._live: dict[int, Progress] = {}
        self._introduced = 0
        self._prompt = 0
        self._ended = False
        if snapshot is not None:
            self._live = _copied(snapshot.live)
            self._introduced = snapshot.introduced
            self._prompt = snapshot.prompt
            self._ended = snapshot.ended
            self._times = dict(snapshot.times)

    def snapshot(self) -> ChatSnapshot:
        """See Machine."""
        return ChatSnapshot(_copied(self._live), self._introduced, self._prompt, self._ended, times=dict(self._times))

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

    def run_steps(self, inputs: Iterable[Semantic], out: list[ChunkLayer], ends: list[int]) -> None:
        """See ``stages.stage.run_steps``."""
        rest = iter(inputs)
        for event in rest:
            following: Any = event
            while following is not None:
                self.step(following, out)
                ends.append(len(out))
                following = self._run(following, rest, out, ends) if type(following) in self._runs else None

    def _run(self, like: Said, rest: Iterator[Semantic], out: list[ChunkLayer], ends: list[int]) -> Semantic | None:
        """Do the steps that go on as this one did; returns the first other event."""
        choice = like.choice
        state = self._live.get(choice)
        if state is None or (type(like) is CallArguments and (state.open != like.index or not state.calls)):
            return None
        texts: list[str] = []
        try:
            return gather(like, rest, texts, ends, len(out))
        finally:
            if texts:
                made = map(ChunkChoice, repeat(choice), deltas(like, texts, self._field, state.calls - 1))
                envelope = repeat(self._id), repeat(self._created), repeat(self._model), repeat(self._fingerprint)
                out += map(ChatChunk, *envelope, zip(made, strict=False), repeat(self._no_usage))

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
            shown = [entry(item, self._top) for item in event.logprobs]
            if self._left_out and not state.left_out:
                self._leave_out(event.logprobs, shown, state)
            entries = ChoiceLogprobs(tuple(shown)) if shown else None
        if entries is not None or ids is not UNSET:
            self._send(ChunkChoice(event.choice, _EMPTY, entries, None, UNSET, ids), state, out)

    def _leave_out(self, items: tuple[TokenLogprob, ...], shown: list[LogprobEntry], state: Progress) -> None:
        """One end token has no entry: the first, which is the one that ends the choice."""
        for place, item in enumerate(items):
            if item.id in self._left_out:
                del shown[place]
                state.left_out = True
                return

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
        if state is None or state.open != event.index or not event.text or not state.calls:
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

    def _on_usage(self, event: Usage, out: list[ChunkLayer]) -> None:
        if self._ended or not self._asked:
            return
        usage = CompletionUsage(
            event.prompt,
            event.completion,
            event.prompt + event.completion,
            CompletionDetails(event.reasoning),
            PromptDetails(event.cached),
        )
        metrics = Metrics(**self._times) if self._metrics and self._times else UNSET
        out.append(ChatChunk(self._id, self._created, self._model, self._fingerprint, (), usage, metrics=metrics))

    def _on_timing(self, event: TimingInput, _out: list[ChunkLayer]) -> None:
        if event.name in TIMINGS:
            self._times[TIMINGS[event.name]] = event.ns / 1e6

    def _on_failure(self, event: Failure, out: list[ChunkLayer]) -> None:
        if self._ended:
            return
        self._close()
        if event.kind != "client_closed":
            out += (error_chunk(event.kind, event.message, event.code, event.param), Done())

    def _on_end(self, _event: End, out: list[ChunkLayer]) -> None:
        if not self._ended:
            self._close()
            out.append(Done())

    def _on_tick(self, event: Tick, out: list[ChunkLayer]) -> None:
        if not self._ended:
            out.append(event)

    def _close(self) -> None:
        self._ended = True
        self._live.clear()

    _handlers: ClassVar[dict[type, Callable[[_Streaming, Any, list[ChunkLayer]], None]]] = {
        Start: _on_start,
        Tokens: _on_tokens,
        Reasoning: _on_reasoning,
        Refusal: _on_refusal,
        CallStart: _on_call_start,
        CallArguments: _on_call_arguments,
        CallEnd: _on_call_end,
        Finish: _on_finish,
        Usage: _on_usage,
        Failure: _on_failure,
        End: _on_end,
        Tick: _on_tick,
        TimingInput: _on_timing,
    }


class _Whole:
    """The machine of ``stream: false``: the streaming one, collected."""

    def __init__(self, opening: Opening, snapshot: ChatSnapshot | None = None) -> None:
        ask = msgspec.structs.replace(opening.ask, include_usage=True, continuous_usage=False)
        self._inner = _Streaming(msgspec.structs.replace(opening, ask=ask), snapshot)
        self._message = Accumulator(None if snapshot is None else snapshot.message)

    def snapshot(self) -> ChatSnapshot:
        """See Machine."""
        return msgspec.structs.replace(self._inner.snapshot(), message=self._message.state())

    def step(self, event: Semantic, out: list[ChunkLayer]) -> None:
        """See Machine."""
        chunks: list[ChunkLayer] = []
        self._inner.step(event, chunks)
        for chunk in chunks:
            if isinstance(chunk, ChatChunk):
                self._message.add(chunk)
            elif isinstance(chunk, ErrorChunk):
                out.append(chunk)
                return
            elif isinstance(chunk, Done):
                out.append(self._message.completion())


def _copied(live: dict[int, Progress]) -> dict[int, Progress]:
    return {choice: msgspec.structs.replace(state) for choice, state in live.items()}


class ChatEncoder:
    """The stage ``chat@1``."""

    id = "chat@1"

    def start(self, opening: Opening) -> Machine[Semantic, ChunkLayer]:
        """See Stage."""
        return _Streaming(opening) if opening.ask.stream else _Whole(opening)

    def resume(self, opening: Opening, snapshot: ChatSnapshot) -> Machine[Semantic, ChunkLayer]:
        """See Stage."""
        return _Streaming(opening, snapshot) if opening.ask.stream else _Whole(opening, snapshot)


ENCODER = ChatEncoder()
