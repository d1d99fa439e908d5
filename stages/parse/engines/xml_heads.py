"""Heads of XML tags: what stands between a tag's name and its ``>``.

    equals     ::= WS QNAME WS ( ">" | <before NL> )                  (``<function=N>``; behind the ``=``)
    attributes ::= { WS KEY WS "=" WS QNAME } WS [ "/" ] ">"          (``<invoke name="N">``; behind the tag's name)
    QNAME      ::= '"' TEXT '"' | "'" TEXT "'" | WORD

A head is read when it is whole: it is short, and what is longer is none.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from stages.parse.text import OUT

MOST: Final = 512
"""Characters of the longest head. The names of tools have at most 64."""

# A special token is no part of a head.
_PLAIN: Final = re.compile(rf"[^<>\n{OUT}]{{0,{MOST + 1}}}+")
_SPACE: Final = " \t\r"
_WHITE: Final = r"[ \t\r\n]*+"
_KEY: Final = r"[A-Za-z_][\w.:-]*+"
_WORD: Final = rf"""[^\s"'<>=/{OUT}]"""
_ATTRIBUTE: Final = re.compile(rf"""{_WHITE}({_KEY}){_WHITE}={_WHITE}(?:"([^"{OUT}]*+)"|'([^'{OUT}]*+)'|({_WORD}++))""")
_END: Final = re.compile(rf"{_WHITE}(/?)>")
_BEGUN: Final = re.compile(rf"""{_WHITE}(?:/|{_KEY}{_WHITE}(?:={_WHITE}(?:"[^"{OUT}]*+|'[^'{OUT}]*+|{_WORD}*+))?)?\Z""")


class Head(NamedTuple):
    """A head. ``name``: where the name stands; ``end``: the index behind the head; ``empty``: the tag ends itself."""

    name: tuple[int, int]
    end: int
    attributes: dict[str, str]
    empty: bool = False


PARTIAL: Final = Head((-1, -1), -1, {})
"""It may become a head."""
WRONG: Final = Head((-1, -1), -2, {})
"""None begins here."""


def read(text: str, i: int, *, equals: bool, closed: bool = False) -> Head:
    """The head at ``i``; PARTIAL or WRONG. ``equals``: of which kind; ``closed``: a newline does not end it."""
    head = _equals(text, i, closed) if equals else _attributes(text, i)
    if head is PARTIAL:
        return WRONG if len(text) - i > MOST else PARTIAL
    return WRONG if head.end - i > MOST or head.name[0] == head.name[1] else head


def _equals(text: str, i: int, closed: bool) -> Head:
    match = _PLAIN.match(text, i)
    j = match.end() if match else i
    if j == len(text):
        return PARTIAL
    if text[j] not in (">" if closed else ">\n") or j - i > MOST:
        return WRONG
    raw = text[i:j].strip(_SPACE)
    start = i + len(text[i:j]) - len(text[i:j].lstrip(_SPACE))
    if len(raw) > 1 and raw[0] == raw[-1] and raw[0] in "\"'":
        raw = raw[1:-1].strip(_SPACE)
        start = text.find(raw, start + 1) if raw else start
    return Head((start, start + len(raw)), j + (text[j] == ">"), {})


def _attributes(text: str, i: int) -> Head:
    start, name = i, (i, i)
    found: dict[str, str] = {}
    while match := _ATTRIBUTE.match(text, i):
        if match[4] is not None and match.end() == len(text):
            break
        key = match[1]
        value = match.lastindex or 2
        if key not in found:
            found[key] = match[value]
            if key == "name":
                name = match.span(value)
        i = match.end()
        if i - start > MOST:
            return WRONG
    end = _END.match(text, i)
    if end is not None:
        return Head(name, end.end(), found, bool(end[1]))
    return PARTIAL if _BEGUN.match(text, i) else WRONG
