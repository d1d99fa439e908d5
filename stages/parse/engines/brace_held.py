"""What is known of one call's arguments in brace notation."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from stages.parse import arguments as js
from stages.parse.engines import MORE, named
from stages.parse.engines.taken import Taken
from stages.parse.lexicon import Scan
from stages.parse.site import Site
from stages.parse.types import ANY, Parameters, Types, coerce

(
    OPEN, NAMED, PAIR, KEY, KEY_RAW, KEY_TEXT, COLON, VALUE, ITEM, RAW, TEXT, BARE, COMMA, NEXT_KEY, AFTER, END,
) = range(16)  # fmt: skip
STATES: Final = named(globals())

CLOSES: Final = {"{": "}", "[": "]", "(": ")"}


@lru_cache(maxsize=64)
def _notable(firsts: str, structure: str) -> re.Pattern[str]:
    """In a bare text: structure, and what a literal may begin with."""
    return re.compile(f"[{re.escape(structure)}{re.escape(firsts)}]")


@lru_cache(maxsize=64)
def _flow(firsts: str) -> Callable[[str], object]:
    """In a string: what a literal may begin with, and what JSON escapes."""
    return re.compile(f'["\\\\\x00-\x1f{re.escape(firsts)}]').search


class BraceHeld(Taken):
    """The state of one call's arguments."""

    __slots__ = (
        "comma", "final", "key", "kinds", "literals", "nested", "parameters", "path", "phase", "prose", "quote",
        "quotes", "scanner", "site", "stack", "stuck", "tail", "tail_start", "typed", "verdict", "wanted", "word",
    )  # fmt: skip

    def __init__(self, site: Site, quote: str, typed: bool) -> None:
        super().__init__(site.writer)
        self.site = site
        self.quote = quote
        self.typed = typed
        """A quoted argument is a string only if the schema says so, or if it is nothing else."""
        self.verdict = MORE
        self.final = False
        self.stuck = False
        """What comes next is undecided."""
        self.phase = OPEN
        self.clear()

    def clear(self) -> None:
        """Before a call."""
        self.pend.clear()
        self.parameters: Parameters | None = None
        self.stack: list[str] = []
        """The open brackets."""
        self.kinds: list[Types] = []
        """What the containers inside the arguments are; what is known of their insides."""
        self.path: list[str] = []
        """The key of each; "" in an array."""
        self.key = ""
        self.comma = False
        """A comma is owed before the next value."""
        self.word: list[str] = []
        """The key or the value that is being read, without its quotes."""
        self.nested = 0
        """Open brackets in a bare value."""
        self.prose = False
        """It is a string, in an object."""
        self.wanted: Types | None = None
        """The quoted argument is to be read as one of these."""
        self.tail: list[str] = []
        """From a comma on that may have ended a bare value."""
        self.tail_start = 0
        self.scanner = js.JsonScanner()

    def scans(self, closers: tuple[str, ...]) -> None:
        """How the literals read now."""
        self.quotes: Scan = self.site.lexicon.scan(self.quote)
        self.literals: Scan = self.site.lexicon.scan(self.quote, *closers)

    def fail(self) -> None:
        """The grammar breaks."""
        raise NotImplementedError

    def finished(self) -> None:
        """The arguments are closed."""
        raise NotImplementedError

    def lead(self) -> str:
        """What is owed before a value or a key."""
        comma, self.comma = self.comma, False
        return ", " if comma else ""

    @property
    def find(self) -> Callable[[str], object] | None:
        """In a string that goes out as it comes: the search for what is not one more character of it."""
        if self.phase == RAW and self.wanted is None:
            return _flow("".join(sorted({text[0] for text in self.quotes.names})))
        return self.scanner.flow if self.phase == TEXT else None

    def types(self) -> Types:
        """What the value that comes next is."""
        if not self.kinds:
            found = None if self.parameters is None else self.parameters.types(self.key)
        else:
            found = self.kinds[-1].item() if self.stack[-1] == "[" else self.kinds[-1].member(self.key)
        return found if found is not None and found.schema else ANY

    def coerced(self, types: Types, *, strip: bool) -> None:
        """The word is a value of these types."""
        value = self.writer.alphabet.visible("".join(self.word))
        self.word.clear()
        self.give(self.lead() + coerce(value.strip() if strip else value, types))

    def scan(self) -> None:
        """A JSON string begins; its quote was taken."""
        self.scanner = js.JsonScanner()
        self.scanner.feed('"', 0)

    def next(self) -> None:
        """Behind a comma."""
        self.comma = True
        self.phase = ITEM if self.stack[-1] == "[" else PAIR

    def close(self, text: str, i: int) -> int:
        """The end of a container, or of the arguments."""
        self.take(text[i])
        top = self.stack.pop()
        self.give("]" if top == "[" else "}")
        self.comma = False
        self.phase = AFTER
        if self.stack:
            self.kinds.pop()
            self.path.pop()
        else:
            self.finished()
        return i + 1

    def retrace(self) -> None:
        """Find out again what the open containers are."""
        keys, stack = self.path, self.stack
        self.kinds, self.path, self.stack = [], [], stack[:1]
        last = self.key
        for key, bracket in zip(keys, stack[1:], strict=True):
            self.key = key
            self.kinds.append(self.types())
            self.path.append(key)
            self.stack.append(bracket)
        self.key = last

    def notable(self, structure: str) -> re.Pattern[str]:
        """Finds one of these characters, or where a literal may begin."""
        return _notable("".join(sorted({text[0] for text in self.literals.names})), structure)
