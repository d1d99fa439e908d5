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

from stages.events import Dropped, FaultCode, Marker
from stages.parse import arguments as js
from stages.parse.engines import BROKEN, DONE, LEAVE, MORE, REPAIR, SPOILED
from stages.parse.engines.json_calls import JsonCalls
from stages.parse.engines.kv_table import FAR, NAME, KvScans, KvTags
from stages.parse.literals import json_text, quoted
from stages.parse.site import Site
from stages.parse.types import STRING, Types, coerce, types_of
from stages.parse.writer import pack, unpack

SECTION, LEAD, WORD, GAP, PAIRS, KEY, BEHIND_KEY, TYPE, VALUE, JSON, OBJECT, CLOSE, CLOSED = range(13)
_WHITE: Final = " \t\r\n"
_WORDS: Final = frozenset(("true", "false", "null"))


class KvState(msgspec.Struct, frozen=True):
    """The engine's snapshot; texts are packed."""

    phase: int
    guarded: bool
    inside: bool
    seen: bool
    sure: bool
    ended: bool
    first: bool
    quoted: bool
    part: bytes
    start: int
    head: int
    mid: int
    junk: int
    name: str
    key: bytes
    type: bytes
    json: bytes
    scanner: js.JsonState


class KvCalls:
    """See CallEngine. ``strict``: what else would be a fault beside the call makes it no call."""

    __slots__ = (
        "_ended", "_final", "_first", "_guarded", "_head", "_inside", "_json", "_junk", "_key", "_mid", "_name", "_part",
        "_phase", "_quoted", "_scanner", "_scans", "_start", "_strict", "_type", "_types", "_wait", "code", "seen", "site",
        "sure", "tags", "verdict", "writer",
    )  # fmt: skip

    def __init__(self, site: Site, tags: KvTags, *, strict: bool = False) -> None:
        self.site = site
        self.writer = site.writer
        self.tags = tags
        self.verdict = MORE
        self.code = FaultCode.MALFORMED_CALL
        self._strict = strict
        self._json = None if tags.json is None else JsonCalls(site, tags.json)
        self._inside = False
        self._final = False
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
        self._wait = False
        self._scanner = js.JsonScanner()
        self._types: Types | None = None
        self._call()

    def _call(self) -> None:
        self._part: list[str] = []
        self._start = self._head = self._mid = 0
        self._junk = -1
        self._first = True
        self._quoted = False
        self._name = self._key = self._type = ""

    @property
    def busy(self) -> bool:
        """See CallEngine."""
        if self._phase == JSON and self._json is not None:
            return self._json.busy
        return self._phase not in (CLOSE, CLOSED) and not (self._phase == SECTION and self._ended)

    @property
    def flow(self) -> Callable[[str], object] | None:
        """See CallEngine."""
        if self._phase == VALUE and self._quoted:
            return self._scans.notable
        if self._phase == JSON and self._json is not None:
            return self._json.flow
        return self._scanner.flow if self._phase == OBJECT else None

    @property
    def since(self) -> int:
        """See CallEngine."""
        if self._phase == JSON and self._json is not None:
            return self._json.since
        return self._start if self._part else self.writer.pos

    def kept(self) -> tuple[str, int]:
        """See CallEngine."""
        if self._phase == JSON and self._json is not None:
            return self._json.kept()
        return "".join(self._part), self.since

    def feed(self, text: str, i: int, final: bool) -> int:
        """See CallEngine."""
        n = len(text)
        self.verdict = MORE
        self._final = final
        self._wait = False
        while i < n and not self._wait and not self.verdict:
            i = self._PHASES[self._phase](self, text, i)
        if final and i < n and not self.verdict:
            self._keep(text[i:])  # what may have become a tag
            return n
        return i

    def repaired(self) -> None:
        """See CallEngine."""
        if self._json is not None:
            self._json.repaired()

    # --- what phases have in common -----------------------------------------------------------------------------------

    def _space(self, text: str, i: int) -> int:
        j = js.space(text, i)
        if j > i:
            self.writer.marker(text[i:j])
        return j

    def _keep(self, text: str) -> None:
        if text:
            if not self._part:
                self._start = self.writer.take(text)[0]
            else:
                self.writer.take(text)
            self._part.append(text)

    def _broken(self, code: FaultCode = FaultCode.MALFORMED_CALL, verdict: int = BROKEN) -> None:
        self.verdict = verdict
        self.code = code

    def _undecided(self, end: int, i: int) -> bool:
        """No tag begins at ``i``. It may become one: wait for more."""
        self._wait = end == i
        return self._wait

    def _odd(self, detail: str, start: int, end: int) -> bool:
        """Something is forgotten or too much. True: that breaks the call."""
        if self._strict:
            self._broken(verdict=SPOILED)
        else:
            self.writer.fault(FaultCode.MALFORMED_CALL, (start, end), detail=detail)
        return self._strict

    # --- the block ----------------------------------------------------------------------------------------------------

    def _section(self, text: str, i: int) -> int:
        i = self._space(text, i)
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
            self._call()
            self._phase = LEAD
        else:
            self._inside = False
            self._phase = CLOSED
            self.verdict = DONE
        self.writer.literal(text[i:end])
        return end

    def _lead(self, text: str, i: int) -> int:
        i = self._space(text, i)
        if i == len(text):
            return i
        if text[i] == "{" and self._json is not None:
            self._json.begin("", self._guarded)
            self._phase = JSON
        elif NAME.match(text, i):
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
        self._keep(match.group())
        return match.end()

    def _gap(self, text: str, i: int) -> int:
        j = js.space(text, i)
        self._keep(text[i:j])
        if j == len(text):
            return j
        if text[j] == "{" and self.tags.json is not None:
            return self._brace(text, j)
        tag, end = self._scans.behind_name.at(text, j, False)
        if tag is None:
            if not self._undecided(end, j):
                self._broken(FaultCode.STRAY_MARKER)
            return j
        self._named()
        self._phase = PAIRS
        if tag != self.tags.name_end:
            return j
        self.writer.literal(text[j:end])
        return end

    def _named(self) -> None:
        raw = "".join(self._part)
        self._part.clear()
        self._name = raw[: self._head]
        self.sure = True
        self.writer.call_start(self._name, (self._start, self._mid))
        self.writer.emit_at(Marker, raw[self._head :], self._mid)

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

    def _end(self) -> None:
        pos = self.writer.pos
        self.writer.arguments_at("{}" if self._first else "}", (pos, pos))
        self._complete(SECTION if self.tags.section is not None else CLOSED)
        if self._phase == CLOSED:
            self.verdict = DONE

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

    def _delegate(self, text: str, i: int) -> int:
        engine = self._json
        assert engine is not None
        i = engine.feed(text, i, self._final)
        self.sure = self.sure or engine.sure
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
        i = self._space(text, i)
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

    # --- pairs --------------------------------------------------------------------------------------------------------

    def _pairs(self, text: str, i: int) -> int:
        if self._junk < 0:
            i = self._space(text, i)
        start, tag, end = self._scans.pairs.find(text, i, False)
        if start > i and self._dropped(text[i:start]):
            return start
        if tag is None:
            self._wait = start < len(text)
            return start
        if self._junk >= 0:
            junk, self._junk = self._junk, -1
            self._odd("text between arguments", junk, self.writer.pos)
        if tag == self.tags.key[0]:
            self.writer.literal(text[start:end])
            self._phase = KEY
            self._type = ""
        elif tag == self.tags.call[1]:
            self._end()
            self.writer.literal(text[start:end])
        else:
            self._broken()
            return start
        return end

    def _dropped(self, text: str) -> bool:
        """Text where none may be. True: that breaks the call."""
        pos = self.writer.pos
        self.writer.emit(Dropped, text)
        if self._junk < 0:
            self._junk = pos
        if self._strict:
            self._broken(verdict=SPOILED)
        return self._strict

    def _in_key(self, text: str, i: int) -> int:
        start, tag, end = self._scans.key.find(text, i, False)
        self._keep(text[i:start])
        if tag is None:
            self._wait = start < len(text)
            return start
        whole = tag == self.tags.key[1]
        bare = tag == self.tags.call[1] and self._is_object("".join(self._part))
        if not (whole or bare or tag == self.tags.value[0]):
            self._broken()
            return start
        pos = self._mid = self.writer.pos
        self._head = sum(map(len, self._part))
        if not self._part:
            self._start = pos
        if whole:
            self._keep(text[start:end])
        elif not bare and self._odd("a key without its end", pos, pos):
            return start
        self._phase = BEHIND_KEY
        return end if whole else start

    def _is_object(self, key: str) -> bool:
        return self.tags.object_key and self._first and key.lstrip(_WHITE).startswith("{")

    def _behind_key(self, text: str, i: int) -> int:
        j = js.space(text, i)
        self._keep(text[i:j])
        if j == len(text):
            return j
        tag, end = self._scans.behind_key.at(text, j, False)
        if tag is None:
            if not self._undecided(end, j):
                self._broken()
        elif tag == self.tags.value[0]:
            self._open_value(text[j:end])
            return end
        elif self.tags.type is not None and tag == self.tags.type[0]:
            if not self._type:
                self._keep(text[j:end])
                self._phase = TYPE
                return end
            self._broken()
        else:
            self._no_value()
        return j

    def _in_type(self, text: str, i: int) -> int:
        start, tag, end = self._scans.types.find(text, i, False)
        self._keep(text[i:start])
        self._type += text[i:start][: FAR - len(self._type)]
        if tag is None:
            self._wait = start < len(text)
            return start
        assert self.tags.type is not None
        if tag != self.tags.type[1]:
            self._broken()
            return start
        self._keep(text[start:end])
        self._type = self._type.strip(_WHITE) or "string"
        self._phase = BEHIND_KEY
        return end

    def _no_value(self) -> None:
        raw = "".join(self._part)
        start, end = self._start, self.writer.pos
        key = raw[: self._head]
        self._part.clear()
        self._phase = PAIRS
        if self._is_object(key):
            text = js.object_text(self.writer.alphabet.visible(key, quoted=True))
            if text is not None:
                # The brace that ends it is written with the end of the call.
                body = text[:-1].rstrip(_WHITE)
                self.writer.arguments_at(body, (start, self._mid))
                self.writer.emit_at(Marker, raw[self._head :], self._mid)
                self._first = False
                return
        types = self._typed(key)
        if types is None or "string" in types.kinds:
            self._member('""', key, start)
            self.writer.emit_at(Marker, raw[self._head :], self._mid)
        else:
            self.writer.emit_at(Dropped, raw, start)
        self._odd("a key without a value", start, end)

    # --- values -------------------------------------------------------------------------------------------------------

    def _member(self, value: str, key: str, start: int) -> None:
        """The text before a value, and how that begins."""
        name = quoted(self.writer.alphabet.visible(key).strip(_WHITE))
        self.writer.arguments_at(f'{"{" if self._first else ", "}"{name}": {value}', (start, self._mid))
        self._first = False

    def _typed(self, key: str) -> Types | None:
        """What the value of this key is; None: nobody says."""
        if self._type:
            return types_of({"type": self._type}, {})
        tool = self.site.tools.get(self._name)
        if tool is None or not tool.given:
            return None
        return tool.types(self.writer.alphabet.visible(key).strip(_WHITE))

    def _open_value(self, tag: str) -> None:
        raw = "".join(self._part)
        self._part.clear()
        self._key = raw[: self._head]
        self._types = types = self._typed(self._key)
        stream = types is not None and types.verbatim
        self._quoted = stream and not self.tags.null
        self._member('"' if self._quoted else "", self._key, self._start)
        self.writer.emit_at(Marker, raw[self._head :], self._mid)
        self.writer.literal(tag)
        self._phase = VALUE

    def _value(self, text: str, i: int) -> int:
        scans, tags = self._scans, self.tags
        ended = self.site.ended if self._final else None
        start, tag, end = scans.value.find(text, i, False)
        while tag is not None and tag != tags.value[1]:
            known = scans.ends_value(tag, text, end, ended)
            if known:
                break
            if known is None:
                tag = None
                break
            start, tag, end = scans.value.find(text, end, False)
        if start > i:
            self._piece(text[i:start])
        if tag is None:
            self._wait = start < len(text)
            return start
        self._end_value()
        self._phase = PAIRS
        if tag == tags.value[1]:
            self.writer.literal(text[start:end])
            return end
        self._odd("a value without its end", self.writer.pos, self.writer.pos)
        return start

    def _piece(self, text: str) -> None:
        if self._quoted:
            self.writer.string(text)
            return
        self._keep(text)
        if self._types is not None and self._types.verbatim and not _nullish("".join(self._part)):
            self._open_string()

    def _open_string(self) -> None:
        """It is not null, so that it is a string."""
        raw, start = "".join(self._part), self.since
        self._part.clear()
        self._quoted = True
        self.writer.arguments_at('"', (start, start))
        self.writer.string_at(raw, start)

    def _end_value(self) -> None:
        pos = self.writer.pos
        if self._quoted:
            self._quoted = False
            self.writer.arguments_at('"', (pos, pos))
            return
        start = self.since
        raw = self.writer.alphabet.visible("".join(self._part))
        self._part.clear()
        if self.tags.null and raw.strip().lower() == "null":
            value = "null"
        elif self._types is None:
            value = _guessed(raw)
        else:
            value = coerce(raw, self._types)
        self.writer.arguments_at(value, (start, pos))

    # --- snapshot -----------------------------------------------------------------------------------------------------

    def snapshot(self) -> bytes:
        """See CallEngine."""
        return msgspec.msgpack.encode(
            KvState(
                self._phase, self._guarded, self._inside, self.seen, self.sure, self._ended, self._first, self._quoted,
                pack("".join(self._part)), self._start, self._head, self._mid, self._junk, self._name, pack(self._key),
                pack(self._type), b"" if self._json is None else self._json.snapshot(), self._scanner.snapshot(),
            )
        )  # fmt: skip

    def restore(self, state: bytes) -> None:
        """See CallEngine."""
        was = msgspec.msgpack.decode(state, type=KvState)
        self._scans = KvScans(self.tags, self.site.lexicon)
        self._phase, self._guarded, self._inside = was.phase, was.guarded, was.inside
        self.seen, self.sure, self._ended = was.seen, was.sure, was.ended
        self._first, self._quoted = was.first, was.quoted
        self._part = [unpack(was.part)] if was.part else []
        self._start, self._head, self._mid, self._junk = was.start, was.head, was.mid, was.junk
        self._name, self._key, self._type = was.name, unpack(was.key), unpack(was.type)
        self._scanner = js.JsonScanner(was.scanner)
        if self._json is not None:
            self._json.restore(was.json)
        self._types = self._typed(self._key)

    _PHASES: ClassVar[dict[int, Callable[[KvCalls, str, int], int]]] = {
        SECTION: _section, LEAD: _lead, WORD: _word, GAP: _gap, PAIRS: _pairs, KEY: _in_key, BEHIND_KEY: _behind_key,
        TYPE: _in_type, VALUE: _value, JSON: _delegate, OBJECT: _object, CLOSE: _close,
    }  # fmt: skip


def _nullish(text: str) -> bool:
    return "null".startswith(text.lower())


def _guessed(raw: str) -> str:
    """A value of which no schema speaks: JSON other than a string, if it is that."""
    text = raw.strip(_WHITE)
    found = json_text(text) if text in _WORDS or text[:1] in "{[-0123456789" and text else None
    return f'"{quoted(raw)}"' if found is None else found
