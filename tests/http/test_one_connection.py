"""Several requests on one connection, and what is none between them: each answer is whole, in order, and its own."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.server import MESSAGES, PATIENCE, Running, eventually, serve
from tests.support.sockets import Reader

GET = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"
GARBAGE = b"\x00\x01garbage\r\n\r\n"
UPGRADE = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n"


def post(*, path: bytes = b"/v1/chat/completions", headers: bytes = b"", **fields: object) -> bytes:
    body = json.dumps({"messages": MESSAGES, **fields}).encode()
    head = b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n%b" % (path, headers)
    return b"%bcontent-length: %d\r\n\r\n%b" % (head, len(body), body)


@contextmanager
def connected(running: Running, sent: bytes = b"") -> Generator[socket.socket]:
    host, _, port = running.address.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), PATIENCE) as client:
        client.sendall(sent)
        yield client


def everything(client: socket.socket) -> bytes:
    """What comes until the server closes the connection."""
    got = b""
    while more := client.recv(65536):
        got += more
    return got


def told(answer: bytes) -> str:
    """The error of a response."""
    found: str = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["message"]
    return found


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Gives a client half a second for a head, and takes as long for five tokens."""
    with serve(tmp_path_factory.mktemp("impatient"), "--body-timeout", "0.5", "--pace", "0.1") as running:
        yield running


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("together", [True, False], ids=["in one write", "in two"])
def test_a_client_that_has_sent_its_next_request_and_leaves(tmp_path: Path, stream: bool, together: bool) -> None:
    """It is noticed, although nothing is written to it."""
    first = post(stream=stream, stream_options={"keep_alive": 0} if stream else None)
    with serve(tmp_path, "--pace", "3600") as running:
        with connected(running, first + GET if together else first) as client:
            eventually(lambda: running.health()["sessions"] or None)
            if not together:
                client.sendall(GET)
        eventually(lambda: running.health()["sessions"] == 0 or None)
        [info] = eventually(lambda: running.sessions() or None)
        assert running.recorded(info.session).info.state == "aborted"


@pytest.mark.parametrize("stream", [True, False])
def test_garbage_behind_a_request_is_answered_behind_its_answer(impatient: Running, stream: bool) -> None:
    """Not in its middle, and not in its place; also where the garbage comes with it, or in parts."""
    for parts in ((GARBAGE,), (b"\x00", b"\x01\r\n\r\n")):
        with connected(impatient, post(stream=stream, max_tokens=2)) as client:
            for part in parts:
                client.sendall(part)
            answer, _, refused = everything(client).partition(b"HTTP/1.1 400 Bad Request\r\n")
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert answer.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n" if stream else b"}")
        assert "HTTP" in told(refused)
    with connected(impatient, post(stream=stream, max_tokens=2) + GET + GARBAGE) as client:
        got = everything(client)
    assert [got.count(b"HTTP/1.1 %b\r\n" % status) for status in (b"200 OK", b"400 Bad Request")] == [2, 1]
    assert got.index(b'{"status":"ok"') < got.index(b"HTTP/1.1 400")


def test_what_is_sent_ahead_is_not_late(impatient: Running) -> None:
    """Half a head arrives at the beginning of a stream that takes longer than a head may, the rest after it."""
    with connected(impatient, post(stream=True, max_tokens=10) + GET[:9]) as client:
        assert Reader(client).rest()[-1].endswith(b"data: [DONE]\n\n")
        client.sendall(GET[9:])
        assert Reader(client).status == "HTTP/1.1 200 OK"


def test_a_large_body_is_no_part_of_the_next_head(impatient: Running) -> None:
    with connected(impatient, post(max_tokens=1, user="a" * 300_000) + GET[:9]) as client:
        assert Reader(client).status == "HTTP/1.1 200 OK"
        client.sendall(GET[9:] + GET[:-2] + b"connection: close\r\n\r\n")
        assert everything(client).count(b"HTTP/1.1 200 OK") == 2


def test_hundreds_of_requests_in_one_write(tmp_path: Path) -> None:
    """More than waits behind a request: the rest is not read before its turn. Each has its own answer, in order."""
    sent = b"".join(post(stream=number % 3 == 0, max_tokens=1, user="a" * 1500) + GET for number in range(300))
    with serve(tmp_path) as running, connected(running) as client:
        writing = threading.Thread(target=client.sendall, args=(sent + GET[:-2] + b"connection: close\r\n\r\n",))
        writing.start()
        got = everything(client)
        writing.join()
    kinds = re.findall(rb"^(?:data: \[DONE\]|\{\"(?:id|status)\")", got, re.MULTILINE)
    assert [kind[:4] for kind in kinds] == [
        *[b"data" if number % 6 == 0 else b'{"st' if number % 2 else b'{"id' for number in range(600)], b'{"st'
    ]  # fmt: skip


@pytest.mark.parametrize("cut", [0, 5], ids=["in one write", "in two"])
def test_who_asks_for_another_protocol_is_answered_in_this_one(impatient: Running, cut: int) -> None:
    """With its body read: Java's client asks for HTTP/2 with every first request."""
    asked = post(headers=UPGRADE, max_tokens=1, user="ahead")
    with connected(impatient, asked[: len(asked) - cut]) as client:
        client.sendall(asked[len(asked) - cut :] + post(headers=UPGRADE, stream=True, max_tokens=1))
        client.sendall(GET[:-2] + b"connection: close\r\n\r\n")
        got = everything(client)
    assert got.count(b"HTTP/1.1 200 OK\r\n") == 3
    assert got.count(b"data: [DONE]") == 1


def test_who_waits_to_be_told_to_go_on_and_is_not_is_hung_up_on(impatient: Running) -> None:
    """What it sends next may be the body or another request: nobody can tell."""
    ask = b"POST /nothing HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\nexpect: 100-continue\r\n\r\n"
    with connected(impatient, ask) as client:
        answer = everything(client)
    assert answer.startswith(b"HTTP/1.1 404 Not Found\r\n")
    assert b"\r\nconnection: close\r\n" in answer


NOTHING = post(path=b"/nothing")
IDLE: dict[str, tuple[bytes, bytes]] = {
    "blank lines": (b"", b"\r\n\r\n"),
    "blank lines behind an answer": (GET, b"\r\n"),
    "half of a body whose request is answered": (NOTHING[:-20], NOTHING[-20:-10]),
    "such a body, and blank lines": (NOTHING[:-20], NOTHING[-20:] + b"\r\n"),
}


@pytest.mark.parametrize("case", IDLE)
def test_nobody_holds_a_connection_with_nothing(impatient: Running, case: str) -> None:
    asked, idle = IDLE[case]
    with connected(impatient, asked) as client:
        if asked:
            assert Reader(client).status in ("HTTP/1.1 200 OK", "HTTP/1.1 404 Not Found")
        client.sendall(idle)
        assert b"HTTP/1.1" not in everything(client)


def test_a_bad_rest_of_a_body_that_has_its_answer(impatient: Running) -> None:
    """There is one answer."""
    head = b"POST /nothing HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    with connected(impatient, head) as client:
        reader = Reader(client)
        assert reader.status == "HTTP/1.1 404 Not Found"
        client.sendall(b"zz\r\n")
        assert b"HTTP/1.1" not in everything(client)


def test_a_stop_is_not_delayed_by_requests_that_are_no_sessions(tmp_path: Path) -> None:
    """A body on its way, and answers that are not read; the log has no complaint."""
    with serve(tmp_path) as running, connected(running, post()[:-5]), connected(running) as deaf:
        deaf.setblocking(False)
        with pytest.raises(BlockingIOError):
            while True:
                deaf.send(GET.replace(b"/health", b"/openapi.json") * 100)
        assert running.health()["sessions"] == 0
        assert running.stop() == 0
        assert "ERROR" not in running.log.read_text()
