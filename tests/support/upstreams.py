"""Small HTTP servers on loopback sockets that misbehave on demand: other servers, as a proxy meets them.

A server gives each connection to an answer: a function of what it can do with a ``Peer``. Answers are built from bytes:
nothing between a test and the socket repairs what it sends.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, TypeAlias

PATIENCE = 20.0
"""Seconds within which anything happens, on a busy machine too."""
_RESET = struct.pack("ii", 1, 0)


class Asked(NamedTuple):
    """A request as it came. ``headers``: in order, names as written."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def json(self) -> Any:
        """The body's value."""
        return json.loads(self.body)

    def header(self, name: str) -> str | None:
        """The first of that name, whatever its case."""
        return next((value for key, value in self.headers if key.lower() == name), None)


class Peer:
    """The server's side of one connection."""

    def __init__(self, server: Server, sock: socket.socket) -> None:
        self.server = server
        self.sock = sock
        self._read = b""

    def asked(self) -> Asked:
        """Read a request, body included. Raises EOFError where the client leaves before it is whole."""
        head = self._until(b"\r\n\r\n").decode("latin-1")
        first, *lines = head.split("\r\n")
        method, target, _ = first.split(" ")
        headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]
        found = {name.lower(): value for name, value in headers}
        body = self._chunks() if "transfer-encoding" in found else self._exactly(int(found.get("content-length", 0)))
        asked = Asked(method, target, headers, body)
        self.server.asked.append(asked)
        return asked

    def send(self, data: bytes) -> None:
        """Send, and return when the kernel has it."""
        self.sock.sendall(data)

    def trickle(self, data: bytes) -> None:
        """Send a byte at a time."""
        for at in range(len(data)):
            self.send(data[at : at + 1])

    def reset(self) -> None:
        """End the connection with a reset."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.sock.close()

    def left(self) -> bool:
        """Wait until the client has closed its side; False where it does not within PATIENCE."""
        try:
            while self.sock.recv(65536):
                pass
        except TimeoutError:
            return False
        except OSError:
            return True
        return True

    def hold(self) -> None:
        """Say nothing until the client has left, and count it."""
        if self.left():
            self.server.gone.release()

    def _chunks(self) -> bytes:
        parts: list[bytes] = []
        while size := int(self._until(b"\r\n"), 16):
            parts.append(self._exactly(size))
            self._until(b"\r\n")
        self._until(b"\r\n")
        return b"".join(parts)

    def _until(self, end: bytes) -> bytes:
        while end not in self._read:
            self._more()
        found, _, self._read = self._read.partition(end)
        return found

    def _exactly(self, size: int) -> bytes:
        while len(self._read) < size:
            self._more()
        found, self._read = self._read[:size], self._read[size:]
        return found

    def _more(self) -> None:
        data = self.sock.recv(65536)
        if not data:
            raise EOFError
        self._read += data


Answer: TypeAlias = Callable[[Peer], None]


class Server:
    """``asked``: all requests that were read; ``opened``: connections so far; ``gone``: a permit for each client that
    left while its answer held."""

    def __init__(self, answers: Sequence[Answer]) -> None:
        """The n-th connection has the n-th answer, those beyond them the last."""
        self._answers = answers
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._peers: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self.port: int = self._listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.asked: list[Asked] = []
        self.opened = 0
        self.gone = threading.Semaphore(0)
        self.failed: list[BaseException] = []

    def start(self) -> None:
        """Begin to accept."""
        self._threads[0].start()

    def stop(self) -> None:
        """Close all, and wait for the threads. Raises what an answer raised."""
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for sock in self._peers:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()
        if self.failed:
            raise self.failed[0]

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listening.accept()
            except OSError:
                return
            sock.settimeout(PATIENCE)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            answer = self._answers[min(self.opened, len(self._answers) - 1)]
            self.opened += 1
            self._peers.append(sock)
            thread = threading.Thread(target=self._serve, args=(answer, sock), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, answer: Answer, sock: socket.socket) -> None:
        with sock:
            try:
                answer(Peer(self, sock))
            except (EOFError, OSError):
                pass  # the client left
            except BaseException as error:
                self.failed.append(error)


@contextmanager
def upstream(*answers: Answer) -> Generator[Server]:
    """A server that runs; see ``Server``."""
    server = Server(answers)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def refusing() -> str:
    """A URL at which nobody listens. A port that was free a moment ago may be given to the next server, the one that is
    to find nobody there."""
    return "http://127.0.0.1:1"


# --- answers ----------------------------------------------------------------------------------------------------------


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def chunked(*parts: bytes) -> bytes:
    """A chunked body, its end included."""
    return b"".join(map(chunk, parts)) + b"0\r\n\r\n"


STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
"""The head of a stream."""


def plain(body: bytes, status: int = 200, *headers: tuple[str, str], kind: str = "application/json") -> bytes:
    """A whole response of known length."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in (("content-type", kind), *headers))
    return f"HTTP/1.1 {status} Said\r\n{lines}content-length: {len(body)}\r\n\r\n".encode("latin-1") + body


def value(found: Any, status: int = 200) -> bytes:
    """A JSON response."""
    return plain(json.dumps(found).encode(), status)


def says(*wire: bytes) -> Answer:
    """Reads a request and sends these bytes, and so on with the next request on the connection."""

    def answer(peer: Peer) -> None:
        while True:
            peer.asked()
            peer.send(b"".join(wire))

    return answer


def breaks_off(wire: bytes, *, reset: bool = False) -> Answer:
    """Reads a request, sends these bytes, and ends the connection."""

    def answer(peer: Peer) -> None:
        peer.asked()
        peer.send(wire)
        if reset:
            peer.reset()

    return answer


def stalls(wire: bytes = b"") -> Answer:
    """Reads a request, sends these bytes and nothing more, until the client has left."""

    def answer(peer: Peer) -> None:
        peer.asked()
        peer.send(wire)
        peer.hold()

    return answer


def hangs_up(peer: Peer) -> None:
    """Ends the connection with a reset before it reads anything."""
    peer.reset()


def routes(table: dict[str, bytes | Callable[[Asked], bytes]], missing: bytes | None = None) -> Answer:
    """Answers by path: whole responses, or what makes one of the request."""
    unknown = plain(b'{"detail":"Not Found"}', 404) if missing is None else missing

    def answer(peer: Peer) -> None:
        while True:
            asked = peer.asked()
            found = table.get(asked.target.partition("?")[0], unknown)
            peer.send(found if isinstance(found, bytes) else found(asked))

    return answer
