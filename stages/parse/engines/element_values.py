"""The arguments of one call whose elements say their types: JSON is made of them as they are read; see ``elements``."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from stages.events import Dropped, FaultCode
from stages.parse import arguments as js
from stages.parse.engines import BROKEN, MORE, named
from stages.parse.engines import element_table as et
from stages.parse.engines.element_table import ElementScans, ElementTable, Kind
from stages.parse.literals import guessed, quoted
from stages.parse.site import Site
from stages.parse.types import STRING, Types, coerce
from stages.parse.writer import pack, unpack

BLOCK, HEAD, BODY, KEY, STRING_VALUE, HELD_VALUE, JSON_HEAD, JSON = range(8)
STATES = named(globals())
DEEPEST = 100
"""Elements inside elements; deeper ones are no values."""
_OPENS: dict[str, str] = {"list": "[", "dict": "{"}
_CLOSES: dict[str, str] = {"list": "]", "dict": "}"}


class ElementArgumentsState(msgspec.Struct, frozen=True):
    """The snapshot; texts are packed."""

    phase: int
    name: str
    counts: tuple[int, ...]
    stack: tuple[str, ...]
    key: bytes
    kind: str
    whole: bool
    junk: int
    held: bytes
    at: int
    scanner: js.JsonState


class ElementArguments:
    """One call after another; ``_call`` begins one. Phases consume a character at least, change the phase, or wait."""

    __slots__ = (
        "_at", "_counts", "_held", "_junk", "_key", "_kind", "_name", "_phase", "_scanner", "_scans", "_stack",
        "_types", "_wait", "_whole", "code", "site", "table", "verdict", "writer",
    )  # fmt: skip

    def __init__(self, site: Site, table: ElementTable) -> None:
        self.site = site
        self.writer = site.writer
        self.table = table
        self.verdict = MORE
        self.code = FaultCode.MALFORMED_CALL
        self._scans = ElementScans(table, site.lexicon)
        self._wait = False
        self._phase = BLOCK
        self._call("")

    def _call(self, name: str) -> None:
        self._name = name
        self._counts = [0]
        """Values so far: of the arguments, and of each element that is open."""
        self._stack: list[str] = []
        """The kinds of the elements that are open."""
        self._key = ""
        self._kind: str = "string"
        self._types: Types = STRING
        self._whole = False
        """The arguments were written as one JSON object."""
        self._junk = -1
        """Where text that means nothing began."""
        self._held: list[str] = []
        """Taken, and given to no event yet."""
        self._at = 0
        self._scanner = js.JsonScanner()

    # --- what phases have in common ---------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """See CallEngine."""
        return STATES[self._phase]

    @property
    def flow(self) -> Callable[[str], object] | None:
        """See CallEngine."""
        if self._phase == STRING_VALUE:
            return self._scans.notable
        return self._scanner.flow if self._phase == JSON else None

    @property
    def since(self) -> int:
        """See CallEngine."""
        return self._at if self._held else self.writer.pos

    def kept(self) -> tuple[str, int]:
        """See CallEngine."""
        return "".join(self._held), self.since

    def _keep(self, text: str) -> None:
        if text:
            start, _ = self.writer.take(text)
            if not self._held:
                self._at = start
            self._held.append(text)

    def _broken(self, code: FaultCode = FaultCode.MALFORMED_CALL) -> None:
        self.verdict = BROKEN
        self.code = code

    def _drop(self, text: str) -> None:
        """Text between tags means nothing."""
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

    def _in_key(self, text: str, i: int) -> int:
        """The head of a value's tag."""
        head = et.head_at(text, i, self._scans.sep)
        keyed = not self._stack or self._stack[-1] == "dict"
        if head is et.PARTIAL:
            self._wait = True
            return i
        if head is et.WRONG or (keyed and self.table.key not in head.attributes):
            self._broken()
            return i
        writer = self.writer
        kind = self._typed(text, head)
        before = ", " if self._counts[-1] else "{" if not self._stack else ""
        self._counts[-1] += 1
        if keyed:
            start, end = head.attributes[self.table.key]
            self._key = et.attribute(writer.alphabet.visible(text[start:end]))
            before += f'"{quoted(self._key)}": '
        else:
            start = end = i
        self._types = self._types_of(kind)
        if kind == "schema" and self._types.verbatim:
            kind = "string"
        after = '"' if kind == "string" else _OPENS.get(kind, "")
        writer.marker(text[i:start])
        src = writer.take(text[start:end])
        if before + after:
            writer.arguments_at(before + after, src)
        writer.marker(text[end : head.end])
        self._kind = kind
        if kind in _OPENS:
            self._stack.append(kind)
            self._counts.append(0)
            self._phase = BODY
        else:
            self._phase = STRING_VALUE if kind == "string" else HELD_VALUE
        return head.end

    def _typed(self, text: str, head: et.Head) -> Kind:
        table = self.table
        if table.type in head.attributes:
            start, end = head.attributes[table.type]
            return table.types.get(text[start:end].strip().lower(), "string")
        if table.flag in head.attributes:
            start, end = head.attributes[table.flag]
            return "string" if text[start:end].strip().lower() == "true" else "json"
        if self._stack:
            return "string"
        if table.untyped == "known":
            return "schema" if self._listed(text, head) else "json"
        return "json" if table.untyped == "json" else "schema"

    def _listed(self, text: str, head: et.Head) -> bool:
        tool = self.site.tools.get(self._name)
        key = et.attribute(self.writer.alphabet.visible(text[slice(*head.attributes[self.table.key])]))
        return tool is not None and key in tool.keys

    def _types_of(self, kind: str) -> Types:
        tool = self.site.tools.get(self._name) if kind == "schema" else None
        return STRING if tool is None else tool.types(self._key)

    # --- its value --------------------------------------------------------------------------------------------------

    def _string(self, text: str, i: int) -> int:
        start, tag, end = self._scans.closers.find(text, i, False)
        if start > i:
            self.writer.string(text[i:start])
        if tag is None:
            self._wait = start < len(text)
            return start
        pos = self.writer.pos
        if self._ends(tag):
            self.writer.arguments_at('"', (pos, pos))
            return self._end_value(tag, text, start, end)
        return start

    def _held_value(self, text: str, i: int) -> int:
        start, tag, end = self._scans.closers.find(text, i, False)
        self._keep(text[i:start])
        if tag is None:
            self._wait = start < len(text)
            return start
        if self._ends(tag):
            src = self.since, self.writer.pos
            raw = self.writer.alphabet.visible("".join(self._held))
            self._held.clear()
            self.writer.arguments_at(coerce(raw, self._types) if self._kind == "schema" else guessed(raw), src)
            return self._end_value(tag, text, start, end)
        return start

    def _ends(self, tag: str) -> bool:
        """Whether the tag ends the value; if not, nothing does."""
        ends = tag in self.table.value_end or (self.table.implicit and not self._stack)
        if not ends:
            self._broken()
        return ends

    def _end_value(self, tag: str, text: str, start: int, end: int) -> int:
        self._phase = BODY
        if tag not in self.table.value_end:
            return start
        self.writer.marker(text[start:end])
        return end

    def _end_nested(self) -> None:
        """The innermost element that is open ends."""
        self._counts.pop()
        pos = self.writer.pos
        self.writer.arguments_at(_CLOSES[self._stack.pop()], (pos, pos))

    # --- all arguments as one JSON object -----------------------------------------------------------------------------

    def _json_head(self, text: str, i: int) -> int:
        head = et.head_at(text, i, self._scans.sep)
        if head is et.PARTIAL:
            self._wait = True
        elif head is et.WRONG:
            self._broken()
        else:
            self.writer.marker(text[i : head.end])
            self._phase = JSON
            return head.end
        return i

    def _json(self, text: str, i: int) -> int:
        if not self._whole:
            i = self.writer.space(text, i)
            if i == len(text):
                return i
            if text[i] != "{":
                return self._no_json(text, i)
            self._whole = True
        start, tag, _ = self._scans.hard.find(text, i, False)
        i = self._scan_json(text if start == len(text) else text[:start], i)
        if i == start and self._phase == JSON and not self.verdict:
            # A tag inside the object: it is not whole. Or what may become one.
            if tag is not None:
                self._broken(FaultCode.BAD_ARGUMENTS)
            self._wait = start < len(text)
        return i

    def _scan_json(self, text: str, i: int) -> int:
        scanner, writer = self._scanner, self.writer
        while i < len(text) and self._phase == JSON and not self.verdict:
            j = scanner.feed(text, i)
            if j > i:
                writer.arguments(text[i:j])
            i = j
            if scanner.status == js.CONTROL:
                writer.arguments_at(js.escaped(text[i]), writer.take(text[i]))
                i += 1
            elif scanner.status == js.END:
                self._phase = BODY
            elif scanner.status == js.BAD:
                self._broken(FaultCode.BAD_ARGUMENTS)
        return i

    def _no_json(self, text: str, i: int) -> int:
        """No object begins: the element is empty, or it is none."""
        tag, end = self._scans.tags.at(text, i, False)
        if tag is not None:
            self._phase = BODY
        elif end == i:
            self._wait = True
        else:
            self._broken(FaultCode.BAD_ARGUMENTS)
        return i

    # --- snapshot ---------------------------------------------------------------------------------------------------

    def _state(self) -> ElementArgumentsState:
        return ElementArgumentsState(
            self._phase, self._name, tuple(self._counts), tuple(self._stack), pack(self._key), self._kind, self._whole,
            self._junk, pack("".join(self._held)), self._at, self._scanner.snapshot(),
        )  # fmt: skip

    def _resume(self, was: ElementArgumentsState) -> None:
        self._scans = ElementScans(self.table, self.site.lexicon)
        self._call(was.name)
        self._phase = was.phase
        self._counts, self._stack = list(was.counts), list(was.stack)
        self._key, self._kind = unpack(was.key), was.kind
        self._types = self._types_of(self._kind)
        self._whole, self._junk = was.whole, was.junk
        self._held = [unpack(was.held)] if was.held else []
        self._at = was.at
        self._scanner = js.JsonScanner(was.scanner)
