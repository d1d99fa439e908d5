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

import re
from collections.abc import Callable
from typing import Any, ClassVar, Final

from stages.events import FaultCode, Marker
from stages.parse import arguments as js
from stages.parse.engines import DONE, MORE, SKIP
from stages.parse.engines.header_body import (
    BETWEEN,
    BODY,
    CHOOSE,
    GAP,
    NAME,
    NULL,
    NUMBER,
    OBJECT,
    OPEN,
    SECTION,
    STRING,
    TAIL,
    HeaderCall,
)
from stages.parse.engines.header_table import Header
from stages.parse.site import Site

_UNDECIDED: Final = -1
_VALUES: Final = {"{": OBJECT, '"': STRING, "n": NULL}
_NUMBERS: Final = re.compile(r"[\w.:-]++")


class HeaderJson(HeaderCall):
    """See CallEngine."""

    __slots__ = ("_final", "_scan")

    def __init__(self, site: Site, header: Header) -> None:
        super().__init__(site, header)
        self.begin(header.call, False)

    def begin(self, opener: str, guarded: bool) -> None:
        """See CallEngine."""
        del guarded
        header = self.header
        self._scan = self._site.lexicon.scan(*header.literals())
        self._final = False
        self._inside = self._inside or (opener == header.section != "")
        self.seen = self._inside and opener == header.call
        self.sure = False
        self._special = self._site.lexicon.form(opener) != opener
        self._headed = self.seen
        self._call()
        self._phase = SECTION if opener == header.section else OPEN

    @property
    def busy(self) -> bool:
        """See CallEngine."""
        return self._phase < TAIL

    def feed(self, text: str, i: int, final: bool) -> int:
        """See CallEngine."""
        n = len(text)
        self.verdict = MORE
        self._final = final
        if final and self._special:
            # The letters of a mention are other tokens. What breaks may still be one: reasoning then goes on.
            self.sure = True
        while i < n and not self.verdict:
            j = self._PHASES[self._phase](self, text, i)
            if j == _UNDECIDED:
                break
            i = j
        return i

    def repaired(self) -> None:
        """See CallEngine: there is no REPAIR here."""

    # --- what phases share ---------------------------------------------------------------------------------------

    def _literal(self, text: str, i: int) -> tuple[str | None, int]:
        """The literal at ``i`` and its end; (None, _UNDECIDED): it may become one; else (None, ``i``)."""
        found, end = self._scan.at(text, i, self._final)
        if self._final and end < len(text) and self._scan.at(text, i, False) == (None, i):
            # The output ended inside a literal.
            self.writer.marker(text[i:])
            return None, len(text)
        if found is not None:
            return found, end
        return None, _UNDECIDED if end == i else i

    # --- phases: each consumes, sets the verdict, changes the phase, or says _UNDECIDED ----------------------------

    def _section(self, text: str, i: int) -> int:
        j = self.writer.space(text, i)
        if j > i:
            return j
        found, end = self._literal(text, i)
        if found is not None and found == self.header.call:
            self.sure = self.seen = self._headed = True
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
        j = self.writer.space(text, i)
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

    def _body(self, text: str, i: int) -> int:
        j = self.writer.space(text, i)
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

    # --- behind a call -------------------------------------------------------------------------------------------

    def _behind(self, text: str, i: int) -> int:
        j = self.writer.space(text, i)
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

    def restore(self, state: bytes) -> None:
        """See CallEngine."""
        super().restore(state)
        self._scan = self._site.lexicon.scan(*self.header.literals())

    _PHASES: ClassVar[dict[int, Callable[[Any, str, int], int]]] = {
        SECTION: _section, OPEN: _open, NAME: _letters, GAP: _between_parts, CHOOSE: _choose, NUMBER: _digits,
        BODY: _body, OBJECT: HeaderCall.value, STRING: HeaderCall.value, NULL: HeaderCall.value,
        TAIL: _behind, BETWEEN: _behind,
    }  # fmt: skip
