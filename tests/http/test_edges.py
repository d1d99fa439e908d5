"""The other paths, and every way in which a request does not become a session."""

from __future__ import annotations

import json
from threading import get_ident
from typing import Any

import httpx2
import pytest

from pipeline.engines.scripted import ScriptedEngine
from pipeline.http.incoming import LARGE, understood
from stages import catalog
from stages.protocols import openai_responses
from store import MemoryStore
from tests.support.asgi import WORDS, Exchange, chat, serving
from tests.support.server import Running

ERROR_KEYS = {"message", "type", "param", "code"}


def error_of(response: httpx2.Response) -> dict[str, object]:
    """The protocol's error object, which is all of the body."""
    body = response.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == ERROR_KEYS
    assert response.headers["x-request-id"]
    error: dict[str, object] = body["error"]
    return error


def test_every_answer_has_an_id_of_its_own(server: Running) -> None:
    asked = [server.http.get(path) for path in ("/v1/models", "/health", "/nowhere", "/nowhere")]
    asked += [server.post(temperature=9), server.post()]
    assert len({answer.headers["x-request-id"] for answer in asked}) == len(asked)


def test_models(server: Running) -> None:
    body = server.http.get("/v1/models").json()
    assert body["object"] == "list"
    [model] = body["data"]
    assert (model["id"], model["object"], model["owned_by"]) == ("scripted", "model", "playhead")
    assert isinstance(model["created"], int)


def test_health(server: Running) -> None:
    answer = server.http.get("/health")
    assert answer.status_code == 200
    body = answer.json()
    assert (body["status"], body["record"]) == ("ok", "full")
    assert set(body["store"]) == {"batches", "records", "commits", "bytes", "lost_records", "failures"}
    assert body["store"]["failures"] == 0


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/embeddings", "/v1/chat/completions/x"])
def test_an_unknown_path(server: Running, path: str) -> None:
    answer = server.http.get(path)
    assert answer.status_code == 404
    assert error_of(answer)["code"] == "not_found"
    assert path in str(error_of(answer)["message"])
    assert "GET /v1/streams/ID, /v1/models, /health, /metrics and /openapi.json" in str(error_of(answer)["message"])


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/v1/chat/completions"), ("POST", "/v1/models"), ("DELETE", "/health")]
)
def test_a_wrong_method(server: Running, method: str, path: str) -> None:
    answer = server.http.request(method, path)
    assert answer.status_code == 405
    assert error_of(answer)["code"] == "method_not_allowed"
    assert answer.headers["allow"]


@pytest.mark.parametrize("protocol", catalog.PROTOCOLS)
def test_a_wrong_method_for_a_stream(server: Running, protocol: str) -> None:
    """The error is one that the stream's readers know."""
    entry = catalog.PROTOCOLS[protocol]
    said = server.http.delete(f"/v1/streams/{entry.prefix}{'0' * 32}").json()
    wanted = entry.error("bad_request", "", "method_not_allowed", None).body
    assert (said.keys() - {"request_id"}, said["error"].keys()) == (wanted.keys(), wanted["error"].keys())


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"messages": "\xff"}', b"[" * 5000])
def test_a_body_that_is_no_request(server: Running, body: bytes) -> None:
    answer = server.http.post("/v1/chat/completions", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert error_of(answer)["type"] == "invalid_request_error"


def test_another_content_type(server: Running) -> None:
    answer = server.http.post("/v1/chat/completions", content=b"{}", headers={"content-type": "text/plain"})
    assert answer.status_code == 415
    assert "text/plain" in str(error_of(answer)["message"])
    good = json.dumps({"messages": [{"role": "user", "content": "?"}]})
    kind = {"content-type": "Application/JSON; charset=utf-8"}
    assert server.http.post("/v1/chat/completions", content=good, headers=kind).status_code == 200


def test_a_body_over_the_limit_and_one_within(server: Running) -> None:
    def post(size: int) -> httpx2.Response:
        body = json.dumps({"messages": [{"role": "user", "content": "?"}], "user": ""})
        return server.http.post(
            "/v1/chat/completions",
            content=body + " " * (size - len(body)),
            headers={"content-type": "application/json"},
        )

    assert post(20_000).status_code == 200
    answer = post(20_001)
    assert answer.status_code == 413
    assert error_of(answer)["code"] == "request_too_large"
    assert "20000" in str(error_of(answer)["message"])


@pytest.mark.anyio
async def test_a_large_body_is_understood_while_others_are_served() -> None:
    assert await understood(LARGE, get_ident) == get_ident()
    assert await understood(LARGE + 1, get_ident) != get_ident()


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/conversations", {"items": [{"role": "user", "content": "x" * LARGE}]}),
        ("/v1/responses/input_tokens", {"input": "x" * LARGE}),
    ],
)
async def test_so_is_one_that_belongs_to_a_response(path: str, body: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []
    decode = openai_responses.decode_request

    def noted(body: bytes) -> Any:
        threads.append(get_ident())
        return decode(body)

    monkeypatch.setattr(openai_responses, "decode_request", noted)
    async with serving(MemoryStore()) as server:
        answer = await Exchange(json.dumps(body).encode(), path=path).run(server)
    assert threads
    assert get_ident() not in threads
    assert answer.status in (200, 400)


@pytest.mark.anyio
async def test_refused_requests_are_no_sessions() -> None:
    store = MemoryStore()
    async with serving(store) as server:
        for exchange in (Exchange(chat(temperature=9)), Exchange(chat(model="x")), Exchange(b"", path="/nowhere")):
            assert (await exchange.run(server)).status >= 400
    assert list(store.sessions()) == []


@pytest.mark.anyio
async def test_a_dead_engine() -> None:
    store = MemoryStore()
    engine = ScriptedEngine(WORDS)
    async with serving(store, engine) as server:
        alive = await Exchange(b"", method="GET", path="/health").run(server)
        assert (alive.status, json.loads(alive.body)["status"]) == (200, "ok")
        engine.die()
        health = await Exchange(b"", method="GET", path="/health").run(server)
        assert (health.status, json.loads(health.body)["status"]) == (503, "engine_down")
        refused = await Exchange(chat()).run(server)
    assert (refused.status, refused.error["code"]) == (503, "engine_down")
    assert refused.headers["retry-after"] == "1"
    assert list(store.sessions()) == []


@pytest.mark.anyio
async def test_an_engine_that_dies_under_a_stream() -> None:
    store = MemoryStore()
    engine = ScriptedEngine(WORDS, pace=3600)
    async with serving(store, engine) as server:
        exchange = Exchange(chat())

        def die(message: object) -> None:
            engine.die()

        exchange.on_send = die
        await exchange.run(server)
    assert exchange.complete
    *_, error, done = exchange.body.decode().rstrip().split("\n\n")
    assert (json.loads(error[6:])["error"]["code"], done) == ("engine_dead", "data: [DONE]")
    [info] = store.sessions()
    assert (info.state, info.error) == ("closed", "engine: the engine has stopped")


@pytest.mark.anyio
async def test_a_server_that_shuts_down_takes_nothing_new() -> None:
    async with serving() as server:
        server.live.closing = True
        exchange = await Exchange(chat()).run(server)
    assert (exchange.status, exchange.error["code"]) == (503, "shutdown")
