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

import msgspec

from stages.events import Content, Dropped, FaultCode
from stages.parse.block import SPACE, Block, BlockState
from stages.parse.engines import BROKEN, REPAIR
from stages.parse.format import Format
from stages.parse.markers import Find, Plan
from stages.parse.modes import DROPS_SPACE, GUARDED, KINDS, LEGAL, SENDS, THINKS, Mode, Role
from stages.parse.text import OUT
from stages.parse.writer import Text, Writer, WriterState, pack, unpack

_NEWLINES: Final = re.compile(f"[\n{OUT}]*")
_FIRST_NEWLINE: Final = re.compile(f"[{OUT}]*\n")


class ScannerState(msgspec.Struct, frozen=True):
    """A scanner's snapshot; texts are packed."""

    mode: int
    tail: bytes
    space: bytes
    back: int
    wrote: bool
    alphabet: tuple[tuple[bytes, str, int], ...]
    writer: WriterState
    block: BlockState | None


class Scanner:
    """See the module. ``mode`` is the state; ``space``, ``tail`` and the block hold what is undecided in it."""

    __slots__ = (
        "_block", "_closers", "back", "final", "kind", "limit", "mode", "plan", "scan", "scans", "space", "tail",
        "writer", "wrote",
    )  # fmt: skip

    def __init__(self, form: Format, plan: Plan, writer: Writer, limit: int, mode: Mode) -> None:
        self.plan = plan
        self.scans = plan.by_id
        self.writer = writer
        self.limit = limit
        self._block = None if form.calls is None else Block(form.calls, writer)
        self._closers = () if form.calls is None else form.calls.closers
        self.tail = ""
        """What may become a marker."""
        self.space: list[str] = []
        """White space that a marker may drop."""
        self.back = Mode.REASONING
        """In GUARD: where to return."""
        self.wrote = False
        """Content was begun."""
        self.final = False
        """The output ended: nothing can become a marker any more."""
        self._to(mode)

    @property
    def ended(self) -> bool:
        """The output is over; what still comes is dropped."""
        return self.mode is Mode.ENDED

    @property
    def thinks(self) -> bool:
        """Inside reasoning."""
        return self.mode in THINKS or (self.mode is Mode.GUARD and self.back in THINKS)

    @property
    def idle(self) -> bool:
        """Nothing is held, and ordinary text goes out as ``kind``."""
        return self.mode in SENDS and not self.tail and not self.space and not self.writer.mark

    @property
    def flow(self) -> Find | None:
        """Text in which this finds nothing is arguments of the open call, as it is; None: no such thing can be said."""
        if self.mode is not Mode.CALL or self.writer.raw is not None or self.writer.mark:
            return None
        return self.block.engine.flow

    def resolve(self, *, ids: bool) -> None:
        """Whether ids tell what is a special token, or text has to."""
        self.scans = self.plan.by_id if ids else self.plan.by_text
        self._to(self.mode)

    @property
    def block(self) -> Block:
        """The call block; only formats with calls come into the modes that use it."""
        assert self._block is not None
        return self._block

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

    def _since(self) -> int:
        """The first byte of the undecided region; the writer's position if there is none."""
        writer = self.writer
        return self.block.since if self.mode is Mode.CALL or writer.raw is not None else writer.pos

    def _undecided(self, size: int) -> int:
        """Bytes that are held, or collected as structure; without the last ``size`` of those that arrived."""
        writer = self.writer
        since = self._since()
        return writer.pos + writer.held - size - (min(since, writer.mark_start) if writer.mark else since)

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

    def _to(self, mode: Mode) -> None:
        self.mode = mode
        self.kind: Text = KINDS.get(mode, Content)
        self.scan = self.scans.get(mode) or self.scans[Mode.CONTENT]

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
        match = self._spelled(text, i)
        if match is None:
            return self._test(text, i)
        j = i + self._test(text[i : match.start()], 0)
        return j if j < match.start() or self.mode is not Mode.GUARD else self._take(match, text)

    def _call(self, text: str, i: int) -> int:
        match = self._spelled(text, i)
        if match is None:
            return self._read(text, i)
        j = i + self._read(text[i : match.start()], 0)
        if j < match.start() or self.mode is not Mode.CALL:
            return j
        if self.block.engine.quoted:
            return j + self._read(text[j], 0)
        return self._take(match, text)

    def _spelled(self, text: str, i: int) -> re.Match[str] | None:
        """The next special token, or what may become one, in text without ids."""
        scan = self.scan
        if scan.quick is None:
            return None
        return (scan.final if self.final else scan.pattern).search(text, i)

    def _test(self, text: str, i: int) -> int:
        i, answer = self.block.test(text, i)
        if answer:
            # The header followed: the marker ends reasoning (or a broken call).
            self._drop_space()
            rest = self.block.confirmed()
            self._to(Mode.CALL)
            self._drain(rest)
        elif answer is False:
            self._unguard()
        return i

    def _read(self, text: str, i: int) -> int:
        engine = self.block.engine
        i = engine.feed(text, i)
        if engine.verdict == BROKEN:
            self._broken(engine.code, text[i : i + 1])
        elif engine.verdict:
            self._to(Mode.REPAIR if engine.verdict == REPAIR else Mode.BETWEEN_OPEN)
        return i

    def _ended(self, text: str, i: int) -> int:
        self.writer.emit(Dropped, text[i:])
        return len(text)

    # --- text ---------------------------------------------------------------------------------------------------------

    def _text(self, head: str) -> None:
        run = ""
        if self.scan.newline and head[-1] == "\n":
            body = head.rstrip("\n")
            if not body:
                self.space.append(head)
                return
            run = head[len(body) :]
            head = body
        if self.space:
            head = "".join((*self.space, head))
            self.space.clear()
        self.writer.emit(self.kind, head)
        if run:
            self.space.append(run)

    def _white(self, piece: str) -> None:
        if self.mode in DROPS_SPACE:
            self.writer.marker(piece)
        else:
            self.space.append(piece)

    def _drop_space(self) -> None:
        if self.space:
            self.writer.marker("".join(self.space))
            self.space.clear()

    def _keep_space(self) -> None:
        if self.space:
            self.writer.emit(self.kind, "".join(self.space))
            self.space.clear()

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
        elif self.mode in (Mode.CALL, Mode.GUARD):
            # All names are in use: text.
            return start + (self._read if self.mode is Mode.CALL else self._test)(found[0], 0)
        else:
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
            self.block.suspect(found)
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
            tail = tail[(self._read if self.mode is Mode.CALL else self._test)(tail, 0) :]
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

    # --- snapshot ----------------------------------------------------------------------------------------------------

    def snapshot(self) -> ScannerState:
        """The state as plain data."""
        entries = tuple((pack(char), text, size) for char, text, size in self.writer.alphabet.entries())
        return ScannerState(
            self.mode, pack(self.tail), pack("".join(self.space)), self.back, self.wrote, entries,
            self.writer.snapshot(), None if self._block is None else self._block.snapshot(),
        )  # fmt: skip

    def restore(self, state: ScannerState) -> None:
        """Continue from ``snapshot``, after ``resolve``."""
        self.tail = unpack(state.tail)
        self.space = [unpack(state.space)] if state.space else []
        self.back, self.wrote = Mode(state.back), state.wrote
        self.writer.alphabet.restore((unpack(char), text, size) for char, text, size in state.alphabet)
        self.writer.restore(state.writer)
        if self._block is not None and state.block is not None:
            self._block.restore(state.block)
        self._to(Mode(state.mode))

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
