"""Typed elements: calls as elements whose values say their types.

    block ::= section WS { call WS } section-end | call                     (a call without a section is taken)
    call  ::= call-tag HEAD WS { value WS } call-end
            | call-tag HEAD WS json-tag HEAD object json-end WS call-end
    value ::= value-tag HEAD (TEXT | JSON | WS { value WS }) value-end

HEAD is what stands in a tag up to its separator: attributes. The name goes out with its tag, a string as it comes, JSON
when it is whole; what does not read as JSON is a string. Values inside values are the members of a list or an object.
Where the family has it (``implicit``), the next tag ends what was not closed; the end of the output never does. Text
between the tags of a call is dropped with a fault; between calls it is content.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

import msgspec

from stages.events import FaultCode
from stages.parse.engines import DONE, LEAVE, MORE
from stages.parse.engines import element_table as et
from stages.parse.engines.element_table import ElementScans, ElementTable
from stages.parse.engines.element_values import (
    BLOCK,
    BODY,
    DEEPEST,
    HEAD,
    HELD_VALUE,
    JSON,
    JSON_HEAD,
    KEY,
    STRING_VALUE,
    ElementArguments,
    ElementArgumentsState,
)
from stages.parse.site import Site

__all__ = ["ElementTable", "Elements"]

_ENDS: Final = frozenset((et.CALL, et.SECTION, et.SECTION_END, et.OUTSIDE))
"""What ends a call that was not closed."""


class ElementsState(msgspec.Struct, frozen=True):
    """The engine's snapshot."""

    opened: bool
    guarded: bool
    seen: bool
    sure: bool
    calls: bool
    arguments: ElementArgumentsState


class Elements(ElementArguments):
    """See CallEngine."""

    __slots__ = ("_calls", "_guarded", "_opened", "seen", "sure")

    def __init__(self, site: Site, table: ElementTable) -> None:
        super().__init__(site, table)
        self.begin("", False)

    def begin(self, opener: str, guarded: bool) -> None:
        """See CallEngine."""
        self._scans = ElementScans(self.table, self.site.lexicon)
        self._call("")
        self._phase = HEAD if opener in self.table.call else BLOCK
        self._opened = opener in self.table.section
        """A section is open."""
        self._guarded = guarded
        self.seen = False
        # A tag that no text can be taken for is no mention.
        self.sure = bool(opener) and self.site.lexicon.form(opener) != opener
        self._calls = False
        """A call is complete."""

    @property
    def busy(self) -> bool:
        """See CallEngine."""
        return not (self._phase == BLOCK and self._calls)

    def repaired(self) -> None:
        """See CallEngine."""

    def feed(self, text: str, i: int, final: bool) -> int:
        """See CallEngine."""
        n = len(text)
        self.verdict = MORE
        self._wait = False
        while i < n and not self.verdict and not self._wait:
            i = self._PHASES[self._phase](self, text, i)
        if final and not self.verdict:
            self._dropped()
            if self.busy:
                self._keep(text[i:])
            else:
                self.writer.marker(text[i:])
            return n
        return i

    # --- between calls ------------------------------------------------------------------------------------------------

    def _block(self, text: str, i: int) -> int:
        i = self.writer.space(text, i)
        if i == len(text):
            return i
        tag, end = self._scans.tags.at(text, i, False)
        if tag is None and end == i:
            self._wait = True
            return i
        kind = -1 if tag is None else self._scans.what[tag]
        if kind == et.CALL:
            self._begin_call()
        elif kind == et.SECTION and not self._opened and not self._calls:
            self._opened = True
        elif kind == et.SECTION_END and (self._calls or (self._opened and (self.sure or not self._guarded))):
            self.verdict = DONE
        else:
            if self._calls:
                self.verdict = LEAVE
            else:
                self._broken(FaultCode.STRAY_MARKER)
            return i
        self.writer.marker(text[i:end])
        return end

    def _begin_call(self) -> None:
        writer = self.writer
        if self._opened and not self.seen:
            writer.commit()
            self.seen = self.sure = True
        if writer.raw is None:
            writer.begin()
        self._phase = HEAD

    # --- a call -------------------------------------------------------------------------------------------------------

    def _head(self, text: str, i: int) -> int:
        head = et.head_at(text, i, self._scans.sep)
        start, end = head.attributes.get(self.table.name, (i, i))
        name = et.attribute(self.writer.alphabet.visible(text[start:end]))
        if head is et.PARTIAL:
            self._wait = True
        elif head is et.WRONG or not name.strip():
            self._broken(FaultCode.MALFORMED_CALL if self.sure else FaultCode.STRAY_MARKER)
        else:
            self.sure = True
            self.writer.marker(text[i:start])
            self.writer.call_start(name, self.writer.take(text[start:end]))
            self.writer.marker(text[end : head.end])
            self._call(name)
            self._phase = BODY
            return head.end
        return i

    def _body(self, text: str, i: int) -> int:
        if self._junk < 0:
            i = self.writer.space(text, i)
        if i == len(text):
            return i
        start, tag, end = self._scans.tags.find(text, i, False)
        if start > i:
            self._drop(text[i:start])
        if tag is None:
            self._wait = start < len(text)
            return start
        self._dropped()
        return self._tag(self._scans.what[tag], text, start, end)

    def _tag(self, kind: int, text: str, start: int, end: int) -> int:
        if kind == et.VALUE and not self._whole and len(self._stack) < DEEPEST:
            self._phase = KEY
        elif kind == et.VALUE_END and self._stack:
            self._end_nested()
        elif kind in (et.VALUE_END, et.JSON_END):
            pass  # one too many
        elif kind == et.JSON and not self._whole and not self._counts[0]:
            self._phase = JSON_HEAD
        elif kind == et.CALL_END and not self._stack:
            self.writer.marker(text[start:end])
            self._end_call()
            return end
        elif kind in _ENDS and self.table.implicit and not self._stack:
            self._end_call()
            return start
        else:
            self._broken()
            return start
        self.writer.marker(text[start:end])
        return end

    def _end_call(self) -> None:
        pos = self.writer.pos
        if not self._whole:
            self.writer.arguments_at("}" if self._counts[0] else "{}", (pos, pos))
        self.writer.call_end(True)
        self._calls = self.seen = True
        self._phase = BLOCK

    # --- snapshot -----------------------------------------------------------------------------------------------------

    def snapshot(self) -> bytes:
        """See CallEngine."""
        return msgspec.msgpack.encode(
            ElementsState(self._opened, self._guarded, self.seen, self.sure, self._calls, self._state())
        )

    def restore(self, state: bytes) -> None:
        """See CallEngine."""
        was = msgspec.msgpack.decode(state, type=ElementsState)
        self._resume(was.arguments)
        self._opened, self._guarded, self._calls = was.opened, was.guarded, was.calls
        self.seen, self.sure = was.seen, was.sure

    _PHASES: ClassVar[dict[int, Callable[[Elements, str, int], int]]] = {
        BLOCK: _block, HEAD: _head, BODY: _body, KEY: ElementArguments._in_key,
        STRING_VALUE: ElementArguments._string, HELD_VALUE: ElementArguments._held_value,
        JSON_HEAD: ElementArguments._json_head, JSON: ElementArguments._json,
    }  # fmt: skip
