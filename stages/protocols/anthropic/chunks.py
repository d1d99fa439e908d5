"""The objects of the messages protocol as it is on the wire, and the error object.

``usage`` and ``stop_sequence`` are always told, null where there is nothing: clients read them without asking whether
they are there. Events have the names of their types.
"""

from __future__ import annotations

from typing import Any, ClassVar, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from stages.events import ErrorChunk, FailureKind
from stages.protocols.lenient import written
from stages.strict import parse

_encode = msgspec.json.Encoder().encode


class OutputDetails(msgspec.Struct, frozen=True, gc=False):
    """Of ``output_tokens``."""

    thinking_tokens: int = 0


class MessageUsage(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Token counts, totals so far. ``input_tokens`` are without those that a cache had (``cache_read…``), or got
    (``cache_creation…``); absent: as told before."""

    input_tokens: int | UnsetType = UNSET
    cache_creation_input_tokens: int | UnsetType = UNSET
    cache_read_input_tokens: int | UnsetType = UNSET
    output_tokens: int
    output_tokens_details: OutputDetails | UnsetType = UNSET


# --- blocks ---------------------------------------------------------------------------------------------------------


class TextBlock(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="text"):
    """Answer text."""

    text: str = ""


class ThinkingBlock(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="thinking"):
    """Reasoning. ``signature``: opaque; clients give it back."""

    thinking: str = ""
    signature: str = ""


class ToolUseBlock(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="tool_use"):
    """A call. ``input``: JSON text of an object; on the wire it is that object."""

    id: str
    name: str
    input: str = "{}"


Block: TypeAlias = TextBlock | ThinkingBlock | ToolUseBlock


class TextDelta(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="text_delta"):
    """More text."""

    text: str


class ThinkingDelta(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="thinking_delta"):
    """More reasoning."""

    thinking: str


class SignatureDelta(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="signature_delta"):
    """The signature, whole; the last delta of a thinking block."""

    signature: str


class InputDelta(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="input_json_delta"):
    """More of a call's input, as JSON text."""

    partial_json: str


Delta: TypeAlias = TextDelta | ThinkingDelta | SignatureDelta | InputDelta


def block_wire(block: Block) -> bytes:
    """A block as JSON."""
    if isinstance(block, ToolUseBlock):
        head = _encode({"type": "tool_use", "id": block.id, "name": block.name})
        return b'%b,"input":%b}' % (head[:-1], block.input.encode())
    return _encode(block)


def input_of(text: str) -> str | None:
    """Arguments as a line of strict JSON; None where they are no JSON object. No text stands for an empty one."""
    value, problem = parse(text or "{}")
    if not isinstance(value, dict):
        return None
    if problem is None:
        return msgspec.json.format(text or "{}", indent=-1)
    # Keys that stand twice, halves of surrogate pairs: what is not strict is written anew.
    return written(value) or None


# --- events ---------------------------------------------------------------------------------------------------------


class Chunklike(msgspec.Struct, frozen=True, gc=False, tag_field="type"):
    """What the events of a stream share. ``event``: its name; a body has none."""

    whole: ClassVar[bool] = False
    event: ClassVar[str] = ""

    def wire(self) -> bytes:
        """One line of JSON. Raises UnicodeEncodeError on unpaired surrogates, which no parser sends."""
        return _encode(self)


class MessageBody(Chunklike, frozen=True, gc=False, tag="message"):
    """A message: the answer to a request that does not stream, and what ``message_start`` begins with."""

    whole: ClassVar[bool] = True

    id: str
    model: str
    content: tuple[Block, ...] = ()
    stop_reason: str | None = None
    stop_sequence: str | None = None
    usage: MessageUsage = MessageUsage(input_tokens=0, output_tokens=0)
    role: str = "assistant"

    def wire(self) -> bytes:
        """One line of JSON. Raises UnicodeEncodeError on unpaired surrogates, which no parser sends."""
        head = _encode({"id": self.id, "type": "message", "role": self.role, "model": self.model})
        blocks = b",".join(map(block_wire, self.content))
        ending = {"stop_reason": self.stop_reason, "stop_sequence": self.stop_sequence, "usage": self.usage}
        return b'%b,"content":[%b],%b' % (head[:-1], blocks, _encode(ending)[1:])


class MessageStart(Chunklike, frozen=True, gc=False, tag="message_start"):
    """The first event. ``message``: an empty one."""

    event: ClassVar[str] = "message_start"

    message: MessageBody

    def wire(self) -> bytes:
        """One line of JSON. Raises UnicodeEncodeError on unpaired surrogates, which no parser sends."""
        return b'{"type":"message_start","message":%b}' % self.message.wire()


class BlockStart(Chunklike, frozen=True, gc=False, tag="content_block_start"):
    """A block begins, empty. ``index``: how many blocks came before it."""

    event: ClassVar[str] = "content_block_start"

    index: int
    content_block: Block

    def wire(self) -> bytes:
        """One line of JSON. Raises UnicodeEncodeError on unpaired surrogates, which no parser sends."""
        block = block_wire(self.content_block)
        return b'{"type":"content_block_start","index":%d,"content_block":%b}' % (self.index, block)


class BlockDelta(Chunklike, frozen=True, gc=False, tag="content_block_delta"):
    """More of the open block."""

    event: ClassVar[str] = "content_block_delta"

    index: int
    delta: Delta


class BlockStop(Chunklike, frozen=True, gc=False, tag="content_block_stop"):
    """The open block is over."""

    event: ClassVar[str] = "content_block_stop"

    index: int


class Stopped(msgspec.Struct, frozen=True, gc=False):
    """Why the message ended. ``stop_sequence``: the stop string, if one ended it."""

    stop_reason: str | None
    stop_sequence: str | None = None


class MessageDelta(Chunklike, frozen=True, gc=False, tag="message_delta"):
    """After the last block."""

    event: ClassVar[str] = "message_delta"

    delta: Stopped
    usage: MessageUsage


class MessageStop(Chunklike, frozen=True, gc=False, tag="message_stop"):
    """The last event."""

    event: ClassVar[str] = "message_stop"


class ErrorDetail(msgspec.Struct, frozen=True, gc=False):
    """An error."""

    type: str
    message: str


class ErrorEvent(Chunklike, frozen=True, gc=False, tag="error"):
    """An error in a stream: nothing follows it."""

    event: ClassVar[str] = "error"

    error: ErrorDetail


Chunk: TypeAlias = (
    MessageBody | MessageStart | BlockStart | BlockDelta | BlockStop | MessageDelta | MessageStop | ErrorEvent
)


# --- errors ---------------------------------------------------------------------------------------------------------

_RETRY: tuple[tuple[str, str], ...] = (("retry-after", "1"),)
_FINAL: tuple[tuple[str, str], ...] = (("x-should-retry", "false"),)

# kind → HTTP status, type, headers, message where the failure has none
_ERRORS: dict[FailureKind, tuple[int, str, tuple[tuple[str, str], ...], str]] = {
    "bad_request": (400, "invalid_request_error", _FINAL, "The request is invalid."),
    "unauthorized": (401, "authentication_error", _FINAL, "The API key is wrong or missing."),
    "not_found": (404, "not_found_error", _FINAL, "There is no such model."),
    "too_large": (413, "request_too_large", _FINAL, "The request body is too large."),
    "rate_limited": (429, "rate_limit_error", _RETRY, "Too many requests."),
    "overloaded": (503, "overloaded_error", _RETRY, "The server is overloaded."),
    "timeout": (504, "timeout_error", (), "The request took too long."),
    "engine": (500, "api_error", (), "The engine failed."),
    "cancelled": (503, "overloaded_error", _RETRY, "The request was cancelled by the server."),
    "client_closed": (499, "api_error", (), "The client closed the connection."),
}

# HTTP status → type, where that says more than the kind. Of a status that is in neither table, the type is that of its
# kind: invalid_request_error for all others from 400 to 499.
_BY_STATUS: dict[int, str] = {
    402: "billing_error", 403: "permission_error", 408: "timeout_error", 409: "conflict_error",
}  # fmt: skip


def error_type(kind: FailureKind, status: int) -> str:
    """What the protocol calls an error that is answered with this HTTP status."""
    return _BY_STATUS.get(status) or _ERRORS[kind][1]


def error_body(chunk: ErrorChunk, status: int, request_id: str) -> dict[str, Any]:
    """The body of an error of ours that is answered with this HTTP status, which may be another than its kind's."""
    error: dict[str, Any] = chunk.body["error"]
    error_type = _BY_STATUS.get(status, error["type"])
    return {**chunk.body, "error": {**error, "type": error_type}, "request_id": request_id}


def error_chunk(kind: FailureKind, message: str, code: str | None = None, param: str | None = None) -> ErrorChunk:
    """The protocol's error object, with the HTTP status and headers it has where no byte was sent yet. It has no place
    for a code, and the message names the field.

    ``retry-after`` (seconds) goes with 429 and 503, ``x-should-retry: false`` with what a retry cannot mend.
    """
    status, error_type, headers, usual = _ERRORS[kind]
    body: dict[str, Any] = {"type": "error", "error": {"type": error_type, "message": message or usual}}
    return ErrorChunk(status, body, headers)


def error_event(kind: FailureKind, message: str) -> ErrorEvent:
    """The same error in a stream that has begun."""
    _, error_type, _, usual = _ERRORS[kind]
    return ErrorEvent(ErrorDetail(error_type, message or usual))
