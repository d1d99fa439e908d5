"""Mistral's calls: behind one marker a JSON array of calls, or a header and JSON.

    block ::= CALL WS ( array | object )       (the array is JsonCalls' business)
            | CALL header-and-json             (HeaderJson's)

The first character behind the marker tells: no name begins with ``[`` or ``{``.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from stages.events import FaultCode
from stages.parse import arguments as js
from stages.parse.engines import MORE
from stages.parse.engines.header_json import Header, HeaderJson
from stages.parse.engines.json_calls import JsonCalls
from stages.parse.format import CallEngine
from stages.parse.site import Site


class EitherState(msgspec.Struct, frozen=True):
    """The engine's snapshot. ``array``: None as long as it is not known."""

    opener: str
    guarded: bool
    array: bool | None
    header: bytes
    calls: bytes


class HeaderOrArray:
    """See CallEngine. Which of the two reads is decided once a block; until then the header does."""

    __slots__ = ("_array", "_guarded", "_opener", "calls", "header", "site")

    def __init__(self, site: Site, header: Header, calls: JsonCalls) -> None:
        self.site = site
        self.header = HeaderJson(site, header)
        self.calls = calls
        self._opener = header.call
        self._guarded = False
        self._array: bool | None = None

    @property
    def _engine(self) -> CallEngine:
        return self.calls if self._array else self.header

    @property
    def verdict(self) -> int:
        """See CallEngine."""
        return self._engine.verdict

    @property
    def code(self) -> FaultCode:
        """See CallEngine."""
        return self._engine.code

    @property
    def busy(self) -> bool:
        """See CallEngine."""
        return self._engine.busy

    @property
    def seen(self) -> bool:
        """See CallEngine."""
        return self._engine.seen

    @property
    def sure(self) -> bool:
        """See CallEngine."""
        return self._engine.sure

    @property
    def flow(self) -> Callable[[str], object] | None:
        """See CallEngine."""
        return self._engine.flow

    @property
    def since(self) -> int:
        """See CallEngine."""
        return self._engine.since

    def begin(self, opener: str, guarded: bool) -> None:
        """See CallEngine."""
        self._opener, self._guarded = opener, guarded
        self._array = None
        self.header.begin(opener, guarded)
        self.header.verdict = MORE

    def feed(self, text: str, i: int, final: bool) -> int:
        """See CallEngine."""
        if self._array is None:
            j = js.space(text, i)
            if j > i:
                self.site.writer.marker(text[i:j])
                i = j
            if i == len(text):
                return i
            i = self._chosen(text, i, final)
            if self._array is None:
                return i
        return self._engine.feed(text, i, final)
