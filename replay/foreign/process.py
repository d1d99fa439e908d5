"""process: a worker process (``peer/worker.py``), and lines of JSON to it and from it."""

from __future__ import annotations

import os
import secrets
import selectors
import subprocess
import time
from pathlib import Path
from typing import IO, Final

from replay.errors import Crashed, NotAvailable, Timeout
from replay.foreign.peer.worker import MARK, end_all
from replay.text import sound

_WORKER: Final = str(Path(__file__).parent / "peer" / "worker.py")
_KEPT: Final = 8192
"""Bytes of standard error that are kept."""
_LONGEST: Final = 256 << 20
"""Bytes of one answer."""
_LOOK: Final = 1.0
"""Seconds of silence after which it is seen whether the process lives."""
_LINE: Final = 300
"""Characters of standard error that a message quotes."""


class Process:
    """A worker. ``made``: the parsers that it has made; ``answered``: how many sessions. Raises NotAvailable where that
    Python does not start."""

    def __init__(self, python: str, engine: str) -> None:
        self.made: set[bytes] = set()
        self.answered = 0
        self.version = ""
        self._read = bytearray()
        self._told = bytearray()
        self._mark = secrets.token_hex(16)
        try:
            self._process: subprocess.Popen[bytes] = subprocess.Popen(
                [python, _WORKER, engine],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
                env={**os.environ, MARK: self._mark},
                start_new_session=True,  # Ctrl-C is ours to handle, and its children can be ended with it
            )  # fmt: skip
        except OSError as error:
            raise NotAvailable(f"peer Python {python} does not start: {error.strerror or error}") from error
        for stream in self._streams():
            os.set_blocking(stream.fileno(), False)

    @property
    def alive(self) -> bool:
        """It has not ended, so far as is known."""
        return self._process.poll() is None

    def kill(self) -> None:
        """End it, and all that it started."""
        end_all(self._process.pid, self._mark)
        for stream in self._streams():
            stream.close()
        self._process.wait()

    def forget(self) -> None:
        """After a fork: it is the parent's, who talks to it and ends it."""
        for stream in self._streams():
            stream.close()
        self._process.returncode = 0  # nobody here waits for it

    def exchange(self, line: bytes, limit: float, late: str) -> bytes:
        """Write a line and read one. What comes on standard error is kept, as much as may be of use. ``limit``: in
        seconds. Raises Timeout, whose message is ``late``, and Crashed."""
        stdin, stdout, stderr = self._streams()
        self._keep(stderr)
        self._told.clear()  # that was said of something else
        until = time.monotonic() + limit
        pending = memoryview(line)
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            selector.register(stderr, selectors.EVENT_READ)
            if pending:
                selector.register(stdin, selectors.EVENT_WRITE)
            while True:
                left = until - time.monotonic()
                ready = [key.fileobj for key, _ in selector.select(max(0.0, min(left, _LOOK)))]
                if left <= 0 and stdout not in ready:  # else it may be that nobody here looked in time
                    raise Timeout(late + self._quoted())
                if not ready and not self.alive:
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
        try:
            code = self._process.wait(1)
            how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        except subprocess.TimeoutExpired:
            how = "closed its output"
        for _ in range(_KEPT):  # what it said last; whom it started may go on for ever
            if not self._keep(self._streams()[2]):
                break
        return Crashed(f"the process {how}{self._quoted()}")

    def _quoted(self) -> str:
        """The last line of standard error, for a message."""
        lines = [line.strip() for line in self._told.decode("utf-8", "replace").splitlines() if line.strip()]
        return f"; its last words: {sound(lines[-1][-_LINE:])}" if lines else ""

    def _streams(self) -> tuple[IO[bytes], IO[bytes], IO[bytes]]:
        stdin, stdout, stderr = self._process.stdin, self._process.stdout, self._process.stderr
        assert stdin is not None
        assert stdout is not None
        assert stderr is not None
        return stdin, stdout, stderr


def _data(stream: IO[bytes]) -> bytes | None:
    """What is there to read; None: nothing yet; empty: it is closed."""
    data: bytes | None = stream.read(1 << 16)
    return data


def _write(stdin: IO[bytes], data: memoryview) -> int:
    try:
        return stdin.write(data) or 0
    except BrokenPipeError:
        return len(data)  # it ended: its output tells
