"""One call as one JSON object: members in any order, of which some are its name and its arguments.

    object  ::= "{" [ member { "," member } ] "}"
    member  ::= NAME-KEY ":" string | ARGUMENTS-KEY ":" arguments | ID-KEY ":" string | WRAPPER-KEY ":" object | other
    object  ::= "{" NAME ":" arguments "}"                                                       (``JsonKeys.single``)
    arguments ::= JSON object | JSON string that holds one, or nothing | null

Arguments go out as written, from their ``{`` to its ``}``, as soon as the name is known. A JSON string that holds an
object is decoded once. ``null``, ``""`` and nothing are ``{}``. Raw control characters inside strings go out escaped:
their value is not in doubt. Members that mean nothing here are structure.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Final

import msgspec

from stages.events import FaultCode
from stages.parse import arguments as js
from stages.parse.engines import BROKEN, LEAVE, MORE, REPAIR, SPOILED
from stages.parse.site import Site
from stages.parse.writer import pack, unpack

FIELD, FIELD_TEXT, KEY, COLON, FIELD_VALUE, NAME, ID, OBJECT, STRING, NULL, OTHER, NEXT = range(12)
# Kept until its event can be made; other scanned pieces are structure (or arguments, sent as they come).
_KEPT: Final = frozenset((KEY, NAME, STRING, NULL))
_WIRE: Final = re.compile("[a-zA-Z0-9]{9}")


@dataclass(frozen=True, slots=True)
class JsonKeys:
    """What the members are called. Nothing beyond what the family writes: each alias is a chance to misread.

    ``ids``: the call's id on the wire, used where it comes before the name and is nine letters or digits. ``wrapper``:
    an object in which the call may stand. ``prefer``: a later alias of the arguments behind an earlier one is ignored,
    not malformed. ``argued``: an object without arguments is no call, so that the name waits for them. ``single``: the
    name is the only key. ``nothing``: names that mean that no function is called.
    """

    name: tuple[str, ...]
    arguments: tuple[str, ...]
    ids: tuple[str, ...] = ()
    wrapper: tuple[str, ...] = ()
    prefer: bool = False
    argued: bool = False
    single: bool = False
    nothing: tuple[str, ...] = ()


class JsonObjectState(msgspec.Struct, frozen=True):
    """The snapshot; texts are packed."""

    phase: int
    sure: bool
    known: bool
    named: bool
    argued: bool
    flat: bool
    silent: bool
    depth: int
    alias: int
    wire: str
    used: tuple[str, ...]
    name: str
    name_src: tuple[int, int]
    part: bytes
    start: int
    later: bytes | None
    later_src: tuple[int, int]
    scanner: js.JsonState


class JsonObject:
    """Reads one object from behind its ``{`` on. ``verdict``: MORE; LEAVE: the call is complete; REPAIR, BROKEN and
    SPOILED as in ``engines``."""

    __slots__ = (
        "_alias", "_argued", "_depth", "_flat", "_later", "_later_src", "_name", "_name_src", "_named", "_part",
        "_phase", "_scanner", "_silent", "_start", "_tools", "_used", "_wire", "_writer", "code", "keys", "known",
        "sure", "verdict",
    )  # fmt: skip

    def __init__(self, site: Site, keys: JsonKeys) -> None:
        self._writer = site.writer
        self._tools = site.tools
        self.keys = keys
        self.verdict = MORE
        self.code = FaultCode.MALFORMED_CALL
        self.sure = False
        """The header of a call was read: see CallEngine."""
        self.known = False
        """Only offered tools are called: another name makes no call of an object."""
        self._used: tuple[str, ...] = ()
        self.begin()

    def begin(self) -> None:
        """The next object."""
        self._phase = FIELD
        self._named = False
        self._argued = False
        self._flat = not self.keys.single
        self._silent = False
        self._depth = 0
        self._alias = 0
        self._wire = ""
        self._name = ""
        self._name_src = (0, 0)
        self._later: list[str] | None = None
        self._later_src = (0, 0)
        self._part: list[str] = []
        self._start = 0
        self._scanner = js.JsonScanner()

    @property
    def flow(self) -> Callable[[str], object] | None:
        """See CallEngine."""
        return self._scanner.flow if self._phase == OBJECT and self._later is None else None

    @property
    def since(self) -> int:
        """See CallEngine."""
        return self._start if self._phase in _KEPT else self._writer.pos

    def kept(self) -> tuple[str, int]:
        """See CallEngine."""
        return ("".join(self._part) if self._phase in _KEPT else "", self.since)

    def feed(self, text: str, i: int) -> int:
        """Read on; returns the index of the first character that was not consumed. All is decided at once."""
        n = len(text)
        self.verdict = MORE
        while i < n and not self.verdict:
            i = self._PHASES[self._phase](self, text, i)
        return i

    def end(self) -> None:
        """The object is over, or as good as."""
        if self._silent:
            self._writer.commit()
        else:
            if not self._argued:
                self._writer.arguments_at("{}", (self._writer.pos, self._writer.pos))
            self._writer.call_end(True)
        self.verdict = LEAVE

    # --- structure: each consumes a character at least, or sets the verdict --------------------------------------

    def _space(self, text: str, i: int) -> int:
        j = js.space(text, i)
        if j > i:
            self._writer.marker(text[i:j])
        return j

    def _broken(self, code: FaultCode = FaultCode.MALFORMED_CALL, verdict: int = BROKEN) -> None:
        self.verdict = verdict
        self.code = code

    def _field(self, text: str, i: int) -> int:
        i = self._space(text, i)
        if i == len(text):
            return i
        if text[i] == '"' and (self._flat or not self._named):
            self.sure = self.sure or not self.keys.argued
            if self._flat:
                self._scan(FIELD_TEXT)
                return i
            self._begin_kept(KEY)
            return i + 1
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
        if not self._flat and not self._keyed():
            return i
        self._writer.marker(":")
        self._phase = FIELD_VALUE
        return i + 1

    def _keyed(self) -> bool:
        """The single key is known; False: it is no name."""
        key = self._decoded()
        named = key in self.keys.name or key in self.keys.arguments
        if named and key not in self._tools.names:
            # Not a function of this name, but the key that says which it is.
            self._flat = True
            self._structure()
            return True
        if not key.strip():
            self._broken()
            return False
        self._start_call(key.strip(), self._name_src)
        return True

    def _next(self, text: str, i: int) -> int:
        i = self._space(text, i)
        if i == len(text):
            return i
        if text[i] == ",":
            self._writer.marker(",")
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
        if self._depth:
            self._depth -= 1
            self._phase = NEXT
        elif not self._named or (self.keys.argued and not self._argued):
            self._broken()
            return i
        else:
            self._writer.marker(text[i])
            self.end()
            return i + 1
        self._writer.marker(text[i])
        return i + 1

    def _value(self, text: str, i: int) -> int:
        i = self._space(text, i)
        if i == len(text):
            return i
        char = text[i]
        keys = self.keys
        if not self._flat:
            self._begin_arguments(char)
            return i
        field = self._decoded()
        if field in keys.name:
            if self._named or char != '"':
                self._broken()
                return i
            self._begin_kept(NAME)
            return i + 1
        if field in keys.arguments and not (keys.prefer and self._argued and keys.arguments.index(field) > self._alias):
            if self._argued:
                self._broken()
            else:
                self._alias = keys.arguments.index(field)
                self._begin_arguments(char)
        elif field in keys.wrapper and char == "{" and not self._named:
            self._depth += 1
            self._writer.marker("{")
            self._phase = FIELD
            return i + 1
        else:
            self._scan(ID if field in keys.ids and char == '"' else OTHER)
        return i

    def _begin_kept(self, phase: int) -> None:
        # The quotes are structure: the call's src covers the name alone.
        self._scan(phase)
        self._scanner.feed('"', 0)
        self._part.append('"')
        self._writer.marker('"')
        self._start = self._writer.pos

    def _begin_arguments(self, char: str) -> None:
        if self._silent:
            self._argued = True
            self._scan(OTHER)
        elif char == "{":
            self._scan(OBJECT)
            if not self._named:
                self._later = []
                self._later_src = (self._writer.pos, self._writer.pos)
            self._send_name()
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
        self._start = self._writer.pos

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
            self._writer.arguments(piece)
        elif phase == OBJECT and self._later is not None:
            self._later.append(piece)
            self._later_src = (self._later_src[0], self._writer.take(piece)[1])
        elif phase in _KEPT:
            self._part.append(piece)
            quoted = phase in (NAME, KEY) and self._scanner.status == js.END
            self._writer.take(piece[:-1] if quoted else piece)
        else:
            if phase in (FIELD_TEXT, ID):
                self._part.append(piece)
            self._writer.marker(piece)

    def _control(self, char: str) -> None:
        if self._phase != OBJECT:
            self._piece(char)
            return
        src = self._writer.take(char)
        if self._later is None:
            self._writer.arguments_at(js.escaped(char), src)
        else:
            self._later.append(js.escaped(char))
            self._later_src = (self._later_src[0], src[1])

    def _decoded(self) -> str:
        return js.string_value(self._writer.alphabet.visible("".join(self._part), quoted=True))

    def _end_field(self) -> None:
        self._phase = COLON

    def _end_key(self) -> None:
        self._name_src = (self._start, self._writer.pos)
        self._writer.marker('"')
        self._phase = COLON

    def _end_id(self) -> None:
        wire = self._decoded()
        if not self._named and _WIRE.fullmatch(wire) and wire not in self._used:
            self._wire = wire
        self._phase = NEXT

    def _end_other(self) -> None:
        self._phase = NEXT

    def _end_null(self) -> None:
        self._argue("{}", (self._start, self._writer.pos))
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
            self._argue(text, (self._start, self._writer.pos))
            self._phase = NEXT

    def _argue(self, text: str, src: tuple[int, int]) -> None:
        self._argued = True
        if self._named:
            self._send_name()
            self._writer.arguments_at(text, src)
        else:
            self._later, self._later_src = [text], src

    # --- the name ---------------------------------------------------------------------------------------------------

    def _end_name(self) -> None:
        name = self._decoded().strip()
        if not name or (self.known and name not in self._tools.names):
            self._writer.marker('"')
            self._broken(verdict=SPOILED)
            return
        self._phase = NEXT
        src = self._start, self._writer.pos
        if name in self.keys.nothing:
            self._named = self._silent = True
            self._later = None
            self._structure()
        elif self.keys.argued and not self._argued:
            self._named = True
            self._name, self._name_src = name, src
        else:
            self._start_call(name, src)
        self._writer.marker('"')

    def _structure(self) -> None:
        """All of the region so far is structure."""
        raw = self._writer.rollback()
        self._writer.begin()
        self._writer.marker(raw)

    def _send_name(self) -> None:
        """The name was waiting for the arguments."""
        if self._name:
            self._start_call(self._name, self._name_src)
            self._name = ""

    def _start_call(self, name: str, src: tuple[int, int]) -> None:
        self._named = self.sure = True
        if self._wire:
            self._used = (*self._used, self._wire)
        self._writer.call_start(name, src, self._wire)
        if self._later is not None:
            text = self._writer.alphabet.visible("".join(self._later), quoted=True)
            self._writer.arguments_at(text, self._later_src)
            self._later = None

    # --- snapshot ---------------------------------------------------------------------------------------------------

    def snapshot(self) -> JsonObjectState:
        """The state as plain data."""
        later = None if self._later is None else pack("".join(self._later))
        return JsonObjectState(
            self._phase, self.sure, self.known, self._named, self._argued, self._flat, self._silent, self._depth,
            self._alias, self._wire, self._used, self._name, self._name_src, pack("".join(self._part)), self._start,
            later, self._later_src, self._scanner.snapshot(),
        )  # fmt: skip

    def restore(self, was: JsonObjectState) -> None:
        """Continue from ``snapshot``."""
        self._phase, self.sure, self.known = was.phase, was.sure, was.known
        self._named, self._argued, self._flat, self._silent = was.named, was.argued, was.flat, was.silent
        self._depth, self._alias, self._wire, self._used = was.depth, was.alias, was.wire, was.used
        self._name, self._name_src = was.name, was.name_src
        self._part = [unpack(was.part)]
        self._start = was.start
        self._later = None if was.later is None else [unpack(was.later)]
        self._later_src = was.later_src
        self._scanner = js.JsonScanner(was.scanner)

    _PHASES: ClassVar[dict[int, Callable[[JsonObject, str, int], int]]] = {
        FIELD: _field, FIELD_TEXT: _scanned, KEY: _scanned, COLON: _colon, FIELD_VALUE: _value, NAME: _scanned,
        ID: _scanned, OBJECT: _scanned, STRING: _scanned, NULL: _scanned, OTHER: _scanned, NEXT: _next,
    }  # fmt: skip
    _ENDS: ClassVar[dict[int, Callable[[JsonObject], None]]] = {
        FIELD_TEXT: _end_field, KEY: _end_key, NAME: _end_name, ID: _end_id, OBJECT: _end_object, STRING: _end_string,
        NULL: _end_null, OTHER: _end_other,
    }  # fmt: skip
