"""From token bytes to the text that the machines scan, with exact byte offsets.

The *internal text* of a choice is ``str``, one element per character that the model wrote, where lone surrogates (which
UTF-8 cannot write, so that no model text collides) stand for what is not a character:

* ``BAD``: one malformed byte sequence of 1, 2 or 3 bytes; shown as U+FFFD;
* ``OUT``: one special token outside the format; shown nowhere (``Dropped``);
* ``MARK``: one special token that is a marker of the format; shown as its literal where it turns out to be text.

So one scanner serves both: a marker that is a special token matches by its id alone, the same letters spelled with
ordinary tokens do not. ``Alphabet`` knows what each stands for and how many bytes it took.
"""

from __future__ import annotations

import json
import re
from codecs import register_error, utf_8_decode
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

BAD = "\ud801-\ud803"
OUT = "\ud900-\udbff"
MARK = "\udc00-\udfff"

_ODD = re.compile("[\ud800-\udfff]")
_BADS = re.compile(f"([{BAD}])")
_PARTS = re.compile(f"[{OUT}]+|[{BAD}]|[^{OUT}{BAD}]+")
_BAD_CHAR = ("", "\ud801", "\ud802", "\ud803")
_BAD_SIZE = {char: size for size, char in enumerate(_BAD_CHAR) if size}
_ERRORS = "playhead.bad"


def _bad(error: UnicodeError) -> tuple[str, int]:
    if isinstance(error, UnicodeDecodeError):
        return _BAD_CHAR[error.end - error.start], error.end
    raise error


register_error(_ERRORS, _bad)


def marks() -> Iterator[str]:
    """The characters for a format's tokens, one after another."""
    return map(chr, range(0xDC00, 0xE000))


def decode(data: bytes) -> tuple[str, bytes]:
    """The internal text of ``data``, and the unfinished character at its end (at most 3 bytes)."""
    text, used = utf_8_decode(data, _ERRORS, False)
    return text, data[used:]


def unfinished(tail: bytes) -> str:
    """The internal text of a character that never came to its end."""
    return _BAD_CHAR[len(tail)]


def parted(text: str) -> Iterator[tuple[str, int]]:
    """Text as ``decode`` made it, each malformed sequence by itself: (text, 0), or (that, its size in bytes)."""
    if text.isascii():
        yield text, 0
        return
    for part in _BADS.split(text):
        if part:
            yield part, _BAD_SIZE.get(part, 0)


def joined(text: str) -> str:
    """Text of an engine without bytes: surrogate pairs become characters, lone surrogates U+FFFD."""
    if text.isascii() or _ODD.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class Alphabet:
    """What the lone surrogates of one choice's internal text stand for. Grows by one entry per distinct token."""

    __slots__ = ("_entries", "_marks", "_names")

    def __init__(self, marks: Mapping[str, str] = MappingProxyType({})) -> None:
        self._marks = marks
        """The format's tokens → their characters."""
        self._entries: dict[str, tuple[str, int]] = {}
        self._names: dict[tuple[str, int, bool], str] = {}

    def restore(self, entries: Iterable[tuple[str, str, int]]) -> None:
        """Continue with what ``entries`` gave."""
        for char, text, size in entries:
            self._entries[char] = text, size
            self._names[text, size, char >= "\udc00"] = char

    def entries(self) -> tuple[tuple[str, str, int], ...]:
        """(surrogate, literal, bytes), in order of first appearance."""
        return tuple((char, text, size) for char, (text, size) in self._entries.items())

    def name(self, text: str, size: int, marker: bool, ender: bool = False) -> str | None:
        """The surrogate for a special token ``text`` that took ``size`` bytes. None: all are in use (an end of turn has
        one in reserve), or the format's token has come in another size before."""
        key = text, size, marker
        char = self._names.get(key)
        if char is None:
            if marker:
                char = self._marks.get(text)
            else:
                code = 0xD900 + sum(1 for name in self._names if not name[2])
                char = chr(code) if code < 0xDBFF + ender else None
            if char is None or char in self._entries:
                return None
            self._names[key] = char
            self._entries[char] = text, size
        return char

    def size(self, text: str) -> int:
        """The bytes that the model wrote for this internal text."""
        if text.isascii():
            return len(text)
        if _ODD.search(text) is None:
            return len(text.encode())
        return sum(size for _, _, size in self.parts(text))

    def visible(self, text: str, *, quoted: bool = False) -> str:
        """As a reader sees it: U+FFFD for bad bytes, markers as literals, foreign special tokens gone.

        ``quoted``: the text is JSON, where a marker can only stand inside a string: its literal is escaped.
        """
        if text.isascii() or _ODD.search(text) is None:
            return text
        return "".join(shown for foreign, shown, _ in self.parts(text, quoted=quoted) if not foreign)

    def parts(self, text: str, *, quoted: bool = False) -> Iterator[tuple[bool, str, int]]:
        """(foreign?, visible text, bytes) of maximal pieces. A bad sequence is a piece by itself, so that in every
        other piece the bytes are the UTF-8 of the text (unless ``quoted``, see ``visible``, changed a marker)."""
        if _ODD.search(text) is None:
            yield False, text, len(text.encode())
            return
        for match in _PARTS.finditer(text):
            piece = match.group()
            if piece in _BAD_SIZE:
                yield False, "\ufffd", _BAD_SIZE[piece]
            elif "\ud900" <= piece[0] <= "\udbff":
                yield True, *self._tokens(piece, False)
            else:
                yield False, *self._tokens(piece, quoted)

    def _tokens(self, piece: str, quoted: bool) -> tuple[str, int]:
        shown: list[str] = []
        size = done = 0
        for match in _ODD.finditer(piece):
            plain = piece[done : match.start()]
            text, bytes_ = self._entries[match.group()]
            shown += plain, json.dumps(text, ensure_ascii=False)[1:-1] if quoted else text
            size += len(plain.encode()) + bytes_
            done = match.end()
        rest = piece[done:]
        return "".join((*shown, rest)), size + len(rest.encode())
