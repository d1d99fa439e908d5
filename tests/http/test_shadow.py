"""Shadows: what other parsers make of sessions is stored after their end, and no client notices."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from pipeline.engines.scripted import ScriptedEngine
from pipeline.recorder import Record as Recording
from pipeline.recorder import Recorder
from pipeline.shadow import Shadows
from replay import derive
from stages.events import (
    AbortInput,
    Content,
    End,
    ErrorInput,
    Finish,
    FinishInput,
    Head,
    PromptInput,
    Start,
    TokensInput,
    UsageInput,
)
from stages.opening import UpstreamFacts
from store import open_store
from store.api import SessionInfo
from tests.support.answers import TOOLS
from tests.support.asgi import Exchange, chat, serving
from tests.support.server import IDLE_PATIENCE, Running, eventually, serve
from tests.support.shadow import CALL, Bad, closed, one, shadowed
from tests.support.store import opening


@pytest.fixture
def bad(tmp_path: Path) -> Bad:
    return Bad(tmp_path)


# --- what is stored ---------------------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize("where", ["memory:", "playhead.db"])
async def test_what_other_parsers_make_is_stored(tmp_path: Path, where: str) -> None:
    store = open_store(where if where == "memory:" else str(tmp_path / where))
    names = ("hermes", "llama3_json", "examples/modified_parser.py:Parser")
    async with shadowed(store, *names) as server:
        exchange = await Exchange(chat(tools=TOOLS)).run(server)
    assert b'"name":"tide"' in exchange.body
    shadows = server.shadows
    assert (shadows.shadowed, shadows.skipped, shadows.failed) == (1, 0, 0)
    info = one(store)
    # The modified parser takes the answer to begin inside reasoning; the model opens it itself, which is then text.
    assert info.shadows == {"hermes": "same", "llama3_json": "changed", names[2]: info.shadows[names[2]]}
    assert info.differs.split()[-1] == "llama3_json"
    assert shadows.verdicts == dict.fromkeys(info.shadows.items(), 1)
    trace = store.load(info.session)
    inputs = trace.records["input", "engine"]
    for name in names:
        made = derive(trace.opening, [record.event for record in inputs], name).semantic
        records = trace.records[f"shadow:{name}", "semantic"]
        assert [record.event for record in records] == made.events
        assert [record.cause for record in records] == made.causes
        assert [record.at for record in records] == [inputs[cause].at for cause in made.causes]
    assert trace.events("shadow:hermes", "semantic") == trace.events("served", "semantic")
    assert [found.session for found in store.sessions("json_extract(shadows, '$.llama3_json') = 'changed'")]
    await closed(store)


@pytest.mark.anyio
async def test_lean_keeps_the_verdicts(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "playhead.db"))
    async with shadowed(store, "hermes", "plain", record="lean") as server:
        await Exchange(chat(tools=TOOLS)).run(server)
    info = one(store)
    assert info.shadows == {"hermes": "same", "plain": "changed"}
    assert set(store.load(info.session).records) == {("input", "engine"), ("socket", "frame")}
    assert info.digests["shadow:hermes/semantic"] == info.digests["served/semantic"]
    assert info.digests["shadow:plain/semantic"] != info.digests["served/semantic"]
    await closed(store)


@pytest.mark.anyio
async def test_a_session_without_tokens_is_not_compared() -> None:
    store = open_store("memory:")
    script = [ErrorInput("overloaded", "Come back later.")]
    async with shadowed(store, "hermes", "plain", script=script) as server:
        await Exchange(chat()).run(server)
    info = one(store)
    assert info.shadows == {"hermes": "uncompared", "plain": "uncompared"}
    assert info.differs == ""
    assert not [track for track, _ in store.load(info.session).records if track.startswith("shadow:")]


@pytest.mark.anyio
async def test_a_session_that_a_client_left(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "playhead.db"))
    async with shadowed(store, "hermes", script=[*CALL, *["word "] * 3000]) as server:
        exchange = Exchange(chat(tools=TOOLS))
        exchange.on_send = lambda message: exchange.leave()
        await exchange.run(server)
    info = one(store)
    assert (info.state, info.shadows) == ("aborted", {"hermes": "same"})
    await closed(store)


@pytest.mark.anyio
@pytest.mark.parametrize("stop", ["port", "tide"])
async def test_stop_strings_hold_for_shadows_too(stop: str) -> None:
    store = open_store("memory:")
    async with shadowed(store, "hermes", "qwen3") as server:
        await Exchange(chat(tools=TOOLS, stop=[stop])).run(server)
    assert one(store).shadows["hermes"] == "same"


# --- sessions that another server answered ----------------------------------------------------------------------------

TOKENS = UpstreamFacts(name="a", url="http://127.0.0.1:8000", path="/v1/chat/completions", depth="tokens")


async def relayed(
    upstream: UpstreamFacts, said: str, inputs: Sequence[Any], mode: Recording = "full", **fields: Any
) -> SessionInfo:
    """A relayed session whose upstream said this, after ``hermes`` has looked at its inputs."""
    store = open_store("memory:")
    recorder = Recorder(store, mode=mode)
    shadows = Shadows(recorder)
    made = msgspec.structs.replace(opening("s0"), upstream=upstream, **fields)
    async with shadows.running():
        shadows.finish_by(anyio.current_time() + IDLE_PATIENCE)
        writer = recorder.open(made, lambda: 5)
        writer.tap("upstream", "frame")([Head(200, ())], [-1])
        theirs = [Start(0, 0), Content(0, said, (0, len(said))), Finish(0, "eos"), End()]
        writer.tap("upstream", "semantic")(theirs, [0] * 4)
        writer.tap("input", "engine")([*inputs], [0] * len(inputs))
        writer.close("closed")
        shadows.offer(made, writer, ["hermes"])
    assert shadows.shadowed == 1
    return store.info("s0")


def wrote(*pieces: str, **fields: Any) -> list[Any]:
    steps = [TokensInput(0, (7 + seq,), (piece.encode(),), "") for seq, piece in enumerate(pieces)]
    return [PromptInput((1,), "", 1), *steps, FinishInput(0, "eos", 311), UsageInput(1, len(pieces))]


@pytest.mark.anyio
@pytest.mark.parametrize("protocol", ["chat", "messages", "responses"])
async def test_a_relayed_answer_is_compared_with_the_upstreams_own_parse(protocol: str) -> None:
    inputs = wrote("Two ", "a ", "day.")
    assert (await relayed(TOKENS, "Two a day.", inputs, protocol=protocol)).shadows == {"hermes": "same"}
    other = await relayed(TOKENS, "Two a", inputs, protocol=protocol)
    assert (other.shadows, other.differs) == ({"hermes": "changed"}, "hermes")
    assert other.events["shadow:hermes/semantic"] > 0
    styled = await relayed(TOKENS, " Two a day.\n", inputs, protocol=protocol)
    assert (styled.shadows, styled.differs) == ({"hermes": "restyled"}, "")


@pytest.mark.anyio
async def test_raw_text_is_enough() -> None:
    text = msgspec.structs.replace(TOKENS, depth="text")
    steps = [TokensInput(0, (), (), "Two "), TokensInput(0, (), (), "a day.")]
    inputs = [PromptInput((), "", 1), *steps, FinishInput(0, "eos"), UsageInput(1, 3)]
    assert (await relayed(text, "Two a day.", inputs)).shadows == {"hermes": "same"}


@pytest.mark.anyio
@pytest.mark.parametrize(
    "inputs",
    [
        [],
        [ErrorInput("engine", "The upstream went away.", "upstream_cut")],
        [AbortInput("client")],
        # Ids whose bytes nobody knows.
        [PromptInput((), "", 1), TokensInput(0, (5, 6), (), ""), FinishInput(0, "eos", 7), UsageInput(1, 2)],
    ],
    ids=["nothing", "cut", "left", "ids only"],
)
async def test_what_the_model_wrote_is_not_known(inputs: list[Any]) -> None:
    info = await relayed(TOKENS, "Two a day.", inputs)
    assert (info.shadows, info.differs) == ({"hermes": "uncompared"}, "")
    assert "shadow:hermes/semantic" not in info.events


# --- clients see nothing ----------------------------------------------------------------------------------------------


def normal(exchange: Exchange) -> list[tuple[str, str]]:
    """The messages of a response in order, without what is a session's own."""
    own = exchange.headers["x-request-id"].removeprefix("chatcmpl-")
    made: list[tuple[str, str]] = []
    for message in exchange.sent:
        text = str(message.get("headers", "")) + message.get("body", b"").decode()
        made.append((message["type"], re.sub(r'"created":\d+|call_\w+', "", text.replace(own, ""))))
    return made


@pytest.mark.anyio
@pytest.mark.parametrize("where", ["memory:", "playhead.db"])
async def test_clients_see_nothing(tmp_path: Path, bad: Bad, where: str) -> None:
    names = ("plain", bad("Raises"), bad("Quits"), bad("Dies"), bad("Hangs"))
    seen: list[list[list[tuple[str, str]]]] = []
    for shadows in ((), names):
        store = open_store(where if where == "memory:" else str(tmp_path / f"{len(seen)}.db"))
        async with serving(store, ScriptedEngine([CALL]), parser="hermes", shadow=shadows) as server:
            async with server.shadows.running():
                answers: list[list[tuple[str, str]]] = []
                for stream in (True, False) * 4:
                    exchange = await Exchange(chat(tools=TOOLS, stream=stream)).run(server)
                    assert exchange.complete
                    answers.append(normal(exchange))
        seen.append(answers)
        await closed(store)
    assert seen[0] == seen[1]
    assert all(answer[0][0] == "http.response.start" for answer in seen[0])


# --- a server ---------------------------------------------------------------------------------------------------------


def until(running: Running, sessions: int, shadows: int) -> list[SessionInfo]:
    """The sessions, newest first, once there are so many, and so many have looked at each."""

    def look() -> list[SessionInfo] | None:
        found = running.sessions()
        return found if [len(info.shadows) for info in found] == [shadows] * sessions else None

    return eventually(look, IDLE_PATIENCE)


def test_a_server_with_shadows(tmp_path: Path, bad: Bad) -> None:
    names = ("hermes", "llama3_json", bad("Raises"))
    with serve(tmp_path, "--parser", "hermes", "--shadow", ",".join(names), script=CALL) as running:
        streamed = running.post(stream=True, tools=TOOLS).text
        whole = running.post(stream=False, tools=TOOLS).json()
        infos = until(running, 2, 3)
        text = running.http.get("/metrics").text
    assert json.loads(streamed.split("data: ")[2])["choices"]
    assert whole["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "tide"
    for info in infos:
        assert info.shadows == {names[2]: "failed", "hermes": "same", "llama3_json": "changed"}
    assert 'playhead_shadow_verdicts_total{parser="llama3_json",verdict="changed"} 2.0' in text
    assert "playhead_shadowed_total 2.0" in text
    # The process that looked has let go of the store: after the stop one file holds everything.
    assert [path.name for path in tmp_path.glob("playhead.db*")] == ["playhead.db"]
    assert "tide" not in running.log.read_text()
