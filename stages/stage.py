"""Stage, Machine, fold: the one shape of everything between the engine and the socket."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from stages.opening import Opening

In = TypeVar("In")
Out = TypeVar("Out")
In_contra = TypeVar("In_contra", contravariant=True)
Out_inv = TypeVar("Out_inv")


class Machine(Protocol[In_contra, Out_inv]):
    """A stage's running state for one session."""

    def step(self, event: In_contra, out: list[Out_inv]) -> None:
        """Append what follows from ``event``. Total: raises on no input. Amortised O(len(event))."""
        ...

    def snapshot(self) -> msgspec.Struct:
        """The state as plain data; resuming from it after any event continues identically. Later steps of this
        machine do not change a snapshot already taken."""
        ...


class Stage(Protocol[In_contra, Out_inv]):
    """The definition of a machine. Pure: same opening and inputs, same outputs, anywhere."""

    @property
    def id(self) -> str:
        """``name@n``; n rises when behaviour does."""
        ...

    def start(self, opening: Opening) -> Machine[In_contra, Out_inv]:
        """A machine that has seen nothing."""
        ...

    def resume(self, opening: Opening, snapshot: Any) -> Machine[In_contra, Out_inv]:
        """A machine that continues after ``snapshot``, which a machine of this stage made under the same opening."""
        ...


def run_steps(machine: Machine[In, Out], inputs: Iterable[In], out: list[Out], ends: list[int]) -> None:
    """Run a machine over a list; to ``ends`` goes, for each input, how many outputs there are behind its step.

    A machine may have a method of this name that does this faster than step by step, with the same outcome. Raises what
    a step raises; ``ends`` then tells how many steps were done, and ``out`` may hold some of what the next one gave.
    """
    faster: Callable[[Iterable[In], list[Out], list[int]], None] | None = getattr(machine, "run_steps", None)
    if callable(faster):
        faster(inputs, out, ends)
        return
    step, done = machine.step, ends.append
    for event in inputs:
        step(event, out)
        done(len(out))


def fold(machine: Machine[In, Out], inputs: Iterable[In]) -> list[Out]:
    """Run a machine over a list."""
    out: list[Out] = []
    run_steps(machine, inputs, out, [])
    return out


def fold_causes(machine: Machine[In, Out], inputs: Iterable[In], first: int = 0) -> tuple[list[Out], list[int]]:
    """Run a machine over a list; beside each output, the seq of the input on whose step it came.

    ``first``: the seq of the first input.
    """
    out: list[Out] = []
    ends: list[int] = []
    run_steps(machine, inputs, out, ends)
    causes: list[int] = []
    for seq, end in enumerate(ends, first):
        if end > len(causes):
            causes += [seq] * (end - len(causes))
    return out, causes


class ChainSnapshot(msgspec.Struct, frozen=True):
    """The snapshots of a chain's machines, in order."""

    parts: tuple[Any, ...]


class _ChainMachine(Generic[In, Out]):
    """Two or more machines as one; each sees all of its predecessor's outputs of a step before the step returns.

    A machine after the first may have ``touches``, a frozenset of event types: events of other types pass it unchanged
    and do not change its state. A step that makes nothing that anybody touches costs one look at each event. With
    ``touches`` it may have ``passes(events, places, at)``, which raises nothing: of the events at these places, from
    the ``at``-th place on, it does the steps of those that it passes unchanged, as long as they come; it returns how
    many places are done.
    """

    def __init__(self, machines: Sequence[Machine[Any, Any]]) -> None:
        self._machines = tuple(machines)
        self._step = machines[0].step
        touched: list[frozenset[type] | None] = [getattr(machine, "touches", None) for machine in machines[1:]]
        known = [types for types in touched if types is not None]
        self._touched = frozenset[type]().union(*known) if len(known) == len(touched) else None
        self._rest = tuple(zip(touched, (machine.step for machine in machines[1:]), strict=True))

    def step(self, event: In, out: list[Out]) -> None:
        """See Machine."""
        mark = len(out)
        self._step(event, out)
        touched = self._touched
        if touched is not None:
            for made in out[mark:]:
                if made.__class__ in touched:
                    break
            else:
                return
        events: list[Any] = out[mark:]
        for touches, step in self._rest:
            following: list[Any] = []
            for item in events:
                if touches is None or item.__class__ in touches:
                    step(item, following)
                else:
                    following.append(item)
            events = following
        out[mark:] = events

    def snapshot(self) -> ChainSnapshot:
        """See Machine."""
        return ChainSnapshot(tuple(machine.snapshot() for machine in self._machines))


class _FastChainMachine(_ChainMachine[In, Out]):
    """A chain whose first machine has ``run_steps``: each machine runs over all of what the one before it gave."""

    def run_steps(self, inputs: Iterable[In], out: list[Out], ends: list[int]) -> None:
        """See the function of this name."""
        mark, done = len(out), len(ends)
        try:
            run_steps(self._machines[0], inputs, out, ends)
        finally:
            # What a step that raises gave is nothing; the steps before it are done.
            del out[ends[-1] if len(ends) > done else mark :]
            for machine in self._machines[1:]:
                _follow(machine, out, ends, mark, done)


def _follow(machine: Machine[Any, Any], out: list[Any], ends: list[int], mark: int, done: int) -> None:
    """A machine takes the outputs from ``mark`` on, which came in the steps from ``done`` on, and gives its own in
    their place."""
    given = out[mark:]
    touches: frozenset[type] | None = getattr(machine, "touches", None)
    passes: Callable[[list[Any], Sequence[int], int], int] | None = getattr(machine, "passes", None)
    places: Sequence[int] = range(len(given))
    if touches is not None:
        places = [at for at, kind in enumerate(map(type, given)) if kind in touches]
    step = machine.step
    at = done_to = more = count = 0
    made: list[Any] = []
    grown: list[tuple[int, int]] = []
    try:
        while True:
            if passes is not None:
                count = passes(given, places, count)
            if count == len(places):
                break
            at = places[count]
            made += given[done_to:at]
            step(given[at], made)
            done_to = at + 1
            count += 1
            if len(made) != done_to + more:
                more = len(made) - done_to
                grown.append((mark + done_to, more))
    except BaseException:  # whatever a stage raises: the step that this event came in is not done
        del ends[bisect_left(ends, mark + at + 1, done) :]
        _shift(ends, done, grown)
        del made[(ends[-1] if len(ends) > done else mark) - mark :]
        out[mark:] = made
        raise
    if done_to:
        out[mark:] = made + given[done_to:]
    _shift(ends, done, grown)


def _shift(ends: list[int], done: int, grown: list[tuple[int, int]]) -> None:
    """The ends from ``done`` on, where from the ``at``-th output on there are so many ``more`` than there were."""
    if not grown:
        return
    firsts = [bisect_left(ends, at, done) for at, _ in grown]
    for (_, more), first, last in zip(grown, firsts, [*firsts[1:], len(ends)], strict=True):
        ends[first:last] = [end + more for end in ends[first:last]]


class Chain(Generic[In, Out]):
    """Stages of one layer in a row (parser, stop, policy) as one stage. Its id joins theirs with ``|``."""

    def __init__(self, stages: Sequence[Stage[Any, Any]]) -> None:
        self.stages = tuple(stages)

    @property
    def id(self) -> str:
        """See Stage."""
        return "|".join(stage.id for stage in self.stages)

    def start(self, opening: Opening) -> Machine[In, Out]:
        """See Stage."""
        return _chained([stage.start(opening) for stage in self.stages])

    def resume(self, opening: Opening, snapshot: ChainSnapshot) -> Machine[In, Out]:
        """See Stage."""
        parts = snapshot.parts if len(self.stages) > 1 else (snapshot,)
        return _chained([stage.resume(opening, part) for stage, part in zip(self.stages, parts, strict=True)])


def _chained(machines: Sequence[Machine[Any, Any]]) -> Machine[Any, Any]:
    # A chain of one costs nothing: the machine itself.
    if len(machines) == 1:
        return machines[0]
    return _FastChainMachine(machines) if callable(getattr(machines[0], "run_steps", None)) else _ChainMachine(machines)
