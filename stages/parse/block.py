"""One choice's call block: its engine, and what happens when it is not a call."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from stages.events import Content, Dropped, FaultCode
from stages.parse.format import Calls
from stages.parse.site import Site
from stages.parse.text import OUT

SPACE: Final = re.compile(f"[ \t\r\n{OUT}]*")
"""White space; foreign special tokens in it do not matter."""


class BlockState(msgspec.Struct, frozen=True):
    """A block's snapshot."""

    bare: bool
    guarded: bool
    space: int
    ended: int
    base: int
    engine: bytes


class Block:
    """What stands between a call opener and its closer, for the scanner, which owns the modes."""

    __slots__ = ("_base", "_guarded", "_space", "_words", "bare", "ended", "engine", "writer")

    def __init__(self, calls: Calls, site: Site) -> None:
        self.writer = site.writer
        self.engine = calls.engine(site)
        self._words = ("", *calls.words)
        self.bare = False
        """The block has no opener, or one that is ordinary text too."""
        self.ended = -1
        """Where the last block ended."""
        self._guarded = False
        """It was opened in reasoning."""
        self._space = 0
        """Characters of white space before the opener, in its region."""
        self._base = 0
        """Where that region began: the engine begins others behind it."""

    @property
    def since(self) -> int:
        """The first byte of what is undecided here; the writer's position if nothing is."""
        return self.engine.since if self.writer.raw is None else self.writer.base

    @property
    def mention(self) -> bool:
        """Nothing has been read yet that makes a call of it."""
        return self.writer.raw is not None and not self.engine.sure

    def open(self, found: str, opener: str, space: str, guarded: bool) -> None:
        """An opener, as it reads and as the format has it, and the white space before it: begins a region with them."""
        self.bare = opener in self._words
        self._guarded = guarded
        self._space = len(space)
        self.writer.begin()
        self._base = self.writer.base
        if space:
            self.writer.marker(space)
        self.writer.literal(found)
        self.engine.begin(opener, guarded)

    def enter(self) -> None:
        """A block without an opener of its own, in a region that has begun."""
        self.bare = self._guarded = False
        self._space = 0
        self.engine.begin("", False)

    def end(self) -> None:
        """The block has ended."""
        self.writer.commit()
        self.ended = self.writer.pos

    def cleared(self) -> tuple[str, str]:
        """It was a mention: the white space before it, and its raw text."""
        space = self._lead
        raw = self.writer.rollback()
        return raw[:space], raw[space:]

    def broken(self, code: FaultCode, char: str) -> str | None:
        """The grammar breaks at ``char``. The raw text, if the call can be taken back; None: its honest prefix stands,
        and the rest up to the closer is to be dropped."""
        writer = self.writer
        if writer.raw is not None:
            return self.taken_back(code, "no call header" if code is FaultCode.STRAY_MARKER else "not a call")
        kept, start = self.engine.kept()
        src = (start, writer.pos) if kept else (start, start + writer.size(char))
        if kept:
            writer.emit_at(Dropped, kept, start)
        writer.fault(code, src, detail="the call was already being sent")
        writer.call_end(False)
        return None

    def taken_back(self, code: FaultCode, detail: str) -> str:
        """Forget the uncommitted call; returns its raw text, which is to be delivered as content."""
        end = self.writer.pos
        raw = self._raw()
        self.writer.fault(code, (self.writer.pos, end), detail=detail)
        return raw

    def _raw(self) -> str:
        """Forget the region; its raw text. White space that it took from the end of reasoning stays structure."""
        space = self._lead if self._guarded else 0
        raw = self.writer.rollback()
        if space:
            self.writer.marker(raw[:space])
        return raw[space:]

    @property
    def _lead(self) -> int:
        """Characters of white space at the beginning of the region that is open now."""
        return self._space if self.writer.base == self._base else 0

    def overflow(self) -> str | None:
        """Too much is undecided: the call ends here. The raw text, if the call can be taken back; None: what was held
        has been delivered as content, and the rest of the block is content too."""
        writer = self.writer
        if writer.raw is not None:
            return self.taken_back(FaultCode.HELD_OVERFLOW, "an undecided call")
        kept, start = self.engine.kept()
        writer.fault(FaultCode.HELD_OVERFLOW, (start, writer.pos), detail="arguments written as a string")
        writer.call_end(False)
        writer.emit_at(Content, kept, start)
        return None

    def cut(self, tail: str) -> None:
        """The output ended inside the call; ``tail``: what was held behind it."""
        writer = self.writer
        if writer.raw is not None:
            writer.take(tail)
            raw = self._raw()
            writer.fault(FaultCode.UNCLOSED_CALL, writer.take(raw), raw, "output ended before the call was known")
            return
        kept, start = self.engine.kept()
        writer.take(tail)
        writer.fault(FaultCode.UNCLOSED_CALL, (start, writer.pos), kept + tail, "output ended inside the call")
        writer.call_end(False)

    # --- snapshot ----------------------------------------------------------------------------------------------------

    def snapshot(self) -> BlockState:
        """The state as plain data."""
        return BlockState(self.bare, self._guarded, self._space, self.ended, self._base, self.engine.snapshot())

    def restore(self, state: BlockState) -> None:
        """Continue from ``snapshot``."""
        self.bare, self._guarded, self._space, self._base = state.bare, state.guarded, state.space, state.base
        self.ended = state.ended
        self.engine.restore(state.engine)
