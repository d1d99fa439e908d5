"""Header and JSON: a call is a name between literals, then its arguments as JSON text.

    block   ::= section { WS call } WS [ section-end ] | call { WS call }
    call    ::= CALL WS { lead WS } [ word SEP ] name WS end [ number ] WS { around WS } json WS { around WS } [ close ]
    end     ::= one of ``ends`` | a newline, behind a word | the ``{`` of the arguments, where ``brace`` allows it
    json    ::= object | string that holds an object | "null" | nothing

Which literals these are is in the family's ``Header``. The name goes out at its end. Arguments go out as written, from
their ``{`` to its ``}``, and the call is complete there: no literal behind it is needed. Raw control characters inside
strings go out escaped. A literal inside a JSON string is text, also where it is a special token.

What stands between calls, or behind one, and is neither a call nor the section's end, is dropped with a fault, up to
the next opener or the section's end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, TypeAlias

import msgspec

from stages.events import FaultCode, Marker
from stages.parse import arguments as js
from stages.parse.engines import BROKEN, DONE, MORE, SKIP, SPOILED
from stages.parse.site import Site
from stages.parse.text import MARK, OUT
from stages.parse.writer import pack, unpack

SECTION, OPEN, NAME, GAP, CHOOSE, NUMBER, BODY, OBJECT, STRING, NULL, TAIL, BETWEEN = range(12)
_UNDECIDED: Final = -1
_VALUES: Final = {"{": OBJECT, '"': STRING, "n": NULL}
NAMES: Final = re.compile(f"[^\\s<{{`{OUT}{MARK}]++")
"""What most names are made of: nothing that could begin a literal or the arguments."""
_NUMBERS: Final = re.compile(r"[\w.:-]++")

Wire: TypeAlias = Callable[[str, str, Set[str]], tuple[str, str]]
"""(what stands for the name, the id behind it or "", ids in use) → (name or "" if there is none, id or "")."""


def as_written(head: str, number: str, used: Set[str]) -> tuple[str, str]:
    """The name is written as it is, and no id with it."""
    del number, used
    return head, ""


@dataclass(frozen=True, slots=True)
class Header:
    """A family's literals; "" and (): it has none."""

    call: str
    ends: tuple[str, ...]
    """End the name."""
    close: str = ""
    section: str = ""
    section_end: str = ""
    lead: tuple[str, ...] = ()
    """May stand before the name."""
    around: tuple[str, ...] = ()
    """May stand before the arguments and behind them."""
    number: str = ""
    """Opens an id behind the name."""
    brace: bool = False
    """The arguments may follow the name without an end."""
    word: Literal["never", "function", "always"] = "never"
    """A type word may stand in the name's place, the name then behind its end, on a line: only the word ``function``,
    or any. The arguments' ``{`` behind the end tells that it was the name."""
    names: re.Pattern[str] = NAMES
    wire: Wire = as_written
    infer: bool = False
    """A name of digits only is none: the arguments' keys tell the tool, if they fit exactly one."""

    def literals(self) -> tuple[str, ...]:
        """All of them."""
        found = (self.call, *self.ends, self.close, self.section, self.section_end, *self.lead, *self.around)
        return tuple(dict.fromkeys(filter(None, (*found, self.number))))


class HeaderState(msgspec.Struct, frozen=True):
    """The engine's snapshot; texts are packed."""

    phase: int
    inside: bool
    sure: bool
    seen: bool
    word: bool
    unnamed: bool
    name: bytes
    start: int
    end: int
    gap: bytes
    number: bytes
    wire: str
    part: bytes
    part_start: int
    used: tuple[str, ...]
    scanner: js.JsonState


class HeaderJson:
    """See CallEngine."""

    __slots__ = (
        "_end", "_final", "_gap", "_inside", "_name", "_number", "_part", "_part_start", "_phase", "_scan", "_scanner",
        "_site", "_start", "_unnamed", "_used", "_wire", "_word", "code", "header", "seen", "sure", "verdict", "writer",
    )  # fmt: skip

    def __init__(self, site: Site, header: Header) -> None:
        self.writer = site.writer
        self.header = header
        self.verdict = MORE
        self.code = FaultCode.MALFORMED_CALL
        self._site = site
        self._inside = False
        """A section is open, as far as is known here."""
        self._used: dict[str, None] = {}
        """The ids that were sent."""
        self._part_start = 0
        self.begin(header.call, False)

    def begin(self, opener: str, guarded: bool) -> None:
        """See CallEngine. A special token cannot be a mention: its letters are other tokens."""
        del guarded
        header = self.header
        self._scan = self._site.lexicon.scan(*header.literals())
        self._final = False
        self._inside = self._inside or (opener == header.section != "")
        self.seen = self._inside and opener == header.call
        self.sure = self._site.lexicon.form(opener) != opener
        self._call()
        self._phase = SECTION if opener == header.section else OPEN

    def _call(self) -> None:
        self._phase = OPEN
        self._word = False
        self._unnamed = False
        self._name: list[str] = []
        self._start = self._end = self.writer.pos
        self._gap: list[str] = []
        self._number: list[str] = []
        self._wire = ""
        self._scanned(OPEN)

    def _scanned(self, phase: int) -> None:
        self._phase = phase
        self._scanner = js.JsonScanner()
        self._part: list[str] = []

    @property
    def busy(self) -> bool:
        """See CallEngine."""
        return self._phase < TAIL

    @property
    def flow(self) -> Callable[[str], object] | None:
        """See CallEngine."""
        return self._scanner.flow if self._phase == OBJECT and not self._unnamed else None

    @property
    def since(self) -> int:
        """See CallEngine."""
        return self._part_start if self._phase in (STRING, NULL) else self.writer.pos

    def kept(self) -> tuple[str, int]:
        """See CallEngine."""
        return ("".join(self._part) if self._phase in (STRING, NULL) else "", self.since)

    def feed(self, text: str, i: int, final: bool) -> int:
        """See CallEngine."""
        n = len(text)
        self.verdict = MORE
        self._final = final
        while i < n and not self.verdict:
            j = self._PHASES[self._phase](self, text, i)
            if j == _UNDECIDED:
                break
            i = j
        return i

    def repaired(self) -> None:
        """See CallEngine: there is no REPAIR here."""

    # --- what phases share ---------------------------------------------------------------------------------------

    def _broken(self, code: FaultCode | None = None, verdict: int = BROKEN) -> None:
        self.verdict = verdict
        self.code = code or (FaultCode.MALFORMED_CALL if self.sure else FaultCode.STRAY_MARKER)

    def _literal(self, text: str, i: int) -> tuple[str | None, int]:
        """The literal at ``i`` and its end; (None, _UNDECIDED): it may become one; else (None, ``i``)."""
        found, end = self._scan.at(text, i, self._final)
        if found is not None:
            return found, end
        if end == i:
            return None, _UNDECIDED
        if self._final and self._scan.at(text, i, False)[1] == i:
            # The output ended inside a literal.
            self.writer.marker(text[i:])
            return None, len(text)
        return None, i

    def _space(self, text: str, i: int) -> int:
        j = js.space(text, i)
        if j > i:
            self.writer.marker(text[i:j])
        return j

    # --- phases: each consumes, sets the verdict, changes the phase, or says _UNDECIDED ----------------------------

    def _section(self, text: str, i: int) -> int:
        j = self._space(text, i)
        if j > i:
            return j
        found, end = self._literal(text, i)
        if found is not None and found == self.header.call:
            self.sure = self.seen = True
            self.writer.commit()
            return self._open_call(found, end)
        if found is not None and found == self.header.section_end:
            return self._section_end(found, end)
        if end == i or found is not None:
            self._inside = False
            self._broken()
            return i
        return end

    def _open_call(self, found: str, end: int) -> int:
        self.writer.begin()
        self.writer.literal(found)
        self._call()
        return end

    def _section_end(self, found: str, end: int) -> int:
        self.writer.literal(found)
        self._inside = False
        self._phase = BETWEEN
        self.verdict = DONE
        return end

    def _open(self, text: str, i: int) -> int:
        j = self._space(text, i)
        if j > i:
            return j
        if self.header.names.match(text, i):
            self._phase = NAME
            self._start = self._end = self.writer.take("")[0]
            return i
        found, end = self._literal(text, i)
        if found is not None and found in self.header.lead:
            self.writer.literal(found)
            return end
        if end == i or found is not None:
            self._broken()
            return i
        return end

    def _letters(self, text: str, i: int) -> int:
        match = self.header.names.match(text, i)
        if match is None:
            self._phase = GAP
            return i
        self._name.append(match.group())
        self._end = self.writer.take(match.group())[1]
        return match.end()

    def _between_parts(self, text: str, i: int) -> int:
        """Between the name and what ends it."""
        j = js.space(text, i)
        if j > i:
            space = text[i:j]
            line = space.find("\n") + 1
            if self._word and line:
                self._take_gap(space[:line])
                self._named()
                return i + line
            self._take_gap(space)
            return j
        header = self.header
        found, end = self._literal(text, i)
        if found is not None and self._ends(found):
            return self._ended_by(found, i, end)
        if found is not None and found == header.number:
            self._take_gap(found)
            self._phase = NUMBER
            return end
        if found is None and end == i and text[i] == "{" and (header.brace or self._word):
            self._named()
        elif end == i or found is not None:
            self._broken()
            return i
        return end

    def _ends(self, found: str) -> bool:
        header = self.header
        if self._word:
            return found in (*header.around, header.close)
        return found in header.ends or (header.brace and found == header.call)

    def _ended_by(self, found: str, i: int, end: int) -> int:
        if self._word or found == self.header.call:
            self._named()
            return i
        self._take_gap(found)
        word = self.header.word
        if word == "always" or (word == "function" and "".join(self._name) == "function"):
            self._phase = CHOOSE
        else:
            self._named()
        return end

    def _take_gap(self, text: str) -> None:
        self._gap.append(text)
        self.writer.take(text)

    def _choose(self, text: str, i: int) -> int:
        """Behind what ends the name, or the word: the arguments, or the name."""
        j = js.space(text, i)
        if j > i:
            self._take_gap(text[i:j])
            return j
        found, end = self._literal(text, i)
        if found is None and end != i:
            return end
        if found is None and self.header.names.match(text, i):
            self.writer.emit_at(Marker, "".join((*self._name, *self._gap)), self._start)
            self._call()
            self._word = True
            self._phase = NAME
            self._start = self._end = self.writer.take("")[0]
        elif text[i] == "{" or "".join(self._name) != "function":
            self._named()
        else:
            self._broken(FaultCode.MALFORMED_CALL)
        return i

    def _digits(self, text: str, i: int) -> int:
        match = _NUMBERS.match(text, i)
        if match is None:
            self._phase = GAP
            return i
        self._number.append(match.group())
        self._take_gap(match.group())
        return match.end()

    def _named(self) -> None:
        """The header is whole."""
        visible = self.writer.alphabet.visible
        head = visible("".join(self._name))
        name, self._wire = self.header.wire(head, visible("".join(self._number)), self._used.keys())
        self._phase = BODY
        self.sure = True
        if self.header.infer and head.isdecimal():
            self._unnamed = True
        elif name:
            self._start_call(name)
        else:
            self._broken(FaultCode.MALFORMED_CALL, SPOILED)

    def _start_call(self, name: str) -> None:
        self.writer.call_start(name, (self._start, self._end), self._wire)
        if self._gap:
            self.writer.emit_at(Marker, "".join(self._gap), self._end)
        if self._wire and not self.writer.whole:
            self._used[self._wire] = None

    def _body(self, text: str, i: int) -> int:
        j = self._space(text, i)
        if j > i:
            return j
        phase = _VALUES.get(text[i])
        if phase is not None:
            self._scanned(phase)
            self._part_start = self.writer.pos
            return i
        header = self.header
        found, end = self._literal(text, i)
        if found is not None and found in header.around:
            self.writer.literal(found)
            return end
        if found is not None and found in (header.close, header.section_end, header.call):
            self._argue("{}", (self.writer.pos, self.writer.pos))
            return i
        if end == i or found is not None:
            self._broken(FaultCode.BAD_ARGUMENTS)
            return i
        return end

    # --- the arguments -------------------------------------------------------------------------------------------

    def _value(self, text: str, i: int) -> int:
        scanner = self._scanner
        j = scanner.feed(text, i)
        status = scanner.status
        if j > i:
            self._piece(text[i:j])
        if status == js.CONTROL:
            self._control(text[j])
            return j + 1
        if status == js.END:
            self._whole()
        elif status == js.BAD:
            self._broken(FaultCode.BAD_ARGUMENTS)
        return j

    def _piece(self, piece: str) -> None:
        if self._phase == OBJECT and not self._unnamed:
            self.writer.arguments(piece)
        else:
            self._part.append(piece)
            self.writer.take(piece)

    def _control(self, char: str) -> None:
        if self._phase != OBJECT:
            self._piece(char)
            return
        src = self.writer.take(char)
        if self._unnamed:
            self._part.append(js.escaped(char))
        else:
            self.writer.arguments_at(js.escaped(char), src)

    def _whole(self) -> None:
        """The value is whole."""
        if self._phase == OBJECT and not self._unnamed:
            self._complete()
            return
        text: str | None = self.writer.alphabet.visible("".join(self._part), quoted=True)
        if self._phase == NULL:
            text = "{}"
        elif self._phase == STRING and text is not None:
            value = js.string_value(text)
            text = js.object_text(value) if value.strip() else "{}"
        if text is None:
            self._broken(FaultCode.BAD_ARGUMENTS, SPOILED)
        else:
            self._argue(text, (self._part_start, self.writer.pos))

    def _argue(self, text: str, src: tuple[int, int]) -> None:
        if self._unnamed:
            name = self._fits(text)
            if name is None:
                self._broken(FaultCode.MALFORMED_CALL, SPOILED)
                return
            self._start_call(name)
        self.writer.arguments_at(text, src)
        self._complete()

    def _fits(self, text: str) -> str | None:
        """The one tool that takes these arguments; None if there is none, or more."""
        try:
            keys: set[str] = set(_DECODER.decode(text))
        except (ValueError, RecursionError):
            return None
        tools = self._site.tools
        found: list[str] = []
        for name in sorted(tools.names):
            parameters = tools.get(name)
            if parameters is not None and parameters.required <= keys <= parameters.keys:
                found.append(name)
        return found[0] if len(found) == 1 else None

    def _complete(self) -> None:
        self.writer.call_end(True)
        if self._wire:
            self._used[self._wire] = None
        self._scanned(TAIL)

    # --- behind a call -------------------------------------------------------------------------------------------

    def _behind(self, text: str, i: int) -> int:
        j = self._space(text, i)
        if j > i:
            return j
        header = self.header
        found, end = self._literal(text, i)
        if found is None:
            if end == i:
                self._over(None)
            return end
        if self._phase == TAIL and (found in header.around or found == header.close):
            self.writer.literal(found)
            self._phase = BETWEEN if found == header.close else TAIL
            return end
        if found == header.section_end:
            return self._section_end(found, end)
        if found == header.call and self._inside:
            return self._open_call(found, end)
        self._over(found)
        return i

    def _over(self, found: str | None) -> None:
        """Neither another call of this block nor its end: another block, content, or junk."""
        apart = self._phase == BETWEEN and not self._inside
        self.verdict = DONE if apart or found in (self.header.call, self.header.section) else SKIP

    # --- snapshot ---------------------------------------------------------------------------------------------------

    def snapshot(self) -> bytes:
        """See CallEngine."""
        return msgspec.msgpack.encode(
            HeaderState(
                self._phase, self._inside, self.sure, self.seen, self._word, self._unnamed, pack("".join(self._name)),
                self._start, self._end, pack("".join(self._gap)), pack("".join(self._number)), self._wire,
                pack("".join(self._part)), self._part_start, tuple(self._used), self._scanner.snapshot(),
            )
        )  # fmt: skip

    def restore(self, state: bytes) -> None:
        """See CallEngine."""
        was = msgspec.msgpack.decode(state, type=HeaderState)
        self._scan = self._site.lexicon.scan(*self.header.literals())
        self._phase, self._inside = was.phase, was.inside
        self.sure, self.seen, self._word, self._unnamed = was.sure, was.seen, was.word, was.unnamed
        self._name, self._gap, self._number = [unpack(was.name)], [unpack(was.gap)], [unpack(was.number)]
        self._start, self._end, self._wire = was.start, was.end, was.wire
        self._part, self._part_start = [unpack(was.part)], was.part_start
        self._used = dict.fromkeys(was.used)
        self._scanner = js.JsonScanner(was.scanner)

    _PHASES: ClassVar[dict[int, Callable[[HeaderJson, str, int], int]]] = {
        SECTION: _section, OPEN: _open, NAME: _letters, GAP: _between_parts, CHOOSE: _choose, NUMBER: _digits,
        BODY: _body, OBJECT: _value, STRING: _value, NULL: _value, TAIL: _behind, BETWEEN: _behind,
    }  # fmt: skip


_DECODER: Final[Any] = json.JSONDecoder(parse_int=str, parse_float=str, strict=False)
