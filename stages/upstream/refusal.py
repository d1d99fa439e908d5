"""What a client hears of an upstream's failure, in its own protocol: the whole answer, or the end of its stream.

chat, completions   {"error": …}; in a stream then ``[DONE]``
responses           {"error": …}; in a stream an ``error`` event that has the nested error beside the flat one:
                    the official SDKs raise on the nested one only
messages            {"type": "error", …}; in a stream the open content block is closed first
"""

from __future__ import annotations

from typing import Any, Final

from stages.events import Block, Done, ErrorChunk, ErrorInput, FailureKind, Frame, Head
from stages.opening import Opening
from stages.protocols.anthropic import error_type
from stages.protocols.lenient import as_object, is_int, value_of
from stages.protocols.openai_chat import error_chunk, failure_of
from stages.sse import FRAMER, ChunkLayer, FramerSnapshot, Phase, SseDecoder
from stages.stage import fold

OVER: Final = frozenset(
    ("message_stop", "error", "response.completed", "response.incomplete", "response.failed"),
)
"""Types of the events behind which nothing follows."""
_STREAM: Final = FramerSnapshot(Phase.STREAM)


def answer(opening: Opening, failure: ErrorInput, head: Head | None = None) -> list[Frame]:
    """Head and body of a failure before anything was sent. ``head``: of the response that it takes the place of, whose
    status and headers stay, but for those that describe its body."""
    chunk = error_chunk(failure.kind, failure.message, failure.code, failure.param)
    if head is not None:
        chunk = ErrorChunk(head.status, chunk.body)
    elif failure.kind == "engine" and (failure.code or "").startswith("upstream_"):
        chunk = ErrorChunk(502, chunk.body)
    if opening.protocol == "messages":
        body = {"type": "error", "error": _in_messages(chunk, failure.kind), "request_id": opening.response_id}
        chunk = ErrorChunk(chunk.status, body, chunk.headers)
    made, *body_of = fold(FRAMER.start(opening), [chunk])
    if head is not None and isinstance(made, Head):
        kept = tuple(item for item in head.headers if not _tells_of_body(item[0]))
        names = {name for name, _ in kept}
        made = Head(head.status, (*(item for item in made.headers if item[0] not in names), *kept))
    return [made, *body_of]


def refusal(opening: Opening, head: Head, why: str) -> list[Frame]:
    """Head and body in the place of a response that is none of the protocol's. Its status stays if it is an error's."""
    status = head.status
    if not 400 <= status < 600:
        return answer(opening, ErrorInput("engine", why, "upstream_protocol"), Head(502, head.headers))
    kind = failure_of(ErrorChunk(status, {"error": {}})).kind
    if kind == "engine" and status < 500:
        kind = "bad_request"
    return answer(opening, ErrorInput(kind, why, "upstream_status"), head)


def broken_off(opening: Opening, failure: ErrorInput, last: bytes, content_block: int) -> list[Block]:
    """The end of a stream that fails. ``last``: its last block so far; ``content_block``: the index of the one that is
    open (messages protocol), or -1. Nothing where the stream had come to its end."""
    told = event_of(last)
    if told is None or told.get("error") or told.get("type") in OVER:
        return []
    chunk = error_chunk(failure.kind, failure.message, failure.code, failure.param)
    if opening.protocol == "messages":
        events: list[dict[str, Any]] = [{"type": "error", "error": _in_messages(chunk, failure.kind)}]
        if content_block >= 0:
            events.insert(0, {"type": "content_block_stop", "index": content_block})
        return [_named(opening, event) for event in events]
    if opening.protocol == "responses":
        said = chunk.body["error"]
        number = told.get("sequence_number")
        return [_named(opening, {
            "type": "error", "sequence_number": number + 1 if is_int(number) else 0, "code": said["code"],
            "message": said["message"], "param": said["param"], "error": said,
        })]  # fmt: skip
    return _blocks(opening, chunk, Done())


def content_block_after(block: bytes, index: int) -> int:
    """The index of the content block (messages protocol) that is open after ``block``, or -1. ``index``: before it."""
    if b"content_block_st" not in block:
        return index
    told = event_of(block) or {}
    if told.get("type") == "content_block_stop":
        return -1
    opened = told.get("index") if told.get("type") == "content_block_start" else None
    return opened if is_int(opened) else index


def error_of(body: bytes) -> bytes | None:
    """The JSON of an error that is told as an event of a stream; None where ``body`` is no such stream."""
    for event in SseDecoder().feed(body):
        if as_object(value_of(event.data)).get("error"):
            return event.data.encode()
    return None


def event_of(block: bytes) -> dict[str, Any] | None:
    """The JSON object of a block, empty if it has none; None where the block is the end of a stream."""
    events = SseDecoder().feed(block)
    data = events[-1].data if events else ""
    return None if data.strip() == "[DONE]" else as_object(value_of(data))


def _in_messages(chunk: ErrorChunk, kind: FailureKind) -> dict[str, Any]:
    return {"type": error_type(kind, chunk.status), "message": chunk.body["error"]["message"]}


def _named(opening: Opening, event: dict[str, Any]) -> Block:
    """An event under the name of its type."""
    (block,) = _blocks(opening, ErrorChunk(200, event))
    return Block(b"event: %b\n%b" % (event["type"].encode(), block.data))


def _blocks(opening: Opening, *chunks: ChunkLayer) -> list[Block]:
    return [frame for frame in fold(FRAMER.resume(opening, _STREAM), chunks) if isinstance(frame, Block)]


def _tells_of_body(name: str) -> bool:
    return name.startswith("content-") or name in ("etag", "last-modified", "accept-ranges", "digest")
