"""What a format is: tables that the shared machines read. A family is one file of formats/ that fills them in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, TypeAlias

from stages.events import FaultCode
from stages.opening import TokenizerFacts
from stages.parse.site import Site
from stages.parse.spelling import Spelling, Spoken

Trim: TypeAlias = Literal["none", "newlines", "space"]
"""Which white space is structure where a marker meets text."""
TRIMS: dict[Trim, str] = {"none": "", "newlines": "\n", "space": " \t\r\n"}


class CallEngine(Protocol):
    """Reads call blocks, from behind the opener on. One per choice; it writes through the choice's Writer.

    Every character it consumes goes through exactly one method of the writer. It ends a call as complete only when the
    arguments it wrote are one JSON object. It knows nothing of steps: what it cannot decide yet it leaves unread.
    """

    verdict: int
    """How the last ``feed`` ended: MORE, LEAVE, REPAIR, BROKEN, SPOILED, DONE or TEXT of ``engines``."""
    code: FaultCode
    """With BROKEN and SPOILED: what was wrong."""

    @property
    def state(self) -> str:
        """Where the engine stands, in lower case, for people: its phase; behind a colon that of a part that reads."""
        ...

    @property
    def busy(self) -> bool:
        """A call has begun in this block and has not ended (or the block is too short to say)."""
        ...

    @property
    def seen(self) -> bool:
        """This is a block beyond doubt: its closer is consumed also behind a call that was taken back."""
        ...

    @property
    def sure(self) -> bool:
        """The header of a call was read: the opener was no mere mention. Until then a block that breaks, or is cut, in
        reasoning stays reasoning, and a bare one is an ordinary answer. True from the call's name on at the latest."""
        ...

    def begin(self, opener: str, guarded: bool) -> None:
        """A block opens, in a region of the writer that has begun. ``opener``: the literal, or "" for a bare block,
        whose first character is still to be read. ``guarded``: in reasoning, where models write about markers."""
        ...

    def feed(self, text: str, i: int, final: bool) -> int:
        """Read internal text from ``i`` on; returns the index of the first character that was not consumed.

        With MORE, ``text[i:]`` is undecided (what may become a literal): it comes again with more behind it. ``final``:
        nothing more comes: all is to be consumed, or a verdict given; ``text`` may be empty.
        """
        ...

    def repaired(self) -> None:
        """After REPAIR: the closer came, the call is complete. After RESUME: the call was ended, or taken back."""
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
    """Reasoning between literals.

    ``turns``: what opens a turn in the prompt: older turns' reasoning does not count. ``inside``: where the prompt
    is not known, or no opener exists, output begins inside. ``trim``: at both ends, and between closer and content;
    of newlines only the first behind the opener. ``again``: it may open again in content; parts are joined by a
    newline. ``label``: the line behind the opener is structure. ``calls``: a call opener inside ends reasoning, is
    text, or is a call inside, behind which reasoning goes on. ``stray``: a closer in content is swallowed before
    the first visible character, always, always and the answer begins anew behind it, or never. ``wrapper``:
    literals that may stand around the whole answer behind the closer. ``prefix``: what is put before all content
    (the opener that the prompt had, for those who want no split).
    """

    openers: tuple[str, ...]
    closers: tuple[str, ...]
    turns: tuple[str, ...] = ()
    inside: bool = False
    trim: Trim = "newlines"
    again: bool = False
    label: bool = False
    calls: Literal["end", "text", "inside"] = "end"
    stray: Literal["lead", "always", "restart", "never"] = "lead"
    wrapper: tuple[str, str] | None = None
    prefix: str = ""

    def literals(self) -> Iterator[str]:
        """All literals."""
        yield from self.openers
        yield from self.closers
        yield from self.wrapper or ()


@dataclass(frozen=True, slots=True)
class Calls:
    """Blocks of calls.

    ``openers``: begin a block. ``closers``: end one, where the engine leaves that to the scanner; behind a call that
    was taken back they are consumed, and the rest of a broken call is dropped up to one. ``literals``: further literals
    that the engine reads (so that special tokens among them are not foreign). ``bare``: characters that, first in the
    answer, may begin a block that has no opener. ``words``: literals that are ordinary text too: without a call behind
    them, or outside one, they are no fault. ``trim``: white space before a block. ``drop``: nothing behind a block is
    output; "text": no text, but other blocks are. ``ids``: how call ids look that are not on the wire.
    """

    openers: tuple[str, ...]
    engine: Callable[[Site], CallEngine]
    closers: tuple[str, ...] = ()
    literals: tuple[str, ...] = ()
    bare: str = ""
    words: tuple[str, ...] = ()
    trim: Trim = "newlines"
    drop: bool | Literal["text"] = False
    ids: Literal["call", "nine"] = "call"

    def all(self) -> Iterator[str]:
        """All literals."""
        yield from self.openers
        yield from self.closers
        yield from self.literals


class Field(NamedTuple):
    """A piece of a message's header: the literal it begins with ("" for none), the text behind it, and where that
    begins in the header."""

    literal: str
    text: str
    at: int


class Body(NamedTuple):
    """What a header makes of its body. ``name``: where the header names the function that the body calls; None: the
    body does."""

    kind: Literal["reasoning", "content", "call", "dropped"]
    name: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Channels:
    """Output as messages, each a header and a body.

    ``starts`` begin a header, ``parts`` stand inside one (and begin one whose start was forgotten), ``bodies`` end it,
    ``enders`` end the body. ``open``: the start that the prompt ends with: what follows it there is the beginning of
    the first header. ``lead``: text that begins a header where the prompt has its start. ``named``: any text does.
    ``breaks``: a start ends the body too. ``read``: the header's fields, and the names of the offered tools (None: no
    calls are wanted) → what the body is. ``spoken``: how messages are written where the output is held.
    """

    starts: tuple[str, ...]
    parts: tuple[str, ...]
    bodies: tuple[str, ...]
    enders: tuple[str, ...]
    open: str
    lead: tuple[str, ...]
    read: Callable[[tuple[Field, ...], frozenset[str] | None], Body]
    spoken: Spoken
    named: bool = False
    breaks: bool = False

    def literals(self) -> Iterator[str]:
        """All literals."""
        yield from (*self.starts, *self.parts, *self.bodies, *self.enders)


@dataclass(frozen=True, slots=True, eq=False)
class Format:
    """How a model family writes reasoning and calls. Told apart by identity: each is made once."""

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
    channels: Channels | None = None
    """Messages; the engine of ``calls`` reads the bodies of calls, and nothing else of either table is used."""
    boundaries: tuple[str, ...] = ()
    """Structure wherever it stands in text; in reasoning it ends that. White space before one is dropped where calls
    trim all of it."""
    enders: tuple[str, ...] = ()
    """Ends of turn: behind one nothing is output. By id where there are ids."""
    foreign: tuple[str, ...] = ()
    """Special tokens outside the format, for text whose vocabulary is not known: dropped, as their ids would be."""
    spellings: tuple[Spelling, ...] = ()
    """How calls are written where the output is held to them: the first whose token the vocabulary has. None: it has
    no calls."""
    variant: Callable[[TokenizerFacts], Format] | None = None
    """The table for a checkpoint, where the vocabulary tells how it spells the literals."""

    @property
    def id(self) -> str:
        """The stage id."""
        return f"parse.{self.name}@{self.version}"
