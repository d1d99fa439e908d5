"""POST /v1/messages/count_tokens, and /v1/messages itself, over a real socket."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anthropic
import pytest

from tests.support.messages import asked
from tests.support.server import Running, serve

TURNS: Any = [{"role": "user", "content": "How many tides has a day?"}]
TOOL: Any = {"name": "get_tide", "description": "The tide.", "input_schema": {"type": "object"}}
ASKED: list[dict[str, Any]] = [
    {},
    {"system": "Be brief."},
    {"tools": [TOOL], "system": [{"type": "text", "text": "Be brief."}]},
    {"messages": [*TURNS, {"role": "assistant", "content": "Two, I"}]},
]


def client(server: Running) -> anthropic.Anthropic:
    return anthropic.Anthropic(api_key="k", base_url=str(server.http.base_url), max_retries=0)


@pytest.mark.parametrize("fields", ASKED)
def test_what_is_counted_is_what_is_told_when_it_is_asked(server: Running, fields: dict[str, Any]) -> None:
    fields_: Any = {"model": server.model, "messages": TURNS, **fields}
    with client(server) as sdk:
        counted = sdk.messages.count_tokens(**fields_).input_tokens
        message = asked(sdk, **fields_, max_tokens=5)
    assert counted == message.usage.input_tokens > 5


def test_nothing_is_recorded(tmp_path: Path) -> None:
    with serve(tmp_path) as server, client(server) as sdk:
        assert sdk.messages.count_tokens(model=server.model, messages=TURNS).input_tokens > 5
        assert server.stop() == 0
        assert server.sessions() == []


@pytest.mark.parametrize(
    ("body", "kind", "param"),
    [
        ({"messages": []}, "invalid_request_error", "messages"),
        ({"messages": TURNS, "model": "other"}, "not_found_error", "There is no model"),
        ({"messages": TURNS, "thinking": {"type": "enabled"}}, "invalid_request_error", "thinking.budget_tokens"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/messages/count_tokens", "/v1/messages"])
def test_what_is_refused(server: Running, path: str, body: dict[str, Any], kind: str, param: str) -> None:
    response = server.http.post(path, json={"max_tokens": 5, **body})
    told = response.json()
    assert (told["type"], told["error"]["type"]) == ("error", kind)
    assert told["error"]["message"].startswith(param)
    assert told["request_id"] == response.headers["request-id"] == response.headers["x-request-id"]


def test_another_method_is_refused_in_the_protocol_s_words(server: Running) -> None:
    response = server.http.get("/v1/messages/count_tokens")
    assert response.status_code == 405
    assert response.json()["type"] == "error"
