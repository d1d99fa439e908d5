"""Bytes on a socket that are no HTTP, or abuse it: an answer with the protocol's error, and no waiting for ever."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.server import MESSAGES, PATIENCE, Running, serve

BODY = json.dumps({"messages": MESSAGES}).encode()
POST = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n"
GET = b"GET /v1/models HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
HEAD_LIMIT = 64 * 1024


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Gives a client a second to send its request."""
    folder = tmp_path_factory.mktemp("impatient")
    with serve(folder, "--max-body", "20000", "--body-timeout", "1") as running:
        yield running


def _ask(server: Running, sent: bytes) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of what comes until the server closes the connection."""
    host, _, port = server.address.removeprefix("http://").partition(":")
    got = b""
    with socket.create_connection((host, int(port)), PATIENCE) as client:
        try:
            client.sendall(sent)
            while more := client.recv(65536):
                got += more
        except ConnectionError:
            # It was closed while much was still on its way; what it said before is read.
            pass
    head, _, body = got.partition(b"\r\n\r\n")
    status, *lines = head.decode("latin-1").split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return int(status.split()[1]), headers, body


def _body(body: bytes, head: bytes = POST) -> bytes:
    return b"%bcontent-length: %d\r\n\r\n%b" % (head, len(body), body)


def _with(body: str) -> bytes:
    return _body(body.replace("MESSAGES", json.dumps(MESSAGES)).encode("utf-8", "surrogatepass"))


REFUSED: dict[str, tuple[bytes, int, str]] = {
    "no HTTP": (b"\x00\x01garbage\r\n\r\n", 400, "HTTP"),
    "another version": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "HTTP"),
    "no such method": (b"FOO /health HTTP/1.1\r\nhost: x\r\n\r\n", 400, "HTTP"),
    "a NUL in a header": (_body(BODY, POST + b"x-a: a\x00b\r\n"), 400, "HTTP"),
    "a header without a colon": (_body(BODY, POST + b"nocolon\r\n"), 400, "HTTP"),
    "two lengths": (_body(BODY, POST + b"content-length: 3\r\n"), 400, "HTTP"),
    "a length and chunks": (POST + b"content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400, "HTTP"),
    "a bad chunk": (POST + b"transfer-encoding: chunked\r\n\r\nzz\r\n", 400, "HTTP"),
    "a length below 0": (POST + b"content-length: -5\r\n\r\n", 400, "HTTP"),
    "a length beyond counting": (POST + b"content-length: 99999999999999999999999\r\n\r\n", 400, "HTTP"),
    "a long header": (_body(BODY, POST + b"x-a: " + b"a" * 2 * HEAD_LIMIT + b"\r\n"), 431, str(HEAD_LIMIT)),
    "many headers": (_body(BODY, POST + b"".join(b"x-%d: a\r\n" % n for n in range(9000))), 431, str(HEAD_LIMIT)),
    "a long path": (b"GET /" + b"a" * 2 * HEAD_LIMIT + b" HTTP/1.1\r\nhost: x\r\n\r\n", 431, str(HEAD_LIMIT)),
    "headers without an end": (POST + b"x-a: b\r\n", 408, "1 second"),
    "a request line without an end": (b"GET /hea", 408, "1 second"),
    "a body that does not come": (POST + b"content-length: 100\r\n\r\n{", 408, "1 second"),
    "a compressed body": (_body(BODY, POST + b"content-encoding: gzip\r\n"), 415, "content-encoding"),
    "a content type that is no text": (_body(BODY, POST.replace(b"application/json", b"\xff/\xfe")), 415, "json"),
    "not UTF-8": (_body(b'{"messages": "\xff"}'), 400, "JSON"),
    "a byte order mark": (_body(b"\xef\xbb\xbf" + BODY), 400, "JSON"),
    "NaN": (_with('{"messages": MESSAGES, "temperature": NaN}'), 400, "JSON"),
    "Infinity": (_with('{"messages": MESSAGES, "temperature": -Infinity}'), 400, "JSON"),
    "half a pair": (_with('{"messages": [{"role": "user", "content": "\\ud800"}]}'), 400, "JSON"),
    "a key twice": (_with('{"messages": MESSAGES, "n": 1, "n": 2}'), 400, "'n'"),
    "a key twice, deep": (_with('{"messages": [{"role": "user", "content": "a", "content": "b"}]}'), 400, "'content'"),
    "a key twice, escaped": (_with('{"messages": MESSAGES, "n": 1, "\\u006e": 1}'), 400, "'n'"),
    "too deep": (_with('{"messages": MESSAGES, "x": ' + "[" * 9000 + "]" * 9000 + "}"), 400, "deep"),
    "too large": (_body(b" " * 20_001), 413, "20000"),
    "two values": (_body(BODY + BODY), 400, "JSON"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused(impatient: Running, name: str) -> None:
    sent, status, told = REFUSED[name]
    got, headers, body = _ask(impatient, sent)
    assert got == status
    assert headers["content-type"] == "application/json"
    assert headers["connection"] == "close"
    assert int(headers["content-length"]) == len(body)
    [(key, error)] = json.loads(body).items()
    assert (key, set(error)) == ("error", {"message", "type", "param", "code"})
    assert error["type"] == "invalid_request_error"
    assert told in error["message"]


@pytest.mark.parametrize("name", ["a bad chunk", "a length below 0", "a header without a colon", "a long header",
                                  "headers without an end"])  # fmt: skip
def test_it_is_refused_in_the_words_of_its_path(impatient: Running, name: str) -> None:
    sent, status, told = REFUSED[name]
    got, _, body = _ask(impatient, sent.replace(b"/v1/chat/completions", b"/v1/messages?beta=true"))
    assert got == status
    error = json.loads(body)
    assert (error["type"], error["error"]["type"]) == ("error", "invalid_request_error")
    assert told in error["error"]["message"]


SERVED: dict[str, bytes] = {
    "no host": b"GET /v1/models HTTP/1.1\r\nconnection: close\r\n\r\n",
    "HTTP/1.0": b"GET /v1/models HTTP/1.0\r\n\r\n",
    "an upgrade to what is not served": GET.replace(b"close", b"upgrade, close") + b"upgrade: websocket\r\n\r\n",
    "headers just within the limit": GET + b"x-a: " + b"a" * (HEAD_LIMIT - 200) + b"\r\n\r\n",
    "a key that is no text": GET + b"authorization: Bearer \xff\xfe\r\n\r\n",
    "a key twice in two objects": _with('{"messages": MESSAGES, "x": [{"n": 1}, {"n": 1}], "n": 1}'),
    "the text of keys in a value": _with('{"messages": MESSAGES, "user": "\\"n\\": 1, \\"n\\": 2"}'),
}


@pytest.mark.parametrize("name", SERVED)
def test_it_is_served(impatient: Running, name: str) -> None:
    status, _, body = _ask(impatient, SERVED[name])
    assert status == 200
    assert json.loads(body)["object"] in ("list", "chat.completion")


def test_a_client_that_waits_to_be_told_to_go_on(impatient: Running) -> None:
    status, _, rest = _ask(impatient, _body(BODY, POST + b"expect: 100-continue\r\n"))
    assert status == 100
    assert rest.startswith(b"HTTP/1.1 200 OK\r\n")


def test_nothing_of_it_is_in_the_log(impatient: Running) -> None:
    secret: dict[str, Any] = {"messages": [{"role": "user", "content": "xyzzy-words"}], "temperature": 9}
    for sent in (_body(json.dumps(secret).encode()), b"xyzzy-words \x00\r\n\r\n", GET + b"xyzzy-words\r\n\r\n"):
        assert _ask(impatient, sent)[0] == 400
    assert "xyzzy-words" not in impatient.log.read_text()
