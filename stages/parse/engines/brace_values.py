"""Brace notation, piece by piece, as JSON.

    object ::= "{" [ pair { "," pair } [ "," ] ] "}"
    pair   ::= KEY WS ":" WS value           KEY ::= TEXT-until(":") | Q TEXT Q | '"' JSON-string '"'
    value  ::= Q RAW Q | object | "[" [ value { "," value } [ "," ] ] "]" | '"' JSON-string '"' | BARE
    Q      ::= the family's quote            RAW ::= TEXT-until(Q), verbatim: nothing is escaped
    BARE   ::= TEXT-until(an unnested "," "}" "]")

A bare value is what the schema says; where that says nothing, a number, ``true``, ``false``, ``null``, or else a
string. In an object a bare string goes on behind a comma that no key follows. It goes out at its end; all else as it
comes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from stages.events import Marker
from stages.parse import arguments as js
from stages.parse.engines import MORE
from stages.parse.engines.taken import Taken
from stages.parse.lexicon import Scan
from stages.parse.site import Site
from stages.parse.types import ANY, Parameters, Types, coerce, quoted

(
    OPEN, NAMED, PAIR, KEY, KEY_RAW, KEY_TEXT, COLON, VALUE, ITEM, RAW, TEXT, BARE, COMMA, NEXT_KEY, AFTER, END,
) = range(16)  # fmt: skip

CLOSES: Final = {"{": "}", "[": "]", "(": ")"}
_KEY_RUN: Final = re.compile(r"[\w.-]*")


@lru_cache(maxsize=64)
def _notable(firsts: str, structure: str) -> re.Pattern[str]:
    """In a bare text: structure, and what a literal may begin with."""
    return re.compile(f"[{re.escape(structure)}{re.escape(firsts)}]")


@lru_cache(maxsize=64)
def _flow(firsts: str) -> Callable[[str], object]:
    """In a string: what a literal may begin with, and what JSON escapes."""
    return re.compile(f'["\\\\\x00-\x1f{re.escape(firsts)}]').search


class BraceValues(Taken):
    """The state and the phases of one call's arguments."""

    __slots__ = (
        "comma", "final", "key", "kinds", "literals", "nested", "parameters", "path", "phase", "prose", "quote",
        "quotes", "scanner", "site", "stack", "stuck", "tail", "tail_start", "typed", "verdict", "wanted", "word",
    )  # fmt: skip

    def __init__(self, site: Site, quote: str, typed: bool) -> None:
        super().__init__(site.writer)
        self.site = site
        self.quote = quote
        self.typed = typed
        """A quoted argument is a string only if the schema says so, or if it is nothing else."""
        self.verdict = MORE
        self.final = False
        self.stuck = False
        """What comes next is undecided."""
        self.phase = OPEN
        self.clear()

    def clear(self) -> None:
        """Before a call."""
        self.pend.clear()
        self.parameters: Parameters | None = None
        self.stack: list[str] = []
        """The open brackets."""
        self.kinds: list[Types] = []
        """What the containers inside the arguments are; what is known of their insides."""
        self.path: list[str] = []
        """The key of each; "" in an array."""
        self.key = ""
        self.comma = False
        """A comma is owed before the next value."""
        self.word: list[str] = []
        """The key or the value that is being read, without its quotes."""
        self.nested = 0
        """Open brackets in a bare value."""
        self.prose = False
        """It is a string, in an object."""
        self.wanted: Types | None = None
        """The quoted argument is to be read as one of these."""
        self.tail: list[str] = []
        """From a comma on that may have ended a bare value."""
        self.tail_start = 0
        self.scanner = js.JsonScanner()

    def scans(self, closers: tuple[str, ...]) -> None:
        """How the literals read now."""
        self.quotes: Scan = self.site.lexicon.scan(self.quote)
        self.literals: Scan = self.site.lexicon.scan(self.quote, *closers)

    def fail(self) -> None:
        """The grammar breaks."""
        raise NotImplementedError

    def finished(self) -> None:
        """The arguments are closed."""
        raise NotImplementedError

    def lead(self) -> str:
        """What is owed before a value or a key."""
        comma, self.comma = self.comma, False
        return ", " if comma else ""

    @property
    def find(self) -> Callable[[str], object] | None:
        """In a string that goes out as it comes: the search for what is not one more character of it."""
        if self.phase == RAW and self.wanted is None:
            return _flow("".join(sorted({text[0] for text in self.quotes.names})))
        return self.scanner.flow if self.phase == TEXT else None

    # --- keys -------------------------------------------------------------------------------------------------------

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
            self.phase = KEY_RAW
            return end
        elif text[i] == '"':
            self.take(text[i])
            self.word = ['"']
            self._scan()
            self.phase = KEY_TEXT
            return i + 1
        elif text[i] == CLOSES[self.stack[-1]]:
            return self.close(text, i)
        elif literal is not None or text[i] in ":,{}[]":
            self.fail()
        else:
            self.phase = KEY
        return i

    def bare_key(self, text: str, i: int) -> int:
        """Up to the colon."""
        match = self._notable(":,{}[]").search(text, i)
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
            self._keyed(self.writer.alphabet.visible("".join(self.word)).strip())
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
        self.phase = COLON
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
            self.phase = COLON
        return j

    def colon(self, text: str, i: int) -> int:
        """Behind a quoted key."""
        i = self.space(text, i)
        if i == len(text):
            return i
        if text[i] == ":":
            self._keyed(self.writer.alphabet.visible("".join(self.word)))
            return i + 1
        self.fail()
        return i

    def _keyed(self, key: str) -> None:
        """A key; its colon is next."""
        self.word.clear()
        self.key = key
        self.give(f'{self.lead()}"{quoted(key)}": ')
        self.writer.marker(":")
        self.phase = VALUE

    # --- values -----------------------------------------------------------------------------------------------------

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
            self._scan()
            self.phase = TEXT
            return i + 1
        elif char in "{[":
            return self._container(text, i)
        elif self.phase == ITEM and char == "]":
            return self.close(text, i)
        elif literal is not None or (self.phase == ITEM and char in ",}"):
            self.fail()
        else:
            self.phase = BARE
            self.nested = 0
            self.prose = False
        return i

    def _scan(self) -> None:
        self.scanner = js.JsonScanner()
        self.scanner.feed('"', 0)

    def _quote(self, text: str, i: int, end: int) -> int:
        kinds = self.types()
        if self.typed and len(self.stack) == 1 and kinds.kinds != {"string"}:
            self.wanted = kinds
        self.take(text[i:end])
        if self.wanted is None:
            self.give(self.lead() + '"')
        self.phase = RAW
        return end

    def _container(self, text: str, i: int) -> int:
        kinds = self.types()
        self.take(text[i])
        self.give(self.lead() + text[i])
        self.path.append(self.key if self.stack[-1] != "[" else "")
        self.kinds.append(kinds)
        self.stack.append(text[i])
        self.phase = PAIR if text[i] == "{" else ITEM
        return i + 1

    def types(self) -> Types:
        """What the value that comes next is."""
        if not self.kinds:
            found = None if self.parameters is None else self.parameters.types(self.key)
        else:
            found = self.kinds[-1].item() if self.stack[-1] == "[" else self.kinds[-1].member(self.key)
        return found if found is not None and found.schema else ANY

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
            self._coerced(self.wanted, strip=False)
            self.wanted = None
        self.phase = AFTER
        return end

    def _coerced(self, types: Types, *, strip: bool) -> None:
        value = self.writer.alphabet.visible("".join(self.word))
        self.word.clear()
        self.give(self.lead() + coerce(value.strip() if strip else value, types))

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
            self.phase = AFTER
        return j

    # --- bare values ------------------------------------------------------------------------------------------------

    def bare(self, text: str, i: int) -> int:
        """Up to an unnested delimiter."""
        brackets = "()" if self.stack[0] == "(" else ""
        match = self._notable(",{}[]" + brackets).search(text, i)
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
            self._coerced(types, strip=True)
            self.phase = AFTER
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
            self.phase = COMMA
            return
        self.word.clear()
        self.give(self.lead() + value)
        self.writer.marker(char)
        self._next()

    def _next(self) -> None:
        self.comma = True
        self.phase = ITEM if self.stack[-1] == "[" else PAIR

    def behind_comma(self, text: str, i: int) -> int:
        """Is it a key that follows?"""
        j = js.space(text, i)
        if j > i:
            self._hold(text[i:j])
            return j
        literal, end = self.literals.at(text, i, self.final)
        if literal is None and end == i:
            self.stuck = True
        elif literal is not None or text[i] == CLOSES[self.stack[-1]]:
            self._ended("")
        else:
            self.phase = NEXT_KEY
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
                self._keyed(words[0])
                return i + 1
        self.word += self.tail
        self.tail.clear()
        self.phase = BARE
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
        self._next()

    # --- behind values ----------------------------------------------------------------------------------------------

    def after(self, text: str, i: int) -> int:
        """A comma or the end of the container."""
        i = self.space(text, i)
        if i == len(text):
            return i
        if text[i] == ",":
            self.writer.marker(text[i])
            self._next()
            return i + 1
        if text[i] == CLOSES[self.stack[-1]]:
            return self.close(text, i)
        self.fail()
        return i

    def close(self, text: str, i: int) -> int:
        """The end of a container, or of the arguments."""
        self.take(text[i])
        top = self.stack.pop()
        self.give("]" if top == "[" else "}")
        self.comma = False
        self.phase = AFTER
        if self.stack:
            self.kinds.pop()
            self.path.pop()
        else:
            self.finished()
        return i + 1

    def retrace(self) -> None:
        """Find out again what the open containers are."""
        keys, stack = self.path, self.stack
        self.kinds, self.path, self.stack = [], [], stack[:1]
        last = self.key
        for key, bracket in zip(keys, stack[1:], strict=True):
            self.key = key
            self.kinds.append(self.types())
            self.path.append(key)
            self.stack.append(bracket)
        self.key = last

    def _notable(self, structure: str) -> re.Pattern[str]:
        return _notable("".join(sorted({text[0] for text in self.literals.names})), structure)
