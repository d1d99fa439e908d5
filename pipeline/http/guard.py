"""What arrives on a connection before there is a request: limits on its head, and answers to what is no HTTP.

uvicorn reads a head of any size for as long as it takes, and answers what it cannot read with a line of text. Here a
head has a limit of bytes and of time, and whoever sends something else is told in the protocol's error body. What a
client sends before it has its answer waits, so that it spoils no answer; and that the client leaves is noticed still.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from typing import ClassVar, Literal, cast

import httptools
import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from pipeline import ids
from stages import catalog

HEAD_LIMIT = 64 * 1024
"""Bytes of a request's line and headers; and about as many may wait behind a request that is not answered yet."""
PIECE = 8 * 1024
"""Bytes that are parsed at once: what holds more requests than one waits as bytes, which are small."""
TOO_LARGE = f"The request line and headers are larger than the {HEAD_LIMIT} bytes that this server takes."
NO_HTTP = "This is no HTTP/1.1 request that this server can read."


class Guarded(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 protocol, guarded. ``patience``: seconds that a head may take to arrive, and what is left of a
    body whose request was answered before it was whole."""

    patience: ClassVar[float] = 60.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        super().connection_made(cast(asyncio.Transport, transport))
        self._at: Literal["between", "head", "body"] = "between"
        """Of which part of a request the next byte is."""
        self._count = 0
        """Requests that have begun to arrive."""
        self._head = 0
        """Bytes of the head that is on its way, as far as they came in reads of their own."""
        self._upgrade = False
        """The head that was just read asks for another protocol."""
        self._running: RequestResponseCycle | None = None
        """The request that is answered now, or was last."""
        self._ahead = bytearray()
        """What came while a request was being answered."""
        self._refusal: bytes | None = None
        """The answer to what cannot be read, behind those that are due."""
        self._deadline: asyncio.TimerHandle | None = None
        self._await_more()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._more_is_here()
        super().connection_lost(exc)
        # uvicorn tells the request that came last, which may be waiting behind this one.
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self._unset_keepalive_if_required()
        for at in range(0, len(data), PIECE):
            if self._refusal is not None or self.transport.is_closing():
                return
            if self._busy:
                self._ahead += data[at:]
                if len(self._ahead) > HEAD_LIMIT:
                    self.flow.pause_reading()
                return
            self._feed(data[at : at + PIECE])
        if self._at == "between" and not self._busy:
            # Blank lines, or the end of a body that nobody wanted: the connection is as idle as before.
            self._await_more()

    def _feed(self, data: bytes) -> None:
        alone = {"between": self._count + 1, "head": self._count, "body": 0}[self._at]
        """The request of which this may hold a piece of the head, and nothing else."""
        readable = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            readable = self._upgrade  # else it is CONNECT, and what follows is for nobody here
            if self._upgrade:
                self._upgrade = False
                self._feed(self._head_without_upgrade() + data[upgrade.args[0] :])
                return
        except httptools.HttpParserError:
            readable = False
        if self._at == "head" and self._count == alone:
            self._head += len(data)
        if self._at == "head" and self._head > HEAD_LIMIT:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, TOO_LARGE, "headers_too_large")
        elif not readable:
            self._refuse(HTTPStatus.BAD_REQUEST, NO_HTTP, "invalid_http")

    def _head_without_upgrade(self) -> bytes:
        """Who asks for another protocol is answered in this one. The parser takes such a request to have no body, and
        may take it for the last: another one reads it again, without the wish."""
        parser, self.parser = self._parser, httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's own
        line = b"%b %b HTTP/%b\r\n" % (parser.get_method(), self.url, parser.get_http_version().encode())
        fields = [b"%b: %b\r\n" % header for header in self.headers if header[0] != b"upgrade"]
        return b"".join([line, *fields, b"\r\n"])

    @property
    def _parser(self) -> httptools.HttpRequestParser:
        parser: httptools.HttpRequestParser | None = self.parser
        assert parser is not None  # before the connection is lost
        return parser

    @property
    def _busy(self) -> bool:
        """A whole request is being answered."""
        running = self._running
        return running is not None and not (running.response_complete or running.more_body)

    def on_message_begin(self) -> None:
        """See httptools."""
        super().on_message_begin()
        self._at = "head"
        self._count += 1
        self._head = 0
        self._await_more()

    def on_header(self, name: bytes, value: bytes) -> None:
        """See httptools."""
        # A trailer is none of the request's headers (RFC 9110, 6.5.1): uvicorn would put it among them.
        if self._at == "head":
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """See httptools."""
        if self._parser.should_upgrade() and self._parser.get_method() != b"CONNECT":
            self._upgrade = True
            return
        self._more_is_here()
        super().on_headers_complete()
        self._at = "body"
        if self.expect_100_continue:
            # A client that waits to be told to go on, and is refused instead, may send its body or not: nobody could
            # tell it from a next request.
            self.cycle.keep_alive = False
        if self.pipeline:
            # uvicorn reads no further while a request waits, and so would not notice that the client leaves.
            self.flow.resume_reading()
        else:
            self._running = self.cycle

    def on_message_complete(self) -> None:
        """See httptools."""
        if not self._upgrade:
            self._more_is_here()
            self._at = "between"
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """See uvicorn, which now starts the request that has waited longest."""
        if self.pipeline:
            self._running = self.pipeline[-1][0]
        super().on_response_complete()
        if self._busy or self.transport.is_closing():
            return
        if self._refusal is not None:
            self.transport.write(self._refusal)
            self.transport.close()
        elif self._ahead:
            data, self._ahead = bytes(self._ahead), bytearray()
            self.data_received(data)
        elif self._at == "body":
            self._await_more()

    def _await_more(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(self.patience, self._too_late)

    def _more_is_here(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_late(self) -> None:
        self._deadline = None
        if self._busy:
            # It may be here, and waits.
            self._await_more()
        elif self._at == "head":
            seconds = f"{self.patience:g} second{'' if self.patience == 1 else 's'}"
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, f"The headers did not arrive within {seconds}.", "request_timeout")
        else:
            self.transport.close()

    def _refuse(self, status: HTTPStatus, message: str, code: str) -> None:
        """Answer what is no request, when its turn comes, and close."""
        self._more_is_here()
        running = self._running
        path, _, _ = self.url.partition(b"?")
        # Between requests it is that of the one before.
        protocol = catalog.protocol_at("" if self._at == "between" else path.decode("latin-1"))
        answer = _answer(status, message, code, protocol)
        if self._busy:
            self._refusal = answer
            return
        answered = self._at == "body" and running is not None and running.response_started
        # What cannot be read is the rest of a request that has its answer: there is no place for another.
        if not (answered or self.transport.is_closing()):
            self.transport.write(answer)
        self.transport.close()


def _answer(status: HTTPStatus, message: str, code: str, protocol: str) -> bytes:
    body = msgspec.json.encode(catalog.PROTOCOLS[protocol].error("bad_request", message, code, None).body)
    head = f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\n"
    head += f"x-request-id: {ids.new_request_id()}\r\n"
    return f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body


class HeadLimit:
    """ASGI middleware: the same limit for a head that came in one read."""

    def __init__(self, app: ASGIApp, refused: ASGIApp) -> None:
        """``refused``: answers the requests that are over the limit."""
        self._app = app
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        app = self._refused if scope["type"] == "http" and _size(scope) > HEAD_LIMIT else self._app
        await app(scope, receive, send)


def _size(scope: Mapping[str, object]) -> int:
    headers = cast("list[tuple[bytes, bytes]]", scope["headers"])
    path, query = cast(bytes, scope.get("raw_path", b"")), cast(bytes, scope.get("query_string", b""))
    return len(path) + len(query) + sum([len(name) + len(value) + 4 for name, value in headers])
