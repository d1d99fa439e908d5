"""The parameters of the endpoints, beside their bodies, as OpenAPI has them: those in a path, and those of a query."""

from __future__ import annotations

from typing import Any, Final

from pipeline.http import streams
from stages import catalog

RESPONSE: Final = "/v1/responses/{response}"
CONVERSATION: Final = "/v1/conversations/{conversation}"
_TRUTH: Final = {"type": "boolean"}
_NATURAL: Final = {"type": "integer", "minimum": 0}


def _query(name: str, schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": schema, "description": description}


_EVENT_IDS: Final = _query("event_ids", _TRUTH, "Each event has its position as its id.")
_OF_STREAMS: Final = (
    _EVENT_IDS,
    _query(
        "resume", {"type": "number", "minimum": 0},
        "Seconds that a recorded stream goes on once its client has left, for whoever takes it up again.",
    ),
)  # fmt: skip
_INCLUDE: Final = _query(
    "include", {"type": "array", "items": {"enum": ["message.output_text.logprobs", "reasoning.encrypted_content"]}},
    "Accepted; what there is, is told.",
)  # fmt: skip
_PAGE: Final = (
    _query("limit", {"type": "integer", "minimum": 1, "maximum": 100}, "How many at most."),
    _query("order", {"enum": ["asc", "desc"]}, "By time."),
    _query("after", {"type": "string"}, "The id behind which the page begins."),
)
_QUERIES: Final[dict[tuple[str, str], tuple[dict[str, Any], ...]]] = {
    **{("post", entry.path): _OF_STREAMS for entry in catalog.PROTOCOLS.values()},
    ("get", streams.PATH): (_query("after", _NATURAL, "How many events are left out."), _EVENT_IDS),
    ("get", RESPONSE): (
        _query("stream", _TRUTH, "As the stream that it was made as."),
        _query("starting_after", _NATURAL, "With stream: the number of the last event that is left out."),
        _INCLUDE,
    ),
    ("get", f"{RESPONSE}/input_items"): (*_PAGE, _INCLUDE),
    ("get", f"{CONVERSATION}/items"): (*_PAGE, _INCLUDE),
}
"""By method and path."""


def parameters(method: str, path: str) -> list[dict[str, Any]]:
    """The parameters of an operation."""
    # An id is never empty, and has no slash.
    schema = {"type": "string", "pattern": "^[A-Za-z0-9_-]+$"}
    names = [part.partition("}")[0] for part in path.split("{")[1:]]
    places = [{"name": name, "in": "path", "required": True, "schema": schema} for name in names]
    return [*places, *_QUERIES.get((method, path), ())]
