"""Logprob entries that wait for the text of their tokens.

A step's tokens are told before its text, and the text may come steps later, or be no answer at all. Both count the
bytes that were written, so the ``src`` of what comes tells whose the tokens are: an entry goes with the first piece of
the answer that its token has a part in; one whose bytes became something else is dropped.

Of what another server tells of its model (``told``), the bytes of the markers are not known and nothing can be
counted: there the entries go with whatever text comes next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import msgspec

from stages.events import Src, TokenLogprob
from stages.protocols.openai_chat import LogprobEntry, entry


class WaitingState(msgspec.Struct, frozen=True):
    """All that it knows. ``size``: bytes of the tokens so far; ``entries``: where each begins, and its token."""

    size: int = 0
    entries: tuple[tuple[int, TokenLogprob], ...] = ()


class Waiting:
    """The entries of one choice. ``top``: alternatives that an entry shows."""

    def __init__(self, top: int, told: bool, state: WaitingState | None = None) -> None:
        self._top = top
        self._told = told
        self._size = 0 if state is None else state.size
        self._entries: deque[tuple[int, TokenLogprob]] = deque(() if state is None else state.entries)

    def snapshot(self) -> WaitingState:
        """Its state."""
        return WaitingState(self._size, tuple(self._entries))

    def add(self, items: Iterable[TokenLogprob]) -> None:
        """The tokens of a step."""
        for item in items:
            self._entries.append((self._size, item))
            self._size += len(item.piece)

    def take(self, src: Src) -> tuple[LogprobEntry, ...]:
        """A piece of the answer comes: the entries that go with it."""
        entries = self._entries
        if not entries:
            return ()
        taken: list[LogprobEntry] = []
        start, end = src
        while entries and (self._told or entries[0][0] < end):
            at, item = entries.popleft()
            if self._told or _end(at, item) > start:
                taken.append(entry(item, self._top))
        return tuple(taken)

    def drop(self, src: Src) -> None:
        """Something else comes, which owns these bytes."""
        entries = self._entries
        while entries and (self._told or _end(*entries[0]) <= src[1]):
            entries.popleft()


def _end(start: int, item: TokenLogprob) -> int:
    # A token without bytes has a part in the text that it stands in.
    return start + max(len(item.piece), 1)
