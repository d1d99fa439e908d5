"""Oracles: what holds of every right parser, whatever was recorded. And marks: all that is wrong with one side.

    retracted   a client who reads on need not unlearn anything: calls begin once and in order, nothing is said of a
                call that has not begun or has ended, nothing follows a finish
    leaked      no markup in what a client reads, unless a fault says so
    arguments   those of a call that may be executed are a JSON object

(``split`` and ``one_shot`` compare two runs: see ``replay.splitting``.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

import msgspec

from replay.leaks import leaked
from replay.result import Breach, Finding
from replay.verdict import MARKS, Mark
from stages.events import (
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    End,
    Finish,
    Input,
    Reasoning,
    Refusal,
    Start,
    Tokens,
)
from stages.message import Message
from stages.opening import Opening
from stages.strict import parse

_TEXTS: Final = frozenset((Reasoning, Content, Refusal))
_object: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def breaches(
    opening: Opening,
    inputs: Sequence[Input],
    events: Sequence[Any],
    steps: Sequence[int],
    messages: Sequence[Message],
) -> tuple[Breach, ...]:
    """What one derivation of a session breaks of ``retracted``, ``leaked`` and ``arguments``.

    ``steps``: beside each event, the seq of the input it came from; ``messages``: what the events say. Total: the
    events may be a foreign parser's, in any order. At most one breach for each choice and kind of thing that is wrong.
    Linear.
    """
    found = [] if _orderly(events) else _Order(steps).all(events)
    for message in messages:
        found += _arguments(message, events, steps)
    return (*found, *leaked(opening, inputs, events, steps, messages))


def marks(
    finding: Finding, messages: Sequence[Message], breaches: Sequence[Breach], rules: Mapping[str, int]
) -> tuple[Mark, ...]:
    """All that is wrong with one side, in the order of MARKS.

    ``finding``: of that side against the record; ``messages``: what that side says; ``breaches``: of the oracles, by
    that side; ``rules``: how often it breaks which rule of the protocol.
    """
    wrong: set[Mark] = {breach.oracle for breach in breaches}
    if finding.error is not None:
        wrong.add("failed")
    if _differs(finding):
        wrong.add("differs")
    if any(message.faults for message in messages):
        wrong.add("fault")
    if any(rules.values()):
        wrong.add("rule")
    return tuple(mark for mark in MARKS if mark in wrong)


def _differs(finding: Finding) -> bool:
    """The message is not the recorded one; where only other splits were run, under one of them."""
    told = finding.layers.get("message")
    if told is None:
        told = finding.splits.get("recorded", "same")
        if told != "failed" and "recorded" not in finding.splits:
            return finding.error is not None or "changed" in finding.splits.values()
        # Only digests, or other layers, were compared: of the message nothing is known unless the parser failed.
        return finding.error is not None or told == "failed"
    return finding.error is not None or told in ("changed", "failed")


# --- retracted --------------------------------------------------------------------------------------------------------

_CHOICE: Final = attrgetter("choice")
_CALL: Final = attrgetter("choice", "index")


def _orderly(events: Sequence[Any]) -> bool:
    """Nothing is wrong: a quick look, run by run. False: look closely."""
    live: set[int] = set()
    over: set[int] = set()
    begun: set[tuple[int, int]] = set()
    calls: Counter[int] = Counter()
    for kind, run in groupby([event for event in events if event.__class__ is not Tokens], type):
        if kind in _TEXTS:
            right = live.issuperset(map(_CHOICE, run))
        elif kind is CallArguments:
            right = begun.issuperset(map(_CALL, run))
        else:
            right = kind not in _Order.rare or all(_follows(event, live, over, begun, calls) for event in run)
        if not right:
            return False
    return True


def _follows(event: Any, live: set[int], over: set[int], begun: set[tuple[int, int]], calls: Counter[int]) -> bool:
    """An event that changes what may be said next is right where it is. ``begun``: calls that have not ended."""
    match event:
        case Start():
            right = event.choice not in live and event.choice not in over
            live.add(event.choice)
        case CallStart():
            right = event.choice in live and event.index == calls[event.choice] and bool(event.name and event.id)
            begun.add((event.choice, event.index))
            calls[event.choice] += 1
        case CallEnd():
            right = (event.choice, event.index) in begun
            begun.discard((event.choice, event.index))
        case Finish():
            right = event.choice in live
            live.discard(event.choice)
            over.add(event.choice)
            begun.difference_update([call for call in begun if call[0] == event.choice])
        case _:
            right = True  # the end of all
            over |= live
            live.clear()
            begun.clear()
    return right


class _Order:
    """Follows a stream as a client does."""

    def __init__(self, steps: Sequence[int]) -> None:
        self._steps = steps
        self._live: set[int] = set()
        """Choices that may speak."""
        self._over: set[int] = set()
        self._calls: dict[int, int] = {}
        """Calls begun, by choice."""
        self._open: dict[int, set[int]] = {}
        """Those of them that have not ended."""
        self._found: dict[tuple[int, str], Breach] = {}

    def all(self, events: Sequence[Any]) -> list[Breach]:
        """What is wrong."""
        live, rare, begun = self._live, self.rare, self._open
        alive = -1
        """A choice that may speak: nearly always the one that does."""
        for seq, event in enumerate(events):
            kind = event.__class__
            if kind is Tokens:
                continue
            if kind in _TEXTS:
                if event.choice != alive:
                    if event.choice in live:
                        alive = event.choice
                    else:
                        self._dead(seq, event, f"text ({kind.__name__.lower()})")
            elif kind is CallArguments:
                if event.choice not in live or event.index not in begun.get(event.choice, ()):
                    self._of_call(seq, event, "arguments")
            elif kind in rare:
                rare[kind](self, seq, event)
                alive = -1
        return list(self._found.values())

    def _say(self, seq: int, choice: int, kind: str, detail: str) -> None:
        self._found.setdefault((choice, kind), Breach("retracted", detail, choice, self._steps[seq]))

    def _dead(self, seq: int, event: Any, what: str) -> bool:
        """Tells of what comes from a choice that may not speak."""
        choice = event.choice
        if choice in self._live:
            return False
        if choice in self._over:
            self._say(seq, choice, "after", f"{what} after the choice's finish")
        else:
            self._say(seq, choice, "unstarted", f"{what} of a choice that was not started")
        return True

    def _of_call(self, seq: int, event: Any, what: str) -> None:
        if self._dead(seq, event, f"{what} of call {event.index}") or event.index in self._open.get(event.choice, ()):
            return
        begun = 0 <= event.index < self._calls.get(event.choice, 0)
        why = "has ended" if begun else "has not begun"
        self._say(seq, event.choice, f"call {why}", f"{what} of call {event.index}, which {why}")

    def _start(self, seq: int, event: Start) -> None:
        if event.choice in self._live or event.choice in self._over:
            self._say(seq, event.choice, "start", "the choice is started twice")
        else:
            self._live.add(event.choice)

    def _call_start(self, seq: int, event: CallStart) -> None:
        choice, index = event.choice, event.index
        if self._dead(seq, event, f"call {index}"):
            return
        begun = self._calls.get(choice, 0)
        if index < begun:
            self._say(seq, choice, "twice", f"call {index} begins twice")
            return
        if index > begun:
            self._say(seq, choice, "gap", f"call {index} begins, and call {begun} has not")
        for field in ("name", "id"):
            if not getattr(event, field):
                self._say(seq, choice, field, f"call {index} has no {field}")
        self._calls[choice] = index + 1
        self._open.setdefault(choice, set()).add(index)

    def _call_end(self, seq: int, event: CallEnd) -> None:
        self._of_call(seq, event, "the end")
        self._open.get(event.choice, set[int]()).discard(event.index)

    def _finish(self, seq: int, event: Finish) -> None:
        if event.choice in self._over:
            self._say(seq, event.choice, "finish", "the choice finishes twice")
        elif not self._dead(seq, event, "the finish"):
            self._live.discard(event.choice)
            self._over.add(event.choice)

    def _end(self, seq: int, event: End) -> None:
        self._over |= self._live
        self._live.clear()

    rare: Final[dict[type, Callable[[_Order, int, Any], None]]] = {
        Start: _start, CallStart: _call_start, CallEnd: _call_end, Finish: _finish, End: _end
    }  # fmt: skip


# --- arguments --------------------------------------------------------------------------------------------------------


def _arguments(message: Message, events: Sequence[Any], steps: Sequence[int]) -> list[Breach]:
    # Another engine's parser tells no ends of calls: a choice that finishes for its calls has them complete.
    finished = message.finish_reason == "tool_calls"
    for place, call in enumerate(message.tool_calls):
        if (call.complete or finished) and (why := _no_object(call.arguments)):
            detail = f"arguments of call {place} are no JSON object: {why}"
            return [Breach("arguments", detail, message.choice, _end_of(place, message.choice, events, steps))]
    return []


def _no_object(text: str) -> str:
    """Why a text is no JSON object; "" where it is one."""
    try:
        _object(text)
    except (ValueError, RecursionError):
        # What the quick reader does not take may be JSON all the same: half of a surrogate pair, deep nesting.
        value, why = parse(text)
        if isinstance(value, dict):
            return ""
        return f"a value of another kind ({type(value).__name__})" if why is None else why if text else "empty"
    return ""


def _end_of(place: int, choice: int, events: Sequence[Any], steps: Sequence[int]) -> int:
    """The step with which the choice's call at this place ended, or that brought the last of it."""
    started = [event.index for event in events if event.__class__ is CallStart and event.choice == choice]
    index = list(dict.fromkeys(started))[place]
    last = -1
    for event, step in zip(events, steps, strict=True):
        if event.__class__ in (CallStart, CallArguments, CallEnd) and event.choice == choice and event.index == index:
            last = step
    return last
