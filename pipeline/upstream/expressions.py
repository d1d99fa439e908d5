"""Regular expressions of rules, read into sets of texts.

Known is what ``stages.parse.spellings`` writes, and lets through of a client's patterns; all else is NoGrammar.
"""

from __future__ import annotations

import re
from typing import Final

from pipeline.upstream.texts import ANY, EMPTY, Chars, NoGrammar, Texts, chain, chars, either, times

_SPACE: Final = (
    (0x09, 0x0D), (0x20, 0x20), (0x85, 0x85), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029),
    (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000),
)  # fmt: skip
"""Unicode's white space."""
_CONTROLS: Final = {"n": 0x0A, "r": 0x0D, "t": 0x09, "f": 0x0C, "v": 0x0B}
_HEX: Final = re.compile(r"x\{([0-9A-Fa-f]{1,6})\}|x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})")
_COUNT: Final = re.compile(r"\{(\d{1,4})(,?)(\d{0,4})\}")
_GROUP: Final = re.compile(r"\((?:\?(?:(s):|:|P?<\w+>))?")
_SIGNED: Final[tuple[tuple[str, int, int | None], ...]] = (("*", 0, None), ("+", 1, None), ("?", 0, 1))
_SIGNS: Final = frozenset("()[]{}|*+?.^$\\")


def read(pattern: str) -> Texts:
    """The texts that match as a whole. Raises NoGrammar for what is not known here."""
    return _Reader(pattern).all()


class _Reader:
    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0

    def all(self) -> Texts:
        """The whole pattern."""
        found = self._ways(lines=False)
        if self._at < len(self._text):
            raise self._unknown()
        return found

    def _unknown(self) -> NoGrammar:
        return NoGrammar(f"{self._text[self._at : self._at + 8]!r} in {self._text!r:.200}")

    def _takes(self, sign: str) -> bool:
        taken = self._text.startswith(sign, self._at)
        self._at += len(sign) * taken
        return taken

    def _ways(self, lines: bool) -> Texts:
        """``lines``: a point is any character, newlines too."""
        ways = [self._row(lines)]
        while self._takes("|"):
            ways.append(self._row(lines))
        return either(ways)

    def _row(self, lines: bool) -> Texts:
        parts: list[Texts] = []
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            parts.append(self._counted(self._one(lines)))
        return chain(parts) if parts else EMPTY

    def _counted(self, one: Texts) -> Texts:
        bounds = self._bounds()
        if bounds is None:
            return one
        self._takes("?")  # as few as may be: the same texts
        return self._counted(times(one, *bounds))

    def _bounds(self) -> tuple[int, int | None] | None:
        """How often the last one comes, where that is said."""
        for sign, least, most in _SIGNED:
            if self._takes(sign):
                return least, most
        count = _COUNT.match(self._text, self._at)
        if count is None:
            return None
        self._at = count.end()
        least = int(count[1])
        return least, least if not count[2] else int(count[3]) if count[3] else None

    def _one(self, lines: bool) -> Texts:
        group = _GROUP.match(self._text, self._at)
        if group is not None:
            self._at = group.end()
            inner = self._ways(lines or group[1] is not None)
            if not self._takes(")"):
                raise self._unknown()
            return inner
        if self._takes("."):
            return ANY if lines else chars([(0x0A, 0x0A)], but=True)
        if self._takes("["):
            return self._class()
        if self._text[self._at] in _SIGNS - {"\\"}:
            raise self._unknown()
        return self._char()

    def _char(self) -> Chars:
        """A character, or an escape."""
        if not self._takes("\\"):
            self._at += 1
            code = ord(self._text[self._at - 1])
            return Chars(((code, code),))
        hexadecimal = _HEX.match(self._text, self._at)
        if hexadecimal is not None:
            self._at = hexadecimal.end()
            code = int(next(filter(None, hexadecimal.groups())), 16)
            return chars([(code, code)])
        name = self._text[self._at : self._at + 1]
        if name in ("s", "S"):
            self._at += 1
            return chars(_SPACE, but=name == "S")
        if not name or (name.isalnum() and name not in _CONTROLS):
            raise self._unknown()
        self._at += 1
        code = _CONTROLS.get(name, ord(name))
        return Chars(((code, code),))

    def _class(self) -> Texts:
        but = self._takes("^")
        ranges: list[tuple[int, int]] = []
        while not self._takes("]"):
            if self._text[self._at : self._at + 1] in ("", "[") or self._text.startswith(("&&", "--", "~~"), self._at):
                raise self._unknown()  # the end, or sets of sets
            found = self._char().ranges
            if self._text[self._at : self._at + 1] == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                [*ends] = (*found, *self._char().ranges)
                if len(ends) != 2 or ends[0][0] > ends[1][1]:
                    raise self._unknown()
                found = ((ends[0][0], ends[1][1]),)
            ranges += found
        if not ranges:
            raise self._unknown()
        return chars(ranges, but=but)
