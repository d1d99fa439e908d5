"""The policy stage: semantic → semantic. What the request does not want is dropped; what it did not offer, or asked for
and did not get, is noted. A call is never changed.

* ``include_reasoning`` false: reasoning becomes Dropped. The logprobs of all steps go too: they would tell it. The ids
  stay, because they are counted; no encoder shows them then.
* ``parallel`` false: calls after the first become Dropped.
* Tools offered: a called name that is not among them gets a fault, right behind its CallStart.
* ``tool_choice`` names a function, or allows some: a call of another one gets a fault there.
* ``tool_choice`` names a function, or is ``required``: a choice that ends without a call gets a fault before Finish.
* The arguments of a complete call that break the tool's schema get a fault, right before the CallEnd. A schema that
  cannot be used (see ``stages.schema``) checks nothing, and nothing is noted: the model did nothing wrong.
* ``tool_choice`` ``none``: the parser takes no calls out of the text, so there is nothing to do here.

What is kept: the choices that called, and the arguments of each choice's open call (at most ``max_held`` characters; a
longer one is not checked).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from stages.events import (
    CallArguments,
    CallEnd,
    CallStart,
    Dropped,
    Fault,
    FaultCode,
    Finish,
    Reasoning,
    Semantic,
    Src,
    Tokens,
)
from stages.opening import Ask, Opening
from stages.schema import Checker, checker


def needed(ask: Ask) -> bool:
    """The stage has something to do."""
    return not ask.include_reasoning or _offered(ask)


def _offered(ask: Ask) -> bool:
    return bool(ask.tools) and ask.tool_choice != "none"


class OpenCall(msgspec.Struct, frozen=True):
    """A choice's open call, whose arguments are to be checked."""

    choice: int
    name: str
    pieces: tuple[str, ...]
    src: Src | None


class PolicyState(msgspec.Struct, frozen=True):
    """The stage's snapshot. ``called``: the choices that called a tool."""

    called: tuple[int, ...] = ()
    open: tuple[OpenCall, ...] = ()


class _Arguments:
    __slots__ = ("end", "name", "pieces", "size", "start")

    def __init__(self, name: str) -> None:
        self.name = name
        self.pieces: list[str] = []
        self.size = 0
        self.start = -1
        self.end = -1

    def add(self, text: str, src: Src) -> int:
        """The next piece; returns how many characters there are now."""
        if not self.pieces:
            self.start = src[0]
        self.pieces.append(text)
        self.end = src[1]
        self.size += len(text)
        return self.size


class _Policy:
    __slots__ = (
        "_allowed", "_called", "_checkers", "_hidden", "_most", "_offered", "_open", "_other", "_single", "_tools",
        "_wanted", "touches",
    )  # fmt: skip

    def __init__(self, opening: Opening, state: PolicyState) -> None:
        ask = opening.ask
        self._most = opening.max_held
        self._hidden = not ask.include_reasoning
        self._single = not ask.parallel
        self._offered = _offered(ask)
        self._tools = {tool.name: tool for tool in ask.tools}
        self._allowed = ask.allowed if ask.function is None else (ask.function,)
        self._other = "a tool that is not allowed" if ask.function is None else "another function was named"
        self._wanted = self._offered and (ask.function is not None or ask.tool_choice == "required")
        self._checkers: dict[str, Checker | None] = {}
        self._called = set(state.called)
        self._open: dict[int, _Arguments] = {}
        for call in state.open:
            kept = self._open[call.choice] = _Arguments(call.name)
            for piece in call.pieces:
                kept.add(piece, call.src or (0, 0))

        touches: set[type] = {CallStart, CallArguments, CallEnd}
        if self._hidden:
            touches |= {Tokens, Reasoning}
        if self._wanted:
            touches.add(Finish)
        self.touches = frozenset(touches)

    def step(self, event: Semantic, out: list[Semantic]) -> None:
        """See Machine."""
        # Most of the events that touch it are of this kind.
        if type(event) is CallArguments:
            self._arguments(event, out)
            return
        match event:
            case Tokens() if self._hidden:
                out.append(Tokens(event.choice, event.ids))
            case Reasoning() if self._hidden:
                out.append(Dropped(event.choice, event.text, event.src))
            case CallStart():
                self._start(event, out)
            case CallEnd():
                self._end(event, out)
            case Finish() if self._wanted:
                self._finish(event, out)
            case _:
                out.append(event)

    def passes(self, events: Sequence[Semantic], places: Sequence[int], at: int) -> int:
        """See Chain: arguments pass, and are kept."""
        choice: int | None = None
        kept: _Arguments | None = None
        while at < len(places):
            event = events[places[at]]
            if type(event) is not CallArguments or (self._single and event.index > 0):
                break
            if event.choice != choice:
                choice = event.choice
                kept = self._open.get(choice)
            if kept is not None and kept.add(event.text, event.src) > self._most:
                kept = None
                del self._open[event.choice]
            at += 1
        return at

    def _unwanted(self, event: CallStart | CallArguments | CallEnd) -> bool:
        return self._single and event.index > 0

    def _start(self, event: CallStart, out: list[Semantic]) -> None:
        choice, name = event.choice, event.name
        if self._unwanted(event):
            out.append(Dropped(choice, name, event.src))
            return
        out.append(event)
        self._open.pop(choice, None)
        if not self._offered:
            return
        if self._wanted:
            self._called.add(choice)
        if name not in self._tools:
            out.append(Fault(choice, FaultCode.UNKNOWN_TOOL, event.src, detail="a tool that was not offered"))
        elif self._allowed and name not in self._allowed:
            out.append(Fault(choice, FaultCode.UNMET_TOOL_CHOICE, event.src, detail=self._other))
        if self._checker(name) is not None:
            self._open[choice] = _Arguments(name)

    def _checker(self, name: str) -> Checker | None:
        if name not in self._tools:
            return None
        if name not in self._checkers:
            self._checkers[name] = checker(self._tools[name].parameters)
        return self._checkers[name]

    def _arguments(self, event: CallArguments, out: list[Semantic]) -> None:
        if self._single and event.index > 0:
            out.append(Dropped(event.choice, event.text, event.src))
            return
        out.append(event)
        kept = self._open.get(event.choice)
        if kept is not None and kept.add(event.text, event.src) > self._most:
            del self._open[event.choice]

    def _end(self, event: CallEnd, out: list[Semantic]) -> None:
        if self._unwanted(event):
            return
        kept = self._open.pop(event.choice, None)
        found = self._checker(kept.name) if kept is not None and event.complete else None
        if kept is not None and found is not None:
            broken = found.fault("".join(kept.pieces))
            if broken is not None:
                src = kept.start, kept.end
                out.append(Fault(event.choice, FaultCode.SCHEMA_MISMATCH, src, detail=broken))
        out.append(event)

    def _finish(self, event: Finish, out: list[Semantic]) -> None:
        if event.choice not in self._called:
            out.append(Fault(event.choice, FaultCode.UNMET_TOOL_CHOICE, (0, 0), detail="a call was required"))
        out.append(event)

    def snapshot(self) -> PolicyState:
        """See Machine."""
        calls = (
            OpenCall(choice, kept.name, tuple(kept.pieces), None if kept.start < 0 else (kept.start, kept.end))
            for choice, kept in self._open.items()
        )
        return PolicyState(tuple(sorted(self._called)), tuple(calls))


class Policy:
    """See the module."""

    @property
    def id(self) -> str:
        """See Stage."""
        return "policy@2"

    def start(self, opening: Opening) -> _Policy:
        """See Stage."""
        return _Policy(opening, PolicyState())

    def resume(self, opening: Opening, snapshot: PolicyState) -> _Policy:
        """See Stage."""
        return _Policy(opening, snapshot)


POLICY: Final = Policy()
