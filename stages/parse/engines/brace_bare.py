"""Bare values in brace notation.

    BARE ::= TEXT-until(an unnested "," "}" "]")

A bare value is what the schema says; where that says nothing, a number, ``true``, ``false``, ``null``, or else a
string. In an object a string goes on behind a comma that no key follows.
"""

from __future__ import annotations

import re
from typing import Final

from stages.events import Marker
from stages.parse import arguments as js
from stages.parse.engines import brace_held as bh
from stages.parse.engines.brace_keys import BraceKeys
from stages.parse.types import coerce

_KEY_RUN: Final = re.compile(r"[\w.-]*")


class BraceBare(BraceKeys):
    """The phases of a bare value."""

    __slots__ = ()

    def bare(self, text: str, i: int) -> int:
        """Up to an unnested delimiter."""
        brackets = "()" if self.stack[0] == "(" else ""
        match = self.notable(",{}[]" + brackets).search(text, i)
        j = match.start() if match else len(text)
        if j > i:
            self._more(text[i:j])
        if match is None:
            return j
        char = text[j]
        literal, end = self.literals.at(text, j, self.final)
        if literal is None and end == j:
            self.stuck = True
        elif literal is not None:
            self.fail()
        elif not self.nested and (char in "}]" or char in brackets[1:]):
            self._end_bare()
        elif not self.nested and char == ",":
            self._comma(char)
            return j + 1
        else:
            self.nested += (char in "{[" or char in brackets[:1]) - (char in "}]" or char in brackets[1:])
            self._more(char)
            return j + 1
        return j

    def _end_bare(self) -> None:
        types = self.types()
        if self.word or "string" in types.kinds:
            self.coerced(types, strip=True)
            self.phase = bh.AFTER
        else:
            self.fail()

    def _more(self, text: str) -> None:
        self.take(text)
        self.word.append(text)

    def _comma(self, char: str) -> None:
        """The end of the value; of a string in an object only if a key follows."""
        value = ""
        if not self.prose:
            value = coerce(self.writer.alphabet.visible("".join(self.word)).strip(), self.types())
            self.prose = self.stack[-1] != "[" and value.startswith('"')
        if self.prose:
            self.tail_start = self.writer.pos
            self.tail = [char]
            self.take(char)
            self.phase = bh.COMMA
            return
        self.word.clear()
        self.give(self.lead() + value)
        self.writer.marker(char)
        self.next()

    def behind_comma(self, text: str, i: int) -> int:
        """Is it a key that follows?"""
        j = js.space(text, i)
        if j > i:
            self._hold(text[i:j])
            return j
        literal, end = self.literals.at(text, i, self.final)
        if literal is None and end == i:
            self.stuck = True
        elif literal is not None or text[i] == bh.CLOSES[self.stack[-1]]:
            self._ended("")
        else:
            self.phase = bh.NEXT_KEY
        return i

    def next_key(self, text: str, i: int) -> int:
        """It is, if it is a word and a colon follows."""
        match = _KEY_RUN.match(text, i)
        j = match.end() if match else i
        if j > i:
            self._hold(text[i:j])
            return j
        j = js.space(text, i)
        if j > i:
            self._hold(text[i:j])
            return j
        if text[i] == ":":
            held = "".join(self.tail)
            key = held[1:].lstrip(" \t\r\n")
            words = self.writer.alphabet.visible(key).split()
            if len(words) == 1:
                self._ended(key)
                self.keyed(words[0])
                return i + 1
        self.word += self.tail
        self.tail.clear()
        self.phase = bh.BARE
        return i

    def _hold(self, text: str) -> None:
        self.take(text)
        self.tail.append(text)

    def _ended(self, key: str) -> None:
        """The bare value ended at the comma; the key behind it stays taken."""
        held = "".join(self.tail)
        comma = held[: len(held) - len(key)]
        self.tail.clear()
        value = self.writer.alphabet.visible("".join(self.word)).strip()
        self.word.clear()
        self.writer.arguments_at(self.lead() + coerce(value, self.types()), (self.pend_start, self.tail_start))
        self.writer.emit_at(Marker, comma, self.tail_start)
        self.pend = [key] if key else []
        self.pend_start = self.tail_start + self.writer.size(comma)
        self.next()
