"""A message body that is a call's arguments: one JSON object, whose name the header told.

body ::= WS [ object ] WS ender            (the ender is the scanner's; nothing before it is {})
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from stages.events import FaultCode
from stages.parse import arguments as js
from stages.parse.engines import BROKEN, LEAVE, MORE
from stages.parse.site import Site


class JsonBodyState(msgspec.Struct, frozen=True):
    """The engine's snapshot."""

    busy: bool
    begun: bool
    done: bool
    scanner: js.JsonState


class JsonBody:
    """See CallEngine. An ender that is a special token ends the body also inside a string; spelled as text, it does
    not."""

    __slots__ = ("_begun", "_done", "_enders", "_hard", "_literals", "_scanner", "_site", "busy", "code", "seen",
                 "sure", "verdict")  # fmt: skip

    def __init__(self, site: Site, enders: tuple[str, ...]) -> None:
        self._site = site
        self._literals = enders
        self.verdict = MORE
        self.code = FaultCode.BAD_ARGUMENTS
        self.seen = False
        self.sure = True
        self.begin("", False)

    def begin(self, opener: str, guarded: bool) -> None:
        """See CallEngine."""
        del opener, guarded
        lexicon = self._site.lexicon
        self._enders = lexicon.scan(*self._literals)
        self._hard = lexicon.scan(*(literal for literal in self._literals if literal in lexicon.chars))
        self._scanner = js.JsonScanner()
        self.busy = True
        self._begun = False
        self._done = False

    @property
    def state(self) -> str:
        """See CallEngine."""
        return "behind" if self._done else "object" if self._begun else "open"

    @property
    def flow(self) -> Callable[[str], object] | None:
        """See CallEngine."""
        return self._scanner.flow if self._begun and not self._done else None

    @property
    def since(self) -> int:
        """See CallEngine."""
        return self._site.writer.pos

    def kept(self) -> tuple[str, int]:
        """See CallEngine."""
        return "", self.since

    def repaired(self) -> None:
        """See CallEngine."""

    def feed(self, text: str, i: int, final: bool) -> int:
        """See CallEngine."""
        self.verdict = MORE
        end = self._hard.find(text, i, final)[0]
        if not self._begun or self._done:
            i = self._site.writer.space(text, i)
        if not self._begun and i < end and text[i] == "{":
            self._begun = True
        if self._begun and not self._done and i < end:
            i = self._json(text if end == len(text) else text[:end], i)
        if self._done:
            i = self._site.writer.space(text, i)
        if self.verdict == MORE and (i < len(text) or final):
            self._stop(text, i, final)
        return i

    def _json(self, text: str, i: int) -> int:
        scanner, writer = self._scanner, self._site.writer
        while i < len(text) and not self._done and not self.verdict:
            j = scanner.feed(text, i)
            if j > i:
                writer.arguments(text[i:j])
            i = j
            if scanner.status == js.CONTROL:
                writer.arguments_at(js.escaped(text[i]), writer.take(text[i]))
                i += 1
            elif scanner.status == js.END:
                self._done = True
            elif scanner.status == js.BAD:
                self.verdict = BROKEN
        return i

    def _stop(self, text: str, i: int, final: bool) -> None:
        """What follows is no more of the object: an ender, or the grammar breaks."""
        literal, end = self._enders.at(text, i, final)
        if literal is None and (end >= 0 or (i == len(text) and not self._done)):
            return
        if literal is not None and not self._begun:
            pos = self._site.writer.pos
            self._site.writer.arguments_at("{}", (pos, pos))
        elif not self._done or (literal is None and i < len(text)):
            self.verdict = BROKEN
            return
        self._site.writer.call_end(True)
        self.busy = False
        self.verdict = LEAVE

    def snapshot(self) -> bytes:
        """See CallEngine."""
        return msgspec.msgpack.encode(JsonBodyState(self.busy, self._begun, self._done, self._scanner.snapshot()))

    def restore(self, state: bytes) -> None:
        """See CallEngine."""
        was = msgspec.msgpack.decode(state, type=JsonBodyState)
        self.begin("", False)
        self.busy, self._begun, self._done = was.busy, was.begun, was.done
        self._scanner = js.JsonScanner(was.scanner)
