"""Responses that somebody recorded: an event stream, alone or behind its HTTP head, and which protocol it speaks."""

from __future__ import annotations

import re
from typing import Any

import h11
import msgspec

from stages.protocols.rules import Http, Protocol
from stages.protocols.rules.reading import Reading

_STATUS = re.compile(rb"HTTP/(\d(?:\.\d)?) (\d{3})(?=[ \r\n])")
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_CHUNK = re.compile(rb"[0-9A-Fa-f]+[ \t]*(?:;[^\r\n]*)?\r\n")
_MAX_HEAD = 1 << 20
_LOOKED_AT = 1 << 16
"""Bytes of a body in which its protocol is looked for."""
_OBJECTS: dict[object, Protocol] = {
    "chat.completion.chunk": "chat", "chat.completion": "chat", "text_completion": "completions",
    "response": "responses",
}  # fmt: skip
_MESSAGES = frozenset(
    (
        "message_start", "message_delta", "message_stop", "content_block_start", "content_block_delta",
        "content_block_stop", "ping", "message",
    )
)  # fmt: skip


class BadResponse(Exception):
    """It begins as an HTTP response and is none; the message tells why."""


class Response(msgspec.Struct, frozen=True):
    """A recorded response. ``http``: its head, where there is one; ``cut``: the recording ends before the body does."""

    body: bytes
    http: Http | None = None
    cut: bool = False


def read_response(data: bytes) -> Response:
    """A body as it is, or an HTTP response: head and body, its chunks still framed or (``curl -i``) already joined. Of
    several heads (an interim response, a proxy's) the last counts. Raises BadResponse."""
    http: Http | None = None
    while (status := _STATUS.match(data)) is not None:
        end = _HEAD_END.search(data)
        if end is None:
            raise BadResponse("the HTTP head does not end: there is no empty line")
        headers = _headers(b"HTTP/1.1" + data[status.end(1) : end.end()])
        http = Http(int(status[2]), headers, version=status[1].decode())
        data = data[end.end() :]
    if http is None:
        return Response(data)
    framing = ",".join(value for name, value in http.headers if name == "transfer-encoding")
    if "chunked" in framing.lower() and _CHUNK.match(data):
        body, cut = _unchunked(data)
        return Response(body, http, cut)
    promised = next((int(value) for name, value in http.headers if name == "content-length"), 0)
    return Response(data, http, len(data) < promised)


def _headers(head: bytes) -> tuple[tuple[str, str], ...]:
    try:
        reader = _reader()
        reader.receive_data(head)
        event = reader.next_event()
    except h11.RemoteProtocolError as error:
        raise BadResponse(f"no HTTP head: {error}") from error
    found: list[tuple[bytes, bytes]] = list(getattr(event, "headers", ()))
    return tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in found)


def _unchunked(data: bytes) -> tuple[bytes, bool]:
    """The body, and whether it was cut."""
    reader = _reader()
    reader.receive_data(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + data)
    parts: list[bytes] = []
    while True:
        try:
            event = reader.next_event()
        except h11.RemoteProtocolError:
            return b"".join(parts), True
        if isinstance(event, h11.Data):
            parts.append(bytes(event.data))
        elif not isinstance(event, h11.Response):
            return b"".join(parts), not isinstance(event, h11.EndOfMessage)


def _reader() -> h11.Connection:
    reader = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_HEAD)
    reader.send(h11.Request(method="POST", target="/", headers=[("host", "x")]))
    reader.send(h11.EndOfMessage())
    return reader


def protocol_in(body: bytes, request: dict[str, Any] | None = None) -> Protocol | None:
    """The protocol of a body, by the first of its objects that tells; else by the request; None: nothing tells."""
    begin = body[:_LOOKED_AT]
    for event, value in Reading(begin).chunks:
        found = _protocol(value, event.name)
        if found is not None:
            return found
    if body.lstrip()[:1] == b"{":
        try:
            found = _protocol(msgspec.json.decode(body, type=dict[str, Any]), None)
        except (msgspec.DecodeError, RecursionError):
            found = None
        if found is not None:
            return found
    if request is not None:
        return "responses" if "input" in request else "completions" if "prompt" in request else None
    return None


def _protocol(value: dict[str, Any], name: str | None) -> Protocol | None:
    of, kind = value.get("object"), value.get("type", name)
    if isinstance(of, str) and of in _OBJECTS:
        return _OBJECTS[of]
    if isinstance(kind, str):
        if kind.startswith("response."):
            return "responses"
        if kind in _MESSAGES:
            return "messages"
        if kind == "error":
            return "messages" if isinstance(value.get("error"), dict) else "responses"
    choices = value.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        return "chat" if "delta" in choices[0] or "message" in choices[0] else "completions"
    return None
