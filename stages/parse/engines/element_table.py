"""Typed elements: the tables, and the heads of their tags.

    head  ::= { WS KEY "=" '"' TEXT '"' } WS sep          (TEXT: without quotes; ``&quot;`` and the like stand for them)

A head is read when it is whole: it is short, and what is longer is none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Literal, NamedTuple, TypeAlias

from stages.parse.lexicon import Lexicon, Scan

Kind: TypeAlias = Literal["string", "json", "list", "dict", "schema"]
"""What a value is: text; JSON, or else text; elements without names; elements with names; as the schema says."""
VALUE, VALUE_END, JSON, JSON_END, CALL, CALL_END, SECTION, SECTION_END, OUTSIDE = range(9)
"""What a literal is."""
MOST: Final = 1024
"""Characters of the longest head."""


def _types() -> dict[str, Kind]:
    return {}


@dataclass(frozen=True, slots=True)
class ElementTable:
    """How the tags read.

    ``call``, ``value`` and ``json`` are the beginnings of tags with a head, which ``sep`` ends. ``name``: the attribute
    with the call's name; ``key``, with an argument's; ``type``, with what it is (``types``; another word: a string);
    ``flag``: the older one, which says whether it is a string. ``untyped``: what it is without either: as the schema
    says; the same where the tool lists it, and else JSON if it reads as such; JSON always. ``json``: an element that
    holds all arguments. ``outside``: literals of what may stand around. ``implicit``: what opens beside an element, or
    ends what it stands in, ends it.
    """

    section: tuple[str, ...]
    section_end: tuple[str, ...]
    call: tuple[str, ...]
    call_end: tuple[str, ...]
    value: tuple[str, ...]
    value_end: tuple[str, ...]
    sep: str
    name: str = "name"
    key: str = "name"
    type: str = "type"
    types: Mapping[str, Kind] = field(default_factory=_types)
    flag: str = ""
    untyped: Literal["schema", "known", "json"] = "schema"
    json: tuple[str, ...] = ()
    json_end: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    implicit: bool = False

    def literals(self) -> tuple[str, ...]:
        """All literals, for ``Calls.literals``."""
        return (*self.tags(), self.sep)

    def tags(self) -> dict[str, int]:
        """Literal → what it is."""
        kinds = {
            VALUE: self.value, VALUE_END: self.value_end, JSON: self.json, JSON_END: self.json_end, CALL: self.call,
            CALL_END: self.call_end, SECTION: self.section, SECTION_END: self.section_end, OUTSIDE: self.outside,
        }  # fmt: skip
        return {literal: kind for kind, literals in kinds.items() for literal in literals}


class ElementScans:
    """The scans for one table and lexicon."""

    __slots__ = ("closers", "hard", "notable", "sep", "tags", "what")

    def __init__(self, table: ElementTable, lexicon: Lexicon) -> None:
        self.what = what = table.tags()
        self.tags = lexicon.scan(*what)
        """Any tag."""
        closers = what if table.implicit else (*table.value_end, *table.outside)
        self.closers = lexicon.scan(*closers)
        """What ends a value."""
        self.sep = lexicon.scan(table.sep)
        self.hard = lexicon.scan(*(tag for tag in what if lexicon.form(tag) != tag))
        """Tags that no text can be taken for."""
        self.notable = _notable("".join(sorted({read[0] for read in self.closers.names})))
        """Finds what is not just one more character of a string."""


@lru_cache(maxsize=64)
def _notable(firsts: str) -> Callable[[str], object]:
    return re.compile(f'["\\\\\x00-\x1f{re.escape(firsts)}]').search


# --- heads ----------------------------------------------------------------------------------------------------------

_WHITE: Final = "[ \t\r\n]"
_NAME: Final = "[A-Za-z_][A-Za-z0-9_.:-]*+"
_ATTRIBUTE: Final = re.compile(f'{_WHITE}++({_NAME})="([^"]*+)"')
_SPACE: Final = re.compile(f"{_WHITE}*+")
_BEGUN: Final = re.compile(f'{_WHITE}++{_NAME}(?:="[^"]*+|=)?+\\Z')
_ENTITY: Final = re.compile("&(?:amp|quot|lt|gt);")
_ENTITIES: Final = {"&amp;": "&", "&quot;": '"', "&lt;": "<", "&gt;": ">"}


class Head(NamedTuple):
    """A head. ``end``: the index behind it; ``attributes``: name → where the value stands, the first of each name."""

    end: int
    attributes: dict[str, tuple[int, int]]


PARTIAL: Final = Head(-1, {})
"""It may become a head."""
WRONG: Final = Head(-2, {})
"""None begins here."""


def head_at(text: str, i: int, sep: Scan) -> Head:
    """The head that begins at ``i``; PARTIAL or WRONG."""
    start = i
    found: dict[str, tuple[int, int]] = {}
    while match := _ATTRIBUTE.match(text, i):
        found.setdefault(match[1], match.span(2))
        i = match.end()
        if i - start > MOST:
            return WRONG
    space = _SPACE.match(text, i)
    j = space.end() if space else i
    literal, end = sep.at(text, j, False)
    if j - start > MOST:
        return WRONG
    if literal is not None:
        return Head(end, found)
    begun = end == j or (len(text) - start <= MOST and _BEGUN.match(text, i) is not None)
    return PARTIAL if begun else WRONG


def attribute(text: str) -> str:
    """What an attribute's value stands for."""
    return _ENTITY.sub(lambda match: _ENTITIES[match.group()], text)
