"""SessionInfo from a session's records, a batch at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from stages.events import (
    CallArguments,
    CallStart,
    Content,
    Failure,
    Fault,
    Finish,
    PromptInput,
    Reasoning,
    Refusal,
    Start,
    Tokens,
    TokensInput,
    ToldInput,
    Usage,
    UsageInput,
)
from stages.message import Collector, Message
from stages.opening import Opening
from store.api import Digest, Mode, SessionInfo, ShadowVerdict, State
from store.rules import Key

MAX_MESSAGE = 1 << 20
"""Characters of the final message that are kept for people; the records keep all."""


_ENGINE: Key = ("input", "engine")
_SERVED: Key = ("served", "semantic")
_UPSTREAM: Key = ("upstream", "semantic")


class _Counts:
    """What one layer tells of tokens. ``written``: ids seen; ``first``: the time of the first step, ``gap``: the
    largest between two steps of one choice."""

    __slots__ = ("_last", "completion", "first", "gap", "prompt", "written")

    def __init__(self) -> None:
        self.prompt: int | None = None
        self.completion: int | None = None
        self.written = 0
        self.first: int | None = None
        self.gap: int | None = None
        self._last: dict[int, int] = {}

    def step(self, choice: int, at: int) -> None:
        """Something of a choice came."""
        last = self._last.get(choice)
        if last is None:
            if self.first is None:
                self.first = at
        elif self.gap is None or at - last > self.gap:
            self.gap = at - last
        self._last[choice] = at


class Projection:
    """What people want to know of a session. Takes the batches in order; memory is bounded by MAX_MESSAGE.

    The message and what ended it come from the semantic layer of what the client got: track ``served``, or ``upstream``
    where its response was relayed. Counts, first token and gaps come from the engine layer (track ``input``); of a
    relayed session without tokens there, from the same semantic layer, by the times at which its text came.
    """

    def __init__(self, opening: Opening, mode: Mode) -> None:
        self._opening = opening
        self._mode: Mode = mode
        upstream = opening.upstream
        self._relayed = upstream is not None and upstream.relayed
        self._got = _UPSTREAM if self._relayed else _SERVED
        self._said = Collector(MAX_MESSAGE, named=opening.ask.named)
        self._finishes: dict[int, str] = {}
        self._at = 0
        self._engine = _Counts()
        self._semantic = _Counts()
        self._faults: dict[str, int] = {}
        self._error: str | None = None

    def add(self, key: Key, at: int, events: Sequence[Any]) -> None:
        """Take in a batch of (track, layer); those that tell nothing may come without their events."""
        if at > self._at:
            self._at = at
        if events:
            if key == self._got:
                self._take_semantic(at, events)
            elif key == _ENGINE:
                self._take_engine(at, events)

    def _take_engine(self, at: int, events: Sequence[Any]) -> None:
        counts = self._engine
        for event in events:
            if event.__class__ is TokensInput:
                if event.ids or event.text:
                    counts.written += len(event.ids)
                    counts.step(event.choice, at)
            elif event.__class__ is ToldInput:
                # Of what another server means: its texts are the steps.
                if isinstance(event.event, Reasoning | Content | Refusal | CallStart | CallArguments):
                    counts.step(event.event.choice, at)
            elif event.__class__ is PromptInput:
                counts.prompt = event.count
            elif event.__class__ is UsageInput:
                counts.prompt, counts.completion = event.prompt, event.completion

    def _take_semantic(self, at: int, events: Sequence[Any]) -> None:
        take = self._said.take
        counts = self._semantic
        for event in events:
            take(event)
            if event.__class__ in _RARE:
                self._rare(event)
            elif event.__class__ is Tokens:
                counts.written += len(event.ids)
            elif self._relayed and event.__class__ in _WRITTEN:
                counts.step(event.choice, at)

    def _rare(self, event: Any) -> None:
        counts = self._semantic
        match event:
            case Fault():
                self._faults[event.code.value] = self._faults.get(event.code.value, 0) + 1
            case Finish():
                self._finishes[event.choice] = event.reason
            case Usage():
                counts.prompt, counts.completion = event.prompt, event.completion
            case Failure():
                self._error = f"{event.kind}: {event.message}"
            case Start() if event.prompt_tokens or not self._relayed:
                # A foreign stream begins before it tells how long the prompt is.
                counts.prompt = event.prompt_tokens
            case _:
                pass

    def info(
        self,
        state: State,
        events: Mapping[str, int],
        digests: Mapping[str, Digest] = {},
        shadows: Mapping[str, ShadowVerdict] = {},
    ) -> SessionInfo:
        """The projection so far. ``events``: records stored, by ``track/layer``. An ended session closed at its last
        batch's time."""
        opening, upstream = self._opening, self._opening.upstream
        engine = self._engine
        paced = self._semantic if self._relayed and engine.first is None else engine
        prompt, completion = self._tokens()
        return SessionInfo(
            session=opening.session,
            opened=opening.opened,
            closed=None if state == "open" else opening.opened + self._at,
            state=state,
            mode=self._mode,
            model=opening.model,
            protocol=opening.protocol,
            parser=opening.parser,
            stages=dict(opening.stages),
            n=opening.ask.n,
            prompt_tokens=prompt,
            completion_tokens=completion,
            ttft_ns=paced.first,
            max_gap_ns=paced.gap,
            finish_reasons=tuple(reason for _, reason in sorted(self._finishes.items())),
            faults=dict(sorted(self._faults.items())),
            error=self._error,
            message=tuple(_shown(message) for message in self._said.messages()),
            events=dict(events),
            digests=dict(digests),
            upstream="" if upstream is None else upstream.name,
            depth="" if upstream is None else upstream.depth,
            relayed=self._relayed,
            shadows=dict(shadows),
            conversation=opening.conversation,
        )

    def _tokens(self) -> tuple[int | None, int | None]:
        """Of the prompt, and generated."""
        engine, told = self._engine, self._semantic
        if self._relayed:
            # What another server tells of itself counts where we cannot.
            counted = (engine.completion, engine.written or None, told.completion, told.written or None)
            return _first(engine.prompt, told.prompt), _first(*counted)
        written = None if engine.first is None else engine.written
        return _first(told.prompt, engine.prompt), _first(told.completion, written)


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)


_RARE: frozenset[type[msgspec.Struct]] = frozenset((Fault, Finish, Usage, Failure, Start))
_WRITTEN: frozenset[type[Any]] = frozenset((Reasoning, Content, Refusal, CallStart, CallArguments))


def _shown(message: Message) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "reasoning": message.reasoning,
        "content": message.content,
        "tool_calls": [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in message.tool_calls],
    }
    if message.refusal is not None:
        shown["refusal"] = message.refusal
    return shown
