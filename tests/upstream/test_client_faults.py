"""Every way in which an upstream can fail, and when. asyncio only: aiohttp is; on both of its loops."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import aiohttp.resolver
import anyio
import pytest

from pipeline.upstream.errors import UpstreamFault
from stages.events import ErrorInput
from tests.support.exchanges import LOOPS, PARTS, client, fault_of, gone, post, whole
from tests.support.upstreams import (
    PATIENCE,
    STREAM,
    Answer,
    Peer,
    breaks_off,
    chunk,
    chunked,
    hangs_up,
    plain,
    refusing,
    says,
    stalls,
    upstream,
)

pytestmark = [pytest.mark.anyio, LOOPS]


# --- faults -----------------------------------------------------------------------------------------------------------


def cuts(head: bytes, parts: Sequence[bytes], *, sized: bool) -> Iterator[tuple[bytes, bytes | None]]:
    """What is on the wire up to each byte but the last, and what of the body is in it; None: not even the head."""
    yield from ((head[:size], None) for size in range(len(head)))
    yield head, b""
    wire, body = head, b""
    for part in parts:
        pieces = [(part, part)] if sized else [(b"%x\r\n" % len(part), b""), (part, part), (b"\r\n", b"")]
        for written, told in pieces:
            for at in range(1, len(written) + 1):
                yield wire + written[:at], body + told[:at]
            wire, body = wire + written, body + told
    yield from ((wire + b"0\r\n\r\n"[:at], body) for at in range(1, 0 if sized else 5))


@pytest.mark.parametrize("sized", [False, True], ids=["chunked", "content-length"])
async def test_a_cut_at_any_byte_is_a_fault_and_all_before_it_arrives(sized: bool) -> None:
    size = sum(map(len, PARTS))
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size if sized else STREAM
    made = list(cuts(head, PARTS, sized=sized))
    if sized:
        assert made.pop()[1] == b"".join(PARTS)
    assert len(made) == len(head) + (size if sized else len(chunked(*PARTS)))
    with upstream(*(breaks_off(wire) for wire, _ in made)) as server:
        async with client(server) as one:
            for _, body in made:
                fault, read = await fault_of(one)
                assert (fault.code, fault.kind, fault.away) == ("upstream_cut", "engine", body is None)
                assert read == (body or b"")
            assert one.busy == 0
    assert server.opened == len(made)


async def test_a_reset_is_a_fault_too_even_where_only_the_end_tells_the_end() -> None:
    for wire in (STREAM + chunk(b"data: a\n\n"), b"HTTP/1.1 200 OK\r\n\r\ndata: a\n\n", STREAM, b""):
        with upstream(breaks_off(wire, reset=True)) as server:
            async with client(server) as one:
                fault, read = await fault_of(one)
                assert (fault.code, fault.away) == ("upstream_cut", not wire)
                assert b"data: a\n\n".startswith(read)


BIG = b"".join(b"data: %06d\n\n" % number for number in range(60_000))


@pytest.mark.parametrize("end", [b"0\r\n\r\n", b"", b"0\r\n"], ids=["whole", "cut", "cut in the end"])
async def test_who_reads_slowly_gets_all_that_was_sent_before_the_end(end: bytes) -> None:
    body = b"".join(chunk(BIG[at : at + 300]) for at in range(0, len(BIG), 300))
    with upstream(breaks_off(STREAM + body + end), says(plain(b"x"))) as server:
        async with client(server) as one:
            exchange = await post(one)
            read: list[bytes] = []
            code = "ok"
            try:
                while data := await exchange.read():
                    read.append(data)
                    # As long as this takes, more arrives, and then the end: it must not hide what came before it.
                    await whole(await post(one))
            except UpstreamFault as fault:
                code = fault.code
            assert b"".join(read) == BIG
            assert code == ("ok" if end == b"0\r\n\r\n" else "upstream_cut")
            assert max(map(len, read)) <= 512 * 1024


@pytest.mark.parametrize(
    "wire",
    [
        b"hello\r\n\r\n",
        b"\x16\x03\x01\x02\x00",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"<html><body>502</body></html>\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 5\r\n\r\nabcde",
        b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n",
        b"HTTP/1.1 200 " + b"x" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\na: " + b"x" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 1000 + b"\r\n",
        STREAM + b"zz\r\nfoo\r\n",
    ],
    ids=["text", "tls", "http2", "status", "html", "header", "lengths", "length", "line", "field", "fields", "chunk"],
)
async def test_what_is_no_http_is_a_fault(wire: bytes) -> None:
    with upstream(stalls(wire)) as server:
        async with client(server) as one:
            fault, read = await fault_of(one)
            assert (fault.code, fault.kind, fault.away, read) == ("upstream_protocol", "engine", False, b"")
            await gone(server)


async def test_what_stops_being_http_is_a_fault_and_nobody_waits_for_more() -> None:
    def answer(peer: Peer) -> None:
        peer.asked()
        peer.send(STREAM + chunk(b"data: a\n\n"))
        assert server.gone.acquire(timeout=PATIENCE)
        peer.send(b"zz\r\nfoo\r\n")
        peer.hold()

    with upstream(answer) as server:
        async with client(server) as one:
            exchange = await post(one)
            assert await exchange.read() == b"data: a\n\n"
            server.gone.release()
            with pytest.raises(UpstreamFault) as raised:
                await exchange.read()
            assert raised.value.code == "upstream_protocol"
            await gone(server)


async def test_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    async with client(refusing()) as one:
        fault, _ = await fault_of(one)
    assert (fault.code, fault.kind, fault.away) == ("upstream_refused", "overloaded", True)
    assert fault.input() == ErrorInput("overloaded", "The upstream 'a' refused the connection.", "upstream_refused")

    async def resolve(*_: Any, **__: Any) -> Any:
        raise OSError("Name or service not known")

    # The network is never asked: no name of ours is sure not to exist there.
    monkeypatch.setattr(aiohttp.resolver.ThreadedResolver, "resolve", resolve)
    async with client("http://nowhere.test") as one:
        fault, _ = await fault_of(one)
    assert (fault.code, fault.message) == ("upstream_refused", "The upstream 'a' cannot be found: no such host.")


async def test_a_connection_that_ends_before_the_request_is_read() -> None:
    with upstream(hangs_up) as server:
        async with client(server) as one:
            fault, _ = await fault_of(one)
    assert fault.code in ("upstream_cut", "upstream_refused")
    assert fault.away


async def test_no_tls_where_tls_was_expected() -> None:
    with upstream(lambda peer: peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as server:
        async with client(server.url.replace("http:", "https:")) as one:
            fault, _ = await fault_of(one)
    assert (fault.code, fault.message) == ("upstream_refused", "The upstream 'a' speaks no TLS that is understood.")


# --- time -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "code", "read"),
    [
        (stalls(), "upstream_first_token_timeout", b""),
        (stalls(b"HTTP/1.1 200 OK\r\nconte"), "upstream_first_token_timeout", b""),
        (stalls(STREAM), "upstream_first_token_timeout", b""),
        (stalls(STREAM + b"9\r\n"), "upstream_first_token_timeout", b""),
        (stalls(STREAM + chunk(PARTS[0])), "upstream_token_timeout", PARTS[0]),
        (stalls(STREAM + chunk(PARTS[0]) + b"b\r\nda"), "upstream_token_timeout", PARTS[0] + b"da"),
        (stalls(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nda"), "upstream_token_timeout", b"da"),
        (stalls(b"HTTP/1.1 200 OK\r\n\r\nda"), "upstream_token_timeout", b"da"),
    ],
)
async def test_silence_is_a_fault_and_ends_the_connection(answer: Answer, code: str, read: bytes) -> None:
    limits = {"upstream_first_token_timeout": (0.2, 60.0), "upstream_token_timeout": (60.0, 0.2)}[code]
    with upstream(answer) as server:
        async with client(server, first_token_timeout=limits[0], token_timeout=limits[1]) as one:
            before = time.monotonic()
            fault, came = await fault_of(one)
            took = time.monotonic() - before
            await gone(server)
            assert one.busy == 0
    assert (fault.code, fault.kind, fault.away, came) == (code, "timeout", False, read)
    # Event loops count in milliseconds, and the other limit is a minute.
    assert 0.1 < took < 30
    assert "0.2 seconds" in fault.message


async def test_a_stream_that_goes_on_is_never_late() -> None:
    def slowly(peer: Peer) -> None:
        peer.asked()
        peer.send(STREAM)
        for _ in range(8):
            time.sleep(0.1)
            peer.send(chunk(b"x"))
        peer.send(b"0\r\n\r\n")

    with upstream(slowly) as server:
        async with client(server, first_token_timeout=5.0, token_timeout=0.5) as one:
            assert await whole(await post(one)) == b"x" * 8


async def test_the_readers_own_pauses_are_not_the_upstreams() -> None:
    with upstream(stalls(STREAM + chunk(b"x"))) as server:
        async with client(server, token_timeout=0.2) as one:
            exchange = await post(one)
            assert await exchange.read() == b"x"
            before = time.monotonic()
            await anyio.sleep(0.4)
            with pytest.raises(UpstreamFault):
                await exchange.read()
            # Not what was left of it, nor nothing; event loops count in milliseconds.
            assert time.monotonic() - before > 0.5


async def test_a_slow_request_does_not_use_up_the_time_for_the_answer() -> None:
    async def slowly() -> AsyncIterator[bytes]:
        for _ in range(5):
            await anyio.sleep(0.1)
            yield b"x"

    with upstream(says(plain(b"done"))) as server:
        async with client(server, first_token_timeout=0.3) as one:
            assert await whole(await one.send("POST", "/x", [], slowly())) == b"done"


async def test_who_gets_no_connection_is_told_why() -> None:
    with upstream(stalls(STREAM)) as server:
        async with client(server, connections=1, connect_timeout=0.2) as one:
            first = await post(one)
            fault, _ = await fault_of(one)
            await first.close()
    assert (fault.code, fault.kind, fault.away) == ("upstream_connect_timeout", "timeout", False)
    assert fault.message == "The upstream 'a' could not be connected within 0.2 seconds: all 1 connections are in use."


async def test_a_handshake_that_never_ends_is_a_connection_that_is_late() -> None:
    with upstream(lambda peer: peer.hold()) as server:
        async with client(server.url.replace("http:", "https:"), connect_timeout=0.2) as one:
            fault, _ = await fault_of(one)
            await gone(server)
    assert (fault.code, fault.away) == ("upstream_connect_timeout", True)
    assert fault.message == "The upstream 'a' could not be connected within 0.2 seconds."
