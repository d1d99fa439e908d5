r"""Python string literals, piece by piece, as JSON strings.

    string  ::= [ prefix ] quote { character | escape } quote { WS string }
    prefix  ::= "r" | "u" | "f" | "rf" | "fr"                                (in any case; f: without placeholders)
    quote   ::= "'" | '"' | three of them

What ends a literal is in ``python_quotes``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from stages.parse.engines import python_phases as ph
from stages.parse.engines.python_held import PythonHeld
from stages.parse.engines.python_text import escape
from stages.parse.literals import quoted

_RUNS: Final = {
    ("'", False): re.compile(r"[^'\\]*"), ('"', False): re.compile(r'[^"\\]*'),
    ("'", True): re.compile(r"[^'\\{}]*"), ('"', True): re.compile(r'[^"\\{}]*'),
}  # fmt: skip
_FLOWS: Final = {
    "'": re.compile(r"""['"\\\x00-\x1f]""").search, '"': re.compile(r'["\\\x00-\x1f]').search,
}  # fmt: skip


class PythonStrings(PythonHeld):
    """The phases of a literal."""

    __slots__ = ()

    def string(self, text: str, i: int) -> int:
        """A literal's quote is at ``i``; its prefix is in ``word``."""
        size = self.opening(text, i)
        if size:
            self.wanted = self.coerced()
            self.take(text[i : i + size])
            self.opened(text[i : i + size], "".join(self.word))
            self.word.clear()
            if self.wanted is None:
                self.give(self.lead() + '"')
        return i + size

    def opening(self, text: str, i: int) -> int:
        """The length of the quote at ``i``; 0: not known yet."""
        char, some = text[i], text[i : i + 3]
        if len(some) < 3 and some == char * len(some) and not self.final:
            self.stuck = True
            return 0
        return 3 if some == char * 3 else 1

    def opened(self, quote: str, prefix: str) -> None:
        """A literal begins."""
        self.quote = quote
        prefix = prefix.lower()
        self.raw, self.braces = "r" in prefix, "f" in prefix
        self.phase = ph.STRING

    def in_string(self, text: str, i: int) -> int:
        """Characters of a literal."""
        match = _RUNS[self.quote[0], self.braces].match(text, i)
        j = match.end() if match else i
        if j > i:
            self._chars(text[i:j])
        if j == len(text):
            return j
        char = text[j]
        if char == "\\":
            return self._escape(text, j)
        if char != self.quote[0]:
            return self._brace(text, j)
        some = text[j : j + len(self.quote)]
        if some == self.quote:
            self._hold(some)
            self.phase = ph.QUOTE
            return j + len(some)
        if len(some) < len(self.quote) and some == char * len(some):
            return self._cut(text, j)
        self._chars(char)
        return j + 1

    def _chars(self, text: str) -> None:
        if not self.holding:
            self.writer.string(text)
            return
        self.take(text)
        shown = self.writer.alphabet.visible(text)
        self.held.append(shown if self.wanted is not None else quoted(shown))

    def _decoded(self, written: str, value: str) -> None:
        if self.holding:
            self.take(written)
            self.held.append(value if self.wanted is not None else quoted(value))
        elif value:
            self.writer.arguments_at(quoted(value), self.writer.take(written))
        else:
            self.writer.marker(written)

    def _escape(self, text: str, i: int) -> int:
        if self.raw:
            if i + 1 == len(text):
                return self._cut(text, i)
            end = i + (2 if text[i + 1] in "\\'\"" else 1)
            self._chars(text[i:end])
            return end
        found = escape(text, i)
        if found is None:
            return self._cut(text, i)
        value, end = found
        self._decoded(text[i:end], value)
        return end

    def _brace(self, text: str, i: int) -> int:
        pair = text[i : i + 2]
        if pair in ("{{", "}}"):
            self._decoded(pair, pair[0])
            return i + 2
        if len(pair) < 2:
            return self._cut(text, i)
        self.fail()
        return i

    def _cut(self, text: str, i: int) -> int:
        """What stands at the end is undecided; at the end of the output it stays so."""
        if not self.final:
            self.stuck = True
            return i
        self.take(text[i:])
        return len(text)

    @property
    def plain(self) -> bool:
        """Inside a string that goes out as it comes."""
        return self.phase == ph.STRING and not self.holding and not self.braces

    @property
    def finds(self) -> Callable[[str], object]:
        """The search for what is not just one more character of the string."""
        return _FLOWS[self.quote[0]]
