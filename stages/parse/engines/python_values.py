"""Python literals, piece by piece, as JSON.

    value ::= string | NUMBER | "True" | "False" | "None" | "true" | "false" | "null"
            | "[" [ value { "," value } [ "," ] ] "]"                                              (array)
            | "(" [ value "," [ value { "," value } [ "," ] ] ] ")" | "(" value ")"                (array; the value)
            | "{" [ value { "," value } [ "," ] ] "}" | "{" [ pair { "," pair } [ "," ] ] "}"      (array; object)
    pair  ::= ( string | NUMBER | word ) ":" value                                   (keys of other kinds: their JSON)

Strings and lists go out as they come, numbers and words at their end; what stands in a parenthesis or a brace waits
until it is known which of its kinds it is: at the first comma, colon, or end.
"""

from __future__ import annotations

import re
from typing import Final

from stages.parse.engines import python_phases as ph
from stages.parse.engines.python_quotes import CLOSERS, STARTS, PythonQuotes
from stages.parse.engines.python_text import number

_WORDS: Final = {
    "True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null",
}  # fmt: skip
_PREFIXES: Final = frozenset((*"rRuUfF", *(a + b for a in "rR" for b in "fF"), *(a + b for a in "fF" for b in "rR")))
_BEGUN: Final = frozenset(word[:size] for word in (*_WORDS, *_PREFIXES) for size in range(len(word) + 1))
_LETTER: Final = re.compile("[A-Za-z]")
_NUMBER: Final = re.compile("[0-9A-Za-z_.]+")


class PythonValues(PythonQuotes):
    """The phases of values."""

    __slots__ = ()

    def value(self, text: str, i: int) -> int:
        """A value, or (ITEM) the end of a container."""
        i = self.space(text, i)
        if i == len(text):
            return i
        char = text[i]
        if char in "'\"":
            return self.string(text, i)
        if char in "[({":
            return self._container(char, i)
        if char in STARTS:
            self.phase = ph.NUMBER
        elif _LETTER.match(char):
            self.phase = ph.WORD
        elif self.phase == ph.ITEM and self._ends(char):
            self.take(char)
            self.closed(char)
            return i + 1
        else:
            self.fail()
        return i

    def _ends(self, char: str) -> bool:
        """It closes the innermost container."""
        return char == ("}" if self.top == "K" and self.phase == ph.ITEM else CLOSERS[self.top][0])

    def _container(self, char: str, i: int) -> int:
        if self.top == "K":
            self.fail()
            return i
        self.take(char)
        lead = self.lead()
        if char == "[":
            self.stack.append("L")
            self.give(lead + "[")
        else:
            self.stack.append("P" if char == "(" else "B")
            self.held.append(lead)
            self.marks.append(len(self.held))
            self.held.append("")
        self.phase = ph.ITEM
        return i + 1

    def words(self, text: str, i: int) -> int:
        """A constant, or a string's prefix."""
        while i < len(text) and _LETTER.match(text, i):
            word = "".join(self.word) + text[i]
            if word not in _BEGUN:
                self.fail()
                return i
            self.word = [word]
            self.take(text[i])
            i += 1
        if i == len(text):
            return i
        word = "".join(self.word)
        if text[i] in "'\"" and word in _PREFIXES:
            return self.string(text, i)
        if word in _WORDS:
            self._scalar(_WORDS[word])
        else:
            self.fail()
        return i

    def number(self, text: str, i: int) -> int:
        """A number, up to what cannot be part of one."""
        match = _NUMBER.match(text, i)
        if match is not None:
            self.word.append(match.group())
            self.take(match.group())
            return match.end()
        if text[i] in "+-" and self._signed(text[i]):
            self.word.append(text[i])
            self.take(text[i])
            return i + 1
        value = number("".join(self.word))
        if value is None:
            self.fail()
        else:
            self._scalar(value)
        return i

    def _signed(self, sign: str) -> bool:
        """A sign may stand here."""
        if not self.word:
            return sign == "-"
        return self.word[-1][-1] in "eE" and "x" not in "".join(self.word[:3]).lower()

    def _scalar(self, json: str) -> None:
        self.word.clear()
        self.give(self.lead() + (f'"{json}"' if self.top == "K" else json))
        self.kind = "n"
        self.phase = ph.AFTER

    def after(self, text: str, i: int) -> int:
        """Behind a value inside a container."""
        char = text[i]
        if char == "," and self.top != "K":
            self.structure(char)
            self.next_value()
        elif char == ":" and self.top in "BK" and self.kind != "c":
            self._colon(char)
        elif char != ":" and char in CLOSERS[self.top]:
            self.take(char)
            self.closed(char)
        else:
            self.fail()
            return i
        return i + 1

    def _colon(self, char: str) -> None:
        self.take(char)
        top, self.stack[-1] = self.stack[-1], "D"
        if top == "B" and self.kind == "n":
            self.held[-1] = f'"{self.held[-1]}"'
        self.give(": ")
        if top == "B":
            self.resolve("{")
        self.phase = ph.VALUE

    def closed(self, char: str) -> None:
        """A container's closing bracket was taken."""
        top = self.stack.pop()
        empty = self.phase == ph.ITEM
        if top == "P":
            if empty:
                self.held.append("]")
            self.resolve("[" if empty else "")
            self.kind = "c" if empty else self.kind
        elif top == "B":
            self.held.append("}" if empty else "]")
            self.resolve("{" if empty else "[")
        else:
            self.give("]" if top in "LTS" else "}")
        if top != "P":
            self.kind = "c"
        self.comma = False
        self.phase = ph.AFTER
