"""The arguments of one XML call: JSON is made of them as they are read; see ``xml_calls``."""

from __future__ import annotations

import msgspec

from stages.events import Dropped, FaultCode, Marker
from stages.parse import arguments as js
from stages.parse.engines import BROKEN, MORE
from stages.parse.engines import xml_values as xv
from stages.parse.engines.xml_heads import Head
from stages.parse.engines.xml_table import XmlScans, XmlTable, unescaped
from stages.parse.literals import WHITE, guessed, quoted
from stages.parse.site import Site
from stages.parse.types import STRING, Types, coerce
from stages.parse.writer import Text, pack, unpack


class XmlArgumentsState(msgspec.Struct, frozen=True):
    """The snapshot; texts are packed."""

    name: str
    count: int
    key: bytes
    kind: str
    whole: bool
    junk: int
    scanner: js.JsonState
    value: xv.XmlValueState


class XmlArguments:
    """One call after another; ``call`` begins one."""

    __slots__ = (
        "_count", "_junk", "_key", "_kind", "_name", "_scanner", "_scans", "_strict", "_types", "_value", "_wait",
        "_whole", "code", "site", "table", "verdict", "writer",
    )  # fmt: skip

    def __init__(self, site: Site, table: XmlTable, strict: bool) -> None:
        self.site = site
        self.writer = site.writer
        self.table = table
        self._strict = strict
        self.verdict = MORE
        self.code = FaultCode.MALFORMED_CALL
        self._scans = XmlScans(table, site.lexicon)
        self._value = xv.XmlValue(site, table, self._scans)
        self._wait = False
        self._call("")

    def _bind(self) -> None:
        self._scans = XmlScans(self.table, self.site.lexicon)
        self._value.bind(self._scans)

    def _call(self, name: str) -> None:
        self._name = name
        self._count = 0
        """Arguments so far."""
        self._key = ""
        self._kind = ""
        """How the value is typed: ``schema``, ``string``, ``json`` (or a string); ``all``: it holds the arguments;
        ``none``: it is dropped."""
        self._types: Types | None = None
        self._whole = False
        """The arguments were written as one JSON object."""
        self._junk = -1
        """Where text that means nothing began."""
        self._scanner = js.JsonScanner()

    # --- what phases have in common ---------------------------------------------------------------------------------

    def _emit_at(self, kind: Text, text: str, start: int) -> None:
        if text:
            self.writer.emit_at(kind, text, start)

    def _broken(self, code: FaultCode = FaultCode.MALFORMED_CALL) -> None:
        self.verdict = BROKEN
        self.code = code

    def _drop(self, text: str) -> None:
        """Text that means nothing."""
        pos = self.writer.pos
        self.writer.emit(Dropped, text)
        if self._junk < 0:
            self._junk = pos

    def _dropped(self) -> None:
        """It is over."""
        if self._junk >= 0:
            src = self._junk, self.writer.pos
            self._junk = -1
            self.writer.fault(FaultCode.MALFORMED_CALL, src, detail="text between the tags of a call")

    # --- an argument's tag ------------------------------------------------------------------------------------------

    def _argument(self, text: str, i: int, head: Head) -> None:
        """An argument's head, from ``i`` on."""
        start, end = head.name
        self._key = key = self.writer.alphabet.visible(text[start:end])
        self._kind = kind = self._typed(key, head)
        self._types = self._types_of(key, kind)
        streams = self._types is not None and self._types.verbatim and kind != "none"
        if kind in ("all", "none"):
            self.writer.marker(text[i : head.end])
        else:
            self.writer.marker(text[i:start])
            self._open(self.writer.take(text[start:end]), streams)
            self.writer.marker(text[end : head.end])
        self._value.begin(streams=streams)

    def _typed(self, key: str, head: Head) -> str:
        typed = self.table.typed
        if typed in head.attributes:
            kind = "string" if head.attributes[typed].strip().lower() == "true" else "json"
        else:
            kind = "schema" if not typed or key in self._known else "json"
        if key not in self._known and self._known:
            if self.table.listed and key not in self.table.unwrap:
                return "none"
            if key in self.table.unwrap and kind != "string":
                return "all"
        return kind

    @property
    def _known(self) -> frozenset[str]:
        tool = self.site.tools.get(self._name)
        return frozenset() if tool is None else tool.keys

    def _types_of(self, key: str, kind: str) -> Types | None:
        if kind == "schema":
            tool = self.site.tools.get(self._name)
            return STRING if tool is None else tool.types(key)
        return STRING if kind in ("string", "none") else None

    def _open(self, src: tuple[int, int], streams: bool) -> None:
        """The text before a value."""
        before, quote = ", " if self._count else "{", '"' if streams else ""
        self.writer.arguments_at(f'{before}"{quoted(self._key)}": {quote}', src)
        self._count += 1

    # --- its value --------------------------------------------------------------------------------------------------

    def _end_value(self) -> tuple[str, int]:
        """The value has ended. What is held and is none of it, and its first byte."""
        text, rest, at = self._value.parts()
        end = at + self.writer.size(text)
        if self._value.streams:
            if text:
                self._value.deliver(text, at)
            self.writer.arguments_at('"', (end, end))
        elif self._kind == "none":
            self._emit_at(Dropped, text, at)
        else:
            self._held_value(text, (at, end))
        return rest, end

    def _held_value(self, text: str, src: tuple[int, int]) -> None:
        kind = self.table.values.unescape
        raw = self.writer.alphabet.visible("".join(meant for meant, _ in unescaped(text, kind)))
        if self._types is not None:
            self.writer.arguments_at(coerce(raw, self._types, python=self.table.python), src)
            return
        if self._kind == "all":
            if (found := js.object_text(raw)) is not None:
                self._spread(found, text, src)
                return
            self._open((src[0], src[0]), streams=False)
        self.writer.arguments_at(guessed(raw), src)

    def _spread(self, found: str, text: str, src: tuple[int, int]) -> None:
        """All members of an object are arguments. ``text``: as written."""
        body = found[1:-1].strip(WHITE)
        if body:
            self.writer.arguments_at((", " if self._count else "{") + body, src)
            self._count += 1
        else:
            self._emit_at(Marker, text, src[0])

    def _whole_object(self, text: str, i: int) -> int:
        """The arguments as one JSON object. Sets ``_whole`` at its end."""
        scanner = self._scanner
        j = scanner.feed(text, i)
        if j > i:
            self.writer.arguments(text[i:j])
        if scanner.status == js.CONTROL:
            self.writer.arguments_at(js.escaped(text[j]), self.writer.take(text[j]))
            return j + 1
        if scanner.status == js.BAD:
            self._broken(FaultCode.BAD_ARGUMENTS)
        self._whole = scanner.status == js.END
        return j

    # --- snapshot ---------------------------------------------------------------------------------------------------

    def _state(self) -> XmlArgumentsState:
        return XmlArgumentsState(
            self._name, self._count, pack(self._key), self._kind,
            self._whole, self._junk, self._scanner.snapshot(), self._value.snapshot(),
        )  # fmt: skip

    def _resume(self, was: XmlArgumentsState) -> None:
        self._bind()
        self._call(was.name)
        self._count = was.count
        self._key, self._kind, self._whole, self._junk = unpack(was.key), was.kind, was.whole, was.junk
        self._types = self._types_of(self._key, self._kind)
        self._scanner = js.JsonScanner(was.scanner)
        self._value.restore(was.value)
