"""Teller: what a response of one choice says → its semantic events, in the order that the semantic layer has.

Protocols may send several calls at once; the semantic layer has one after the other. A call's pieces that come before
its turn wait.
"""

from __future__ import annotations

import copy
from typing import Final, TypeAlias

import msgspec

from stages.events import (
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    End,
    Failure,
    Finish,
    FinishReason,
    Reasoning,
    Refusal,
    Semantic,
    Src,
    Start,
    Usage,
)
from stages.parse.arguments import END, MORE, JsonScanner, JsonState
from stages.parse.writer import call_id

_SPACE: Final = " \t\r\n"
TRUNCATED: Final = "truncated"
"""The code of the failure of a stream that ended too early."""
Text: TypeAlias = type[Reasoning] | type[Content] | type[Refusal]


class ObjectScan(msgspec.Struct):
    """Tells when the arguments that were fed are one whole JSON object."""

    json: JsonState | None = None
    begun: bool = False
    ended: bool = False
    bad: bool = False

    @property
    def whole(self) -> bool:
        """They are one now."""
        return self.ended and not self.bad

    def feed(self, text: str) -> None:
        """The next fragment."""
        if not self.begun:
            text = text.lstrip(_SPACE)
            self.begun = bool(text)
            self.bad = bool(text) and text[0] != "{"
        if self.ended:
            self.bad = self.bad or bool(text.strip(_SPACE))
        elif text and not self.bad:
            scanner = JsonScanner(self.json)
            end = scanner.feed(text, 0)
            self.ended = scanner.status == END
            self.bad = bool(text[end:].strip(_SPACE)) if self.ended else scanner.status != MORE
            self.json = scanner.snapshot()


class ToldCall(msgspec.Struct):
    """A call so far. ``pieces``: of its arguments, not told yet; ``free``: they are no JSON; ``done``: nothing more
    comes; ``cut``: and what came is not all of it."""

    id: str
    name: str
    free: bool = False
    pieces: list[str] = []
    some: bool = False
    done: bool = False
    cut: bool = False


class TellerState(msgspec.Struct):
    """All that a teller knows; plain data. ``size``: bytes of the text so far; ``open``: the place of the call that is
    being told, or of the next; ``begun``: its CallStart is out; ``told``: a text or a call was told."""

    response: str = ""
    size: int = 0
    started: bool = False
    told: bool = False
    calls: list[ToldCall] = []
    open: int = 0
    begun: bool = False
    scan: ObjectScan = msgspec.field(default_factory=ObjectScan)
    failed: bool = False
    ended: bool = False


class Teller:
    """The machine. After ``fail``, ``finish`` or ``end`` it tells nothing but the End."""

    def __init__(self, state: TellerState | None = None) -> None:
        self.state = TellerState() if state is None else copy.deepcopy(state)

    def snapshot(self) -> TellerState:
        """A copy of the state."""
        return copy.deepcopy(self.state)

    @property
    def over(self) -> bool:
        """Nothing of the response counts any more."""
        return self.state.failed or self.state.ended

    def start(self, prompt: int, cached: int, out: list[Semantic]) -> None:
        """The response is there. Only the first call says something."""
        if not self.state.started:
            self.state.started = True
            out.append(Start(0, prompt, cached))

    def text(self, kind: Text, text: str, out: list[Semantic]) -> None:
        """A piece of text; an empty one says nothing."""
        if text:
            self.start(0, 0, out)
            self.state.told = True
            out.append(kind(0, text, self._src(text)))

    def call(self, number: str, name: str, free: bool, out: list[Semantic]) -> int:
        """A call begins. Returns its place. ``number``: its id, empty where it has none."""
        self.start(0, 0, out)
        self.state.told = True
        self.state.calls.append(ToldCall(number, name, free))
        self._calls(out)
        return len(self.state.calls) - 1

    def name(self, place: int, number: str, name: str) -> None:
        """The id and the name of a call, which may come late; the first ones count."""
        call = self.state.calls[place]
        call.id = call.id or number
        call.name = call.name or name

    def arguments(self, place: int, text: str, out: list[Semantic]) -> None:
        """A piece of a call's arguments."""
        call = self.state.calls[place]
        if text and not call.done:
            call.pieces.append(text)
            call.some = True
            self._calls(out)

    def close(self, place: int, complete: bool, out: list[Semantic]) -> None:
        """A call is over. ``complete``: it was not cut off; then no arguments are as good as an empty object."""
        call = self.state.calls[place]
        if not call.done:
            call.done, call.cut = True, not complete
            self._calls(out)

    def finish(self, reason: FinishReason, detail: str | int | None, usage: Usage | None, out: list[Semantic]) -> None:
        """The response is whole."""
        self.start(0, 0, out)
        self._close_all(out, whole=True)
        out.append(Finish(0, reason, detail))
        if usage is not None:
            out.append(usage)
        self.end(out)

    def fail(self, failure: Failure, out: list[Semantic]) -> None:
        """The response has an error. Its End is still to come."""
        if not self.over:
            self._close_all(out)
            self.state.failed = True
            out.append(failure)

    def end(self, out: list[Semantic]) -> None:
        """Nothing more comes."""
        if not self.state.ended:
            self._close_all(out)
            self.state.ended = True
            out.append(End())

    # --- calls

    def _calls(self, out: list[Semantic]) -> None:
        """Tell what can be told of the calls, in their order."""
        state = self.state
        while state.open < len(state.calls):
            call = state.calls[state.open]
            if not state.begun:
                if not call.name and not call.done:
                    return
                number = call.id or call_id(state.response, 0, state.open)
                out.append(CallStart(0, state.open, number, call.name, self._src(call.name)))
                state.begun = True
            for piece in call.pieces:
                state.scan.feed(piece)
                out.append(CallArguments(0, state.open, piece, self._src(piece)))
            call.pieces.clear()
            if not call.done:
                return
            whole = bool(call.name) and not call.cut and (call.free or state.scan.whole or not state.scan.begun)
            out.append(CallEnd(0, state.open, whole))
            state.open += 1
            state.begun, state.scan = False, ObjectScan()

    def _close_all(self, out: list[Semantic], *, whole: bool = False) -> None:
        """``whole``: nobody cut the response off: a call that nobody ended counts if its arguments are an object."""
        for place in range(self.state.open, len(self.state.calls)):
            call = self.state.calls[place]
            call.cut = call.cut or not (call.done or (whole and call.some))
            call.done = True
        self._calls(out)

    def _src(self, text: str) -> Src:
        start = self.state.size
        self.state.size += len(text.encode("utf-8", "surrogatepass"))
        return start, self.state.size
