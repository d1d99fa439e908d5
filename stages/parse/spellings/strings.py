"""Strings as their bare characters: what a schema says of one, as a rule."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from stages.errors import Unheld
from stages.grammar import String
from stages.parse.spellings.patterns import whole

FORMATS: Final = {
    "date": r"[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])",
    "time": r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])",
    "duration": r"P(?:[0-9]{1,4}D|[0-9]{1,4}W|(?:[0-9]{1,4}D)?T[0-9]{1,4}[HMS])",
    "email": r"[A-Za-z0-9_-]{1,32}(?:\.[A-Za-z0-9_-]{1,32}){0,3}@[a-z0-9]{1,32}(?:\.[a-z0-9]{1,32}){1,3}",
    "hostname": r"[a-z0-9]{1,32}(?:\.[a-z0-9]{1,32}){0,3}",
    "ipv4": r"(?:(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])\.){3}(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])",
    "ipv6": r"(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}",
    "uuid": r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
    "uri": r"[a-z]{2,8}://[a-z0-9]{1,32}(?:\.[a-z0-9]{1,32}){0,3}(?::[0-9]{2,4})?(?:/[A-Za-z0-9._~-]{0,64}){0,8}",
}  # fmt: skip
FORMATS["date-time"] = f"{FORMATS['date']}T{FORMATS['time']}"
"""Of each ``format`` that is held to, texts that have it; others are notes."""
_TAKEN: Final = {
    "null": "[Nn][Uu][Ll][Ll]|[Nn][Oo][Nn][Ee]",
    "boolean": "[Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee]|[01]",
    "integer": r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?",
    "object": r"\{(?s:.*)",
    "array": r"\[(?s:.*)",
}
_TAKEN["number"] = _TAKEN["integer"]
"""Of each kind, the texts that a reader may take for one, where the schema allows it beside a string."""
_SPACE: Final = r"[\s\x1c-\x1f]*"
MET: Final = 8
"""Patterns for one string: each doubles the time."""


def taken(kinds: Iterable[str]) -> tuple[str, ...]:
    """Of whole texts, which may be read as one of these kinds."""
    found = [_TAKEN[kind] for kind in sorted(kinds) if kind in _TAKEN]
    return (f"{_SPACE}(?:{'|'.join(found)}){_SPACE}",) if found else ()


@dataclass(frozen=True, slots=True)
class Bare:
    """How a format writes strings without quotes: up to one of ``until``; ``without``: what does not occur in one,
    since the reader would take it for structure; ``unlike``: regular expressions of whole texts that are none;
    ``escapes``: stand for other characters, so that only strings that may be any have them."""

    until: tuple[str, ...]
    without: tuple[str, ...] = ()
    unlike: tuple[str, ...] = ()
    escapes: tuple[str, ...] = ()

    def string(self, schemas: Iterable[dict[str, Any]], param: str, kinds: Iterable[str] = ()) -> String:
        """The rule of a string that satisfies all of ``schemas``. ``kinds``: other values that it is not to be read as.
        Raises RequestError."""
        patterns: list[str] = []
        least, most = 0, None
        for schema in schemas:
            if isinstance(pattern := schema.get("pattern"), str):
                patterns.append(whole(pattern, param))
            if found := FORMATS.get(str(schema.get("format"))):
                patterns.append(found)
            least = max(least, _count(schema.get("minLength"), 0))
            longest = schema.get("maxLength")
            if longest is not None:
                most = _count(longest, 0) if most is None else min(most, _count(longest, 0))
        if len(patterns) > MET:
            raise Unheld(param, f"{len(patterns)} patterns are meant for one string, where {MET} are the most")
        unlike = (*self.unlike, *taken(kinds))
        plain = not (patterns or least or most is not None or unlike != self.unlike)
        without = self.without if plain else (*self.without, *self.escapes)
        return String(self.until, tuple(patterns), least, most, without, unlike)

    def holds(self, text: str) -> bool:
        """The text is a string that can be written."""
        if any(end in text for end in (*self.until, *self.without, *self.escapes)):
            return False
        return not any(re.fullmatch(each, text) for each in self.unlike)


def formed(schema: dict[str, Any]) -> bool:
    """It says what the string looks like, not only how long it is."""
    return isinstance(schema.get("pattern"), str) or str(schema.get("format")) in FORMATS


def _count(value: Any, otherwise: int) -> int:
    return int(value) if isinstance(value, int | float) and 0 <= value < 1 << 31 else otherwise
