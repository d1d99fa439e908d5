"""The rest of a pythonic call that broke off.

    rest ::= TEXT-until(its ")" | the end of the block | an empty line)

Its calls' neighbours are read on behind it. Of the grammar only brackets and quotes count there; a string ends with its
line at the latest.
"""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

from stages.events import Content, Dropped
from stages.parse.engines import python_phases as ph
from stages.parse.engines.python_values import PythonValues


class Lost(msgspec.Struct):
    """``depth``: open brackets; 0: not even the call's own. ``quoted``: the quote of the string. ``line``: behind a
    newline."""

    content: bool
    depth: int
    quoted: str
    line: bool = False


@lru_cache(maxsize=64)
def _notable(firsts: frozenset[str]) -> re.Pattern[str]:
    """In the rest of a broken call: brackets, quotes, and what may end the block."""
    return re.compile(f"[][(){{}}'\"\\n\\\\,{''.join(map(re.escape, sorted(firsts)))}]")


class PythonLost(PythonValues):
    """The phase of that rest."""

    __slots__ = ("lost",)

    lost: Lost | None
    """A call of this block broke off: the last one."""

    def lose(self, called: bool, *, content: bool) -> None:
        """A call (``called``), or what should be one, breaks off here; the rest of it is ``content``, or dropped."""
        quoted = self.quote[0] if self.phase == ph.STRING else ""
        self.lost = Lost(content, 1 + len(self.stack) if called else 0, quoted)
        self.reset()
        self.phase = ph.LOST

    def rest(self, text: str, i: int) -> int:
        """Up to the end of the call."""
        lost = self.lost
        assert lost is not None
        notable = _notable(frozenset(text[0] for text in self.ends.names))
        j = i
        while j < len(text) and self.phase == ph.LOST and not self.stuck:
            match = notable.search(text, j)
            k = match.start() if match else len(text)
            lost.line = lost.line and k == j
            j = self._lost(lost, text, k) if match else k
        if j > i:
            self.writer.emit(Content if lost.content else Dropped, text[i:j])
        return j

    def _lost(self, lost: Lost, text: str, i: int) -> int:
        """One that matters; returns where to go on."""
        char = text[i]
        literal, end = self.ends.at(text, i, self.final)
        line, lost.line = lost.line, char == "\n"
        if literal is not None or (char == "\n" and line) or (char in ",]" and not lost.depth and not lost.quoted):
            self.phase = ph.BEHIND
            return i
        if end == i or (char == "\\" and i + 1 == len(text) and not self.final):
            lost.line = line
            self.stuck = True
            return i
        if char == "\\":
            return min(i + 2, len(text))
        if lost.quoted:
            lost.quoted = "" if char in (lost.quoted, "\n") else lost.quoted
        elif char in "'\"":
            lost.quoted = char
        elif char in "[({":
            lost.depth += 1
        elif char in "])}" and lost.depth:
            lost.depth -= 1
            self.phase = ph.LOST if lost.depth else ph.BEHIND
        return i + 1
