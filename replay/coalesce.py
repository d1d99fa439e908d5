"""Coalescing: adjacent deltas of the same kind, choice and call as one, and each byte's place kept.

Semantic deltas are merged where their ``src`` is adjacent too. A protocol's chunks are merged where they are equal but
for their text: strings under one of ``TEXT_KEYS``, none of them empty. Where events have names, only deltas are merged:
an event that brings a text whole is no piece of it. Where they have numbers, what counts is how far a number is from
the count of events: pieces shift the numbers behind them, and a number that is wrong is a difference.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from replay.plain import is_list, is_map
from stages.events import (
    CallArguments,
    Content,
    Dropped,
    Echo,
    End,
    ErrorChunk,
    Failure,
    Fault,
    Layer,
    Marker,
    Reasoning,
    Refusal,
    Src,
    Tick,
    TimingInput,
    Tokens,
    Usage,
)

TEXT_KEYS = frozenset(
    (
        "content", "reasoning", "reasoning_content", "refusal", "arguments", "delta", "text", "thinking",
        "partial_json",
    )
)  # fmt: skip

_DELTAS = frozenset((Reasoning, Content, Refusal, CallArguments, Marker, Dropped))
_SESSION = frozenset((Usage, Failure, End, TimingInput, Echo))

Lane: TypeAlias = tuple[str, int]
"""What has an order of its own: a choice's text, tokens and faults, ticks, and what concerns the whole session."""


class Run:
    """One event, or several deltas as one.

    ``key`` is what makes it that event, its text left out; ``seqs``, ``steps`` and ``starts`` are parallel: for each
    merged event its seq, engine-layer cause, and offset in the text.
    """

    __slots__ = ("_texts", "key", "lane", "seqs", "size", "src", "starts", "steps")

    def __init__(self, key: Any, lane: Lane, texts: Sequence[str], src: Src | None, seq: int, step: int) -> None:
        self.key = key
        self.lane = lane
        self._texts: list[list[str]] = [[text] for text in texts]
        self.src = src
        self.seqs = [seq]
        self.steps = [step]
        self.starts = [0]
        self.size = len(texts[0]) if texts else 0

    def takes(self, other: Run) -> bool:
        """The other is more of the same."""
        if not self.size or not other.size or self.key != other.key:
            return False
        return self.src is None or other.src is None or self.src[1] == other.src[0]

    def take(self, other: Run) -> None:
        """Append the other, which is more of the same."""
        for mine, others in zip(self._texts, other._texts, strict=True):
            mine += others
        if self.src is not None and other.src is not None:
            self.src = (self.src[0], other.src[1])
        self.starts += [self.size + start for start in other.starts]
        self.seqs += other.seqs
        self.steps += other.steps
        self.size += other.size

    @property
    def text(self) -> str:
        """The merged text."""
        return "".join(self._texts[0]) if self._texts else ""

    def texts(self) -> tuple[str, ...]:
        """The merged texts of all text fields."""
        return tuple("".join(text) for text in self._texts)

    def part(self, at: int) -> int:
        """The index of the merged event that holds the character at an offset; the last one beyond the end."""
        return bisect_right(self.starts, at) - 1

    def same(self, other: Run, *, prefix: bool = False) -> bool:
        """Equal but for where the deltas were cut. ``prefix``: this one may stop short of the other."""
        if self.key != other.key:
            return False
        if not prefix or not self.size:
            return self.src == other.src and self.texts() == other.texts()
        starts = self.src is None or other.src is None or self.src[0] == other.src[0]
        return starts and all(b.startswith(a) for a, b in zip(self.texts(), other.texts(), strict=True))


Order: TypeAlias = Literal["step", "lane"]


def merge(layer: Layer, events: Sequence[Any], steps: Sequence[int], order: Order, first: int = 0) -> list[Run]:
    """Events as runs, from seq ``first`` on. ``step``: only neighbours that one engine-layer input caused are merged,
    and the order stays. ``lane``: neighbours in their lane are merged whatever caused them, and the runs come lane by
    lane."""
    make = _semantic if layer == "semantic" else _Chunks().run
    runs: list[Run] = []
    last: dict[Lane, Run] = {}
    for seq in range(first, len(events)):
        run = make(events[seq], seq, steps[seq])
        before = (
            last.get(run.lane) if order == "lane" else runs[-1] if runs and runs[-1].steps[-1] == steps[seq] else None
        )
        if before is not None and before.takes(run):
            before.take(run)
        else:
            runs.append(run)
            last[run.lane] = run
    return runs if order == "step" else sorted(runs, key=lambda run: run.lane)


def _semantic(event: Any, seq: int, step: int) -> Run:
    kind = event.__class__
    if kind in _DELTAS:
        key = (kind, event.choice, event.index if kind is CallArguments else None)
        return Run(key, ("choice", event.choice), (event.text,), event.src, seq, step)
    if kind is Tokens:
        lane: Lane = ("tokens", event.choice)
    elif kind is Fault:
        lane = ("fault", event.choice)
    elif kind is Tick:
        lane = ("tick", 0)
    else:
        lane = ("session", 0) if kind in _SESSION else ("choice", event.choice)
    return Run(event, lane, (), None, seq, step)


def unnumbered(event: Any) -> Any:
    """An event of a protocol that numbers them, without its number; any other as it is."""
    return msgspec.structs.replace(event, sequence_number=0) if hasattr(event, "sequence_number") else event


class _Chunks:
    """Chunks as runs, in order. Counts those that have numbers."""

    def __init__(self) -> None:
        self._numbered = 0

    def run(self, event: Any, seq: int, step: int) -> Run:
        """The next one."""
        if isinstance(event, Tick | ErrorChunk):
            return Run(event, ("tick" if isinstance(event, Tick) else "session", 0), (), None, seq, step)
        if hasattr(event, "sequence_number"):
            event = msgspec.structs.replace(event, sequence_number=event.sequence_number - self._numbered)
            self._numbered += 1
        texts: list[str] = []
        skeleton = _skeleton(msgspec.to_builtins(event, builtin_types=(bytes,)), texts)
        name = getattr(event, "event", "")
        if not all(texts) or (name and not name.endswith("delta")):
            return Run((event.__class__, event), _chunk_lane(skeleton), (), None, seq, step)
        return Run((event.__class__, skeleton), _chunk_lane(skeleton), texts, None, seq, step)


def _skeleton(value: Any, texts: list[str], text: bool = False) -> Any:
    """The value with its texts taken out into ``texts``, in order."""
    if isinstance(value, str):
        if not text:
            return value
        texts.append(value)
        return None
    if is_map(value):
        return {key: _skeleton(item, texts, key in TEXT_KEYS) for key, item in value.items()}
    if is_list(value):
        return [_skeleton(item, texts) for item in value]
    return value


def _chunk_lane(skeleton: Any) -> Lane:
    """A chunk of a single choice is that choice's; a protocol without choices has one lane."""
    choices = skeleton.get("choices") if is_map(skeleton) else None
    if is_list(choices) and len(choices) == 1 and is_map(choices[0]):
        index = choices[0].get("index", 0)
        return ("choice", index if isinstance(index, int) else 0)
    return ("session", 0)
