"""What is found out about an upstream: against servers that speak as the real ones do, and against Playhead itself.
asyncio only: the HTTP client is."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from pipeline.engines.prompt import short_hash
from pipeline.upstream import probe
from pipeline.upstream.pool import Pool
from pipeline.upstream.probe import Known, Prober
from pipeline.upstream.settings import UpstreamSettings
from stages.opening import EngineFacts
from tests.support.server import serve
from tests.support.upstream_engines import (
    CHAT,
    COMPLETION,
    COMPLETIONS,
    CONTENT,
    GENERATE,
    MODEL,
    Route,
    Vllm,
    error,
    listed,
    refuses_ids,
    sglang,
    sse,
    vllm,
)
from tests.support.upstreams import PATIENCE, Asked, Server, plain, refusing, routes, upstream, value

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": True}


async def known(
    server: Server | str, headers: Sequence[tuple[str, str]] = (), model: str | None = MODEL, **fields: Any
) -> Known:
    url = server if isinstance(server, str) else server.url
    async with Pool([UpstreamSettings(name="a", url=url, **fields)], environ={"K": "sk-ours"}) as pool:
        return await pool.upstreams[0].known(headers, model)


def posts(server: Server, path: str) -> list[Asked]:
    return [asked for asked in server.asked if (asked.method, asked.target) == ("POST", path)]


# --- what it tells ----------------------------------------------------------------------------------------------------


async def test_vllm_tells_ids_through_chat_and_has_null_without_them() -> None:
    with upstream(routes(vllm(Vllm()))) as server:
        found = await known(server)
    assert found == Known(
        "chat", "tokens", "", "null",
        engine=EngineFacts(kind="vllm", model="/models/qwen3", max_tokens=40960, versions={"vllm": "0.33.0"}),
    )  # fmt: skip
    plainly, more = (asked.json for asked in posts(server, CHAT))
    assert more == {**plainly, "return_token_ids": True}
    assert plainly == {
        "model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2, "temperature": 0,
        "stream": True,
    }  # fmt: skip


async def test_a_server_that_leaves_the_keys_out_has_nothing_in_their_place() -> None:
    with upstream(routes({CHAT: Vllm(nulls=False)})) as server:
        found = await known(server)
    assert (found.way, found.depth, found.taken_out) == ("chat", "tokens", "absent")


async def test_playhead_itself_tells_ids_through_chat(tmp_path: Path) -> None:
    with serve(tmp_path, script=["one", " two", " three"]) as running:
        found = await known(running.address, model=running.model)
    assert (found.way, found.depth, found.taken_out, found.why) == ("chat", "tokens", "absent", "")
    assert (found.engine.kind, found.engine.model) == ("playhead", running.model)


async def test_where_taking_the_ids_out_is_not_exact_nothing_is_added() -> None:
    class Other(Vllm):
        def chunk(self, delta: Any, finish: str | None, ids: list[int] | None, *, first: bool = False) -> Any:
            made = super().chunk(delta, finish, ids, first=first)
            return {**made, "more": 1} if ids else made

    with upstream(routes(vllm(Other()))) as server:
        found = await known(server)
    assert (found.way, found.depth, found.taken_out) == (None, "verbatim", "")
    assert found.why == "with the token ids taken out, its response to a trial was not the one without them"
    assert len(posts(server, CHAT)) == 4


async def test_an_answer_that_differs_once_is_tried_again() -> None:
    model = Vllm()

    def answer(asked: Asked) -> bytes:
        model.texts = (("", "<think>"),) if model.count == 0 else (("", "<think>"), ("Hi", "Hi"))
        return model(asked)

    with upstream(routes(vllm(answer))) as server:
        found = await known(server)
    assert (found.way, len(posts(server, CHAT))) == ("chat", 4)


async def test_a_server_that_takes_the_field_and_tells_nothing() -> None:
    with upstream(routes({CHAT: CONTENT})) as server:
        found = await known(server)
    assert found == Known(
        why="it takes return_token_ids, but tells no ids", engine=EngineFacts(kind="unknown", model=MODEL)
    )


async def test_a_server_that_refuses_unknown_fields_is_strict() -> None:
    models = value({"object": "list", "data": [{"id": MODEL, "owned_by": "Qwen", "created": 0, "status": "loaded"}]})
    with upstream(routes({CHAT: refuses_ids(422, CONTENT), "/v1/models": models})) as server:
        found = await known(server)
        parsed = await known(server, parser="hermes")
    assert (found.way, found.why, found.strict) == (None, "it refuses return_token_ids with status 422", True)
    assert found.engine.kind == "transformers"
    assert (parsed.way, parsed.strict) == (None, True)
    assert "skip_special_tokens" not in str(posts(server, COMPLETIONS))


async def test_sglang_tells_ids_only_through_its_own_endpoint_which_is_asked_where_we_make_the_response() -> None:
    with upstream(routes(sglang())) as server:
        relayed = await known(server)
        assert posts(server, GENERATE) == []
        parsed = await known(server, parser="hermes")
    assert (relayed.way, relayed.depth) == (None, "verbatim")
    assert relayed.why == "it refuses return_token_ids with status 400"
    assert (parsed.way, parsed.depth, parsed.strict) == ("generate", "tokens", False)
    [trial] = posts(server, GENERATE)
    assert trial.json == {"text": "Hi", "sampling_params": {"max_new_tokens": 2, "temperature": 0}, "stream": True}


async def test_llama_cpp_tells_ids_through_its_own_endpoint() -> None:
    props = {
        "default_generation_settings": {"n_ctx": 4096, "params": {"dtype": "no"}}, "total_slots": 1,
        "model_path": "/models/x.gguf", "chat_template": "{% if tools %}<tool_call>{% endif %}",
        "build_info": "b7000-abc",
    }  # fmt: skip
    told = sse({"content": "H", "tokens": [1], "stop": False}, {"content": "", "tokens": [], "stop": True}, done=False)
    table: dict[str, Route] = {
        "/props": value(props), "/v1/models": listed("llamacpp", meta={"n_ctx_train": 7}), CHAT: CONTENT,
        COMPLETION: told,
    }  # fmt: skip
    with upstream(routes(table)) as server:
        found = await known(server, parser="hermes")
    assert (found.way, found.depth) == ("completion", "tokens")
    assert found.template == props["chat_template"]
    assert found.engine == EngineFacts(
        kind="llama.cpp", model=MODEL, max_tokens=4096, versions={"llama.cpp": "b7000-abc"},
        arguments={
            "model_path": "/models/x.gguf", "total_slots": "1", "build_info": "b7000-abc", "dtype": "no",
            "chat_template": short_hash("{% if tools %}<tool_call>{% endif %}"),
        },
    )  # fmt: skip
    [trial] = posts(server, COMPLETION)
    assert trial.json["return_tokens"] is True


@pytest.mark.parametrize(("takes", "strict"), [(True, False), (False, True)])
async def test_any_other_server_gives_text_where_it_completes_prompts(takes: bool, strict: bool) -> None:
    def answer(asked: Asked) -> bytes:
        told = sse({"choices": [{"index": 0, "text": "Hi", "finish_reason": "length"}]})
        return error(400) if "skip_special_tokens" in asked.json and not takes else told

    with upstream(routes({CHAT: CONTENT, COMPLETIONS: answer})) as server:
        assert (await known(server)).way is None
        found = await known(server, parser="hermes")
    assert (found.way, found.depth, found.strict) == ("completions", "text", strict)
    assert found.why == "it takes return_token_ids, but tells no ids"


async def test_a_server_that_tells_nothing_at_all() -> None:
    with upstream(routes({CHAT: CONTENT})) as server:
        found = await known(server, parser="hermes")
    assert (found.way, found.depth, found.why) == (None, "verbatim", "it takes return_token_ids, but tells no ids")


async def test_the_settings_bound_what_is_asked_for() -> None:
    completes = sse({"choices": [{"index": 0, "text": "Hi", "finish_reason": "length"}]})
    with upstream(routes(vllm(Vllm(), **{COMPLETIONS: completes}))) as server:
        assert await known(server, depth="verbatim") == Known(why="the settings say so")
        assert server.asked == []
        text = await known(server, depth="text")
        assert (text.way, text.depth, text.why) == (None, "verbatim", "the settings say so")
        parsed = await known(server, depth="text", parser="hermes")
        assert (parsed.way, parsed.depth, parsed.why) == ("completions", "text", "the settings say so")
        assert posts(server, CHAT) == []
        assert (await known(server, depth="tokens")).way == "chat"
    with upstream(routes({CHAT: CONTENT, COMPLETIONS: completes})) as server:
        assert (await known(server, depth="tokens", parser="hermes")).way is None


# --- who it is --------------------------------------------------------------------------------------------------------


async def test_facts_are_kept_by_a_list_and_secrets_are_not_on_it() -> None:
    with upstream(routes(sglang())) as server:
        found = await known(server)
    assert found.engine == EngineFacts(
        kind="sglang", model=MODEL, max_tokens=32768, versions={"sglang": "0.5.23"},
        arguments={
            "model_path": "/models/qwen3", "tokenizer_path": "/models/qwen3", "tool_call_parser": "qwen25",
            "reasoning_parser": "qwen3", "stream_interval": "1", "dtype": "auto", "tp_size": "1",
            "chat_template": short_hash("{{ secret }}\n" * 50),
        },
    )  # fmt: skip
    assert "secret" not in repr(found)


async def test_vllm_in_dev_mode_tells_how_it_was_started() -> None:
    info = {"vllm_config": {"model_config": {"dtype": "bfloat16", "hf_token": "secret", "quantization": None},
                            "structured_outputs_config": {"reasoning_parser": "qwen3"}},
            "vllm_env": {"VLLM_API_KEY": "secret"}}  # fmt: skip
    with upstream(routes(vllm(Vllm(), **{"/server_info": value(info)}))) as server:
        found = await known(server)
    assert found.engine.arguments == {"dtype": "bfloat16", "reasoning_parser": "qwen3"}


@pytest.mark.parametrize("junk", [b"null", b"[]", b"3", b"nonsense", b"[" * 100_000, b'{"data": {"a": 1}}', b""])
async def test_nonsense_in_place_of_facts_is_no_fact(junk: bytes) -> None:
    paths = ("/version", "/server_info", "/get_server_info", "/get_model_info", "/props", "/v1/models", "/health")
    with upstream(routes({CHAT: Vllm(), **dict.fromkeys(paths, plain(junk))})) as server:
        found = await known(server)
    assert (found.way, found.engine) == ("chat", EngineFacts(kind="unknown", model=MODEL))


async def test_who_does_not_tell_in_time_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "QUICK", 0.1)
    release, quick = threading.Event(), ("/props", "/version")
    whole: Any = vars(Prober)["_whole"]

    async def patiently(self: Prober, method: str, path: str, *rest: Any) -> Any:
        """The others have all the time that they need, on a busy machine too."""
        with anyio.CancelScope(shield=path not in quick):
            return await whole(self, method, path, *rest)

    monkeypatch.setattr(Prober, "_whole", patiently)

    def never(asked: Asked) -> bytes:
        assert release.wait(PATIENCE)
        return b""

    with upstream(routes(vllm(Vllm(), **dict.fromkeys(quick, never)))) as server:
        found = await known(server)
        release.set()
    assert (found.way, found.engine.kind, found.engine.versions) == ("chat", "vllm", {})


# --- when -------------------------------------------------------------------------------------------------------------


async def test_many_requests_at_once_make_one_probe_with_the_first_ones_credentials() -> None:
    with upstream(routes(vllm(Vllm()))) as server:
        async with Pool([UpstreamSettings(name="a", url=server.url)]) as pool:
            found: list[Known] = []

            async def one(number: int) -> None:
                headers = [("authorization", f"Bearer {number}"), ("x-private", "1"), ("cookie", "c")]
                found.append(await pool.upstreams[0].known(headers, MODEL))

            async with anyio.create_task_group() as tasks:
                for number in range(20):
                    tasks.start_soon(one, number)
            assert {one.way for one in found} == {"chat"}
            assert len(posts(server, CHAT)) == 2
            await pool.upstreams[0].known([], "another")
            assert [asked.json["model"] for asked in posts(server, CHAT)] == [MODEL, MODEL, "another", "another"]
            assert pool.stats.requests == {}
    for asked in server.asked[:9]:
        assert asked.header("authorization") == "Bearer 0"
        assert asked.header("cookie") == "c"
        assert asked.header("x-private") is None


async def test_an_upstreams_own_key_is_the_probes_too() -> None:
    with upstream(routes(vllm(Vllm()))) as server:
        await known(server, [("authorization", "Bearer theirs")], key_env="K")
    assert {asked.header("authorization") for asked in server.asked} == {"Bearer sk-ours"}


class Later:
    """anyio, at another time: ``ahead`` seconds later than it is."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def current_time(self) -> float:
        return anyio.current_time() + self.ahead

    def __getattr__(self, name: str) -> Any:
        return getattr(anyio, name)


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503])
async def test_what_cannot_be_found_out_now_is_found_out_later(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Later()
    monkeypatch.setattr(probe, "anyio", clock)
    monkeypatch.setattr(probe, "AGAIN", (1000.0, 1000.0))
    model = Vllm()
    refusing = True

    def answer(asked: Asked) -> bytes:
        return error(status) if refusing else model(asked)

    with upstream(routes(vllm(answer))) as server:
        async with Pool([UpstreamSettings(name="a", url=server.url)]) as pool:
            one = pool.upstreams[0]
            found = await one.known([], MODEL)
            assert (found.way, found.depth) == (None, "verbatim")
            assert found.why == f"a trial was answered with status {status}"
            assert found.engine.kind == "vllm"
            clock.ahead = 500.0
            assert await one.known([], MODEL) == found
            assert len(posts(server, CHAT)) == 1
            refusing = False
            clock.ahead = 1001.0
            assert (await one.known([], MODEL)).way == "chat"
            clock.ahead = 5000.0
            await one.known([], MODEL)
            assert len(posts(server, CHAT)) == 3


async def test_nobody_listens() -> None:
    found = await known(refusing())
    assert (found.way, found.why) == (None, "a trial failed (upstream_refused)")


async def test_a_probe_that_takes_long_holds_nobody_up_and_is_there_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "PATIENCE", 0.1)
    model, release = Vllm(), threading.Event()

    def slow(asked: Asked) -> bytes:
        assert release.wait(PATIENCE)
        return model(asked)

    with upstream(routes(vllm(slow))) as server:
        async with Pool([UpstreamSettings(name="a", url=server.url)]) as pool:
            one = pool.upstreams[0]
            found = await one.known([], MODEL)
            assert found == Known(why="what it tells was not found out in time")
            release.set()
            with anyio.fail_after(PATIENCE):
                while (await one.known([], MODEL)).way is None:
                    pass
            assert len(posts(server, CHAT)) == 2


async def test_who_was_down_may_be_another_one_now() -> None:
    with upstream(routes(vllm(Vllm()))) as server:
        async with Pool([UpstreamSettings(name="a", url=server.url, retries=0)]) as pool:
            one = pool.upstreams[0]
            await one.known([], MODEL)
            one.turned("down", "a test says so")
            assert await one.known([], MODEL) == Known(why="the upstream is down")
            one.turned("up", "a test says so")
            assert (await one.known([], MODEL)).way == "chat"
    assert len(posts(server, CHAT)) == 4


async def test_clients_that_name_any_model_fill_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "MOST", 3)
    with upstream(routes({CHAT: error(404)})) as server:
        async with Pool([UpstreamSettings(name="a", url=server.url)]) as pool:
            for number in range(6):
                await pool.upstreams[0].known([], f"m{number}")
            before = len(posts(server, CHAT))
            await pool.upstreams[0].known([], "m5")
            assert len(posts(server, CHAT)) == before
            await pool.upstreams[0].known([], "m0")
            assert len(posts(server, CHAT)) == before + 1
