"""worker: a process that replays batches of units."""

from __future__ import annotations

import gc
import os
import signal
import time
from collections.abc import Callable
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from typing import Literal, TypeAlias

import msgspec

from replay.derive import StageFailure
from replay.errors import ReplayError
from replay.mass import spool
from replay.mass.load import Loader, unreadable
from replay.mass.plan import Plan, hash_of
from replay.mass.units import Unit
from replay.result import SessionResult
from replay.run import Replayer
from replay.totals import Unreadable
from store.api import StoreError, Trace

TOLD_EVERY_S = 0.1
"""How long a worker keeps what it has."""

_YOUNG = 50_000
"""Objects between two collections: those of some sessions, nearly all of which go by themselves before."""

Fate: TypeAlias = Literal["Timeout", "Crashed"]
"""What a process did not survive."""

Mode: TypeAlias = Literal["batch", "singly", "alone", "blame"]
"""How units are run. ``singly``: each session is told of before and after; ``alone``: the one session of a process that
it may end; ``blame``: it did, and only its result is made."""


class Batch(msgspec.Struct):
    """Units for one worker. ``fate``, ``why``: of the session to blame."""

    units: list[Unit]
    mode: Mode = "batch"
    fate: Fate = "Crashed"
    why: str = ""


class Item(msgspec.Struct, frozen=True, array_like=True):
    """What one session came to. ``at``: its place in the order of the run; ``index``: of its source; ``line``: of the
    results file; else it could not be read, and ``lost`` says why."""

    at: int
    index: int
    line: bytes = b""
    lost: Unreadable | None = None


class Told(msgspec.Struct, frozen=True, array_like=True):
    """What a worker says. It is ``ready``; or it is at session ``number`` of the batch's unit ``unit``, has done all
    before, and here are ``items``; or the batch is ``over``; or an ``error``, by class and message, ends the run."""

    ready: bool = False
    unit: int = 0
    number: int = 0
    items: tuple[Item, ...] = ()
    over: bool = False
    error: tuple[str, str] | None = None


encode = msgspec.msgpack.Encoder().encode
told = msgspec.msgpack.Decoder(Told).decode
_batch = msgspec.msgpack.Decoder(Batch).decode


def item(replayer: Replayer, unit: Unit, number: int, found: Trace | Unreadable, blamed: Batch | None = None) -> Item:
    """Replay what was loaded of a unit. ``blamed``: that is known to end badly, and how."""
    at = unit.at + number
    if isinstance(found, Unreadable):
        return Item(at, unit.index, lost=found)
    if blamed is None:
        try:
            result = replayer.replay(found, unit.file)
        except StoreError as damage:  # of a record that was not decoded before
            return Item(at, unit.index, lost=unreadable(unit, damage))
    else:
        failure = StageFailure("semantic", "", -1, -1, "", blamed.fate, blamed.why)
        result = replayer.failed(found, unit.file, failure)
    return Item(at, unit.index, line_of(unit, number, result, found.opening.parser))


def line_of(unit: Unit, number: int, result: SessionResult, recorded: str) -> bytes:
    """A result as a line of the results file. ``recorded``: the parser that it was recorded with."""
    place = str(number) if unit.kind == "packed" else unit.place
    # Of a user's parser, its file decides the result, too.
    stamp = f"{unit.stamp} {hash_of(recorded)} {recorded}" if ":" in recorded else unit.stamp
    return spool.encode(spool.Line(unit.at + number, unit.index, place, stamp, result))


def main(connection: Connection, plan: bytes, environment: dict[str, str]) -> None:
    """The process: batches in, Told out, until the connection ends."""
    # A group of its own: what a parser started ends with it. Ctrl-C is the run's to handle; the pool blocks it here.
    os.setpgid(0, 0)
    os.environ.clear()
    os.environ.update(environment)
    _end_with_parent()
    made = msgspec.json.decode(plan, type=Plan)
    try:
        try:
            replayer = made.replayer()
            connection.send_bytes(encode(Told(ready=True)))
            # What is there now stays there: the collector need not look at it again.
            gc.collect()
            gc.freeze()
            gc.set_threshold(_YOUNG)
            with Loader(made.sessions, made.layers, lazy=True) as loader:
                while True:
                    _run(_batch(connection.recv_bytes()), replayer, loader, connection.send_bytes)
        except ReplayError as error:
            connection.send_bytes(encode(Told(error=(type(error).__name__, str(error)))))
    except (EOFError, ConnectionError):
        pass  # the run is over


def _run(batch: Batch, replayer: Replayer, loader: Loader, send: Callable[[bytes], None]) -> None:
    blamed = batch if batch.mode == "blame" else None
    every = TOLD_EVERY_S if batch.mode == "batch" else 0.0
    items: list[Item] = []
    last = time.monotonic()
    for index, unit in enumerate(batch.units):
        for number, found in loader.load(unit):
            now = time.monotonic()
            if now - last >= every:
                last = now
                send(encode(Told(unit=index, number=number, items=tuple(items))))
                items.clear()
            items.append(item(replayer, unit, number, found, blamed))
    send(encode(Told(unit=len(batch.units), items=tuple(items), over=True)))


def _end_with_parent() -> None:
    """Leave a process behind that ends this one's group when the run is gone: one that is killed leaves no worker.

    A thread could not: a regular expression that searches for ever does not let it run.
    """
    run = parent_process()
    if run is None:
        return
    if between := os.fork():
        os.waitpid(between, 0)
        return
    if os.fork():
        os._exit(0)  # so that who waits here for any child does not wait for that one
    os.closerange(0, run.sentinel)  # the run is told of a worker's end by its connection's, which nobody else may hold
    os.closerange(run.sentinel + 1, os.sysconf("SC_OPEN_MAX"))
    run.join()
    os.killpg(0, signal.SIGKILL)
