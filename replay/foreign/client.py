"""client: a worker process (``peer/worker.py``), and what is asked of it.

One process for each Python, engine and plugin, in each process that replays. It is started when it is first needed,
killed when it does not answer in time, and started again for the next session.
"""

from __future__ import annotations

import atexit
import json
import os
import selectors
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from replay.errors import Crashed, NotAvailable, Timeout
from replay.foreign.settings import PYTHON
from replay.text import sound

_WORKER: Final = str(Path(__file__).parent / "peer" / "worker.py")
_KEPT: Final = 8192
"""Bytes of standard error that are kept."""
_LONGEST: Final = 256 << 20
"""Bytes of one answer."""
_LOOK: Final = 1.0
"""Seconds of silence after which it is seen whether the process lives."""
_CHOOSE: Final = f"--peer-python PATH, or the environment's {PYTHON}, names the Python to use"
_LINE: Final = 300
"""Characters of standard error that a message quotes."""


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
    """A worker. ``engine``: an adapter's name, or the path of one. One question at a time."""

    def __init__(self, python: str, engine: str) -> None:
        self.python = python
        self.engine = engine
        self._process: subprocess.Popen[bytes] | None = None
        self._version = ""
        self._read = bytearray()
        self._told = bytearray()
        self._made: set[bytes] = set()
        """Parsers that this process has made."""
        self._lock = threading.Lock()

    def version(self, limit: float) -> str:
        """The engine's version; starts it. Raises NotAvailable. ``limit``: seconds."""
        with self._lock:
            self._running(limit)
            return self._version

    def ask(self, request: dict[str, Any], limit: float, start_limit: float) -> Answer:
        """The answer to a request. Limits in seconds; to make the parser, which a new process must, takes none of
        ``limit``. Raises Timeout, Crashed, and NotAvailable where the engine is not there; the next question finds a
        new process then."""
        line = _line_of(request)
        make = _line_of({**request, "session": None})
        with self._lock:
            self._running(start_limit)
            try:
                made = self._make(make, start_limit)
                if request["session"] is None or not made.made:
                    return made
                return _answer(self._exchange(line, limit, f"no answer within {limit:g} s"))
            except BaseException:  # also Ctrl-C: an answer that comes later would be taken for the next one's
                self._kill()
                raise

    def _make(self, line: bytes, limit: float) -> Answer:
        """Have the parser made, if this process has not made it yet."""
        if line in self._made:
            return Answer(made=True)
        answer = _answer(self._exchange(line, limit, f"not made within {limit:g} s"))
        if answer.made:
            self._made.add(line)
        return answer

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._kill()

    def forget(self) -> None:
        """After a fork: the process is the parent's, who talks to it and ends it."""
        process, self._process = self._process, None
        self._lock = threading.Lock()
        if process is not None:
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
            process.returncode = 0  # nobody here waits for it

    # --- the process

    def _running(self, limit: float) -> None:
        if self._process is not None:
            if self._process.poll() is None:
                return
            self._kill()
        self._read.clear()
        self._told.clear()
        self._made.clear()
        try:
            process = subprocess.Popen(
                [self.python, _WORKER, self.engine],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
                start_new_session=True,  # Ctrl-C is ours to handle, and its children can be ended with it
            )  # fmt: skip
        except OSError as error:
            raise NotAvailable(f"peer Python {self.python} does not start: {error.strerror or error}") from error
        self._process = process
        for stream in _streams(process):
            os.set_blocking(stream.fileno(), False)
        try:
            first = _first(self._exchange(b"", limit, f"not ready within {limit:g} s"))
            if not first.ready:
                raise NotAvailable(f"{first.missing or 'it is no worker'}; {_CHOOSE}")
        except BaseException as error:  # also Ctrl-C: a worker that is half there is of no use
            self._kill()
            if isinstance(error, Timeout | Crashed | NotAvailable):
                raise NotAvailable(f"{self._name()}: {error}") from error
            raise
        self._version = first.version

    def _name(self) -> str:
        return f"{os.path.basename(self.engine).removesuffix('.py')} under {self.python}"

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass  # it ended by itself
        for stream in _streams(process):
            stream.close()
        process.wait()

    # --- lines

    def _exchange(self, line: bytes, limit: float, late: str) -> bytes:
        """Write a line and read one. What comes on standard error is kept, as much as may be of use."""
        process = self._process
        assert process is not None
        stdin, stdout, stderr = _streams(process)
        until = time.monotonic() + limit
        pending = memoryview(line)
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            selector.register(stderr, selectors.EVENT_READ)
            if pending:
                selector.register(stdin, selectors.EVENT_WRITE)
            while True:
                left = until - time.monotonic()
                ready = [key.fileobj for key, _ in selector.select(min(left, _LOOK))] if left > 0 else []
                if left <= 0:
                    raise Timeout(late + self._quoted())
                if not ready and process.poll() is not None:
                    raise self._dead()  # whom it started may keep its output open
                if stdin in ready:
                    pending = pending[_write(stdin, pending) :]
                    if not pending:
                        selector.unregister(stdin)
                if stderr in ready and self._keep(stderr) == b"":
                    selector.unregister(stderr)
                if stdout in ready:
                    found = self._line(stdout)
                    if found is not None:
                        return found

    def _line(self, stdout: IO[bytes]) -> bytes | None:
        data = _data(stdout)
        if data is None:
            return None
        searched = len(self._read)
        self._read += data
        end = self._read.find(b"\n", searched)
        if end >= 0:
            line = bytes(self._read[:end])
            del self._read[: end + 1]
            return line
        if not data:
            raise self._dead()
        if len(self._read) > _LONGEST:
            raise Crashed(f"its answer is longer than {_LONGEST >> 20} MiB")
        return None

    def _keep(self, stderr: IO[bytes]) -> bytes | None:
        """Read standard error; see ``_data``."""
        data = _data(stderr)
        if data:
            self._told += data
            del self._told[:-_KEPT]
        return data

    def _dead(self) -> Crashed:
        """The process closed its output: it ends, or is of no use any more."""
        process = self._process
        assert process is not None
        try:
            code = process.wait(1)
            how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        except subprocess.TimeoutExpired:
            how = "closed its output"
        for _ in range(_KEPT):  # what it said last; whom it started may go on for ever
            if not self._keep(_streams(process)[2]):
                break
        return Crashed(f"the process {how}{self._quoted()}")

    def _quoted(self) -> str:
        """The last line of standard error, for a message."""
        lines = [line.strip() for line in self._told.decode("utf-8", "replace").splitlines() if line.strip()]
        return f"; its last words: {sound(lines[-1][-_LINE:])}" if lines else ""


def _streams(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes], IO[bytes]]:
    stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
    assert stdin is not None
    assert stdout is not None
    assert stderr is not None
    return stdin, stdout, stderr


def _line_of(request: dict[str, Any]) -> bytes:
    return json.dumps(request, separators=(",", ":")).encode() + b"\n"


def _first(line: bytes) -> First:
    try:
        return msgspec.json.decode(line, type=First)
    except msgspec.DecodeError:
        return First()


def _answer(line: bytes) -> Answer:
    try:
        # Not msgspec's decoder: a parser may cut a character in two, and half of one is no JSON to it.
        return msgspec.convert(json.loads(line), Answer)
    except (ValueError, RecursionError) as error:  # msgspec's ValidationError is one
        raise Crashed(f"it answered what is no answer: {str(error)[:_LINE]}") from error


def _data(stream: IO[bytes]) -> bytes | None:
    """What is there to read; None: nothing yet; empty: it is closed."""
    data: bytes | None = stream.read(1 << 16)
    return data


def _write(stdin: IO[bytes], data: memoryview) -> int:
    try:
        return stdin.write(data) or 0
    except BrokenPipeError:
        return len(data)  # it ended: its output tells


_peers: dict[tuple[str, str, str], Peer] = {}


def peer(python: str, engine: str, plugin: str = "") -> Peer:
    """This process's worker for that Python and engine. ``plugin``: a file that it loads, and which may put its own
    parser in the place of the engine's: who does not want that has another worker."""
    found = _peers.get((python, engine, plugin))
    if found is None:
        found = _peers[python, engine, plugin] = Peer(python, engine)
    return found


def close() -> None:
    """End all workers of this process. They are started again when they are needed."""
    for each in _peers.values():
        each.close()


def _forked() -> None:
    for each in _peers.values():
        each.forget()
    _peers.clear()


atexit.register(close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
