"""A block of calls that stands or falls as a whole.

The block is read strictly, on a writer of its own. When its end has come, every name is a tool's and no call has a key
twice, it is read again in earnest; else all of it is content. Nothing goes out before that.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

import msgspec

from stages.events import CallArguments, CallStart, FaultCode, Semantic
from stages.parse.engines import BROKEN, DONE, LEAVE, MORE, REPAIR, SPOILED
from stages.parse.format import CallEngine
from stages.parse.site import Site
from stages.parse.writer import Writer, WriterState

_PIECE: Final = 64
"""Characters that are read again at a time."""


class GroupState(msgspec.Struct, frozen=True):
    """The engine's snapshot."""

    opener: str
    size: int
    trial: bytes
    writer: WriterState
    events: tuple[Semantic, ...]


class Group:
    """See CallEngine. ``make``: the engine that reads the block; strict (True), or in earnest. ``ends``: the verdicts
    that it gives, strict, at the block's end and nowhere else."""

    __slots__ = ("_ends", "_make", "_opener", "_size", "_trial", "_writer", "code", "seen", "site", "verdict", "writer")

    def __init__(
        self, site: Site, make: Callable[[Site, bool], CallEngine], ends: tuple[int, ...] = (LEAVE, DONE)
    ) -> None:
        self.site = site
        self.writer = site.writer
        self.verdict = MORE
        self.code = FaultCode.MALFORMED_CALL
        self.seen = False
        self._make = make
        self._ends = ends
        self.begin("", False)

    def begin(self, opener: str, guarded: bool) -> None:
        """See CallEngine."""
        # Nothing is committed there until a call is whole.
        self._opener = opener
        self._writer = Writer(0, "", True, self.writer.alphabet)
        self._writer.begin()
        self._trial = self._make(Site(self._writer, self.site.tools, self.site.lexicon), True)
        self._trial.begin(opener, guarded)
        self._size = 0

    @property
    def state(self) -> str:
        """See CallEngine."""
        return f"trial: {self._trial.state}"

    @property
    def busy(self) -> bool:
        """See CallEngine."""
        return True

    @property
    def sure(self) -> bool:
        """See CallEngine."""
        return self._trial.sure

    @property
    def flow(self) -> Callable[[str], object] | None:
        """See CallEngine."""
        return None

    @property
    def since(self) -> int:
        """See CallEngine."""
        return self.writer.pos

    def kept(self) -> tuple[str, int]:
        """See CallEngine."""
        return "", self.writer.pos

    def feed(self, text: str, i: int, final: bool) -> int:
        """See CallEngine."""
        trial = self._trial
        j = trial.feed(text, i, False)
        if j > i:
            self.writer.take(text[i:j])
            self._size += j - i
        self.verdict, self.code = trial.verdict, trial.code
        if trial.verdict in self._ends and self._valid():
            self._read()
        elif trial.verdict in self._ends:
            self.verdict, self.code = SPOILED, FaultCode.MALFORMED_CALL
        elif trial.verdict in (LEAVE, DONE, REPAIR):
            self.verdict, self.code = BROKEN, FaultCode.MALFORMED_CALL
        elif trial.verdict != MORE:
            self.verdict = BROKEN
        elif final and j < len(text):
            self.writer.take(text[j:])
            j = len(text)
        return j

    def repaired(self) -> None:
        """See CallEngine."""

    def _valid(self) -> bool:
        """Every call is of a tool, and has no key twice."""
        arguments: list[list[str]] = []
        for event in (*self._writer.out, *self._writer.pending):
            if isinstance(event, CallStart):
                if event.name not in self.site.tools.names:
                    return False
                arguments.append([])
            elif isinstance(event, CallArguments):
                arguments[-1].append(event.text)
        return all(map(_distinct, map("".join, arguments)))

    def _read(self) -> None:
        raw = self.writer.rollback()
        begin = len(raw) - self._size
        opener = self.site.lexicon.form(self._opener)
        self.writer.begin()
        if begin > len(opener):
            self.writer.marker(raw[: begin - len(opener)])
        self.writer.literal(opener)
        engine = self._make(self.site, False)
        engine.begin(self._opener, False)
        tail = ""
        for at in range(begin, len(raw), _PIECE):
            text = tail + raw[at : at + _PIECE]
            tail = text[engine.feed(text, 0, False) :]

    # --- snapshot -----------------------------------------------------------------------------------------------------

    def snapshot(self) -> bytes:
        """See CallEngine."""
        writer = self._writer
        return msgspec.msgpack.encode(
            GroupState(self._opener, self._size, self._trial.snapshot(), writer.snapshot(), tuple(writer.out))
        )

    def restore(self, state: bytes) -> None:
        """See CallEngine."""
        was = msgspec.msgpack.decode(state, type=GroupState)
        self.begin(was.opener, False)
        self._size = was.size
        self._writer.commit()
        self._writer.restore(was.writer)
        self._writer.out += was.events
        self._trial.restore(was.trial)


def _distinct(arguments: str) -> bool:
    """No key stands twice on the first level."""
    try:
        # The hook is called for the outermost object last.
        found: bool = json.loads(arguments, object_pairs_hook=_differ, parse_int=str, parse_float=str)
    except RecursionError:
        return True
    return found


def _differ(pairs: list[tuple[str, object]]) -> bool:
    return len(dict(pairs)) == len(pairs)
