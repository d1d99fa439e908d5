"""The objects of the chat completions protocol as it is on the wire, and the error object.

Order of keys and what is null, what absent: ``logprobs`` and ``finish_reason`` are always on a choice, ``usage`` only
where the client asked for it, everything else only where it says something. Clients treat null and absent alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, ClassVar, Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from stages.events import ErrorChunk, Failure, FailureKind

_encode = msgspec.json.Encoder().encode


@lru_cache(maxsize=1024)
def _envelope(kind: str, response_id: str, created: int, model: str, fingerprint: str | None) -> bytes:
    """The JSON of an object up to its ``choices``: the keys that all objects of a response share. msgspec writes a tag
    first; servers write the id first, and so do we."""
    keys = {"id": response_id, "object": kind, "created": created, "model": model, "system_fingerprint": fingerprint}
    return _encode(keys)[:-1] + b',"choices":'


class FunctionDelta(msgspec.Struct, frozen=True, gc=False):
    """``name`` on the first entry of a call only; ``arguments``: a fragment of JSON text."""

    name: str | UnsetType | None = UNSET
    arguments: str | UnsetType | None = UNSET


class ToolCallDelta(msgspec.Struct, frozen=True, gc=False):
    """An entry of ``delta.tool_calls``; ``id`` and ``type`` on the first entry of an index only. ``index``: -1 where
    another server sent none."""

    index: int
    id: str | UnsetType | None = UNSET
    type: str | UnsetType | None = UNSET
    function: FunctionDelta | UnsetType | None = UNSET


class Delta(msgspec.Struct, frozen=True, gc=False):
    """What a chunk adds to a choice's message."""

    role: str | UnsetType | None = UNSET
    content: str | UnsetType | None = UNSET
    refusal: str | UnsetType | None = UNSET
    reasoning: str | UnsetType | None = UNSET
    reasoning_content: str | UnsetType | None = UNSET
    tool_calls: tuple[ToolCallDelta, ...] | UnsetType | None = UNSET


class TopEntry(msgspec.Struct, frozen=True, gc=False):
    """An alternative token. ``token``: its bytes as text, U+FFFD for a part of a character."""

    token: str
    logprob: float
    bytes: tuple[int, ...] | None


class LogprobEntry(msgspec.Struct, frozen=True, gc=False):
    """One generated token; ``logprob`` is from -9999 to 0."""

    token: str
    logprob: float
    bytes: tuple[int, ...] | None
    top_logprobs: tuple[TopEntry, ...] = ()


class ChoiceLogprobs(msgspec.Struct, frozen=True, gc=False):
    """The entries of the tokens of a step (of a whole choice, in a completion), whatever kind their text is."""

    content: tuple[LogprobEntry, ...] | None
    refusal: tuple[LogprobEntry, ...] | None = None


class ChunkChoice(msgspec.Struct, frozen=True, gc=False):
    """A choice's part of a chunk. ``stop_reason``: on the finish chunk, the stop string or stop token id, if one ended
    the choice; absent otherwise. ``token_ids``: the ids of this step, only if asked for."""

    index: int
    delta: Delta
    logprobs: ChoiceLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | int | UnsetType | None = UNSET
    token_ids: tuple[int, ...] | UnsetType | None = UNSET


class CompletionDetails(msgspec.Struct, frozen=True, gc=False):
    """Of ``completion_tokens``."""

    reasoning_tokens: int = 0


class PromptDetails(msgspec.Struct, frozen=True, gc=False):
    """Of ``prompt_tokens``."""

    cached_tokens: int = 0


class CompletionUsage(msgspec.Struct, frozen=True, gc=False):
    """Token counts. Running ones (continuous usage) have no details and count the chunk's choice only."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    completion_tokens_details: CompletionDetails | UnsetType | None = UNSET
    prompt_tokens_details: PromptDetails | UnsetType | None = UNSET


class Metrics(msgspec.Struct, frozen=True, gc=False):
    """Service times in ms, under the names that vLLM has where it has one. What was not measured is absent: a single
    token has no gap. ``queue_time_ms``: from admission to the engine's first work; ``itl``: between tokens."""

    queue_time_ms: float | UnsetType = UNSET
    time_to_first_token_ms: float | UnsetType = UNSET
    mean_itl_ms: float | UnsetType = UNSET
    max_itl_ms: float | UnsetType = UNSET


TIMINGS: dict[str, str] = {
    "queue": "queue_time_ms", "ttft": "time_to_first_token_ms", "mean_gap": "mean_itl_ms", "max_gap": "max_itl_ms",
}  # fmt: skip
"""TimingInput name → key of Metrics."""


class ChatChunk(msgspec.Struct, frozen=True, gc=False, tag_field="object", tag="chat.completion.chunk"):
    """One event of a stream. ``prompt_token_ids``: on the first chunk, ``metrics``: on the last, if asked for."""

    whole: ClassVar[bool] = False
    event: ClassVar[str] = ""

    id: str
    created: int
    model: str
    system_fingerprint: str | None = None
    choices: tuple[ChunkChoice, ...] = ()
    usage: CompletionUsage | UnsetType | None = UNSET
    prompt_token_ids: tuple[int, ...] | UnsetType | None = UNSET
    metrics: Metrics | UnsetType = UNSET

    def wire(self) -> bytes:
        """One line of JSON. Raises UnicodeEncodeError on unpaired surrogates, which no parser sends."""
        head = _envelope("chat.completion.chunk", self.id, self.created, self.model, self.system_fingerprint)
        if self.prompt_token_ids is UNSET and self.metrics is UNSET:
            usage = self.usage
            if usage is UNSET:
                return head + _encode(self.choices) + b"}"
            if usage is None:
                return head + _encode(self.choices) + b',"usage":null}'
        return head + _encode(self.choices) + tail(self.usage, self.prompt_token_ids, self.metrics)

    @staticmethod
    def wires(chunks: Iterable[ChatChunk], before: bytes, after: bytes) -> Iterator[bytes]:
        """See ``stages.sse.ProtocolChunk``."""
        # What surrounds the choices is made anew only where it is no longer the same objects.
        id: Any = object()
        created: Any = None
        model = fingerprint = usage = ids = metrics = created
        head = end = b""
        join = b"".join
        for chunk in chunks:
            if (
                chunk.id is not id or chunk.created is not created or chunk.model is not model
                or chunk.system_fingerprint is not fingerprint or chunk.usage is not usage
                or chunk.prompt_token_ids is not ids or chunk.metrics is not metrics
            ):  # fmt: skip
                id, created, model, fingerprint = chunk.id, chunk.created, chunk.model, chunk.system_fingerprint
                usage, ids, metrics = chunk.usage, chunk.prompt_token_ids, chunk.metrics
                head = before + _envelope("chat.completion.chunk", id, created, model, fingerprint)
                end = tail(usage, ids, metrics) + after
            yield join((head, _encode(chunk.choices), end))


class MessageFunction(msgspec.Struct, frozen=True, gc=False):
    """``arguments``: JSON text, as the model wrote it."""

    name: str
    arguments: str


class MessageToolCall(msgspec.Struct, frozen=True, gc=False):
    """A call of a finished message."""

    id: str
    type: str
    function: MessageFunction


class Message(msgspec.Struct, frozen=True, gc=False):
    """``content`` is null when the choice has no content text, never the empty string."""

    role: str
    content: str | None
    refusal: str | None = None
    reasoning: str | UnsetType | None = UNSET
    reasoning_content: str | UnsetType | None = UNSET
    tool_calls: tuple[MessageToolCall, ...] | UnsetType | None = UNSET


class CompletionChoice(msgspec.Struct, frozen=True, gc=False):
    """A finished choice."""

    index: int
    message: Message
    logprobs: ChoiceLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | int | UnsetType | None = UNSET
    token_ids: tuple[int, ...] | UnsetType | None = UNSET


class ChatCompletion(msgspec.Struct, frozen=True, gc=False, tag_field="object", tag="chat.completion"):
    """The answer to a request that does not stream."""

    whole: ClassVar[bool] = True
    event: ClassVar[str] = ""

    id: str
    created: int
    model: str
    system_fingerprint: str | None = None
    choices: tuple[CompletionChoice, ...] = ()
    usage: CompletionUsage | UnsetType | None = UNSET
    prompt_token_ids: tuple[int, ...] | UnsetType | None = UNSET
    metrics: Metrics | UnsetType = UNSET

    def wire(self) -> bytes:
        """One line of JSON. Raises UnicodeEncodeError on unpaired surrogates, which no parser sends."""
        head = _envelope("chat.completion", self.id, self.created, self.model, self.system_fingerprint)
        return head + _encode(self.choices) + tail(self.usage, self.prompt_token_ids, self.metrics)


Chunk: TypeAlias = ChatChunk | ChatCompletion


def tail(
    usage: CompletionUsage | UnsetType | None, ids: tuple[int, ...] | UnsetType | None, metrics: Metrics | UnsetType
) -> bytes:
    """The JSON of an object behind its ``choices``."""
    parts = [b""]
    if usage is not UNSET:
        parts.append(b'"usage":' + _encode(usage))
    if ids is not UNSET:
        parts.append(b'"prompt_token_ids":' + _encode(ids))
    if metrics is not UNSET:
        parts.append(b'"metrics":' + _encode(metrics))
    return b",".join(parts) + b"}"


# --- errors ---------------------------------------------------------------------------------------------------------

_RETRY: tuple[tuple[str, str], ...] = (("retry-after", "1"),)
_FINAL: tuple[tuple[str, str], ...] = (("x-should-retry", "false"),)

# kind → HTTP status, type, code where the failure names none, headers, message where the failure has none
_ERRORS: dict[FailureKind, tuple[int, str, str | None, tuple[tuple[str, str], ...], str]] = {
    "bad_request": (400, "invalid_request_error", None, _FINAL, "The request is invalid."),
    "unauthorized": (401, "invalid_request_error", "invalid_api_key", _FINAL, "The API key is wrong or missing."),
    "not_found": (404, "invalid_request_error", "model_not_found", _FINAL, "There is no such model."),
    "too_large": (413, "invalid_request_error", None, _FINAL, "The request body is too large."),
    "rate_limited": (429, "requests", "rate_limit_exceeded", _RETRY, "Too many requests."),
    "overloaded": (503, "server_error", "overloaded", _RETRY, "The server is overloaded."),
    "timeout": (504, "server_error", "timeout", (), "The request took too long."),
    "engine": (500, "server_error", "engine_error", (), "The engine failed."),
    "cancelled": (503, "server_error", "cancelled", _RETRY, "The request was cancelled by the server."),
    "client_closed": (499, "server_error", "client_closed", (), "The client closed the connection."),
}


def error_chunk(kind: FailureKind, message: str, code: str | None = None, param: str | None = None) -> ErrorChunk:
    """The protocol's error object, with the HTTP status and headers it has where no byte was sent yet.

    ``retry-after`` (seconds) goes with 429 and 503, ``x-should-retry: false`` with what a retry cannot mend.
    """
    status, error_type, usual_code, headers, usual_message = _ERRORS[kind]
    body: dict[str, Any] = {
        "message": message or usual_message, "type": error_type, "param": param,
        "code": usual_code if code is None else code,
    }  # fmt: skip
    return ErrorChunk(status, {"error": body}, headers)


_KINDS: dict[int, FailureKind] = {
    400: "bad_request", 401: "unauthorized", 403: "unauthorized", 404: "not_found", 408: "timeout", 413: "too_large",
    422: "bad_request", 429: "rate_limited", 503: "overloaded", 504: "timeout", 529: "overloaded",
}  # fmt: skip


_TYPES: dict[str, FailureKind] = {
    "invalid_request_error": "bad_request", "requests": "rate_limited", "tokens": "rate_limited",
    "insufficient_quota": "rate_limited", "authentication_error": "unauthorized", "server_error": "engine",
}  # fmt: skip


def failure_of(chunk: ErrorChunk) -> Failure:
    """The failure that an error object, ours or another server's, tells of. Of one of ours, ``error_chunk`` makes the
    same object again."""
    error = chunk.body.get("error", {})
    kind, code = error.get("type"), error.get("code")
    told: FailureKind = _KINDS.get(chunk.status) or _TYPES.get(kind) or "engine"
    for name, (_, its_type, its_code, *_) in _ERRORS.items():
        # That the client is gone, no server tells the client.
        if (its_type, its_code) == (kind, code) and name != "client_closed":
            told = name
            break
    return Failure(told, error.get("message") or "", code, error.get("param"))


# --- GET /v1/models -------------------------------------------------------------------------------------------------


class Model(msgspec.Struct, frozen=True):
    """``created``: unix s; ``max_model_len``: tokens, prompt and completion together."""

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "playhead"
    max_model_len: int | UnsetType = UNSET


class ModelList(msgspec.Struct, frozen=True):
    """The answer to ``GET /v1/models``."""

    object: Literal["list"] = "list"
    data: tuple[Model, ...] = ()


def model_list(names: Iterable[str], created: int, max_tokens: int | None = None) -> ModelList:
    """The served models. ``created``: unix s; ``max_tokens``: their context length."""
    length = UNSET if max_tokens is None else max_tokens
    return ModelList(data=tuple(Model(name, created=created, max_model_len=length) for name in names))
