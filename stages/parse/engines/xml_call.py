"""One XML call: the tag with its name, and what stands inside it; see ``xml_calls``."""

from __future__ import annotations

from typing import Final

from stages.events import Content, FaultCode, Marker
from stages.parse.engines import named
from stages.parse.engines import xml_heads as heads
from stages.parse.engines import xml_table as tb
from stages.parse.engines import xml_values as xv
from stages.parse.engines.xml_arguments import XmlArguments
from stages.parse.engines.xml_table import XmlTable
from stages.parse.site import Site

PREFIX, BLOCK, WORD, LEAD, HEAD, BODY, KEY, VALUE, OBJECT, JSON, SKIP = range(11)
STATES: Final = named(globals())


class XmlCall(XmlArguments):
    """From a call's head to its end."""

    __slots__ = ("_bare", "_calls", "_final", "_guarded", "_phase", "seen", "sure")

    def __init__(self, site: Site, table: XmlTable, strict: bool) -> None:
        super().__init__(site, table, strict)
        self._start_over(BLOCK, guarded=False)

    def _start_over(self, phase: int, guarded: bool) -> None:
        self._call("")
        self._phase = phase
        self._bare = phase in (HEAD, WORD)
        """There is no block."""
        self._guarded = guarded
        self.seen = False
        self.sure = False
        self._calls = 0
        """Calls that are complete."""
        self._final = False
        """Nothing more comes."""

    def _head(self, text: str, i: int) -> int:
        bare = self._bare and self.table.known
        if bare and self._guarded:
            self._broken(FaultCode.STRAY_MARKER)
            return i
        head = heads.read(text, i, equals=self.table.equals)
        start, end = head.name
        start += len(text[start:end]) - len(text[start:end].lstrip())
        end = start + len(text[start:end].rstrip())
        name = self.writer.alphabet.visible(text[start:end]).strip()
        if head is heads.PARTIAL:
            self._wait = True
        elif head is heads.WRONG or not name or (bare and name not in self.site.tools.names):
            self._broken(FaultCode.MALFORMED_CALL if self.sure else FaultCode.STRAY_MARKER)
        else:
            self.sure = True
            self.writer.marker(text[i:start])
            self.writer.call_start(name, self.writer.take(text[start:end]))
            self.writer.marker(text[end : head.end])
            self._call(name)
            self._phase = BODY
            if head.empty:
                self._end_call()
            return head.end
        return i

    def _body(self, text: str, i: int) -> int:
        if self._junk < 0:
            i = self.writer.space(text, i)
        if i == len(text):
            return i
        if text[i] == "{" and self.table.object and not self._count and not self._whole and self._junk < 0:
            self._phase = OBJECT
            return i
        start, tag, end = self._scans.body.find(text, i, False)
        if start > i:
            if self._strict:
                self._broken()
                return i
            self._drop(text[i:start])
        if tag is None:
            self._wait = start < len(text)
            return start
        self._dropped()
        return self._tag(self._scans.tags[tag], text, start, end)

    def _tag(self, kind: int, text: str, start: int, end: int) -> int:
        if kind == tb.PARAM_END:
            self.writer.marker(text[start:end])
        elif kind == tb.PARAM and not self._whole:
            self.writer.marker(text[start:end])
            self._phase = KEY
        elif kind == tb.CALL_END:
            self.writer.marker(text[start:end])
            self._end_call()
        elif self.table.implicit and kind != tb.PARAM and not self._strict:
            self._end_call()
            return start
        else:
            self._broken()
            return start
        return end

    def _in_key(self, text: str, i: int) -> int:
        head = heads.read(text, i, equals=self.table.equals)
        if head is heads.PARTIAL:
            self._wait = True
        elif head is heads.WRONG:
            self._broken()
        else:
            self._argument(text, i, head)
            if self.verdict:
                return i
            self._phase = VALUE
            if head.empty:
                self._ended_value(BODY)
            return head.end
        return i

    def _in_value(self, text: str, i: int) -> int:
        i = self._value.feed(text, i)
        status = self._value.status
        if status == xv.END:
            self._ended_value(BODY)
        elif status == xv.LOST:
            self._lost()
        else:
            self._wait = i < len(text)
        return i

    def _ended_value(self, phase: int) -> None:
        rest, end = self._end_value()
        self._emit_at(Marker, rest, end)
        self._phase = phase

    def _lost(self) -> None:
        """The value ended before what was held behind it: the tags that close the call, and perhaps text."""
        rest, end = self._end_value()
        match = self._scans.behind.match(rest)
        cut = match.end() if match else 0
        body = rest[cut:] if self._final else rest[cut:].rstrip("\n")
        self._emit_at(Marker, rest[:cut], end)
        self._end_call()
        if body:
            end += self.writer.size(rest[:cut])
            self._emit_at(Content, body, end)
            self._emit_at(Marker, rest[cut + len(body) :], end + self.writer.size(body))

    def _object(self, text: str, i: int) -> int:
        i = self._whole_object(text, i)
        if self._whole:
            self._phase = BODY
        return i

    def _end_call(self) -> None:
        pos = self.writer.pos
        if not self._whole:
            self.writer.arguments_at("}" if self._count else "{}", (pos, pos))
        self.writer.call_end(True)
        self._calls += 1
        self.seen = not self._strict
        self._phase = BLOCK
