"""Logprob entries that wait for the text of their tokens.

A step's tokens are told before its text, and the text may come steps later, or be no answer at all. Three ways to tell
whose they are:

    counted  both count the bytes that were written, so the ``src`` of what comes tells: an entry goes with the first
             piece of the answer that its token has a part in; one whose bytes became something else is dropped
    told     of what another server tells of its model, the bytes of markers are not known, and nothing can be counted:
             the last entries that wait go with the answer that they spell; all of them, where none do
    exact    all go with what comes next: so it is in our own streams
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Literal, TypeAlias

import msgspec

from stages.events import Src, TokenLogprob
from stages.protocols.openai_chat import LogprobEntry, entry

Way: TypeAlias = Literal["counted", "told", "exact"]


class WaitingState(msgspec.Struct, frozen=True):
    """All that it knows. ``size``: bytes of the tokens so far; ``entries``: where each begins, and its token."""

    size: int = 0
    entries: tuple[tuple[int, TokenLogprob], ...] = ()


class Waiting:
    """The entries of one choice. ``top``: alternatives that an entry shows."""

    def __init__(self, top: int, way: Way, state: WaitingState) -> None:
        self._top = top
        self._way = way
        self._size = state.size
        self._entries: deque[tuple[int, TokenLogprob]] = deque(state.entries)

    def snapshot(self) -> WaitingState:
        """Its state."""
        return WaitingState(self._size, tuple(self._entries))

    def add(self, items: Iterable[TokenLogprob]) -> None:
        """The tokens of a step."""
        for item in items:
            self._entries.append((self._size, item))
            self._size += len(item.piece)

    def take(self, text: str, src: Src) -> tuple[LogprobEntry, ...]:
        """A piece of the answer comes: the entries that go with it."""
        if not self._entries:
            return ()
        if self._way == "counted":
            taken = self._counted(*src)
        else:
            taken = [item for _, item in self._entries]
            if self._way == "told":
                taken = taken[_spelling(taken, text.encode("utf-8", "surrogatepass")) :]
            self._entries.clear()
        return tuple(entry(item, self._top) for item in taken)

    def drop(self, src: Src) -> None:
        """Something else comes, which owns these bytes."""
        entries = self._entries
        if self._way != "counted":
            entries.clear()
        while entries and _end(*entries[0]) <= src[1]:
            entries.popleft()

    def _counted(self, start: int, end: int) -> list[TokenLogprob]:
        entries = self._entries
        taken: list[TokenLogprob] = []
        while entries and entries[0][0] < end:
            at, item = entries.popleft()
            if _end(at, item) > start:
                taken.append(item)
        return taken


def _end(start: int, item: TokenLogprob) -> int:
    # A token without bytes has a part in the text that it stands in.
    return start + max(len(item.piece), 1)


def _spelling(items: list[TokenLogprob], text: bytes) -> int:
    """Where the last tokens begin that end with this text together, the first of which may have begun before it (blanks
    that a format drops); 0 where none do."""
    left = len(text)
    for place in range(len(items) - 1, -1, -1):
        piece = items[place].piece
        if not piece.endswith(text[max(left - len(piece), 0) : left]):
            break
        left -= len(piece)
        if left <= 0:
            return place
    return 0
