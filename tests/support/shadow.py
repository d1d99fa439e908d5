"""Shadows of a server without a socket, and parsers that do something bad."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from pipeline.engines.scripted import ScriptedEngine
from pipeline.http.app import Server
from pipeline.recorder import Record as Recording
from store.api import EventStore, SessionInfo
from tests.support.asgi import serving
from tests.support.server import IDLE_PATIENCE

CALL = [
    "<think>",
    "\nWhich port?\n",
    "</think>",
    "\n\n",
    '<tool_call>\n{"name": "tide", ',
    '"arguments": {}}\n</tool_call>',
]
"""A call, as hermes writes it; qwen3 writes it so too, and llama3_json does not."""

BAD = """
import os, sys, time
from stages import catalog
from stages.events import Content, Finish, TokensInput
from stages.parse.parser import Parser as P

HERMES = catalog.parser("hermes")


class Machine:
    def __init__(self, machine):
        self.machine, self.steps = machine, 0

    def step(self, event, out):
        self.steps += isinstance(event, TokensInput)
        if self.steps == 3:
            self.fail(out)
        self.machine.step(event, out)

    def snapshot(self):
        return self.machine.snapshot()


class Bad:
    machine = Machine

    def start(self, opening):
        return self.machine(HERMES.start(opening))


def bad(fail):
    machine = type("Machine", (Machine,), {"fail": fail})
    return type("Parser", (Bad,), {"machine": machine})


class Odd(BaseException):
    def __init__(self, one, other):
        super().__init__(one)


def loud(self, out):
    os.write(1, b"the words of a client" * 100)


def odd(self, out):
    raise Odd("the words of a client", 1)


def slow(self, out):
    until = time.process_time() + 0.02
    while time.process_time() < until:
        pass


def interrupt(self, out):
    raise KeyboardInterrupt


Raises = bad(lambda self, out: out[99])
Quits = bad(lambda self, out: sys.exit(1))
Interrupts = bad(interrupt)
RaisesOdd = bad(odd)
Strange = bad(lambda self, out: out.append("no event"))
Unsound = bad(lambda self, out: out.append(Content(0, 7, (0, 1))))
Half = bad(lambda self, out: out.append(Content(0, chr(0xD800), (0, 1))))
Huge = bad(lambda self, out: out.append(Content(0, "a", (0, 1 << 70))))
Dies = bad(lambda self, out: os._exit(3))
Hangs = bad(lambda self, out: time.sleep(3600))
Spins = bad(lambda self, out: [None for _ in iter(int, 1)])
Loud = bad(loud)
Slow = bad(slow)
"""
KIND = ("Raises", "Quits", "Interrupts", "RaisesOdd", "Strange", "Unsound", "Half", "Huge")
"""Those that fail and leave their process alive."""


class Bad:
    """Parsers that do something bad at the third step, by name; they lie in a file of this folder."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "bad.py"
        self._path.write_text(BAD)

    def __call__(self, name: str) -> str:
        """What ``--parser`` takes."""
        return f"{self._path}:{name}"


@asynccontextmanager
async def shadowed(
    store: EventStore, *names: str, script: Sequence[Any] = CALL, record: Recording = "full"
) -> AsyncGenerator[Server]:
    """A server whose shadows run; when the block is left, all that waits has been looked at."""
    async with serving(store, ScriptedEngine([[*script]]), parser="hermes", shadow=names) as server:
        server.recorder.mode = record
        async with server.shadows.running():
            server.shadows.finish_by(anyio.current_time() + IDLE_PATIENCE)
            yield server


async def closed(store: EventStore) -> None:
    """Close it."""
    await anyio.to_thread.run_sync(store.close)


def one(store: EventStore) -> SessionInfo:
    """Its only session."""
    [info] = store.sessions()
    return info
