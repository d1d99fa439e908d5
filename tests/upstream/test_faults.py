"""What goes wrong upstream reaches the client as its protocol's error, is recorded, and is counted."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from stages.events import ErrorInput
from tests.support.captures import PATHS, captures
from tests.support.playback import Playback, playback
from tests.support.playback_answers import How
from tests.support.proxies import Got, all_of, bytes_of, latest, post, proxied, session_of
from tests.support.server import Running, eventually
from tests.support.upstreams import refusing

CHAT = "vllm_plain-stop_string_multitoken"
MESSAGES = "vllm_plain-messages_plain"


@pytest.fixture(scope="module")
def upstream() -> Generator[Playback]:
    with playback(CHAT) as running:
        yield running


@pytest.fixture(scope="module")
def proxy(upstream: Playback, tmp_path_factory: pytest.TempPathFactory) -> Generator[Running]:
    limits = ("--connect-timeout", "2", "--first-token-timeout", "3", "--token-timeout", "2", "--retries", "0")
    folder = tmp_path_factory.mktemp("faults")
    with proxied(folder, upstream.address, "--depth", "verbatim", *limits) as running:
        yield running


def ask(running: Running, name: str = CHAT) -> Got:
    capture = captures()[name]
    return post(running.address, PATHS[capture.protocol], json.dumps(capture.request).encode())


def blocks(body: bytes) -> list[bytes]:
    """A body's blocks; it ends with a whole one."""
    *found, rest = body.split(b"\n\n")
    assert rest == b""
    return [block + b"\n\n" for block in found]


def error_of(block: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(block.rpartition(b"data: ")[2])["error"]
    return found


def last_input(running: Running, got: Got) -> Any:
    return session_of(running, got).events("input", "engine")[-1]


@pytest.mark.slow
def test_a_cut_at_every_byte(upstream: Playback, proxy: Running) -> None:
    """Whole blocks are passed on, the broken one is not; then the error, and the end of the stream. The record has
    every byte that came, and what happened."""
    whole = captures()[CHAT].data
    sent: list[Got] = []
    for cut in range(len(whole)):
        upstream.first(How(cut=cut, size=97))
        got = ask(proxy)
        # The head came, and went on at once.
        assert got.status == 200
        kept, end, _ = whole[:cut].rpartition(b"\n\n")
        error, done = blocks(got.body.removeprefix(kept + end))
        assert error_of(error)["code"] == "upstream_cut"
        assert done == b"data: [DONE]\n\n"
        sent.append(got)
    found = {trace.opening.session: trace for trace in all_of(proxy, len(whole))}
    for cut, got in enumerate(sent):
        trace = found[got.header("x-playhead-session") or ""]
        assert bytes_of(trace, "upstream") == whole[:cut]
        assert bytes_of(trace, "served") == got.body
        assert trace.events("input", "engine")[-1].code == "upstream_cut"


def test_the_sdks_raise(upstream: Playback, proxy: Running) -> None:
    """The official clients tell of a cut as an error, not as an end."""
    upstream.first(How(cut=700))
    with pytest.raises(openai.APIError, match="closed the connection"):
        for _ in proxy.create(proxy.client(), stream=True):
            pass
    upstream.first(How(cut=700), MESSAGES)
    client = anthropic.Anthropic(base_url=proxy.address, api_key="sk-none", max_retries=0)
    with (
        pytest.raises(anthropic.APIStatusError, match="closed the connection"),
        client.messages.stream(model="m", max_tokens=9, messages=[{"role": "user", "content": "x"}]) as stream,
    ):
        for _ in stream:
            pass


@pytest.mark.parametrize(
    ("how", "status", "code"),
    [
        (How(gone=True), 502, "upstream_cut"),
        (How(silent=True), 504, "upstream_first_token_timeout"),
        (How(instead=b"SSH-2.0-OpenSSH_9.2\r\n"), 502, "upstream_protocol"),
    ],
)
def test_before_the_first_byte(upstream: Playback, proxy: Running, how: How, status: int, code: str) -> None:
    upstream.first(how)
    got = ask(proxy)
    assert (got.status, got.header("content-type")) == (status, "application/json")
    assert json.loads(got.body)["error"]["code"] == code
    told = last_input(proxy, got)
    assert told == ErrorInput(told.kind, json.loads(got.body)["error"]["message"], code)


def test_silence_in_the_middle(upstream: Playback, proxy: Running) -> None:
    whole = captures()[CHAT].data
    first = whole.index(b"\n\n") + 2
    upstream.first(How(stall=first))
    left = upstream.left
    got = ask(proxy)
    error, done = blocks(got.body[first:])
    assert error_of(error)["code"] == "upstream_token_timeout"
    assert done == b"data: [DONE]\n\n"
    eventually(lambda: upstream.left > left or None)


@pytest.mark.parametrize(
    "page",
    [
        b"HTTP/1.1 502 Bad Gateway\r\ncontent-type: text/html\r\ncontent-length: 24\r\n\r\n<html>Bad Gateway</html>",
        b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 502 Bad Gateway\r\ncontent-type: text/plain\r\ncontent-length: 4\r\n\r\noops",
    ],
)
@pytest.mark.parametrize("name", [CHAT, MESSAGES])
def test_a_page_of_a_gateway(upstream: Playback, proxy: Running, page: bytes, name: str) -> None:
    """The protocol's error with the same status, and not a word of the page; the record has the page."""
    upstream.first(How(instead=page), name)
    got = ask(proxy, name)
    assert (got.status, got.header("content-type")) == (502, "application/json")
    value = json.loads(got.body)
    assert "502" in value["error"]["message"]
    assert (value.get("type") == "error") == (name == MESSAGES)
    assert b"Gateway</html>" not in got.body
    trace = session_of(proxy, got)
    assert bytes_of(trace, "upstream") == page.partition(b"\r\n\r\n")[2]


def test_nobody_listens(tmp_path: Path) -> None:
    with proxied(tmp_path, refusing(), "--retries", "1") as running:
        got = ask(running)
        assert (got.status, json.loads(got.body)["error"]["code"]) == (503, "upstream_refused")
        with pytest.raises(openai.InternalServerError, match="refused the connection"):
            running.create(running.client())
        assert running.http.get("/health").status_code == 503
        assert latest(running, 2).info.error is not None


def test_what_fails_is_counted(upstream: Playback, proxy: Running) -> None:
    upstream.first(How(gone=True))
    ask(proxy)
    said = proxy.http.get("/metrics").text
    assert 'outcome="upstream_cut"' in said


def test_a_client_that_leaves_closes_the_upstream(upstream: Playback, proxy: Running) -> None:
    left = upstream.left
    first = captures()[CHAT].data.index(b"\n\n") + 2
    # Within the limit of this proxy, so that it is the client that ends it.
    upstream.first(How(stall=first))
    with proxy.stream() as wire:
        wire.until(b"\n\n")
        session = wire.response.headers["x-playhead-session"]
    trace = proxy.recorded(f"chatcmpl-{session}")
    assert trace.info.state == "aborted"
    assert trace.events("input", "engine")[-1].by == "client"
    eventually(lambda: upstream.left > left or None)
