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
    Layer,
    Opening,
    PromptInput,
    Reasoning,
    Refusal,
    Start,
    Tokens,
    TokensInput,
    Usage,
)  # fmt: skip
from store.api import Digest, Mode, SessionInfo, State

MAX_MESSAGE = 1 << 20
"""Characters of the final message that are kept for people; the records keep all."""


_ENGINE = ("input", "engine")
_SEMANTIC = ("served", "semantic")


class _Choice:
    """The message of one choice so far: lists of pieces, joined once."""

    __slots__ = ("calls", "content", "finish", "reasoning", "refusal")

    def __init__(self) -> None:
        self.reasoning: list[str] = []
        self.content: list[str] = []
        self.refusal: list[str] = []
        self.calls: dict[int, tuple[str, str, list[str]]] = {}
        self.finish: str | None = None

    def message(self) -> dict[str, Any]:
        message: dict[str, Any] = {
            "reasoning": "".join(self.reasoning) or None,
            "content": "".join(self.content) or None,
            "tool_calls": [
                {"id": call[0], "name": call[1], "arguments": "".join(call[2])}
                for _, call in sorted(self.calls.items())
            ],
        }
        if self.refusal:
            message["refusal"] = "".join(self.refusal)
        return message


class Projection:
    """What people want to know of a session. Takes the batches in order; memory is bounded by MAX_MESSAGE.

    Counts, first token and gaps come from the engine layer (track ``input``), the message and what ended it from the
    semantic layer (track ``served``). A gap is between two steps of the same choice.
    """

    def __init__(self, opening: Opening, mode: Mode) -> None:
        self._opening = opening
        self._mode: Mode = mode
        self._choices = [_Choice() for _ in range(opening.ask.n)]
        self._left = MAX_MESSAGE
        self._at = 0
        self._prompt: int | None = None
        self._completion: int | None = None
        self._written = 0
        self._ttft: int | None = None
        self._gap: int | None = None
        self._steps: dict[int, int] = {}
        self._faults: dict[str, int] = {}
        self._error: str | None = None

    def add(self, key: tuple[str, Layer], at: int, events: Sequence[Any]) -> None:
        """Take in a batch of (track, layer); those that tell nothing may come without their events."""
        if at > self._at:
            self._at = at
        if events:
            if key == _SEMANTIC:
                self._semantic(events)
            elif key == _ENGINE:
                self._engine(at, events)

    def _engine(self, at: int, events: Sequence[Any]) -> None:
        steps = self._steps
        for event in events:
            if event.__class__ is TokensInput:
                if not event.ids and not event.text:
                    continue
                self._written += len(event.ids)
                choice = event.choice
                last = steps.get(choice)
                if last is None:
                    if self._ttft is None:
                        self._ttft = at
                elif self._gap is None or at - last > self._gap:
                    self._gap = at - last
                steps[choice] = at
            elif event.__class__ is PromptInput:
                self._prompt = event.count

    def _semantic(self, events: Sequence[Any]) -> None:
        for event in events:
            kind = event.__class__
            if kind is Tokens:
                continue
            if kind is Content:
                self._keep(self._of(event.choice).content, event.text)
            elif kind is Reasoning:
                self._keep(self._of(event.choice).reasoning, event.text)
            elif kind is CallArguments:
                call = self._of(event.choice).calls.get(event.index)
                if call is not None:
                    self._keep(call[2], event.text)
            elif kind in _RARE:
                self._rare(event)

    def _rare(self, event: Any) -> None:
        match event:
            case CallStart():
                self._of(event.choice).calls[event.index] = (event.id, event.name, [])
            case Refusal():
                self._keep(self._of(event.choice).refusal, event.text)
            case Fault():
                self._faults[event.code.value] = self._faults.get(event.code.value, 0) + 1
            case Finish():
                self._of(event.choice).finish = event.reason
            case Usage():
                self._prompt, self._completion = event.prompt, event.completion
            case Failure():
                self._error = f"{event.kind}: {event.message}"
            case Start():
                self._prompt = event.prompt_tokens
            case _:
                pass

    def _of(self, choice: int) -> _Choice:
        choices = self._choices
        while choice >= len(choices):
            choices.append(_Choice())
        return choices[choice]

    def _keep(self, pieces: list[str], text: str) -> None:
        if self._left > 0:
            pieces.append(text[: self._left])
            self._left -= len(text)

    def info(
        self,
        state: State,
        events: Mapping[str, int],
        digests: Mapping[str, Digest] = {},
    ) -> SessionInfo:
        """The projection so far. ``events``: records stored, by ``track/layer``. An ended session closed at its last
        batch's time."""
        opening = self._opening
        written = self._written if self._steps else None
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
            prompt_tokens=self._prompt,
            completion_tokens=written if self._completion is None else self._completion,
            ttft_ns=self._ttft,
            max_gap_ns=self._gap,
            finish_reasons=tuple(choice.finish for choice in self._choices if choice.finish is not None),
            faults=dict(sorted(self._faults.items())),
            error=self._error,
            message=tuple(choice.message() for choice in self._choices)
            if self._steps or self._left < MAX_MESSAGE
            else (),
            events=dict(events),
            digests=dict(digests),
        )


_RARE: frozenset[type[msgspec.Struct]] = frozenset((CallStart, Refusal, Fault, Finish, Usage, Failure, Start))
