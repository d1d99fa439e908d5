"""The one JSON scanner: incremental, strict, and it knows the last character of a value when it sees it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import ClassVar, Final

import msgspec

from stages.parse.text import OUT

# Foreign special tokens may stand wherever white space may: they are dropped, not part of the JSON.
SPACE: Final = re.compile(f"[ \t\r\n{OUT}]*")
# Everything inside a string up to its end, a control character, or an escape that is cut or wrong.
# Not possessive as a whole: up to 3.11.3 Python then ends such a match inside the escape that is wrong.
_INSIDE: Final = re.compile(r'(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*')
_NOTABLE: Final = re.compile(r'["\\\x00-\x1f]').search
_HEX: Final = frozenset("0123456789abcdefABCDEF")
_ESCAPES: Final = frozenset('"\\/bfnrt')

MORE: Final = 0
"""All was consumed; the value goes on (a number may also end here)."""
END: Final = 1
"""The value ended before the returned index."""
BAD: Final = 2
"""The character at the returned index cannot stand there."""
CONTROL: Final = 3
"""A raw control character inside a string is at the returned index; continue behind it with ``feed``."""

VALUE, ITEM, KEY, FIRST_KEY, COLON, NEXT, STRING, ESCAPE, HEX, NUMBER, LITERAL = range(11)

_DIGITS = "0123456789"


def _digits(state: int) -> dict[str, int]:
    return dict.fromkeys(_DIGITS, state)


# Number states: 0 sign, 1 zero, 2 integer, 3 point, 4 fraction, 5 exponent letter, 6 exponent sign, 7 exponent.
_NUMBER: Final[tuple[dict[str, int], ...]] = (
    {"0": 1} | dict.fromkeys("123456789", 2),
    {".": 3, "e": 5, "E": 5},
    _digits(2) | {".": 3, "e": 5, "E": 5},
    _digits(4),
    _digits(4) | {"e": 5, "E": 5},
    _digits(7) | {"+": 6, "-": 6},
    _digits(7),
    _digits(7),
)
_NUMBER_ENDS: Final = frozenset((1, 2, 4, 7))
_LITERALS: Final = {"t": "true", "f": "false", "n": "null"}
_CLOSES: Final = {"{": "}", "[": "]"}


class JsonState(msgspec.Struct, frozen=True):
    """A scanner's snapshot."""

    stack: str
    state: int
    status: int
    key: bool
    number: int
    literal: str


class JsonScanner:
    """Scans one JSON value (RFC 8259) in pieces. ``status`` tells how the last ``feed`` ended.

    Memory: one byte per open bracket. A string costs one regular-expression match a piece.
    """

    __slots__ = ("_key", "_literal", "_number", "_stack", "_state", "status")

    def __init__(self, state: JsonState | None = None) -> None:
        self.status = MORE
        self._stack: list[str] = []
        self._state = VALUE
        self._key = False
        self._number = 0
        self._literal = ""
        if state is not None:
            self._stack = list(state.stack)
            self._state = state.state
            self.status = state.status
            self._key = state.key
            self._number = state.number
            self._literal = state.literal

    def snapshot(self) -> JsonState:
        """The state as plain data."""
        return JsonState("".join(self._stack), self._state, self.status, self._key, self._number, self._literal)

    @property
    def flow(self) -> Callable[[str], object] | None:
        """Inside a string: finds the first character that is not just one more of it. Elsewhere None."""
        return _NOTABLE if self._state == STRING else None

    def feed(self, text: str, i: int) -> int:
        """Scan ``text`` from ``i`` on; returns where it stopped, and sets ``status``."""
        n = len(text)
        self.status = MORE
        steps = self._STEPS
        while i < n:
            i = steps[self._state](self, text, i)
            if self.status:
                break
        return i

    def _string(self, text: str, i: int) -> int:
        match = _INSIDE.match(text, i)
        i = match.end() if match else i
        if i == len(text):
            return i
        char = text[i]
        if char == '"':
            if self._key:
                self._state = COLON
            else:
                self._ended()
            return i + 1
        if char == "\\":
            self._state = ESCAPE
            return i + 1
        self.status = CONTROL
        return i

    def _escape(self, text: str, i: int) -> int:
        if text[i] in _ESCAPES:
            self._state = STRING
        elif text[i] == "u":
            self._state = HEX
            self._number = 4
        else:
            self.status = BAD
            return i
        return i + 1

    def _hex(self, text: str, i: int) -> int:
        if text[i] not in _HEX:
            self.status = BAD
            return i
        self._number -= 1
        if not self._number:
            self._state = STRING
        return i + 1

    def _value(self, text: str, i: int) -> int:
        i = space(text, i)
        if i == len(text):
            return i
        char = text[i]
        if char == '"':
            self._state = STRING
            self._key = False
        elif char in _CLOSES:
            self._stack.append(char)
            self._state = FIRST_KEY if char == "{" else ITEM
        elif char == "-" or char in _NUMBER[0]:
            self._state = NUMBER
            self._number = _NUMBER[0].get(char, 0)
        elif char in _LITERALS:
            self._state = LITERAL
            self._literal = _LITERALS[char][1:]
        elif char == "]" and self._state == ITEM:
            return self._close(i)
        else:
            self.status = BAD
            return i
        return i + 1

    def _object_key(self, text: str, i: int) -> int:
        i = space(text, i)
        if i == len(text):
            return i
        if text[i] == '"':
            self._state = STRING
            self._key = True
            return i + 1
        if text[i] == "}" and self._state == FIRST_KEY:
            return self._close(i)
        self.status = BAD
        return i

    def _colon(self, text: str, i: int) -> int:
        i = space(text, i)
        if i == len(text):
            return i
        if text[i] == ":":
            self._state = VALUE
            return i + 1
        self.status = BAD
        return i

    def _next(self, text: str, i: int) -> int:
        i = space(text, i)
        if i == len(text):
            return i
        top = self._stack[-1]
        if text[i] == ",":
            self._state = KEY if top == "{" else VALUE
            return i + 1
        if text[i] == _CLOSES[top]:
            return self._close(i)
        self.status = BAD
        return i

    def _digit(self, text: str, i: int) -> int:
        n = len(text)
        state = self._number
        while i < n:
            following = _NUMBER[state].get(text[i])
            if following is None:
                break
            state = following
            i += 1
        self._number = state
        if i < n:
            if state in _NUMBER_ENDS:
                self._ended()
            else:
                self.status = BAD
        return i

    def _letter(self, text: str, i: int) -> int:
        for char in text[i : i + len(self._literal)]:
            if char != self._literal[0]:
                self.status = BAD
                return i
            self._literal = self._literal[1:]
            i += 1
        if not self._literal:
            self._ended()
        return i

    def _close(self, i: int) -> int:
        self._stack.pop()
        self._ended()
        return i + 1

    def _ended(self) -> None:
        if self._stack:
            self._state = NEXT
        else:
            self.status = END

    _STEPS: ClassVar[dict[int, Callable[[JsonScanner, str, int], int]]] = {
        VALUE: _value, ITEM: _value, KEY: _object_key, FIRST_KEY: _object_key, COLON: _colon, NEXT: _next,
        STRING: _string, ESCAPE: _escape, HEX: _hex, NUMBER: _digit, LITERAL: _letter,
    }  # fmt: skip


def space(text: str, i: int) -> int:
    """The index of the first character from ``i`` on that is not white space."""
    match = SPACE.match(text, i)
    return match.end() if match else i


def escaped(char: str) -> str:
    """A raw control character as JSON wants it inside a string."""
    return json.dumps(char)[1:-1]


def string_value(raw: str) -> str:
    """The value of a JSON string literal as the scanner accepted it; lone surrogates become U+FFFD."""
    value: str = json.loads(raw, strict=False)
    if value.isascii():
        return value
    return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def object_text(text: str) -> str | None:
    """``text`` without surrounding white space if it is one JSON object, raw control characters escaped; else None."""
    text = text.strip(" \t\r\n")
    return value_text(text) if text.startswith("{") else None


def value_text(text: str) -> str | None:
    """``text`` if it is one JSON value and nothing else, raw control characters escaped; else None."""
    scanner = JsonScanner()
    done: list[str] = []
    i = start = 0
    while True:
        i = scanner.feed(text, i)
        if scanner.status != CONTROL:
            break
        done += text[start:i], escaped(text[i])
        i += 1
        start = i
    if scanner.status != END or i != len(text):
        return None
    return "".join((*done, text[start:]))
