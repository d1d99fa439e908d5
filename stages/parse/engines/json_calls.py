"""JSON calls: a block holds JSON objects with a name and arguments, one, several, or an array of them.

    block ::= opener [ WS head ] WS calls [ WS closer ]
    calls ::= loose | array | run                                                       (``JsonBlocks.calls``)
    loose ::= [ "[" WS ] object { SEP object } [ "]" ]      SEP ::= WS | "," | "}" | "]"     (junk behind an object)
    array ::= "[" [ object { "," object } ] "]" | object                                     (behind it all is over)
    run   ::= array | object { [ ";" | "," ] object }

``json_object`` reads the objects. The markers are the scanner's business, but for heads, and for closers that belong to
one opener only. What breaks an array breaks off there: the calls before it stand, the rest is text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final, Literal

import msgspec

from stages.events import FaultCode
from stages.parse.engines import BROKEN, DONE, LEAVE, MORE, TEXT, named
from stages.parse.engines.json_held import JsonKeys, JsonObjectState
from stages.parse.engines.json_object import JsonObject
from stages.parse.lexicon import Scan
from stages.parse.site import Site

__all__ = ["JsonBlocks", "JsonCalls", "JsonKeys"]

HEAD, OPEN, OBJECT, BEHIND, ITEM, NEXT_ITEM, SEPARATED, CLOSE = range(8)
STATES: Final = named(globals())
_BUSY: Final = frozenset((HEAD, OPEN, OBJECT))


def _none() -> dict[str, str]:
    return {}


@dataclass(frozen=True, slots=True)
class JsonBlocks:
    """What stands between the markers.

    ``first``: with which characters calls may begin; ``guarded``: the same in reasoning (empty: as elsewhere).
    ``empty``: an array may be. ``heads``: opener → literals that must follow it → MORE, TEXT or DONE; "" stands for
    anything else. ``ends``: opener → its closer, read here, or "" where the end of the calls is the end; the closers of
    other openers are the scanner's. ``code``: openers behind which anything but JSON is content. ``known``: openers
    behind which only a call of an offered tool is one.
    """

    calls: Literal["loose", "array", "run"] = "loose"
    first: str = "{["
    guarded: str = ""
    empty: bool = False
    heads: Mapping[str, Mapping[str, int]] = field(default_factory=dict[str, Mapping[str, int]])
    ends: Mapping[str, str] = field(default_factory=_none)
    code: tuple[str, ...] = ()
    known: tuple[str, ...] = ()


_LOOSE: Final = JsonBlocks(guarded="{")


class JsonCallsState(msgspec.Struct, frozen=True):
    """The engine's snapshot."""

    phase: int
    opener: str
    array: bool
    guarded: bool
    seen: bool
    object: JsonObjectState


class JsonCalls:
    """See CallEngine."""

    __slots__ = (
        "_array", "_guarded", "_object", "_opener", "_phase", "_scan", "_site", "blocks", "code", "seen", "verdict",
        "writer",
    )  # fmt: skip

    def __init__(self, site: Site, keys: JsonKeys, blocks: JsonBlocks = _LOOSE) -> None:
        self._site = site
        self.writer = site.writer
        self.blocks = blocks
        self.verdict = MORE
        self.code = FaultCode.MALFORMED_CALL
        self._object = JsonObject(site, keys)
        self.begin("", False)

    def begin(self, opener: str, guarded: bool) -> None:
        """See CallEngine."""
        self._opener = opener
        self._phase = HEAD if opener in self.blocks.heads else OPEN
        self._array = False
        self._guarded = guarded
        self.seen = False
        self._object.sure = False
        self._object.known = opener in self.blocks.known
        self._object.begin()
        self._scan = self._literals()

    def _literals(self) -> Scan:
        """What is looked for in this block."""
        heads = (literal for literal in self.blocks.heads.get(self._opener, ()) if literal)
        closer = self.blocks.ends.get(self._opener)
        return self._site.lexicon.scan(*heads, *((closer,) if closer else ()))

    @property
    def sure(self) -> bool:
        """See CallEngine."""
        return self._object.sure

    @property
    def state(self) -> str:
        """See CallEngine."""
        return f"object: {self._object.state}" if self._phase == OBJECT else STATES[self._phase]

    @property
    def busy(self) -> bool:
        """See CallEngine."""
        return self._phase in _BUSY

    @property
    def flow(self) -> Callable[[str], object] | None:
        """See CallEngine."""
        return self._object.flow if self._phase == OBJECT else None

    @property
    def since(self) -> int:
        """See CallEngine."""
        return self._object.since if self._phase == OBJECT else self.writer.pos

    def kept(self) -> tuple[str, int]:
        """See CallEngine."""
        return self._object.kept() if self._phase == OBJECT else ("", self.writer.pos)

    def repaired(self) -> None:
        """See CallEngine."""
        self._object.end()
        self.seen = True
        self._phase = BEHIND

    def feed(self, text: str, i: int, final: bool) -> int:
        """See CallEngine."""
        self.verdict = MORE
        n = len(text)
        while i < n and not self.verdict:
            before, phase = i, self._phase
            i = self._PHASES[phase](self, text, i, final)
            if i == before and phase == self._phase:
                break  # what may become a literal
        if final and not self.verdict:
            self._finish()
        return i

    def _finish(self) -> None:
        """The output ends in the block."""
        if self._phase == HEAD:
            self.verdict = self.blocks.heads[self._opener].get("", MORE)
        elif self._phase == OPEN and self._opener in self.blocks.code:
            self.verdict = TEXT

    # --- phases: each consumes a character at least, sets the verdict or another phase, or waits -------------------

    def _broken(self, code: FaultCode) -> None:
        self.verdict = BROKEN
        self.code = code

    def _head(self, text: str, i: int, final: bool) -> int:
        i = self.writer.space(text, i)
        if i == len(text):
            return i
        literal, end = self._scan.at(text, i, final)
        if literal is None and end >= 0:
            return i
        heads = self.blocks.heads[self._opener]
        verdict = heads.get(literal or "")
        if verdict is None:
            self._broken(FaultCode.STRAY_MARKER)
            return i
        self.verdict = verdict
        self.seen = verdict == TEXT
        self._phase = OPEN
        if literal is None:
            return i
        self.writer.literal(text[i:end])
        return end

    def _open(self, text: str, i: int, final: bool) -> int:
        i = self.writer.space(text, i)
        if i == len(text):
            return i
        char = text[i]
        if self._array:
            if char == "]" and self.blocks.empty and not self._guarded:
                return self._over(text, i, i + 1)
            if char != "{":
                self._broken(FaultCode.MALFORMED_CALL)
                return i
            self._phase = OBJECT
        elif char in ((self._guarded and self.blocks.guarded) or self.blocks.first):
            self._array = char == "["
            self._phase = OPEN if self._array else OBJECT
        elif self._opener in self.blocks.code:
            self.verdict = TEXT
            return i
        else:
            self._broken(FaultCode.STRAY_MARKER)
            return i
        self.writer.marker(char)
        return i + 1

    def _over(self, text: str, i: int, j: int) -> int:
        """The calls are complete; what ends them is structure."""
        if j > i:
            self.writer.marker(text[i:j])
        self.writer.commit()
        self.seen = True
        closer = self.blocks.ends.get(self._opener)
        self._phase = CLOSE if closer else BEHIND
        if not closer:
            self.verdict = LEAVE if closer is None else DONE
        return j

    def _call(self, text: str, i: int, final: bool) -> int:
        inside = self._object
        i = inside.feed(text, i)
        if inside.verdict == LEAVE:
            self.seen = True
            self._behind_object()
        else:
            self.verdict, self.code = inside.verdict, inside.code
        return i

    def _behind_object(self) -> None:
        if self.blocks.calls == "loose":
            self._phase = BEHIND
        elif self._array:
            self._phase = ITEM
            self.writer.begin()
        elif self.blocks.calls == "run":
            self._phase = SEPARATED
        else:
            self._over("", 0, 0)

    def _behind(self, text: str, i: int, final: bool) -> int:
        j = i
        while j < len(text) and text[j] in "}], \t\r\n":
            j += 1
        if j > i:
            self.writer.marker(text[i:j])
        elif text[i] == "{":
            self.writer.begin()
            return self._begin_object(i)
        else:
            self.verdict = LEAVE
        return j

    def _begin_object(self, i: int) -> int:
        self._object.begin()
        self.writer.marker("{")
        self._phase = OBJECT
        return i + 1

    def _item(self, text: str, i: int, final: bool) -> int:
        """Behind an object of an array, in a region: what does not go on with the array is text."""
        i = self.writer.space(text, i)
        if i == len(text):
            return i
        if text[i] == "]":
            return self._over(text, i, i + 1)
        if text[i] != ",":
            self._broken(FaultCode.MALFORMED_CALL)
            return i
        self.writer.marker(",")
        self.writer.commit()
        self.writer.begin()
        self._phase = NEXT_ITEM
        return i + 1

    def _next_item(self, text: str, i: int, final: bool) -> int:
        i = self.writer.space(text, i)
        if i == len(text):
            return i
        if text[i] == "{":
            return self._begin_object(i)
        if text[i] == "]" and self._array:
            return self._over(text, i, i + 1)  # a comma too many
        self._broken(FaultCode.MALFORMED_CALL)
        return i

    def _separated(self, text: str, i: int, final: bool) -> int:
        """Behind an object of a run."""
        i = self.writer.space(text, i)
        if i == len(text):
            return i
        char = text[i]
        if char in ";,":
            self.writer.begin()
            self.writer.marker(char)
            self._phase = NEXT_ITEM
            return i + 1
        if char == "{":
            self.writer.begin()
            return self._begin_object(i)
        return self._over(text, i, i)

    def _close(self, text: str, i: int, final: bool) -> int:
        i = self.writer.space(text, i)
        if i == len(text):
            return i
        literal, end = self._scan.at(text, i, final)
        if literal is None and end >= 0:
            return i
        self.verdict = DONE
        if literal is None:
            return i
        self.writer.literal(text[i:end])
        return end

    # --- snapshot ---------------------------------------------------------------------------------------------------

    def snapshot(self) -> bytes:
        """See CallEngine."""
        return msgspec.msgpack.encode(
            JsonCallsState(
                self._phase, self._opener, self._array, self._guarded, self.seen, self._object.snapshot()
            )
        )  # fmt: skip

    def restore(self, state: bytes) -> None:
        """See CallEngine."""
        was = msgspec.msgpack.decode(state, type=JsonCallsState)
        self._phase, self._opener, self._array, self._guarded = was.phase, was.opener, was.array, was.guarded
        self.seen = was.seen
        self._object.restore(was.object)
        self._scan = self._literals()

    _PHASES: ClassVar[dict[int, Callable[[JsonCalls, str, int, bool], int]]] = {
        HEAD: _head, OPEN: _open, OBJECT: _call, BEHIND: _behind, ITEM: _item, NEXT_ITEM: _next_item,
        SEPARATED: _separated, CLOSE: _close,
    }  # fmt: skip
