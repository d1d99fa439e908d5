"""said: what semantic events say, without how it was cut into deltas."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stages.events import (
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    Dropped,
    Echo,
    Fault,
    Finish,
    Input,
    Reasoning,
    Refusal,
    Tick,
    TimingInput,
    Tokens,
    TokensInput,
)

_TEXTS: frozenset[type] = frozenset((Reasoning, Content, Refusal, CallArguments))
_SILENT: frozenset[type] = frozenset((Tokens, Dropped, Tick, TimingInput, Echo))
_NOWHERE = (0, 0)


def said(events: Iterable[Any], *, ids: bool = True) -> dict[tuple[Any, ...], list[str]]:
    """What events say, field by field; of a part of a stream, what it adds. ``ids``: also those of calls."""
    found: dict[tuple[Any, ...], list[str]] = {}
    for event in events:
        kind = event.__class__
        if kind in _TEXTS:
            found.setdefault((kind, event.choice, getattr(event, "index", -1)), []).append(str(event.text))
        elif kind is CallStart:
            found[kind, event.choice, event.index] = [event.name, event.id if ids else ""]
        elif kind is CallEnd:
            found[kind, event.choice, event.index] = [str(event.complete)]
        elif kind is Finish:
            found[kind, event.choice] = [event.reason]
        elif kind is Fault:
            found.setdefault((kind, event.choice), []).append(str(event.code))
    return {
        key: sorted(values) if key[0] is Fault else ["".join(values)] if key[0] in _TEXTS else values
        for key, values in found.items()
    }


class _Run:
    """Deltas of one kind, one behind the other in their choice."""

    __slots__ = ("kind", "pieces", "place", "step")

    def __init__(self, kind: tuple[Any, ...], place: int) -> None:
        self.kind = kind
        self.place = place
        self.pieces: list[str] = []
        self.step = -1

    def event(self) -> Any:
        """All of them as one."""
        text = "".join(self.pieces)
        self.pieces = [text]
        kind, *where = self.kind
        return kind(*where, text, _NOWHERE)


class _Wrote:
    __slots__ = ("ids", "pieces", "texts", "whole")

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.pieces: list[bytes] = []
        self.texts: list[str] = []
        self.whole = True


class Saying:
    """What a session says so far, in few events; and what its choices wrote, each in one step."""

    def __init__(self) -> None:
        self._events: list[Any] = []
        self._steps: list[int] = []
        self._open: dict[int, _Run] = {}
        """Of each choice, the run that goes on."""
        self._taken = 0
        self._inputs = 0
        self._wrote: dict[int, _Wrote] = {}

    def take(self, event: Input, made: list[Any]) -> None:
        """The next input. ``made``: all that has come of it and of those before."""
        if isinstance(event, TokensInput):
            wrote = self._wrote.setdefault(event.choice, _Wrote())
            wrote.ids += event.ids
            wrote.pieces += event.pieces
            wrote.texts.append(event.text)
            wrote.whole = wrote.whole and len(event.ids) == len(event.pieces)
        for item in made[self._taken :]:
            self._add(item)
        self._taken = len(made)
        self._inputs += 1

    def _add(self, event: Any) -> None:
        kind = event.__class__
        if kind in _SILENT:
            return
        choice = getattr(event, "choice", -1)
        if kind not in _TEXTS:
            self._open.pop(choice, None)
            self._events.append(event)
            self._steps.append(self._inputs)
            return
        key = (kind, choice, event.index) if kind is CallArguments else (kind, choice)
        run = self._open.get(choice)
        if run is None or run.kind != key:
            run = self._open[choice] = _Run(key, len(self._events))
            self._events.append(run)
            self._steps.append(self._inputs)
        run.pieces.append(str(event.text))

    def all(self, more: Iterable[Any], step: int) -> tuple[list[Any], list[int]]:
        """What was said, and ``more`` that comes at ``step``; beside each event, its step."""
        events: list[Any] = [event.event() if isinstance(event, _Run) else event for event in self._events]
        added = [event for event in more if event.__class__ not in _SILENT]
        return events + added, self._steps + [step] * len(added)

    def wrote(self) -> list[Input]:
        """All tokens of a choice in one step."""
        return [
            TokensInput(choice, tuple(wrote.ids), tuple(wrote.pieces) if wrote.whole else (), "".join(wrote.texts))
            for choice, wrote in self._wrote.items()
        ]
