"""Several upstreams in one file: who gets which request, with whose key, and what is passed on unrecorded."""

from __future__ import annotations

import json
import socket
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.captures import PATHS, captures
from tests.support.playback import Playback, playback
from tests.support.playback_answers import How
from tests.support.proxies import Got, ended, post, proxied, session_of
from tests.support.server import PATIENCE, Running, eventually

CHAT = "vllm_plain-stop_string_multitoken"
CLIENTS = "sk-client-0123456789"
OURS = "sk-ours-9876543210"


class Both(NamedTuple):
    proxy: Running
    a: Playback
    b: Playback


@pytest.fixture
def both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Both]:
    monkeypatch.setenv("B_KEY", OURS)
    with ExitStack() as stack:
        a, b = (stack.enter_context(playback(CHAT)) for _ in range(2))
        settings = tmp_path / "upstreams.toml"
        settings.write_text(
            f"""
            [defaults]
            depth = "verbatim"
            retries = 0

            [[upstream]]
            name = "a"
            url = "{a.address}"
            models = ["small", "Qwen/*", "Both/*"]

            [[upstream]]
            name = "b"
            url = "{b.address}/v1"
            models = ["large", "Both/*", "*"]
            key_env = "B_KEY"
            """
        )
        yield Both(stack.enter_context(proxied(tmp_path, str(settings))), a, b)


def ask(both: Both, model: str) -> Got:
    body = json.dumps({**captures()[CHAT].request, "model": model}).encode()
    return post(both.proxy.address, PATHS["chat"], body, {"authorization": f"Bearer {CLIENTS}"})


@pytest.mark.parametrize(("model", "who"), [("small", "a"), ("Qwen/Qwen3-8B", "a"), ("large", "b"), ("other", "b")])
def test_by_name_or_pattern(both: Both, model: str, who: str) -> None:
    got = ask(both, model)
    assert got.body == captures()[CHAT].data
    asked = {"a": both.a, "b": both.b}[who].asked
    assert [one.json["model"] for one in asked] == [model]
    assert asked[0].header("authorization") == f"Bearer {CLIENTS if who == 'a' else OURS}"
    trace = session_of(both.proxy, got)
    assert trace.opening.upstream is not None
    assert (trace.opening.upstream.name, trace.info.upstream) == (who, who)
    kept = both.proxy.store.read_bytes() + both.proxy.log.read_bytes()
    assert CLIENTS.encode() not in kept
    assert OURS.encode() not in kept


def test_the_next_one_before_the_first_byte(both: Both) -> None:
    """One that is away is passed over; after the first byte nobody else is asked."""
    both.a.first(How(gone=True))
    got = ask(both, "Both/x")
    assert (got.status, got.body) == (200, captures()[CHAT].data)
    assert len(both.b.asked) == 1
    trace = session_of(both.proxy, got)
    assert trace.opening.upstream is not None
    assert trace.opening.upstream.name == "b"
    # It is known to be down: the other one is asked first.
    both.b.first(How(cut=400))
    got = ask(both, "Both/x")
    assert b"upstream_cut" in got.body
    assert (len(both.a.asked), len(both.b.asked)) == (1, 2)


def test_who_serves_all_is_no_stand_in_for_who_serves_one(both: Both) -> None:
    """What is meant for one server does not go to another because that one is away."""
    both.a.first(How(gone=True))
    assert ask(both, "Qwen/Qwen3-8B").status == 502
    assert both.b.asked == []


def test_models_and_health(both: Both) -> None:
    both.a.pages["/v1/models"] = {"object": "list", "data": [{"id": "small", "object": "model"}]}
    both.b.pages["/v1/models"] = {"object": "list", "data": [{"id": "large", "object": "model"}]}
    listed = both.proxy.http.get("/v1/models").json()
    assert [model["id"] for model in listed["data"]] == ["small", "large"]
    assert both.proxy.http.get("/health").json()["upstreams"].keys() == {"a", "b"}


def test_what_is_no_session_passes(both: Both) -> None:
    """Any method, path, query and body; nothing of it is recorded."""
    both.a.pages["/v1/files"] = {"files": ["x"]}
    got = post(both.proxy.address, "/v1/files?after=1", b"", method="GET")
    assert (got.status, json.loads(got.body)) == (200, {"files": ["x"]})
    assert "/v1/files?after=1" in both.a.looked
    got = post(both.proxy.address, "/v1/embeddings?x=%20y", b'{"input": "tide"}')
    assert both.a.asked[-1].path == "/v1/embeddings?x=%20y"
    assert both.a.asked[-1].body == b'{"input": "tide"}'
    assert ended(both.proxy) == 0


def test_an_upload_that_breaks_off_is_not_taken_for_whole(both: Both) -> None:
    """The upstream sees a broken request, never a shorter one."""
    host, _, port = both.proxy.address.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), PATIENCE) as client:
        client.sendall(b"POST /v1/files HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n4\r\ntide\r\n")
        eventually(lambda: True if both.a.connections else None)
    eventually(lambda: True if both.a.left else None)
    assert both.a.asked == []
