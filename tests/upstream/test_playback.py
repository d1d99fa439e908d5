"""The playback server itself: that what a test sees on the wire is the capture, and what its faults are."""

from __future__ import annotations

import json
import socket
from collections.abc import Generator
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.support.captures import PATHS, TWIN, Capture, captures, twin, without_ids
from tests.support.playback import Playback, playback
from tests.support.playback_answers import How
from tests.support.server import PATIENCE, eventually

PLAIN = "vllm_plain-plain"
PLAYED = [
    name
    for name, capture in captures().items()
    if capture.marked is None and not (capture.server.startswith("SGLang") and capture.request.get("return_token_ids"))
]


@pytest.fixture(scope="module")
def server() -> Generator[Playback]:
    with playback(PLAIN) as running:
        yield running


def sent(server: Playback, request: dict[str, Any], path: str = PATHS["chat"]) -> socket.socket:
    """A socket with a request on it."""
    where = urlsplit(server.address)
    assert where.hostname is not None
    client = socket.create_connection((where.hostname, where.port or 0), timeout=PATIENCE)
    body = json.dumps(request).encode()
    client.sendall(b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (path.encode(), len(body), body))
    return client


def answer(server: Playback, capture: Capture, **more: Any) -> bytes:
    """All that comes until the connection ends."""
    request = {**capture.request, **more}
    with sent(server, {key: value for key, value in request.items() if value is not None}) as client:
        return b"".join(iter(lambda: client.recv(1 << 16), b""))


def chunks(raw: bytes) -> tuple[list[bytes], bool]:
    """The HTTP chunks of a response, and whether the last says that it is."""
    rest = raw.partition(b"\r\n\r\n")[2]
    found: list[bytes] = []
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        if int(size, 16) == 0:
            return found, True
        found.append(rest[: int(size, 16)])
        rest = rest[int(size, 16) + 2 :]
    return found, False


@pytest.mark.parametrize("name", PLAYED)
def test_the_same_bytes_in_the_same_chunks(server: Playback, name: str) -> None:
    capture = captures()[name]
    server.play(capture)
    raw = answer(server, capture)
    assert raw.startswith(b"HTTP/1.1 %d " % capture.http.status)
    if capture.writes is None:
        assert raw.endswith(b"\r\n\r\n" + capture.data)
    else:
        assert chunks(raw) == (capture.chunks(), True)
    assert server.asked[-1].json == capture.request


def test_who_asks_for_no_ids_gets_none(server: Playback) -> None:
    for name in (PLAIN, "vllm_kimik2_norp-tool_single", "sglang_plain-plain", "sglang_kimik2-plain"):
        capture = captures()[name]
        server.play(capture)
        other = twin(name)
        want = without_ids(capture) if other is None else other.chunks()
        none = {"return_token_ids": None, "return_output_ids_in_sglext": None, "return_input_ids_in_sglext": None}
        assert chunks(answer(server, capture, **none)) == (want, True)


def test_servers_that_take_no_return_token_ids(server: Playback) -> None:
    server.play("sglang_plain-plain")
    refused = captures()["sglang_plain-rejected_return_token_ids"]
    assert answer(server, server.capture, return_token_ids=True).endswith(refused.data)
    server.play("transformers_smollm2-chat_plain")
    assert answer(server, server.capture, return_token_ids=True).startswith(b"HTTP/1.1 422 ")
    server.play(PLAIN, How(refuses_ids=True))
    assert answer(server, server.capture).startswith(b"HTTP/1.1 400 ")


def test_without_stream_it_is_the_whole_body(server: Playback) -> None:
    server.play(PLAIN)
    assert server.capture.whole is not None
    assert answer(server, server.capture, stream=None).endswith(b"\r\n\r\n" + server.capture.whole.encode())


def test_who_it_is(server: Playback) -> None:
    with httpx2.Client(base_url=server.address) as client:
        for name, paths in (
            (PLAIN, {"/version": {"version": "0.33.0"}}),
            ("sglang_plain-plain", {"/server_info": {"version": "0.5.23", "model_path": "Qwen/Qwen3-8B"}}),
            ("transformers_smollm2-chat_plain", {"/health": {"status": "ok"}}),
        ):
            server.play(name)
            for path, want in paths.items():
                assert client.get(path).json() == want
            assert client.get("/v1/models").json()["data"][0]["id"] == server.model
            assert client.get("/nothing").status_code == 404
        server.pages["/props"] = {"chat_template": "x"}
        assert client.get("/props").json() == {"chat_template": "x"}
    assert server.looked[0] == "/version"


def test_sglang_s_own_way(server: Playback) -> None:
    """All so far in each event; the end token is an id and no text."""
    server.play("sglang_qwen25-tool_multitoken_b")
    with sent(server, {"input_ids": [1, 2, 3], "stream": True}, "/generate") as client:
        found, _ = chunks(b"".join(iter(lambda: client.recv(1 << 16), b"")))
    *events, last = found
    values = [json.loads(event.removeprefix(b"data: ")) for event in events]
    assert last == b"data: [DONE]\n\n"
    assert values[0]["text"] == 'Sure. <tool_call>\n{"name": "'
    assert values[-1]["text"].endswith("</tool_call>")
    assert values[-1]["meta_info"]["finish_reason"] == {"type": "stop", "matched": 151645}
    assert values[-1]["meta_info"]["prompt_tokens"] == 3
    assert server.capture.engine is not None
    assert tuple(values[-1]["output_ids"]) == server.capture.engine.choices[0].ids
    steps = [len(value["output_ids"]) for value in values]
    assert steps == sorted(steps)


# --- faults ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [0, 1, 299, 300, 1000])
def test_a_cut(server: Playback, cut: int) -> None:
    server.play(PLAIN, How(cut=cut))
    found, whole = chunks(answer(server, server.capture))
    assert not whole
    assert b"".join(found) == server.capture.data[:cut]


def test_a_cut_that_resets(server: Playback) -> None:
    server.play(PLAIN, How(cut=1000, reset=True))
    with sent(server, server.capture.request) as client:
        raw = b""
        with pytest.raises(ConnectionResetError):
            while True:
                raw += client.recv(1 << 16)
    assert b"".join(chunks(raw)[0]) == server.capture.data[:1000]


def test_a_cut_at_the_very_end_has_no_last_chunk(server: Playback) -> None:
    server.play(PLAIN, How(cut=len(captures()[PLAIN].data)))
    assert chunks(answer(server, server.capture)) == (server.capture.chunks(), False)


@pytest.mark.parametrize("how", [How(stall=500), How(silent=True), How(pace=1000)])
def test_a_client_that_leaves_is_counted(server: Playback, how: How) -> None:
    server.play(PLAIN, how)
    before = server.left
    with sent(server, server.capture.request) as client:
        if how.stall is not None:
            raw = b""
            while len(raw.partition(b"\r\n\r\n")[2]) < 500:
                raw += client.recv(1 << 16)
    if not how.pace:
        assert eventually(lambda: server.left == before + 1 or None)


def test_other_bytes(server: Playback) -> None:
    capture = captures()[PLAIN]
    for how, want in (
        (How(newline=b"\r\n"), capture.data.replace(b"\n", b"\r\n")),
        (How(newline=b"\r"), capture.data.replace(b"\n", b"\r")),
        (How(bom=True), b"\xef\xbb\xbf" + capture.data),
        (How(size=7), capture.data),
    ):
        server.play(PLAIN, how)
        found, whole = chunks(answer(server, capture))
        assert (b"".join(found), whole) == (want, True)
        assert how.size is None or {len(chunk) for chunk in found[:-1]} == {7}
    raw = b"HTTP/1.1 502 Bad Gateway\r\ncontent-type: text/html\r\n\r\n<html>"
    server.play(PLAIN, How(instead=raw))
    assert answer(server, capture) == raw
    server.play(PLAIN, How(gone=True))
    assert answer(server, capture) == b""


def test_one_request_after_the_other(server: Playback) -> None:
    """On one connection, where it is kept; what is first in line comes first."""
    server.play(PLAIN, How(keep_alive=True))
    server.first(How(cut=0))
    before = server.connections
    assert chunks(answer(server, server.capture)) == ([], False)
    with httpx2.Client(base_url=server.address) as client:
        for _ in range(3):
            assert client.post(PATHS["chat"], json=server.capture.request).content == server.capture.data
    assert server.connections == before + 2


def test_names_of_twins_are_those_of_captures() -> None:
    assert all(name.removesuffix(TWIN) in captures() for name in captures() if "vllm" in name and name.endswith(TWIN))
