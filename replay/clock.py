"""Clock: which step of the engine wrote a byte, and which frame of another server's response brought a step."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate

from replay.derive import Track
from stages.events import TokensInput
from store.api import Record

_PIECE = ("text", "name")


class Clock:
    """The engine layer of a session as a clock. ``inputs``: its records, each with its frame as cause."""

    def __init__(self, inputs: Sequence[Record]) -> None:
        self._frames = [record.cause for record in inputs]
        self._latest = list(accumulate(self._frames, max))
        self._steps: dict[int, list[int]] = {}
        self._ends: dict[int, list[int]] = {}
        self._known = True
        for seq, record in enumerate(inputs):
            event = record.event
            if isinstance(event, TokensInput):
                size = sum(map(len, event.pieces)) or len(event.text.encode("utf-8", "surrogatepass"))
                ends = self._ends.setdefault(event.choice, [])
                ends.append(size + (ends[-1] if ends else 0))
                self._steps.setdefault(event.choice, []).append(seq)
                self._known = self._known and record.cause >= 0

    def step_of(self, choice: int, byte: int) -> int:
        """The seq of the input in which a choice wrote a byte; -1 where none did."""
        ends = self._ends.get(choice, [])
        place = bisect_right(ends, byte)
        return self._steps[choice][place] if place < len(ends) else -1

    def frame_of(self, step: int) -> int:
        """The frame that brought an input; -1 where that is not known."""
        return self._frames[step] if 0 <= step < len(self._frames) else -1

    def step_at(self, frame: int) -> int:
        """The first input that a frame brought, or else the last one before it; -1 where there is none, or it is not
        known which frames brought the tokens."""
        if not self._known:
            return -1
        place = bisect_left(self._latest, frame)
        if place < len(self._latest) and self._latest[place] == frame:
            return place
        return place - 1

    def wrote(self, track: Track, seq: int, offset: int = 0) -> int:
        """The input in which the model wrote a character of a parser's event: an event comes later than its text where
        a parser had to wait."""
        event = track.events[seq]
        src = getattr(event, "src", None)
        if src is None:
            return track.steps[seq]
        text = next((getattr(event, name) for name in _PIECE if hasattr(event, name)), "")
        before = len(text[:offset].encode("utf-8", "surrogatepass"))
        step = self.step_of(event.choice, min(src[0] + before, max(src[0], src[1] - 1)))
        return track.steps[seq] if step < 0 else step
