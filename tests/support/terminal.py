"""The command line in a terminal of its own."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

from tests.support.tree import ROOT

_ESCAPE = re.compile(r"\x1b\[[0-9;]*[a-zA-Z]")


def in_terminal(*arguments: object, columns: int = 80, **environment: str) -> tuple[int, str]:
    """``playhead ARGUMENTS…``: its exit code, and what it wrote to a terminal, escape sequences and all."""
    kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR", "FORCE_COLOR")}
    mine, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    command = [sys.executable, "-m", "pipeline.cli", *map(str, arguments)]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=its, stdout=its, stderr=subprocess.STDOUT, env={**kept, "TERM": "xterm", **environment}
    ) as process:
        os.close(its)
        pieces: list[bytes] = []
        while piece := _piece(mine):
            pieces.append(piece)
        os.close(mine)
    return process.returncode, b"".join(pieces).decode()


def _piece(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # how Linux says that the other end is closed
        return b""


def without_escapes(text: str) -> str:
    """What a reader sees."""
    return _ESCAPE.sub("", text).replace("\r\n", "\n")
