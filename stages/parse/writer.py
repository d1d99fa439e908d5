"""Writes one choice's semantic events, each with its byte range, and can take a call region back."""

from __future__ import annotations

import hashlib
import string
from typing import Final, TypeAlias

import msgspec

from stages.events import (
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    Dropped,
    Fault,
    FaultCode,
    Marker,
    Reasoning,
    Semantic,
)
from stages.parse.arguments import space
from stages.parse.literals import quoted
from stages.parse.text import Alphabet

Text: TypeAlias = type[Content] | type[Reasoning] | type[Dropped] | type[Marker]


_FEW: Final = 64
"""Pieces of a region that wait to be joined."""
_ALPHANUMERIC: Final = string.ascii_letters + string.digits


def pack(text: str) -> bytes:
    """Internal text as bytes (it may hold lone surrogates)."""
    return text.encode("utf-8", "surrogatepass")


def unpack(data: bytes) -> str:
    """The inverse of ``pack``."""
    return data.decode("utf-8", "surrogatepass")


class WriterState(msgspec.Struct, frozen=True):
    """A writer's snapshot; texts are packed."""

    pos: int
    held: int
    calls: int
    mark: bytes
    mark_start: int
    raw: bytes | None
    base: int
    base_calls: int
    base_faulted: bool
    pending: tuple[Semantic, ...]
    faulted: bool


class Writer:
    """All text passes through one of its methods in the order in which the model wrote it, which keeps the offsets.

    Structure (``marker``) is collected until another event follows, so that the same output gives the same markers
    however it was cut into steps. Between ``begin`` and ``commit`` events wait: the region may be taken back
    (``rollback``) and its raw text be delivered as something else. Under ``incremental`` a region is committed when the
    call's name is known, under ``whole`` when the call is complete: that is all the difference between the two.
    """

    __slots__ = (
        "alphabet", "base", "base_calls", "base_faulted", "calls", "choice", "faulted", "held", "ids", "key", "mark",
        "mark_start", "out", "packed", "pending", "pos", "raw", "sink", "whole",
    )  # fmt: skip

    def __init__(self, choice: int, key: str, whole: bool, alphabet: Alphabet, ids: str = "call") -> None:
        self.choice = choice
        self.key = key
        self.ids = ids
        self.whole = whole
        self.alphabet = alphabet
        self.out: list[Semantic] = []
        self.sink = self.out
        self.pending: list[Semantic] = []
        self.pos = 0
        """Bytes given to events (or collected as markers) so far."""
        self.held = 0
        """Bytes that arrived and were not."""
        self.calls = 0
        """Calls begun so far; the open one has the index below it."""
        self.mark: list[str] = []
        self.mark_start = 0
        self.raw: list[str] | None = None
        """The raw text of an uncommitted region."""
        self.packed = (0, 0)
        """How many of its pieces, and of its events, are joined already."""
        self.base = 0
        self.base_calls = 0
        self.base_faulted = False
        self.faulted = False
        """Something was reported."""

    def attach(self, out: list[Semantic]) -> None:
        """Write to ``out`` from now on."""
        self.out = out
        if self.raw is None:
            self.sink = out
        elif len(self.raw) - self.packed[0] > _FEW or len(self.pending) - self.packed[1] > _FEW:
            self._pack(self.raw)

    def _pack(self, raw: list[str]) -> None:
        """Join what came in small pieces: an object each would take many times the text. Each is joined once."""
        done, sent = self.packed
        raw[done:] = ["".join(raw[done:])]
        self.pending[sent:] = _merged(self.pending[sent:])
        self.packed = len(raw), len(self.pending)

    # --- text in order ----------------------------------------------------------------------------------------------

    def emit(self, kind: Text, text: str) -> None:
        """Deliver ``text`` as ``kind``."""
        if self.mark:
            self.flush()
        if text.isascii():
            start = self.pos
            self.pos = end = start + len(text)
            self.held -= len(text)
            if self.raw is not None:
                self.raw.append(text)
            if text:
                self.sink.append(kind(self.choice, text, (start, end)))
        else:
            self._put(kind, text, *self.take(text))

    def marker(self, text: str) -> None:
        """Consume structure."""
        if not self.mark:
            self.mark_start = self.pos
        self.mark.append(text)
        self._advance(text)

    def space(self, text: str, i: int) -> int:
        """Consume the white space of JSON from place ``i`` on, as structure; to where it ends."""
        j = space(text, i)
        if j > i:
            self.marker(text[i:j])
        return j

    def literal(self, text: str) -> None:
        """Consume a marker literal: an event by itself."""
        if text:
            self.emit(Marker, text)

    def take(self, text: str) -> tuple[int, int]:
        """Consume text that an event will be made of later; returns its byte range."""
        if self.mark:
            self.flush()
        start = self.pos
        self._advance(text)
        return start, self.pos

    def arguments(self, text: str) -> None:
        """Deliver arguments as written."""
        start, end = self.take(text)
        if text.isascii():
            self.sink.append(CallArguments(self.choice, self.calls - 1, text, (start, end)))
            return
        for foreign, shown, size in self.alphabet.parts(text, quoted=True):
            src = start, start + size
            start += size
            if foreign:
                self.sink.append(Dropped(self.choice, shown, src))
            elif shown:
                self.sink.append(CallArguments(self.choice, self.calls - 1, shown, src))

    def _advance(self, text: str) -> None:
        size = len(text) if text.isascii() else self.alphabet.size(text)
        self.pos += size
        self.held -= size
        if self.raw is not None:
            self.raw.append(text)

    def _put(self, kind: Text, text: str, start: int, end: int) -> None:
        if start == end and not text:
            return
        for foreign, shown, size in self.alphabet.parts(text):
            src = start, start + size
            start += size
            self.sink.append((Dropped if foreign else kind)(self.choice, shown, src))

    def flush(self) -> None:
        """Deliver the collected structure."""
        if self.mark:
            text = "".join(self.mark)
            self.mark.clear()
            self._put(Marker, text, self.mark_start, self.pos)

    # --- events about text already consumed ------------------------------------------------------------------------

    def emit_at(self, kind: Text, text: str, start: int) -> None:
        """Deliver text that ``take`` consumed, from byte ``start`` on."""
        self.flush()
        self._put(kind, text, start, self.pos)

    def made(self, kind: Text, text: str) -> None:
        """Deliver text that the model did not write: what joins the parts of a message."""
        self.flush()
        self.sink.append(kind(self.choice, text, (self.pos, self.pos)))

    def string(self, text: str) -> None:
        """Deliver text as the inside of a JSON string in the arguments, escaped."""
        self.string_at(text, self.take(text)[0])

    def string_at(self, text: str, start: int) -> None:
        """The same for text that ``take`` consumed, from byte ``start`` on."""
        self.flush()
        for foreign, shown, size in self.alphabet.parts(text):
            src = start, start + size
            start += size
            if foreign:
                self.sink.append(Dropped(self.choice, shown, src))
            elif shown:
                self.sink.append(CallArguments(self.choice, self.calls - 1, quoted(shown), src))

    def arguments_at(self, text: str, src: tuple[int, int]) -> None:
        """Deliver arguments that were not written as such: decoded, held, or absent."""
        self.flush()
        self.sink.append(CallArguments(self.choice, self.calls - 1, text, src))

    def call_start(self, name: str, src: tuple[int, int], wire: str = "") -> None:
        """A call's name is known. ``wire``: its id, where the model writes one."""
        self.flush()
        index = self.calls
        self.calls = index + 1
        number = wire or call_id(self.key, self.choice, index, self.ids)
        self.sink.append(CallStart(self.choice, index, number, name, src))
        if not self.whole:
            self.commit()

    def call_end(self, complete: bool) -> None:
        """The open call ended. Under ``whole`` only complete calls come here."""
        self.flush()
        self.sink.append(CallEnd(self.choice, self.calls - 1, complete))
        if self.whole:
            self.commit()

    def fault(self, code: FaultCode, src: tuple[int, int], text: str = "", detail: str = "") -> None:
        """Report what the model wrote wrong."""
        self.flush()
        self.faulted = True
        self.sink.append(Fault(self.choice, code, src, self.alphabet.visible(text), detail))

    # --- regions ----------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """A region opens: what follows may be taken back."""
        self.flush()
        self.raw = []
        self.packed = (0, 0)
        self.base = self.pos
        self.base_calls = self.calls
        self.base_faulted = self.faulted
        self.sink = self.pending

    def commit(self) -> None:
        """The region stands."""
        if self.raw is None:
            return
        self.raw = None
        self.sink = self.out
        self.out += _merged(self.pending)
        self.pending.clear()

    def rollback(self) -> str:
        """Forget the region's events; returns its raw text, which is to be delivered now."""
        raw = "".join(self.raw or ())
        self.raw = None
        self.sink = self.out
        self.pending.clear()
        self.mark.clear()
        self.held += self.pos - self.base
        self.pos = self.base
        self.calls = self.base_calls
        self.faulted = self.base_faulted
        return raw

    def size(self, text: str) -> int:
        """The bytes of internal text."""
        return len(text) if text.isascii() else self.alphabet.size(text)

    # --- snapshot ---------------------------------------------------------------------------------------------------

    def snapshot(self) -> WriterState:
        """The state as plain data."""
        return WriterState(
            self.pos, self.held, self.calls, pack("".join(self.mark)), self.mark_start,
            None if self.raw is None else pack("".join(self.raw)), self.base, self.base_calls, self.base_faulted,
            tuple(self.pending),
            self.faulted,
        )  # fmt: skip

    def restore(self, state: WriterState) -> None:
        """Continue from a snapshot."""
        self.pos, self.held, self.calls, self.faulted = state.pos, state.held, state.calls, state.faulted
        self.mark = [unpack(state.mark)] if state.mark else []
        self.mark_start = state.mark_start
        self.base, self.base_calls, self.base_faulted = state.base, state.base_calls, state.base_faulted
        self.pending = list(state.pending)
        if state.raw is not None:
            self.raw = [unpack(state.raw)]
            self.sink = self.pending


def call_id(key: str, choice: int, index: int, style: str = "call") -> str:
    """The id of a call that has none on the wire: the same wherever the session is run again. ``style``: see Calls."""
    text = f"{key}\0{choice}\0{index}".encode("utf-8", "surrogatepass")
    if style == "nine":
        number = int.from_bytes(hashlib.blake2b(text, digest_size=12).digest())
        return "".join(_ALPHANUMERIC[number // 62**place % 62] for place in range(9))
    return "call_" + hashlib.blake2b(text, digest_size=12).hexdigest()


def _merged(events: list[Semantic]) -> list[Semantic]:
    """Adjacent fragments of one call's arguments become one: they are delivered at the same moment."""
    merged: list[Semantic] = []
    run: list[CallArguments] = []
    for event in events:
        if isinstance(event, CallArguments):
            run.append(event)
            continue
        merged += _joined(run)
        run.clear()
        merged.append(event)
    return merged + _joined(run)


def _joined(run: list[CallArguments]) -> list[CallArguments]:
    if len(run) < 2:
        return run[:]
    text = "".join(event.text for event in run)
    return [CallArguments(run[0].choice, run[0].index, text, (run[0].src[0], run[-1].src[1]))]
