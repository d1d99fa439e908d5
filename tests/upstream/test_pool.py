"""Which upstream is asked, and again, and who is up. asyncio only: the HTTP client is."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import anyio
import anyio.to_thread
import pytest

from pipeline.upstream import pool as pools
from pipeline.upstream.client import Exchange
from pipeline.upstream.errors import UpstreamFault
from pipeline.upstream.pool import Pool, Upstream
from pipeline.upstream.settings import BadSettings, UpstreamSettings
from tests.support.upstreams import (
    PATIENCE,
    STREAM,
    Answer,
    Asked,
    Peer,
    breaks_off,
    chunk,
    hangs_up,
    plain,
    refusing,
    routes,
    says,
    stalls,
    upstream,
    value,
)

pytestmark = pytest.mark.anyio
CHAT = "/v1/chat/completions"
NO_ANSWER = breaks_off(b"")


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": True}


def settings(url: str, name: str = "a", **fields: Any) -> UpstreamSettings:
    return UpstreamSettings(name=name, url=url, **fields)


def names(found: list[Upstream]) -> list[str]:
    return [one.name for one in found]


async def asked(pool: Pool, body: Any = b"{}", headers: Any = (), model: str | None = None) -> tuple[str, int, bytes]:
    """Who answered, and what."""
    chosen, exchange = await pool.ask(pool.choose(model), "POST", CHAT, list(headers), body)
    return chosen.name, exchange.status, await whole(exchange)


async def whole(exchange: Exchange) -> bytes:
    try:
        return b"".join([data async for data in exchange.reads()])
    finally:
        await exchange.close()


# --- choice -----------------------------------------------------------------------------------------------------------


def test_a_name_goes_before_a_pattern_and_a_pattern_before_all_in_the_order_of_the_settings() -> None:
    pool = Pool(
        [
            settings("http://h:1", "rest"),
            settings("http://h:2", "qwen", models=("qwen3-*", "org/[ab]-?b")),
            settings("http://h:3", "one", models=("x", "qwen3-8b")),
            settings("http://h:4", "two", models=("qwen3-8b",)),
            settings("http://h:5", "rest2", models=("*",)),
        ]
    )
    assert names(pool.choose("qwen3-8b")) == ["one", "two"]
    assert names(pool.choose("qwen3-4b")) == ["qwen"]
    assert names(pool.choose("org/a-7b")) == ["qwen"]
    assert names(pool.choose("QWEN3-4b")) == ["rest", "rest2"]
    assert names(pool.choose("")) == ["rest", "rest2"]
    assert names(pool.choose(None)) == ["rest", "qwen", "one", "two", "rest2"]


def test_a_model_that_nobody_serves_has_no_upstream() -> None:
    pool = Pool([settings("http://h:1", "a", models=("x",))])
    assert pool.choose("y") == []


def test_who_is_down_comes_last() -> None:
    pool = Pool([settings("http://h:1", "a"), settings("http://h:2", "b"), settings("http://h:3", "c")])
    pool.upstreams[0].state = "down"
    assert names(pool.choose("x")) == ["b", "c", "a"]
    assert names(pool.choose(None)) == ["b", "c", "a"]


# --- asking again -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gone", [NO_ANSWER, breaks_off(b"HTTP/1.1 200"), breaks_off(b"", reset=True), hangs_up])
async def test_the_only_upstream_is_asked_again_where_it_seems_to_be_away(gone: Answer) -> None:
    with upstream(gone, gone, says(plain(b"x"))) as server:
        async with Pool([settings(server.url)]) as pool:
            assert await asked(pool, b'{"a": 1}') == ("a", 200, b"x")
            assert pool.stats.retries == {"a": 2}
            assert pool.upstreams[0].state == "up"
    assert server.opened == 3
    assert server.asked[-1].body == b'{"a": 1}'


async def test_not_more_often_than_the_settings_say() -> None:
    with upstream(NO_ANSWER) as server:
        for retries in (0, 1, 3):
            before = server.opened
            async with Pool([settings(server.url, retries=retries)]) as pool:
                with pytest.raises(UpstreamFault) as raised:
                    await asked(pool)
                assert raised.value.code == "upstream_cut"
                assert server.opened - before == 1 + retries
                assert pool.stats.requests == {("a", "upstream_cut"): 1 + retries}
                assert pool.upstreams[0].state == "down"


async def test_of_several_the_next_one_is_asked_first_and_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def long(state: Any) -> float:
        return PATIENCE

    monkeypatch.setattr(pools, "_BACKOFF", long)
    with upstream(NO_ANSWER) as first, upstream(says(plain(b"x"))) as second:
        async with Pool([settings(refusing(), "a"), settings(first.url, "b"), settings(second.url, "c")]) as pool:
            assert await asked(pool) == ("c", 200, b"x")
            assert pool.stats.retries == {"a": 1, "b": 1}
            assert [one.state for one in pool.upstreams] == ["down", "down", "up"]
            assert await asked(pool) == ("c", 200, b"x")
    assert (first.opened, second.opened) == (1, 1)


async def test_the_fault_is_that_of_the_last_one_asked() -> None:
    async with Pool([settings(refusing(), "a", retries=0), settings(refusing(), "b")]) as pool:
        with pytest.raises(UpstreamFault) as raised:
            await asked(pool)
    assert raised.value.message == "The upstream 'b' refused the connection."


@pytest.mark.parametrize("status", [502, 503, 504])
async def test_another_one_may_be_able_where_one_says_that_it_is_not(status: int) -> None:
    with upstream(says(plain(b"no", status))) as first, upstream(says(plain(b"x"))) as second:
        async with Pool([settings(first.url, "a"), settings(second.url, "b")]) as pool:
            assert await asked(pool) == ("b", 200, b"x")
            assert pool.stats.responses == {("a", status): 1, ("b", 200): 1}
            assert [one.in_flight for one in pool.upstreams] == [0, 0]


async def test_where_all_say_so_the_last_answer_is_the_answer() -> None:
    with upstream(says(plain(b"one", 503))) as first, upstream(says(plain(b"two", 502))) as second:
        async with Pool([settings(first.url, "a"), settings(second.url, "b")]) as pool:
            assert await asked(pool) == ("b", 502, b"two")
        async with Pool([settings(first.url, "a"), settings(refusing(), "b", retries=0)]) as pool:
            pool.upstreams[1].state = "down"
            assert await asked(pool) == ("a", 503, b"one")
        async with Pool([settings(first.url, "a")]) as pool:
            assert await asked(pool) == ("a", 503, b"one")
    assert (len(first.asked), len(second.asked)) == (3, 1)


@pytest.mark.parametrize("status", [200, 204, 301, 400, 401, 404, 422, 429, 500])
async def test_any_other_status_is_the_answer(status: int) -> None:
    with upstream(says(plain(b"", status))) as first, upstream(says(plain(b"x"))) as second:
        async with Pool([settings(first.url, "a"), settings(second.url, "b")]) as pool:
            assert await asked(pool) == ("a", status, b"")
    assert second.opened == 0


@pytest.mark.parametrize(
    ("answer", "code", "limits"),
    [
        (breaks_off(STREAM), "upstream_cut", {}),
        (breaks_off(STREAM + chunk(b"data")), "upstream_cut", {}),
        (breaks_off(b"nonsense\r\n\r\n"), "upstream_protocol", {}),
        (stalls(), "upstream_first_token_timeout", {"first_token_timeout": 0.2}),
        (stalls(STREAM + chunk(b"data")), "upstream_token_timeout", {"token_timeout": 0.2}),
    ],
)
async def test_nothing_is_sent_again_once_the_upstream_was_at_work(
    answer: Answer, code: str, limits: dict[str, float]
) -> None:
    with upstream(answer) as first, upstream(says(plain(b"x"))) as second:
        async with Pool([settings(first.url, "a", **limits), settings(second.url, "b")]) as pool:
            with pytest.raises(UpstreamFault) as raised:
                await asked(pool)
            assert pool.stats.requests == {("a", code): 1}
    assert raised.value.code == code
    assert (first.opened, second.opened) == (1, 0)


async def test_a_body_that_comes_bit_by_bit_is_sent_again_only_as_long_as_nothing_of_it_was_read() -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield b"one "
        yield b"two"

    def takes_and_leaves(peer: Peer) -> None:
        peer.asked()
        peer.reset()

    with upstream(says(plain(b"x"))) as good, upstream(takes_and_leaves) as bad:
        async with Pool([settings(refusing(), "a"), settings(good.url, "b")]) as pool:
            assert await asked(pool, parts()) == ("b", 200, b"x")
        async with Pool([settings(bad.url, "a"), settings(good.url, "b")]) as pool:
            with pytest.raises(UpstreamFault):
                await asked(pool, parts())
    assert [one.body for one in good.asked] == [b"one two"]
    assert bad.opened == 1


async def test_who_is_cancelled_while_it_waits_asks_no_more() -> None:
    with upstream(stalls()) as server:
        async with Pool([settings(server.url), settings(server.url, "b")]) as pool:
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(asked, pool)
                    with anyio.fail_after(PATIENCE):
                        while not server.asked:  # noqa: ASYNC110  # another thread's
                            await anyio.sleep(0.01)
                    scope.cancel()
            assert scope.cancelled_caught
            assert await anyio.to_thread.run_sync(partial(server.gone.acquire, timeout=PATIENCE))
            assert pool.stats.requests == {("a", "aborted"): 1}
            assert pool.upstreams[0].in_flight == 0
    assert server.opened == 1


# --- health -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 404, 503])
async def test_who_was_down_is_up_again_with_any_answer(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "LOOK_EVERY", 0.02)

    def health(peer: Peer) -> None:
        assert peer.asked()[:2] == ("GET", "/health")
        peer.send(plain(b"", status))

    with upstream(NO_ANSWER, NO_ANSWER, NO_ANSWER, health) as server:
        async with Pool([settings(server.url, retries=0)]) as pool:
            with pytest.raises(UpstreamFault):
                await asked(pool)
            one = pool.upstreams[0]
            assert one.state == "down"
            with anyio.fail_after(PATIENCE):
                while one.state == "down":  # noqa: ASYNC110  # the pool's own task changes it
                    await anyio.sleep(0.01)
    assert server.opened == 4


async def test_a_response_that_breaks_off_does_not_make_an_upstream_down() -> None:
    with upstream(breaks_off(STREAM)) as server:
        async with Pool([settings(server.url)]) as pool:
            with pytest.raises(UpstreamFault):
                await asked(pool)
            assert pool.upstreams[0].state == "up"


# --- keys -------------------------------------------------------------------------------------------------------------

THEIRS = [
    ("authorization", "Bearer theirs"),
    ("x-api-key", "theirs"),
    ("cookie", "theirs"),
    ("accept-encoding", "gzip"),
]


async def test_the_clients_key_goes_up_unless_the_upstream_has_one_or_it_is_for_us() -> None:
    with upstream(says(plain(b"x"))) as server:
        for fields, strip in (({}, False), ({}, True), ({"key_env": "K"}, False), ({"key_env": "K"}, True)):
            async with Pool([settings(server.url, **fields)], strip=strip, environ={"K": "ours"}) as pool:
                await asked(pool, headers=THEIRS)
    passed, stripped, ours, both = server.asked
    assert passed.headers[1:-1] == [*THEIRS[:3], ("accept-encoding", "identity")]
    assert stripped.headers[1:-1] == [("accept-encoding", "identity")]
    for one in (ours, both):
        assert one.headers[1:-1] == [("accept-encoding", "identity"), ("authorization", "Bearer ours")]


async def test_what_nobody_reads_on_the_way_may_be_compressed() -> None:
    with upstream(says(plain(b"x"))) as server:
        async with Pool([settings(server.url)]) as pool:
            _, exchange = await pool.ask(pool.choose(None), "GET", "/metrics", THEIRS)
            await whole(exchange)
    assert server.asked[0].header("accept-encoding") == "gzip"


def test_a_key_that_is_not_set_is_found_before_anything_is_asked() -> None:
    with pytest.raises(BadSettings, match="K is not set"):
        Pool([settings("http://h:1", key_env="K")], environ={})


# --- models and numbers -----------------------------------------------------------------------------------------------


def model(name: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "object": "model", "owned_by": "x", **more}


async def test_the_models_of_all_are_listed_once_where_they_would_be_asked_for() -> None:
    first = {"object": "list", "data": [model("m1"), model("m2", max_model_len=7), model("other")]}
    second = {"data": [model("m2"), model("m3"), {"id": 3}, "junk", model("other", of="second")]}
    with (
        upstream(routes({"/v1/models": value(first)})) as a,
        upstream(routes({"/v1/models": value(second)})) as b,
        upstream(routes({"/v1/models": plain(b"no json")})) as c,
        upstream(routes({})) as d,
    ):
        made = [
            settings(a.url, "a", models=("m*",)), settings(refusing(), "down"), settings(b.url, "b"),
            settings(c.url, "c"), settings(d.url, "d"),
        ]  # fmt: skip
        async with Pool(made, strip=True, environ={}) as pool:
            found = await pool.models(THEIRS)
    assert found == {
        "object": "list",
        "data": [model("m1"), model("m2", max_model_len=7), model("other", of="second")],
    }
    assert a.asked[0].header("authorization") is None


async def test_where_nobody_lists_models_that_is_a_fault() -> None:
    async with Pool([settings(refusing(), "a"), settings(refusing(), "b")]) as pool:
        with pytest.raises(UpstreamFault):
            await pool.models([])


async def test_all_is_counted() -> None:
    def answer(asked: Asked) -> bytes:
        return value({}, 200 if asked.body == b"{}" else 400)

    with upstream(routes({CHAT: answer})) as good, upstream(stalls(STREAM)) as slow:
        async with Pool([settings(good.url, "a", models=("x",)), settings(slow.url, "b")]) as pool:
            for body in (b"{}", b"{}", b"[]"):
                await asked(pool, body, model="x")
            _, exchange = await pool.ask(pool.choose("y"), "POST", CHAT, [], b"{}")
            assert [one.in_flight for one in pool.upstreams] == [0, 1]
            await exchange.close()
            assert [one.in_flight for one in pool.upstreams] == [0, 0]
            assert pool.stats.requests == {("a", "ok"): 3, ("b", "aborted"): 1}
            assert pool.stats.responses == {("a", 200): 2, ("a", 400): 1, ("b", 200): 1}
            assert not pool.stats.retries


async def test_many_at_once_share_connections_and_leave_none() -> None:
    def echo(asked: Asked) -> bytes:
        return plain(asked.body)

    with upstream(routes({CHAT: echo})) as server:
        async with Pool([settings(server.url, connections=4)]) as pool:
            found: list[bytes] = []

            async def one(number: int) -> None:
                _, _, body = await asked(pool, json.dumps(number).encode())
                found.append(body)

            async with anyio.create_task_group() as tasks:
                for number in range(50):
                    tasks.start_soon(one, number)
            assert sorted(map(int, found)) == list(range(50))
            assert pool.upstreams[0].in_flight == 0
    assert server.opened <= 4
