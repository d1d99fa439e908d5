"""Work per token, counted and not timed: it does not grow with the output, whatever the output is made of."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

from stages.events import CallArguments, Content, Reasoning, Semantic, TokensInput
from stages.stage import fold
from tests.support.format_checks import POLICIES, Policy, Subject
from tests.support.generate.family import Family
from tests.support.generate.message import Invocation, Limits, Meant, tools_for
from tests.support.parse import grouped, merged, owned, session

LONGER = 4
MOST = 1.3
"""How much dearer a token may be in an output that is LONGER times as long."""
SIZE = 48
"""Words of the short output."""


def check_cost(family: Family) -> None:
    """Calls of functions, and characters handed to them, per token: the same in long outputs as in short ones."""
    for (name, short), (_, long) in zip(
        _messages(family.limits, SIZE), _messages(family.limits, SIZE * LONGER), strict=True
    ):
        for calls in POLICIES if long.calls else POLICIES[:1]:
            few, lots = (cost(family, meant, calls) for meant in (short, long))
            for what, one, many in zip(("calls", "characters"), few, lots, strict=True):
                assert many <= one * MOST, f"{name}, {calls}: {what} a token rise from {one:.1f} to {many:.1f}"


def _messages(limits: Limits, size: int) -> Iterator[tuple[str, Meant]]:
    prose = "the tide at Brest\n" * (size // 4) + "end"
    if limits.reasoning:
        yield "reasoning", Meant(prose, ("tide",))
    yield "content", Meant(None, (prose,))
    if limits.calls == 0:
        return
    yield "long string", Meant(None, (Invocation("tide", {"a": prose}),))
    many = {f"a{i}": f"v{i}" for i in range(size // 4)}
    yield "many arguments", Meant(None, (Invocation("tide", many),))
    if "array" in limits.kinds and limits.depth > 1:
        yield "long array", Meant(None, (Invocation("tide", {"a": [*range(1000, 1000 + size)]}),))
    if limits.calls > 1:
        yield "many calls", Meant(None, tuple(Invocation("tide", {"a": "x"}) for _ in range(size // 8)))


def subject_of(family: Family, meant: Meant) -> Subject:
    """The message written with dice that fall the same way for long and short ones."""
    kind = "plain" if "plain" in family.tails else next(iter(family.tails))
    return Subject(family, family.output(meant, random.Random(1), kind), family.tails[kind], tools_for(meant))


def cost(family: Family, meant: Meant, calls: Policy) -> tuple[float, float]:
    """Calls a token, and characters (of text arguments, as functions are entered) a token."""
    subject = subject_of(family, meant)
    tokens = subject.pieces()
    inputs = session(grouped(tokens, [1] * len(tokens)), tail=subject.tail)
    machine = subject.stage(calls)
    fold(machine.start(subject.opened(calls)), inputs)  # what is made once, is made
    started = machine.start(subject.opened(calls))
    counter = _Counter()
    sys.setprofile(counter)
    try:
        fold(started, inputs)
    finally:
        sys.setprofile(None)
    return counter.calls / len(tokens), counter.characters / len(tokens)


class _Counter:
    def __init__(self) -> None:
        self.calls = 0
        self.characters = 0

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "c_call":
            self.calls += 1
        elif event == "call":
            self.calls += 1
            code = frame.f_code
            names = code.co_varnames[: code.co_argcount]
            self.characters += sum(len(value) for name in names if isinstance(value := frame.f_locals.get(name), str))


def check_lag(family: Family) -> None:
    """Long prose, and (``Family.streams``) a long string of the arguments, go out as they come: behind each token no
    more is withheld than ``Family.tail`` and a token."""
    for name, meant in _messages(family.limits, SIZE):
        if name in ("reasoning", "content") or (name == "long string" and family.streams):
            _check_lag(family, name, meant)


def _check_lag(family: Family, name: str, meant: Meant) -> None:
    subject = subject_of(family, meant)
    tokens = subject.pieces()
    steps = grouped(tokens, [1] * len(tokens))
    kinds: dict[str, type[Any]] = {"reasoning": Reasoning, "content": Content, "long string": CallArguments}
    whole = [event.src for event in merged(subject.events(steps, "incremental")) if isinstance(event, kinds[name])]
    start, end = max(whole, key=lambda src: src[1] - src[0])
    machine = subject.stage("incremental").start(subject.opened("incremental"))
    written = sent = 0
    for event in session(steps, tail=subject.tail):
        out: list[Semantic] = []
        machine.step(event, out)
        if isinstance(event, TokensInput):
            written += sum(map(len, event.pieces))
        sent = max((src[1] for _, _, src in owned(out)), default=sent)
        if start < written <= end:
            late = written - max(sent, start)
            assert late <= family.tail + 4, f"{name}: {late} bytes are withheld behind byte {written}"
