"""Key/value tags: a call is a name, and tagged pairs of a key and a value.

    block ::= section WS { call WS } section-end | call
    call  ::= opener WS NAME WS [ name-end ] { WS pair } WS closer
            | opener WS object WS closer                        (where the family has it: see json_calls)
            | opener WS NAME WS arguments WS closer             (arguments: a JSON object)
    pair  ::= key KEY key-end WS [ type TYPE type-end WS ] value VALUE value-end
    NAME  ::= [A-Za-z0-9_.:/-]+

A name ends at a tag. Another character behind it, or none: the opener was a mention, and is text. VALUE is verbatim and
has no escapes: it ends at the first value-end, whatever else stands in it. Its type is the schema's: a string goes out
as it comes, other values when they are whole. A tool without a schema: what is JSON, and no string, is taken for it.

Forgotten tags: a key ends at its value too. A value ends before a key that has its own end and a value; and before the
end of the call, where nothing follows in the output, or the end of the section, or the name of another call. A key
without a value is an empty string if it may be one; else it is dropped. Text between pairs is dropped. Each is a fault.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

import msgspec

from stages.events import FaultCode, Marker
from stages.parse import arguments as js
from stages.parse.engines import BROKEN, DONE, LEAVE, MORE, REPAIR, named
from stages.parse.engines.json_calls import JsonCalls
from stages.parse.engines.kv_pairs import KvPairs, KvPairsState
from stages.parse.engines.kv_table import FAR, NAME, KvScans, KvTags
from stages.parse.site import Site
from stages.parse.writer import pack, unpack

SECTION, LEAD, WORD, GAP, PAIRS, JSON, OBJECT, CLOSE, CLOSED = range(9)
STATES: Final = named(globals())


class KvState(msgspec.Struct, frozen=True):
    """The engine's snapshot."""

    phase: int
    guarded: bool
    inside: bool
    seen: bool
    sure: bool
    ended: bool
    part: bytes
    start: int
    head: int
    mid: int
    pairs: KvPairsState
    json: bytes
    scanner: js.JsonState


class KvCalls:
    """See CallEngine. ``strict``: what else would be a fault beside the call makes it no call."""

    __slots__ = (
        "_ended", "_guarded", "_head", "_inside", "_json", "_mid", "_pairs", "_part", "_phase", "_scanner", "_scans",
        "_start", "_wait", "code", "seen", "site", "sure", "tags", "verdict", "writer",
    )  # fmt: skip

    def __init__(self, site: Site, tags: KvTags, *, strict: bool = False) -> None:
        self.site = site
        self.writer = site.writer
        self.tags = tags
        self.verdict = MORE
        self.code = FaultCode.MALFORMED_CALL
        self._pairs = KvPairs(site, tags, strict)
        self._json = None if tags.json is None else JsonCalls(site, tags.json)
        self._inside = False
        self.begin("", False)

    def begin(self, opener: str, guarded: bool) -> None:
        """See CallEngine."""
        section = self.tags.section is not None and opener == self.tags.section[0]
        self._scans = KvScans(self.tags, self.site.lexicon)
        self._phase = SECTION if section else LEAD
        self._guarded = guarded
        self.seen = self._inside and not section
        self._inside = self._inside or section
        self.sure = False
        self._ended = False
        """A call of this block is complete."""
        self._wait = False
        self._scanner = js.JsonScanner()
        self._part: list[str] = []
        """The name, and white space behind it: from byte ``_start`` on; the name has ``_head`` characters, and ends at
        byte ``_mid``."""
        self._start = self._head = self._mid = 0

    @property
    def busy(self) -> bool:
        """See CallEngine."""
        if self._phase == JSON and self._json is not None:
            return self._json.busy
        return self._phase not in (CLOSE, CLOSED) and not (self._phase == SECTION and self._ended)

    @property
    def _reader(self) -> KvPairs | JsonCalls | None:
        """Who reads now."""
        return self._pairs if self._phase == PAIRS else self._json if self._phase == JSON else None

    @property
    def state(self) -> str:
        """See CallEngine."""
        reader, name = self._reader, STATES[self._phase]
        return name if reader is None else f"{name}: {reader.state}"

    @property
    def flow(self) -> Callable[[str], object] | None:
        """See CallEngine."""
        reader = self._reader
        return reader.flow if reader is not None else self._scanner.flow if self._phase == OBJECT else None

    @property
    def since(self) -> int:
        """See CallEngine."""
        reader = self._reader
        return self.writer.pos if reader is None else reader.since

    def kept(self) -> tuple[str, int]:
        """See CallEngine."""
        reader = self._reader
        return ("", self.writer.pos) if reader is None else reader.kept()

    def feed(self, text: str, i: int, final: bool) -> int:
        """See CallEngine."""
        n = len(text)
        self.verdict = MORE
        self._wait = False
        while i < n and not self._wait and not self.verdict:
            if self._phase == PAIRS:
                i = self._pair(text, i, final)
            elif self._phase == JSON:
                i = self._delegate(text, i, final)
            else:
                i = self._PHASES[self._phase](self, text, i)
        if final and i < n and not self.verdict:
            # What may have become a tag.
            if self._phase == PAIRS:
                self._pairs.keep(text[i:])
            elif self.busy:
                self.writer.take(text[i:])
            else:
                self.writer.marker(text[i:])
            return n
        return i

    def repaired(self) -> None:
        """See CallEngine."""
        if self._json is not None:
            self._json.repaired()

    def _broken(self, code: FaultCode = FaultCode.MALFORMED_CALL, verdict: int = BROKEN) -> None:
        self.verdict = verdict
        self.code = code

    def _undecided(self, end: int, i: int) -> bool:
        """No tag begins at ``i``. It may become one: wait for more."""
        self._wait = end == i
        return self._wait

    # --- the block ----------------------------------------------------------------------------------------------------

    def _section(self, text: str, i: int) -> int:
        i = self.writer.space(text, i)
        if i == len(text):
            return i
        tag, end = self._scans.behind_call.at(text, i, False)
        alone = self._guarded and not self._ended
        if tag is None or (alone and tag != self.tags.call[0]):
            if tag is not None or not self._undecided(end, i):
                if self._ended:
                    self.verdict = LEAVE
                else:
                    self._broken(FaultCode.STRAY_MARKER)
            return i
        if tag == self.tags.call[0]:
            # In reasoning the section may still be a mention.
            if not alone:
                self.writer.commit()
                self.writer.begin()
                self.seen = True
            self._phase = LEAD
        else:
            self._inside = False
            self._phase = CLOSED
            self.verdict = DONE
        self.writer.literal(text[i:end])
        return end

    def _lead(self, text: str, i: int) -> int:
        i = self.writer.space(text, i)
        if i == len(text):
            return i
        if text[i] == "{" and self._json is not None:
            self._json.begin("", self._guarded)
            self._phase = JSON
        elif NAME.match(text, i):
            self._start = self.writer.pos
            self._phase = WORD
        else:
            tag, end = self._scans.behind_name.at(text, i, False)
            if tag is not None:
                self._broken()
            elif not self._undecided(end, i):
                self._broken(FaultCode.STRAY_MARKER)
        return i

    def _word(self, text: str, i: int) -> int:
        match = NAME.match(text, i)
        if match is None:
            self._mid = self.writer.pos
            self._head = sum(map(len, self._part))
            self._phase = GAP
            return i
        self._take(match.group())
        return match.end()

    def _take(self, text: str) -> None:
        if text:
            self.writer.take(text)
            self._part.append(text)

    def _gap(self, text: str, i: int) -> int:
        j = js.space(text, i)
        self._take(text[i:j])
        if j == len(text):
            return j
        if text[j] == "{" and self.tags.json is not None:
            return self._brace(text, j)
        tag, end = self._scans.behind_name.at(text, j, False)
        if tag is None:
            if not self._undecided(end, j):
                self._broken(FaultCode.STRAY_MARKER)
            return j
        self._pairs.begin(self._named(), self._scans)
        self._phase = PAIRS
        if tag != self.tags.name_end:
            return j
        self.writer.literal(text[j:end])
        return end

    def _named(self) -> str:
        raw = "".join(self._part)
        self._part.clear()
        name = raw[: self._head]
        self.sure = True
        self.writer.call_start(name, (self._start, self._mid))
        self.writer.emit_at(Marker, raw[self._head :], self._mid)
        return name

    def _brace(self, text: str, i: int) -> int:
        j = js.space(text, i + 1)
        if j == len(text) and j - i < FAR:
            self._wait = True
        elif text[j : j + 1] in ('"', "}"):
            self._named()
            self._scanner = js.JsonScanner()
            self._phase = OBJECT
        else:
            self._broken(FaultCode.STRAY_MARKER)
        return i

    def _pair(self, text: str, i: int, final: bool) -> int:
        pairs = self._pairs
        i = pairs.feed(text, i, final)
        if pairs.verdict == MORE:
            self._wait = True
        elif pairs.verdict != LEAVE:
            self._broken(verdict=pairs.verdict)
        else:
            pairs.end()
            self._complete(CLOSED if self.tags.section is None else SECTION)
            _, end = self._scans.pairs.at(text, i, False)
            self.writer.literal(text[i:end])
            if self.tags.section is None:
                self.verdict = DONE
            return end
        return i

    def _complete(self, phase: int) -> None:
        self.writer.call_end(True)
        self._phase = phase
        self._ended = True
        self.seen = self.tags.section is not None

    # --- JSON ---------------------------------------------------------------------------------------------------------

    def _object(self, text: str, i: int) -> int:
        scanner = self._scanner
        j = scanner.feed(text, i)
        if j > i:
            self.writer.arguments(text[i:j])
        if scanner.status == js.CONTROL:
            self.writer.arguments_at(js.escaped(text[j]), self.writer.take(text[j]))
            return j + 1
        if scanner.status == js.END:
            self._complete(CLOSE)
        elif scanner.status == js.BAD:
            self._broken(FaultCode.BAD_ARGUMENTS)
        return j

    def _delegate(self, text: str, i: int, final: bool) -> int:
        engine = self._json
        assert engine is not None
        i = engine.feed(text, i, final)
        self.sure = self.sure or engine.sure
        self.seen = self.seen or engine.seen
        if engine.verdict == MORE:
            self._wait = True
        elif engine.verdict == LEAVE:
            self._phase = CLOSE
            self._ended = True
            self.seen = self.tags.section is not None
        elif engine.verdict != REPAIR or self.tags.section is None:
            self._broken(engine.code, engine.verdict)
        else:
            tag, end = self._scans.pairs.at(text, i, False)
            if tag == self.tags.call[1]:
                engine.repaired()
            elif tag is not None or not self._undecided(end, i):
                self._broken()
        return i

    def _close(self, text: str, i: int) -> int:
        if self.tags.section is None:
            self.verdict = LEAVE
            return i
        i = self.writer.space(text, i)
        if i == len(text):
            return i
        tag, end = self._scans.pairs.at(text, i, False)
        if tag == self.tags.call[1]:
            self.writer.literal(text[i:end])
            self._phase = SECTION
            return end
        if tag is not None or not self._undecided(end, i):
            self.verdict = LEAVE
        return i

    # --- snapshot -----------------------------------------------------------------------------------------------------

    def snapshot(self) -> bytes:
        """See CallEngine."""
        return msgspec.msgpack.encode(
            KvState(
                self._phase, self._guarded, self._inside, self.seen, self.sure, self._ended, pack("".join(self._part)),
                self._start, self._head, self._mid, self._pairs.snapshot(),
                b"" if self._json is None else self._json.snapshot(), self._scanner.snapshot(),
            )
        )  # fmt: skip

    def restore(self, state: bytes) -> None:
        """See CallEngine."""
        was = msgspec.msgpack.decode(state, type=KvState)
        self._scans = KvScans(self.tags, self.site.lexicon)
        self._phase, self._guarded, self._inside = was.phase, was.guarded, was.inside
        self.seen, self.sure, self._ended = was.seen, was.sure, was.ended
        self._part = [unpack(was.part)]
        self._start, self._head, self._mid = was.start, was.head, was.mid
        self._pairs.restore(was.pairs, self._scans)
        self._scanner = js.JsonScanner(was.scanner)
        if self._json is not None:
            self._json.restore(was.json)

    _PHASES: ClassVar[dict[int, Callable[[KvCalls, str, int], int]]] = {
        SECTION: _section, LEAD: _lead, WORD: _word, GAP: _gap, OBJECT: _object, CLOSE: _close,
    }  # fmt: skip
