"""What the kernel knows of a server: its connections, its memory, what it does; and HTTP as it is on the wire."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

from tests.support.server import PATIENCE, Running

TICK = 0.05


def held(running: Running, client: socket.socket) -> bool:
    """The server has a file descriptor for this client's connection."""
    mine, theirs = client.getsockname()[1], int(running.address.rpartition(":")[2])
    inode = None
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        ports = [int(fields[at].rpartition(":")[2], 16) for at in (1, 2)]
        if ports == [theirs, mine]:
            inode = fields[9]
    folder = Path(f"/proc/{running.process.pid}/fd")
    return inode is not None and any(_link(one) == f"socket:[{inode}]" for one in folder.iterdir())


def _link(path: Path) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""  # closed meanwhile


def memory(running: Running) -> int:
    """Bytes of the server's resident memory."""
    status = Path(f"/proc/{running.process.pid}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) * 1024


def rested(running: Running) -> None:
    """Wait until the server does nothing: for a while all of its threads sleep, and it has used no processor time. One
    that would run, and is not let, does not sleep."""
    until = time.monotonic() + PATIENCE
    quiet, before = 0, (-1, True)
    while quiet < 6:
        assert time.monotonic() < until, "it goes on"
        time.sleep(TICK)
        now = _busy(running)
        quiet, before = (quiet + 1 if now == before and not now[1] else 0), now


def _busy(running: Running) -> tuple[int, bool]:
    """The processor time that the server has used; a thread of it does not sleep."""
    used, awake = 0, False
    for task in Path(f"/proc/{running.process.pid}/task").iterdir():
        try:
            fields = (task / "stat").read_text().rpartition(")")[2].split()
        except FileNotFoundError:
            continue  # it has ended
        used += int(fields[11]) + int(fields[12])
        awake |= fields[0] != "S"
    return used, awake


class Reader:
    """A response, read from its socket as it is: the head, and the chunks of the body, one for each write."""

    def __init__(self, client: socket.socket) -> None:
        self._client = client
        self._read = bytearray()
        head = self._until(b"\r\n\r\n").decode("latin-1")
        self.status, *lines = head.split("\r\n")
        self.headers = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]

    def chunk(self) -> bytes:
        """The next chunk; empty at the end."""
        size = int(self._until(b"\r\n"), 16)
        self._fill(size + 2)
        data = bytes(self._read[:size])
        assert self._read[size : size + 2] == b"\r\n"
        del self._read[: size + 2]
        return data

    def rest(self) -> list[bytes]:
        """The chunks to the end of the body."""
        found: list[bytes] = []
        while data := self.chunk():
            found.append(data)
        return found

    def _until(self, end: bytes) -> bytes:
        while end not in self._read:
            self._more()
        found, _, rest = bytes(self._read).partition(end)
        self._read = bytearray(rest)
        return found

    def _fill(self, size: int) -> None:
        while len(self._read) < size:
            self._more()

    def _more(self) -> None:
        data = self._client.recv(65536)
        if not data:
            raise EOFError("closed in the middle")
        self._read += data
