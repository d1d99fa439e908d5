"""From frames to what they carry: JSON texts, typed events, errors. Shared by all that read an upstream's response.

Reading is lenient, as in ``stages.protocols.lenient``: what is not there, or of the wrong type, is passed over.
"""

from __future__ import annotations

from functools import lru_cache
from types import UnionType
from typing import Annotated, Any, Final, TypeAlias, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import UNSET, Meta, UnsetType

from stages.events import ErrorChunk, ErrorInput, Failure
from stages.protocols.lenient import as_list, as_object, as_objects, as_text, is_int, value_of
from stages.protocols.openai_chat import MALFORMED, chunk_of, failure_of
from stages.sse import SseDecoder

DONE: Final = b"[DONE]"
"""What the block carries that ends a stream of OpenAI's protocols."""
LONGEST: Final = 500
"""Characters of an error text that is no JSON and is repeated."""

Number: TypeAlias = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""What is larger no store takes."""
Count: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]


class Event(msgspec.Struct, frozen=True, gc=False):
    """What every event of a stream may have. Its subclasses name what is needed of the others; all have defaults."""

    error: msgspec.Raw | UnsetType = UNSET
    object: str = ""


E = TypeVar("E", bound=Event)
S = TypeVar("S", bound=msgspec.Struct)


def payload(block: bytes) -> bytes | None:
    """What an SSE block carries: its data lines joined, as UTF-8; None where it has none, or has no end.

    A byte order mark at its beginning is no part of it.
    """
    # Nearly all blocks: one line of one JSON object.
    if (
        block[:7] == b"data: {"
        and block.find(b"\n") == len(block) - 2
        and block[-3:] == b"}\n\n"
        and b"\r" not in block
    ):
        return block[6:-2]
    events = SseDecoder().feed(block)
    return events[0].data.encode() if events else None


def read(kind: type[E], decoder: msgspec.json.Decoder[E], data: bytes) -> E | ErrorInput:
    """A JSON text as the event that it is, or as the error that it tells. What is no JSON object is an error too: there
    something was lost."""
    try:
        event = decoder.decode(data)
    except (ValueError, RecursionError):
        pass
    else:
        if event.error is UNSET and event.object != "error":
            return event
    value = value_of(data)
    if not isinstance(value, dict):
        what = "no JSON" if value is UNSET else "no JSON object"
        return ErrorInput("engine", f"The upstream sent something that is {what}.", MALFORMED)
    wire = as_object(value)
    failure = _told(wire)
    if failure is not None:
        return as_input(failure_of(failure))
    # Half of a surrogate pair cannot be written other than as an escape.
    return salvaged(kind, as_object(_paired(wire)) if b"\\u" in data else wire)


def refusal(status: int, body: bytes) -> Failure:
    """What an answer tells that is no success. ``body``: JSON of any of the usual shapes, or a text; a page of HTML and
    the like is not repeated."""
    value = value_of(body) if body else UNSET
    wire = as_object(value)
    chunk = _told(wire)
    error: dict[str, Any] = {} if chunk is None else as_object(chunk.body["error"])
    if chunk is None:
        said = _detail(wire.get("detail")) or as_text(wire.get("message"))
        text = body.decode("utf-8", "replace").strip() if value is UNSET else ""
        error["message"] = said or (text if len(text) <= LONGEST and "<" not in text else "")
    if not error["message"]:
        error["message"] = f"The upstream answered with status {status}."
    return failure_of(ErrorChunk(status, {"error": error}))


def as_input(failure: Failure) -> ErrorInput:
    """The same failure, as what the engine said."""
    return ErrorInput(failure.kind, failure.message, failure.code, failure.param)


def _told(wire: dict[str, Any]) -> ErrorChunk | None:
    if wire.get("error") or wire.get("object") == "error":
        chunk = chunk_of(wire)
        return chunk if isinstance(chunk, ErrorChunk) else None
    return None


def _detail(value: Any) -> str:
    """FastAPI's way to tell: a text, or what is wrong where."""
    if not isinstance(value, list):
        return as_text(value) or ""
    places = [(entry.get("loc"), as_text(entry.get("msg")) or "") for entry in as_objects(value)]
    return "; ".join(f"{_place(loc)}{said}" for loc, said in places if said)


def _place(loc: Any) -> str:
    names = [str(part) if is_int(part) else as_text(part) or "" for part in as_list(loc)]
    return ".".join(names) + ": " if names else ""


# --- what is left of an event that is not as it should be -------------------------------------------------------------


def salvaged(kind: type[S], wire: dict[str, Any]) -> S:
    """The Struct, of whatever fields are right. Where a field is a Struct, or a tuple of Structs, the same again."""
    found: dict[str, Any] = {}
    for name, field, wanted in _fields(kind):
        if field in wire:
            value = _salvaged(wanted, wire[field])
            if value is not UNSET:
                found[name] = value
    return kind(**found)


def _salvaged(wanted: Any, value: Any) -> Any:
    try:
        return msgspec.convert(value, wanted)
    except (ValueError, RecursionError):
        pass
    for kind in get_args(wanted) if get_origin(wanted) in (Union, UnionType) else (wanted,):
        if isinstance(value, dict) and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            return salvaged(kind, as_object(value))
        inner = get_args(kind)[0] if get_origin(kind) is tuple else None
        if isinstance(value, list) and isinstance(inner, type) and issubclass(inner, msgspec.Struct):
            return tuple(salvaged(inner, item) for item in as_objects(value))
    return UNSET


def _paired(value: Any) -> Any:
    """The value, with U+FFFD for half of a surrogate pair."""
    if isinstance(value, dict):
        return {as_text(name): _paired(item) for name, item in as_object(value).items()}
    if isinstance(value, list):
        return [_paired(item) for item in as_list(value)]
    return as_text(value) if isinstance(value, str) else value


@lru_cache(maxsize=64)
def _fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, str, Any], ...]:
    # An error is not among them: where there is one, nothing else counts.
    fields = msgspec.structs.fields(kind)
    return tuple((field.name, field.encode_name, field.type) for field in fields if field.name != "error")
