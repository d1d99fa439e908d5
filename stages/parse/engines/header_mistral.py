"""Mistral's calls: behind one marker a JSON array of calls, or a header and JSON.

    block ::= CALL WS ( array | object )       (read by the one engine)
            | CALL header-and-json             (read by the other)

The first character behind the marker tells: no name begins with ``[`` or ``{``.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from stages.parse import arguments as js
from stages.parse.engines import MORE
from stages.parse.engines.header_json import HeaderJson
from stages.parse.engines.header_table import Header
from stages.parse.format import CallEngine
from stages.parse.site import Site


class EitherState(msgspec.Struct, frozen=True):
    """The engine's snapshot. ``array``: None as long as it is not known."""

    array: bool | None
    header: bytes
    calls: bytes


class HeaderOrArray:
    """See CallEngine. Until it is known which of the two reads, the header's is asked."""

    __slots__ = ("_array", "_header", "_scan", "calls", "code", "header", "seen", "site", "sure", "verdict")

    def __init__(self, site: Site, header: Header, calls: CallEngine) -> None:
        self.site = site
        self._header = header
        self.header: CallEngine = HeaderJson(site, header)
        self.calls = calls
        self.begin(header.call, False)

    @property
    def _engine(self) -> CallEngine:
        return self.calls if self._array else self.header

    def _told(self) -> None:
        engine = self._engine
        self.verdict, self.code = engine.verdict, engine.code
        self.seen, self.sure = engine.seen, engine.sure

    def begin(self, opener: str, guarded: bool) -> None:
        """See CallEngine."""
        self._array: bool | None = None
        self._scan = self.site.lexicon.scan(*self._header.literals())
        self.header.begin(opener, guarded)
        self._told()

    def feed(self, text: str, i: int, final: bool) -> int:
        """See CallEngine."""
        if self._array is None:
            j = js.space(text, i)
            if j > i:
                self.site.writer.marker(text[i:j])
            i = j
            if i < len(text) and not self._chosen(text, i, final):
                self.verdict = MORE
                return i
        i = self._engine.feed(text, i, final)
        self._told()
        return i

    def _chosen(self, text: str, i: int, final: bool) -> bool:
        found, end = self._scan.at(text, i, final)
        if found is None and end == i:
            return False
        self._array = found is None and text[i] in "[{"
        if self._array:
            self.calls.begin(self._header.call, False)
        return True

    def repaired(self) -> None:
        """See CallEngine."""
        self._engine.repaired()
        self._told()

    @property
    def state(self) -> str:
        """See CallEngine."""
        return self._engine.state

    @property
    def busy(self) -> bool:
        """See CallEngine."""
        return self._engine.busy

    @property
    def flow(self) -> Callable[[str], object] | None:
        """See CallEngine."""
        return self._engine.flow

    @property
    def since(self) -> int:
        """See CallEngine."""
        return self._engine.since

    def kept(self) -> tuple[str, int]:
        """See CallEngine."""
        return self._engine.kept()

    def snapshot(self) -> bytes:
        """See CallEngine."""
        return msgspec.msgpack.encode(EitherState(self._array, self.header.snapshot(), self.calls.snapshot()))

    def restore(self, state: bytes) -> None:
        """See CallEngine."""
        was = msgspec.msgpack.decode(state, type=EitherState)
        self._array = was.array
        self._scan = self.site.lexicon.scan(*self._header.literals())
        self.header.restore(was.header)
        self.calls.restore(was.calls)
        self._told()
