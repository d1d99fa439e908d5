"""SessionInfo from a session's records, a batch at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from stages.events import Failure, Fault, Finish, Layer, PromptInput, Start, TokensInput, Usage
from stages.message import Collector, Message
from stages.opening import Opening
from store.api import Digest, Mode, SessionInfo, State

MAX_MESSAGE = 1 << 20
"""Characters of the final message that are kept for people; the records keep all."""


_ENGINE = ("input", "engine")
_SEMANTIC = ("served", "semantic")


class Projection:
    """What people want to know of a session. Takes the batches in order; memory is bounded by MAX_MESSAGE.

    Counts, first token and gaps come from the engine layer (track ``input``), the message and what ended it from the
    semantic layer (track ``served``). A gap is between two steps of the same choice.
    """

    def __init__(self, opening: Opening, mode: Mode) -> None:
        self._opening = opening
        self._mode: Mode = mode
        self._said = Collector(MAX_MESSAGE, named=opening.ask.named)
        self._finishes: dict[int, str] = {}
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
        take = self._said.take
        for event in events:
            take(event)
            if event.__class__ in _RARE:
                self._rare(event)

    def _rare(self, event: Any) -> None:
        match event:
            case Fault():
                self._faults[event.code.value] = self._faults.get(event.code.value, 0) + 1
            case Finish():
                self._finishes[event.choice] = event.reason
            case Usage():
                self._prompt, self._completion = event.prompt, event.completion
            case Failure():
                self._error = f"{event.kind}: {event.message}"
            case Start():
                self._prompt = event.prompt_tokens
            case _:
                pass

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
            finish_reasons=tuple(reason for _, reason in sorted(self._finishes.items())),
            faults=dict(sorted(self._faults.items())),
            error=self._error,
            message=tuple(_shown(message) for message in self._said.messages()),
            events=dict(events),
            digests=dict(digests),
        )


_RARE: frozenset[type[msgspec.Struct]] = frozenset((Fault, Finish, Usage, Failure, Start))


def _shown(message: Message) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "reasoning": message.reasoning,
        "content": message.content,
        "tool_calls": [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in message.tool_calls],
    }
    if message.refusal is not None:
        shown["refusal"] = message.refusal
    return shown
