"""What upstreams do with our stages behind them that none should: each test is the smallest input of a fault that
was found once. Real processes where it needs one, on loopback."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pipeline.upstream.pool import Pool
from pipeline.upstream.probe import Known
from pipeline.upstream.settings import UpstreamSettings
from pipeline.upstream.stream import Stops
from pipeline.vocabulary import Vocabulary
from replay import Replayer, ReplayError
from stages.events import ErrorInput, FinishInput, Input, PromptInput, TokensInput, UsageInput
from store.api import Trace
from tests.support.captures import captures
from tests.support.inputs import opening, told
from tests.support.proxies import Got, ended, latest, post, proxied
from tests.support.server import Running, replayed
from tests.support.upstream_engines import (
    CHAT,
    COMPLETIONS,
    CONTENT,
    GENERATE,
    MODEL,
    Route,
    Vllm,
    error,
    listed,
    sglang,
    sse,
    vllm,
)
from tests.support.upstream_traces import relayed, with_opening, with_records
from tests.support.upstreams import Answer, Asked, Server, plain, routes, upstream
from tests.support.validated import assert_clean
from tests.support.vocabularies import tokenizer_folder

THE, END = 785, 151645
"""``The``, and the end token, in the vocabulary qwen3; 199999 is in no part of it."""

# --- usage ------------------------------------------------------------------------------------------------------------


def stops(*inputs: Input, n: int = 1) -> list[Input]:
    """What is left of them where ``b`` ends a choice."""

    def watch(event: Input) -> str | None:
        return "b" if isinstance(event, TokensInput) and event.text == "b" else None

    return Stops(watch, n)(list(inputs), list(range(len(inputs))))[0]


def step(text: str, choice: int = 0) -> TokensInput:
    return TokensInput(choice, (ord(text),), (), text)


def test_usage_behind_a_stop_that_only_we_look_for() -> None:
    """However many of its events one read brings: what came behind the stop is nobody's."""
    prompt, end = PromptInput((), "", 7, 2), FinishInput(0, "stop", "b")
    cut = [prompt, step("a"), step("b"), end, UsageInput(7, 2, 2)]
    assert stops(prompt, step("a"), step("b")) == cut
    rest: list[Input] = [step("c"), step("d"), FinishInput(0, "eos"), UsageInput(7, 5, 2)]
    assert stops(prompt, step("a"), step("b"), *rest) == cut


def test_usage_as_told_where_nothing_was_cut() -> None:
    told_so: list[Input] = [PromptInput((), "", 7), step("a"), FinishInput(0, "eos"), UsageInput(7, 2)]
    assert stops(*told_so) == told_so


def test_usage_of_two_choices_one_of_which_was_cut() -> None:
    """The other may well be over first."""
    events: list[Input] = [
        PromptInput((), "", 7), step("a"), FinishInput(0, "eos"), step("b", 1), step("c", 1), FinishInput(1, "eos"),
        UsageInput(7, 5),
    ]  # fmt: skip
    assert stops(*events, n=2)[-2:] == [FinishInput(1, "stop", "b"), UsageInput(7, 2)]


# --- what the ways read -----------------------------------------------------------------------------------------------

PARSED = opening(relayed=False)
TRUNCATED = "truncated"


def generated(text: str, ids: Any, finish: Any = None, **more: Any) -> dict[str, Any]:
    meta = {"prompt_tokens": 3, "finish_reason": finish, "completion_tokens": len(ids or ())}
    return {"text": text, "output_ids": ids, "meta_info": meta, **more}


def finished(inputs: Sequence[Input]) -> list[int]:
    return [event.choice for event in inputs if isinstance(event, FinishInput)]


@pytest.mark.parametrize(
    ("way", "value"),
    [
        ("generate", generated("H", [72], {"type": "stop", "matched": 9}, index=5)),
        ("completion", {"index": 5, "content": "H", "tokens": [72], "stop": True, "stop_type": "eos"}),
        ("completions", {"choices": [{"index": 5, "text": "H", "finish_reason": "stop"}]}),
        ("chat", {"choices": [{"index": 5, "delta": {"content": "H"}, "token_ids": [72], "finish_reason": "stop"}]}),
    ],
)
def test_a_choice_that_nobody_asked_for(way: str, value: Any) -> None:
    """It stands for none that was: the client would get a choice that never ends, with status 200."""
    made = told(way, value, of=PARSED)
    assert finished(made) == []
    assert isinstance(made[-1], ErrorInput)
    assert made[-1].code == TRUNCATED
    # A client that is relayed gets it, so it is recorded.
    assert finished(told(way, value, of=opening())) == [5]


def chat(text: str, ids: Any, finish: str | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": {"content": text}, "token_ids": ids, "finish_reason": finish, **more}
    return {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": MODEL, "choices": [choice]}


@pytest.mark.parametrize("ids", [None, [], "abc", [1.5], [1 << 70]])
def test_text_without_its_ids(ids: Any) -> None:
    """The upstream was found to tell them, and now does not: an empty answer would be served."""
    made = told("chat", chat("Hi", ids), chat("", None, "stop"), of=PARSED)
    assert isinstance(made[-1], ErrorInput)
    assert made[-1].code == "upstream_untold"
    # Of a relayed session it is only less that is known.
    assert isinstance(told("chat", chat("Hi", ids), chat("", None, "stop"))[-1], UsageInput)


def test_a_stop_string_that_takes_all_ids_away() -> None:
    made = told("chat", chat("", None, "stop", stop_reason="Hi"), of=PARSED)
    assert made[-2:] == [FinishInput(0, "stop", "Hi"), UsageInput(0, 0)]


def test_ids_in_some_events_only() -> None:
    """What is cumulative is told by two events that have ids, not by one that has none."""
    values = [generated("H", [72]), generated("Hi", None), generated("Hi", [72, 105], {"type": "length"})]
    steps = [event.ids for event in told("generate", *values) if isinstance(event, TokensInput)]
    assert steps == [(72,), (105,)]


# --- ids that the tokenizer does not have -----------------------------------------------------------------------------


@contextmanager
def parsed(folder: Path, answer: Answer, *options: str) -> Generator[tuple[Running, Server]]:
    where = tokenizer_folder("qwen3", folder / "qwen3")
    with (
        upstream(answer) as server,
        proxied(folder, server.url, "--tokenizer", str(where), *(options or ("--parser", "plain"))) as running,
    ):
        yield running, server


def ask(running: Running, **fields: Any) -> tuple[Got, Trace]:
    before = ended(running)
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Go"}], **fields}
    got = post(running.address, CHAT, json.dumps(body).encode())
    return got, latest(running, before + 1)


def tells(*chunks: Any) -> Answer:
    """vLLM, but for these chunks of every chat that is no trial."""
    trial = Vllm()

    def answer(asked: Asked) -> bytes:
        return trial(asked) if asked.json.get("max_tokens") == 2 else sse(*chunks)

    return routes(vllm(answer))


def test_an_id_that_the_tokenizer_does_not_have(tmp_path: Path) -> None:
    """The client hears of it, and whoever runs the server: an answer without that token would look like a whole one."""
    chunks = [chat("The", [THE]), chat("x", [THE, 199999]), chat("", [END], "stop")]
    with parsed(tmp_path, tells(*chunks)) as (running, _):
        whole, _ = ask(running)
        streamed, trace = ask(running, stream=True)
        assert (whole.status, json.loads(whole.body)["error"]["code"]) == (500, "unknown_token")
        assert b'"The"' in streamed.body
        assert b"199999" in streamed.body
        assert streamed.body.endswith(b"data: [DONE]\n\n")
        assert isinstance(trace.events("input", "engine")[-1], ErrorInput)
        assert "is it its model's?" in running.log.read_text()
    assert_clean(running.store)
    assert {result.verdict for result in replayed(running.store)} == {"same"}


def test_the_id_of_a_token_whose_id_is_not_told(tmp_path: Path) -> None:
    """It says nothing of the tokenizer."""
    loaded = Vocabulary.load(str(tokenizer_folder("qwen3", tmp_path / "qwen3")))
    event = TokensInput(0, (-1,), (), "x")
    assert loaded.joined([event]) == [event]
    assert loaded.unknown == 0


def test_why_a_session_cannot_be_compared() -> None:
    """Another import with the tokenizer that it has joins nothing."""
    trace = relayed(captures()["vllm_plain-plain"])
    first, *_ = [event for event in trace.events("input", "engine") if isinstance(event, TokensInput)]
    bare = TokensInput(0, (*first.ids, 199999), (), "")
    records = [
        record if record.event != first else type(record)(record.seq, record.cause, record.at, bare)
        for record in trace.records["input", "engine"]
    ]
    trace = with_records(trace, "input", "engine", records)
    facts = type(trace.opening.tokenizer)(hash="0123456789abcdef", eos=trace.opening.tokenizer.eos)
    why = Replayer().replay(with_opening(trace, tokenizer=facts)).uncompared
    assert why is not None
    assert why.startswith("its tokenizer lacks ids that the upstream told")
    assert "199999" in why


def test_a_shadow_without_a_name() -> None:
    with pytest.raises(ReplayError, match="names no parser"):
        Replayer(track="shadow:")


# --- probes -----------------------------------------------------------------------------------------------------------


async def _known(server: Server, **fields: Any) -> Known:
    async with Pool([UpstreamSettings(name="a", url=server.url, **fields)]) as pool:
        return await pool.upstreams[0].known([], MODEL)


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("body", [b"ok", b"[]", b"{}", b'{"choices": 5}', b"[" * 100_000, b""])
async def test_200_to_everything(anyio_backend: str, body: bytes) -> None:
    """Something before the server answers, which may be there by and by: that is not what it tells."""
    with upstream(routes({}, missing=plain(body))) as server:
        found = await _known(server)
    assert (found.way, found.why) == (None, "a trial was answered with no chat completion")


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_chat_chunks_are_no_completions(anyio_backend: str) -> None:
    """They have choices, but no text."""
    table: dict[str, Route] = {"/v1/models": listed("x"), CHAT: CONTENT, COMPLETIONS: CONTENT}
    with upstream(routes(table)) as server:
        assert (await _known(server, parser="plain")).way is None


# --- several upstreams ------------------------------------------------------------------------------------------------


def test_what_is_sent_to_the_next_upstream_is_what_is_known_of_it(tmp_path: Path) -> None:
    """The first is asked for ids, and is busy; nothing is to be added for the second, and the session is its own."""
    trial = Vllm()

    def busy(asked: Asked) -> bytes:
        return trial(asked) if asked.json.get("max_tokens") == 2 else error(503)

    with upstream(routes(vllm(busy))) as first, upstream(routes({CHAT: CONTENT})) as second:
        (tmp_path / "upstreams.toml").write_text(
            f'[[upstream]]\nname = "a"\nurl = "{first.url}"\nmodels = ["*"]\n'
            f'[[upstream]]\nname = "b"\nurl = "{second.url}"\nmodels = ["*"]\ndepth = "verbatim"\n'
        )
        with proxied(tmp_path, str(tmp_path / "upstreams.toml")) as running:
            got, trace = ask(running, stream=True)
        [asked] = second.asked
    assert got.status == 200
    assert first.asked[-1].json["return_token_ids"] is True
    assert "return_token_ids" not in asked.json
    facts = trace.opening.upstream
    assert facts is not None
    assert (facts.name, facts.depth, facts.taken_out, facts.why) == ("b", "verbatim", "", "the settings say so")
    assert trace.opening.engine.kind == "unknown"


# --- prompts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("template", "code"), [("{# nothing #}", None), ("{{ '<|im_start|>' * 40000 }}", "context_length_exceeded")]
)
def test_a_prompt_that_leaves_nothing_to_write(tmp_path: Path, template: str, code: str | None) -> None:
    """We rendered it, so it is ours to say, in the words of the endpoint that was asked."""
    where = tokenizer_folder("qwen3", tmp_path / "qwen3", template)
    with (
        upstream(routes(sglang())) as server,
        proxied(tmp_path, server.url, "--tokenizer", str(where), "--parser", "plain") as running,
    ):
        body = {"model": MODEL, "messages": [{"role": "user", "content": "Go"}]}
        got = post(running.address, CHAT, json.dumps(body).encode())
        said = json.loads(got.body)["error"]
    assert (got.status, said["param"], said["code"]) == (400, "messages", code)


def test_what_the_endpoint_has_no_name_for(tmp_path: Path) -> None:
    """The session says what the upstream was not told."""
    ids = sse({"text": "H", "output_ids": [1], "meta_info": {"finish_reason": {"type": "length"}}})
    with parsed(tmp_path, routes(sglang(**{GENERATE: ids}))) as (running, server):
        got, trace = ask(running, guided_regex="a+", temperature=0)
    assert got.status == 200
    assert trace.opening.upstream is not None
    assert trace.opening.upstream.lost == ("guided_regex",)
    assert "guided_regex" not in server.asked[-1].json
