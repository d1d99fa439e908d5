"""What a format is: tables that the shared machines read. A family is one file of formats/ that fills them in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from stages.events import FaultCode
from stages.parse.writer import Writer


class CallEngine(Protocol):
    """Reads call blocks, from behind the opener on. One per choice; it writes through the choice's Writer.

    Every character it consumes goes through exactly one of ``marker``, ``take`` and ``arguments`` of the writer. It
    ends a call as complete only when the arguments it wrote are one JSON object.
    """

    verdict: int
    """How the last ``feed`` ended: MORE, LEAVE, REPAIR, BROKEN or SPOILED of ``engines``."""
    code: FaultCode
    """With BROKEN and SPOILED: what was wrong."""

    @property
    def busy(self) -> bool:
        """A call has begun in this block and has not ended."""
        ...

    @property
    def seen(self) -> bool:
        """A call of this block was sent."""
        ...

    def begin(self) -> None:
        """A block opens."""
        ...

    def feed(self, text: str, i: int) -> int:
        """Read internal text from ``i`` on; returns the index of the first character that was not consumed."""
        ...

    def repaired(self) -> None:
        """After REPAIR: the closer came, the call is complete."""
        ...

    @property
    def flow(self) -> Callable[[str], object] | None:
        """A search: ordinary text in which it finds nothing is arguments as it is, and changes no state of the engine.
        None: nothing like that holds now."""
        ...

    @property
    def since(self) -> int:
        """The first byte of what ``kept`` gives; the writer's position if that is nothing."""
        ...

    def kept(self) -> tuple[str, int]:
        """Text taken from a committed call and given to no event yet, and its first byte."""
        ...

    def snapshot(self) -> bytes:
        """The state as plain data."""
        ...

    def restore(self, state: bytes) -> None:
        """Continue from ``snapshot``."""
        ...


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Tag-pair reasoning. White space around the tags follows one rule: one newline behind the opener, the run of
    newlines before the closer and the run behind it are structure."""

    opener: str
    closer: str
    turns: tuple[str, ...]
    """What opens a turn in the prompt: older turns' reasoning does not count."""


@dataclass(frozen=True, slots=True)
class Calls:
    """Tagged calls. ``header``: literals, white space allowed before each, that tell a call from a mention of the
    marker inside reasoning: only with them the marker ends reasoning. ``batch``: a character that may stand before the
    header where it is not reasoning that ends, but a broken call."""

    openers: tuple[str, ...]
    closers: tuple[str, ...]
    header: tuple[str, ...]
    engine: Callable[[Writer], CallEngine]
    batch: str = ""


@dataclass(frozen=True, slots=True)
class Format:
    """How a model family writes reasoning and calls."""

    name: str
    version: int
    grammar: str
    """For people: the grammar in a word."""
    summary: str
    """For people: one line."""
    aliases: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    reasoning: Reasoning | None = None
    calls: Calls | None = None
    enders: tuple[str, ...] = ()
    """Ends of turn: behind one nothing is output. By id where there are ids."""

    @property
    def id(self) -> str:
        """The stage id."""
        return f"parse.{self.name}@{self.version}"
