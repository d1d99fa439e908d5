"""GET /openapi.json: what this server takes and answers, from the same types that decode and encode it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib.metadata import version
from typing import Annotated, Any, Final, Literal, NamedTuple, cast, get_args

import msgspec
from msgspec import Meta

from pipeline.http import count, responses, streams
from pipeline.http.parameters import CONVERSATION, RESPONSE, parameters
from stages import catalog
from stages.protocols.anthropic import MessageBody, MessagesRequest
from stages.protocols.openai_chat import ChatCompletion, ChatRequest, ModelList
from stages.protocols.openai_completions import CompletionsRequest, TextCompletion
from stages.protocols.openai_responses import Metadata, Response, ResponsesRequest

_STATUSES = {
    "400": "The request is malformed, or asks for what this server cannot do; the field is named.",
    "401": "The API key is wrong or missing.",
    "404": "There is no such model, or nothing of this id.",
    "408": "The body did not arrive in time.",
    "413": "The body is too large.",
    "415": "The content type is not application/json.",
    "500": "The engine failed.",
    "503": "The server is shutting down, or its engine is not running.",
    "504": "The engine took too long.",
}
_BUSY = "It, or its conversation, is being made or changed just now."


class ErrorObject(msgspec.Struct, frozen=True):
    """`param`: the field's path in the request, as `messages[0].content`."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorBody(msgspec.Struct, frozen=True):
    """What every refused request is answered with; in a stream that has begun it is an event."""

    error: ErrorObject


class MessagesErrorObject(msgspec.Struct, frozen=True):
    """`message` begins with the field's path in the request, as `messages[0].content`, where it is about one."""

    type: str
    message: str


class MessagesErrorBody(msgspec.Struct, frozen=True, tag_field="type", tag="error"):
    """The same, of the messages protocol."""

    error: MessagesErrorObject
    request_id: str | None = None


class Health(msgspec.Struct, frozen=True):
    """`status`: `ok` or `engine_down`; `sessions`: how many run; `record`: the recording mode; `store`: counters."""

    status: str
    sessions: int
    record: str
    store: dict[str, int] | None = None


class InputTokens(msgspec.Struct, frozen=True, tag_field="object", tag="response.input_tokens"):
    """How long the prompt of a response would be."""

    input_tokens: int


class TokenCount(msgspec.Struct, frozen=True):
    """How long a prompt is."""

    input_tokens: int


class StoredConversation(msgspec.Struct, frozen=True):
    """A stored conversation. `created_at`: unix s."""

    id: str
    object: Literal["conversation"]
    created_at: int
    metadata: dict[str, str]


class ItemList(msgspec.Struct, frozen=True):
    """A page of items, and whether there are more behind it."""

    object: Literal["list"]
    data: list[dict[str, Any]]
    first_id: str | None
    last_id: str | None
    has_more: bool


class Deleted(msgspec.Struct, frozen=True):
    """What is no more."""

    id: str
    object: Literal["response.deleted", "conversation.deleted"]
    deleted: bool


class Items(msgspec.Struct, frozen=True):
    """Items for a conversation."""

    items: Annotated[list[dict[str, Any]], Meta(min_length=1, max_length=20)]


class Begun(msgspec.Struct, frozen=True):
    """What a conversation begins with."""

    items: Annotated[list[dict[str, Any]], Meta(max_length=20)] = []
    metadata: Metadata = {}


class Changed(msgspec.Struct, frozen=True):
    """What is told of a conversation."""

    metadata: Metadata = {}


class _Generating(NamedTuple):
    """POST to a protocol's path. ``end``: the last event of a stream, for people; ``needs``: more about the request
    than its Struct says."""

    operation: str
    summary: str
    request: type[msgspec.Struct]
    whole: type[msgspec.Struct]
    end: str
    error: type[msgspec.Struct] = ErrorBody
    needs: dict[str, Any] | None = None


_LIMITED: Final = {"required": ["max_tokens"], "properties": {"max_tokens": {"type": "integer", "minimum": 1}}}
_WORDS: Final = {"type": "string"}


def _item(kind: str, **fields: Any) -> dict[str, Any]:
    properties = {"type": {"const": kind}, **fields}
    return {"type": "object", "required": [*properties], "properties": properties}


_ITEMS: Final = {
    "properties": {
        "input": {
            "anyOf": [
                _WORDS,
                {
                    "type": "array",
                    "items": {
                        "anyOf": [
                            _item(
                                "message",
                                role={"enum": ["user", "assistant", "system", "developer"]},
                                content={"anyOf": [_WORDS, {"type": "array", "items": {"type": "object"}}]},
                            ),
                            _item("function_call", call_id=_WORDS, name=_WORDS, arguments=_WORDS),
                            _item("function_call_output", call_id=_WORDS, output=_WORDS),
                            _item("reasoning", summary={"type": "array", "items": {"type": "object"}}),
                            _item("item_reference", id=_WORDS),
                        ]
                    },
                },
            ]
        }
    },
    "required": ["input"],
}
"""What is well-formed. A message may leave its type out, and a request its input, where it has a conversation."""
_GENERATING: Final = {
    "chat": _Generating(
        "createChatCompletion", "Generate an answer to a conversation.", ChatRequest, ChatCompletion, "`[DONE]`"
    ),
    "completions": _Generating(
        "createCompletion", "Go on with a text.", CompletionsRequest, TextCompletion, "`[DONE]`"
    ),
    "responses": _Generating(
        "createResponse", "Generate an answer to a conversation, whose items are kept.", ResponsesRequest, Response,
        "`response.completed`, `response.incomplete` or `response.failed`", needs=_ITEMS,
    ),
    "messages": _Generating(
        "createMessage", "Generate an answer to a conversation.", MessagesRequest, MessageBody, "`message_stop`",
        MessagesErrorBody, _LIMITED,
    ),
}  # fmt: skip
"""By protocol."""


@cache
def document(*, keys: bool) -> dict[str, Any]:
    """The OpenAPI 3.1 description; not to be changed. ``keys``: requests need one."""
    kinds = [each for made in _GENERATING.values() for each in (made.request, made.whole, made.error)]
    kept = [each for one in _KEPT for each in (one.answer, one.request) if each is not None]
    types = list(dict.fromkeys((*kinds, *map(_events, _GENERATING), *kept, ModelList, TokenCount, InputTokens, Health)))
    references, schemas = _components(types)
    known = dict(zip(types, references, strict=True))
    for asked in (*(made.request for made in _GENERATING.values()), *(one.request for one in _KEPT)):
        if asked is not None:
            _allow_null(schemas[_name(known[asked])])
    _portable(schemas)
    # What these Structs are on the wire is not what they are here.
    schemas["ToolUseBlock"]["properties"]["input"] = {"type": "object"}
    schemas["CompletionChunk"]["properties"]["object"] = schemas["TextCompletion"]["properties"]["object"]
    return {
        "openapi": "3.1.0",
        "info": {"title": "Playhead", "version": version("playhead")},
        "paths": {**_generating(known), **_counting(known), **_kept(known), **_about(known)},
        "components": {"schemas": schemas, "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
        "security": [{"key": []}] if keys else [],
    }


_ROOMS: Final = {
    "openai_chat": "Chat", "openai_completions": "Completions", "openai_responses": "Responses",
    "anthropic": "Messages",
}  # fmt: skip


def _components(types: Iterable[Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """A reference for each type, and the schemas by name. Names that several protocols have begin with theirs."""
    made = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    text = msgspec.json.encode(made).decode()
    for name in made[1]:
        if "." in name:
            _, _, room, *_, own = name.split(".")
            text = text.replace(f'{name}"', f'{_ROOMS[room]}{own}"')
    return msgspec.json.decode(text, type=tuple[list[dict[str, Any]], dict[str, Any]])


def _events(protocol: str) -> Any:
    """The union of what a stream of a protocol is made of."""
    found: Any = None
    for kind in get_args(catalog.PROTOCOLS[protocol].chunk):
        if not kind.whole:
            found = kind if found is None else found | kind
    return found


def _name(reference: dict[str, Any]) -> str:
    return str(reference["$ref"]).rpartition("/")[2]


def _generating(known: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for name, made in _GENERATING.items():
        answered = _answer(f"The answer: whole, or as a stream that ends with {made.end}.", known[made.whole])
        answered["content"]["text/event-stream"] = {"schema": _WORDS, "x-event-schema": known[_events(name)]}
        schema = known[made.request] if made.needs is None else {"allOf": [known[made.request], made.needs]}
        path = catalog.PROTOCOLS[name].path
        operation = _post(made.operation, made.summary, schema, answered, known[made.error])
        if name == "responses":
            operation["responses"]["409"] = _answer(_BUSY, known[made.error])
        paths[path] = {"post": {"parameters": parameters("post", path), **operation}}
    return paths


def _counting(known: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    counted = _answer("The number.", known[TokenCount])
    asked, error = known[MessagesRequest], known[MessagesErrorBody]
    summary = "How many tokens the prompt of a message would have."
    in_responses = _answer("The number.", known[InputTokens])
    request, failed = known[ResponsesRequest], known[ErrorBody]
    of_input = "How many tokens the prompt of a response would have."
    return {
        count.PATH: {"post": _post("countMessageTokens", summary, asked, counted, error)},
        responses.counting.PATH: {"post": _post("countInputTokens", of_input, request, in_responses, failed)},
    }


def _post(operation: str, summary: str, asked: Any, answered: Any, error: dict[str, Any]) -> dict[str, Any]:
    return {
        "operationId": operation,
        "summary": summary,
        "requestBody": _body(asked),
        "responses": {"200": answered, **{status: _answer(why, error) for status, why in _STATUSES.items()}},
    }


class _Kept(NamedTuple):
    """A look at what is stored, or a change to it. ``path``: its places are named as in the routes."""

    method: str
    path: str
    operation: str
    summary: str
    answer: type[msgspec.Struct]
    request: type[msgspec.Struct] | None = None


_KEPT: Final = (
    _Kept("get", RESPONSE, "retrieveResponse", "A response as it is now.", Response),
    _Kept("delete", RESPONSE, "deleteResponse", "Delete a response, with its recording.", Deleted),
    _Kept("post", f"{RESPONSE}/cancel", "cancelResponse", "End a response that runs in the background.", Response),
    _Kept("get", f"{RESPONSE}/input_items", "listInputItems", "What a response was asked.", ItemList),
    _Kept("post", "/v1/conversations", "createConversation", "Begin a conversation.", StoredConversation, Begun),
    _Kept("get", CONVERSATION, "retrieveConversation", "A conversation.", StoredConversation),
    _Kept("post", CONVERSATION, "updateConversation", "Tell something of it.", StoredConversation, Changed),
    _Kept("delete", CONVERSATION, "deleteConversation", "Delete it; its responses stay.", Deleted),
    _Kept("get", f"{CONVERSATION}/items", "listItems", "What was said in it.", ItemList),
    _Kept("post", f"{CONVERSATION}/items", "createItems", "Add items to it.", ItemList, Items),
    _Kept("delete", f"{CONVERSATION}/items/{{item}}", "deleteItem", "Take an item out of it.", StoredConversation),
)
_REFUSED: Final = ("400", "401", "404", "408", "413", "415", "503")


def _kept(known: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    paths: dict[str, Any] = {}
    errors = {status: _answer(_STATUSES[status], known[ErrorBody]) for status in _REFUSED}
    busy = {"409": _answer(_BUSY, known[ErrorBody])}
    for one in _KEPT:
        operation: dict[str, Any] = {
            "operationId": one.operation,
            "summary": one.summary,
            "parameters": parameters(one.method, one.path),
            "responses": {"200": _answer("Done.", known[one.answer]), **errors, **busy},
        }
        if one.request is not None:
            operation["requestBody"] = _body(known[one.request])
        paths.setdefault(one.path, {})[one.method] = operation
    # Any item has a type; which fields it has depends on that.
    item = {"200": {"description": "The item.", "content": {"application/json": {"schema": _OBJECT}}}, **errors}
    where = f"{CONVERSATION}/items/{{item}}"
    paths[where] |= _get("retrieveItem", "An item of it.", item, parameters=parameters("get", where))
    stream = {"description": "The recorded response.", "content": {"text/event-stream": {"schema": _WORDS}}}
    paths[streams.PATH] = _get(
        "followStream", "A recorded response, of any protocol, from an event on.", {"200": stream, **errors, **busy},
        parameters=parameters("get", streams.PATH),
    )  # fmt: skip
    return paths


def _body(schema: dict[str, Any]) -> dict[str, Any]:
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def _about(known: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    """What is asked of the server itself."""
    refused = {"401": _answer(_STATUSES["401"], known[ErrorBody])}
    text = {"description": "Counters, in the Prometheus format.", "content": {"text/plain": {"schema": _WORDS}}}
    health = {
        "200": _answer("The engine runs.", known[Health]),
        "503": _answer("The engine does not run.", known[Health]),
    }
    return {
        "/v1/models": _get(
            "listModels", "The served models.", {"200": _answer("The list.", known[ModelList]), **refused}
        ),
        "/health": _get("health", "Whether the engine runs, and what is recorded.", health, security=[]),
        "/metrics": _get("metrics", "Counters, for Prometheus.", {"200": text, **refused}),
    }


_OBJECT: Final = {"type": "object"}


def _get(operation: str, summary: str, responses: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"get": {"operationId": operation, "summary": summary, **more, "responses": responses}}


def _answer(why: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": why, "content": {"application/json": {"schema": schema}}}


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
