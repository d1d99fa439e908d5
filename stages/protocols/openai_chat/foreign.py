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

from typing import Any, Final

from msgspec import UNSET, UnsetType

from stages.events import CommonChunk, Done, ErrorChunk
from stages.protocols.lenient import (
    as_count,
    as_float,
    as_int,
    as_ints,
    as_object,
    as_objects,
    as_text,
    each,
    is_int,
    or_unset,
    value_of,
    written,
)
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

MALFORMED: Final = "malformed_event"
"""The code of the error that an unreadable event becomes."""
_FLOOR: Final = -9999.0
_LONGEST: Final = 1e12
"""ms."""


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
    value = value_of(text)
    return _malformed("The stream has an event that is no JSON.") if value is UNSET else chunk_of(value)


def chunk_of(value: Any) -> ChatChunk | ErrorChunk:
    """One event's JSON value."""
    if not isinstance(value, dict):
        return _malformed("The stream has an event that is no JSON object.")
    wire = as_object(value)
    if wire.get("error") or wire.get("object") == "error":
        return _error(wire)
    ids = as_ints(wire.get("prompt_token_ids"))
    return ChatChunk(
        as_text(wire.get("id")) or "",
        as_int(wire.get("created")) or 0,
        as_text(wire.get("model")) or "",
        as_text(wire.get("system_fingerprint")),
        tuple(_choice(place, choice) for place, choice in enumerate(as_objects(wire.get("choices")))),
        _usage(wire.get("usage")) if "usage" in wire else UNSET,
        UNSET if ids is None else ids,
        _metrics(wire.get("metrics")),
    )


# --- choices ----------------------------------------------------------------------------------------------------------


def _choice(place: int, wire: dict[str, Any]) -> ChunkChoice:
    index = as_int(wire.get("index"))
    stop = wire.get("stop_reason", wire.get("matched_stop"))
    ids = as_ints(wire.get("token_ids"))
    return ChunkChoice(
        place if index is None or index < 0 else index,
        _delta(as_object(wire.get("delta"))),
        _logprobs(as_object(wire.get("logprobs"))),
        as_text(wire.get("finish_reason")) or None,
        stop if is_int(stop) else or_unset(as_text(stop)),
        ids or UNSET,
    )


def _delta(wire: dict[str, Any]) -> Delta:
    entries = [_entry(entry, _index(entry)) for entry in as_objects(wire.get("tool_calls"))]
    legacy = wire.get("function_call")
    if isinstance(legacy, dict):
        entries.append(_entry({"function": legacy}, -1))
    return Delta(
        or_unset(as_text(wire.get("role"))),
        or_unset(_content(wire.get("content"))),
        or_unset(as_text(wire.get("refusal"))),
        or_unset(as_text(wire.get("reasoning"))),
        or_unset(as_text(wire.get("reasoning_content"))),
        tuple(entries) or UNSET,
    )


def _content(value: Any) -> str | None:
    if isinstance(value, list):
        return "".join(as_text(part.get("text")) or "" for part in as_objects(value))
    return as_text(value)


def _index(wire: dict[str, Any]) -> int:
    index = as_int(wire.get("index"))
    return -1 if index is None or index < 0 else index


def _entry(wire: dict[str, Any], index: int) -> ToolCallDelta:
    function = as_object(wire.get("function"))
    arguments = function.get("arguments")
    text = written(as_object(arguments)) if isinstance(arguments, dict) else as_text(arguments)
    return ToolCallDelta(
        index,
        or_unset(as_text(wire.get("id"))),
        or_unset(as_text(wire.get("type"))),
        FunctionDelta(or_unset(as_text(function.get("name"))), or_unset(text)),
    )


# --- logprobs ---------------------------------------------------------------------------------------------------------


def _logprobs(wire: dict[str, Any]) -> ChoiceLogprobs | None:
    content = each(wire.get("content"), _logprob)
    refusal = each(wire.get("refusal"), _logprob)
    return None if content is None and refusal is None else ChoiceLogprobs(content, refusal)


def _logprob(wire: dict[str, Any]) -> LogprobEntry:
    top = _top(wire)
    return LogprobEntry(top.token, top.logprob, top.bytes, each(wire.get("top_logprobs"), _top) or ())


def _top(wire: dict[str, Any]) -> TopEntry:
    logprob = as_float(wire.get("logprob"))
    # Not a number and minus infinity fail the comparison.
    number = logprob if logprob is not None and logprob > _FLOOR else _FLOOR
    return TopEntry(as_text(wire.get("token")) or "", number, _bytes(wire.get("bytes")))


def _bytes(value: Any) -> tuple[int, ...] | None:
    found = as_ints(value)
    return found if found is not None and all(0 <= byte < 256 for byte in found) else None


# --- usage, metrics, errors -------------------------------------------------------------------------------------------


def _usage(value: Any) -> CompletionUsage | None:
    if not isinstance(value, dict):
        return None
    wire = as_object(value)
    prompt, completion = as_count(wire.get("prompt_tokens")), as_count(wire.get("completion_tokens"))
    total = as_int(wire.get("total_tokens"))
    spent, sent = wire.get("completion_tokens_details"), wire.get("prompt_tokens_details")
    reasoning = as_object(spent).get("reasoning_tokens", wire.get("reasoning_tokens"))
    return CompletionUsage(
        prompt,
        completion,
        prompt + completion if total is None else total,
        UNSET if spent is None and reasoning is None else CompletionDetails(as_count(reasoning)),
        UNSET if sent is None else PromptDetails(as_count(as_object(sent).get("cached_tokens"))),
    )


def _metrics(value: Any) -> Metrics | UnsetType:
    if not isinstance(value, dict):
        return UNSET
    wire = as_object(value)
    found = {name: as_float(wire.get(name)) for name in TIMINGS.values()}
    # Not a number fails the comparison; no time is so long that its nanoseconds fill 64 bits.
    return Metrics(**{name: ms for name, ms in found.items() if ms is not None and 0 <= ms < _LONGEST})


def _malformed(message: str) -> ErrorChunk:
    return error_chunk("engine", message, MALFORMED)


def _error(wire: dict[str, Any]) -> ErrorChunk:
    said = wire.get("error") or wire
    error = {"message": said} if isinstance(said, str) else as_object(said)
    code = error.get("code")
    status = as_int(code)
    body = {
        "message": as_text(error.get("message")) or "The stream has an error.",
        "type": as_text(error.get("type")) or "server_error",
        "param": as_text(error.get("param")),
        "code": str(code) if is_int(code) else as_text(code),
    }
    return ErrorChunk(status if status is not None and 400 <= status < 600 else 500, {"error": body})
