"""Voice: what semantic events say, field by field, and the event behind each character."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Any

import msgspec

from stages.events import (
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    Fault,
    Finish,
    FinishReason,
    Reasoning,
    Refusal,
    Start,
)


class Words:
    """A text that came in pieces. ``seqs``, ``starts``: of each piece, the seq of its event and its offset; ``runs``:
    offsets at which it goes on behind something else of its choice."""

    __slots__ = ("_pieces", "_text", "runs", "seqs", "size", "starts")

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._text: str | None = ""
        self.seqs: list[int] = []
        self.starts: list[int] = []
        self.runs: list[int] = []
        self.size = 0

    def add(self, text: str, seq: int, *, fresh: bool) -> None:
        """The next piece. ``fresh``: something else came before it."""
        if fresh:
            self.runs.append(self.size)
        self._pieces.append(text)
        self._text = None
        self.seqs.append(seq)
        self.starts.append(self.size)
        self.size += len(text)

    @property
    def text(self) -> str:
        """All of it."""
        if self._text is None:
            self._text = "".join(self._pieces)
        return self._text

    def at(self, offset: int) -> tuple[int, int] | None:
        """The seq of the event that brought a character, and its offset there; None beyond the end."""
        if not 0 <= offset < self.size:
            return None
        piece = bisect_right(self.starts, offset) - 1
        return self.seqs[piece], offset - self.starts[piece]


class Called(msgspec.Struct):
    """One call. ``seq``: of its CallStart; ``end``: of its CallEnd."""

    name: str
    seq: int
    arguments: Words = msgspec.field(default_factory=Words)
    end: int | None = None


class Voice:
    """What one choice says. ``fault_seqs``: of the events of ``faults``; ``finish``: reason and seq."""

    __slots__ = ("_calls", "_last", "calls", "fault_seqs", "faults", "finish", "texts")

    def __init__(self) -> None:
        self.texts: dict[str, Words] = {"reasoning": Words(), "content": Words(), "refusal": Words()}
        self.calls: list[Called] = []
        self.faults: list[str] = []
        self.fault_seqs: list[int] = []
        self.finish: tuple[FinishReason, int] | None = None
        self._calls: dict[int, Called] = {}
        self._last = ""

    def take(self, event: Any, seq: int) -> None:
        """The next event of the choice."""
        match event:
            case Reasoning() | Content() | Refusal():
                field = _FIELDS[event.__class__]
                self.texts[field].add(event.text, seq, fresh=self._last != field)
                self._last = field
            case CallStart():
                if event.index not in self._calls:
                    self._calls[event.index] = called = Called(event.name, seq)
                    self.calls.append(called)
                self._last = "call"
            case CallArguments():
                if event.index in self._calls:
                    self._calls[event.index].arguments.add(event.text, seq, fresh=False)
                self._last = "call"
            case CallEnd():
                if event.index in self._calls:
                    self._calls[event.index].end = seq
            case Fault():
                self.faults.append(str(event.code))
                self.fault_seqs.append(seq)
            case Finish():
                self.finish = event.reason, seq
            case _:
                pass


_FIELDS: dict[type, str] = {Reasoning: "reasoning", Content: "content", Refusal: "refusal"}
_SAYING = frozenset((Start, Reasoning, Content, Refusal, CallStart, CallArguments, CallEnd, Fault, Finish))


def voices(events: Iterable[Any]) -> dict[int, Voice]:
    """By choice. Total, as ``stages.message.collect`` is."""
    found: dict[int, Voice] = {}
    for seq, event in enumerate(events):
        if event.__class__ in _SAYING:
            voice = found.get(event.choice)
            if voice is None:
                voice = found[event.choice] = Voice()
            voice.take(event, seq)
    return found
