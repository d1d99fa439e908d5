"""Other servers' tokens, and a response that our stages make of them."""

from __future__ import annotations

import json
import socket
from collections.abc import Generator
from typing import Any

import pytest

from stages.events import TokensInput
from store.api import Trace
from tests.support.captures import PATHS, Capture, captures
from tests.support.playback import Playback, playback
from tests.support.playback_answers import How
from tests.support.proxies import post, proxied, session_of
from tests.support.server import PATIENCE, Running, eventually, replayed
from tests.support.validated import assert_clean
from tests.support.vocabularies import tokenizer_folder

NAMES = sorted(
    name
    for name, capture in captures().items()
    if capture.server.startswith("vLLM")
    and capture.protocol == "chat"
    and capture.parser is not None
    and capture.request.get("return_token_ids")
    and capture.request.get("include_reasoning") is not False
    and capture.marked is None
    # What the model wrote there is no question of the format.
    and capture.script is not None
    and None not in capture.script.wrote
)
NO_ARGUMENTS = {
    "vllm_hermes-tool_malformed_json",
    "vllm_hermes-tool_truncated_args",
    "vllm_qwen3_hermes-tool_stop_string",
}
"""Whose arguments are no JSON: what is told of them is a beginning."""


def model(capture: Capture) -> str:
    assert capture.script is not None
    return f"{capture.script.vocabulary}/{capture.parser}"


@pytest.fixture(scope="module")
def upstream() -> Generator[Playback]:
    with playback(NAMES[0]) as running:
        yield running


@pytest.fixture(scope="module")
def proxy(upstream: Playback, tmp_path_factory: pytest.TempPathFactory) -> Generator[Running]:
    """An upstream for each vocabulary and format."""
    folder = tmp_path_factory.mktemp("parsed")
    tables: dict[str, str] = {}
    for name in NAMES:
        capture = captures()[name]
        assert capture.script is not None
        where = folder / capture.script.vocabulary
        if not where.exists():
            tokenizer_folder(capture.script.vocabulary, where)
        tables[model(capture)] = (
            f'[[upstream]]\nname = "{model(capture)}"\nurl = "{upstream.address}"\nmodels = ["{model(capture)}"]\n'
            f'tokenizer = "{where}"\nparser = "{capture.parser}"\n'
        )
    (folder / "upstreams.toml").write_text("\n".join(tables.values()))
    with proxied(folder, str(folder / "upstreams.toml")) as running:
        for name in tables:
            upstream.play("vllm_plain-plain")
            asked = {"model": name, "messages": [{"role": "user", "content": "x"}]}
            session_of(running, post(running.address, PATHS["chat"], json.dumps(asked).encode()))
        yield running
    # What our stages made keeps the rules, but for those that the model broke, and replays the same.
    assert_clean(running.store, {"INV-032", "INV-036", "INV-037", "INV-038", "INV-055"})
    assert {result.session: result.verdict for result in replayed(running.store) if result.verdict != "same"} == {}


def relayed(trace: Trace) -> bool:
    assert trace.opening.upstream is not None
    return trace.opening.upstream.relayed


def request(capture: Capture, **fields: Any) -> bytes:
    kept = {
        key: value
        for key, value in capture.request.items()
        if key not in ("return_token_ids", "stream", "stream_options")
    }
    return json.dumps({**kept, "model": model(capture), **fields}).encode()


@pytest.mark.parametrize("name", NAMES)
def test_our_message(upstream: Playback, proxy: Running, name: str) -> None:
    """Streamed and whole, the client gets what the model wrote, where the upstream's own parser lost some of it too."""
    capture = captures()[name]
    assert capture.script is not None
    upstream.play(name)
    whole = post(proxy.address, PATHS["chat"], request(capture))
    assert whole.status == 200
    messages = [choice["message"] for choice in json.loads(whole.body)["choices"]]
    one_call = capture.request.get("parallel_tool_calls") is False
    for wrote, message in zip(capture.script.wrote, messages, strict=True):
        assert wrote is not None
        calls = [(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls") or ()]
        assert (message["content"] or "").strip() == (wrote.content or "").strip()
        assert (message.get("reasoning") or "").strip() == (wrote.reasoning or "").strip()
        wanted = wrote.calls[:1] if one_call else wrote.calls
        if name in NO_ARGUMENTS:
            assert [called for called, _ in calls] == [called for called, _ in wanted]
        else:
            assert [(called, json.loads(args)) for called, args in calls] == [(c, json.loads(a)) for c, a in wanted]
    streamed = post(proxy.address, PATHS["chat"], request(capture, stream=True))
    assert streamed.body.endswith(b"data: [DONE]\n\n")
    assert b"token_ids" not in streamed.body
    trace = session_of(proxy, streamed)
    facts = trace.opening.upstream
    assert facts is not None
    assert (facts.depth, facts.relayed, facts.path) == ("tokens", False, "/v1/chat/completions")
    assert trace.events("upstream", "semantic")
    # Whatever the client asked, the upstream is asked for a stream with ids.
    assert [one.json["return_token_ids"] for one in upstream.asked[-2:]] == [True, True]
    assert [one.json["stream"] for one in upstream.asked[-2:]] == [True, True]


def test_each_step_names_its_frame(upstream: Playback, proxy: Running) -> None:
    capture = captures()["vllm_qwen3_hermes-tool_multitoken"]
    upstream.play(capture)
    got = post(proxy.address, PATHS["chat"], request(capture, stream=True))
    trace = session_of(proxy, got)
    frames = trace.events("upstream", "frame")
    steps = [record for record in trace.records["input", "engine"] if isinstance(record.event, TokensInput)]
    assert len(steps) > 10
    for record in steps:
        told = json.loads(frames[record.cause].data.removeprefix(b"data: "))["choices"][0]["token_ids"]
        assert tuple(told) == record.event.ids


def test_what_fails_upstream_is_the_clients_error(upstream: Playback, proxy: Running) -> None:
    capture = captures()["vllm_qwen3_hermes-tool_multitoken"]
    upstream.first(How(cut=len(capture.data) // 2), capture)
    got = post(proxy.address, PATHS["chat"], request(capture, stream=True))
    assert b'"upstream_cut"' in got.body
    assert got.body.endswith(b"data: [DONE]\n\n")
    for _ in range(3):
        # As often as it is asked again.
        upstream.first(How(gone=True), capture)
    got = post(proxy.address, PATHS["chat"], request(capture))
    assert (got.status, json.loads(got.body)["error"]["code"]) == (500, "upstream_cut")
    assert not relayed(session_of(proxy, got))
    # And once it is back our stages make the response again.
    upstream.play("vllm_plain-plain")
    got = post(proxy.address, PATHS["chat"], request(capture))
    assert got.status == 200
    assert not relayed(session_of(proxy, got))


def test_a_request_that_we_cannot_serve(proxy: Running) -> None:
    """Our stages make the response, so it is ours to refuse."""
    capture = captures()["vllm_qwen3_hermes-tool_multitoken"]
    got = post(proxy.address, PATHS["chat"], request(capture, temperature="warm"))
    assert (got.status, json.loads(got.body)["error"]["param"]) == (400, "temperature")


def test_a_stop_string_that_only_we_look_for(upstream: Playback, proxy: Running) -> None:
    """In a scope that the upstream knows nothing of: the choice ends on the step that completes it, and the upstream is
    not read any further."""
    capture = captures()["vllm_qwen3_hermes-reasoning_multitoken"]
    first = capture.data.index(b"capital is")
    upstream.play(capture, How(stall=capture.data.index(b"\n\n", first) + 2))
    left = upstream.left
    body = request(capture, stream=True, stop=["The capital"], stop_scopes=["content"], include_reasoning=True)
    got = post(proxy.address, PATHS["chat"], body)
    chunks = [json.loads(block[6:]) for block in got.body.split(b"\n\n") if block.startswith(b"data: {")]
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    assert "".join(choice["delta"].get("content") or "" for choice in choices).strip() == ""
    assert choices[-1]["finish_reason"] == "stop"
    assert got.body.endswith(b"data: [DONE]\n\n")
    inputs = session_of(proxy, got).events("input", "engine")
    assert (inputs[-2].reason, inputs[-2].stop) == ("stop", "The capital")
    assert inputs[-1].completion == sum(len(event.ids) for event in inputs if isinstance(event, TokensInput))
    assert "stop" not in upstream.asked[-1].json
    eventually(lambda: True if upstream.left > left else None)


def test_a_comment_while_the_upstream_is_silent(upstream: Playback, proxy: Running) -> None:
    """Our stages make the response, so it is never silent for longer than was promised, before its head as well."""
    capture = captures()["vllm_qwen3_hermes-reasoning_multitoken"]
    upstream.play(capture, How(silent=True))
    body = request(capture, stream=True, stream_options={"keep_alive": 0.2})
    host, _, port = proxy.address.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), PATIENCE) as client:
        head = f"POST {PATHS['chat']} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        client.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        came = b""
        while came.count(b": keep-alive") < 3:
            came += client.recv(1 << 16)
    assert came.startswith(b"HTTP/1.1 200")
