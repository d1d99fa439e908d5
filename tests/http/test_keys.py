"""API keys: several, in the ways that clients send them; who has none gets the protocol's error."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from pipeline.http.auth import BadKeys, keys_in
from stages.catalog import PROTOCOLS
from tests.support.sdks import claude
from tests.support.server import MESSAGES, Running, serve
from tests.support.tree import ROOT

KEYS = ("sk-first-0001", "sk-second-0002", "sk-third-0003")


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Two keys in its file, one in its environment."""
    folder = tmp_path_factory.mktemp("locked")
    (folder / "keys").write_text(f"# people\n{KEYS[0]}\n\n  {KEYS[1]}  \n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLAYHEAD_API_KEYS", f" {KEYS[2]} ,")
        with serve(folder, "--api-key-file", str(folder / "keys"), "--allow-origin", "https://a.example") as running:
            yield running


def _ask(server: Running, headers: dict[str, str], path: str = "/v1/chat/completions") -> httpx2.Response:
    return server.http.post(path, json={"messages": MESSAGES}, headers=headers)


@pytest.mark.parametrize("key", KEYS)
def test_every_key_is_taken_in_both_headers(locked: Running, key: str) -> None:
    for headers in ({"authorization": f"Bearer {key}"}, {"authorization": f"bearer  {key}"}, {"x-api-key": key}):
        assert _ask(locked, headers).status_code == 200
    client = openai.OpenAI(base_url=f"{locked.address}/v1", api_key=key, max_retries=0)
    with client:
        assert client.models.list().data[0].id == locked.model


WRONG: list[dict[str, str]] = [
    {},
    {"authorization": ""},
    {"authorization": "Bearer"},
    {"authorization": f"Basic {KEYS[0]}"},
    {"authorization": KEYS[0]},
    {"authorization": f"Bearer {KEYS[0]}x"},
    {"authorization": f"Bearer {KEYS[0][:-1]}"},
    {"authorization": f"Bearer {KEYS[0]} {KEYS[1]}"},
    {"authorization": "Bearer nobody", "x-api-key": KEYS[0]},
    {"authorization": "Bearer # people"},
    {"x-api-key": ""},
]


@pytest.mark.parametrize("headers", WRONG, ids=json.dumps)
def test_others_get_the_protocols_error(locked: Running, headers: dict[str, str]) -> None:
    refused = _ask(locked, headers)
    assert refused.status_code == 401
    assert refused.headers["content-type"] == "application/json"
    assert (refused.headers["www-authenticate"], refused.headers["x-should-retry"]) == ("Bearer", "false")
    error = refused.json()["error"]
    assert (error["type"], error["code"], error["param"]) == ("invalid_request_error", "invalid_api_key", None)
    assert not any(key in refused.text for key in KEYS)


def test_others_get_the_error_of_messages(locked: Running) -> None:
    for path in ("/v1/messages", "/v1/messages/count_tokens"):
        refused = _ask(locked, {"x-api-key": "nobody"}, path)
        assert (refused.status_code, refused.headers["x-should-retry"]) == (401, "false")
        told = refused.json()
        assert (told["type"], told["error"]["type"]) == ("error", "authentication_error")
        assert "API key" in told["error"]["message"]


def test_the_sdk_says_so(locked: Running) -> None:
    with locked.client() as client, pytest.raises(openai.AuthenticationError):
        locked.create(client)
    with claude(locked) as client, pytest.raises(anthropic.AuthenticationError):
        client.messages.count_tokens(model=locked.model, messages=MESSAGES)


@pytest.mark.parametrize(
    "path", ["/v1/models", "/openapi.json", "/nothing", *(entry.path for entry in PROTOCOLS.values())]
)
def test_only_health_is_open(locked: Running, path: str) -> None:
    assert locked.http.get(path).status_code == 401
    assert locked.http.get("/health").status_code == 200


def test_a_browser_of_an_allowed_origin_may_ask(locked: Running) -> None:
    asks = {"origin": "https://a.example", "access-control-request-method": "POST"}
    assert locked.http.options("/v1/chat/completions", headers=asks).status_code == 200
    refused = locked.http.options("/v1/chat/completions", headers={**asks, "origin": "https://b.example"})
    assert refused.status_code == 400
    answered = _ask(locked, {"authorization": f"Bearer {KEYS[0]}", "origin": "https://a.example"})
    assert answered.headers["access-control-allow-origin"] == "https://a.example"
    assert answered.headers["access-control-expose-headers"] == "x-request-id"


def test_no_key_is_in_the_log_or_the_store(locked: Running) -> None:
    for key in KEYS:
        _ask(locked, {"authorization": f"Bearer {key}"})
    _ask(locked, {"authorization": "Bearer sk-stray-9999"})
    kept = locked.log.read_bytes() + locked.said.encode()
    kept += b"".join(path.read_bytes() for path in locked.store.parent.glob("playhead.db*"))
    assert not [key for key in (*KEYS, "sk-stray-9999") if key.encode() in kept]


# --- what the command line refuses ----------------------------------------------------------------------------------


def _start(*options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pipeline.cli", "serve", "--engine", "scripted", "--record", "off", *options]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False
    )  # fmt: skip


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.invalid"])
def test_an_open_address_needs_keys(host: str) -> None:
    done = _start("--host", host)
    assert done.returncode == 2
    for word in (host, "--api-key-file", "PLAYHEAD_API_KEYS", "--no-api-key"):
        assert word in done.stderr.replace("\n", " ")


@pytest.mark.parametrize("options", [("--no-api-key",), ()], ids=["told to answer everybody", "with a key"])
def test_an_open_address_can_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]) -> None:
    monkeypatch.setenv("PLAYHEAD_API_KEYS", "" if options else KEYS[0])
    with serve(tmp_path, "--host", "0.0.0.0", *options) as running:
        asked = running.http.get("/v1/models")
    assert asked.status_code == (200 if options else 401)


def test_contradictions_and_bad_keys_are_named(tmp_path: Path) -> None:
    assert "--no-api-key" in _start("--no-api-key", PLAYHEAD_API_KEYS="a").stderr
    bad: dict[str, Any] = {"empty": "# none\n", "blank inside": "a b\n", "not ascii": "clé\n"}
    for name, text in bad.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        with pytest.raises(BadKeys, match=name) as caught:
            keys_in(str(tmp_path / name), None)
        assert "clé" not in str(caught.value)
    (tmp_path / "latin").write_bytes(b"\xff\n")
    with pytest.raises(BadKeys, match="cannot be read"):
        keys_in(str(tmp_path / "latin"), None)
    assert keys_in(None, None) == keys_in(None, " , ") == ()
    assert len(keys_in(None, "a,b,a")) == 2
