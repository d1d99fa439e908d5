"""One choice's text → modes → events. The formats are tables; every transition of the text modes is here.

    output  ::= [ lead opener ] reasoning closer sep body | body | reasoning
    body    ::= { content | block | white space }
    block   ::= call-opener calls call-closer                      (the calls are the engine's)

White space: one newline behind the opener, the runs of newlines before and behind the closer and before a block, and
all white space between and behind blocks are structure. White space alone before a block is structure too.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar, Final

from stages.events import Content, Dropped, FaultCode, Reasoning
from stages.parse.block import SPACE
from stages.parse.engines import BROKEN, DONE, MORE, REPAIR, RESUME, SKIP, SPOILED, TEXT
from stages.parse.modes import GUARDED, KINDS, THINKS, Mode, Role
from stages.parse.strays import Strays
from stages.parse.text import OUT

_NEWLINES: Final = re.compile(f"[\n{OUT}]*")
_FIRST_NEWLINE: Final = re.compile(f"[{OUT}]*\n")


class Scanner(Strays):
    """See the module: the transitions. What is known between two steps is in Held."""

    __slots__ = ()

    def _drain(self, text: str) -> None:
        i = 0
        while i < len(text):
            i = self._HANDLERS[self.mode](self, text, i)
            if self.tail and i < len(text):
                # A foreign token inside what may become a literal: it is read again with what follows.
                text, i, self.tail = self.tail + text[i:], 0, ""

    def _run(self, text: str, i: int) -> int:
        scan = self.scan
        match = (scan.final if self.final else scan.pattern).search(text, i)
        end = len(text) if match is None else match.start()
        if end > i:
            self._plain(text[i:end])
        return end if match is None else self._take(match, text)

    def _lead(self, text: str, i: int) -> int:
        match = SPACE.match(text, i)
        j = match.end() if match else i
        if j > i:
            self._white(text[i:j])
        if j == len(text):
            return j
        scan = self.scan
        match = (scan.final if self.final else scan.pattern).match(text, j)
        if match is not None:
            return self._take(match, text)
        if text[j] in self.plan.bare and self.mode in (Mode.LEAD, Mode.SECOND):
            self._open_call("")
        else:
            self._fall(text[j])
        return j

    def _after(self, text: str, i: int) -> int:
        match = (SPACE if " " in self.trim else _NEWLINES).match(text, i)
        j = match.end() if match else i
        if j > i:
            self.writer.marker(text[i:j])
        if j < len(text):
            self._to(Mode.SECOND)
        return j

    def _label(self, text: str, i: int) -> int:
        start, _, _ = self.scan.find(text, i, self.final)
        j = text.find("\n", i, start) + 1 or start
        if j > i:
            self.writer.marker(text[i:j])
        if j > i and text[j - 1] == "\n":
            self._to(Mode.REASONING_LEAD)
        elif start < len(text):
            return self._run(text, j)
        return j

    def _call(self, text: str, i: int) -> int:
        engine = self.block.engine
        i = engine.feed(text, i, self.final)
        verdict = engine.verdict
        if verdict == MORE:
            self.tail = text[i:]
            return len(text)
        if verdict in (BROKEN, REPAIR, SKIP, RESUME):
            match = self._spelled(text, i)
            if match is not None:
                return self._take(match, text)
        if verdict in (BROKEN, SPOILED, RESUME):
            self._broken(engine.code, text[i : i + 1])
        elif verdict == DONE:
            self._done()
        elif verdict == SKIP:
            self._misplaced(text[i : i + 1])
            self._to(Mode.SKIP)
        elif verdict == TEXT:
            self.writer.commit()
            self._to(Mode.CONTENT_OPEN if engine.seen else Mode.CONTENT)
        else:
            self._to(Mode.REPAIR if verdict == REPAIR else Mode.BETWEEN_OPEN if self.closers else Mode.BETWEEN)
        return i

    def _done(self) -> None:
        """The block has ended."""
        self.block.end()
        if self.drop == "text":
            self._to(Mode.SKIP)
        elif self.drop:
            self._to(Mode.BETWEEN)
            self.close()
        else:
            self._to(Mode.REASONING if self.inside else Mode.BETWEEN)

    def _misplaced(self, char: str) -> None:
        src = self.writer.pos, self.writer.pos + self.writer.size(char)
        self.writer.fault(FaultCode.MALFORMED_CALL, src, detail="text between a call and the end of its block")

    def _spelled(self, text: str, i: int) -> re.Match[str] | None:
        """The special token, or what may become one, that begins at ``i`` in text without ids."""
        scan = self.scan
        return None if scan.quick is None else (scan.final if self.final else scan.pattern).match(text, i)

    def _ended(self, text: str, i: int) -> int:
        self.writer.emit(Dropped, text[i:])
        return len(text)

    def _fall(self, char: str) -> None:
        """What follows is no marker."""
        mode = self.mode
        if mode is Mode.REASONING_LEAD:
            self._first(_FIRST_NEWLINE.match("".join(self.space)) if self.trim == "\n" else None)
        elif mode is Mode.REPAIR:
            self._broken(FaultCode.MALFORMED_CALL, char)
        else:
            if self.mode is Mode.ANSWERED:
                before = "".join(self.space)
                self._keep_space()
                self._strays(before)
            if self.reasoning.prefix and not self.wrote:
                self.writer.made(Content, self.reasoning.prefix)
            self.wrote = True
            if mode is Mode.BETWEEN_OPEN:
                self._misplaced(char)
            self._to(Mode.CONTENT_OPEN if mode is Mode.BETWEEN_OPEN else Mode.CONTENT)

    def _first(self, newline: re.Match[str] | None) -> None:
        """Reasoning begins; ``newline`` of the white space before it is structure."""
        if " " in self.trim:
            self._drop_space()
        elif newline is not None:
            self.space = [newline.string[newline.end() :]] if newline.end() < len(newline.string) else []
            self.writer.marker(newline.group())
        if self.thought:
            # Another part of one message's reasoning.
            self.writer.made(Reasoning, "\n")
        self.thought = True
        self._to(Mode.REASONING)

    # --- markers -----------------------------------------------------------------------------------------------------

    def _take(self, match: re.Match[str], text: str) -> int:
        if match.lastindex is None:
            self.tail = match.group()
            return len(text)
        return self._marker(match.group(), match.start(), match.end())

    def _marker(self, found: str, start: int, end: int) -> int:
        role = self.reading.roles.get(found)
        if role is Role.FOREIGN:
            return self._foreign(found, start, end)
        if role is Role.ENDER:
            self.site.ended = True
            self.close()
            self.writer.emit(Dropped, found)
        elif role is None or self._late(role):
            # It has no role here: text.
            if self.mode in KINDS:
                self._text(found)
                self._stray(found)
            else:
                self._fall(found)
                return start
        else:
            self._ROLES[role](self, found)
        return end

    def _late(self, role: Role) -> bool:
        """A marker that only means something before anything visible, or in a wrapper."""
        if role is Role.CLOSE_REASONING:
            return self.mode is Mode.BETWEEN and self.wrote and self.reasoning.stray in ("lead", "never")
        if role is Role.OPEN_REASONING:
            once = self.mode is Mode.SECOND and not self.reasoning.again
            return once and (self.thought or self.reasoning.stray == "always")
        return role is Role.CLOSE_ANSWER and not self.wrapped

    def _foreign(self, found: str, start: int, end: int) -> int:
        """A special token that only its text tells: from here on it is what its id would have made it."""
        char = self.writer.alphabet.name(found, len(found.encode()), False)
        if char is not None:
            if self.mode is Mode.SECOND and not self.space and self.trim:
                self._to(Mode.AFTER)
            self._drain(char)
        elif self.mode is Mode.CALL:
            self._broken(self.block.engine.code, found[0])
            return start
        else:
            # All names are in use: text.
            (self._text if self.mode in KINDS else self._white)(found)
        return end

    def _open_reasoning(self, found: str) -> None:
        self._drop_space()
        self.writer.literal(found)
        self._to(Mode.LABEL if self.reasoning.label else Mode.REASONING_LEAD)

    def _close_reasoning(self, found: str) -> None:
        sent = self.mode in (Mode.CONTENT, Mode.CONTENT_OPEN)
        if sent:
            self._keep_space()
        self._drop_space()
        if self.mode in THINKS:
            self.writer.literal(found)
        else:
            src = self.writer.take(found)
            self.writer.fault(FaultCode.STRAY_MARKER, src, found, "end of reasoning outside reasoning")
        if not sent or self.reasoning.stray == "restart":
            self._to(Mode.AFTER if self.trim else Mode.SECOND)

    def _open_call(self, found: str) -> None:
        self.back = self.mode if self.mode in GUARDED else Mode.CONTENT
        space = "".join(self.space)
        self.space.clear()
        self.block.open(found, self.scan.names.get(found, found), space, self.back in THINKS)
        self._to(Mode.CALL)

    def _close_call(self, found: str) -> None:
        if self.mode is Mode.REPAIR:
            self.block.engine.repaired()
        self._drop_space()
        self.writer.literal(found)
        self._done()

    def _open_answer(self, found: str) -> None:
        self._drop_space()
        self.writer.literal(found)
        self.wrapped = True
        self._to(Mode.AFTER)

    def _close_answer(self, found: str) -> None:
        if self.mode is Mode.BETWEEN:
            self.writer.literal(found)
        else:
            self.space.append(found)
            self._to(Mode.ANSWERED)

    def _boundary(self, found: str) -> None:
        if self.mode not in (Mode.CONTENT, Mode.CONTENT_OPEN) or " " in self.scan.trail:
            self._drop_space()
        self._keep_space()
        self.writer.literal(found)
        if self.mode in THINKS:
            self._to(Mode.SECOND)
        elif self.mode in (Mode.CONTENT, Mode.CONTENT_OPEN):
            self._to(Mode.BETWEEN)

    # --- trouble -----------------------------------------------------------------------------------------------------

    def _mention(self) -> None:
        """No call followed the marker: all is text of the mode it came from."""
        space, raw = self.block.cleared()
        if self.back in GUARDED:
            self._to(self.back)
            self.space = [space] if space else []
            if self.mode is Mode.REASONING_LEAD:
                self._fall(raw[:1])
            self._text(raw)
        else:
            self._restored(space + raw)

    def _broken(self, code: FaultCode, char: str) -> None:
        if self.block.mention and (self.back in GUARDED or self.block.bare):
            self._mention()
            return
        raw = self.block.broken(code, char)
        if self.mode is Mode.CALL and self.block.engine.verdict == RESUME:
            self.block.engine.repaired()
            if raw:
                self.wrote = True
                self.writer.emit(Content, raw)
                self._strays(raw)
        elif raw is None:
            self._to(Mode.SKIP)
        else:
            self._restored(raw)

    def _restored(self, raw: str) -> None:
        content = Mode.CONTENT_OPEN if self.block.engine.seen else Mode.CONTENT
        self._to(Mode.REASONING if self.inside else content)
        self.wrote = self.wrote or not self.inside
        if raw:
            self._text(raw)
            self._strays(raw)

    def _overflow(self, since: int, end: int) -> None:
        if self.mode is Mode.CALL and self.block.mention and self.back in GUARDED:
            self.writer.fault(FaultCode.HELD_OVERFLOW, (since, end), detail="white space")
            self._mention()
            self._keep_space()
        elif self.mode is Mode.CALL or self.writer.raw is not None:
            raw = self.block.overflow()
            if raw is None:
                self.wrote = True
                self._to(Mode.CONTENT_OPEN)
            else:
                self._restored(raw)
        else:
            self.writer.fault(FaultCode.HELD_OVERFLOW, (since, end), detail="white space")
            if self.mode not in KINDS:
                self._fall("")
            self._keep_space()

    def close(self) -> None:
        """The output ended: what is undecided is text of its mode; a call that was not complete stays so."""
        if self.ended:
            return
        tail, self.tail = self.tail, ""
        self.final = True
        if self.mode is Mode.REPAIR:
            self.block.cut(tail)
        elif self.mode is Mode.BETWEEN_OPEN and any(closer.startswith(tail) for closer in self.closers):
            self.writer.marker(tail)
        elif "\udc00" <= tail[:1] <= "\udfff" and self.mode is not Mode.CALL:
            # The beginning of a literal, and a special token: no text.
            self._drop_space()
            self.writer.marker(tail)
        else:
            self._drain(tail)
            self._settle()
        if self.mode in (Mode.LABEL, Mode.REASONING_LEAD):
            self._to(Mode.REASONING_LEAD)
            self._fall("")
        if self.mode is Mode.ANSWERED:
            self._drop_space()
        self._keep_space()
        if self.mode is Mode.REASONING and not self.paused:
            src = self.writer.pos, self.writer.pos
            self.writer.fault(FaultCode.UNCLOSED_REASONING, src, detail="output ended inside reasoning")
        self.writer.flush()
        self._to(Mode.ENDED)

    def _settle(self) -> None:
        """The end of the output, for an engine that reads."""
        if self.mode is Mode.CALL:
            self._call("", 0)
        if self.mode is Mode.REPAIR:
            self.block.cut("")
        elif self.mode is Mode.CALL and self.block.engine.busy:
            if self.block.mention and (self.back in GUARDED or self.block.bare):
                self._mention()
            else:
                self.block.cut("")
        elif self.mode is Mode.CALL:
            self.writer.commit()

    _HANDLERS: ClassVar[dict[Mode, Callable[[Any, str, int], int]]] = {
        Mode.LEAD: _lead, Mode.SECOND: _lead, Mode.REASONING_LEAD: _lead, Mode.BETWEEN: _lead,
        Mode.BETWEEN_OPEN: _lead, Mode.REPAIR: _lead, Mode.CONTENT: _run, Mode.CONTENT_OPEN: _run,
        Mode.REASONING: _run, Mode.SKIP: _run, Mode.AFTER: _after, Mode.LABEL: _label, Mode.ANSWERED: _lead,
        Mode.CALL: _call, Mode.ENDED: _ended,
    }  # fmt: skip
    _ROLES: ClassVar[dict[Role, Callable[[Any, str], None]]] = {
        Role.OPEN_REASONING: _open_reasoning, Role.CLOSE_REASONING: _close_reasoning,
        Role.OPEN_CALL: _open_call, Role.CLOSE_CALL: _close_call, Role.OPEN_ANSWER: _open_answer,
        Role.CLOSE_ANSWER: _close_answer, Role.BOUNDARY: _boundary,
    }  # fmt: skip
