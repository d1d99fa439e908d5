"""What the encoders of chat completions and of completions have in common: envelope, usage, end, the whole answer.

Usage        a chunk without choices, if asked for; with the measured times, if those are asked for
TimingInput  nothing; kept for the usage
Failure      the error object; Done if streaming; nothing at all if the client is gone
End          Done, or (not streaming) the whole answer
Tick         Tick while streaming
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from typing import Any, ClassVar, Generic, Protocol, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from stages.events import (
    CallArguments,
    Done,
    End,
    ErrorChunk,
    Failure,
    Semantic,
    Tick,
    TimingInput,
    TokenLogprob,
    Usage,
)
from stages.opening import Opening
from stages.protocols.openai_chat.chunks import (
    TIMINGS,
    CompletionDetails,
    CompletionUsage,
    Metrics,
    PromptDetails,
    error_chunk,
)
from stages.protocols.openai_chat.runs import Said, gather
from stages.stage import Machine

Handlers: TypeAlias = dict[type, Callable[[Any, Any, list[Any]], None]]


class SharedProgress(msgspec.Struct):
    """A choice that has not finished. ``left_out``: its end token was."""

    tokens: int = 0
    left_out: bool = False


class SharedSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """An encoder's state. ``times``: ms by key of Metrics; ``collected``: the accumulator's state, when not
    streaming (of its type, in an encoder's own)."""

    ended: bool
    times: dict[str, float]
    collected: Any = None


P = TypeVar("P", bound=SharedProgress)


class Streaming(Generic[P]):
    """The machine of ``stream: true``. A protocol's own says what becomes of the other events."""

    chunk: ClassVar[type[Any]]
    """Made of id, created, model, fingerprint, choices, usage."""
    choice: ClassVar[type[Any]]
    """Of a chunk; made of index, what is said."""

    def __init__(self, opening: Opening, snapshot: SharedSnapshot | None) -> None:
        ask = opening.ask
        self._id = opening.response_id
        self._created = opening.created
        self._model = opening.model
        self._fingerprint = opening.engine.fingerprint
        self._n = ask.n
        self._top = ask.top_logprobs
        self._left_out = frozenset[int]() if ask.end_token else opening.ends
        self._asked = ask.include_usage
        self._metrics = ask.metrics
        self._running = ask.include_usage and ask.continuous_usage
        self._no_usage: UnsetType | None = None if ask.include_usage else UNSET
        self._runs = frozenset[type]()
        self._live: dict[int, P] = {}
        self._ended = snapshot is not None and snapshot.ended
        self._times: dict[str, float] = {} if snapshot is None else dict(snapshot.times)

    def snapshot(self) -> SharedSnapshot:
        """See Machine."""
        raise NotImplementedError

    def step(self, event: Semantic, out: list[Any]) -> None:
        """See Machine."""
        raise NotImplementedError

    # --- many events at once

    def run_steps(self, inputs: Iterable[Semantic], out: list[Any], ends: list[int]) -> None:
        """See ``stages.stage.run_steps``."""
        rest, runs = iter(inputs), self._runs
        for event in rest:
            following: Any = event
            while following is not None:
                self.step(following, out)
                ends.append(len(out))
                following = self._run(following, rest, out, ends) if type(following) in runs else None

    def _run(self, like: Said, rest: Iterator[Semantic], out: list[Any], ends: list[int]) -> Semantic | None:
        """Do the steps that go on as this one did; returns the first other event."""
        state = self._live.get(like.choice)
        if state is None or (type(like) is CallArguments and not self._is_open(like, state)):
            return None
        texts: list[str] = []
        try:
            return gather(like, rest, texts, ends, len(out))
        finally:
            if texts:
                made = map(self.choice, repeat(like.choice), self._said(like, texts, state))
                envelope = repeat(self._id), repeat(self._created), repeat(self._model), repeat(self._fingerprint)
                out += map(self.chunk, *envelope, zip(made, strict=False), repeat(self._no_usage))

    def _is_open(self, like: CallArguments, state: P) -> bool:
        """Whether this call of the choice is the one that is being sent."""
        raise NotImplementedError

    def _said(self, like: Said, texts: list[str], state: P) -> Iterable[Any]:
        """The texts as a choice of a chunk says them."""
        return texts

    # --- logprobs

    def _shown(self, items: tuple[TokenLogprob, ...], state: P) -> tuple[TokenLogprob, ...]:
        """Without the first end token, which is the one that ends the choice, where that is not wanted."""
        if self._left_out and not state.left_out:
            for place, item in enumerate(items):
                if item.id in self._left_out:
                    state.left_out = True
                    return items[:place] + items[place + 1 :]
        return items

    # --- one for each event

    def _on_usage(self, event: Usage, out: list[Any]) -> None:
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
        out.append(self.chunk(self._id, self._created, self._model, self._fingerprint, (), usage, metrics=metrics))

    def _on_timing(self, event: TimingInput, _out: list[Any]) -> None:
        if event.name in TIMINGS:
            self._times[TIMINGS[event.name]] = event.ns / 1e6

    def _on_failure(self, event: Failure, out: list[Any]) -> None:
        if self._ended:
            return
        self._close()
        if event.kind != "client_closed":
            out += (error_chunk(event.kind, event.message, event.code, event.param), Done())

    def _on_end(self, _event: End, out: list[Any]) -> None:
        if not self._ended:
            self._close()
            out.append(Done())

    def _on_tick(self, event: Tick, out: list[Any]) -> None:
        if not self._ended:
            out.append(event)

    def _close(self) -> None:
        self._ended = True
        self._live.clear()

    shared_handlers: ClassVar[Handlers] = {
        Usage: _on_usage,
        TimingInput: _on_timing,
        Failure: _on_failure,
        End: _on_end,
        Tick: _on_tick,
    }


def copied(live: dict[int, P]) -> dict[int, P]:
    """A copy that later steps do not change."""
    return {choice: msgspec.structs.replace(state) for choice, state in live.items()}


class Collector(Protocol):
    """An accumulator of chunks."""

    def add(self, chunk: Any) -> None:
        """Take the next chunk."""
        ...

    def completion(self) -> Any:
        """The whole answer."""
        ...

    def state(self) -> Any:
        """What an accumulator is made of to go on from here."""
        ...


class _Whole:
    """The machine of ``stream: false``: the streaming one, collected."""

    def __init__(self, inner: Streaming[Any], collector: Collector) -> None:
        self._inner = inner
        self._chunk = inner.chunk
        self._collector = collector

    def snapshot(self) -> SharedSnapshot:
        """See Machine."""
        return msgspec.structs.replace(self._inner.snapshot(), collected=self._collector.state())

    def step(self, event: Semantic, out: list[Any]) -> None:
        """See Machine."""
        chunks: list[Any] = []
        self._inner.step(event, chunks)
        for chunk in chunks:
            if isinstance(chunk, self._chunk):
                self._collector.add(chunk)
            elif isinstance(chunk, ErrorChunk):
                out.append(chunk)
                return
            elif isinstance(chunk, Done):
                out.append(self._collector.completion())


class SharedEncoder:
    """An encoder's stage. ``streaming`` makes a machine, anew (None) or of a snapshot; ``collector`` an accumulator,
    anew (None) or of its state."""

    def __init__(
        self,
        name: str,
        streaming: Callable[[Opening, Any], Streaming[Any]],
        collector: Callable[[Any], Collector],
    ) -> None:
        self.id = name
        self._streaming = streaming
        self._collector = collector

    def start(self, opening: Opening) -> Machine[Semantic, Any]:
        """See Stage."""
        return self._machine(opening, None)

    def resume(self, opening: Opening, snapshot: SharedSnapshot) -> Machine[Semantic, Any]:
        """See Stage."""
        return self._machine(opening, snapshot)

    def _machine(self, opening: Opening, snapshot: SharedSnapshot | None) -> Machine[Semantic, Any]:
        if opening.ask.stream:
            return self._streaming(opening, snapshot)
        ask = msgspec.structs.replace(opening.ask, include_usage=True, continuous_usage=False)
        inner = self._streaming(msgspec.structs.replace(opening, ask=ask), snapshot)
        return _Whole(inner, self._collector(None if snapshot is None else snapshot.collected))
