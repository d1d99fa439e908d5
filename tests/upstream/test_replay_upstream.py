"""Replaying what a real proxy recorded of a server that loses a part of its model's output."""

from __future__ import annotations

import json
import socket
from collections.abc import Generator
from pathlib import Path

import pytest

from replay import RunReport, SessionResult, run_replay
from replay.evidence import evidence_of
from stages.protocols.rules import check
from store.api import Trace
from tests.support.captures import PATHS, captures
from tests.support.playback import Playback, playback
from tests.support.playback_answers import How
from tests.support.proxies import ended, latest, post, proxied
from tests.support.server import IDLE_PATIENCE, Running, eventually
from tests.support.vocabularies import tokenizer_folder

USED = ("qwen3", "dsv31", "llama31", "kimik2")
"""Vocabularies. The format of each is found in its chat template."""
LOST = [
    ("vllm_dsv31-tool_multitoken", 6, "call_arguments"),
    ("vllm_dsv31-tool_multitoken_b", 11, "call_lost"),
    ("vllm_llama3_json-json_content_not_tool", 2, "text"),
    ("vllm_hermes-marker_as_text_tools", 6, "text"),
    ("vllm_hermes-tool_then_content", 29, "text"),
    ("vllm_hermes-tool_parameters_key", 14, "call_arguments"),
    ("vllm_kimik2-plain", 2, "boundary"),
]
"""Capture, frame (the head is 0) and kind of what was lost."""
KEPT = ["vllm_hermes-tool_no_newlines", "vllm_hermes-tool_single_delta", "vllm_llama3_json-tool_single"]


@pytest.fixture(scope="module")
def upstream() -> Generator[Playback]:
    with playback("vllm_plain-plain") as running:
        yield running


@pytest.fixture(scope="module")
def proxy(upstream: Playback, tmp_path_factory: pytest.TempPathFactory) -> Generator[Running]:
    """An upstream for each vocabulary; its name is the model's."""
    folder = tmp_path_factory.mktemp("replayed")
    tables = [
        f'[[upstream]]\nname = "{name}"\nurl = "{upstream.address}"\nmodels = ["{name}"]\n'
        f'tokenizer = "{tokenizer_folder(name, folder / name)}"\n'
        for name in USED
    ]
    (folder / "upstreams.toml").write_text("\n".join(tables))
    with proxied(folder, str(folder / "upstreams.toml")) as running:
        yield running


def session(upstream: Playback, proxy: Running, name: str, how: How = How()) -> Trace:  # noqa: B008  # it is frozen
    """What is recorded of a client that asks for what the capture answers, but for no ids."""
    capture = captures()[name]
    assert capture.script is not None
    upstream.play(capture, how)
    request = {key: value for key, value in capture.request.items() if key != "return_token_ids"}
    before = ended(proxy)
    post(proxy.address, PATHS["chat"], json.dumps({**request, "model": capture.script.vocabulary}).encode())
    return latest(proxy, before + 1)


def replayed(proxy: Running, trace: Trace) -> SessionResult:
    report: RunReport = run_replay([str(proxy.store)], sessions=[trace.info.session])
    [result] = report.sessions
    return result


@pytest.mark.parametrize(("name", "frame", "kind"), LOST)
def test_what_the_upstream_lost_is_named(upstream: Playback, proxy: Running, name: str, frame: int, kind: str) -> None:
    result = replayed(proxy, session(upstream, proxy, name))
    assert result.layers == {"message": "changed", "upstream": "same", "relay": "same"}
    assert (kind, frame) in {(item.kind, item.frame) for item in result.differences}
    # Every stage is the one that served.
    assert result.stages == {}


@pytest.mark.parametrize("name", KEPT)
def test_what_the_upstream_kept_is_the_same(upstream: Playback, proxy: Running, name: str) -> None:
    result = replayed(proxy, session(upstream, proxy, name))
    assert (result.verdict, result.layers) == ("same", {"message": "same", "upstream": "same", "relay": "same"})


@pytest.mark.parametrize("cut", [0, 1, 200, 400, 900, 2000])
def test_an_answer_that_was_cut_is_made_again(upstream: Playback, proxy: Running, cut: int) -> None:
    trace = session(upstream, proxy, "vllm_hermes-marker_as_text_tools", How(cut=cut))
    result = replayed(proxy, trace)
    assert set(result.layers.values()) <= {"same", "restyled"}
    assert check(evidence_of(trace, effort=True)).errors == ()


def test_a_client_that_left(upstream: Playback, proxy: Running) -> None:
    """The upstream goes on to wait; its answer is closed, and what came of it is made again."""
    capture = captures()["vllm_hermes-marker_as_text_tools"]
    upstream.play(capture, How(stall=4000))
    body = json.dumps({**capture.request, "model": "qwen3"}).encode()
    before = ended(proxy)
    host, _, port = proxy.address.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port))) as client:
        head = f"POST {PATHS['chat']} HTTP/1.1\r\nhost: {host}\r\ncontent-length: {len(body)}\r\n\r\n"
        client.sendall(head.encode() + body)
        received = b""
        while b"data: " not in received:
            received += client.recv(4096)
    trace = latest(proxy, before + 1)
    assert trace.info.state == "aborted"
    result = replayed(proxy, trace)
    assert (result.layers["upstream"], result.layers["relay"]) == ("same", "same")
    assert result.verdict in ("same", "restyled")
    assert check(evidence_of(trace, effort=True)).errors == ()


def test_a_shadow_that_the_proxy_ran_is_the_same_again(upstream: Playback, proxy: Running) -> None:
    trace = session(upstream, proxy, "vllm_hermes-tool_then_content")

    def noted() -> dict[str, str] | None:
        [info] = [info for info in proxy.sessions() if info.session == trace.info.session]
        return dict(info.shadows) or None

    # The parser of the record looks at every relayed session beside it.
    [(name, verdict)] = eventually(noted, IDLE_PATIENCE).items()
    assert (name, verdict) == (trace.opening.parser, "changed")
    report = run_replay([str(proxy.store)], track=f"shadow:{name}", sessions=[trace.info.session])
    assert [(one.verdict, one.layers["message"]) for one in report.sessions] == [("same", "same")]


def test_a_lean_store(upstream: Playback, tmp_path: Path) -> None:
    capture = captures()["vllm_hermes-tool_then_content"]
    folder = tokenizer_folder("qwen3", tmp_path / "qwen3")
    with proxied(tmp_path, upstream.address, "--tokenizer", str(folder), "--record", "lean") as running:
        trace = session(upstream, running, capture.name)
        assert ("served", "frame") not in trace.records
        result = replayed(running, trace)
    assert (result.layers["upstream"], result.layers["relay"]) == ("same", "same")
    assert [(item.kind, item.frame) for item in result.differences] == [("text", 29)]


def test_a_parsed_session(upstream: Playback, tmp_path: Path) -> None:
    """Our stages made the response, so every layer is ours; what the upstream made of it is decoded again."""
    folder = tokenizer_folder("qwen3", tmp_path / "qwen3")
    options = ("--tokenizer", str(folder), "--parser", "hermes")
    with proxied(tmp_path, upstream.address, *options) as running:
        trace = session(upstream, running, "vllm_hermes-tool_then_content")
        assert trace.opening.upstream is not None
        assert not trace.opening.upstream.relayed
        result = replayed(running, trace)
        [against] = run_replay([str(running.store)], track="upstream").sessions
    assert result.verdict == "same"
    assert set(result.layers) == {"message", "semantic", "chunk", "frame", "upstream"}
    assert result.stages == {}
    assert [(item.kind, item.frame) for item in against.differences] == [("text", 29)]
