"""One choice's call block: its engine, the guard before it, and what happens when it is not a call."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from stages.events import Content, Dropped, FaultCode
from stages.parse.format import Calls
from stages.parse.text import OUT
from stages.parse.writer import Writer, pack, unpack

SPACE: Final = re.compile(f"[ \t\r\n{OUT}]*")
"""White space; foreign special tokens in it do not matter."""


class BlockState(msgspec.Struct, frozen=True):
    """A block's snapshot; texts are packed."""

    opener: bytes
    guarded: bytes
    batch: str
    probe: tuple[int, int]
    engine: bytes


class Block:
    """What stands between a call opener and its closer, for the scanner, which owns the modes."""

    __slots__ = ("_batch", "_calls", "_guarded", "_header", "_opener", "_probe", "engine", "writer")

    def __init__(self, calls: Calls, writer: Writer) -> None:
        self.writer = writer
        self.engine = calls.engine(writer)
        self._calls = calls
        self._header = calls.header
        self._batch = ""
        """What may still come before the header."""
        self._opener = ""
        self._guarded: list[str] = []
        self._probe = (0, 0)
        """How much of the header was seen: literals, characters of the next."""

    @property
    def since(self) -> int:
        """The first byte of what is undecided here; the writer's position if nothing is."""
        return self.engine.since if self.writer.raw is None else self.writer.base

    # --- the guard: a marker that may be a mere mention --------------------------------------------------------------

    def suspect(self, opener: str, *, batch: bool) -> None:
        """Only the header that must follow tells whether ``opener`` opens a block. ``batch``: also one of many."""
        self._opener = opener
        self._batch = self._calls.batch if batch else ""
        self._guarded = []
        self._probe = (0, 0)

    def test(self, text: str, i: int) -> tuple[int, bool | None]:
        """Read on from ``i``: where reading stopped, and the answer, None where it is still open."""
        header = self._header
        k, at = self._probe
        start = i
        answer: bool | None = None
        while i < len(text):
            if k == len(header):
                break
            if at == 0:
                match = SPACE.match(text, i)
                i = match.end() if match else i
                if i == len(text):
                    break
            if k == 0 and text[i] == self._batch:
                self._batch = ""
                i += 1
                continue
            if text[i] != header[k][at]:
                answer = False
                break
            i += 1
            k, at = (k + 1, 0) if at + 1 == len(header[k]) else (k, at + 1)
        self._probe = k, at
        self._guarded.append(text[start:i])
        return i, True if k == len(header) else answer

    def cleared(self) -> str:
        """It was a mention: the raw text since the opener."""
        raw = "".join((self._opener, *self._guarded))
        self._guarded.clear()
        return raw

    def confirmed(self) -> str:
        """It is a block: opens it; returns the raw text behind the opener, for the engine."""
        rest = "".join(self._guarded)
        self._guarded.clear()
        self.writer.begin()
        self.open(self._opener)
        return rest

    # --- the block ---------------------------------------------------------------------------------------------------

    def open(self, opener: str) -> None:
        """The opener, in a region that has begun."""
        self.writer.literal(opener)
        self.engine.begin()

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
        src = self.writer.base, self.writer.pos
        raw = self.writer.rollback()
        self.writer.fault(code, src, detail=detail)
        return raw

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
            raw = writer.rollback()
            writer.fault(FaultCode.UNCLOSED_CALL, writer.take(raw), raw, "output ended before the call was known")
            return
        kept, start = self.engine.kept()
        writer.take(tail)
        writer.fault(FaultCode.UNCLOSED_CALL, (start, writer.pos), kept + tail, "output ended inside the call")
        writer.call_end(False)

    # --- snapshot ----------------------------------------------------------------------------------------------------

    def snapshot(self) -> BlockState:
        """The state as plain data."""
        return BlockState(
            pack(self._opener), pack("".join(self._guarded)), self._batch, self._probe, self.engine.snapshot()
        )

    def restore(self, state: BlockState) -> None:
        """Continue from ``snapshot``."""
        self._opener = unpack(state.opener)
        self._guarded = [unpack(state.guarded)]
        self._batch, self._probe = state.batch, state.probe
        self.engine.restore(state.engine)
