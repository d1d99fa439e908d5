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

from typing import ClassVar, Final, TypeAlias

import msgspec
from msgspec import UNSET

from stages.events import CommonChunk, Content, Echo, Finish, Refusal, Semantic, Start, Tokens
from stages.message import finish_reason
from stages.opening import Opening
from stages.protocols.openai_chat import (
    CompletionUsage,
    Handlers,
    SharedEncoder,
    SharedProgress,
    SharedSnapshot,
    Streaming,
    copied,
)
from stages.protocols.openai_completions.accumulate import Accumulator, AccumulatorState
from stages.protocols.openai_completions.chunks import CompletionChunk, TextChoice, TextCompletion, TextLogprobs
from stages.protocols.openai_completions.logprobs import arrays

ChunkLayer: TypeAlias = CompletionChunk | TextCompletion | CommonChunk


class Progress(SharedProgress):
    """A choice that has not finished. ``offset``: where its next token begins among those that were told; ``begun``:
    its first chunk is out."""

    offset: int = 0
    begun: bool = False


class Prompt(msgspec.Struct, frozen=True):
    """What the Start of a prompt's first choice told. ``ids``: only where they are asked for."""

    tokens: int
    ids: tuple[int, ...] = ()


class CompletionsSnapshot(SharedSnapshot, frozen=True, kw_only=True):
    """The encoder's state. ``seen``: choices that spoke; ``prompts``: by number."""

    live: dict[int, Progress]
    seen: frozenset[int]
    prompts: dict[int, Prompt]
    collected: AccumulatorState | None = None


class _Streaming(Streaming[Progress]):
    """The machine of ``stream: true``."""

    chunk = CompletionChunk
    choice = TextChoice

    def __init__(self, opening: Opening, snapshot: CompletionsSnapshot | None) -> None:
        super().__init__(opening, snapshot)
        ask = opening.ask
        self._each = max(ask.n // ask.prompts, 1)
        self._logprobs = ask.logprobs
        self._ids = ask.return_token_ids
        self._per_step = self._running or self._logprobs or self._ids
        if not self._per_step:
            self._runs = frozenset[type]((Content,))
        self._seen: set[int] = set()
        self._prompts: dict[int, Prompt] = {}
        if snapshot is not None:
            self._live = copied(snapshot.live)
            self._seen = set(snapshot.seen)
            self._prompts = dict(snapshot.prompts)

    def snapshot(self) -> CompletionsSnapshot:
        """See Machine."""
        return CompletionsSnapshot(
            ended=self._ended, times=dict(self._times), live=copied(self._live), seen=frozenset(self._seen),
            prompts=dict(self._prompts),
        )  # fmt: skip

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

    def _on_refusal(self, event: Refusal, out: list[ChunkLayer]) -> None:
        self._text(event.choice, event.text, out)

    def _on_finish(self, event: Finish, out: list[ChunkLayer]) -> None:
        state = self._live.get(event.choice) or self._admit(event.choice)
        if state is None:
            return
        detail = event.detail if event.reason in ("stop", "stop_token") and event.detail is not None else UNSET
        self._send(TextChoice(event.choice, "", None, finish_reason(event.reason, False), detail), state, out)
        del self._live[event.choice]

    _handlers: ClassVar[Handlers] = {
        **Streaming.shared_handlers,
        Start: _on_start,
        Echo: _on_echo,
        Tokens: _on_tokens,
        Refusal: _on_refusal,
        Finish: _on_finish,
    }


ENCODER: Final = SharedEncoder("completions@1", _Streaming, Accumulator)
