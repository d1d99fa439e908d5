"""The server's own description, and what it answers to requests made from it: good ones, and ones that break it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from jsonschema_rs import validator_for

from tests.support.server import PATIENCE, Running, serve

ERROR_KEYS = {"message", "type", "param", "code"}
SLOW_IS_FINE = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
EXAMPLES = 120
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
    assert {path for path in document["paths"] if path not in told} == set()
    for path, operations in document["paths"].items():
        for method in operations:
            assert described.http.request(method, path).status_code != 404


def test_what_is_answered_is_what_it_says(described: Running, document: dict[str, Any]) -> None:
    def valid(name: str, value: Any) -> bool:
        schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
        return bool(validator_for(schema, offline=True).is_valid(value))

    assert valid("ChatCompletion", described.post(logprobs=True, n=2, return_token_ids=True).json())
    assert valid("ModelList", described.http.get("/v1/models").json())
    assert valid("Health", described.http.get("/health").json())
    for wrong in (described.post(temperature=7), described.http.get("/nothing")):
        assert valid("ErrorBody", wrong.json())
    assert not valid("ChatCompletion", {})
    assert not valid("ErrorBody", {"error": "text"})


def test_every_schema_can_be_read(document: dict[str, Any]) -> None:
    """By a reader that is not Python: its patterns are those of JSON Schema."""
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


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode), ids=lambda mode: mode.value)
def test_requests_made_from_it(described: Running, document: dict[str, Any], mode: schemathesis.GenerationMode) -> None:
    statuses: Counter[int] = Counter()
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
            statuses[answer.status_code] += 1
            if answer.status_code != 200:
                assert 400 <= answer.status_code < 500
                assert answer.headers["content-type"] == ["application/json"]
                error = answer.json()["error"]
                assert set(error) == ERROR_KEYS
                assert isinstance(error["message"], str) and error["message"]

        ask()
    # Requests that the description allows are answered, and the others refused: the fuzzing reaches both.
    assert statuses[400 if mode.is_negative else 200] > EXAMPLES / 10
    assert described.health()["status"] == "ok"
