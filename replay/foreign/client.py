"""client: the worker of a Python and an engine, and what is asked of it (see ``peer/worker.py``).

One process for each Python, engine and plugin, in each process that replays. It is started when it is first needed,
killed when it does not answer in time, and started again for the next session.
"""

from __future__ import annotations

import atexit
import json
import os
import threading
from typing import Any, Final

import msgspec

from replay.errors import Crashed, NotAvailable, Timeout
from replay.foreign.process import Process
from replay.foreign.settings import PYTHON, Settings

_STARTS: Final = 3
"""So many times in a row may a process end before it is ready, or has made a parser; then it is not tried again."""
_START: Final = b""
_CHOOSE: Final = f"--peer-python PATH, or the environment's {PYTHON}, names the Python to use"
_LINE: Final = 300
"""Characters of an error that a message quotes."""


class PeerFailure(msgspec.Struct, frozen=True):
    """What a parser raised there; see ``peer/worker.py``."""

    type: str
    message: str
    where: str = ""


class PeerCall(msgspec.Struct, frozen=True):
    """A call of a one-shot message."""

    name: str
    arguments: str


class PeerMessage(msgspec.Struct, frozen=True):
    """A choice's one-shot message."""

    choice: int
    reasoning: str | None
    content: str | None
    tool_calls: tuple[PeerCall, ...] = ()


class Answer(msgspec.Struct, frozen=True):
    """An answer; see ``peer/worker.py``."""

    number: int = 0
    steps: tuple[tuple[tuple[str | int | None, ...], ...], ...] = ()
    flush: dict[str, tuple[tuple[str | int | None, ...], ...]] = {}
    one_shot: tuple[PeerMessage, ...] | None = None
    one_shot_error: PeerFailure | None = None
    error: PeerFailure | None = None
    ns: int = 0
    made: bool = False
    unsupported: str | None = None
    absent: str | None = None


class First(msgspec.Struct, frozen=True):
    """The first line; see ``peer/worker.py``."""

    ready: bool = False
    version: str = "?"
    missing: str = ""


class Peer:
    """A worker, in one process after the other. ``engine``: an adapter's name, or the path of one. One question at a
    time.

    What cannot be started, or made, is given up: at once where it takes too long, else after ``_STARTS`` processes that
    ended. Every further question then fails at once, until ``close``, or with other settings.
    """

    def __init__(self, python: str, engine: str) -> None:
        self.python = python
        self.engine = engine
        self._process: Process | None = None
        self._numbers = 0
        self._settings: Settings | None = None
        self._given_up: dict[bytes, Exception] = {}
        """What cannot be had: ``_START``, or the line that asks for a parser."""
        self._ended: dict[bytes, int] = {}
        """How many processes in a row ended of what."""
        self._lock = threading.Lock()

    def version(self, settings: Settings) -> str:
        """The engine's version; starts it. Raises NotAvailable."""
        with self._lock:
            self._under(settings)
            return self._running(settings).version

    def ask(self, request: dict[str, Any], settings: Settings) -> Answer:
        """The answer to a request. To start, and to make the parser, which a new process must, has limits of its own.
        Raises Timeout, Crashed, and NotAvailable where the engine is not there; the next question finds a new process
        then."""
        make = _line_of({**request, "session": None})
        with self._lock:
            self._under(settings)
            process = self._running(settings)
            used = process.answered > 0
            try:
                return self._asked(process, request, make, settings)
            except (Timeout, Crashed):
                if not used or make in self._given_up:
                    raise
            # The sessions before may have left the process so that it ends, or hangs, in this one, whose fault it is
            # only if a new process does, too.
            return self._asked(self._running(settings), request, make, settings)

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._kill()
            self._settings = None

    def forget(self) -> None:
        """After a fork: the process is the parent's, who talks to it and ends it."""
        process, self._process = self._process, None
        self._lock = threading.Lock()
        if process is not None:
            process.forget()

    def _under(self, settings: Settings) -> None:
        """From now on under these."""
        if settings is not self._settings:
            self._settings = settings
            self._given_up.clear()
            self._ended.clear()

    # --- the process

    def _running(self, settings: Settings) -> Process:
        if self._process is not None:
            if self._process.alive:
                return self._process
            self._kill()
        self._look(_START)
        try:
            self._process = Process(self.python, self.engine)
            limit = settings.start_limit
            first = _first(self._process.exchange(b"", limit, f"not ready within {limit:g} s"))
            if not first.ready:
                raise NotAvailable(f"{first.missing or 'it is no worker'}; {_CHOOSE}")
        except BaseException as error:  # also Ctrl-C: a worker that is half there is of no use
            self._kill()
            if isinstance(error, Timeout | Crashed | NotAvailable):
                raise self._failed(_START, error, NotAvailable(f"{self._name()}: {error}")) from error
            raise
        self._ended.pop(_START, None)
        self._process.version = first.version
        return self._process

    def _asked(self, process: Process, request: dict[str, Any], make: bytes, settings: Settings) -> Answer:
        try:
            made = self._make(process, make, request["facts"]["plugin"], settings)
            if request["session"] is None or not made.made:
                return made
            limit = settings.time_limit
            answer = self._exchange(process, _line_of(request), limit, f"no answer within {limit:g} s")
            process.answered += 1
            return answer
        except BaseException:  # also Ctrl-C: an answer that comes later would be taken for the next one's
            self._kill()
            raise

    def _make(self, process: Process, line: bytes, plugin: str | None, settings: Settings) -> Answer:
        """Have the parser made, if this process has not made it yet."""
        if line in process.made:
            return Answer(made=True)
        self._look(line)
        limit = max(settings.make_limit, settings.time_limit)
        what = f"{plugin} and its parser were not loaded" if plugin else "not made"
        try:
            answer = self._exchange(process, line, limit, f"{what} within {limit:g} s")
        except (Timeout, Crashed) as error:
            raise self._failed(line, error, error) from None
        self._ended.pop(line, None)
        if answer.made:
            process.made.add(line)
        return answer

    def _exchange(self, process: Process, line: bytes, limit: float, late: str) -> Answer:
        """Ask, and wait for the answer to that."""
        self._numbers += 1
        numbered = b'{"number":%d,%b' % (self._numbers, line[1:])
        return _answer(process.exchange(numbered, limit, late), self._numbers)

    def _look(self, what: bytes) -> None:
        """Raises what was given up for."""
        error = self._given_up.get(what)
        if error is not None:
            raise type(error)(str(error))

    def _failed(self, what: bytes, why: Exception, told: Exception) -> Exception:
        """It could not be had: is it given up? Returns what to raise."""
        self._ended[what] = self._ended.get(what, 0) + 1
        if not isinstance(why, Crashed) or self._ended[what] == _STARTS:
            self._given_up[what] = told
        return told

    def _name(self) -> str:
        return f"{os.path.basename(self.engine).removesuffix('.py')} under {self.python}"

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()


def _line_of(request: dict[str, Any]) -> bytes:
    return json.dumps(request, separators=(",", ":")).encode() + b"\n"


def _first(line: bytes) -> First:
    try:
        return msgspec.json.decode(line, type=First)
    except msgspec.DecodeError:
        return First()


def _answer(line: bytes, number: int) -> Answer:
    try:
        # Not msgspec's decoder: a parser may cut a character in two, and half of one is no JSON to it.
        answer = msgspec.convert(json.loads(line), Answer)
    except (ValueError, RecursionError) as error:  # msgspec's ValidationError is one
        raise Crashed(f"it answered what is no answer: {str(error)[:_LINE]}") from error
    if answer.number != number:
        raise Crashed(f"it answered question {answer.number}, and was asked {number}")
    return answer


_peers: dict[tuple[str, str, str], Peer] = {}


def peer(python: str, engine: str, plugin: str = "") -> Peer:
    """This process's worker for that Python and engine. ``plugin``: a file that it loads, and which may put its own
    parser in the place of the engine's: who does not want that has another worker."""
    found = _peers.get((python, engine, plugin))
    if found is None:
        found = _peers[python, engine, plugin] = Peer(python, engine)
    return found


def close() -> None:
    """End all workers of this process. They are started again when they are needed, also those that were given up."""
    for each in _peers.values():
        each.close()


def _forked() -> None:
    for each in _peers.values():
        each.forget()
    _peers.clear()


atexit.register(close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
