"""The pairs of a key/value call: tagged keys and values become one JSON object. ``kv_tags`` has the grammar."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

import msgspec

from stages.events import Dropped, FaultCode, Marker
from stages.parse import arguments as js
from stages.parse.engines import BROKEN, LEAVE, MORE, SPOILED, named
from stages.parse.engines.kv_table import FAR, KvScans, KvTags
from stages.parse.literals import WHITE, json_text, quoted
from stages.parse.site import Site
from stages.parse.types import Types, coerce, types_of
from stages.parse.writer import pack, unpack

PAIRS, KEY, BEHIND_KEY, TYPE, VALUE = range(5)
STATES: Final = named(globals())
_WORDS: Final = frozenset(("true", "false", "null"))


class KvPairsState(msgspec.Struct, frozen=True):
    """The reader's snapshot; texts are packed."""

    phase: int
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


class KvPairs:
    """Reads from behind the name up to the end of the call, which it leaves unread (verdict LEAVE).

    ``strict``: what else would be a fault beside the call breaks it.
    """

    __slots__ = (
        "_first", "_head", "_junk", "_key", "_mid", "_name", "_part", "_phase", "_quoted", "_scans", "_site", "_start",
        "_strict", "_tags", "_type", "_types", "_wait", "verdict", "writer",
    )  # fmt: skip

    def __init__(self, site: Site, tags: KvTags, strict: bool) -> None:
        self._site = site
        self.writer = site.writer
        self.verdict = MORE
        self._tags = tags
        self._strict = strict
        self.begin("", KvScans(tags, site.lexicon))

    def begin(self, name: str, scans: KvScans) -> None:
        """A call of this tool begins."""
        self._scans = scans
        self._name = name
        self._phase = PAIRS
        self._part: list[str] = []
        """Raw text that was taken and given to no event yet, from byte ``_start`` on. Behind a key its first ``_head``
        characters, up to byte ``_mid``, are the key."""
        self._start = self._head = self._mid = 0
        self._junk = -1
        """Where text between pairs began."""
        self._first = True
        self._quoted = False
        """The value goes out as it comes, in quotes."""
        self._key = self._type = ""
        self._types: Types | None = None
        self._wait = False

    @property
    def state(self) -> str:
        """See CallEngine."""
        return STATES[self._phase]

    @property
    def flow(self) -> Callable[[str], object] | None:
        """See CallEngine."""
        return self._scans.notable if self._phase == VALUE and self._quoted else None

    @property
    def since(self) -> int:
        """See CallEngine."""
        return self._start if self._part else self.writer.pos

    def kept(self) -> tuple[str, int]:
        """See CallEngine."""
        return "".join(self._part), self.since

    def feed(self, text: str, i: int, final: bool) -> int:
        """See CallEngine. Verdicts: MORE, LEAVE, BROKEN, SPOILED."""
        n = len(text)
        self.verdict = MORE
        self._wait = False
        while i < n and not self._wait and not self.verdict:
            if self._phase == VALUE:
                i = self._value(text, i, final and self._site.ended)
            else:
                i = self._PHASES[self._phase](self, text, i)
        return i

    def end(self) -> None:
        """The call is complete."""
        pos = self.writer.pos
        self.writer.arguments_at("{}" if self._first else "}", (pos, pos))

    def keep(self, text: str) -> None:
        """Take text whose event comes later."""
        if text:
            start, _ = self.writer.take(text)
            if not self._part:
                self._start = start
            self._part.append(text)

    def _broken(self) -> None:
        self.verdict = BROKEN

    def _undecided(self, end: int, i: int) -> bool:
        """No tag begins at ``i``. It may become one: wait for more."""
        self._wait = end == i
        return self._wait

    def _odd(self, detail: str, start: int, end: int) -> None:
        """Something is forgotten or too much."""
        if self._strict:
            self.verdict = SPOILED
        else:
            self.writer.fault(FaultCode.MALFORMED_CALL, (start, end), detail=detail)

    def _taken(self) -> str:
        raw = "".join(self._part)
        self._part.clear()
        return raw

    # --- between pairs ------------------------------------------------------------------------------------------------

    def _between(self, text: str, i: int) -> int:
        if self._junk < 0 and (j := js.space(text, i)) > i:
            self.writer.marker(text[i:j])
            i = j
        start, tag, end = self._scans.pairs.find(text, i, False)
        if start > i:
            if self._strict:
                self._broken()
                return i
            if self._junk < 0:
                self._junk = self.writer.pos
            self.writer.emit(Dropped, text[i:start])
        if tag is None:
            self._wait = start < len(text)
            return start
        if self._junk >= 0:
            junk, self._junk = self._junk, -1
            self._odd("text between arguments", junk, self.writer.pos)
        if tag == self._tags.key[0]:
            self.writer.literal(text[start:end])
            self._phase = KEY
            self._type = ""
            return end
        self.verdict = LEAVE if tag == self._tags.call[1] else BROKEN
        return start

    def _in_key(self, text: str, i: int) -> int:
        start, tag, end = self._scans.key.find(text, i, False)
        self.keep(text[i:start])
        if tag is None:
            self._wait = start < len(text)
            return start
        whole = tag == self._tags.key[1]
        bare = tag == self._tags.call[1] and self._is_object("".join(self._part))
        if not (whole or bare or tag == self._tags.value[0]):
            self._broken()
            return start
        pos = self._mid = self.writer.pos
        self._head = sum(map(len, self._part))
        if not self._part:
            self._start = pos
        if whole:
            self.keep(text[start:end])
        elif not bare:
            self._odd("a key without its end", pos, pos)
        self._phase = BEHIND_KEY
        return end if whole else start

    def _is_object(self, key: str) -> bool:
        return self._tags.object_key and self._first and key.lstrip(WHITE).startswith("{")

    def _behind_key(self, text: str, i: int) -> int:
        j = js.space(text, i)
        self.keep(text[i:j])
        if j == len(text):
            return j
        tag, end = self._scans.behind_key.at(text, j, False)
        if tag is None:
            if not self._undecided(end, j):
                self._broken()
        elif tag == self._tags.value[0]:
            self._open_value(text[j:end])
            return end
        elif self._tags.type is not None and tag == self._tags.type[0]:
            if not self._type:
                self.keep(text[j:end])
                self._phase = TYPE
                return end
            self._broken()
        else:
            self._no_value()
        return j

    def _in_type(self, text: str, i: int) -> int:
        start, tag, end = self._scans.types.find(text, i, False)
        self.keep(text[i:start])
        self._type += text[i:start][: FAR - len(self._type)]
        if tag is None:
            self._wait = start < len(text)
            return start
        assert self._tags.type is not None
        if tag != self._tags.type[1]:
            self._broken()
            return start
        self.keep(text[start:end])
        self._type = self._type.strip(WHITE) or "string"
        self._phase = BEHIND_KEY
        return end

    def _no_value(self) -> None:
        start, end = self._start, self.writer.pos
        raw = self._taken()
        key = raw[: self._head]
        self._phase = PAIRS
        text = js.object_text(self.writer.alphabet.visible(key, quoted=True)) if self._is_object(key) else None
        if text is not None:
            # The brace that ends it is written with the end of the call.
            body = text[:-1].rstrip(WHITE)
            self._first = body == "{"
            if not self._first:
                self.writer.arguments_at(body, (start, self._mid))
            self.writer.emit_at(Marker, raw if self._first else raw[self._head :], start if self._first else self._mid)
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
        name = quoted(self.writer.alphabet.visible(key).strip(WHITE))
        self.writer.arguments_at(f'{"{" if self._first else ", "}"{name}": {value}', (start, self._mid))
        self._first = False

    def _typed(self, key: str) -> Types | None:
        """What the value of this key is; None: nobody says."""
        if self._type:
            return types_of({"type": self._type}, {})
        tool = self._site.tools.get(self._name)
        if tool is None or not tool.given:
            return None
        return tool.types(self.writer.alphabet.visible(key).strip(WHITE))

    def _open_value(self, tag: str) -> None:
        start = self._start
        raw = self._taken()
        self._key = raw[: self._head]
        self._types = types = self._typed(self._key)
        self._quoted = types is not None and types.verbatim and not self._tags.null
        self._member('"' if self._quoted else "", self._key, start)
        self.writer.emit_at(Marker, raw[self._head :], self._mid)
        self.writer.literal(tag)
        self._phase = VALUE

    def _value(self, text: str, i: int, ended: bool) -> int:
        scans, closer = self._scans, self._tags.value[1]
        start, tag, end = scans.value.find(text, i, False)
        while tag is not None and tag != closer:
            known = scans.ends_value(tag, text, end, ended)
            if known:
                break
            if known is None:
                tag = None
            else:
                start, tag, end = scans.value.find(text, end, False)
        if start > i:
            self._piece(text[i:start])
        if tag is None:
            self._wait = start < len(text)
            return start
        self._end_value()
        self._phase = PAIRS
        if tag == closer:
            self.writer.literal(text[start:end])
            return end
        self._odd("a value without its end", self.writer.pos, self.writer.pos)
        return start

    def _piece(self, text: str) -> None:
        if self._quoted:
            self.writer.string(text)
            return
        self.keep(text)
        if self._types is not None and self._types.verbatim and not _nullish("".join(self._part)):
            # It is not null, so that it is a string.
            start = self._start
            self._quoted = True
            self.writer.arguments_at('"', (start, start))
            self.writer.string_at(self._taken(), start)

    def _end_value(self) -> None:
        start, pos = self.since, self.writer.pos
        if self._quoted:
            self._quoted = False
            self.writer.arguments_at('"', (pos, pos))
            return
        raw = self.writer.alphabet.visible(self._taken())
        if self._tags.null and raw.strip().lower() == "null":
            value = "null"
        elif self._types is None:
            value = _guessed(raw)
        else:
            value = coerce(raw, self._types)
        self.writer.arguments_at(value, (start, pos))

    # --- snapshot -----------------------------------------------------------------------------------------------------

    def snapshot(self) -> KvPairsState:
        """The state as plain data."""
        return KvPairsState(
            self._phase, self._first, self._quoted, pack("".join(self._part)), self._start, self._head, self._mid,
            self._junk, self._name, pack(self._key), pack(self._type),
        )  # fmt: skip

    def restore(self, was: KvPairsState, scans: KvScans) -> None:
        """Continue from ``snapshot``."""
        self.begin(was.name, scans)
        self._phase, self._first, self._quoted = was.phase, was.first, was.quoted
        self._part = [unpack(was.part)] if was.part else []
        self._start, self._head, self._mid, self._junk = was.start, was.head, was.mid, was.junk
        self._key, self._type = unpack(was.key), unpack(was.type)
        self._types = self._typed(self._key)

    _PHASES: ClassVar[dict[int, Callable[[KvPairs, str, int], int]]] = {
        PAIRS: _between, KEY: _in_key, BEHIND_KEY: _behind_key, TYPE: _in_type,
    }  # fmt: skip


def _nullish(text: str) -> bool:
    return "null".startswith(text.lower())


def _guessed(raw: str) -> str:
    """A value of which no schema speaks: JSON other than a string, if it is that."""
    text = raw.strip(WHITE)
    found = json_text(text) if text in _WORDS or (text and text[0] in "{[-0123456789") else None
    return f'"{quoted(raw)}"' if found is None else found
