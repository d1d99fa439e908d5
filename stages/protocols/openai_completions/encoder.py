"""The encoder: semantic events → completion chunks. Nothing is held back.

It is fed from the parser ``plain``, for which all that the model writes is content.

    Start                  nothing; counted, and the prompt's ids kept for its choices' first chunks, if asked for
    Echo                   a chunk for each choice of the prompt, with its text and the logprobs of its tokens
    Content, Refusal       a chunk with the text
    Tokens                 nothing, or (logprobs or token ids asked for) a carrier: a chunk with the text ``""``
    Finish                 a chunk with the text ``""`` and the finish reason
    Usage                  a chunk without choices, if asked for; with the measured times, if those are asked for
    Failure                the error object; Done if streaming; nothing at all if the client is gone
    End                    Done, or (not streaming) the whole answer
    Tick                   Tick while streaming
    TimingInput            nothing; kept for the usage
    everything else        nothing: reasoning and calls are parsed out of a text that is told here as it was written

A carrier goes out at once and alone, before the chunks of the step's text, as in chat and for the same reason: a
machine cannot know whether its step still brings text. So each step that generated tokens gives one carrier, joined
entries are one per token, and offsets run ahead of a text that is withheld.

Events that break the order of the semantic layer are taken as far as they have a place: not of a choice outside
0..n-1, nor after Finish or End, nor empty text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from typing import Any, ClassVar, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from stages.events import (
    CommonChunk,
    Content,
    Done,
    Echo,
    End,
    ErrorChunk,
    Failure,
    Finish,
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
from stages.protocols.openai_chat import (
    TIMINGS,
    CompletionDetails,
    CompletionUsage,
    Metrics,
    PromptDetails,
    error_chunk,
    gather,
)
from stages.protocols.openai_completions.accumulate import Accumulator, AccumulatorState
from stages.protocols.openai_completions.chunks import CompletionChunk, TextChoice, TextCompletion, TextLogprobs
from stages.protocols.openai_completions.logprobs import arrays
from stages.stage import Machine

ChunkLayer: TypeAlias = CompletionChunk | TextCompletion | CommonChunk


class Progress(msgspec.Struct):
    """A choice that has not finished. ``offset``: where its next token begins among those that were told;
    ``left_out``: its end token was; ``begun``: its first chunk is out."""

    tokens: int = 0
    offset: int = 0
    left_out: bool = False
    begun: bool = False


class Prompt(msgspec.Struct, frozen=True):
    """What the Start of a prompt's first choice told. ``ids``: only where they are asked for."""

    tokens: int
    ids: tuple[int, ...] = ()


class CompletionsSnapshot(msgspec.Struct, frozen=True):
    """The encoder's state. ``seen``: choices that spoke; ``prompts``: by number; ``answer``: what was collected, when
    not streaming; ``times``: ms by key of Metrics."""

    live: dict[int, Progress]
    seen: frozenset[int]
    prompts: dict[int, Prompt]
    ended: bool
    answer: AccumulatorState | None = None
    times: dict[str, float] = {}


class _Streaming:
    """The machine of ``stream: true``."""

    def __init__(self, opening: Opening, snapshot: CompletionsSnapshot | None = None) -> None:
        ask = opening.ask
        self._id = opening.response_id
        self._created = opening.created
        self._model = opening.model
        self._fingerprint = opening.engine.fingerprint
        self._n = ask.n
        self._each = max(ask.n // ask.prompts, 1)
        self._logprobs = ask.logprobs
        self._top = ask.top_logprobs
        self._left_out = frozenset[int]() if ask.end_token else opening.ends
        self._ids = ask.return_token_ids
        self._asked = ask.include_usage
        self._metrics = ask.metrics
        self._times: dict[str, float] = {}
        self._running = ask.include_usage and ask.continuous_usage
        self._per_step = self._running or self._logprobs or self._ids
        self._no_usage: UnsetType | None = None if ask.include_usage else UNSET
        self._live: dict[int, Progress] = {}
        self._seen: set[int] = set()
        self._prompts: dict[int, Prompt] = {}
        self._ended = False
        if snapshot is not None:
            self._live = _copied(snapshot.live)
            self._seen = set(snapshot.seen)
            self._prompts = dict(snapshot.prompts)
            self._ended = snapshot.ended
            self._times = dict(snapshot.times)

    def snapshot(self) -> CompletionsSnapshot:
        """See Machine."""
        return CompletionsSnapshot(
            _copied(self._live), frozenset(self._seen), dict(self._prompts), self._ended, times=dict(self._times)
        )

    def step(self, event: Semantic, out: list[ChunkLayer]) -> None:
        """See Machine."""
        # Most events of most sessions are of these two kinds.
        if type(event) is Content:
            self._text(event.choice, event.text, out)
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
                goes_on = type(following) is Content and not self._per_step
                following = self._run(following, rest, out, ends) if goes_on else None

    def _run(self, like: Content, rest: Iterator[Semantic], out: list[ChunkLayer], ends: list[int]) -> Semantic | None:
        """Do the steps that go on as this one did; returns the first other event."""
        if like.choice not in self._live:
            return None
        texts: list[str] = []
        try:
            return gather(like, rest, texts, ends, len(out))
        finally:
            if texts:
                envelope = repeat(self._id), repeat(self._created), repeat(self._model), repeat(self._fingerprint)
                made = map(TextChoice, repeat(like.choice), texts)
                out += map(CompletionChunk, *envelope, zip(made, strict=False), repeat(self._no_usage))

    # --- what the handlers share

    def _text(self, choice: int, text: str, out: list[ChunkLayer]) -> None:
        state = self._live.get(choice) or self._admit(choice)
        if state is None or not text:
            return
        self._send(TextChoice(choice, text), state, out)

    def _send(self, choice: TextChoice, state: Progress, out: list[ChunkLayer]) -> None:
        if not state.begun:
            state.begun = True
            prompt = self._prompts.get(choice.index // self._each)
            if self._ids and prompt is not None and prompt.ids:
                choice = msgspec.structs.replace(choice, prompt_token_ids=prompt.ids)
        usage = self._usage_of(choice.index, state) if self._running else self._no_usage
        out.append(CompletionChunk(self._id, self._created, self._model, self._fingerprint, (choice,), usage))

    def _usage_of(self, choice: int, state: Progress) -> CompletionUsage:
        prompt = self._prompts.get(choice // self._each)
        size = 0 if prompt is None else prompt.tokens
        return CompletionUsage(size, state.tokens, size + state.tokens)

    def _admit(self, choice: int) -> Progress | None:
        """A choice speaks that is not live; None where it has no place (any more)."""
        if self._ended or choice in self._seen or not 0 <= choice < self._n:
            return None
        self._seen.add(choice)
        state = self._live[choice] = Progress()
        return state

    # --- one for each event

    def _on_start(self, event: Start, _out: list[ChunkLayer]) -> None:
        if 0 <= event.choice < self._n:
            self._prompts.setdefault(event.choice // self._each, Prompt(event.prompt_tokens, event.prompt_ids))

    def _on_echo(self, event: Echo, out: list[ChunkLayer]) -> None:
        first = event.prompt * self._each
        logprobs: TextLogprobs | None = None
        offset = 0
        if self._logprobs and (event.first or event.logprobs):
            logprobs, offset = arrays(event.logprobs, self._top, 0, event.first)
        if not event.text and logprobs is None:
            return
        for choice in range(first, first + self._each):
            state = self._live.get(choice) or self._admit(choice)
            if state is not None:
                state.offset = offset
                self._send(TextChoice(choice, event.text, logprobs), state, out)

    def _on_tokens(self, event: Tokens, out: list[ChunkLayer]) -> None:
        state = self._live.get(event.choice) or self._admit(event.choice)
        if state is None:
            return
        state.tokens += len(event.ids)
        ids = event.ids if self._ids and event.ids else UNSET
        logprobs: TextLogprobs | None = None
        shown = self._shown(event.logprobs, state) if self._logprobs else ()
        if shown:
            logprobs, state.offset = arrays(shown, self._top, state.offset)
        if logprobs is not None or ids is not UNSET:
            self._send(TextChoice(event.choice, "", logprobs, None, UNSET, ids), state, out)

    def _shown(self, items: tuple[TokenLogprob, ...], state: Progress) -> tuple[TokenLogprob, ...]:
        """Without the first end token, which is the one that ends the choice, where that is not wanted."""
        if self._left_out and not state.left_out:
            for place, item in enumerate(items):
                if item.id in self._left_out:
                    state.left_out = True
                    return items[:place] + items[place + 1 :]
        return items

    def _on_refusal(self, event: Refusal, out: list[ChunkLayer]) -> None:
        self._text(event.choice, event.text, out)

    def _on_finish(self, event: Finish, out: list[ChunkLayer]) -> None:
        state = self._live.get(event.choice) or self._admit(event.choice)
        if state is None:
            return
        detail = event.detail if event.reason in ("stop", "stop_token") and event.detail is not None else UNSET
        self._send(TextChoice(event.choice, "", None, finish_reason(event.reason, False), detail), state, out)
        del self._live[event.choice]

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
        out.append(CompletionChunk(self._id, self._created, self._model, self._fingerprint, (), usage, metrics))

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
        Echo: _on_echo,
        Tokens: _on_tokens,
        Refusal: _on_refusal,
        Finish: _on_finish,
        Usage: _on_usage,
        Failure: _on_failure,
        End: _on_end,
        Tick: _on_tick,
        TimingInput: _on_timing,
    }


class _Whole:
    """The machine of ``stream: false``: the streaming one, collected."""

    def __init__(self, opening: Opening, snapshot: CompletionsSnapshot | None = None) -> None:
        ask = msgspec.structs.replace(opening.ask, include_usage=True, continuous_usage=False)
        self._inner = _Streaming(msgspec.structs.replace(opening, ask=ask), snapshot)
        self._answer = Accumulator(None if snapshot is None else snapshot.answer)

    def snapshot(self) -> CompletionsSnapshot:
        """See Machine."""
        return msgspec.structs.replace(self._inner.snapshot(), answer=self._answer.state())

    def step(self, event: Semantic, out: list[ChunkLayer]) -> None:
        """See Machine."""
        chunks: list[ChunkLayer] = []
        self._inner.step(event, chunks)
        for chunk in chunks:
            if isinstance(chunk, CompletionChunk):
                self._answer.add(chunk)
            elif isinstance(chunk, ErrorChunk):
                out.append(chunk)
                return
            elif isinstance(chunk, Done):
                out.append(self._answer.completion())


def _copied(live: dict[int, Progress]) -> dict[int, Progress]:
    return {choice: msgspec.structs.replace(state) for choice, state in live.items()}


class CompletionsEncoder:
    """The stage ``completions@1``."""

    id = "completions@1"

    def start(self, opening: Opening) -> Machine[Semantic, ChunkLayer]:
        """See Stage."""
        return _Streaming(opening) if opening.ask.stream else _Whole(opening)

    def resume(self, opening: Opening, snapshot: CompletionsSnapshot) -> Machine[Semantic, ChunkLayer]:
        """See Stage."""
        return _Streaming(opening, snapshot) if opening.ask.stream else _Whole(opening, snapshot)


ENCODER = CompletionsEncoder()
