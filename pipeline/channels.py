"""Bounded channels between two stages, and the task that runs one stage between two of them.

A channel is an anyio memory object stream with one reader and one writer. It carries lists of events, so that one hop
moves many events when the reader lags and a single event adds no wait when it does not. A list holds at most
``MAX_EVENTS`` events or about ``MAX_BYTES`` of text (a single larger event travels alone), so what is in flight is
bounded: a channel of size S holds at most S + 1 lists, the last one in its blocked writer's hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from stages.stage import Machine

T = TypeVar("T")
In = TypeVar("In")
Out = TypeVar("Out")

MAX_EVENTS = 256
MAX_BYTES = 64 * 1024
SMALL = 16
"""Lists up to this length are not weighed: a few events are large only if a single one is, and that one is not cut."""


class Tap(Protocol):
    """Sees every list of events that enters a channel, in order, before its reader does. ``causes``: for each event the
    seq, in the layer before, of the event on whose step it came; empty for inputs."""

    def __call__(self, events: list[Any], causes: list[int], /) -> None:
        """The next events."""
        ...


def weight(event: Any) -> int:
    """Bytes or characters of an event's payload, roughly."""
    payload = getattr(event, "data", None) or getattr(event, "text", None)
    return len(payload) if payload else 64


def slices(events: list[T]) -> Iterator[list[T]]:
    """Cut a list so that every part obeys the limits; order kept, nothing copied when it already does."""
    if len(events) <= SMALL:
        yield events
        return
    start = size = 0
    for index, event in enumerate(events):
        size += weight(event)
        if index > start and (size > MAX_BYTES or index - start == MAX_EVENTS):
            yield events[start:index]
            start, size = index, weight(event)
    yield events[start:] if start else events


async def send(outbox: MemoryObjectSendStream[list[T]], events: list[T]) -> bool:
    """Send a list within the limits; waits only when the channel is full. False: the reader has left; what comes before
    it goes on, so that the session is recorded to its end."""
    try:
        for part in slices(events):
            try:
                outbox.send_nowait(part)
            except anyio.WouldBlock:
                await outbox.send(part)
    except anyio.BrokenResourceError:
        return False
    return True


class Source(Protocol[T]):
    """What a reader needs of a channel's end, or of what stands for one."""

    async def receive(self) -> list[T]:
        """The next list. Raises EndOfStream."""
        ...

    def receive_nowait(self) -> list[T]:
        """A list that waits already. Raises WouldBlock, EndOfStream."""
        ...

    async def __aenter__(self) -> Any: ...

    async def __aexit__(self, kind: Any, error: Any, trace: Any, /) -> Any: ...


async def receive(inbox: Source[T]) -> list[T]:
    """What is waiting, up to MAX_EVENTS and never less than one list. One checkpoint. Raises EndOfStream."""
    events = await inbox.receive()
    try:
        while len(events) < MAX_EVENTS:
            # A new list: the first one is still in the hands of the tap.
            events = events + inbox.receive_nowait()
    except (anyio.WouldBlock, anyio.EndOfStream):
        pass
    return events


async def run_stage(
    machine: Machine[In, Out],
    inbox: MemoryObjectReceiveStream[list[In]],
    outbox: MemoryObjectSendStream[list[Out]],
    tap: Tap,
    failed: Callable[[Exception, list[Out]], list[Out]] | None = None,
) -> None:
    """Run a machine between two channels until the inbox ends; owns and closes both ends.

    ``failed``: for a stage that users may supply; called once when it raises, with what it made since the last
    list that was sent; gives what to send in place of the rest.
    The inbox is then read to its end, so that what comes before this stage is still recorded.
    """
    step: Callable[[In, list[Out]], None] = machine.step
    seq = 0
    read = True
    async with inbox, outbox:
        while True:
            try:
                events = await receive(inbox)
            except anyio.EndOfStream:
                return
            out: list[Out] = []
            causes: list[int] = []
            done = 0
            try:
                for event in events:
                    step(event, out)
                    made = len(out) - done
                    if made:
                        done += made
                        causes += [seq] * made
                    seq += 1
            except Exception as error:  # a user's stage may raise anything
                if failed is None:
                    raise
                del out[done:]
                tail = failed(error, out)
                out += tail
                causes += [seq] * len(tail)
                step = _ignore
            if out:
                tap(out, causes)
                read = read and await send(outbox, out)


def _ignore(event: Any, out: list[Any], /) -> None:
    """The step of a stage that has failed."""
