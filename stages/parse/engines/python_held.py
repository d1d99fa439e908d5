"""What is taken of a Python literal, and the JSON that it stands for so far."""

from __future__ import annotations

import msgspec

from stages.parse.engines import MORE
from stages.parse.engines import python_phases as ph
from stages.parse.engines.taken import Taken
from stages.parse.lexicon import Scan
from stages.parse.types import Types
from stages.parse.writer import Writer, pack, unpack


class PythonState(msgspec.Struct, frozen=True):
    """A literal's snapshot; texts are packed. ``wanted``: there are types."""

    phase: int
    pend: bytes
    pend_start: int
    held: tuple[bytes, ...]
    marks: tuple[int, ...]
    stack: str
    comma: bool
    kind: str
    wanted: bool
    word: bytes
    quote: str
    raw: bool
    braces: bool
    tail: bytes
    tail_start: int
    cut: int


class PythonHeld(Taken):
    """The state of one literal. ``held``: the JSON that ``pend`` stands for so far; with ``wanted``, the string's text,
    which is to be read as one of these types."""

    __slots__ = (
        "braces", "comma", "cut", "ends", "final", "held", "kind", "loose", "marks", "phase", "quote", "raw", "stack",
        "stuck", "tail", "tail_start", "verdict", "wanted", "word",
    )  # fmt: skip

    def __init__(self, writer: Writer, ends: Scan, loose: bool) -> None:
        super().__init__(writer)
        self.ends = ends
        """Literals that end the block."""
        self.loose = loose
        self.verdict = MORE
        self.final = False
        self.stuck = False
        """What comes next is undecided."""
        self.phase = ph.OPEN
        self.reset()

    def reset(self) -> None:
        """Before a call."""
        self.pend.clear()
        self.held: list[str] = []
        self.marks: list[int] = []
        """Where in ``held`` the JSON of brackets belongs whose kind is not known."""
        self.stack: list[str] = []
        """The open containers: list, parenthesis, tuple, brace, set, dictionary before a key or behind its colon."""
        self.comma = False
        """A comma is owed before the next value."""
        self.kind = ""
        """The last value: string, number (or another word), container."""
        self.wanted: Types | None = None
        self.word: list[str] = []
        self.quote = ""
        self.raw = False
        self.braces = False
        self.tail: list[str] = []
        """From a quote on that may have ended the string."""
        self.tail_start = 0
        self.cut = 0
        """Where in the tail that begins which belongs to what follows the string."""

    # --- what is taken, and what it stands for ------------------------------------------------------------------

    @property
    def holding(self) -> bool:
        """JSON waits."""
        return bool(self.marks) or self.wanted is not None

    def give(self, json: str) -> None:
        """What was taken stands for this JSON."""
        if self.holding:
            self.held.append(json)
        else:
            super().give(json)

    def lead(self) -> str:
        """What is owed before a value."""
        comma, self.comma = self.comma, False
        return ", " if comma else ""

    def fail(self) -> None:
        """The grammar breaks."""
        raise NotImplementedError

    def coerced(self) -> Types | None:
        """The types that the string is to be read as; None: it is a string."""
        return None

    def resolve(self, json: str) -> None:
        """The innermost bracket of unknown kind is this one. What waited for it alone goes out."""
        self.held[self.marks.pop()] = json
        if not self.marks:
            held = "".join(self.held)
            self.held.clear()
            self.give(held)

    def next_value(self) -> None:
        """Behind a comma between values."""
        top = self.stack[-1]
        if top in "PB":
            self.stack[-1] = "T" if top == "P" else "S"
            self.resolve("[")
        elif top == "D":
            self.stack[-1] = "K"
        self.comma = True
        self.phase = ph.ITEM

    def closed(self, char: str) -> None:
        """A closing bracket of the right kind was taken: of a container, or of the call."""
        raise NotImplementedError

    @property
    def top(self) -> str:
        """The innermost container."""
        return self.stack[-1] if self.stack else ""

    def _hold(self, text: str) -> None:
        if not self.tail:
            self.tail_start = self.writer.pos
        self.tail.append(text)
        self.take(text)

    # --- snapshot ---------------------------------------------------------------------------------------------------

    def dump(self) -> PythonState:
        """The state as plain data."""
        return PythonState(
            self.phase, pack("".join(self.pend)), self.pend_start, tuple(map(pack, self.held)), tuple(self.marks),
            "".join(self.stack), self.comma, self.kind, self.wanted is not None, pack("".join(self.word)), self.quote,
            self.raw, self.braces, pack("".join(self.tail)), self.tail_start, self.cut,
        )  # fmt: skip

    def load(self, state: PythonState) -> None:
        """Continue from ``dump``, but for the types."""
        self.phase = state.phase
        self.pend = [unpack(state.pend)] if state.pend else []
        self.pend_start = state.pend_start
        self.held = list(map(unpack, state.held))
        self.marks = list(state.marks)
        self.stack = list(state.stack)
        self.comma, self.kind = state.comma, state.kind
        self.word = [unpack(state.word)] if state.word else []
        self.quote, self.raw, self.braces = state.quote, state.raw, state.braces
        self.tail = [unpack(state.tail)] if state.tail else []
        self.tail_start, self.cut = state.tail_start, state.cut
