"""Reading a stream as a client does: event text → chunks, whoever wrote it.

Nothing is refused. A key that is missing, null or of the wrong type is passed over, unknown keys too; what other
servers call by another name is taken under ours:

    reasoning, reasoning_content             both are kept
    matched_stop                             stop_reason
    function_call in a delta                 a call without index and id
    arguments that are an object             its JSON text
    content that is a list of parts          the text of its text parts
    NaN, -Infinity                           the lowest logprob
    half of a surrogate pair                 U+FFFD
    no index on a choice or an entry         the choice's place in the list; -1 on an entry (see ``calls``)
    "error", an error text, a flat error     the nested error object
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, TypeGuard, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from stages.events import CommonChunk, Done, ErrorChunk
from stages.protocols.openai_chat.chunks import (
    TIMINGS,
    ChatChunk,
    ChoiceLogprobs,
    ChunkChoice,
    CompletionDetails,
    CompletionUsage,
    Delta,
    FunctionDelta,
    LogprobEntry,
    Metrics,
    PromptDetails,
    ToolCallDelta,
    TopEntry,
    error_chunk,
)
from stages.sse import SseDecoder
from stages.strict import parse

T = TypeVar("T")
MALFORMED: Final = "malformed_event"
"""The code of the error that an unreadable event becomes."""
_FLOOR: Final = -9999.0
_LONGEST: Final = 1e12
"""ms."""
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def chunks_in(body: bytes) -> list[ChatChunk | CommonChunk]:
    """The chunks of a whole response body. One that is a JSON object instead of events is read as one event: servers
    answer a request to stream with a bare error. Comments are not kept."""
    events = SseDecoder().feed(body)
    if not events and body.lstrip().startswith(b"{"):
        return [event_of(body.decode("utf-8", "replace"))]
    return [event_of(event.data) for event in events]


def event_of(text: str) -> ChatChunk | ErrorChunk | Done:
    """One event's text. What is no JSON object becomes an error, because something was lost there."""
    if text.strip() == "[DONE]":
        return Done()
    value: Any
    try:
        value = _decode(text)
    except (ValueError, RecursionError):
        value, _ = parse(text)
        if value is UNSET:
            return _malformed("The stream has an event that is no JSON.")
    return chunk_of(value)


def chunk_of(value: Any) -> ChatChunk | ErrorChunk:
    """One event's JSON value."""
    if not isinstance(value, dict):
        return _malformed("The stream has an event that is no JSON object.")
    wire = _object(value)
    if wire.get("error") or wire.get("object") == "error":
        return _error(wire)
    ids = _ints(wire.get("prompt_token_ids"))
    return ChatChunk(
        _text(wire.get("id")) or "",
        _int(wire.get("created")) or 0,
        _text(wire.get("model")) or "",
        _text(wire.get("system_fingerprint")),
        tuple(_choice(place, choice) for place, choice in enumerate(_objects(wire.get("choices")))),
        _usage(wire.get("usage")) if "usage" in wire else UNSET,
        UNSET if ids is None else ids,
        _metrics(wire.get("metrics")),
    )


# --- values -----------------------------------------------------------------------------------------------------------


def _text(value: Any) -> str | None:
    if not isinstance(value, str):
        return None
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return value


def _int(value: Any) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 10:
        return int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if _is_int(value) else None


def _is_int(value: Any) -> TypeGuard[int]:
    """An integer of 64 bits: what is larger no store takes."""
    return isinstance(value, int) and not isinstance(value, bool) and -(1 << 63) <= value < 1 << 63


def _float(value: Any) -> float | None:
    return float(value) if isinstance(value, float) or _is_int(value) else None


def _count(value: Any) -> int:
    number = _int(value)
    return number if number is not None and number >= 0 else 0


def _list(value: Any) -> list[Any]:
    # Not isinstance: it leaves the two type checkers with different opinions of what is inside.
    found: list[Any] = value if value.__class__ is list else []
    return found


def _object(value: Any) -> dict[str, Any]:
    found: dict[str, Any] = value if value.__class__ is dict else {}
    return found


def _objects(value: Any) -> list[dict[str, Any]]:
    return [_object(item) for item in _list(value) if isinstance(item, dict)]


def _ints(value: Any) -> tuple[int, ...] | None:
    if not isinstance(value, list):
        return None
    return tuple(item for item in _list(value) if _is_int(item))


def _set(value: T | None) -> T | UnsetType:
    return UNSET if value is None else value


# --- choices ----------------------------------------------------------------------------------------------------------


def _choice(place: int, wire: dict[str, Any]) -> ChunkChoice:
    index = _int(wire.get("index"))
    stop = wire.get("stop_reason", wire.get("matched_stop"))
    ids = _ints(wire.get("token_ids"))
    return ChunkChoice(
        place if index is None or index < 0 else index,
        _delta(_object(wire.get("delta"))),
        _logprobs(_object(wire.get("logprobs"))),
        _text(wire.get("finish_reason")) or None,
        stop if _is_int(stop) else _set(_text(stop)),
        ids or UNSET,
    )


def _delta(wire: dict[str, Any]) -> Delta:
    entries = [_entry(entry, _index(entry)) for entry in _objects(wire.get("tool_calls"))]
    legacy = wire.get("function_call")
    if isinstance(legacy, dict):
        entries.append(_entry({"function": legacy}, -1))
    return Delta(
        _set(_text(wire.get("role"))),
        _set(_content(wire.get("content"))),
        _set(_text(wire.get("refusal"))),
        _set(_text(wire.get("reasoning"))),
        _set(_text(wire.get("reasoning_content"))),
        tuple(entries) or UNSET,
    )


def _content(value: Any) -> str | None:
    if isinstance(value, list):
        return "".join(_text(part.get("text")) or "" for part in _objects(value))
    return _text(value)


def _index(wire: dict[str, Any]) -> int:
    index = _int(wire.get("index"))
    return -1 if index is None or index < 0 else index


def _entry(wire: dict[str, Any], index: int) -> ToolCallDelta:
    function = _object(wire.get("function"))
    arguments = function.get("arguments")
    text = _written(_object(arguments)) if isinstance(arguments, dict) else _text(arguments)
    return ToolCallDelta(
        index,
        _set(_text(wire.get("id"))),
        _set(_text(wire.get("type"))),
        FunctionDelta(_set(_text(function.get("name"))), _set(text)),
    )


def _written(value: dict[str, Any]) -> str:
    try:
        return _encode(value).decode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"))  # half of a surrogate pair stays an escape


# --- logprobs ---------------------------------------------------------------------------------------------------------


def _logprobs(wire: dict[str, Any]) -> ChoiceLogprobs | None:
    content = _entries(wire.get("content"), _logprob)
    refusal = _entries(wire.get("refusal"), _logprob)
    return None if content is None and refusal is None else ChoiceLogprobs(content, refusal)


def _entries(value: Any, read: Callable[[dict[str, Any]], T]) -> tuple[T, ...] | None:
    return tuple(read(item) for item in _objects(value)) if isinstance(value, list) else None


def _logprob(wire: dict[str, Any]) -> LogprobEntry:
    top = _top(wire)
    return LogprobEntry(top.token, top.logprob, top.bytes, _entries(wire.get("top_logprobs"), _top) or ())


def _top(wire: dict[str, Any]) -> TopEntry:
    logprob = _float(wire.get("logprob"))
    # Not a number and minus infinity fail the comparison.
    number = logprob if logprob is not None and logprob > _FLOOR else _FLOOR
    return TopEntry(_text(wire.get("token")) or "", number, _bytes(wire.get("bytes")))


def _bytes(value: Any) -> tuple[int, ...] | None:
    found = _ints(value)
    return found if found is not None and all(0 <= byte < 256 for byte in found) else None


# --- usage, metrics, errors -------------------------------------------------------------------------------------------


def _usage(value: Any) -> CompletionUsage | None:
    if not isinstance(value, dict):
        return None
    wire = _object(value)
    prompt, completion = _count(wire.get("prompt_tokens")), _count(wire.get("completion_tokens"))
    total = _int(wire.get("total_tokens"))
    spent, sent = wire.get("completion_tokens_details"), wire.get("prompt_tokens_details")
    reasoning = _object(spent).get("reasoning_tokens", wire.get("reasoning_tokens"))
    return CompletionUsage(
        prompt,
        completion,
        prompt + completion if total is None else total,
        UNSET if spent is None and reasoning is None else CompletionDetails(_count(reasoning)),
        UNSET if sent is None else PromptDetails(_count(_object(sent).get("cached_tokens"))),
    )


def _metrics(value: Any) -> Metrics | UnsetType:
    if not isinstance(value, dict):
        return UNSET
    wire = _object(value)
    found = {name: _float(wire.get(name)) for name in TIMINGS.values()}
    # Not a number fails the comparison; no time is so long that its nanoseconds fill 64 bits.
    return Metrics(**{name: ms for name, ms in found.items() if ms is not None and 0 <= ms < _LONGEST})


def _malformed(message: str) -> ErrorChunk:
    return error_chunk("engine", message, MALFORMED)


def _error(wire: dict[str, Any]) -> ErrorChunk:
    said = wire.get("error") or wire
    error = {"message": said} if isinstance(said, str) else _object(said)
    code = error.get("code")
    status = _int(code)
    body = {
        "message": _text(error.get("message")) or "The stream has an error.",
        "type": _text(error.get("type")) or "server_error",
        "param": _text(error.get("param")),
        "code": str(code) if _is_int(code) else _text(code),
    }
    return ErrorChunk(status if status is not None and 400 <= status < 600 else 500, {"error": body})
