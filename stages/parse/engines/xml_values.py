r"""Where the value of an XML argument ends: it has no escapes, so a closer in it is told by what stands around it.

``first``   VALUE ends at the first literal of ``until``.
``follow``  VALUE ends at a closer behind which, white space between, a tag of the call follows; at the tag of another
            argument; at the end of the call. Another closer is text.
``line``    Where VALUE begins with a newline, every tag stands on a line of its own, and VALUE ends at the earliest of

            (a) NL closer WS (argument | end of the call | end of the block | block | call)
            (b) NL argument tag with its head (the closer was forgotten), or the closer before it
            (c) NL end of the call; or a closer in mid-line, WS, and the end of the call or the block: but only if no
                (a) or (b) follows before the next block or the end of the output. From here on all is held.

            A value that does not begin with a newline ends as ``first``.

What may be the end is held until that is decided; a string goes out as far as it is. An output that was cut off ends no
value: the newline, the closer and what follows may have been text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

import msgspec

from stages.parse import arguments as js
from stages.parse.engines import xml_heads as heads
from stages.parse.engines import xml_table as tb
from stages.parse.engines.xml_table import CDATA, XmlScans, XmlTable, unescaped
from stages.parse.literals import WHITE, quoted
from stages.parse.site import Site
from stages.parse.writer import pack, unpack

MORE: Final = 0
END: Final = 1
"""The value ended before the returned index."""
LOST: Final = 2
"""It ended earlier: what was held behind it is no value."""

FIRST, INLINE, RAW, START, LINE, CLOSED, MIDDLE = range(7)


class XmlValueState(msgspec.Struct, frozen=True):
    """The snapshot; texts are packed."""

    phase: int
    streams: bool
    begun: bool
    held: bytes
    at: int
    candidate: int
    weak: int


class XmlValue:
    """Reads one value after another. ``streams``: it is a string, and goes out as it comes."""

    __slots__ = (
        "_at", "_begun", "_candidate", "_held", "_phase", "_scans", "_size", "_table", "_wait", "_weak", "status",
        "streams", "writer",
    )  # fmt: skip

    def __init__(self, site: Site, table: XmlTable, scans: XmlScans) -> None:
        self.writer = site.writer
        self._table = table
        self.bind(scans)
        self.begin(streams=False)

    def bind(self, scans: XmlScans) -> None:
        """How the literals read."""
        self._scans = scans

    def begin(self, *, streams: bool) -> None:
        """A value begins."""
        self.streams = streams
        self.status = MORE
        self._phase = FIRST
        self._begun = False
        self._held: list[str] = []
        """Taken, and not delivered: of a string what is undecided, of another value all."""
        self._at = 0
        self._size = 0
        self._candidate = -1
        """Where in it the end may be."""
        self._weak = -1
        """Where it is if nothing better comes."""
        self._wait = False

    @property
    def flow(self) -> Callable[[str], object] | None:
        """See CallEngine."""
        if not self.streams or self._held or self._phase not in (INLINE, LINE) or not self._begun:
            return None
        return self._scans.notable_first if self._phase == INLINE else self._scans.notable

    @property
    def since(self) -> int:
        """The first byte of what is held."""
        return self._at if self._held else self.writer.pos

    def kept(self) -> str:
        """What is held."""
        return "".join(self._held)

    @property
    def ended(self) -> bool:
        """If nothing more comes, it was over already."""
        return self._weak >= 0 and self._candidate < 0

    def parts(self) -> tuple[str, str, int]:
        """At its end: the text of it that was not delivered, what of it is structure, and their first byte."""
        text, at = "".join(self._held), self.since
        cut = self._candidate if self.status == END else self._weak
        self._held, self._size = [], 0
        return (text, "", at) if cut < 0 else (text[:cut], text[cut:], at)

    def feed(self, text: str, i: int) -> int:
        """Read on; sets ``status``. With MORE, what is not consumed is undecided."""
        self._wait = False
        while i < len(text) and not self.status and not self._wait:
            i = self._PHASES[self._phase](self, text, i)
        return i

    def lose(self) -> None:
        """Nothing more comes, and it ``ended``."""
        self.status = LOST

    # --- text ---------------------------------------------------------------------------------------------------------

    def hold(self, text: str) -> None:
        """Take what is undecided."""
        if text:
            start, _ = self.writer.take(text)
            if not self._held:
                self._at = start
            self._held.append(text)
            self._size += len(text)

    def _give(self, text: str) -> None:
        """It is value."""
        self._begun = True
        if self.streams and not self._held:
            self.writer.string(text)
        else:
            self.hold(text)

    def deliver(self, text: str, at: int) -> None:
        """Text of a string that was held, from byte ``at`` on."""
        if not self._table.values.unescape:
            self.writer.string_at(text, at)
            return
        for meant, raw in unescaped(text, self._table.values.unescape):
            end = at + self.writer.size(raw)
            if meant == raw:
                self.writer.string_at(raw, at)
            else:
                self.writer.arguments_at(quoted(self.writer.alphabet.visible(meant)), (at, end))
            at = end

    def _end_here(self) -> None:
        """What comes next may be the end."""
        self._candidate = self._size

    def _fail(self, keep: int = 0) -> None:
        """It was not; the last ``keep`` characters are still undecided."""
        self._candidate = -1
        self._begun = True
        if self.streams and self._weak < 0 and self._held:
            text = "".join(self._held)
            cut = len(text) - keep
            self.deliver(text[:cut], self._at)
            self._at += self.writer.size(text[:cut])
            self._held = [text[cut:]] if keep else []
            self._size = keep

    # --- phases -------------------------------------------------------------------------------------------------------

    def _first(self, text: str, i: int) -> int:
        values = self._table.values
        if values.end == "line" and text[i] == "\n":
            self.writer.marker("\n")
            self._phase = START
            return i + 1
        if values.trim == "space":
            j = js.space(text, i)
            if j > i:
                self.writer.marker(text[i:j])
            if j == len(text):
                return j
            i = j
        self._phase = LINE if values.end == "follow" else INLINE
        self._begun = True
        return i

    def _inline(self, text: str, i: int) -> int:
        start, literal, end = self._scans.inline.find(text, i, False)
        if start > i:
            self._text(text[i:start])
        if literal is None:
            self._wait = start < len(text)
            return start
        if literal in self._scans.escapes:
            return self._escaped(text[start:end], literal, end)
        if literal == CDATA[0]:
            self._fail()
            if self.streams:
                self.writer.marker(text[start:end])
            else:
                self.hold(text[start:end])
            self._phase = RAW
            return end
        if self._candidate < 0:
            self._end_here()
        if literal[0] == "\n":
            self.hold("\n")
            start += 1
        self.status = END
        return start

    def _text(self, text: str) -> None:
        tail = ""
        if self._table.values.trim == "space":
            body = text.rstrip(WHITE)
            text, tail = body, text[len(body) :]
        if text:
            if self._candidate >= 0:
                self._fail()
            self._give(text)
        if tail:
            if self._candidate < 0:
                self._end_here()
            self.hold(tail)

    def _escaped(self, raw: str, literal: str, end: int) -> int:
        if self._candidate >= 0:
            self._fail()
        if self.streams and not self._held:
            self.writer.arguments_at(quoted(self._scans.escapes[literal]), self.writer.take(raw))
        else:
            self.hold(raw)
        return end

    def _raw(self, text: str, i: int) -> int:
        start, literal, end = self._scans.cdata.find(text, i, False)
        if start > i:
            self._give(text[i:start])
        if literal is None:
            self._wait = start < len(text)
            return start
        if self.streams:
            self.writer.marker(text[start:end])
        else:
            self.hold(text[start:end])
        self._phase = INLINE
        return end

    def _start(self, text: str, i: int) -> int:
        literal, end = self._scans.start.at(text, i, False)
        if literal is None and end == i:
            self._wait = True
            return i
        kind = -1 if literal is None else self._scans.tags[literal]
        if kind == tb.PARAM_END:
            self._end_here()
            self.hold(text[i:end])
            self._phase = CLOSED
            return end
        if kind == tb.PARAM:
            return self._opens(text, i, end, i)
        self._phase = LINE
        self._begun = True
        if kind == tb.CALL_END:
            self._weak = 0
            self.hold(text[i:end])
            return end
        return i

    def _line(self, text: str, i: int) -> int:
        scan = self._scans.line if self._weak < 0 else self._scans.weak
        start, literal, end = scan.find(text, i, False)
        if start > i:
            self._give(text[i:start])
        if literal is None:
            self._wait = start < len(text)
            return start
        kind = self._scans.lines.get(literal, tb.AGAIN)
        if kind == tb.OPEN:
            return self._opens(text, start, end, start + (literal[0] == "\n"))
        if kind == tb.ESCAPE:
            return self._escaped(text[start:end], literal, end)
        if kind == tb.AGAIN:
            self.status = LOST
            return start
        if kind == tb.STOP:
            self._end_here()
            self.status = END
            return start
        if kind == tb.WEAK:
            self._weak = self._size if self._weak < 0 else self._weak
        else:
            self._end_here()
            self._phase = CLOSED if kind == tb.CLOSE else MIDDLE
        self.hold(text[start:end])
        return end

    def _opens(self, text: str, start: int, end: int, tag: int) -> int:
        """At ``tag`` another argument opens, if it has a head; before it, from ``start``, is structure."""
        head = heads.read(text, end, equals=self._table.equals, closed=True)
        if head is heads.PARTIAL:
            self._wait = True
            return start
        if head is heads.WRONG:
            self._phase = LINE
            self._give(text[start:end])
            return end
        self._end_here()
        self.hold(text[start:tag])
        self.status = END
        return tag

    def _closed(self, text: str, i: int) -> int:
        """Behind a closer: it is the end if structure follows."""
        j = js.space(text, i)
        self.hold(text[i:j])
        if j == len(text):
            return j
        literal, end = self._scans.follow.at(text, j, False)
        if literal is None:
            self._wait = end == j
            if not self._wait:
                self._fail()
                self._phase = LINE
            return j
        kind = self._scans.tags[literal]
        newline = self._held[-1][-1] == "\n"
        if kind == tb.PARAM_END:
            line = self._table.values.end == "line"
            self._fail(1 if line and newline else 0)
            self._candidate = self._size - (line and newline)
            self._phase = MIDDLE if line and not newline else CLOSED
            self.hold(text[j:end])
            return end
        if kind in (tb.PARAM, tb.CALL):
            return self._followed(text, j, end, newline)
        if self._phase == CLOSED:
            self.status = END
        elif kind == tb.BLOCK and not newline:
            self._fail()
            self._phase = LINE
        else:
            self._weak = self._candidate if self._weak < 0 else self._weak
            self._candidate = -1
            self._phase = LINE
        return j

    def _followed(self, text: str, i: int, end: int, newline: bool) -> int:
        """Behind a closer stands the beginning of a tag with a head."""
        head = heads.read(text, end, equals=self._table.equals, closed=True)
        if head is heads.PARTIAL:
            self._wait = True
        elif head is heads.WRONG or not (self._phase == CLOSED or newline):
            self._fail()
            self._phase = LINE
        else:
            self.status = END
        return i

    # --- snapshot -----------------------------------------------------------------------------------------------------

    def snapshot(self) -> XmlValueState:
        """The state as plain data."""
        return XmlValueState(
            self._phase, self.streams, self._begun, pack("".join(self._held)), self._at, self._candidate, self._weak
        )

    def restore(self, was: XmlValueState) -> None:
        """Continue from ``snapshot``."""
        self._phase, self.streams, self._begun = was.phase, was.streams, was.begun
        self._held = [unpack(was.held)] if was.held else []
        self._size = sum(map(len, self._held))
        self._at, self._candidate, self._weak = was.at, was.candidate, was.weak

    _PHASES: ClassVar[dict[int, Callable[[XmlValue, str, int], int]]] = {
        FIRST: _first, INLINE: _inline, RAW: _raw, START: _start, LINE: _line, CLOSED: _closed, MIDDLE: _closed,
    }  # fmt: skip
