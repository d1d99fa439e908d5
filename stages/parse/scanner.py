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
from typing import ClassVar, Final

from stages.events import Dropped, FaultCode
from stages.parse.block import SPACE
from stages.parse.engines import BROKEN, REPAIR, SPOILED
from stages.parse.held import Held
from stages.parse.modes import GUARDED, KINDS, LEGAL, THINKS, Mode, Role
from stages.parse.text import OUT

_NEWLINES: Final = re.compile(f"[\n{OUT}]*")
_FIRST_NEWLINE: Final = re.compile(f"[{OUT}]*\n")


class Scanner(Held):
    """See the module: the transitions. What is known between two steps is in Held."""

    __slots__ = ()

    def feed(self, text: str) -> None:
        """Internal text, already counted in the writer's ``held``."""
        while text:
            if self.tail:
                text = self.tail + text
            size = self.writer.size(text)
            room = self.limit - self._undecided(size)
            if size <= room:
                self.tail = ""
                self._drain(text)
                return
            # Near the limit, character by character: where it is passed is a matter of the text, not of the steps.
            cut = max(len(self.tail) + 1, room // 4)
            self.tail = ""
            self._drain(text[:cut])
            text = text[cut:]
            self._check(self.writer.size(text) + self.writer.size(self.tail))

    def _check(self, size: int) -> None:
        """See to it that no more than the limit is undecided; the last ``size`` bytes are not read, or held as what
        may become a marker, which has a bound of its own."""
        writer = self.writer
        while self._undecided(size) > self.limit:
            since, end = self._since(), writer.pos + writer.held - size
            if end - since > self.limit:
                self._overflow(since, end)
            else:
                writer.flush()

    def _drain(self, text: str) -> None:
        i = 0
        n = len(text)
        while i < n:
            i = self._HANDLERS[self.mode](self, text, i)

    def _run(self, text: str, i: int) -> int:
        scan = self.scan
        match = (scan.final if self.final else scan.pattern).search(text, i)
        end = len(text) if match is None else match.start()
        if end > i:
            self._text(text[i:end])
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
        if match is None:
            self._fall(text[j])
            return j
        return self._take(match, text)

    def _after(self, text: str, i: int) -> int:
        match = _NEWLINES.match(text, i)
        j = match.end() if match else i
        if j > i:
            self.writer.marker(text[i:j])
        if j < len(text):
            self._to(Mode.SECOND)
        return j

    def _guard(self, text: str, i: int) -> int:
        i, answer = self.block.test(text, i)
        if answer:
            # The header followed: the marker ends reasoning (or a broken call).
            self._drop_space()
            rest = self.block.confirmed()
            self._to(Mode.CALL)
            self._drain(rest)
        elif answer is False:
            match = self._spelled(text, i)
            if match is not None:
                return self._take(match, text)
            self._unguard()
        return i

    def _call(self, text: str, i: int) -> int:
        engine = self.block.engine
        i = engine.feed(text, i)
        verdict = engine.verdict
        if verdict in (BROKEN, REPAIR):
            match = self._spelled(text, i)
            if match is not None:
                return self._take(match, text)
        if verdict in (BROKEN, SPOILED):
            self._broken(engine.code, text[i : i + 1])
        elif verdict:
            self._to(Mode.REPAIR if verdict == REPAIR else Mode.BETWEEN_OPEN)
        return i

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
            space = "".join(self.space)
            match = _FIRST_NEWLINE.match(space)
            if match:
                self.writer.marker(match.group())
                self.space = [space[match.end() :]] if match.end() < len(space) else []
            self._to(Mode.REASONING)
        elif mode is Mode.REPAIR:
            self._broken(FaultCode.MALFORMED_CALL, char)
        else:
            self.wrote = True
            if mode is Mode.BETWEEN_OPEN:
                pos = self.writer.pos
                src = pos, pos + self.writer.size(char)
                self.writer.fault(FaultCode.MALFORMED_CALL, src, detail="text between a call and the end of its block")
            self._to(Mode.CONTENT_OPEN if mode is Mode.BETWEEN_OPEN else Mode.CONTENT)

    # --- markers -----------------------------------------------------------------------------------------------------

    def _take(self, match: re.Match[str], text: str) -> int:
        if match.lastindex is None:
            self.tail = match.group()
            return len(text)
        return self._marker(match.group(), match.start(), match.end())

    def _marker(self, found: str, start: int, end: int) -> int:
        role = self.plan.roles.get(self.writer.alphabet.literal(found))
        late = role is Role.CLOSE_REASONING and self.mode is Mode.BETWEEN and self.wrote
        if role is Role.FOREIGN:
            return self._foreign(found, start, end)
        if role is Role.ENDER:
            self.close()
            self.writer.emit(Dropped, found)
        elif role is None or late or role not in LEGAL[self.mode]:
            # It has no role here: text.
            if self.mode in KINDS:
                self._text(found)
            else:
                self._fall(found)
                return start
        else:
            self._ROLES[role](self, found)
        return end

    def _foreign(self, found: str, start: int, end: int) -> int:
        """A special token that only its text tells: from here on it is what its id would have made it."""
        char = self.writer.alphabet.name(found, len(found.encode()), False)
        if char is not None:
            if self.mode is Mode.SECOND and not self.space:
                self._to(Mode.AFTER)
            self._drain(char)
        elif self.mode is Mode.CALL:
            self._broken(self.block.engine.code, found[0])
            return start
        elif self.mode is Mode.GUARD:
            self._unguard()
            return start
        else:
            # All names are in use: text.
            (self._text if self.mode in KINDS else self._white)(found)
        return end

    def _open_reasoning(self, found: str) -> None:
        self._drop_space()
        self.writer.literal(found)
        self._to(Mode.REASONING_LEAD)

    def _close_reasoning(self, found: str) -> None:
        self._drop_space()
        if self.mode in THINKS:
            self.writer.literal(found)
        else:
            src = self.writer.take(found)
            self.writer.fault(FaultCode.STRAY_MARKER, src, found, "end of reasoning outside reasoning")
        self._to(Mode.AFTER)

    def _open_call(self, found: str) -> None:
        if self.mode in GUARDED:
            self.back = self.mode
            self.block.suspect(found, batch=self.mode is Mode.SKIP)
            self._to(Mode.GUARD)
            return
        self.writer.begin()
        self._drop_space()
        self.block.open(found)
        self._to(Mode.CALL)

    def _close_call(self, found: str) -> None:
        if self.mode is Mode.REPAIR:
            self.block.engine.repaired()
        self._drop_space()
        self.writer.literal(found)
        self._to(Mode.BETWEEN)

    # --- trouble -----------------------------------------------------------------------------------------------------

    def _unguard(self) -> None:
        """No header: the marker is text of the mode it came from."""
        raw = self.block.cleared()
        self._to(self.back)
        if self.mode is Mode.REASONING_LEAD:
            self._fall(raw)
        self._text(raw)

    def _broken(self, code: FaultCode, char: str) -> None:
        raw = self.block.broken(code, char)
        if raw is None:
            self._to(Mode.SKIP)
        else:
            self._restored(raw)

    def _restored(self, raw: str) -> None:
        self._to(Mode.CONTENT_OPEN if self.block.engine.seen else Mode.CONTENT)
        self.wrote = True
        self._text(raw)

    def _overflow(self, since: int, end: int) -> None:
        if self.mode is Mode.CALL or self.writer.raw is not None:
            raw = self.block.overflow()
            if raw is None:
                self.wrote = True
                self._to(Mode.CONTENT_OPEN)
            else:
                self._restored(raw)
            return
        self.writer.fault(FaultCode.HELD_OVERFLOW, (since, end), detail="white space")
        if self.mode is Mode.GUARD:
            self._unguard()
        elif self.mode not in KINDS:
            self._fall("")
        self._keep_space()

    def close(self) -> None:
        """The output ended: what is undecided is text of its mode; a call that was not complete stays so."""
        if self.ended:
            return
        tail, self.tail = self.tail, ""
        self.final = True
        if tail and self.mode in (Mode.CALL, Mode.GUARD):
            tail = tail[self._HANDLERS[self.mode](self, tail, 0) :]
        mode = self.mode
        if mode is Mode.REPAIR or (mode is Mode.CALL and self.block.engine.busy):
            self.block.cut(tail)
        elif mode is Mode.BETWEEN_OPEN and any(closer.startswith(tail) for closer in self._closers):
            self.writer.marker(tail)
        elif mode is Mode.GUARD:
            self._unguard()
        else:
            self._drain(tail)
        if self.mode is Mode.REASONING_LEAD:
            self._fall("")
        self._keep_space()
        if self.mode is Mode.REASONING:
            src = self.writer.pos, self.writer.pos
            self.writer.fault(FaultCode.UNCLOSED_REASONING, src, detail="output ended inside reasoning")
        self.writer.flush()
        self._to(Mode.ENDED)

    _HANDLERS: ClassVar[dict[Mode, Callable[[Scanner, str, int], int]]] = {
        Mode.LEAD: _lead, Mode.SECOND: _lead, Mode.REASONING_LEAD: _lead, Mode.BETWEEN: _lead,
        Mode.BETWEEN_OPEN: _lead, Mode.REPAIR: _lead, Mode.CONTENT: _run, Mode.CONTENT_OPEN: _run,
        Mode.REASONING: _run, Mode.SKIP: _run, Mode.AFTER: _after, Mode.GUARD: _guard, Mode.CALL: _call,
        Mode.ENDED: _ended,
    }  # fmt: skip
    _ROLES: ClassVar[dict[Role, Callable[[Scanner, str], None]]] = {
        Role.OPEN_REASONING: _open_reasoning, Role.CLOSE_REASONING: _close_reasoning,
        Role.OPEN_CALL: _open_call, Role.CLOSE_CALL: _close_call,
    }  # fmt: skip
