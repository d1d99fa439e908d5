"""GET /openapi.json: what this server takes and answers, from the same types that decode and encode it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib.metadata import version
from typing import Any, cast

import msgspec

from stages.protocols.openai_chat import ChatChunk, ChatCompletion, ChatRequest, ModelList

_STATUSES = {
    "400": "The request is malformed, or asks for what this server cannot do; `param` names the field.",
    "401": "The API key is wrong or missing.",
    "404": "There is no such model.",
    "408": "The body did not arrive in time.",
    "413": "The body is too large.",
    "415": "The content type is not application/json.",
    "500": "The engine failed.",
    "503": "The server is shutting down, or its engine is not running.",
    "504": "The engine took too long.",
}


class ErrorObject(msgspec.Struct, frozen=True):
    """`param`: the field's path in the request, as `messages[0].content`."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorBody(msgspec.Struct, frozen=True):
    """What every refused request is answered with; in a stream that has begun it is an event."""

    error: ErrorObject


class Health(msgspec.Struct, frozen=True):
    """`status`: `ok` or `engine_down`; `sessions`: how many run; `record`: the recording mode; `store`: counters."""

    status: str
    sessions: int
    record: str
    store: dict[str, int] | None = None


@cache
def document(*, keys: bool) -> dict[str, Any]:
    """The OpenAPI 3.1 description; not to be changed. ``keys``: requests need one."""
    types = (ChatRequest, ChatCompletion, ChatChunk, ModelList, ErrorBody, Health)
    (chat, completion, chunk, models, error, health), schemas = msgspec.json.schema_components(
        types, ref_template="#/components/schemas/{name}"
    )
    _allow_null(schemas["ChatRequest"])
    _portable(schemas)
    refused = {status: _answer(why, "application/json", error) for status, why in _STATUSES.items()}
    answered = _answer(
        "The answer: whole, or as a stream of chunks that ends with `[DONE]`.", "application/json", completion
    )
    answered["content"]["text/event-stream"] = {"schema": {"type": "string"}, "x-event-schema": chunk}
    paths: dict[str, Any] = {
        "/v1/chat/completions": {
            "post": {
                "operationId": "createChatCompletion",
                "summary": "Generate an answer to a conversation.",
                "requestBody": {"required": True, "content": {"application/json": {"schema": chat}}},
                "responses": {"200": answered, **refused},
            }
        },
        "/v1/models": {
            "get": {
                "operationId": "listModels",
                "summary": "The served models.",
                "responses": {"200": _answer("The list.", "application/json", models), "401": refused["401"]},
            }
        },
        "/health": {
            "get": {
                "operationId": "health",
                "summary": "Whether the engine runs, and what is recorded.",
                "security": [],
                "responses": {
                    "200": _answer("The engine runs.", "application/json", health),
                    "503": _answer("The engine does not run.", "application/json", health),
                },
            }
        },
    }
    paths["/metrics"] = {
        "get": {
            "operationId": "metrics",
            "summary": "Counters, for Prometheus.",
            "responses": {
                "200": _answer(
                    "Counters, in the Prometheus format.",
                    "text/plain",
                    {"type": "string"},
                ),
                "401": refused["401"],
            },
        }
    }
    bearer = {"type": "http", "scheme": "bearer"}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Playhead", "version": version("playhead")},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"key": bearer}},
        "security": [{"key": []}] if keys else [],
    }


def _answer(why: str, media: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": why, "content": {media: {"schema": schema}}}


def _allow_null(request: dict[str, Any]) -> None:
    """A null field of the request is an absent one."""
    for name, schema in request["properties"].items():
        if name not in request["required"]:
            request["properties"][name] = {"anyOf": [schema, {"type": "null"}]}


def _portable(schema: Any) -> None:
    """Patterns as JSON Schema has them: ``$`` is the end of the text there, while Python's is before a last newline
    too."""
    if isinstance(schema, dict):
        fields = cast("dict[str, Any]", schema)
        if isinstance(pattern := fields.get("pattern"), str):
            fields["pattern"] = pattern.replace(r"\Z", "$")
        for field in fields.values():
            _portable(field)
    elif isinstance(schema, list):
        for item in cast("Iterable[Any]", schema):
            _portable(item)
