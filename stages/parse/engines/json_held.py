"""One call as one JSON object: the tables, and what is known of an object between two steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from stages.events import FaultCode
from stages.parse import arguments as js
from stages.parse.engines import BROKEN, MORE, named
from stages.parse.site import Site
from stages.parse.writer import pack, unpack

FIELD, FIELD_TEXT, KEY, COLON, FIELD_VALUE, NAME, ID, OBJECT, STRING, NULL, OTHER, NEXT = range(12)
STATES: Final = named(globals())
# Kept until its event can be made; other scanned pieces are structure (or arguments, sent as they come).
_KEPT: Final = frozenset((KEY, NAME, STRING, NULL))


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


class JsonHeld:
    """The state of one object, and how its text is consumed."""

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
        self._used: dict[str, None] = {}
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
    def state(self) -> str:
        """What it reads: see CallEngine."""
        return STATES[self._phase]

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

    # --- text -------------------------------------------------------------------------------------------------------

    def _broken(self, code: FaultCode = FaultCode.MALFORMED_CALL, verdict: int = BROKEN) -> None:
        self.verdict = verdict
        self.code = code

    def _scan(self, phase: int) -> None:
        self._phase = phase
        self._scanner = js.JsonScanner()
        self._part = []

    def _keep(self, phase: int) -> None:
        self._scan(phase)
        self._start = self._writer.pos

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

    # --- snapshot ---------------------------------------------------------------------------------------------------

    def snapshot(self) -> JsonObjectState:
        """The state as plain data."""
        later = None if self._later is None else pack("".join(self._later))
        return JsonObjectState(
            self._phase, self.sure, self.known, self._named, self._argued, self._flat, self._silent, self._depth,
            self._alias, self._wire, tuple(self._used), self._name, self._name_src, pack("".join(self._part)),
            self._start, later, self._later_src, self._scanner.snapshot(),
        )  # fmt: skip

    def restore(self, was: JsonObjectState) -> None:
        """Continue from ``snapshot``."""
        self._phase, self.sure, self.known = was.phase, was.sure, was.known
        self._named, self._argued, self._flat, self._silent = was.named, was.argued, was.flat, was.silent
        self._depth, self._alias, self._wire, self._used = was.depth, was.alias, was.wire, dict.fromkeys(was.used)
        self._name, self._name_src = was.name, was.name_src
        self._part = [unpack(was.part)]
        self._start = was.start
        self._later = None if was.later is None else [unpack(was.later)]
        self._later_src = was.later_src
        self._scanner = js.JsonScanner(was.scanner)
