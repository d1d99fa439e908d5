"""Literals in internal text: how they read by id and by text, and precompiled scans for sets of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

Find: TypeAlias = Callable[[str], object]
_NEVER: Final = re.compile(r"(?!)")


class Scan:
    """A precompiled scan for literals. A match with a group is a whole literal, one without is a tail to be held.

    ``strays``: literals that mean nothing here. They are text, which nothing holds back.
    """

    __slots__ = ("any", "final", "names", "pattern", "quick", "strayed", "trail")

    def __init__(self, literals: Mapping[str, str], trail: str = "", strays: Iterable[str] = ()) -> None:
        self.names = literals
        """As it reads → the literal."""
        both, self.pattern = _patterns(literals)
        """Literals, and the longest tail that may become one."""
        self.final = re.compile(both) if both else _NEVER
        """Literals only: at the end of the output nothing can become one."""
        self.trail = trail
        """Characters of which a trailing run is held: a marker that drops it may follow."""
        strays = tuple(strays)
        self.strayed = _patterns(strays)[1] if strays else None
        """The stray literals, and the longest end of the text that may become one."""
        self.any = _patterns({*literals, *strays})[1]
        """Both kinds."""
        firsts = "".join(re.escape(c) for c in (*sorted({text[0] for text in (*literals, *strays)}), *trail))
        self.quick: Find | None = re.compile(f"[{firsts}]").search if firsts else None
        """Finds the first character that could be of interest; None: no character is."""

    def find(self, text: str, i: int, final: bool) -> tuple[int, str | None, int]:
        """(start, literal, end) of the first literal from ``i`` on. Without one: (where what may become one begins,
        None, the length)."""
        # A search for nothing would read on to the end of the text, call after call.
        match = (self.final if final else self.pattern).search(text, i) if self.names else None
        if match is None:
            return len(text), None, len(text)
        if match.lastindex is None:
            return match.start(), None, len(text)
        return match.start(), self.names[match.group()], match.end()

    def at(self, text: str, i: int, final: bool) -> tuple[str | None, int]:
        """The literal that begins at ``i`` and its end. Without one: (None, -1); (None, ``i``): it may become one."""
        match = (self.final if final else self.pattern).match(text, i)
        if match is None:
            return None, i if i == len(text) and not final else -1
        if match.lastindex is None:
            return None, i
        return self.names[match.group()], match.end()


class Lexicon:
    """How a format's literals read in internal text: with ids, special tokens in them are single characters."""

    __slots__ = ("_scans", "_tokens", "chars")

    def __init__(self, chars: Mapping[str, str]) -> None:
        self.chars = chars
        """Special token → its character."""
        self._tokens = re.compile("|".join(map(re.escape, sorted(chars, key=len, reverse=True)))) if chars else _NEVER
        self._scans: dict[tuple[str, ...], Scan] = {}

    def form(self, literal: str) -> str:
        """The literal as it reads."""
        return self._tokens.sub(lambda match: self.chars[match.group()], literal)

    def scan(self, *literals: str) -> Scan:
        """The scan for some literals; made once."""
        scan = self._scans.get(literals)
        if scan is None:
            scan = self._scans[literals] = Scan(self.forms(literals))
        return scan

    def forms(self, literals: Iterable[str]) -> dict[str, str]:
        """As it reads → the literal."""
        return {self.form(literal): literal for literal in literals}


def _patterns(literals: Iterable[str]) -> tuple[str, re.Pattern[str]]:
    """For whole literals, as text; for those and the longest tail that may become one."""
    texts = sorted(literals)
    if not texts:
        return "", _NEVER
    both = f"({trie(texts, partial=False)})"
    # A literal that begins a longer one is held at the end of the text, so the tail is tried first.
    held = trie(texts, partial=True)
    return both, re.compile(f"{held}|{both}" if held else both)


def trie(texts: list[str], *, partial: bool) -> str:
    """A pattern for any of ``texts``, longest first; or (``partial``) for a proper beginning of one at the end.

    ``texts``: sorted, not empty, none empty.
    """
    branches: list[str] = []
    i = 0
    while i < len(texts):
        first = texts[i][:1]
        j = i
        while j < len(texts) and texts[j][:1] == first:
            j += 1
        rest = [text[1:] for text in texts[i:j] if len(text) > 1]
        branches.append(_branch(first, rest, j - i - len(rest) > 0, partial))
        i = j
    branches = [branch for branch in branches if branch]
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})" if branches else ""


def _branch(first: str, rest: list[str], ends: bool, partial: bool) -> str:
    char = re.escape(first)
    if partial:
        # Only a beginning of a longer literal counts.
        deeper = trie(rest, partial=True) if rest else ""
        return "" if not rest else f"{char}(?:\\Z|{deeper})" if deeper else f"{char}\\Z"
    if not rest:
        return char
    deeper = trie(rest, partial=False)
    return f"{char}(?:{deeper})?" if ends else f"{char}{deeper}"
