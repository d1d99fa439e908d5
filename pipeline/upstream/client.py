"""One upstream's HTTP client: requests out, raw bytes back, every fault as an UpstreamFault.

It adds nothing and takes nothing: no decompression, no redirects, no cookies, no proxies from the environment, no
headers but host and content-length; any status is an answer. aiohttp beneath (docs/adr/0011): asyncio only.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from io import BytesIO
from math import inf
from types import SimpleNamespace
from typing import Final, Self, TypeAlias

import aiohttp
import anyio
from aiohttp.client_proto import ResponseHandler
from aiohttp.tracing import TraceConnectionReuseconnParams, TraceRequestHeadersSentParams
from multidict import CIMultiDict
from yarl import URL

from pipeline.upstream.errors import FaultCode, UpstreamFault
from pipeline.upstream.headers import Headers
from pipeline.upstream.settings import Base, UpstreamSettings

RequestBody: TypeAlias = bytes | AsyncIterator[bytes]
Ended: TypeAlias = Callable[[str], None]
"""Called once when an exchange is over: with ``ok``, ``aborted`` or a fault's code."""
MAX_HEAD: Final = 64 * 1024
"""Bytes of the status line, and of one header field."""
MAX_HEADERS: Final = 256
BUFFER: Final = 64 * 1024
"""Bytes of a response that wait to be read before its sender has to; twice that at most."""
KEEP_ALIVE: Final = 4.0
"""Seconds that an idle connection is kept: less than servers do (5), or the next request meets one that just closes."""
LARGE: Final = 1 << 20
"""Bytes of a request's body from which on it is written piece by piece."""
LOOK: Final = 1.0
"""Seconds between two looks at a response that does not go on."""
_NOTHING_ADDED: Final = ("user-agent", "accept", "accept-encoding", "content-type")


class Client:
    """Requests to one upstream over a pool of connections; an async context manager."""

    def __init__(self, settings: UpstreamSettings) -> None:
        self.settings = settings
        self._base = Base(settings.url)
        self._name = f"The upstream {settings.name!r}"
        self.busy = 0
        """Requests that wait for their response, or whose response is not over."""

    async def __aenter__(self) -> Self:
        sent = aiohttp.TraceConfig()
        sent.on_request_headers_sent.append(_on_sent)
        sent.on_connection_reuseconn.append(_on_reused)
        limit = self.settings.connections
        self._session = self._made(aiohttp.TCPConnector(limit=limit, keepalive_timeout=KEEP_ALIVE), sent)
        self._anew = self._made(aiohttp.TCPConnector(limit=limit, force_close=True), sent)
        return self

    def _made(self, connector: aiohttp.TCPConnector, trace: aiohttp.TraceConfig) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=connector,
            # Only the wait for a connection: the other two have a deadline each, see Exchange.
            timeout=aiohttp.ClientTimeout(total=None, connect=self.settings.connect_timeout, sock_connect=None),
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=_NOTHING_ADDED,
            auto_decompress=False,
            trust_env=False,
            read_bufsize=BUFFER,
            max_line_size=MAX_HEAD,
            max_field_size=MAX_HEAD,
            max_headers=MAX_HEADERS,
            trace_configs=[trace],
        )

    async def __aexit__(self, *exc: object) -> None:
        await self._session.close()
        await self._anew.close()

    async def send(
        self, method: str, target: str, headers: Headers, body: RequestBody = b"", ended: Ended | None = None
    ) -> Exchange:
        """Send a request, and return when the head of its response is there. Raises UpstreamFault; cancelled, it leaves
        no connection behind.

        ``headers``: those that go up, as they are. ``body``: nothing, bytes, or what comes bit by bit; what an iterator
        raises is raised here. Without a ``content-length`` among the headers the latter is sent in chunks.
        """
        request = _Request(body, self.settings.first_token_timeout)
        self.busy += 1
        try:
            response = await self._response(request, method, self._base.join(target), headers)
        except BaseException as error:  # whatever it is, the request is over: counted, and raised on
            fault = self._fault(error)
            self.busy -= 1
            if request.failed is not None:
                raise request.failed from None
            if fault is None:
                raise
            raise fault from error
        if not 200 <= response.status < 600:
            # 101, though nothing else than HTTP was asked for, or none that a server could pass on.
            response.close()
            self.busy -= 1
            raise UpstreamFault("upstream_protocol", f"{self._name} answered with the status {response.status}.")

        def over(outcome: str) -> None:
            self.busy -= 1
            if ended is not None:
                ended(outcome)

        return Exchange(response, self._name, self.settings, request.deadline, over)

    async def _response(self, request: _Request, method: str, url: str, headers: Headers) -> aiohttp.ClientResponse:
        try:
            return await request.sent(self._session, method, url, headers)
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
            if not request.met_the_end:
                raise
            # A new one tells whether it is there.
        return await request.sent(self._anew, method, url, headers)

    def _fault(self, error: BaseException) -> UpstreamFault | None:
        """A fault before the head of the response; None: not the upstream's."""
        name, settings = self._name, self.settings
        match error:
            case _Silent():
                return _silent(name, settings, "upstream_first_token_timeout")
            case aiohttp.ConnectionTimeoutError():
                full = 0 < settings.connections < self.busy
                why = f": all {settings.connections} connections are in use" if full else ""
                return UpstreamFault(
                    "upstream_connect_timeout",
                    f"{name} could not be connected within {settings.connect_timeout:g} seconds{why}.",
                    away=not full,
                )
            case aiohttp.ClientConnectorDNSError():
                return UpstreamFault("upstream_refused", f"{name} cannot be found: no such host.", away=True)
            case aiohttp.ClientConnectorCertificateError():
                return UpstreamFault("upstream_refused", f"{name} has a certificate that is not trusted.", away=True)
            case aiohttp.ClientSSLError() | ssl.SSLError():
                return UpstreamFault("upstream_refused", f"{name} speaks no TLS that is understood.", away=True)
            case aiohttp.ClientConnectorError():
                return UpstreamFault("upstream_refused", f"{name} refused the connection.", away=True)
            case aiohttp.ClientResponseError() | aiohttp.InvalidURL():
                return UpstreamFault("upstream_protocol", f"{name} sent something that is no HTTP response.")
            case aiohttp.ClientConnectionError() | OSError():
                return UpstreamFault("upstream_cut", f"{name} closed the connection without an answer.", away=True)
            case ValueError():
                return UpstreamFault("upstream_protocol", f"{name} cannot be sent such a request.")
            case _:
                return None


class _Silent(Exception):
    """No head came in time."""


class _Request:
    """One request on its way. The time for the first token begins when all of the request so far was handed on."""

    def __init__(self, body: RequestBody, first: float) -> None:
        self._body = body
        self._first = first
        self._scope = anyio.CancelScope()
        self.reused = False
        """Its connection had carried another request."""
        self.deadline = inf
        self.failed: BaseException | None = None
        """What the body's iterator raised."""

    async def sent(
        self, session: aiohttp.ClientSession, method: str, url: str, headers: Headers
    ) -> aiohttp.ClientResponse:
        body = self._body
        self._scope = anyio.CancelScope()
        with self._scope:
            return await session.request(
                method,
                URL(url, encoded=True),
                headers=CIMultiDict((name, _wire(value)) for name, value in headers),
                data=_whole(body) if isinstance(body, bytes) else self._each(body),
                allow_redirects=False,
                trace_request_ctx=self,
            )
        raise _Silent

    @property
    def met_the_end(self) -> bool:
        """It may have been sent on a connection that the upstream was just closing, and can be sent once more."""
        return self.reused and isinstance(self._body, bytes)

    def waits(self) -> None:
        """Everything so far was handed on: now the upstream has its time."""
        self.deadline = self._scope.deadline = anyio.current_time() + self._first

    async def _each(self, body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        try:
            async for part in body:
                yield part
                self.waits()
        except Exception as error:  # aiohttp would make a broken connection of it
            self.failed = error
            raise


async def _on_sent(
    session: aiohttp.ClientSession, context: SimpleNamespace, params: TraceRequestHeadersSentParams
) -> None:
    context.trace_request_ctx.waits()


async def _on_reused(
    session: aiohttp.ClientSession, context: SimpleNamespace, params: TraceConnectionReuseconnParams
) -> None:
    context.trace_request_ctx.reused = True


class Exchange:
    """An answered request. Read it to its end or ``close`` it: an unfinished one holds its connection.

    ``status``; ``headers``: lower-case names, in order, with duplicates. One reader.
    """

    def __init__(
        self, response: aiohttp.ClientResponse, name: str, settings: UpstreamSettings, deadline: float, ended: Ended
    ) -> None:
        self.status = response.status
        self.headers = [(key.decode("latin-1").lower(), value.decode("latin-1")) for key, value in response.raw_headers]
        self._response = response
        self._content = response.content
        self._name = name
        self._settings = settings
        self._ended = ended
        connection = response.connection
        self._transport = None if connection is None else connection.transport
        self._protocol: ResponseHandler | None = None if connection is None else connection.protocol
        self._loop = asyncio.get_running_loop()
        self._late: FaultCode = "upstream_first_token_timeout"
        self._deadline = deadline
        """When what is waited for is late."""
        self._waits = False
        self._timer: asyncio.TimerHandle | None = None
        self._stopped: UpstreamFault | None = None
        self._over = False
        if connection is not None:
            self._look()

    async def reads(self) -> AsyncIterator[bytes]:
        """The body, as it comes: raw, never empty. Raises UpstreamFault where it does not come to its end."""
        while data := await self.read():
            yield data

    async def read(self) -> bytes:
        """What has come of the body; waits for the first byte of it. Empty at the end, and once it is abandoned. Raises
        UpstreamFault."""
        if self._over:
            return b""
        if self._late == "upstream_token_timeout":
            self._deadline = self._loop.time() + self._settings.token_timeout
        self._waits = True
        try:
            data = await self._content.readany()
        except (aiohttp.ClientError, OSError, _Stopped) as error:
            if self._over:
                return b""
            data = self._left()
            if not data:
                fault = self._stopped or self._cut()
                self._finish(fault.code)
                raise fault from error
        except BaseException:  # a cancelled reader leaves no connection open; raised on
            self._finish("aborted")
            raise
        finally:
            self._waits = False
        if data:
            if self._late == "upstream_first_token_timeout":
                self._late = "upstream_token_timeout"
                self._look_again()
        elif self._whole():
            self._finish("ok")
        else:
            self._finish("upstream_cut")
            raise self._cut()
        return data

    def abandon(self) -> None:
        """Close it, whoever waits for a read of it: that one gives nothing. Idempotent."""
        if not self._over:
            self._finish("aborted")
            self._content.set_exception(_Stopped())

    async def close(self) -> None:
        """Done with it. What is not read to its end is given up: its connection is closed at once. Idempotent."""
        self._finish("aborted")

    def _look_again(self) -> None:
        """The next wait may be a shorter one."""
        self._deadline = self._loop.time() + self._settings.token_timeout
        if self._timer is not None:
            self._timer.cancel()
        self._look()

    def _left(self) -> bytes:
        """What came before the fault and was not read yet."""
        # aiohttp raises first, and would never give the rest.
        content = self._content
        return content._read_nowait(-1)  # pyright: ignore[reportPrivateUsage]  # no public way

    def _whole(self) -> bool:
        """A body that only the end of its connection ends may have been cut by a reset."""
        protocol = self._protocol
        return protocol is None or not isinstance(protocol.exception(), aiohttp.ClientOSError)

    def _finish(self, outcome: str) -> None:
        if self._over:
            return
        self._over = True
        if self._timer is not None:
            self._timer.cancel()
        if outcome != "ok" and self._transport is not None and self._response.connection is not None:
            # Before aiohttp's own close, which would wait until all that was written is sent.
            self._transport.abort()
        self._response.close()
        self._ended(outcome)

    def _look(self) -> None:
        """Once in a while: is what the reader waits for late, or will it never come? One timer for all reads: one for
        each costs more than the read."""
        now = self._loop.time()
        if self._waits and now >= self._deadline:
            self._stop(_silent(self._name, self._settings, self._late))
        elif self._waits and self._transport is not None and self._transport.is_closing():
            # aiohttp hangs up on what is no HTTP, and leaves the reader waiting.
            self._stop(UpstreamFault("upstream_protocol", f"{self._name} sent a response that is no longer HTTP."))
        else:
            late = self._deadline if self._deadline > now else inf
            self._timer = self._loop.call_at(min(now + LOOK, late), self._look)

    def _stop(self, fault: UpstreamFault) -> None:
        self._stopped = fault
        self._content.set_exception(_Stopped())

    def _cut(self) -> UpstreamFault:
        return UpstreamFault("upstream_cut", f"{self._name} closed the connection in the middle of its response.")


class _Stopped(Exception):
    """The reader is not to wait any longer."""


def _silent(name: str, settings: UpstreamSettings, code: FaultCode) -> UpstreamFault:
    if code == "upstream_first_token_timeout":
        message = f"{name} did not begin to answer within {settings.first_token_timeout:g} seconds."
    else:
        message = f"{name} sent nothing for {settings.token_timeout:g} seconds in the middle of its response."
    return UpstreamFault(code, message)


def _whole(body: bytes) -> bytes | BytesIO | None:
    """A body as aiohttp takes it, which warns of large ones that are written at once."""
    return BytesIO(body) if len(body) > LARGE else body or None


def _wire(value: str) -> str:
    """A header's value as aiohttp takes it, which writes UTF-8: the same bytes that the client sent."""
    try:
        return value if value.isascii() else value.encode("latin-1").decode()
    except UnicodeError:
        return value
