"""XML calls: the tables, and what their literals do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from stages.parse.engines.json_calls import JsonKeys
from stages.parse.lexicon import Lexicon

PARAM, PARAM_END, CALL, CALL_END, BLOCK, BLOCK_END, LEAD, LEAD_END = range(8)
"""What a tag is."""
CLOSE, MID, OPEN, WEAK, AGAIN, ESCAPE, STOP = range(8, 15)
"""What a literal in a value is: see ``xml_values``."""
CDATA: Final = ("<![CDATA[", "]]>")


@dataclass(frozen=True, slots=True)
class XmlValues:
    """Where a value ends, and what of it is the value.

    ``end``: at the first literal of ``until``; or at a closer only where structure follows it (``follow``); or, where
    the value begins with a newline, only at tags that stand at the start of a line (``line``; else as ``first``).
    ``trim``: white space that is structure: one newline at each end, or all of it. ``unescape``: ``\\n`` written for
    newlines, or XML's entities and CDATA.
    """

    until: tuple[str, ...]
    end: Literal["first", "follow", "line"] = "first"
    trim: Literal["none", "newline", "space"] = "none"
    unescape: Literal["", "newlines", "xml"] = ""


@dataclass(frozen=True, slots=True)
class XmlLead:
    """What stands before a call's tag, and behind it: ``open`` word ``sep`` … ``close``. Another word: no call."""

    open: str
    word: str
    sep: str
    close: str


@dataclass(frozen=True, slots=True)
class XmlTable:
    """How the tags read, and what is tolerated.

    ``call`` and ``param`` are the beginnings of tags, up to their heads (see ``xml_heads``; ``equals``: of which kind).
    ``prefix``: an opener that all tags begin with. ``section``: a block is no call by itself: it stands when its first
    call opens. ``known``: a call outside a block is one only if the tool is offered, and never in reasoning. ``loose``:
    text between the calls of a block is dropped. ``implicit``: the next tag ends a call that was not closed. ``json``:
    the keys of a JSON object that may stand for a call. ``object``: a JSON object may stand for the arguments.
    ``typed``: the attribute that says whether a value is a string. ``unwrap``: arguments that hold all others, where
    the tool has no such argument. ``listed``: arguments that the tool does not list are dropped. ``python``: values may
    be Python's.
    """

    call: tuple[str, ...]
    call_end: tuple[str, ...]
    param: tuple[str, ...]
    param_end: tuple[str, ...]
    values: XmlValues
    block: tuple[str, ...] = ()
    block_end: tuple[str, ...] = ()
    prefix: str = ""
    lead: XmlLead | None = None
    equals: bool = False
    section: bool = False
    known: bool = False
    loose: bool = False
    implicit: bool = True
    json: JsonKeys | None = None
    object: bool = False
    typed: str = ""
    unwrap: tuple[str, ...] = ()
    listed: bool = False
    python: bool = True

    def literals(self) -> tuple[str, ...]:
        """All literals, for ``Calls.literals``."""
        lead = () if self.lead is None else (self.lead.open, self.lead.sep, self.lead.close)
        return (*_tags(self), *self.values.until, *lead)


@lru_cache(maxsize=64)
def _tags(table: XmlTable) -> dict[str, int]:
    """Literal → what it is."""
    tags = dict.fromkeys(table.block, BLOCK) | dict.fromkeys(table.block_end, BLOCK_END)
    tags |= dict.fromkeys(table.call, CALL) | dict.fromkeys(table.call_end, CALL_END)
    tags |= dict.fromkeys(table.param, PARAM) | dict.fromkeys(table.param_end, PARAM_END)
    if table.lead is not None:
        tags |= {table.lead.open: LEAD, table.lead.close: LEAD_END}
    return tags


@lru_cache(maxsize=64)
def _lines(table: XmlTable) -> dict[str, int]:
    """Literal → what it is inside a value that does not end at the first closer."""
    lead = "\n" if table.values.end == "line" else ""
    found = {lead + tag: CLOSE for tag in table.param_end} | {lead + tag: OPEN for tag in table.param}
    found |= {lead + tag: WEAK if lead else STOP for tag in table.call_end}
    if lead:
        found |= dict.fromkeys(table.param_end, MID)
    return found | dict.fromkeys(_escapes(table.values.unescape), ESCAPE)


_ENTITIES: Final = {"&lt;": "<", "&gt;": ">", "&amp;": "&", "&quot;": '"', "&apos;": "'"}
_NEWLINES: Final = {"\\n": "\n"}


def _escapes(kind: str) -> dict[str, str]:
    return _ENTITIES if kind == "xml" else _NEWLINES if kind == "newlines" else {}


_XML: Final = re.compile(r"<!\[CDATA\[(.*?)(?:\]\]>|\Z)|&(?:lt|gt|amp|quot|apos);", re.DOTALL)
_SLASHED: Final = re.compile(r"\\n")


def unescaped(text: str, kind: str) -> Iterator[tuple[str, str]]:
    """(what it stands for, as written) of each piece of a value."""
    if not kind:
        yield text, text
        return
    at = 0
    for match in (_XML if kind == "xml" else _SLASHED).finditer(text):
        if match.start() > at:
            yield text[at : match.start()], text[at : match.start()]
        at = match.end()
        yield (match[1] if match.re is _XML and match[1] is not None else _escapes(kind)[match.group()]), match.group()
    if at < len(text):
        yield text[at:], text[at:]


class XmlScans:
    """The scans for one table and lexicon."""

    __slots__ = (
        "again", "behind", "block", "body", "cdata", "escapes", "follow", "inline", "lead", "line", "lines", "notable",
        "notable_first", "prefixed", "start", "tags", "weak",
    )  # fmt: skip

    def __init__(self, table: XmlTable, lexicon: Lexicon) -> None:
        scan, values = lexicon.scan, table.values
        self.tags = tags = _tags(table)
        self.lines = lines = _lines(table)
        self.escapes = escapes = _escapes(values.unescape)
        lead = () if table.lead is None else (table.lead.open, table.lead.close)
        self.block = scan(*table.call, *table.block_end, *lead)
        """Between calls."""
        self.body = scan(*tags)
        """Between arguments."""
        skip = len(table.prefix)
        self.prefixed = scan(*(tag[skip:] for tag in (*table.block, *table.call))) if skip else self.block
        """Behind the prefix."""
        self.lead = self.block if table.lead is None else scan(table.lead.sep, *lead, *table.block_end)
        """Behind the beginning of a lead."""
        until = values.until
        if values.trim == "newline":
            until = (*until, *("\n" + tag for tag in until))
        cdata = CDATA[:1] if values.unescape == "xml" else ()
        self.inline = scan(*until, *escapes, *cdata)
        """In a value that ends at the first closer."""
        self.cdata = scan(CDATA[1])
        self.line = scan(*lines)
        """In a value that does not."""
        self.weak = scan(*lines, *table.block)
        """The same, behind a tag that may have ended it."""
        self.start = scan(*table.param_end, *table.param, *table.call_end)
        """At the beginning of a line value."""
        self.follow = scan(*tags)
        """Behind a closer."""
        firsts = "".join(sorted({name[0] for name in self.inline.names}))
        self.notable_first = _notable(firsts, values.trim == "space")
        """Finds what is not just one more character of a string."""
        self.notable = _notable("".join(sorted({name[0] for name in self.line.names})), False)
        """The same in a value that does not end at the first closer."""
        self.behind = _behind(table, lexicon)
        """Tags behind a value that was not closed."""


@lru_cache(maxsize=64)
def _notable(firsts: str, space: bool) -> Callable[[str], object]:
    return re.compile(f'["\\\\\x00-\x1f{re.escape(firsts)}]' + (r"|[ \t]\Z" if space else "")).search


def _behind(table: XmlTable, lexicon: Lexicon) -> re.Pattern[str]:
    groups: list[str] = []
    for tags in (table.param_end, table.call_end, table.block_end):
        forms = "|".join(re.escape(lexicon.form(tag)) for tag in tags)
        # Not "?+": up to 3.11.3 Python goes on inside the form that began and failed.
        groups.append(f"(?:{forms})?[ \t\r\n]*+")
    return re.compile("[ \t\r\n]*+" + "".join(groups))
