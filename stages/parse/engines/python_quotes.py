"""Where a Python string ends.

Models forget to escape quotes, so a quote ends a literal only where what follows can stand behind a value: white space
and ``, ) ] } :``; behind a comma the next argument or value. The tail from the quote on is held until that is known.
What cannot follow is part of the string: ``'it's'``. An operator makes an expression of it, which is no literal; with
``loose``, where templates write strings without escaping, also an operator or another literal is part of the string,
and what stands behind a closing bracket is looked at, too.
"""

from __future__ import annotations

import re
from typing import Final

from stages.events import Marker
from stages.parse import arguments as js
from stages.parse.engines import python_phases as ph
from stages.parse.engines.python_strings import PythonStrings
from stages.parse.literals import quoted
from stages.parse.types import coerce

IDENT_RUN: Final = re.compile(r"\w*")
IDENT_START: Final = re.compile(r"[^\W\d]")
STARTS: Final = frozenset("'\"[({-.0123456789")
"""What a value begins with, but for words."""
CLOSERS: Final = {"": ")", "L": "]", "P": ")", "T": ")", "B": "}:", "S": "}", "K": ":", "D": "}"}
"""What may stand behind a value, beside a comma, by the innermost container."""
_PREFIXED: Final = re.compile(r"""([rRuUfF]|[rR][fF]|[fF][rR])?(?=['"])""")
_PREFIX_CUT: Final = re.compile(r"(?:[rRuUfF]|[rR][fF]|[fF][rR])\Z")
_WORD: Final = re.compile(r"""(?:True|False|None|true|false|null)(?!\w)|(?:[rRuUfF]|[rR][fF]|[fF][rR])['"]""")
_WORD_CUT: Final = re.compile(r"\w{0,5}\Z")
_OPERATORS: Final = frozenset(")]},:+-*/%.<>=!&|^@([{;~")


class PythonQuotes(PythonStrings):
    """The phases behind a quote that may have ended the string."""

    __slots__ = ()

    def _hold_space(self, text: str, i: int) -> int:
        j = js.space(text, i)
        if j > i:
            self._hold(text[i:j])
        return j

    def behind_quote(self, text: str, i: int) -> int:
        """White space and one character decide, or a comma and what follows it."""
        i = self._hold_space(text, i)
        if i == len(text):
            return i
        if not self.loose:
            if _PREFIX_CUT.match(text, i) and not self.final:
                self.stuck = True
                return i
            if match := _PREFIXED.match(text, i):
                return self._adjacent(text, i, match)
        char = text[i]
        if char == "," and self.top != "K":
            self._hold_from(char, ph.COMMA)
            return i + 1
        if char not in CLOSERS[self.top]:
            self._foreign(text, i)
        elif self.loose and char != ":":
            self._hold_from(char, ph.CLOSER)
            return i + 1
        else:
            self._accept()
        return i

    def _foreign(self, text: str, i: int) -> None:
        """What cannot stand behind this value."""
        literal, end = self.ends.at(text, i, self.final)
        if literal is None and end == i:
            self.stuck = True
        elif literal is not None or (not self.loose and _breaks(text[i])):
            self._accept()
        else:
            self._reject()

    def _hold_from(self, char: str, phase: int) -> None:
        self.cut = sum(map(len, self.tail))
        self._hold(char)
        self.phase = phase

    def _adjacent(self, text: str, i: int, match: re.Match[str]) -> int:
        size = self.opening(text, match.end())
        if not size:
            return i
        end = match.end() + size
        self._hold(text[i:end])
        if not self.holding:
            self.writer.emit_at(Marker, "".join(self.tail), self.tail_start)
            self.pend.clear()
        self.tail.clear()
        self.opened(text[match.end() : end], match[1] or "")
        return end

    def behind_comma(self, text: str, i: int) -> int:
        """The next argument or value, or the end of a trailing comma's container."""
        i = self._hold_space(text, i)
        if i == len(text):
            return i
        char = text[i]
        if not self.stack and IDENT_START.match(char):
            self.cut = sum(map(len, self.tail))
            self.phase = ph.IDENT
            return i
        if self.stack and _WORD_CUT.match(text, i):
            self.stuck = not self.final
            if self.final:
                self._hold(text[i:])
            return i if self.stuck else len(text)
        if self.stack:
            value = char in STARTS or char in CLOSERS[self.top] or _WORD.match(text, i) is not None
        else:
            value = char == ")"
        if not self.loose:
            # Whatever breaks the grammar there, it is not in the string.
            value = value or _breaks(char)
        if value:
            self._accept()
            if self.stack:
                self.next_value()
            else:
                self.phase = ph.ARG
        else:
            self._reject()
        return i

    def ident(self, text: str, i: int) -> int:
        """What may be the next argument's name."""
        match = IDENT_RUN.match(text, i)
        j = match.end() if match else i
        if j > i:
            self._hold(text[i:j])
            self.word.append(text[i:j])
        if j < len(text):
            self.phase = ph.BEHIND_IDENT
        return j

    def behind_ident(self, text: str, i: int) -> int:
        """It is, if an equals sign follows."""
        i = self._hold_space(text, i)
        if i == len(text):
            return i
        if text[i] == "=":
            self._accept(self.cut)
            self.phase = ph.EQUALS
        else:
            self.word.clear()
            self._reject()
        return i

    def behind_closer(self, text: str, i: int) -> int:
        """A closing bracket that was held counts if the next character can stand behind it."""
        i = self._hold_space(text, i)
        if i == len(text) and not self.final:
            return i
        if i < len(text):
            outer = self.stack[-2] if len(self.stack) > 1 else ""
            valid = text[i] == "," or text[i] in (CLOSERS[outer] if self.stack else "]")
            if not valid and not self.stack:
                literal, end = self.ends.at(text, i, self.final)
                if literal is None and end == i:
                    self.stuck = True
                    return i
                valid = literal is not None
            if not valid:
                self._reject()
                return i
        char = self._accept(self.cut)[0]
        self.closed(char)
        return i

    def _accept(self, cut: int | None = None) -> str:
        """The quote was the end of the string. Returns the tail from ``cut`` on, which stays taken."""
        text = "".join(self.tail)
        self.tail.clear()
        cut = len(text) if cut is None else cut
        start, size = self.tail_start, len(self.quote)
        self.phase = ph.AFTER
        self.kind = "s"
        if self.marks:
            self.held.append('"')
            return text[cut:]
        split = start + self.writer.size(text[:cut])
        if self.wanted is None:
            self.writer.arguments_at('"', (start, start + size))
        else:
            self.writer.arguments_at(coerce("".join(self.held), self.wanted), (self.pend_start, start + size))
            self.wanted = None
            self.held.clear()
        if cut > size:
            self.writer.emit_at(Marker, text[size:cut], start + size)
        self.pend = [text[cut:]] if text[cut:] else []
        self.pend_start = split
        return text[cut:]

    def _reject(self) -> None:
        """It was part of the string, and so is all that was held behind it."""
        text = "".join(self.tail)
        self.tail.clear()
        self.phase = ph.STRING
        if self.holding:
            shown = self.writer.alphabet.visible(text)
            self.held.append(shown if self.wanted is not None else quoted(shown))
        else:
            self.writer.string_at(text, self.tail_start)
            self.pend.clear()


def _breaks(char: str) -> bool:
    """Behind a literal it makes an expression, or ends something: in Python the literal is over."""
    return char in _OPERATORS or char in STARTS or "\udc00" <= char <= "\udfff"
