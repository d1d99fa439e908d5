"""The server's own description, and what it answers to requests made from it: good ones, and ones that break it."""

from __future__ import annotations

import copy
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from jsonschema_rs import validator_for

from tests.support.server import MESSAGES, PATIENCE, Running, serve

ERROR_KEYS = {"message", "type", "param", "code"}
TURNS = {"messages": MESSAGES, "max_tokens": 9}
ASKED: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("/v1/chat/completions", "ChatCompletion", {"messages": MESSAGES, "logprobs": True, "n": 2,
                                                "return_token_ids": True}),
    ("/v1/completions", "TextCompletion", {"prompt": "Two ", "logprobs": 2, "n": 2, "return_token_ids": True}),
    ("/v1/responses", "Response", {"input": "Two?", "include": ["message.output_text.logprobs"], "top_logprobs": 1}),
    ("/v1/messages", "MessageBody", TURNS),
    ("/v1/messages/count_tokens", "TokenCount", TURNS),
)  # fmt: skip
"""A path, what it answers, and a request."""
ELSEWHERE = ("previous_response_id", "conversation", "prompt", "moderation", "context_management")
"""Fields that speak of what is not there, or cannot be served: with them hardly any request would be answered."""
SLOW_IS_FINE = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
EXAMPLES = 20
"""Requests an operation; hypothesis's profile for CI makes them the same ones every time."""


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server for hostile requests; bodies over 20,000 bytes are refused."""
    with serve(tmp_path_factory.mktemp("described"), "--max-body", "20000") as running:
        yield running


@pytest.fixture(scope="module")
def document(described: Running) -> dict[str, Any]:
    """What /openapi.json says."""
    found: dict[str, Any] = described.http.get("/openapi.json").json()
    return found


def test_it_names_every_path(described: Running, document: dict[str, Any]) -> None:
    assert (document["openapi"], document["info"]["title"]) == ("3.1.0", "Playhead")
    told = described.http.get("/nothing").json()["error"]["message"]
    listed = re.findall(r"/[a-z0-9_/.]*[a-z]", told.partition(". ")[2])
    begun = {path.partition("/{")[0] for path in document["paths"]}
    assert set(listed) <= {*begun, "/openapi.json"}
    for path, operations in document["paths"].items():
        assert path.startswith(tuple(listed)) or path.startswith("/v1/conversations")
        for method in operations:
            answer = described.http.request(method, path)
            assert not (answer.status_code == 404 and "No such path" in answer.text)
            assert answer.status_code != 405
    # A conversation may be busy.
    assert "409" in document["paths"]["/v1/responses"]["post"]["responses"]


def test_what_is_answered_is_what_it_says(described: Running, document: dict[str, Any]) -> None:
    def valid(name: str, value: Any) -> bool:
        schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
        return bool(validator_for(schema, offline=True).is_valid(value))

    assert valid("ModelList", described.http.get("/v1/models").json())
    assert valid("Health", described.http.get("/health").json())
    for path, whole, asked in ASKED:
        answer = document["paths"][path]["post"]["responses"]["200"]["content"]
        assert answer["application/json"]["schema"]["$ref"].endswith(f"/{whole}")
        assert valid(whole, described.http.post(path, json=asked).json())
        assert not valid(whole, {})
        streamed = answer.get("text/event-stream")
        if streamed is not None:
            reader = validator_for({**streamed["x-event-schema"], "components": document["components"]}, offline=True)
            lines = described.http.post(path, json={**asked, "stream": True}).text.splitlines()
            told = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
            assert len(told) > 3
            assert [one for one in told if not reader.is_valid(one)] == []
        wrong = described.http.post(path, json={**asked, "temperature": 7}).json()
        assert valid("MessagesErrorBody" if "/messages" in path else "ErrorBody", wrong)
    assert valid("ErrorBody", described.http.get("/nothing").json())
    assert not valid("ErrorBody", {"error": "text"})
    assert not valid("MessagesErrorBody", {"error": {"type": "api_error", "message": "x"}})


def test_every_schema_can_be_read(document: dict[str, Any]) -> None:
    """By a reader that is not Python: its patterns are those of JSON Schema."""
    assert [name for name in document["components"]["schemas"] if not name.isalnum()] == []
    for name in document["components"]["schemas"]:
        reader = validator_for(
            {"$ref": f"#/components/schemas/{name}", "components": document["components"]}, offline=True
        )
        assert not reader.is_valid([])
    functions = validator_for(
        {"$ref": "#/components/schemas/FunctionSpec", "components": document["components"]}, offline=True
    )
    assert functions.is_valid({"name": "a"})
    assert not functions.is_valid({"name": "a\n"})
    assert not functions.is_valid({"name": "a b"})


def _check_error(body: dict[str, Any], path: str) -> None:
    """In the shape that the protocol of the path has; and the words are for its client alone."""
    error = body["error"]
    assert isinstance(error["message"], str) and error["message"]
    assert "Traceback" not in error["message"]
    if "/messages" in path:
        assert body["type"] == "error"
        assert set(error) == {"type", "message"}
    else:
        assert set(error) == ERROR_KEYS
        if error["param"] is not None and error["code"] is None:
            assert error["param"] in error["message"]


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode), ids=lambda mode: mode.value)
def test_requests_made_from_it(described: Running, document: dict[str, Any], mode: schemathesis.GenerationMode) -> None:
    statuses: defaultdict[str, Counter[int]] = defaultdict(Counter)
    document = copy.deepcopy(document)
    for name in ELSEWHERE:
        del document["components"]["schemas"]["ResponsesRequest"]["properties"][name]
    # Its own types leave more open than a strict checker likes.
    schema: Any = schemathesis.openapi.from_dict(document)
    for found in schema.get_all_operations():
        operation = found.ok()
        if mode.is_negative and not operation.body:
            continue

        @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=SLOW_IS_FINE, database=None)
        @given(case=operation.as_strategy(generation_mode=mode))
        def ask(case: Any) -> None:
            answer = case.call(base_url=described.address, timeout=PATIENCE)
            statuses[case.operation.path][answer.status_code] += 1
            if answer.status_code != 200:
                assert 400 <= answer.status_code < 500
                assert answer.headers["content-type"] == ["application/json"]
                _check_error(answer.json(), answer.request.path_url)

        ask()
    # Requests that the description allows are answered, and the others refused: the fuzzing reaches both.
    for path, _, _ in ASKED:
        assert statuses[path][400 if mode.is_negative else 200] > EXAMPLES / 10, (path, statuses[path])
    assert described.health()["status"] == "ok"
