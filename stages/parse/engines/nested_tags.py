"""The tags of nested namespaced XML: what may stand behind the namespace token."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

_LONGEST: Final = 256
"""Characters of a name or a tag."""
_TAG: Final = re.compile(
    rf"<(?:(?P<close>/?)(?P<tag>[^\s<>/\ud800-\udfff][^\s<>\ud800-\udfff]{{0,{_LONGEST}}})>"
    rf'|invoke name="(?P<name>[^"<>\n\ud800-\udfff]{{1,{_LONGEST}}})">)'
)
_BEGUN: Final = re.compile(
    rf"<(?:/?|/?[^\s<>/\ud800-\udfff][^\s<>\ud800-\udfff]{{0,{_LONGEST}}}"
    rf'|invoke (?:n|na|nam|name|name=|name="[^"<>\n\ud800-\udfff]{{0,{_LONGEST}}}"?)?)'
)
NAMED: Final = re.compile(rf'(?P<name>[^"<>\n\ud800-\udfff]{{1,{_LONGEST}}})">')
NAMING: Final = re.compile(rf'[^"<>\n\ud800-\udfff]{{0,{_LONGEST}}}"?')
"""A name, behind the literal before it; and the beginning of one."""


@dataclass(frozen=True, slots=True)
class NestedXml:
    """The namespace token, and the tag around all calls."""

    namespace: str
    block: str = "tool_call"

    def openers(self) -> tuple[str, str]:
        """What begins a block: its tag, and a call by itself (reading goes on there behind a broken one)."""
        return f"{self.namespace}<{self.block}>", f'{self.namespace}<invoke name="'

    def closers(self) -> tuple[str, ...]:
        """What ends a block."""
        return (f"{self.namespace}</{self.block}>",)


class Tag(NamedTuple):
    """A tag behind NS: where NS begins, where the tag begins and ends, and what it is."""

    start: int
    begin: int
    end: int
    match: re.Match[str]

    @property
    def opens(self) -> str:
        """The element that it opens."""
        return self.match["tag"] if self.match["close"] == "" else ""

    @property
    def closes(self) -> str:
        """The element that it closes."""
        return self.match["tag"] if self.match["close"] else ""

    @property
    def name(self) -> str:
        """The tool that it calls."""
        return self.match["name"] or ""


def tag_at(text: str, start: int, begin: int) -> tuple[Tag | None, bool]:
    """The tag behind the namespace, which ends at ``begin``; without one, whether it may become one."""
    match = _TAG.match(text, begin)
    if match is not None:
        return Tag(start, begin, match.end(), match), False
    return None, begin == len(text) or _BEGUN.fullmatch(text, begin) is not None
