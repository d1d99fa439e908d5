"""Style: what of two texts is a matter of it, and what is left of them to compare.

Of a text that is white space at the ends of its runs, where markers or calls stood; of arguments, white space between
the values of the JSON and how a value is spelled.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import pairwise

from msgspec import UNSET

from replay.voice import Words
from stages.protocols.rules.values import same
from stages.strict import parse

_SPACE = " \t\r\n"
_PART = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[ \t\r\n]+|[^" \t\r\n]+', re.DOTALL)
"""A string, closed or not; white space; anything else."""


class Stretch:
    """A text with parts left out. ``offset``: where in the whole text one of its characters is."""

    __slots__ = ("_places", "_size", "_starts", "text")

    def __init__(self, whole: str, kept: list[tuple[int, int]]) -> None:
        """``kept``: the parts that are left, as half-open ranges in order."""
        self.text = "".join(whole[start:end] for start, end in kept)
        self._size = len(whole)
        self._starts: list[int] = []
        self._places: list[int] = []
        at = 0
        for start, end in kept:
            if start < end:
                self._starts.append(at)
                self._places.append(start)
                at += end - start

    def offset(self, at: int) -> int:
        """The offset in the whole text; its size at the end."""
        if at >= len(self.text):
            return self._size
        part = bisect_right(self._starts, at) - 1
        return self._places[part] + at - self._starts[part]


def text_as(one: Words, other: Words) -> tuple[Stretch, Stretch, bool]:
    """Both texts as they are compared, and whether they are equal then."""
    mine, theirs = _stripped(one), _stripped(other)
    return mine, theirs, mine.text == theirs.text


def arguments_as(one: Words, other: Words) -> tuple[Stretch, Stretch, bool]:
    """Both arguments as they are compared, and whether they are equal then."""
    mine, theirs = _compact(one.text), _compact(other.text)
    return mine, theirs, mine.text == theirs.text or _same(one.text, other.text)


def _stripped(words: Words) -> Stretch:
    text = words.text
    kept: list[tuple[int, int]] = []
    for start, end in pairwise([*words.runs, words.size]):
        run = text[start:end]
        begin = start + len(run) - len(run.lstrip())
        kept.append((begin, max(begin, start + len(run.rstrip()))))
    return Stretch(text, kept)


def _compact(text: str) -> Stretch:
    """Without the white space between strings and numbers. Total: the text may be no JSON."""
    return Stretch(text, [match.span() for match in _PART.finditer(text) if match[0][0] not in _SPACE])


def _same(one: str, other: str) -> bool:
    value, _ = parse(one)
    second, _ = parse(other)
    return value is not UNSET and second is not UNSET and same(value, second)
