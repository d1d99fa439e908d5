"""Stage, Machine, fold: the one shape of everything between the engine and the socket."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from stages.opening import Opening

In = TypeVar("In")
Mid = TypeVar("Mid")
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


def fold(machine: Machine[In, Out], inputs: Iterable[In]) -> list[Out]:
    """Run a machine over a list."""
    out: list[Out] = []
    step = machine.step
    for event in inputs:
        step(event, out)
    return out


def fold_causes(machine: Machine[In, Out], inputs: Iterable[In], first: int = 0) -> tuple[list[Out], list[int]]:
    """Run a machine over a list; beside each output, the seq of the input on whose step it came.

    ``first``: the seq of the first input.
    """
    out: list[Out] = []
    causes: list[int] = []
    step = machine.step
    done = 0
    for seq, event in enumerate(inputs, first):
        step(event, out)
        made = len(out) - done
        if made:
            done += made
            causes += [seq] * made
    return out, causes


class ChainSnapshot(msgspec.Struct, frozen=True):
    """The snapshots of a chain's machines, in order."""

    parts: tuple[Any, ...]


class _ChainMachine(Generic[In, Out]):
    """Two or more machines as one; each sees all of its predecessor's outputs of a step before the step returns.

    A machine after the first may have ``touches``, a frozenset of event types: events of other types pass it unchanged
    and do not change its state. A step that makes nothing that anybody touches costs one look at each event.
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
    return machines[0] if len(machines) == 1 else _ChainMachine(machines)
