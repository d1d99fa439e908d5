"""One choice's machine: token steps → characters → the scanner."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from stages.events import (
    CallArguments,
    Dropped,
    Fault,
    FaultCode,
    Finish,
    FinishReason,
    Input,
    Reasoning,
    Semantic,
    Tokens,
    TokensInput,
)
from stages.opening import Opening
from stages.parse import text as tx
from stages.parse.channels import Messages
from stages.parse.format import Format
from stages.parse.held import ScannerState
from stages.parse.lexicon import Find
from stages.parse.markers import Plan, Special
from stages.parse.modes import Mode, Role
from stages.parse.reasoning import Begin
from stages.parse.scanner import Scanner
from stages.parse.site import Site
from stages.parse.types import Tools
from stages.parse.writer import Text, Writer, pack, unpack

_LONG: Final = 256
"""Characters of white space that are put in front of a text again and again."""
_STOPPED: Final = Special("", Role.ENDER)
"""A token that the request names as an end: it and what follows it is no text."""


def _nothing(_text: str) -> None:
    """Finds nothing."""


def _stopping(plan: Plan, ids: tuple[int, ...]) -> dict[int, Special]:
    # A marker of the format that ends the output is still read: a call may end with it.
    markers = {number for number, entry in plan.special.items() if entry.role is None}
    return {number: _STOPPED for number in ids if number not in markers}


class ChoiceState(msgspec.Struct, frozen=True):
    """A choice's snapshot; texts are packed."""

    ids: bool | None
    partial: bytes
    half: bytes
    finished: bool
    reasoning: int
    scanner: ScannerState


class Choice:
    """Assembles characters from token bytes, tells special tokens by their ids, counts, and ends once."""

    __slots__ = (
        "clean", "finished", "half", "ids", "index", "kind", "partial", "quick", "reasoning", "scanner", "special",
        "writer",
    )  # fmt: skip

    def __init__(self, form: Format, plan: Plan, opening: Opening, tools: Tools, index: int, begin: Begin) -> None:
        self.index = index
        self.special = plan.special
        if opening.ask.stop_ids and not opening.ask.include_stop:
            self.special = {**plan.special, **_stopping(plan, opening.ask.stop_ids)}
        lexicon = plan.by_id.lexicon
        ids = "call" if form.calls is None else form.calls.ids
        self.writer = Writer(index, opening.key, opening.calls == "whole", tx.Alphabet(lexicon.chars), ids)
        site = Site(self.writer, tools, lexicon)
        if form.channels is None:
            self.scanner = Scanner(form, plan, site, opening.max_held, begin.mode)
        else:
            self.scanner = Messages(form, form.channels, plan, site, opening.max_held, begin.header)
        self.ids: bool | None = None
        """Steps carry ids and bytes; None: not known yet."""
        self.partial = b""
        """The beginning of a character."""
        self.half = ""
        """The first half of a surrogate pair, from an engine without bytes."""
        self.finished = False
        self.reasoning = 0
        """Tokens of steps that ended inside reasoning."""
        self.clean = False
        """The next step may be short: what ``quick`` finds nothing in is all ``kind`` (None: arguments)."""
        self.quick: Find | None = None
        self.kind: Text | None = None
        self._settle()

    # --- inputs -----------------------------------------------------------------------------------------------------

    def tokens(self, event: TokensInput, out: list[Semantic]) -> None:
        """One step of this choice."""
        ids = event.ids
        pieces = event.pieces
        out.append(Tokens(self.index, ids, event.logprobs))
        # Most steps: one ordinary token, whole characters, nothing that could begin a marker.
        if self.clean and len(pieces) == 1 == len(ids) and ids[0] not in self.special:
            piece = pieces[0]
            try:
                text = piece.decode()
            except UnicodeDecodeError:
                text = ""
            if text and not self.scanner.space and (self.quick is None or self.quick(text) is None):
                writer = self.writer
                start = writer.pos
                writer.pos = end = start + len(piece)
                kind = self.kind
                if kind is None:
                    out.append(CallArguments(self.index, writer.calls - 1, text, (start, end)))
                    return
                out.append(kind(self.index, text, (start, end)))
                if kind is Reasoning:
                    self.reasoning += 1
                return
            if text and self._spaced(text, len(piece), out):
                return
        self._step(event, out)

    def run(self, inputs: Iterator[Input], out: list[Semantic], ends: list[int]) -> Input | None:
        """Do the steps that take the short way of ``tokens``, as long as they come, and tell the end of each; returns
        the first input that has to go another way. Only where ``clean``."""
        index, kind, special = self.index, self.kind, self.special
        quick = self.quick or _nothing
        call, pos = self.writer.calls - 1, self.writer.pos
        space = "".join(self.scanner.space)
        add = out.append
        before, done = len(out), len(ends)
        for event in inputs:
            if type(event) is not TokensInput or event.choice != index:
                break
            ids = event.ids
            try:
                (number,) = ids
                (piece,) = event.pieces
                text = piece.decode()
            except ValueError:  # another number of tokens, or no whole characters
                break
            if number in special or not text:
                break
            end = pos + len(piece)
            if space or quick(text) is not None:
                parted = self._parted(text, len(piece), space)
                if parted is None:
                    break
                end += len(space)
                text, space = parted
                end -= len(space)
            add(Tokens(index, ids, event.logprobs))
            if text:
                src = pos, end
                pos = end
                add(CallArguments(index, call, text, src) if kind is None else kind(index, text, src))
            else:
                ends += range(before + 2, len(out), 2)
                before = len(out)
                ends.append(before)
        else:
            event = None
        ends += range(before + 2, len(out) + 1, 2)
        self._ran(pos, space, len(ends) - done)
        return event

    def _ran(self, pos: int, space: str, steps: int) -> None:
        """So many steps took the short way, up to byte ``pos``; what is held behind it."""
        writer, scanner = self.writer, self.scanner
        writer.pos = pos
        if space or scanner.space:
            writer.held += len(space) - sum(map(len, scanner.space))
            scanner.space = [space] if space else []
        if self.kind is Reasoning:
            self.reasoning += steps

    def _parted(self, text: str, size: int, space: str) -> tuple[str, str] | None:
        """What goes out of a text of so many bytes behind white space that is held, and what is held then. None: it is
        not all text, or not for sure."""
        scan = self.scanner.scan
        if self.kind is None or size + len(space) > self.scanner.limit or not (space.isascii() and len(space) < _LONG):
            return None
        if scan.any.search(text) is not None:
            return None
        body = text.rstrip(scan.trail) if scan.trail else text
        return (space + body, text[len(body) :]) if body else ("", space + text)

    def _spaced(self, text: str, size: int, out: list[Semantic]) -> bool:
        """Do a step with white space behind it, or in front; False: it has to go the long way."""
        space = "".join(self.scanner.space)
        parted = self._parted(text, size, space)
        if parted is None or self.kind is None:
            return False
        text, held = parted
        start = self.writer.pos
        end = start + len(space) + size - len(held)
        if text:
            out.append(self.kind(self.index, text, (start, end)))
        self._ran(end, held, 1)
        return True

    def _step(self, event: TokensInput, out: list[Semantic]) -> None:
        self.writer.attach(out)
        pieces = event.pieces
        if self.ids is None and (pieces or event.text):
            self.ids = bool(pieces)
            self.scanner.resolve(ids=self.ids)
        if not pieces:
            # A step that wrote nothing breaks no character.
            if event.text:
                self._string(event.text)
        elif self.ids and len(pieces) == len(event.ids) and not self.special.keys().isdisjoint(event.ids):
            self._pieces(event.ids, pieces)
        else:
            self._bytes(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        self._settle()
        if self.scanner.thinks:
            self.reasoning += len(event.ids)

    def finish(self, reason: FinishReason, stop: str | int | None, out: list[Semantic]) -> None:
        """The engine ended this choice."""
        if not self.finished:
            self.scanner.site.ended = reason == "eos"
            self.cut(out)
            out.append(Finish(self.index, reason, stop))

    def cut(self, out: list[Semantic]) -> None:
        """Nothing more comes: deliver what is held."""
        self.writer.attach(out)
        self._break()
        if not self.finished:
            self.scanner.close()
            self._settle()
            self.finished = True

    # --- bytes → text ------------------------------------------------------------------------------------------------

    def _pieces(self, ids: tuple[int, ...], pieces: tuple[bytes, ...]) -> None:
        run: list[bytes] = []
        for number, piece in zip(ids, pieces, strict=True):
            entry = self.special.get(number)
            if entry is None:
                run.append(piece)
                continue
            if run:
                self._bytes(b"".join(run))
                run.clear()
            self._special(entry, piece)
        if run:
            self._bytes(b"".join(run))

    def _special(self, entry: Special, piece: bytes) -> None:
        self._break()
        shown = entry.text or piece.decode("utf-8", "replace")
        ender = entry.role is Role.ENDER
        char = self.writer.alphabet.name(shown, len(piece), entry.role is None, ender)
        if char is None:
            self._bytes(piece)
            return
        if ender:
            self.scanner.site.ended = entry is not _STOPPED
            self.scanner.close()
            self.writer.held += len(piece)
            self.writer.emit(Dropped, char)
        else:
            self.writer.held += len(piece)
            self.scanner.feed(char)

    def _bytes(self, data: bytes) -> None:
        if self.half:
            self._break()
        writer = self.writer
        if not self.partial and data.isascii():
            writer.held += len(data)
            self.scanner.feed(data.decode())
            return
        text, self.partial = tx.decode(self.partial + data)
        # A bad sequence is reported where it stands: behind what came before it, also where that ends the output.
        for part, bad in tx.parted(text):
            start = writer.pos + writer.held
            writer.held += bad or len(part.encode())
            if bad:
                self._invalid((start, start + bad))
            self.scanner.feed(part)

    def _string(self, text: str) -> None:
        if not text.isascii():
            if self.partial:
                self._break()
            text = self.half + text
            self.half = text[-1] if "\ud800" <= text[-1] <= "\udbff" else ""
            text = tx.joined(text[:-1] if self.half else text)
        elif self.partial or self.half:
            self._break()
        self.writer.held += len(text.encode())
        self.scanner.feed(text)

    def _break(self) -> None:
        """What began as a character is none."""
        writer = self.writer
        if self.partial:
            start = writer.pos + writer.held
            writer.held += len(self.partial)
            self._invalid((start, start + len(self.partial)))
            text, self.partial = tx.unfinished(self.partial), b""
            self.scanner.feed(text)
        if self.half:
            self.half = ""
            writer.held += len("\ufffd".encode())
            self.scanner.feed("\ufffd")

    def _invalid(self, src: tuple[int, int]) -> None:
        # Behind the end all is dropped, well formed or not.
        if not self.scanner.ended:
            self.writer.out.append(Fault(self.index, FaultCode.INVALID_UTF8, src))

    def _settle(self) -> None:
        """Find out whether the next step may take the short way."""
        scanner = self.scanner
        self.clean = False
        if self.ids is True and not self.partial and not self.half:
            if scanner.mode is Mode.CALL:
                self.quick, self.kind = scanner.flow, None
                self.clean = self.quick is not None
            elif scanner.idle:
                self.clean = True
                self.quick, self.kind = scanner.scan.quick, scanner.kind

    # --- snapshot ----------------------------------------------------------------------------------------------------

    def snapshot(self) -> ChoiceState:
        """The state as plain data."""
        return ChoiceState(
            self.ids, self.partial, pack(self.half), self.finished, self.reasoning, self.scanner.snapshot()
        )

    def restore(self, state: ChoiceState) -> None:
        """Continue from ``snapshot``."""
        self.ids, self.partial, self.half = state.ids, state.partial, unpack(state.half)
        self.finished, self.reasoning = state.finished, state.reasoning
        self.scanner.resolve(ids=state.ids is not False)
        self.scanner.restore(state.scanner)
        self._settle()
