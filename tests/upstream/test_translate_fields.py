"""A server of chat behind clients of messages that refuses fields, has limits, or goes on after a stop string."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from stages.events import FinishInput
from tests.support.captures import PATHS
from tests.support.proxies import Got, post, proxied
from tests.support.server import Running
from tests.support.upstreams import Peer, Server, chunk, plain, upstream

WORDS = [b"Two ", b"a day, ", b"says the ", b"almanac."]
HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\nx-ratelimit-limit: 9\r\n\r\n"
)


def event(value: Any) -> bytes:
    return chunk(b"data: " + json.dumps({"id": "c", "object": "chat.completion.chunk", **value}).encode() + b"\n\n")


def answer(peer: Peer) -> None:
    """A strict server of chat, which knows its official fields only."""
    body = peer.asked().json
    unknown = [name for name in ("top_k", "min_p") if name in body]
    if unknown:
        error = {"error": {"message": f"Unknown: {unknown[0]}", "type": "invalid_request_error", "param": unknown[0]}}
        peer.send(plain(json.dumps(error).encode(), 400))
    elif body["messages"][-1]["content"] == "too often":
        error = {"error": {"message": "Slow down.", "type": "requests", "code": "rate_limit_exceeded"}}
        peer.send(plain(json.dumps(error).encode(), 429, ("retry-after", "7"), ("x-ratelimit-limit", "9")))
    else:
        peer.send(HEAD)
        for word in WORDS:
            peer.send(event({"choices": [{"index": 0, "delta": {"content": word.decode()}}]}))
        if body["messages"][-1]["content"] == "go on":
            peer.hold()
            return
        peer.send(event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}))
        peer.send(event({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 4, "total_tokens": 9}}))
        peer.send(chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")


@pytest.fixture(scope="module")
def strict() -> Generator[Server]:
    with upstream(answer) as server:
        yield server


@pytest.fixture(scope="module")
def proxy(strict: Server, tmp_path_factory: pytest.TempPathFactory) -> Generator[Running]:
    folder = tmp_path_factory.mktemp("strict")
    with proxied(folder, strict.url, "--upstream-protocol", "chat") as running:
        yield running


def ask(proxy: Running, text: str = "When?", **fields: Any) -> Got:
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": text}], **fields}
    headers = {"x-api-key": "sk-client", "anthropic-version": "2023-06-01", "anthropic-beta": "b"}
    return post(proxy.address, PATHS["messages"], json.dumps(body).encode(), headers)


def test_what_a_server_refuses_it_is_not_asked_again(strict: Server, proxy: Running) -> None:
    begun = len(strict.asked)
    first, second = ask(proxy, top_k=3), ask(proxy, top_k=3)
    for got in (first, second):
        assert (got.status, json.loads(got.body)["content"]) == (
            200,
            [{"type": "text", "text": "Two a day, says the almanac."}],
        )
        facts = proxy.recorded(json.loads(got.body)["id"]).opening.upstream
        assert facts is not None
        assert facts.lost == ("top_k",)
    assert ["top_k" in asked.json for asked in strict.asked[begun:]] == [True, False, False]
    assert {asked.target for asked in strict.asked} == {PATHS["chat"]}


def test_the_upstream_gets_the_key_in_its_own_header(strict: Server, proxy: Running) -> None:
    ask(proxy)
    asked = strict.asked[-1]
    assert asked.header("authorization") == "Bearer sk-client"
    assert [asked.header(name) for name in ("x-api-key", "anthropic-version", "anthropic-beta")] == [None] * 3
    assert (asked.json["stream"], asked.json["stream_options"]) == (True, {"include_usage": True})


@pytest.mark.parametrize("stream", [True, False])
def test_limits_reach_the_client_and_no_record(proxy: Running, stream: bool) -> None:
    got = ask(proxy, "too often", stream=stream)
    assert (got.status, got.header("retry-after"), got.header("x-ratelimit-limit")) == (429, "7", "9")
    error = json.loads(got.body)
    assert error["type"] == "error"
    assert error["error"] == {"type": "rate_limit_error", "message": "Slow down."}
    assert ask(proxy, stream=stream).header("x-ratelimit-limit") == "9"


@pytest.mark.parametrize("stream", [True, False])
def test_a_stop_string_that_the_upstream_was_not_told_ends_the_answer(
    strict: Server, proxy: Running, stream: bool
) -> None:
    stops = ["one", "two", "three", "four", "says"]
    got = ask(proxy, "go on", stop_sequences=stops, stream=stream)
    assert "stop" not in strict.asked[-1].json
    assert strict.gone.acquire(timeout=20)
    if not stream:
        message = json.loads(got.body)
        assert (message["stop_reason"], message["stop_sequence"]) == ("stop_sequence", "says")
        assert message["content"] == [{"type": "text", "text": "Two a day, "}]
        assert message["usage"]["output_tokens"] == 3
        inputs = proxy.recorded(message["id"]).events("input", "engine")
        assert [event for event in inputs if isinstance(event, FinishInput)] == [FinishInput(0, "stop", "says")]
    else:
        assert b'"stop_sequence":"says"' in got.body


def test_tokens_are_counted_with_the_upstreams_tokenizer(strict: Server, tmp_path: Path) -> None:
    with proxied(tmp_path, strict.url, "--upstream-protocol", "chat", "--tokenizer", "smollm2") as running:
        body = {"model": "m", "messages": [{"role": "user", "content": "When is high tide?"}]}
        got = post(running.address, f"{PATHS['messages']}/count_tokens", json.dumps(body).encode())
        assert got.status == 200
        assert json.loads(got.body)["input_tokens"] > 5
