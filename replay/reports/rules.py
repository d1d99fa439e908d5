"""rules: what the numbered rules of the protocols say, beside their numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache

from stages.protocols.rules import RULES

_LONGEST = 120
"""Characters of a title."""


def titled(code: str) -> str:
    """``INV-013: the body ends directly after an empty line``; the number alone, if there is no such rule any more."""
    title = title_of(code)
    return f"{code}: {title}" if title else code


def title_of(code: str) -> str:
    """What is right, short; "" for what is no rule."""
    return _titles().get(code, "")


@cache
def _titles() -> Mapping[str, str]:
    return {rule.name: _short(rule.text) for rule in RULES}


def _short(text: str) -> str:
    """A rule's line, without what follows a semicolon, cut between words where it is long."""
    told = text.replace("``", "").partition(";")[0].rstrip(".")
    told = told[:1].lower() + told[1:]
    if len(told) <= _LONGEST:
        return told
    return f"{told[:_LONGEST].rpartition(' ')[0].rstrip(',')} …"


def counted_rules(codes: Iterable[str], counts: Mapping[str, int]) -> Iterator[str]:
    """Each rule on a line: ``INV-013 (6 times): the body ends …``."""
    for code in codes:
        times = f" ({counts[code]:,} times)" if counts[code] > 1 else ""
        title = title_of(code)
        yield f"{code}{times}{f': {title}' if title else ''}"
