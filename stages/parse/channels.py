"""One choice's text as messages: header → body → events. For formats that write channels.

    output ::= [ header-rest ] body ender { [ start ] header body ender }
    header ::= { literal | text } body-literal

The prompt has the start of the first header. What the header makes of its body is the format's. Parts of one kind are
joined by a newline. A header that has no end is not one: it is content, markers included; cut off, it is dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final

from stages.events import Content, FaultCode, Marker, Reasoning
from stages.parse.format import Channels, Field, Format
from stages.parse.markers import Plan
from stages.parse.modes import KINDS, Mode, Role
from stages.parse.scanner import Scanner
from stages.parse.site import Site

_MOST: Final = 512
"""Characters of a header; a longer one is none."""
_MODES: Final = {"reasoning": Mode.REASONING, "content": Mode.CONTENT, "dropped": Mode.SKIP}


def begun(channels: Channels, tail: str) -> str:
    """What the end of a prompt has of the first header, or of a message whose body it began."""
    if channels.open not in tail:
        return ""
    return tail[tail.rfind(channels.open) + (0 if channels.named else len(channels.open)) :]


class Messages(Scanner):
    """See the module."""

    __slots__ = ("_channels",)

    def __init__(self, form: Format, channels: Channels, plan: Plan, site: Site, limit: int, header: str) -> None:
        super().__init__(form, plan, site, limit, Mode.LEAD)
        self._channels = channels
        for literal in channels.bodies:
            if literal in header:
                # The prompt began a body: no call, for its arguments would begin there too.
                self._body(_MODES.get(self._channels.read(_fields(header, self._literals()), None).kind, Mode.CONTENT))
                return
        self.header = header
        if header and channels.named:
            self._to(Mode.HEADER)

    def _literals(self) -> dict[str, str]:
        """The literals inside a header, as they read, and as the prompt spells them."""
        literals = (*self._channels.starts, *self._channels.parts, *self._channels.bodies)
        return self.reading.lexicon.forms(literals) | {literal: literal for literal in literals}

    # --- text --------------------------------------------------------------------------------------------------------

    def _body(self, mode: Mode) -> None:
        self.fresh = True
        self._to(mode)

    def _text(self, head: str) -> None:
        if self.fresh:
            self.fresh = False
            again = self.thought if self.kind is Reasoning else self.wrote and self.kind is Content
            if again:
                self.writer.made(self.kind, "\n")
            self.thought = self.thought or self.kind is Reasoning
            self.wrote = self.wrote or self.kind is Content
        super()._text(head)

    def _fall(self, char: str) -> None:
        """Text outside a message."""
        if self.mode is Mode.REPAIR:
            self._broken(FaultCode.MALFORMED_CALL, char)
        else:
            src = self.writer.pos, self.writer.pos + self.writer.size(char)
            self.writer.fault(FaultCode.MALFORMED_MESSAGE, src, detail="text outside a message")
            self._body(Mode.CONTENT)

    def _restored(self, raw: str) -> None:
        self._body(Mode.CONTENT)
        self._text(raw)

    # --- headers -----------------------------------------------------------------------------------------------------

    def _header(self, text: str, i: int) -> int:
        if self.writer.raw is None:
            self.writer.begin()
        start, literal, end = self.scan.find(text, i, self.final)
        cut = text.find("\n", i, start)
        room = _MOST - sum(map(len, self.writer.raw or ()))
        if cut >= 0 or start - i > room:
            stop = min(cut if cut >= 0 else start, i + max(room, 0))
            self.writer.marker(text[i:stop])
            self._no_header()
            return stop
        if start > i:
            self.writer.marker(text[i:start])
        if literal is None:
            self.tail = text[start:]
            return len(text)
        return self._marker(text[start:end], start, end)

    def _part(self, found: str) -> None:
        if self.mode is not Mode.HEADER:
            if self.mode in KINDS:
                self._keep_space()
            self.writer.begin()
            self._drop_space()
            self._to(Mode.HEADER)
        self.writer.marker(found)

    def _message(self, found: str) -> None:
        """The header is whole."""
        self._part(found)
        raw = self.writer.rollback()
        given, self.header = self.header, ""
        names = self.site.tools.names if self.plan.calls else None
        body = self._channels.read(_fields(given + raw, self._literals()), names)
        self.writer.begin()
        if body.kind != "call":
            self.writer.marker(raw)
            self.writer.commit()
            self._body(_MODES[body.kind])
            return
        self.block.enter()
        if body.name is not None:
            start, end = (max(0, at - len(given)) for at in body.name)
            self.writer.marker(raw[:start])
            name = self.writer.alphabet.visible((given + raw)[slice(*body.name)])
            self.writer.call_start(name, self.writer.take(raw[start:end]))
            raw = raw[end:]
        self.writer.marker(raw)
        self._to(Mode.CALL)

    def _no_header(self) -> None:
        end = self.writer.pos
        raw = self.writer.rollback()
        src = self.writer.pos, end
        self.writer.fault(FaultCode.MALFORMED_MESSAGE, src, detail="a message header without an end")
        self.header = ""
        self._restored(raw)

    def _end_message(self, found: str) -> None:
        if self.mode is Mode.HEADER:
            self._no_header()
        elif self.mode is Mode.REPAIR:
            self.block.engine.repaired()
            self.writer.commit()
        self._keep_space()
        self.writer.literal(found)
        self.fresh = False
        self._to(Mode.LEAD)

    def _bare(self) -> bool:
        """No literal was written in the header."""
        return len(_fields("".join(self.writer.raw or ()), self._literals())) == 1

    def _settle(self) -> None:
        if self.mode is Mode.HEADER and self.writer.raw is None:
            self._to(Mode.LEAD)
        if self.mode is Mode.HEADER and self.site.ended and self._bare():
            self._no_header()
        elif self.mode is Mode.HEADER:
            start, end = self.writer.base, self.writer.pos
            raw = self.writer.rollback()
            self.writer.emit(Marker, raw)
            call = "to=" in self.header + raw
            code = FaultCode.UNCLOSED_CALL if call else FaultCode.MALFORMED_MESSAGE
            self.writer.fault(code, (start, end), detail="output ended inside a message header")
            self._to(Mode.LEAD)
        elif self.mode is Mode.LEAD:
            self._drop_space()
        super()._settle()

    _HANDLERS: ClassVar[dict[Mode, Callable[[Any, str, int], int]]] = {
        **Scanner._HANDLERS, Mode.HEADER: _header,
    }  # fmt: skip
    _ROLES: ClassVar[dict[Role, Callable[[Any, str], None]]] = {
        Role.START_MESSAGE: _part, Role.PART: _part, Role.BODY: _message, Role.END_MESSAGE: _end_message,
    }  # fmt: skip


def _fields(header: str, literals: dict[str, str]) -> tuple[Field, ...]:
    """The header's text, cut at its literals (``literals``: as they read → the literal)."""
    fields: list[Field] = []
    literal, at, i = "", 0, 0
    while i < len(header):
        found = next((read for read in literals if header.startswith(read, i)), None)
        if found is None:
            i += 1
            continue
        fields.append(Field(literal, header[at:i], at))
        literal = literals[found]
        at = i = i + len(found)
    return (*fields, Field(literal, header[at:], at))
