"""One call of a header-and-JSON family: its name, once the header is whole, and its arguments."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import msgspec

from stages.events import FaultCode, Marker
from stages.parse import arguments as js
from stages.parse.engines import BROKEN, MORE, SPOILED, named
from stages.parse.engines.header_table import Header
from stages.parse.site import Site
from stages.parse.writer import pack, unpack

SECTION, OPEN, NAME, GAP, CHOOSE, NUMBER, BODY, OBJECT, STRING, NULL, TAIL, BETWEEN = range(12)
STATES: Final = named(globals())
_DECODER: Final[Any] = json.JSONDecoder(parse_int=str, parse_float=str, strict=False)


class HeaderState(msgspec.Struct, frozen=True):
    """The engine's snapshot; texts are packed."""

    phase: int
    inside: bool
    sure: bool
    seen: bool
    headed: bool
    special: bool
    word: bool
    unnamed: bool
    name: bytes
    start: int
    end: int
    gap: bytes
    number: bytes
    wire: str
    part: bytes
    part_start: int
    used: tuple[str, ...]
    scanner: js.JsonState


class HeaderCall:
    """What is known of the call that is being read."""

    __slots__ = (
        "_end", "_gap", "_headed", "_inside", "_name", "_number", "_part", "_part_start", "_phase", "_scanner", "_site",
        "_special", "_start", "_unnamed", "_used", "_wire", "_word", "code", "header", "seen", "sure", "verdict",
        "writer",
    )  # fmt: skip

    def __init__(self, site: Site, header: Header) -> None:
        self.writer = site.writer
        self.header = header
        self.verdict = MORE
        self.code = FaultCode.MALFORMED_CALL
        self.seen = self.sure = False
        self._site = site
        self._inside = False
        """A section is open, as far as is known here."""
        self._special = False
        """The opener was a special token."""
        self._headed = False
        """There is no doubt that a header was to follow."""
        self._used: dict[str, None] = {}
        """The ids that were sent."""
        self._part_start = 0
        self._call()

    def _call(self) -> None:
        self._phase = OPEN
        self._word = False
        self._unnamed = False
        self._name: list[str] = []
        self._start = self._end = self.writer.pos
        self._gap: list[str] = []
        self._number: list[str] = []
        self._wire = ""
        self._scanned(OPEN)

    def _scanned(self, phase: int) -> None:
        self._phase = phase
        self._scanner = js.JsonScanner()
        self._part: list[str] = []

    @property
    def state(self) -> str:
        """See CallEngine."""
        return STATES[self._phase]

    @property
    def flow(self) -> Callable[[str], object] | None:
        """See CallEngine."""
        return self._scanner.flow if self._phase == OBJECT and not self._unnamed else None

    @property
    def since(self) -> int:
        """See CallEngine."""
        return self._part_start if self._phase in (STRING, NULL) else self.writer.pos

    def kept(self) -> tuple[str, int]:
        """See CallEngine."""
        return ("".join(self._part) if self._phase in (STRING, NULL) else "", self.since)

    def _broken(self, code: FaultCode | None = None, verdict: int = BROKEN) -> None:
        self.verdict = verdict
        self.code = code or (FaultCode.MALFORMED_CALL if self._headed else FaultCode.STRAY_MARKER)

    def _named(self) -> None:
        """The header is whole."""
        visible = self.writer.alphabet.visible
        head = visible("".join(self._name))
        name, self._wire = self.header.wire(head, visible("".join(self._number)), self._used.keys())
        self._phase = BODY
        self.sure = self._headed = True
        if self.header.infer and head.isascii() and head.isdecimal():
            self._unnamed = True
        elif name:
            self._start_call(name)
        else:
            self._broken(FaultCode.MALFORMED_CALL, SPOILED)

    def _start_call(self, name: str) -> None:
        self.writer.call_start(name, (self._start, self._end), self._wire)
        if self._gap:
            self.writer.emit_at(Marker, "".join(self._gap), self._end)
        if self._wire and not self.writer.whole:
            self._used[self._wire] = None

    def value(self, text: str, i: int) -> int:
        """A phase: reads a piece of the arguments' JSON value."""
        scanner = self._scanner
        j = scanner.feed(text, i)
        status = scanner.status
        if j > i:
            self._piece(text[i:j])
        if status == js.CONTROL:
            self._control(text[j])
            return j + 1
        if status == js.END:
            self._whole()
        elif status == js.BAD:
            self._broken(FaultCode.BAD_ARGUMENTS)
        return j

    def _piece(self, piece: str) -> None:
        if self._phase == OBJECT and not self._unnamed:
            self.writer.arguments(piece)
        else:
            self._part.append(piece)
            self.writer.take(piece)

    def _control(self, char: str) -> None:
        if self._phase != OBJECT:
            self._piece(char)
            return
        src = self.writer.take(char)
        if self._unnamed:
            self._part.append(js.escaped(char))
        else:
            self.writer.arguments_at(js.escaped(char), src)

    def _whole(self) -> None:
        """The value is whole."""
        if self._phase == OBJECT and not self._unnamed:
            self._complete()
            return
        raw = self.writer.alphabet.visible("".join(self._part), quoted=True)
        text: str | None = "{}" if self._phase == NULL else raw
        if self._phase == STRING:
            value = js.string_value(raw)
            text = js.object_text(value) if value.strip() else "{}"
        if text is None:
            self._broken(FaultCode.BAD_ARGUMENTS, SPOILED)
        else:
            self._argue(text, (self._part_start, self.writer.pos))

    def _argue(self, text: str, src: tuple[int, int]) -> None:
        if self._unnamed:
            name = self._fits(text)
            if name is None:
                self._broken(FaultCode.MALFORMED_CALL, SPOILED)
                return
            self._start_call(name)
        self.writer.arguments_at(text, src)
        self._complete()

    def _fits(self, text: str) -> str | None:
        """The one tool that takes these arguments; None if there is none, or more."""
        try:
            keys: set[str] = set(_DECODER.decode(text))
        except (ValueError, RecursionError):
            return None
        tools = self._site.tools
        found: list[str] = []
        for name in sorted(tools.names):
            parameters = tools.get(name)
            if parameters is not None and parameters.required <= keys <= parameters.keys:
                found.append(name)
        return found[0] if len(found) == 1 else None

    def _complete(self) -> None:
        self.writer.call_end(True)
        if self._wire:
            self._used[self._wire] = None
        self._scanned(TAIL)

    # --- snapshot ---------------------------------------------------------------------------------------------------

    def snapshot(self) -> bytes:
        """See CallEngine."""
        return msgspec.msgpack.encode(
            HeaderState(
                self._phase, self._inside, self.sure, self.seen, self._headed, self._special, self._word, self._unnamed,
                pack("".join(self._name)), self._start, self._end, pack("".join(self._gap)),
                pack("".join(self._number)), self._wire, pack("".join(self._part)), self._part_start,
                tuple(self._used), self._scanner.snapshot(),
            )
        )  # fmt: skip

    def restore(self, state: bytes) -> None:
        """See CallEngine."""
        was = msgspec.msgpack.decode(state, type=HeaderState)
        self._phase, self._inside = was.phase, was.inside
        self.sure, self.seen, self._headed = was.sure, was.seen, was.headed
        self._special, self._word, self._unnamed = was.special, was.word, was.unnamed
        self._name, self._gap, self._number = [unpack(was.name)], [unpack(was.gap)], [unpack(was.number)]
        self._start, self._end, self._wire = was.start, was.end, was.wire
        self._part, self._part_start = [unpack(was.part)], was.part_start
        self._used = dict.fromkeys(was.used)
        self._scanner = js.JsonScanner(was.scanner)
