"""``--parser`` in front of SGLang and vLLM asked for tokens: what a request holds a model to goes up with it."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest

from tests.support.proxies import post, proxied, session_of
from tests.support.server import Running, replayed
from tests.support.upstream_engines import CHAT, COMPLETIONS, CONTENT, GENERATE, Route, error, listed, sglang
from tests.support.upstreams import Asked, Server, routes, upstream
from tests.support.validated import assert_clean
from tests.upstream.test_parsed_ways import Model, tokenizer

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"port": {"type": "string"}}, "required": ["port"]}
TOOLS = [{"type": "function", "function": {"name": "tide", "parameters": SCHEMA}}]
CALL = '<tool_call>\n{"name": "tide", "arguments": {"port": "Brest"}}\n</tool_call>'
REQUIRED = {"tools": TOOLS, "tool_choice": "required"}
HELD = [
    {"type": "const_string", "value": '<tool_call>\n{"name": "tide", "arguments": '},
    {"type": "json_schema", "json_schema": SCHEMA, "max_whitespace_cnt": 1},
    {"type": "const_string", "value": "}\n</tool_call>"},
]


class Asks(NamedTuple):
    proxy: Running
    model: Model
    servers: dict[str, Server]


def completing(model: Model, refuses: bool) -> dict[str, Route]:
    """A vLLM without ids. ``refuses``: it is an old one."""

    def completions(asked: Asked) -> bytes:
        if refuses and asked.json.get("response_format", {}).get("type") == "structural_tag":
            return error(400, "response_format: Input should be 'text', 'json_object' or 'json_schema'")
        return model.completions(asked)

    return {"/v1/models": listed("vllm"), CHAT: CONTENT, COMPLETIONS: completions}


SERVERS: dict[str, Callable[[Model], dict[str, Route]]] = {
    "sglang": lambda model: sglang(**{GENERATE: model.generate}),
    "vllm": lambda model: completing(model, False),
    "old": lambda model: completing(model, True),
}


@pytest.fixture(scope="module")
def asks(tmp_path_factory: pytest.TempPathFactory) -> Generator[Asks]:
    folder, model = tmp_path_factory.mktemp("held"), Model()
    where = tokenizer(folder / "tokenizer")
    with ExitStack() as stack:
        servers = {name: stack.enter_context(upstream(routes(made(model)))) for name, made in SERVERS.items()}
        tables = [
            f'[[upstream]]\nname = "{name}"\nurl = "{server.url}"\nmodels = ["{name}"]\n'
            f'tokenizer = "{where}"\nparser = "hermes"\n'
            for name, server in servers.items()
        ]
        (folder / "upstreams.toml").write_text("\n".join(tables))
        running = stack.enter_context(proxied(folder, str(folder / "upstreams.toml")))
        yield Asks(running, model, servers)
    assert_clean(running.store)
    assert [result.verdict for result in replayed(running.store) if result.verdict != "same"] == []


def ask(asks: Asks, server: str, **fields: Any) -> tuple[list[dict[str, Any]], tuple[str, ...], Any]:
    """What the server was asked, what is lost, and the answer's message."""
    asks.model.text = CALL
    before = len(asks.servers[server].asked)
    body = {"model": server, "messages": [{"role": "user", "content": "Tide?"}], **fields}
    got = post(asks.proxy.address, CHAT, json.dumps(body).encode())
    assert got.status == 200, got.body
    facts = session_of(asks.proxy, got).opening.upstream
    assert facts is not None
    assert not facts.relayed
    asked = [each.json for each in asks.servers[server].asked[before:] if each.target in (GENERATE, COMPLETIONS)]
    mine = [each for each in asked if "Hi" not in (each.get("prompt"), each.get("text"))]  # no trial
    return mine, facts.lost, json.loads(got.body)["choices"][0]["message"]


def called(message: Any) -> list[Any]:
    return [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in message["tool_calls"]]


def held_in(tag: Any) -> bool:
    """Somewhere in it the call is held."""
    return json.dumps(HELD)[1:-1] in json.dumps(tag)


def test_sglang(asks: Asks) -> None:
    [asked], lost, message = ask(asks, "sglang", **REQUIRED)
    tag = json.loads(asked["sampling_params"]["structural_tag"])
    assert tag.keys() == {"type", "format"}
    assert held_in(tag)
    assert (lost, called(message)) == ((), [("tide", {"port": "Brest"})])


def test_vllm(asks: Asks) -> None:
    [asked], lost, message = ask(asks, "vllm", **REQUIRED)
    assert asked["response_format"]["type"] == "structural_tag"
    assert held_in(asked["response_format"])
    assert (lost, called(message)) == ((), [("tide", {"port": "Brest"})])


def test_a_server_that_refuses_it_is_asked_without_and_it_is_lost(asks: Asks) -> None:
    """Each time: what it refuses may be this schema."""
    for _ in range(2):
        (first, second), lost, message = ask(asks, "old", **REQUIRED)
        assert first.pop("response_format")["type"] == "structural_tag"
        assert first == second
        assert (lost, called(message)) == (("tool_choice",), [("tide", {"port": "Brest"})])


def test_nothing_is_put_in_where_nothing_is_asked(asks: Asks) -> None:
    [asked], lost, _ = ask(asks, "sglang", tools=TOOLS)
    assert "structural_tag" not in asked["sampling_params"]
    assert lost == ()
