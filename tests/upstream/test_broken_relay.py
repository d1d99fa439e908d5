"""What was found by trying to break a relay: each with the smallest thing that broke it."""

from __future__ import annotations

import gzip
import json
import socket
import sqlite3
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from replay import Replayer
from stages.events import Block, Content, End, Failure, Semantic
from store.api import Trace
from tests.support.proxies import Got, ended, latest, post, proxied, received
from tests.support.server import PATIENCE, Running, eventually
from tests.support.upstreams import (
    STREAM,
    Answer,
    Asked,
    Peer,
    breaks_off,
    chunk,
    chunked,
    plain,
    refusing,
    says,
    upstream,
    value,
)

CHAT = "/v1/chat/completions"
BODY = b'{"model":"m","messages":[],"stream":true}'
FIRST, DONE = b"data: y\n\n", b"data: [DONE]\n\n"
SESSION = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}"
PASSED = b"POST /generate HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}"
LOOK = b"GET /events HTTP/1.1\r\nhost: x\r\n\r\n"
CODED = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: gzip\r\n"
PACKED = gzip.compress(FIRST + DONE, mtime=0)


@contextmanager
def relayed(folder: Path, answer: Answer, *options: str, depth: str = "verbatim") -> Generator[Running]:
    with upstream(answer) as server, proxied(folder, server.url, "--depth", depth, *options) as running:
        yield running


class Pair(NamedTuple):
    """A proxy that runs, and what its upstream answers now."""

    running: Running
    wire: list[bytes]

    def post(self, path: str, wire: bytes) -> Got:
        """Ask for something that is answered so; then the connection ends."""
        self.wire[:] = [wire]
        return post(self.running.address, path, BODY)


@contextmanager
def paired(folder: Path) -> Generator[Pair]:
    wire: list[bytes] = []
    with relayed(folder, lambda peer: breaks_off(wire[0])(peer)) as running:
        yield Pair(running, wire)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Generator[Pair]:
    with paired(tmp_path_factory.mktemp("pair")) as made:
        yield made


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Generator[Pair]:
    """One whose sessions have all ended when a test begins."""
    with paired(tmp_path_factory.mktemp("counted")) as made:
        yield made


def connected(running: Running, wire: bytes) -> socket.socket:
    """A client that has sent this."""
    host, _, port = running.address.removeprefix("http://").partition(":")
    client = socket.create_connection((host, int(port)), PATIENCE)
    client.sendall(wire)
    return client


def verdict(trace: Trace) -> str:
    return next(iter(Replayer().replay_many([trace]))).verdict


# --- heads -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [CHAT, "/other"])
@pytest.mark.parametrize("status", [101, 600, 999])
def test_a_status_that_no_server_can_pass_on(pair: Pair, path: str, status: int) -> None:
    """The server beneath knows none beyond 599, and would answer nothing."""
    head = b"HTTP/1.1 %d Odd\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}" % status
    got = pair.post(path, head)
    assert (got.status, json.loads(got.body)["error"]["code"]) == (502, "upstream_protocol")
    assert 'outcome="upstream_protocol"' in pair.running.http.get("/metrics").text


@pytest.mark.parametrize("path", [CHAT, "/other"])
def test_control_characters_in_a_header(pair: Pair, path: str) -> None:
    """They are blanks then (RFC 9110, 5.5); the other bytes stay."""
    got = pair.post(path, plain(b"{}", 200, ("x-odd", "a\x01b\x7fc\td\xe9")))
    assert (got.status, got.body, got.header("x-odd")) == (200, b"{}", "a b c\td\xe9")


@pytest.mark.parametrize("path", [CHAT, "/other"])
@pytest.mark.parametrize("status", [204, 304])
def test_the_length_of_a_body_that_cannot_be(pair: Pair, path: str, status: int) -> None:
    """Such a head may tell one (RFC 9110, 8.6). It is left out, and the connection stays for another request."""
    head = b"HTTP/1.1 %d Said\r\netag: x\r\ncontent-length: 5\r\n\r\n" % status
    pair.wire[:] = [head]
    for _ in range(2):
        got = pair.running.http.post(path, content=BODY)
        assert (got.status_code, got.content, got.headers["etag"]) == (status, b"", "x")
    assert "ERROR" not in pair.running.log.read_text()


# --- compressed streams ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [CHAT, "/other"])
@pytest.mark.parametrize(
    "cut",
    [
        CODED + b"transfer-encoding: chunked\r\n\r\n" + chunk(PACKED[:8]),
        CODED + b"content-length: %d\r\n\r\n" % len(PACKED) + PACKED[:8],
    ],
)
def test_a_compressed_stream_that_is_cut_does_not_end(pair: Pair, path: str, cut: bytes) -> None:
    """No error can be told in it: what came is passed on, and the client sees that it is not all."""
    got = pair.post(path, cut)
    assert (got.status, got.body, got.whole) == (200, PACKED[:8], False)
    assert "ERROR" not in pair.running.log.read_text()


@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/v1/responses", "/v1/messages"])
@pytest.mark.parametrize(
    ("wire", "said"),
    [
        (CODED + b"transfer-encoding: chunked\r\n\r\n" + chunked(PACKED), [End()]),
        (plain(gzip.compress(b"{}", mtime=0), 200, ("content-encoding", "gzip")), [End()]),
        (
            plain(gzip.compress(b"{}", mtime=0), 401, ("content-encoding", "gzip")),
            [Failure("unauthorized", "The upstream answered with status 401."), End()],
        ),
    ],
)
def test_what_is_compressed_is_not_taken_for_broken(
    counted: Pair, path: str, wire: bytes, said: list[Semantic]
) -> None:
    """It is not read, so that nobody can say that it broke off; and a replay finds the same."""
    before = ended(counted.running)
    counted.post(path, wire)
    trace = latest(counted.running, before + 1)
    assert trace.events("upstream", "semantic") == said
    assert verdict(trace) == "same"


# --- clients that leave ----------------------------------------------------------------------------------------------


def _keeps_on(peer: Peer) -> None:
    """A stream that ends with its client."""
    peer.asked()
    peer.send(STREAM)
    try:
        while True:
            peer.send(chunk(FIRST * 100))
    except OSError:
        peer.server.gone.release()


def _waits(peer: Peer) -> None:
    peer.asked()
    peer.hold()


@pytest.mark.parametrize("answer", [_keeps_on, _waits])
@pytest.mark.parametrize("wire", [SESSION, PASSED, LOOK])
def test_a_client_that_leaves_closes_the_upstream(tmp_path: Path, answer: Answer, wire: bytes) -> None:
    """Whatever it had asked for, and whether the answer had begun: engines go on writing for who is not there."""
    with upstream(answer) as server, proxied(tmp_path, server.url, "--depth", "verbatim") as running:
        client = connected(running, wire)
        if answer is _keeps_on:
            assert client.recv(100).startswith(b"HTTP/1.1 200")
        else:
            eventually(lambda: server.opened or None)
        client.close()
        assert server.gone.acquire(timeout=PATIENCE)


@pytest.mark.parametrize(
    "begun",
    [
        b"POST /files HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
        b"POST /files HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\nnonsense\r\n",
        b"POST /files HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nabc",
    ],
)
def test_half_an_upload_is_not_taken_for_all(tmp_path: Path, begun: bytes) -> None:
    """The connection to the upstream breaks off as the client's did."""
    whole: list[Asked] = []
    broken = threading.Event()

    def takes(peer: Peer) -> None:
        try:
            whole.append(peer.asked())
        except (EOFError, OSError):
            broken.set()

    with upstream(takes) as server, proxied(tmp_path, server.url) as running:
        client = connected(running, begun)
        eventually(lambda: server.opened or None)
        client.close()
        assert broken.wait(PATIENCE)
        assert whole == []


def test_a_client_that_leaves_while_it_is_waited_for(tmp_path: Path) -> None:
    """What came while it did not read was recorded as frames, but not for what it means."""
    block = b'data: {"id":"x","choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n' % (b"y" * 900)

    def floods(peer: Peer) -> None:
        peer.asked()
        peer.send(STREAM)
        for _ in range(20_000):
            peer.send(chunk(block))

    with relayed(tmp_path, floods, "--stall", "abort", "--stall-after", "0.5") as running:
        with running.raw(model="m", stream=True):
            trace = latest(running, 1)
        frames, texts = trace.events("upstream", "frame"), trace.events("upstream", "semantic")
        # One of each whole block: not of the head, nor of a last one that had not come to its end.
        whole = [frame for frame in frames if isinstance(frame, Block) and frame.data.endswith(b"\n\n")]
        assert sum(isinstance(event, Content) for event in texts) == len(whole) > 10
        assert verdict(trace) == "same"


# --- requests --------------------------------------------------------------------------------------------------------


def test_trailers_are_no_headers(tmp_path: Path) -> None:
    """They come behind the body, where nobody who looked at the headers has seen them."""
    wire = b"POST /foo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
    with upstream(says(plain(b"{}"))) as server, proxied(tmp_path, server.url) as running:
        with connected(running, wire + b"3\r\nabc\r\n0\r\nx-late: 1\r\nauthorization: Bearer late\r\n\r\n") as client:
            assert received(client).status == 200
        assert server.asked[0].body == b"abc"
        assert [server.asked[0].header(name) for name in ("x-late", "authorization")] == [None, None]


def test_health_is_open_to_be_looked_at_only(tmp_path: Path) -> None:
    """Without a key nothing goes up, on no path."""
    (tmp_path / "keys").write_text("sk-ours\n")
    with (
        upstream(says(plain(b"{}"))) as server,
        proxied(tmp_path, server.url, "--api-key-file", str(tmp_path / "keys")) as running,
    ):
        assert running.http.get("/health").status_code == 200
        assert running.http.post("/health", json={}).status_code == 401
        assert [one for one in server.asked if one.method == "POST"] == []


def test_the_models_of_upstreams_that_are_all_away(tmp_path: Path) -> None:
    entries = [f'[[upstream]]\nname = "{name}"\nurl = "{refusing()}"\nmodels = ["*"]\n' for name in "ab"]
    (tmp_path / "u.toml").write_text("[defaults]\nretries = 0\n" + "".join(entries))
    with proxied(tmp_path, str(tmp_path / "u.toml")) as running:
        got = running.http.get("/v1/models")
        assert (got.status_code, got.json()["error"]["code"]) == (503, "upstream_refused")


def test_connections_that_the_upstream_was_just_closing(tmp_path: Path) -> None:
    """It ends each behind its answer, and does not say so. With many at a time some are met before that is seen; a
    request that is, is sent on a new one."""
    answer = breaks_off(STREAM + chunked(FIRST, DONE))

    def ask(running: Running) -> Got:
        return post(running.address, CHAT, BODY)

    with relayed(tmp_path, answer, "--retries", "0") as running, ThreadPoolExecutor(50) as threads:
        got = list(threads.map(ask, [running] * 400))
    assert {(one.status, one.body, one.whole) for one in got} == {(200, FIRST + DONE, True)}


# --- what an upstream tells of itself ---------------------------------------------------------------------------------


def _tells(pages: dict[str, bytes]) -> Answer:
    """Takes ``return_token_ids``, and says this of itself."""
    event = b'data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null,"token_ids":%s}]}\n\n'

    def answer(peer: Peer) -> None:
        while True:
            asked = peer.asked()
            if asked.method == "POST":
                ids = b"[1]" if b"return_token_ids" in asked.body else b"null"
                peer.send(STREAM + chunked(event % ids, DONE))
            else:
                peer.send(pages.get(asked.target, value({}, 404)))

    return answer


def test_half_characters_and_long_names(tmp_path: Path) -> None:
    """No store takes the one, and no session needs the other; the session is recorded."""
    pages = {
        "/v1/models": value({"data": [{"id": "\ud800", "root": "r" * 100_000, "owned_by": "vllm"}]}),
        "/version": value({"version": "\udfff"}),
        "/server_info": value({"model_path": "\ud800", "dtype": "\ud800", "quantization": "q" * 100_000}),
        "/props": value({"chat_template": "\ud800"}),
    }
    with relayed(tmp_path, _tells(pages), depth="auto") as running:
        assert post(running.address, CHAT, b'{"messages":[]}').whole
        engine = latest(running, 1).opening.engine
    assert (engine.kind, engine.model, engine.versions) == ("vllm", "", {})
    assert [*engine.arguments] == ["quantization"]
    assert len(engine.arguments["quantization"]) == 16


def test_an_upstream_names_no_code_of_ours(tmp_path: Path) -> None:
    """Its parser is looked up in the catalog; a module or a file of that name is not loaded."""
    loaded = tmp_path / "loaded"
    code = tmp_path / "evil.py"
    code.write_text(f"open({str(loaded)!r}, 'w').close()\n")
    pages = {"/server_info": value({"reasoning_parser": f"{code}:P", "tool_call_parser": "hermes"})}
    with relayed(tmp_path, _tells(pages), depth="auto") as running:
        post(running.address, CHAT, BODY)
        assert latest(running, 1).opening.parser == "hermes"
    assert not loaded.exists()


# --- strict -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "last",
    [
        DONE,
        b"data:[DONE]\r\n\r\n",
        b'event:message_stop\ndata: {"type":"message_stop"}\n\n',
        b'data: {"type":"response.completed","response":{}}\n\n',
        b"",
    ],
)
def test_a_strict_session_ends_when_it_is_stored(tmp_path: Path, last: bytes) -> None:
    """However it ends: with each way to write its last block, and without one."""
    go = threading.Event()

    def answer(peer: Peer) -> None:
        peer.asked()
        peer.send(STREAM + chunk(FIRST))
        assert go.wait(PATIENCE)
        peer.send((chunk(last) if last else b"") + b"0\r\n\r\n")
        peer.hold()

    closing = SESSION.replace(b"host: x", b"host: x\r\nconnection: close")
    with relayed(tmp_path, answer, "--durability", "strict") as running, ExitStack() as resources:
        client = resources.enter_context(connected(running, closing))
        read = b""
        while FIRST not in read:
            read += client.recv(4096)
        lock = sqlite3.connect(running.store, PATIENCE, isolation_level=None)
        lock.execute("begin immediate")
        go.set()
        client.settimeout(1.0)
        with pytest.raises(TimeoutError):
            client.recv(4096)
        lock.execute("rollback")
        lock.close()
        client.settimeout(PATIENCE)
        while data := client.recv(4096):
            read += data
        assert read.endswith((chunk(last) if last else b"") + b"0\r\n\r\n")
