"""A list of calls, pythonic or JSON, and what may stand behind it: its echo.

    block ::= opener WS ( pythonic-list | "[" objects "]" | objects ) WS closer [ WS echo WS closer ]

``pythonic`` and ``json_calls`` read the lists; the first character behind the bracket tells which it is. ``echo``:
models repeat the text of the block and its closer. What repeats it so far is held; a whole repetition is structure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from stages.events import Content, FaultCode, Marker
from stages.parse import arguments as js
from stages.parse.engines import DONE, LEAVE, MORE, TEXT, named
from stages.parse.engines import python_phases as ph
from stages.parse.engines.json_calls import JsonCalls, JsonKeys
from stages.parse.engines.pythonic import Pythonic, PythonicCalls
from stages.parse.lexicon import Scan
from stages.parse.site import Site
from stages.parse.writer import pack, unpack

CALLS, CLOSER, BEHIND, ECHO, AGAIN = range(5)
STATES: Final = named(globals())
_LONGEST: Final = 1 << 16
"""Characters of a block whose echo is recognised."""


class PythonOrJsonState(msgspec.Struct, frozen=True):
    """The engine's snapshot; texts are packed."""

    phase: int
    opener: str
    guarded: bool
    json: bool
    block: bytes
    size: int
    at: int
    engine: bytes


class PythonOrJson:
    """See CallEngine."""

    __slots__ = (
        "_at", "_block", "_closer", "_closers", "_guarded", "_json", "_now", "_opener", "_phase", "_python", "_site",
        "_size", "code", "verdict",
    )  # fmt: skip

    def __init__(self, site: Site, dialect: Pythonic, keys: JsonKeys, closer: str) -> None:
        self._site = site
        self._python = PythonicCalls(site, dialect)
        self._json = JsonCalls(site, keys)
        self._closer = closer
        self.verdict = MORE
        self.code = FaultCode.MALFORMED_CALL
        self.begin("", False)

    def begin(self, opener: str, guarded: bool) -> None:
        """See CallEngine."""
        self._closers: Scan = self._site.lexicon.scan(self._closer)
        self._phase = CALLS
        self._opener = opener
        self._guarded = guarded
        self._now: PythonicCalls | JsonCalls = self._python
        self._python.begin(opener, guarded)
        self._block: list[str] = []
        self._size = 0
        self._at = 0
        """Characters of the block that were repeated."""

    @property
    def state(self) -> str:
        """See CallEngine."""
        return self._now.state if self._phase == CALLS else STATES[self._phase]

    @property
    def busy(self) -> bool:
        """See CallEngine."""
        return self._phase == CALLS and self._now.busy

    @property
    def seen(self) -> bool:
        """See CallEngine."""
        return self._now.seen

    @property
    def sure(self) -> bool:
        """See CallEngine."""
        return self._now.sure

    @property
    def flow(self) -> Callable[[str], object] | None:
        """See CallEngine."""
        # The quick way would not pass here, and the echo be unknown.
        return None if self._size <= _LONGEST else self._now.flow

    @property
    def since(self) -> int:
        """See CallEngine."""
        return self._now.since

    def kept(self) -> tuple[str, int]:
        """See CallEngine."""
        return self._now.kept()

    def repaired(self) -> None:
        """See CallEngine."""
        self._now.repaired()

    def feed(self, text: str, i: int, final: bool) -> int:
        """See CallEngine."""
        self.verdict = MORE
        if self._phase == CALLS:
            i = self._calls(text, i, final)
        n = len(text)
        stuck = False
        while i < n and not self.verdict and not stuck and self._phase != CALLS:
            was = i, self._phase
            i = self._behind(text, i, final)
            stuck = (i, self._phase) == was
        if final and i == n and self._phase in (ECHO, AGAIN) and not self.verdict:
            self._differs()
        return i

    # --- the calls --------------------------------------------------------------------------------------------------

    def _calls(self, text: str, i: int, final: bool) -> int:
        start = i
        while i < len(text) and self._now is self._python and self._python.phase in (ph.OPEN, ph.FIRST):
            i = self._python.space(text, i)
            if text[i : i + 1] == "{":
                self._now = self._json
                self._json.begin(self._opener, self._guarded)
            elif text[i : i + 1] == "[" and self._python.phase == ph.OPEN:
                self._python.writer.marker(text[i])
                self._python.phase = ph.FIRST
                i += 1
            else:
                break
        i = self._now.feed(text, i, final)
        if self._size <= _LONGEST:
            self._block.append(text[start:i])
            self._size += i - start
        self.verdict, self.code = self._now.verdict, self._now.code
        if self.verdict == LEAVE:
            self.verdict = MORE
            self._phase = CLOSER
        return i

    # --- behind them ------------------------------------------------------------------------------------------------

    def _behind(self, text: str, i: int, final: bool) -> int:
        if self._phase == ECHO:
            return self._echo(text, i)
        writer = self._python.writer
        j = js.space(text, i)
        if j > i:
            if self._phase == AGAIN:
                writer.take(text[i:j])
            else:
                writer.marker(text[i:j])
            return j
        literal, end = self._closers.at(text, i, final)
        if literal is None and end == i:
            return i
        if self._phase == CLOSER:
            if literal is None:
                self.verdict = LEAVE
                return i
            writer.literal(text[i:end])
            self._block = ["".join(self._block).strip(" \t\r\n")]
            self._phase = BEHIND
            return end
        if self._phase == AGAIN and literal is not None:
            writer.take(text[i:end])
            start = writer.base
            writer.emit_at(Marker, "".join(writer.raw or ()), start)
            self.verdict = DONE
            return end
        if self._phase == BEHIND and literal is None and self._size <= _LONGEST and text[i] == self._block[0][:1]:
            writer.begin()
            self._phase = ECHO
            return i
        if self._phase == AGAIN:
            self._differs()
        else:
            self.verdict = DONE
        return i

    def _echo(self, text: str, i: int) -> int:
        block = self._block[0]
        size = min(len(text) - i, len(block) - self._at)
        j = i
        while j < i + size and text[j] == block[self._at + j - i]:
            j += 1
        if j > i:
            self._python.writer.take(text[i:j])
        self._at += j - i
        if self._at == len(block):
            self._phase = AGAIN
        elif j < i + size:
            self._differs()
        return j

    def _differs(self) -> None:
        """It was no echo: content."""
        writer = self._python.writer
        writer.emit(Content, writer.rollback())
        self.verdict = TEXT

    # --- snapshot ---------------------------------------------------------------------------------------------------

    def snapshot(self) -> bytes:
        """See CallEngine."""
        return msgspec.msgpack.encode(
            PythonOrJsonState(
                self._phase, self._opener, self._guarded, self._now is self._json, pack("".join(self._block)),
                self._size, self._at, self._now.snapshot(),
            )
        )  # fmt: skip

    def restore(self, state: bytes) -> None:
        """See CallEngine."""
        was = msgspec.msgpack.decode(state, type=PythonOrJsonState)
        self._closers = self._site.lexicon.scan(self._closer)
        self._phase, self._opener, self._guarded = was.phase, was.opener, was.guarded
        self._now = self._json if was.json else self._python
        self._now.restore(was.engine)
        self._block, self._size, self._at = [unpack(was.block)], was.size, was.at
