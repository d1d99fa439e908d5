"""Brace notation, piece by piece, as JSON.

    object ::= "{" [ pair { "," pair } [ "," ] ] "}"                                       (``brace_keys``)
    value  ::= Q RAW Q | object | array | '"' JSON-string '"' | BARE                       (``brace_bare``)
    array  ::= "[" [ value { "," value } [ "," ] ] "]"
    Q      ::= the family's quote            RAW ::= TEXT-until(Q), verbatim: nothing is escaped

A bare value goes out at its end, all else as it comes.
"""

from __future__ import annotations

from stages.parse import arguments as js
from stages.parse.engines import brace_held as bh
from stages.parse.engines.brace_bare import BraceBare


class BraceValues(BraceBare):
    """The phases of values."""

    __slots__ = ()

    def value(self, text: str, i: int) -> int:
        """A value, or (ITEM) the end of the array."""
        i = self.space(text, i)
        if i == len(text):
            return i
        char = text[i]
        literal, end = self.literals.at(text, i, self.final)
        if literal is None and end == i:
            self.stuck = True
        elif literal == self.quote:
            return self._quote(text, i, end)
        elif char == '"':
            self.take(char)
            self.give(self.lead() + char)
            self.scan()
            self.phase = bh.TEXT
            return i + 1
        elif char in "{[":
            return self._container(text, i)
        elif self.phase == bh.ITEM and char == "]":
            return self.close(text, i)
        elif literal is not None or (self.phase == bh.ITEM and char in ",}"):
            self.fail()
        else:
            self.phase = bh.BARE
            self.nested = 0
            self.prose = False
        return i

    def _quote(self, text: str, i: int, end: int) -> int:
        kinds = self.types()
        if self.typed and len(self.stack) == 1 and kinds.kinds != frozenset(("string",)):
            self.wanted = kinds
        self.take(text[i:end])
        if self.wanted is None:
            self.give(self.lead() + '"')
        self.phase = bh.RAW
        return end

    def _container(self, text: str, i: int) -> int:
        kinds = self.types()
        self.take(text[i])
        self.give(self.lead() + text[i])
        self.path.append(self.key if self.stack[-1] != "[" else "")
        self.kinds.append(kinds)
        self.stack.append(text[i])
        self.phase = bh.PAIR if text[i] == "{" else bh.ITEM
        return i + 1

    def raw(self, text: str, i: int) -> int:
        """Up to the quote, verbatim."""
        start, literal, end = self.quotes.find(text, i, self.final)
        if start > i:
            if self.wanted is None:
                self.writer.string(text[i:start])
            else:
                self.take(text[i:start])
                self.word.append(text[i:start])
        if literal is None:
            self.stuck = True
            return start
        self.take(text[start:end])
        if self.wanted is None:
            self.give('"')
        else:
            self.coerced(self.wanted, strip=False)
            self.wanted = None
        self.phase = bh.AFTER
        return end

    def json_text(self, text: str, i: int) -> int:
        """A JSON string."""
        j = self.scanner.feed(text, i)
        status = self.scanner.status
        if j > i:
            self.writer.arguments(text[i:j])
        if status == js.CONTROL:
            self.writer.arguments_at(js.escaped(text[j]), self.writer.take(text[j]))
            return j + 1
        if status == js.BAD:
            self.fail()
        elif status == js.END:
            self.phase = bh.AFTER
        return j

    def after(self, text: str, i: int) -> int:
        """A comma or the end of the container."""
        i = self.space(text, i)
        if i == len(text):
            return i
        if text[i] == ",":
            self.writer.marker(text[i])
            self.next()
            return i + 1
        if text[i] == bh.CLOSES[self.stack[-1]]:
            return self.close(text, i)
        self.fail()
        return i
