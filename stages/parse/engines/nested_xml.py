"""Nested XML whose every tag stands behind a namespace token: a call's parameters are elements, values nest.

    block   ::= NS "<tool_call>" WS { invoke WS } NS "</tool_call>" | invoke
    invoke  ::= NS '<invoke name="' NAME '">' { WS element } WS NS "</invoke>"
    element ::= NS "<" TAG ">" { TEXT | element } NS "</" TAG ">"

``<`` without NS is text, and NS without a tag is nothing: that is all the escaping there is. The name goes out at its
end. A parameter that is a string by its schema goes out as it comes: inside it no other tag is known, so that NS before
one is dropped and the tag is text. Any other parameter goes out when its element has ended, or, if the schema says
array, when another one follows: elements of one name in a row are one list. A tag that closes nothing breaks the call.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import ClassVar, Final

import msgspec

from stages.events import Dropped, FaultCode
from stages.parse import arguments as js
from stages.parse.engines import BROKEN, DONE, LEAVE, MORE, SPOILED, named
from stages.parse.engines.nested_tags import NAMED, NAMING, NestedXml, Tag, tag_at
from stages.parse.engines.nested_value import NestedState, Node, NodeState, Value, listed
from stages.parse.literals import quoted
from stages.parse.site import Site
from stages.parse.types import STRING, Types
from stages.parse.writer import pack, unpack

BLOCK, NAME, PARAMS, STRINGS, HELD, CLOSED = range(6)
STATES: Final = named(globals())
_DEEPEST: Final = 64
"""Elements inside each other. Schemas have a handful."""


class NestedCalls:
    """See CallEngine."""

    __slots__ = (
        "_ended", "_first", "_guarded", "_inner", "_junk", "_name", "_nodes", "_notable", "_ns", "_param", "_part",
        "_phase", "_site", "_start", "_table", "_wait", "_waiting", "code", "seen", "sure", "verdict", "writer",
    )  # fmt: skip

    def __init__(self, site: Site, table: NestedXml) -> None:
        self._site = site
        self.writer = site.writer
        self._table = table
        self.verdict = MORE
        self.code = FaultCode.MALFORMED_CALL
        self.begin("", False)

    def begin(self, opener: str, guarded: bool) -> None:
        """See CallEngine."""
        self._read()
        invoke = opener == self._table.openers()[1]
        self._phase = NAME if invoke else BLOCK
        self._guarded = guarded
        self.seen = False
        self.sure = False
        self._ended = False
        """A call of this block is complete."""
        self._call("")

    def _read(self) -> None:
        lexicon = self._site.lexicon
        self._ns = lexicon.scan(self._table.namespace)
        first = re.escape(lexicon.form(self._table.namespace)[0])
        self._notable: Callable[[str], object] = re.compile(f'["\\\\\x00-\x1f{first}]').search
        self._wait = False

    def _call(self, name: str) -> None:
        self._name = name
        self._param = ""
        """The tag of the string that goes out as it comes."""
        self._inner: list[str] = []
        """Tags that are text in it, and open."""
        self._nodes: list[Node] = []
        self._waiting: list[Value] = []
        """Elements of one name that may become a list."""
        self._part: list[str] = []
        """Raw text that was taken and given to no event yet, from byte ``_start`` on."""
        self._start = 0
        self._junk = -1
        """Where text between parameters began."""
        self._first = True

    @property
    def state(self) -> str:
        """See CallEngine."""
        return STATES[self._phase]

    @property
    def busy(self) -> bool:
        """See CallEngine."""
        return self._phase != CLOSED and not (self._phase == BLOCK and self._ended)

    @property
    def flow(self) -> Callable[[str], object] | None:
        """See CallEngine."""
        return self._notable if self._phase == STRINGS else None

    @property
    def since(self) -> int:
        """See CallEngine."""
        return self._start if self._part else self.writer.pos

    def kept(self) -> tuple[str, int]:
        """See CallEngine."""
        return "".join(self._part), self.since

    def feed(self, text: str, i: int, final: bool) -> int:
        """See CallEngine."""
        n = len(text)
        self.verdict = MORE
        self._wait = False
        while i < n and not self._wait and not self.verdict:
            i = self._PHASES[self._phase](self, text, i)
        if final and i < n and not self.verdict:
            # What may have become a tag.
            if self.busy:
                self._keep(text[i:])
            else:
                self.writer.marker(text[i:])
            return n
        return i

    def repaired(self) -> None:
        """See CallEngine."""

    def _keep(self, text: str) -> None:
        if text:
            start, _ = self.writer.take(text)
            if not self._part:
                self._start = start
            self._part.append(text)

    def _broken(self, code: FaultCode = FaultCode.MALFORMED_CALL, verdict: int = BROKEN) -> None:
        self.verdict = verdict
        self.code = code

    def _wrong(self, text: str, tag: Tag, code: FaultCode = FaultCode.MALFORMED_CALL) -> int:
        """A tag that cannot stand here breaks the call."""
        if tag.name or tag.closes == self._table.block:
            self._broken(code)  # it means something behind the broken call
            return tag.start
        self._keep(text[tag.start : tag.end])
        self._broken(code, SPOILED)
        return tag.end

    def _tag(self, text: str, start: int, begin: int) -> Tag | None:
        """The tag behind NS, which ends at ``begin``. None: there is none (or not yet: then it sets ``_wait``)."""
        tag, self._wait = tag_at(text, start, begin)
        return tag

    # --- the block ----------------------------------------------------------------------------------------------------

    def _block(self, text: str, i: int) -> int:
        j = js.space(text, i)
        if j > i:
            self.writer.marker(text[i:j])
        if j == len(text):
            return j
        found, end = self._ns.at(text, j, False)
        tag = None if found is None else self._tag(text, j, end)
        self._wait = self._wait or (found is None and end == j)
        if self._wait:
            return j
        if tag is not None and tag.name:
            # The header is known: from here on a broken call is taken back alone.
            self.writer.commit()
            self.writer.begin()
            self.seen = True
            name = tag.match.start("name")
            self.writer.literal(text[j:name])
            return self._named(text, name, tag.match)
        if tag is not None and tag.closes == self._table.block and not (self._guarded and not self._ended):
            self.writer.literal(text[j : tag.end])
            self._phase = CLOSED
            self.verdict = DONE
            return tag.end
        if self._ended:
            self.verdict = LEAVE
        else:
            self._broken(FaultCode.STRAY_MARKER)
        return j

    def _naming(self, text: str, i: int) -> int:
        match = NAMED.match(text, i)
        if match is not None:
            return self._named(text, i, match)
        self._wait = NAMING.fullmatch(text, i) is not None
        if not self._wait:
            self._broken(FaultCode.STRAY_MARKER)
        return i

    def _named(self, text: str, i: int, match: re.Match[str]) -> int:
        name = match["name"]
        src = self.writer.take(name)
        if not name.strip():
            self._broken()
            return i + len(name)
        self.sure = True
        self._call(name.strip())
        self.writer.call_start(self._name, src)
        self.writer.marker(text[i + len(name) : match.end()])
        self._phase = PARAMS
        return match.end()

    # --- between parameters -------------------------------------------------------------------------------------------

    def _params(self, text: str, i: int) -> int:
        if self._junk < 0 and (j := js.space(text, i)) > i:
            if self._waiting:
                self._keep(text[i:j])
            else:
                self.writer.marker(text[i:j])
            i = j
        start, found, end = self._ns.find(text, i, False)
        if start > i:
            self._dropped(text[i:start])
        if found is None:
            self._wait = start < len(text)
            return start
        tag = self._tag(text, start, end)
        if tag is None:
            if self._wait:
                return start
            self._dropped(text[start:end])
            return end
        if self._junk >= 0:
            junk, self._junk = self._junk, -1
            self.writer.fault(FaultCode.MALFORMED_CALL, (junk, self.writer.pos), detail="text between parameters")
        if tag.opens:
            self._open(text, tag)
        elif tag.closes == "invoke":
            self._end()
            self.writer.literal(text[start : tag.end])
        else:
            return self._wrong(text, tag)
        return tag.end

    def _dropped(self, text: str) -> None:
        self._send()
        pos = self.writer.pos
        self.writer.emit(Dropped, text)
        if self._junk < 0:
            self._junk = pos

    def _open(self, text: str, tag: Tag) -> None:
        types = self._typed(tag.opens)
        if self._waiting and self._waiting[0].tag != tag.opens:
            self._send()
        if not (types.verbatim and types.schema.get("type")):
            self._keep(text[tag.start : tag.end])
            self._nodes.append(Node(tag.opens, types))
            self._phase = HELD
            return
        self._param = tag.opens
        self._inner.clear()
        self.writer.marker(text[tag.start : tag.begin + 1])
        src = self.writer.take(tag.opens)
        self._member(tag.opens, '"', src)
        self.writer.marker(">")
        self._phase = STRINGS

    def _typed(self, tag: str) -> Types:
        tool = self._site.tools.get(self._name)
        return STRING if tool is None else tool.types(tag)

    def _member(self, tag: str, value: str, src: tuple[int, int]) -> None:
        self.writer.arguments_at(f'{"{" if self._first else ", "}"{quoted(tag)}": {value}', src)
        self._first = False

    def _send(self) -> None:
        """What waited for more of its name goes out."""
        if self._waiting:
            tag = self._waiting[0].tag
            value = listed(self._waiting, self._typed(tag))
            self._waiting.clear()
            self._part.clear()
            self._member(tag, value, (self._start, self.writer.pos))

    def _end(self) -> None:
        self._send()
        pos = self.writer.pos
        self.writer.arguments_at("{}" if self._first else "}", (pos, pos))
        self.writer.call_end(True)
        self._phase = BLOCK
        self._ended = self.seen = True

    # --- values -------------------------------------------------------------------------------------------------------

    def _string(self, text: str, i: int) -> int:
        start, found, end = self._ns.find(text, i, False)
        if start > i:
            self.writer.string(text[i:start])
        if found is None:
            self._wait = start < len(text)
            return start
        tag = self._tag(text, start, end)
        if self._wait:
            return start
        if tag is None:
            pass
        elif tag.closes == self._param and not (self._inner and self._inner[-1] == self._param):
            pos = self.writer.pos
            self.writer.arguments_at('"', (pos, pos))
            self.writer.literal(text[start : tag.end])
            self._phase = PARAMS
            return tag.end
        elif tag.opens and len(self._inner) < _DEEPEST:
            self._inner.append(tag.opens)
        elif tag.closes and self._inner and self._inner[-1] == tag.closes:
            self._inner.pop()
        else:
            return self._wrong(text, tag)
        self.writer.emit(Dropped, text[start:end])
        return end

    def _held(self, text: str, i: int) -> int:
        node = self._nodes[-1]
        start, found, end = self._ns.find(text, i, False)
        if start > i:
            self._keep(text[i:start])
            node.texts.append(self.writer.alphabet.visible(text[i:start]))
        if found is None:
            self._wait = start < len(text)
            return start
        tag = self._tag(text, start, end)
        if tag is None:
            if self._wait:
                return start
            self._keep(text[start:end])
            return end
        if tag.opens and len(self._nodes) < _DEEPEST:
            self._nodes.append(Node(tag.opens, node.child(tag.opens)))
        elif tag.closes == node.tag:
            self._nodes.pop()
        else:
            return self._wrong(text, tag, FaultCode.BAD_ARGUMENTS)
        self._keep(text[start : tag.end])
        if tag.closes:
            self._close(node)
        return tag.end

    def _close(self, node: Node) -> None:
        value = node.value()
        if self._nodes:
            self._nodes[-1].children.append(value)
            return
        self._phase = PARAMS
        self._waiting.append(value)
        if "array" not in node.types.kinds:
            self._send()

    # --- snapshot -----------------------------------------------------------------------------------------------------

    def snapshot(self) -> bytes:
        """See CallEngine."""
        nodes = tuple(NodeState(node.tag, "".join(node.texts), tuple(node.children)) for node in self._nodes)
        return msgspec.msgpack.encode(
            NestedState(
                self._phase, self._guarded, self.seen, self.sure, self._ended, self._first, pack("".join(self._part)),
                self._start, self._junk, self._name, self._param, tuple(self._inner), nodes, tuple(self._waiting),
            )
        )  # fmt: skip

    def restore(self, state: bytes) -> None:
        """See CallEngine."""
        was = msgspec.msgpack.decode(state, type=NestedState)
        self._read()
        self._call(was.name)
        self._phase, self._guarded, self.seen, self.sure = was.phase, was.guarded, was.seen, was.sure
        self._ended, self._first = was.ended, was.first
        self._part = [unpack(was.part)] if was.part else []
        self._start, self._junk, self._param = was.start, was.junk, was.param
        self._inner, self._waiting = list(was.inner), list(was.waiting)
        for node in was.nodes:
            types = self._nodes[-1].child(node.tag) if self._nodes else self._typed(node.tag)
            self._nodes.append(Node(node.tag, types, [node.text], list(node.children)))

    _PHASES: ClassVar[dict[int, Callable[[NestedCalls, str, int], int]]] = {
        BLOCK: _block, NAME: _naming, PARAMS: _params, STRINGS: _string, HELD: _held,
    }  # fmt: skip
