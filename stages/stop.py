"""The stop stage: semantic → semantic. Ends a choice at a stop string.

A stop string is searched in each kind of text by itself: content, reasoning, the arguments of one call; and, whole, in
a Marker. A match never spans kinds, and an event of another kind (but not Tokens, which own no text) ends the search.
Of several matches the one that is complete first wins, which is the one that a reader of single characters would see
first; of those that end together, the longest.

Text that may yet become a stop string is held: at most the longest stop string less one character.

What follows a match is Dropped. The choice gets its Finish at once, and no second one. A call that it cuts is an honest
prefix with a fault; under ``whole``, where calls are only delivered when they are complete, it is the fault alone.
"""

from __future__ import annotations

import re
from typing import Final, TypeAlias

import msgspec

from stages.events import (
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    Dropped,
    Echo,
    End,
    Failure,
    Fault,
    FaultCode,
    Finish,
    Marker,
    Reasoning,
    Refusal,
    Semantic,
    Src,
    Start,
    Tick,
    TimingInput,
    Tokens,
    Usage,
)
from stages.opening import Ask, Opening

_Piece: TypeAlias = Content | Reasoning | CallArguments
_Other: TypeAlias = Refusal | CallStart | CallEnd | Marker | Dropped | Fault | Finish

_SCOPES: Final[dict[type[_Piece], str]] = {Content: "content", Reasoning: "reasoning", CallArguments: "arguments"}
_BLANK: Final = " \t\r\n"


class StopChoiceState(msgspec.Struct, frozen=True):
    """One choice's snapshot."""

    choice: int
    held: tuple[_Piece, ...]
    call: int
    stopped: bool
    open: tuple[Semantic, ...] | None


class StopState(msgspec.Struct, frozen=True):
    """The stage's snapshot."""

    choices: tuple[StopChoiceState, ...]


def needed(ask: Ask) -> bool:
    """The stage has something to do."""
    return any(ask.stop) and bool(ask.stop_scopes)


class _Stops:
    """The stop strings of a request, ready to search."""

    __slots__ = ("_first", "keep", "scopes", "strings")

    def __init__(self, ask: Ask) -> None:
        self.strings = tuple(sorted({text for text in ask.stop if text}, key=lambda text: (-len(text), text)))
        self.scopes = frozenset(ask.stop_scopes)
        self.keep = ask.include_stop
        firsts = "".join(re.escape(char) for char in sorted({text[0] for text in self.strings}))
        self._first = re.compile(f"[{firsts}]") if firsts else re.compile("(?!)")

    def quiet(self, text: str) -> bool:
        """No stop string begins in ``text``."""
        return self._first.search(text) is None

    def find(self, text: str) -> tuple[int, int, str] | None:
        """(start, end, string) of the match that is complete first; of several, the longest."""
        best: tuple[int, int, str] | None = None
        limit = len(text)
        for string in self.strings:
            start = text.find(string, 0, limit)
            # Longest first: a later string replaces an earlier one only if it ends before.
            if start >= 0 and (best is None or start + len(string) < best[1]):
                best = start, start + len(string), string
                limit = best[1]
        return best

    def hold(self, text: str) -> int:
        """Where the longest end of ``text`` begins that may become a stop string; its length if none may."""
        best = len(text)
        for string in self.strings:
            at = text.find(string[0], max(0, len(text) - len(string) + 1), best)
            while at >= 0:
                if string.startswith(text[at:]):
                    best = at
                    break
                at = text.find(string[0], at + 1, best)
        return best


class _Choice:
    __slots__ = ("call", "held", "open", "stopped")

    def __init__(self, held: tuple[_Piece, ...] = (), call: int = -1, stopped: bool = False) -> None:
        self.held = list(held)
        self.open: list[Semantic] | None = None
        """Under ``whole``: the events of the open call."""
        self.call = call
        """The open call, or -1."""
        self.stopped = stopped


class StopMachine:
    """One session's stop machine."""

    __slots__ = ("_choices", "_stops", "_whole")

    def __init__(self, ask: Ask, whole: bool, state: StopState | None = None) -> None:
        self._stops = _Stops(ask)
        self._whole = whole
        self._choices: dict[int, _Choice] = {}
        if state is not None:
            for was in state.choices:
                choice = self._choices[was.choice] = _Choice(was.held, was.call, was.stopped)
                choice.open = None if was.open is None else list(was.open)

    def snapshot(self) -> StopState:
        """See Machine."""
        return StopState(
            tuple(
                StopChoiceState(
                    choice,
                    tuple(state.held),
                    state.call,
                    state.stopped,
                    None if state.open is None else tuple(state.open),
                )
                for choice, state in self._choices.items()
            )
        )

    def step(self, event: Semantic, out: list[Semantic]) -> None:
        """See Machine."""
        if isinstance(event, Tokens):
            out.append(event)
        elif isinstance(event, (Content, Reasoning, CallArguments)):
            state = self._choices.get(event.choice) or self._choices.setdefault(event.choice, _Choice())
            if state.stopped:
                _drop(event, out)
            elif state.held or not self._stops.quiet(event.text):
                self._text(state, event, out if state.open is None else state.open)
                _settle(state, out)
            else:
                (out if state.open is None else state.open).append(event)
        elif isinstance(event, (Start, Tick, TimingInput, Echo)):
            out.append(event)
        elif isinstance(event, (Usage, Failure, End)):
            for each in self._choices.values():
                _flush(each, out)
                out += each.open or ()
                each.open = None
            out.append(event)
        else:
            state = self._choices.get(event.choice) or self._choices.setdefault(event.choice, _Choice())
            if state.stopped:
                _drop(event, out)
                return
            if self._whole and isinstance(event, CallStart):
                _flush(state, out)
                state.open = []
            self._other(state, event, out if state.open is None else state.open)
            _settle(state, out)

    def _text(self, state: _Choice, event: _Piece, out: list[Semantic]) -> None:
        held = state.held
        if held and not _same(held[0], event):
            _flush(state, out)
        if _SCOPES[event.__class__] not in self._stops.scopes:
            out.append(event)
            return
        held.append(event)
        text = event.text if len(held) == 1 else "".join(piece.text for piece in held)
        match = self._stops.find(text)
        if match is None:
            _send(held, self._stops.hold(text), out)
            return
        start, end, string = match
        src = _byte(held, start), _byte(held, end)
        _send(held, end if self._stops.keep else start, out)
        self._stop(state, src, event.choice, string, out)

    def _other(self, state: _Choice, event: _Other, out: list[Semantic]) -> None:
        # A fault that owns no text may precede the text that it is about.
        if not isinstance(event, Fault) or event.text:
            _flush(state, out)
        if isinstance(event, CallStart):
            state.call = event.index
        elif isinstance(event, CallEnd):
            state.call = -1
        elif isinstance(event, Finish):
            state.stopped = True
        elif isinstance(event, Marker) and "marker" in self._stops.scopes:
            match = self._stops.find(event.text)
            if match is not None and match[2].strip(_BLANK):
                state.held.clear()
                out.append(Dropped(event.choice, event.text, event.src))
                self._stop(state, event.src, event.choice, match[2], out)
                return
        out.append(event)

    def _stop(self, state: _Choice, src: Src, choice: int, string: str, out: list[Semantic]) -> None:
        """``src``: the stop string's, or that of the marker that holds it."""
        out.extend(Dropped(choice, piece.text, piece.src) for piece in state.held)
        state.held.clear()
        if state.call >= 0:
            out.append(Fault(choice, FaultCode.UNCLOSED_CALL, src, detail="a stop string inside the call"))
            out.append(CallEnd(choice, state.call, False))
            state.call = -1
        state.stopped = True
        out.append(Finish(choice, "stop", string))


def _same(one: _Piece, other: _Piece) -> bool:
    if isinstance(one, CallArguments) and isinstance(other, CallArguments):
        return one.index == other.index
    return one.__class__ is other.__class__


def _settle(state: _Choice, out: list[Semantic]) -> None:
    """Under ``whole``: the open call is complete, and goes out; or it was cut, and does not."""
    if state.open is None or (state.call >= 0 and not state.stopped):
        return
    events, state.open = state.open, None
    if not state.stopped:
        out += events
        return
    for event in events:
        if isinstance(event, (Finish, Fault)):
            out.append(event)
        elif not isinstance(event, CallEnd):
            _drop(event, out)


def _flush(state: _Choice, out: list[Semantic]) -> None:
    out += state.held
    state.held.clear()


def _send(held: list[_Piece], count: int, out: list[Semantic]) -> None:
    """Deliver the first ``count`` characters of what is held."""
    sent = 0
    for piece in held:
        size = len(piece.text)
        if size > count:
            break
        count -= size
        sent += 1
    out += held[:sent]
    del held[:sent]
    if count:
        first, rest = _split(held[0], count)
        out.append(first)
        held[0] = rest


def _byte(held: list[_Piece], count: int) -> int:
    """Where character ``count`` of what is held begins, however that came in pieces."""
    for piece in held:
        if count < len(piece.text):
            return _split(piece, count)[0].src[1] if count else piece.src[0]
        count -= len(piece.text)
    return held[-1].src[1]


def _split(piece: _Piece, count: int) -> tuple[_Piece, _Piece]:
    """Cut in front of character ``count``. Where the text is not what was written (a decoded argument), the first part
    owns all the bytes."""
    start, end = piece.src
    head, tail = piece.text[:count], piece.text[count:]
    verbatim = len(piece.text.encode("utf-8", "surrogatepass")) == end - start
    middle = start + len(head.encode("utf-8", "surrogatepass")) if verbatim else end
    replace = msgspec.structs.replace
    return replace(piece, text=head, src=(start, middle)), replace(piece, text=tail, src=(middle, end))


def _drop(event: Semantic, out: list[Semantic]) -> None:
    """After the end of a choice: its text is Dropped, its other events are void."""
    if isinstance(event, CallStart):
        out.append(Dropped(event.choice, event.name, event.src))
    elif isinstance(event, (Content, Reasoning, Refusal, CallArguments, Marker, Dropped)) or (
        isinstance(event, Fault) and event.text
    ):
        out.append(Dropped(event.choice, event.text, event.src))


class Stop:
    """See the module."""

    @property
    def id(self) -> str:
        """See Stage."""
        return "stop@2"

    def start(self, opening: Opening) -> StopMachine:
        """See Stage."""
        return StopMachine(opening.ask, opening.calls == "whole")

    def resume(self, opening: Opening, snapshot: StopState) -> StopMachine:
        """See Stage."""
        return StopMachine(opening.ask, opening.calls == "whole", snapshot)


STOP: Final = Stop()
