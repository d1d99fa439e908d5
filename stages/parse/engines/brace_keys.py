"""Keys in brace notation.

pair ::= KEY WS ":" value           KEY ::= TEXT-until(":") | Q TEXT Q | '"' JSON-string '"'
"""

from __future__ import annotations

from stages.parse import arguments as js
from stages.parse.engines import brace_held as bh
from stages.parse.literals import quoted


class BraceKeys(bh.BraceHeld):
    """The phases of a key."""

    __slots__ = ()

    def pair(self, text: str, i: int) -> int:
        """A key, or the end of the object."""
        i = self.space(text, i)
        if i == len(text):
            return i
        literal, end = self.literals.at(text, i, self.final)
        if literal is None and end == i:
            self.stuck = True
        elif literal == self.quote:
            self.take(text[i:end])
            self.phase = bh.KEY_RAW
            return end
        elif text[i] == '"':
            self.take(text[i])
            self.word = ['"']
            self.scan()
            self.phase = bh.KEY_TEXT
            return i + 1
        elif text[i] == bh.CLOSES[self.stack[-1]]:
            return self.close(text, i)
        elif literal is not None or text[i] in ":,{}[]":
            self.fail()
        else:
            self.phase = bh.KEY
        return i

    def bare_key(self, text: str, i: int) -> int:
        """Up to the colon."""
        match = self.notable(":,{}[]").search(text, i)
        j = match.start() if match else len(text)
        if j > i:
            self.take(text[i:j])
            self.word.append(text[i:j])
        if match is None:
            return j
        literal, end = self.literals.at(text, j, self.final)
        if literal is None and end == j:
            self.stuck = True
        elif text[j] == ":":
            self.keyed(self.writer.alphabet.visible("".join(self.word)).strip())
            return j + 1
        elif literal is not None or text[j] in ",{}[]":
            self.fail()
        else:
            self.take(text[j])
            self.word.append(text[j])
            return j + 1
        return j

    def raw_key(self, text: str, i: int) -> int:
        """Up to the quote."""
        start, literal, end = self.quotes.find(text, i, self.final)
        if start > i:
            self.take(text[i:start])
            self.word.append(text[i:start])
        if literal is None:
            self.stuck = True
            return start
        self.take(text[start:end])
        self.phase = bh.COLON
        return end

    def text_key(self, text: str, i: int) -> int:
        """A JSON string."""
        j = self.scanner.feed(text, i)
        status = self.scanner.status
        if status == js.CONTROL:
            j += 1
        if j > i:
            self.take(text[i:j])
            self.word.append(text[i:j])
        if status == js.BAD:
            self.fail()
        elif status == js.END:
            self.word = [js.string_value(self.writer.alphabet.visible("".join(self.word), quoted=True))]
            self.phase = bh.COLON
        return j

    def colon(self, text: str, i: int) -> int:
        """Behind a quoted key."""
        i = self.space(text, i)
        if i == len(text):
            return i
        if text[i] == ":":
            self.keyed(self.writer.alphabet.visible("".join(self.word)))
            return i + 1
        self.fail()
        return i

    def keyed(self, key: str) -> None:
        """A key; its colon is next."""
        self.word.clear()
        self.key = key
        self.give(f'{self.lead()}"{quoted(key)}": ')
        self.writer.marker(":")
        self.phase = bh.VALUE
