"""Tagged JSON calls: one block holds JSON objects with a name and arguments.

    block  ::= opener WS [ "[" WS ] object { SEP object } [ "]" ] WS closer
    object ::= "{" members "}"              (members in any order; others than name and arguments are skipped)
    SEP    ::= WS | "," | "}" | "]"         (junk of brackets behind an object is ignored)

The markers are the scanner's business; this engine reads what stands between them. Arguments go out as written, from
their ``{`` to its ``}``, as soon as the name is known. A JSON string that holds an object is decoded once. ``null``,
``""`` and nothing are ``{}``. Raw control characters inside strings go out escaped: their value is not in doubt.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Final

import msgspec

from stages.events import FaultCode
from stages.parse import arguments as js
from stages.parse.engines import BROKEN, LEAVE, MORE, REPAIR, SPOILED
from stages.parse.site import Site
from stages.parse.writer import pack, unpack

OPEN, FIELD, FIELD_TEXT, COLON, FIELD_VALUE, NAME, OBJECT, STRING, NULL, OTHER, NEXT, BEHIND = range(12)
# Kept until its event can be made; other scanned pieces are structure (or arguments, sent as they come).
_KEPT: Final = frozenset((NAME, STRING, NULL))


@dataclass(frozen=True, slots=True)
class JsonKeys:
    """What the members are called. Nothing beyond what the family writes: each alias is a chance to misread."""

    name: tuple[str, ...]
    arguments: tuple[str, ...]


class JsonCallsState(msgspec.Struct, frozen=True):
    """The engine's snapshot; texts are packed."""

    phase: int
    array: bool
    guarded: bool
    seen: bool
    sure: bool
    named: bool
    argued: bool
    part: bytes
    start: int
    later: bytes | None
    later_src: tuple[int, int]
    scanner: js.JsonState


class JsonCalls:
    """See CallEngine."""

    __slots__ = (
        "_argued", "_array", "_guarded", "_later", "_later_src", "_named", "_part", "_phase", "_scanner", "_start",
        "code", "keys", "seen", "sure", "verdict", "writer",
    )  # fmt: skip

    def __init__(self, site: Site, keys: JsonKeys) -> None:
        self.writer = site.writer
        self.keys = keys
        self.verdict = MORE
        self.code = FaultCode.MALFORMED_CALL
        self.begin("", False)

    def begin(self, opener: str, guarded: bool) -> None:
        """See CallEngine."""
        del opener
        self._phase = OPEN
        self._array = False
        self._guarded = guarded
        self.seen = False
        self.sure = False
        self._part: list[str] = []
        self._start = 0
        self._scanner = js.JsonScanner()
        self._object()

    def _object(self) -> None:
        self._named = False
        self._argued = False
        self._later: list[str] | None = None
        self._later_src = (0, 0)

    @property
    def busy(self) -> bool:
        """See CallEngine."""
        return self._phase != BEHIND

    @property
    def flow(self) -> Callable[[str], object] | None:
        """See CallEngine."""
        return self._scanner.flow if self._phase == OBJECT and self._later is None else None

    @property
    def since(self) -> int:
        """See CallEngine."""
        return self._start if self._phase in _KEPT else self.writer.pos

    def kept(self) -> tuple[str, int]:
        """See CallEngine."""
        return ("".join(self._part) if self._phase in _KEPT else "", self.since)

    def feed(self, text: str, i: int, final: bool) -> int:
        """See CallEngine."""
        del final
        n = len(text)
        self.verdict = MORE
        while i < n and not self.verdict:
            i = self._PHASES[self._phase](self, text, i)
        return i

    def repaired(self) -> None:
        """See CallEngine."""
        self._end()

    # --- phases: each consumes a character at least, or sets the verdict -----------------------------------------

    def _space(self, text: str, i: int) -> int:
        j = js.space(text, i)
        if j > i:
            self.writer.marker(text[i:j])
        return j

    def _broken(self, code: FaultCode = FaultCode.MALFORMED_CALL, verdict: int = BROKEN) -> None:
        self.verdict = verdict
        self.code = code

    def _open(self, text: str, i: int) -> int:
        i = self._space(text, i)
        if i == len(text):
            return i
        if text[i] == "{":
            self._phase = FIELD
        elif text[i] == "[" and not self._array and not self._guarded:
            self._array = True
        else:
            self._broken(FaultCode.MALFORMED_CALL if self._array else FaultCode.STRAY_MARKER)
            return i
        self.writer.marker(text[i])
        return i + 1

    def _behind(self, text: str, i: int) -> int:
        j = i
        while j < len(text) and text[j] in "}], \t\r\n":
            j += 1
        if j > i:
            self.writer.marker(text[i:j])
        elif text[i] == "{":
            self.writer.begin()
            self._object()
            self.writer.marker("{")
            self._phase = FIELD
            return i + 1
        else:
            self.verdict = LEAVE
        return j

    def _field(self, text: str, i: int) -> int:
        i = self._space(text, i)
        if i == len(text):
            return i
        if text[i] == '"':
            self.sure = True
            self._scan(FIELD_TEXT)
            return i
        if text[i] == "}":
            return self._closed(text, i)
        self._broken()
        return i

    def _colon(self, text: str, i: int) -> int:
        i = self._space(text, i)
        if i == len(text):
            return i
        if text[i] != ":":
            self._broken()
            return i
        self.writer.marker(":")
        self._phase = FIELD_VALUE
        return i + 1

    def _next(self, text: str, i: int) -> int:
        i = self._space(text, i)
        if i == len(text):
            return i
        if text[i] == ",":
            self.writer.marker(",")
            self._phase = FIELD
            return i + 1
        if text[i] == "}":
            return self._closed(text, i)
        if self._named and self._argued:
            self.verdict = REPAIR
        else:
            self._broken()
        return i

    def _closed(self, text: str, i: int) -> int:
        if not self._named:
            self._broken()
            return i
        self.writer.marker(text[i])
        self._end()
        return i + 1

    def _end(self) -> None:
        if not self._argued:
            self.writer.arguments_at("{}", (self.writer.pos, self.writer.pos))
        self.writer.call_end(True)
        self.seen = True
        self._phase = BEHIND

    def _value(self, text: str, i: int) -> int:
        i = self._space(text, i)
        if i == len(text):
            return i
        char = text[i]
        field = self._decoded()
        if field in self.keys.name:
            if self._named or char != '"':
                self._broken()
            else:
                self._begin_name()
                return i + 1
        elif field in self.keys.arguments:
            if self._argued:
                self._broken()
            else:
                self._begin_arguments(char)
        else:
            self._scan(OTHER)
        return i

    def _begin_name(self) -> None:
        # The quotes are structure: the call's src covers the name alone.
        self._scan(NAME)
        self._scanner.feed('"', 0)
        self._part.append('"')
        self.writer.marker('"')
        self._start = self.writer.pos

    def _begin_arguments(self, char: str) -> None:
        if char == "{":
            self._scan(OBJECT)
            if not self._named:
                self._later = []
                self._later_src = (self.writer.pos, self.writer.pos)
        elif char == '"':
            self._keep(STRING)
        elif char == "n":
            self._keep(NULL)
        else:
            self._broken(FaultCode.BAD_ARGUMENTS)

    def _scan(self, phase: int) -> None:
        self._phase = phase
        self._scanner = js.JsonScanner()
        self._part = []

    def _keep(self, phase: int) -> None:
        self._scan(phase)
        self._start = self.writer.pos

    # --- phases that scan one JSON value -------------------------------------------------------------------------

    def _scanned(self, text: str, i: int) -> int:
        scanner = self._scanner
        j = scanner.feed(text, i)
        status = scanner.status
        if j > i:
            self._piece(text[i:j])
        if status == js.CONTROL:
            self._control(text[j])
            return j + 1
        if status == js.END:
            self._ENDS[self._phase](self)
        elif status == js.BAD:
            bad = self._phase in (OBJECT, STRING, NULL)
            self._broken(FaultCode.BAD_ARGUMENTS if bad else FaultCode.MALFORMED_CALL)
        return j

    def _piece(self, piece: str) -> None:
        phase = self._phase
        if phase == OBJECT and self._later is None:
            self.writer.arguments(piece)
        elif phase == OBJECT and self._later is not None:
            self._later.append(piece)
            self._later_src = (self._later_src[0], self.writer.take(piece)[1])
        elif phase in _KEPT:
            self._part.append(piece)
            self.writer.take(piece[:-1] if phase == NAME and self._scanner.status == js.END else piece)
        else:
            if phase == FIELD_TEXT:
                self._part.append(piece)
            self.writer.marker(piece)

    def _control(self, char: str) -> None:
        if self._phase != OBJECT:
            self._piece(char)
            return
        src = self.writer.take(char)
        if self._later is None:
            self.writer.arguments_at(js.escaped(char), src)
        else:
            self._later.append(js.escaped(char))
            self._later_src = (self._later_src[0], src[1])

    def _decoded(self) -> str:
        return js.string_value(self.writer.alphabet.visible("".join(self._part), quoted=True))

    def _end_field(self) -> None:
        self._phase = COLON

    def _end_other(self) -> None:
        self._phase = NEXT

    def _end_null(self) -> None:
        self._argue("{}", (self._start, self.writer.pos))
        self._phase = NEXT

    def _end_object(self) -> None:
        self._argued = True
        self._phase = NEXT

    def _end_string(self) -> None:
        value = self._decoded()
        text = js.object_text(value) if value.strip() else "{}"
        if text is None:
            self._broken(FaultCode.BAD_ARGUMENTS, SPOILED)
        else:
            self._argue(text, (self._start, self.writer.pos))
            self._phase = NEXT

    def _argue(self, text: str, src: tuple[int, int]) -> None:
        self._argued = True
        if self._named:
            self.writer.arguments_at(text, src)
        else:
            self._later, self._later_src = [text], src

    def _end_name(self) -> None:
        name = self._decoded().strip()
        end = self.writer.pos
        if not name:
            self.writer.marker('"')
            self._broken(verdict=SPOILED)
            return
        self._named = True
        self._phase = NEXT
        self.writer.call_start(name, (self._start, end))
        if self._later is not None:
            text = self.writer.alphabet.visible("".join(self._later), quoted=True)
            self.writer.arguments_at(text, self._later_src)
            self._later = None
        self.writer.marker('"')

    # --- snapshot ---------------------------------------------------------------------------------------------------

    def snapshot(self) -> bytes:
        """See CallEngine."""
        later = None if self._later is None else pack("".join(self._later))
        return msgspec.msgpack.encode(
            JsonCallsState(
                self._phase, self._array, self._guarded, self.seen, self.sure, self._named, self._argued,
                pack("".join(self._part)), self._start, later, self._later_src, self._scanner.snapshot(),
            )
        )  # fmt: skip

    def restore(self, state: bytes) -> None:
        """See CallEngine."""
        was = msgspec.msgpack.decode(state, type=JsonCallsState)
        self._phase, self._array, self._guarded = was.phase, was.array, was.guarded
        self.seen, self.sure = was.seen, was.sure
        self._named, self._argued, self._start = was.named, was.argued, was.start
        self._part = [unpack(was.part)]
        self._later = None if was.later is None else [unpack(was.later)]
        self._later_src = was.later_src
        self._scanner = js.JsonScanner(was.scanner)

    _PHASES: ClassVar[dict[int, Callable[[JsonCalls, str, int], int]]] = {
        OPEN: _open, FIELD: _field, FIELD_TEXT: _scanned, COLON: _colon, FIELD_VALUE: _value, NAME: _scanned,
        OBJECT: _scanned, STRING: _scanned, NULL: _scanned, OTHER: _scanned, NEXT: _next, BEHIND: _behind,
    }  # fmt: skip
    _ENDS: ClassVar[dict[int, Callable[[JsonCalls], None]]] = {
        FIELD_TEXT: _end_field, NAME: _end_name, OBJECT: _end_object, STRING: _end_string, NULL: _end_null,
        OTHER: _end_other,
    }  # fmt: skip
