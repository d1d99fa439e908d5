"""What a scanner knows between two steps: its mode, and what is undecided in it."""

from __future__ import annotations

from typing import Final

import msgspec

from stages.events import Content
from stages.parse.block import Block, BlockState
from stages.parse.format import TRIMS, Format, Reasoning
from stages.parse.lexicon import Find
from stages.parse.markers import Plan
from stages.parse.modes import DROPS_SPACE, KINDS, SENDS, THINKS, Mode
from stages.parse.site import Site
from stages.parse.writer import Text, WriterState, pack, unpack

_FEW: Final = 8
"""Pieces of white space."""


class ScannerState(msgspec.Struct, frozen=True):
    """A scanner's snapshot; texts are packed."""

    mode: int
    tail: bytes
    space: bytes
    back: int
    wrote: bool
    thought: bool
    wrapped: bool
    header: bytes
    fresh: bool
    sent: bytes
    alphabet: tuple[tuple[bytes, str, int], ...]
    writer: WriterState
    block: BlockState | None


class Held:
    """``space``, ``tail`` and the block hold what is undecided in ``mode``."""

    __slots__ = (
        "_block", "back", "closers", "drop", "final", "fresh", "header", "kind", "limit", "mode", "plan", "reading",
        "reasoning", "scan", "sent", "site", "space", "tail", "thought", "trim", "wrapped", "writer", "wrote",
    )  # fmt: skip

    def __init__(self, form: Format, plan: Plan, site: Site, limit: int, mode: Mode) -> None:
        self.plan = plan
        self.reading = plan.by_id
        self.site = site
        self.writer = site.writer
        self.limit = limit
        self.closers = () if form.calls is None else form.calls.closers
        self.drop = form.calls is not None and form.calls.drop
        self.reasoning = form.reasoning or Reasoning((), ())
        self.trim = TRIMS[self.reasoning.trim]
        self._block = None if form.calls is None else Block(form.calls, site)
        self.tail = ""
        """What may become a marker."""
        self.space: list[str] = []
        """White space that a marker may drop."""
        self.back = Mode.CONTENT
        """In CALL: where the block was opened, where that matters."""
        self.wrote = False
        """Content was begun."""
        self.thought = False
        """Reasoning was begun."""
        self.wrapped = False
        """The wrapper of the answer is open."""
        self.header = ""
        """What the prompt has of the first message's header."""
        self.sent = ""
        """The end of what was sent, where it may become a marker that means nothing in this mode."""
        self.fresh = False
        """A body begins: if it goes on with what was said before, a newline joins them."""
        self.final = False
        """The output ended: nothing can become a marker any more."""
        self._to(mode)

    @property
    def state(self) -> str:
        """Where it stands, for people: the mode in lower case; behind a colon where the engine of a call does."""
        mode = self.mode.name.lower()
        return f"{mode}: {self.block.engine.state}" if self.mode is Mode.CALL else mode

    @property
    def ended(self) -> bool:
        """The output is over; what still comes is dropped."""
        return self.mode is Mode.ENDED

    @property
    def thinks(self) -> bool:
        """Inside reasoning."""
        return self.mode in THINKS or (self.mode is Mode.CALL and self.back in THINKS and self.block.mention)

    @property
    def inside(self) -> bool:
        """The block was opened in reasoning, and does not end it."""
        return self.reasoning.calls == "inside" and self.back in THINKS

    @property
    def paused(self) -> bool:
        """Calls inside reasoning were the last that came: their results are waited for."""
        return self._block is not None and self._block.ended == self.writer.pos

    @property
    def idle(self) -> bool:
        """Nothing is held but a little ``space``, and ordinary text goes out as ``kind`` behind it."""
        if self.mode not in SENDS or self.tail or self.sent or self.fresh or self.writer.mark:
            return False
        # White space that comes and comes is joined once, at its end.
        return len(self.space) < _FEW

    @property
    def flow(self) -> Find | None:
        """Text in which this finds nothing is arguments of the open call, as it is; None: no such thing can be said."""
        if self.mode is not Mode.CALL or self.tail or self.writer.raw is not None or self.writer.mark:
            return None
        return self.block.engine.flow

    def resolve(self, *, ids: bool) -> None:
        """Whether ids tell what is a special token, or text has to."""
        self.reading = self.plan.by_id if ids else self.plan.by_text
        self.site.lexicon = self.reading.lexicon
        self._to(self.mode)

    @property
    def block(self) -> Block:
        """The call block; only formats with calls come into the modes that use it."""
        assert self._block is not None
        return self._block

    def _to(self, mode: Mode) -> None:
        self.mode = mode
        self.sent = ""
        self.kind: Text = KINDS.get(mode, Content)
        self.scan = self.reading.scan(mode)

    def _since(self) -> int:
        """The first byte of the undecided region; the writer's position if there is none."""
        writer = self.writer
        return self.block.since if self.mode is Mode.CALL or writer.raw is not None else writer.pos

    def _undecided(self, size: int) -> int:
        """Bytes that are held, or collected as structure; without the last ``size`` of those that arrived."""
        writer = self.writer
        since = self._since()
        return writer.pos + writer.held - size - (min(since, writer.mark_start) if writer.mark else since)

    def _drain(self, text: str) -> None:
        """Read internal text. The subclass's."""
        raise NotImplementedError

    def _overflow(self, since: int, end: int) -> None:
        """The bytes from ``since`` to ``end`` are too many to be undecided. The subclass's."""
        raise NotImplementedError

    def feed(self, text: str) -> None:
        """Internal text, already counted in the writer's ``held``."""
        writer = self.writer
        if text and writer.pos + writer.held <= self.limit:
            # All that was ever written may be undecided.
            tail, self.tail = self.tail, ""
            self._drain(tail + text)
            return
        rest = writer.size(text)
        i = 0
        while i < len(text):
            tail, self.tail = self.tail, ""
            size = rest + writer.size(tail)
            room = self.limit - self._undecided(size)
            if size <= room:
                self._drain(tail + text[i:])
                return
            # Near the limit, character by character: where it is passed is a matter of the text, not of the steps.
            piece = text[i : i + max(1, room // 4 - len(tail))]
            i += len(piece)
            rest -= writer.size(piece)
            self._drain(tail + piece)
            self._check(rest + writer.size(self.tail))

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

    # --- text and white space -------------------------------------------------------------------------------------

    def _text(self, head: str) -> None:
        run = ""
        trail = self.scan.trail
        if trail and head[-1] in trail:
            body = head.rstrip(trail)
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

    # --- snapshot ----------------------------------------------------------------------------------------------------

    def snapshot(self) -> ScannerState:
        """The state as plain data."""
        entries = tuple((pack(char), text, size) for char, text, size in self.writer.alphabet.entries())
        return ScannerState(
            self.mode, pack(self.tail), pack("".join(self.space)), self.back, self.wrote, self.thought, self.wrapped,
            pack(self.header), self.fresh, pack(self.sent), entries, self.writer.snapshot(),
            None if self._block is None else self._block.snapshot(),
        )  # fmt: skip

    def restore(self, state: ScannerState) -> None:
        """Continue from ``snapshot``, after ``resolve``."""
        self.tail = unpack(state.tail)
        self.space = [unpack(state.space)] if state.space else []
        self.back, self.wrote = Mode(state.back), state.wrote
        self.thought, self.wrapped = state.thought, state.wrapped
        self.header, self.fresh = unpack(state.header), state.fresh
        self.writer.alphabet.restore((unpack(char), text, size) for char, text, size in state.alphabet)
        self.writer.restore(state.writer)
        if self._block is not None and state.block is not None:
            self._block.restore(state.block)
        self._to(Mode(state.mode))
        self.sent = unpack(state.sent)
