"""Calls in brace notation: ``call:f{a:1,b:Q text Q}``.

    block ::= opener WS [ [ "call" ] ":" ] WS NAME WS ( object | "(" pairs ")" )          (``brace_values``)
            | opener WS "call:" WS NAME WS closer                                          (no arguments)

Only what looks like this is a call; a block without an opener needs ``call:`` and the name of an offered tool. The name
goes out at its brace; behind its counterpart the call is complete.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Final

import msgspec

from stages.events import FaultCode, Marker
from stages.parse import arguments as js
from stages.parse.engines import BROKEN, LEAVE, MORE
from stages.parse.engines import brace_held as bh
from stages.parse.engines.brace_values import BraceValues
from stages.parse.site import Site
from stages.parse.writer import pack, unpack

_NAME_RUN: Final = re.compile(r"[\w./-]*")


@dataclass(frozen=True, slots=True)
class Brace:
    """What a family writes. ``typed``: a quoted argument is a string only if the schema says so, or if it is nothing
    else."""

    quote: str
    closer: str
    typed: bool = False


class BraceState(msgspec.Struct, frozen=True):
    """The engine's snapshot; texts are packed."""

    phase: int
    seen: bool
    sure: bool
    bare: bool
    called: bool
    name: str
    start: int
    pend: bytes
    pend_start: int
    stack: str
    path: tuple[bytes, ...]
    key: bytes
    comma: bool
    word: bytes
    nested: int
    prose: bool
    wanted: bool
    tail: bytes
    tail_start: int
    scanner: js.JsonState


class BraceCalls(BraceValues):
    """See CallEngine."""

    __slots__ = ("_bare", "_called", "_closers", "_name", "_start", "code", "seen", "sure")

    def __init__(self, site: Site, brace: Brace) -> None:
        super().__init__(site, brace.quote, brace.typed)
        self._closers = (brace.closer,)
        self.code = FaultCode.MALFORMED_CALL
        self.begin("", False)

    def begin(self, opener: str, guarded: bool) -> None:
        """See CallEngine."""
        del guarded
        self.scans(self._closers)
        self.clear()
        self.phase = bh.OPEN
        self.seen = False
        self.sure = False
        self._bare = not opener
        self._called = False
        """``call:`` was read."""
        self._name = ""
        self._start = 0

    @property
    def state(self) -> str:
        """See CallEngine."""
        return bh.STATES[self.phase]

    @property
    def busy(self) -> bool:
        """See CallEngine."""
        return self.phase != bh.END

    @property
    def flow(self) -> Callable[[str], object] | None:
        """See CallEngine."""
        return self.find

    def feed(self, text: str, i: int, final: bool) -> int:
        """See CallEngine."""
        n = len(text)
        self.verdict = MORE
        self.final = final
        self.stuck = False
        while i < n and not self.verdict and not self.stuck:
            i = self._PHASES[self.phase](self, text, i)
        return i

    def repaired(self) -> None:
        """See CallEngine."""

    def fail(self) -> None:
        """The grammar breaks."""
        self.verdict = BROKEN
        if self.sure:
            self.code = FaultCode.BAD_ARGUMENTS
        else:
            self.code = FaultCode.MALFORMED_CALL if self._called else FaultCode.STRAY_MARKER

    def finished(self) -> None:
        """The arguments are closed."""
        self.writer.call_end(True)
        self.seen = True
        self.phase = bh.END
        self.verdict = LEAVE

    def _open(self, text: str, i: int) -> int:
        if not self.word:
            i = self.space(text, i)
        if i == len(text):
            return i
        match = _NAME_RUN.match(text, i)
        j = match.end() if match else i
        if j == i:
            self.phase = bh.NAMED
            return i
        if not self.word:
            self._start = self.writer.pos
        self.word.append(text[i:j])
        self.writer.take(text[i:j])
        if j < len(text):
            self.phase = bh.NAMED
        return j

    def _named(self, text: str, i: int) -> int:
        """Behind a word, or where one is missing."""
        i = self.space(text, i)
        if i == len(text):
            return i
        name, char = "".join(self.word), text[i]
        if char == ":" and name in ("", "call") and not self._called:
            self._called = True
            self.word.clear()
            if name:
                self.writer.emit_at(Marker, name, self._start)
            self.writer.marker(char)
            self.phase = bh.OPEN
            return i + 1
        literal, end = self.literals.at(text, i, self.final)
        if literal is None and end == i:
            self.stuck = True
        elif not name or (self._bare and not (self._called and name in self.site.tools.names)):
            self.fail()
        elif char in "{(":
            self._start_call(name)
            self.take(char)
            self.give("{")
            self.stack.append(char)
            self.phase = bh.PAIR
            return i + 1
        elif literal in self._closers and self._called:
            self._start_call(name)
            self.writer.arguments_at("{}", (self.writer.pos, self.writer.pos))
            self.finished()
        else:
            self.fail()
        return i

    def _start_call(self, name: str) -> None:
        self._name = name
        self.parameters = self.site.tools.get(name)
        self.word.clear()
        self.sure = True
        self.writer.call_start(name, (self._start, self._start + self.writer.size(name)))

    # --- snapshot ---------------------------------------------------------------------------------------------------

    def snapshot(self) -> bytes:
        """See CallEngine."""
        return msgspec.msgpack.encode(
            BraceState(
                self.phase, self.seen, self.sure, self._bare, self._called, self._name, self._start,
                pack("".join(self.pend)), self.pend_start, "".join(self.stack), tuple(map(pack, self.path)),
                pack(self.key), self.comma, pack("".join(self.word)), self.nested, self.prose, self.wanted is not None,
                pack("".join(self.tail)), self.tail_start, self.scanner.snapshot(),
            )
        )  # fmt: skip

    def restore(self, state: bytes) -> None:
        """See CallEngine."""
        was = msgspec.msgpack.decode(state, type=BraceState)
        self.scans(self._closers)
        self.phase, self.seen, self.sure = was.phase, was.seen, was.sure
        self._bare, self._called, self._name, self._start = was.bare, was.called, was.name, was.start
        self.parameters = self.site.tools.get(was.name) if was.sure else None
        self.pend = [unpack(was.pend)] if was.pend else []
        self.pend_start = was.pend_start
        self.stack, self.path, self.key = list(was.stack), list(map(unpack, was.path)), unpack(was.key)
        self.retrace()
        self.comma = was.comma
        self.word = [unpack(was.word)] if was.word else []
        self.nested, self.prose = was.nested, was.prose
        self.wanted = self.types() if was.wanted else None
        self.tail = [unpack(was.tail)] if was.tail else []
        self.tail_start = was.tail_start
        self.scanner = js.JsonScanner(was.scanner)

    _PHASES: ClassVar[dict[int, Callable[[BraceCalls, str, int], int]]] = {
        bh.OPEN: _open, bh.NAMED: _named, bh.PAIR: BraceValues.pair, bh.KEY: BraceValues.bare_key,
        bh.KEY_RAW: BraceValues.raw_key, bh.KEY_TEXT: BraceValues.text_key, bh.COLON: BraceValues.colon,
        bh.VALUE: BraceValues.value, bh.ITEM: BraceValues.value, bh.RAW: BraceValues.raw,
        bh.TEXT: BraceValues.json_text, bh.BARE: BraceValues.bare, bh.COMMA: BraceValues.behind_comma,
        bh.NEXT_KEY: BraceValues.next_key, bh.AFTER: BraceValues.after,
    }  # fmt: skip
