"""One upstream's HTTP client against real sockets that misbehave. asyncio only: aiohttp is; on both of its loops."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import pytest

from pipeline.upstream.errors import UpstreamFault
from tests.support.exchanges import LOOPS, PARTS, client, gone, post, whole
from tests.support.upstreams import (
    PATIENCE,
    STREAM,
    Peer,
    breaks_off,
    chunk,
    chunked,
    plain,
    refusing,
    says,
    stalls,
    upstream,
)

pytestmark = [pytest.mark.anyio, LOOPS]


# --- what goes up -----------------------------------------------------------------------------------------------------


async def test_nothing_is_added_to_a_request_but_host_and_length() -> None:
    given = [
        ("x-b", "1"), ("content-type", "application/json"), ("x-a", "one"), ("x-a", "two"), ("user-agent", "sdk/1"),
        ("x-text", "caf\xc3\xa9"), ("accept", "text/event-stream"),
    ]  # fmt: skip
    with upstream(says(plain(b"{}"))) as server:
        async with client(server) as one:
            await whole(await one.send("POST", "/v1/chat/completions?a=%2F&b=1+2", given, b'{"a": 1}'))
            await whole(await one.send("GET", "/v1/models", []))
            await whole(await one.send("POST", "/abort", [], b""))
            await whole(await one.send("DELETE", "/v1/x%20y", []))
            await whole(await one.send("POST", "/large", [], b"x" * (2 << 20)))
    host = ("Host", f"127.0.0.1:{server.port}")
    sent, listed, aborted, deleted, large = server.asked
    assert large == ("POST", "/large", [host, ("Content-Length", str(2 << 20))], b"x" * (2 << 20))
    assert sent[:2] == ("POST", "/v1/chat/completions?a=%2F&b=1+2")
    assert sent.headers == [host, *given, ("Content-Length", "8")]
    assert sent.body == b'{"a": 1}'
    assert listed == ("GET", "/v1/models", [host], b"")
    assert aborted == ("POST", "/abort", [host, ("Content-Length", "0")], b"")
    assert deleted[:2] == ("DELETE", "/v1/x%20y")


async def test_a_body_that_comes_bit_by_bit_goes_up_so() -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield b"one "
        yield b"two"

    with upstream(says(plain(b"{}"))) as server:
        async with client(server) as one:
            await whole(await one.send("POST", "/x", [], parts()))
            await whole(await one.send("POST", "/x", [("content-length", "7")], parts()))
    bits, sized = server.asked
    assert (bits.body, bits.header("transfer-encoding")) == (b"one two", "chunked")
    assert (sized.body, sized.header("transfer-encoding"), sized.header("content-length")) == (b"one two", None, "7")


async def test_what_a_body_raises_is_raised_and_the_upstream_sees_a_cut() -> None:
    class Left(Exception):
        pass

    async def parts() -> AsyncIterator[bytes]:
        yield b"one"
        raise Left

    with upstream(lambda peer: peer.hold()) as server:
        async with client(server) as one:
            with pytest.raises(Left):
                await one.send("POST", "/x", [], parts())
            await gone(server)
            assert one.busy == 0


async def test_no_proxy_of_the_environment_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, refusing())
    with upstream(says(plain(b"{}"))) as server:
        async with client(server) as one:
            assert await whole(await post(one)) == b"{}"


# --- what comes back --------------------------------------------------------------------------------------------------


async def test_status_headers_and_body_are_those_that_were_sent() -> None:
    body = b"\x1f\x8b\x08 not really gzip \x00\xff"
    headers = (
        ("X-B", "1"),
        ("Set-Cookie", "a=1"),
        ("set-cookie", "b=2"),
        ("Content-Encoding", "gzip"),
        ("X-A", "\xe9"),
    )
    for status in (200, 201, 302, 400, 404, 418, 429, 500, 503, 529):
        with upstream(says(plain(body, status, *headers, ("Location", "/elsewhere")))) as server:
            async with client(server) as one:
                exchange = await post(one)
                assert exchange.status == status
                assert exchange.headers == [
                    ("content-type", "application/json"), ("x-b", "1"), ("set-cookie", "a=1"), ("set-cookie", "b=2"),
                    ("content-encoding", "gzip"), ("x-a", "\xe9"), ("location", "/elsewhere"),
                    ("content-length", str(len(body))),
                ]  # fmt: skip
                assert await whole(exchange) == body
                await whole(await post(one))
        assert [asked.header("cookie") for asked in server.asked] == [None, None]


@pytest.mark.parametrize("wire", [b"HTTP/1.1 204 No\r\n\r\n", b"HTTP/1.1 304 Same\r\ncontent-length: 9\r\n\r\n"])
async def test_a_response_without_a_body_ends_at_once(wire: bytes) -> None:
    with upstream(says(wire)) as server:
        async with client(server) as one:
            assert await whole(await post(one)) == b""
            assert await whole(await post(one)) == b""
    assert server.opened == 1


async def test_a_head_request_has_headers_and_no_body() -> None:
    with upstream(says(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n")) as server:
        async with client(server) as one:
            exchange = await one.send("HEAD", "/v1/models", [])
            assert exchange.headers == [("content-length", "9")]
            assert await whole(exchange) == b""


async def test_interim_responses_are_passed_over() -> None:
    with upstream(says(b"HTTP/1.1 103 Hints\r\nlink: x\r\n\r\n", plain(b"x"))) as server:
        async with client(server) as one:
            exchange = await post(one)
            assert (exchange.status, await whole(exchange)) == (200, b"x")


async def test_a_read_has_what_one_write_sent() -> None:
    def a_chunk_for_each_read(peer: Peer) -> None:
        peer.asked()
        peer.send(STREAM)
        for part in PARTS:
            assert go.acquire(timeout=PATIENCE)
            peer.send(chunk(part))
        peer.send(b"0\r\n\r\n")

    with upstream(a_chunk_for_each_read) as server:
        go = server.gone
        async with client(server) as one:
            exchange = await post(one)
            for part in PARTS:
                go.release()
                assert await exchange.read() == part
            assert await exchange.read() == b""
            assert await exchange.read() == b""


async def test_a_body_without_length_ends_with_its_connection() -> None:
    for head in (b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.0 200 OK\r\n\r\n"):
        with upstream(breaks_off(head + b"data: a\n\n")) as server:
            async with client(server) as one:
                assert await whole(await post(one)) == b"data: a\n\n"


# --- leaving ----------------------------------------------------------------------------------------------------------


async def test_a_finished_exchange_gives_its_connection_back_an_unfinished_one_ends_it() -> None:
    with upstream(stalls(STREAM + chunk(PARTS[0])), says(STREAM, chunked(*PARTS))) as server:
        async with client(server) as one:
            unfinished = await post(one)
            assert await unfinished.read() == PARTS[0]
            for _ in range(3):
                exchange = await post(one)
                assert await whole(exchange) == b"".join(PARTS)
                await exchange.close()
            await unfinished.close()
            await unfinished.close()
            await gone(server)
            assert await unfinished.read() == b""
            assert (server.opened, one.busy) == (2, 0)


async def test_who_is_cancelled_leaves_no_connection_behind() -> None:
    with upstream(stalls(), stalls(STREAM), stalls(STREAM + chunk(b"x"))) as server:
        async with client(server) as one:
            for reads in (0, 0, 1):
                with anyio.move_on_after(0.2) as scope:
                    exchange = await post(one)
                    for _ in range(reads):
                        await exchange.read()
                    await exchange.read()
                assert scope.cancelled_caught
                await gone(server)
                assert one.busy == 0


async def test_an_upload_that_nobody_reads_can_be_left() -> None:
    with upstream(lambda peer: peer.hold() if server.gone.acquire(timeout=PATIENCE) else None) as server:
        async with client(server) as one:
            with anyio.move_on_after(0.2):
                await post(one, b"x" * (16 << 20))
            server.gone.release()
            await gone(server)
            assert one.busy == 0


async def test_what_became_of_a_request_is_told_once() -> None:
    told: list[str] = []
    with upstream(breaks_off(STREAM), stalls(STREAM), says(plain(b"x"))) as server:
        async with client(server) as one:
            sent = [await one.send("POST", "/x", [], b"", told.append) for _ in range(3)]
            with pytest.raises(UpstreamFault):
                await whole(sent[0])
            assert await whole(sent[2]) == b"x"
            for exchange in sent * 2:
                await exchange.close()
    assert told == ["upstream_cut", "ok", "aborted"]
