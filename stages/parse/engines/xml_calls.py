"""XML calls: a tag with the name, inside it a tag for each argument, around it (mostly) a tag for the block.

    block    ::= block-tag WS { call WS } block-end
               | call                                              (the block's tag was forgotten; see ``known``)
    call     ::= [ lead ] call-tag HEAD WS { argument WS } [ call-end ] WS [ lead-end ]
               | call-tag HEAD WS object WS call-end               (where the family has it)
               | object                                            (with a name and arguments: see ``json_calls``)
    argument ::= argument-tag HEAD VALUE [ argument-end ]

Where VALUE ends is the matter of ``xml_values``. Its type is what an attribute says, else the schema. A string goes out
as it comes, other values when they are whole. The name goes out with its tag. The next tag ends what was not closed;
the end of the output does not. Text between tags is dropped with a fault.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

import msgspec

from stages.events import Dropped, FaultCode, Marker
from stages.parse.engines import DONE, LEAVE, MORE
from stages.parse.engines import xml_table as tb
from stages.parse.engines.json_calls import JsonCalls
from stages.parse.engines.xml_arguments import XmlArgumentsState
from stages.parse.engines.xml_call import (
    BLOCK,
    BODY,
    HEAD,
    JSON,
    KEY,
    LEAD,
    OBJECT,
    PREFIX,
    SKIP,
    STATES,
    VALUE,
    WORD,
    XmlCall,
)
from stages.parse.engines.xml_table import XmlTable
from stages.parse.site import Site
from stages.parse.writer import pack, unpack

_WORD: Final = 64
"""Characters of the longest word of a lead."""


class XmlCallsState(msgspec.Struct, frozen=True):
    """The engine's snapshot; texts are packed."""

    phase: int
    bare: bool
    guarded: bool
    seen: bool
    sure: bool
    calls: int
    part: bytes
    start: int
    json: bytes
    arguments: XmlArgumentsState


class XmlCalls(XmlCall):
    """See CallEngine. ``strict``: what else would be tolerated makes it no call; a block ends with its end only."""

    __slots__ = ("_json", "_part", "_start")

    def __init__(self, site: Site, table: XmlTable, strict: bool = False) -> None:
        super().__init__(site, table, strict)
        self._json = None if table.json is None else JsonCalls(site, table.json)
        self._part: list[str] = []
        """Taken, and given to no event yet."""
        self._start = 0

    def begin(self, opener: str, guarded: bool) -> None:
        """See CallEngine."""
        self._bind()
        table = self.table
        if opener and opener == table.prefix:
            phase = PREFIX
        elif table.lead is not None and opener == table.lead.open:
            phase = WORD
        else:
            phase = HEAD if opener in table.call else BLOCK
        self._start_over(phase, guarded)
        self._part.clear()

    @property
    def state(self) -> str:
        """See CallEngine."""
        if self._phase == JSON and self._json is not None:
            return f"json: {self._json.state}"
        return STATES[self._phase]

    @property
    def busy(self) -> bool:
        """See CallEngine."""
        if self._phase == JSON and self._json is not None:
            return self._json.busy
        return self._phase != SKIP and not (self._phase == BLOCK and self._calls)

    @property
    def flow(self) -> Callable[[str], object] | None:
        """See CallEngine."""
        if self._phase == VALUE:
            return self._value.flow
        if self._phase == JSON and self._json is not None:
            return self._json.flow
        return self._scanner.flow if self._phase == OBJECT else None

    @property
    def since(self) -> int:
        """See CallEngine."""
        if self._phase == VALUE:
            return self._value.since
        if self._phase == JSON and self._json is not None:
            return self._json.since
        return self._start if self._part else self.writer.pos

    def kept(self) -> tuple[str, int]:
        """See CallEngine."""
        if self._phase == JSON and self._json is not None:
            return self._json.kept()
        return (self._value.kept() if self._phase == VALUE else "".join(self._part)), self.since

    def repaired(self) -> None:
        """See CallEngine."""
        if self._json is not None:
            self._json.repaired()

    def feed(self, text: str, i: int, final: bool) -> int:
        """See CallEngine."""
        n = len(text)
        self.verdict = MORE
        self._wait = False
        self._final = final
        while i < n and not self.verdict and not self._wait:
            i = self._PHASES[self._phase](self, text, i)
        return self._finish(text, i) if final and not self.verdict else i

    def _finish(self, text: str, i: int) -> int:
        """Nothing more comes."""
        if self._phase == VALUE:
            self._value.hold(text[i:])
            if self.site.ended and self._value.ended:
                self._value.lose()
                self._lost()
            return len(text)
        if self._bare and self.table.known and not self.sure:
            self._broken(FaultCode.STRAY_MARKER)
            return i
        if self._phase == JSON and self._json is not None:
            i = self._json.feed(text, i, True)
            self.verdict, self.code = self._json.verdict, self._json.code
            return i
        self._dropped()
        if self._phase == SKIP:
            self.writer.emit(Dropped, text[i:])
        elif self.busy:
            self._keep(text[i:])
        else:
            self.writer.marker(text[i:])
        return len(text)

    def _keep(self, text: str) -> None:
        if text:
            start, _ = self.writer.take(text)
            if not self._part:
                self._start = start
            self._part.append(text)

    # --- between calls ------------------------------------------------------------------------------------------------

    def _prefix(self, text: str, i: int) -> int:
        tag, end = self._scans.prefixed.at(text, i, False)
        if tag is None:
            self._undecided(end, i)
            return i
        kind = self._scans.tags[self.table.prefix + tag]
        self.writer.marker(text[i:end])
        self._bare = kind == tb.CALL
        self._phase = HEAD if self._bare else BLOCK
        return end

    def _undecided(self, end: int, i: int) -> None:
        """No tag begins at ``i``: wait, if it may become one; else there is no call."""
        self._wait = end == i
        if not self._wait:
            self._broken(FaultCode.STRAY_MARKER)

    def _block(self, text: str, i: int) -> int:
        if self._junk < 0:
            i = self.writer.space(text, i)
        if i == len(text):
            return i
        start, tag, end = self._scans.block.find(text, i, False)
        if start > i:
            return self._no_tag(text, i, start)
        if tag is None:
            self._wait = True
            return i
        self._dropped()
        kind = self._scans.tags[tag]
        if kind == tb.BLOCK_END:
            self._end_block()
            return i
        if kind != tb.LEAD_END:
            self._begin_call()
            self._phase = HEAD if kind == tb.CALL else WORD
        elif not self._calls:
            self._broken(FaultCode.STRAY_MARKER)
            return i
        self.writer.marker(text[i:end])
        return end

    def _no_tag(self, text: str, i: int, end: int) -> int:
        if self._calls and self.table.loose and not self._bare:
            self._drop(text[i:end])
            return end
        if self._calls and not self._strict:
            # Without a block's tag there is no end of one to wait for.
            self.verdict = DONE if self._bare else LEAVE
        elif text[i] == "{" and self._json is not None and not self._calls:
            self._json.begin("", self._guarded)
            self._phase = JSON
        else:
            self._broken(FaultCode.MALFORMED_CALL if self._calls else FaultCode.STRAY_MARKER)
        return i

    def _end_block(self) -> None:
        if self._calls or (self.table.section and not self._guarded):
            self.verdict = LEAVE
        else:
            self._broken(FaultCode.STRAY_MARKER)

    def _begin_call(self) -> None:
        writer = self.writer
        if self._calls:
            writer.begin()
        elif self.table.section and not self._bare:
            writer.commit()
            writer.begin()
            self.seen = True
        self.sure = not (self._bare and self.table.known)

    def _word(self, text: str, i: int) -> int:
        """The word of a lead, up to its end."""
        lead = self.table.lead
        assert lead is not None
        start, tag, end = self._scans.lead.find(text, i, False)
        room = _WORD - sum(map(len, self._part))
        if start - i > room:
            start, tag = i + room, lead.open
        self._keep(text[i:start])
        if tag is None:
            self._wait = start < len(text)
            return start
        word = "".join(self._part)
        self._part.clear()
        if tag == lead.sep and word.strip() == lead.word:
            self.sure = True
            self._emit_at(Marker, word, self._start)
            self.writer.marker(text[start:end])
            self._phase = LEAD
            return end
        if tag == lead.sep and self.sure:
            pos = self.writer.pos
            self._emit_at(Dropped, word, self._start)
            self.writer.commit()
            self.writer.fault(FaultCode.MALFORMED_CALL, (self._start, pos), detail="a call of another kind")
            self._phase = SKIP
            return start
        self._broken(FaultCode.MALFORMED_CALL if self.sure else FaultCode.STRAY_MARKER)
        return start

    def _skip(self, text: str, i: int) -> int:
        start, tag, end = self._scans.body.find(text, i, False)
        if start > i:
            self.writer.emit(Dropped, text[i:start])
        if tag is None:
            self._wait = start < len(text)
            return start
        kind = self._scans.tags[tag]
        if kind in (tb.LEAD, tb.BLOCK_END, tb.LEAD_END):
            self._phase = BLOCK
            self._calls += 1
            if kind != tb.LEAD_END:
                return start
            self.writer.marker(text[start:end])
        else:
            self.writer.emit(Dropped, text[start:end])
        return end

    def _lead(self, text: str, i: int) -> int:
        i = self.writer.space(text, i)
        if i == len(text):
            return i
        tag, end = self._scans.block.at(text, i, False)
        if tag in self.table.call:
            self.writer.marker(text[i:end])
            self._phase = HEAD
            return end
        self._wait = tag is None and end == i
        if not self._wait:
            self._broken()
        return i

    def _in_json(self, text: str, i: int) -> int:
        engine = self._json
        assert engine is not None
        i = engine.feed(text, i, False)
        self.sure = self.sure or engine.sure
        self.seen = (self.seen or engine.seen) and not self._strict
        if not self._strict:
            self.verdict, self.code = engine.verdict, engine.code
            self._wait = True
        elif engine.verdict == LEAVE:
            self._calls += 1
            self._phase = BLOCK
        elif engine.verdict != MORE:
            self._broken(engine.code)
        else:
            self._wait = True
        return i

    # --- snapshot -----------------------------------------------------------------------------------------------------

    def snapshot(self) -> bytes:
        """See CallEngine."""
        return msgspec.msgpack.encode(
            XmlCallsState(
                self._phase, self._bare, self._guarded, self.seen, self.sure, self._calls, pack("".join(self._part)),
                self._start, b"" if self._json is None else self._json.snapshot(), self._state(),
            )
        )  # fmt: skip

    def restore(self, state: bytes) -> None:
        """See CallEngine."""
        was = msgspec.msgpack.decode(state, type=XmlCallsState)
        self._resume(was.arguments)
        self._phase, self._bare, self._guarded = was.phase, was.bare, was.guarded
        self.seen, self.sure, self._calls = was.seen, was.sure, was.calls
        self._part = [unpack(was.part)] if was.part else []
        self._start = was.start
        if self._json is not None:
            self._json.restore(was.json)

    _PHASES: ClassVar[dict[int, Callable[[XmlCalls, str, int], int]]] = {
        PREFIX: _prefix, BLOCK: _block, WORD: _word, LEAD: _lead, HEAD: XmlCall._head, BODY: XmlCall._body,
        KEY: XmlCall._in_key, VALUE: XmlCall._in_value, OBJECT: XmlCall._object, JSON: _in_json, SKIP: _skip,
    }  # fmt: skip
