"""Shadows: what other parsers make of sessions is stored after their end, and no client notices."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import msgspec
import pytest

from pipeline import afterwards, shadow
from pipeline.engines.scripted import ScriptedEngine
from pipeline.http.app import Server
from pipeline.recorder import Record as Recording
from pipeline.recorder import Recorder
from pipeline.shadow import MOST, Shadows
from replay import ReplayError, derive
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
from store import SqliteStore, open_store
from store.api import EventStore, SessionInfo
from tests.support.answers import TOOLS
from tests.support.asgi import Exchange, chat, serving
from tests.support.server import PATIENCE, Running, eventually, serve
from tests.support.store import opening

CALL = [
    "<think>",
    "\nWhich port?\n",
    "</think>",
    "\n\n",
    '<tool_call>\n{"name": "tide", ',
    '"arguments": {}}\n</tool_call>',
]
"""A call, as hermes writes it; qwen3 writes it so too, and llama3_json does not."""

BAD = """
import os, sys, time
from stages import catalog
from stages.events import Content, Finish, TokensInput
from stages.parse.parser import Parser as P

HERMES = catalog.parser("hermes")


class Machine:
    def __init__(self, machine):
        self.machine, self.steps = machine, 0

    def step(self, event, out):
        self.steps += isinstance(event, TokensInput)
        if self.steps == 3:
            self.fail(out)
        self.machine.step(event, out)

    def snapshot(self):
        return self.machine.snapshot()


class Bad:
    machine = Machine

    def start(self, opening):
        return self.machine(HERMES.start(opening))


def bad(fail):
    machine = type("Machine", (Machine,), {"fail": fail})
    return type("Parser", (Bad,), {"machine": machine})


class Odd(BaseException):
    def __init__(self, one, other):
        super().__init__(one)


def loud(self, out):
    os.write(1, b"the words of a client" * 100)


def odd(self, out):
    raise Odd("the words of a client", 1)


def interrupt(self, out):
    raise KeyboardInterrupt


Raises = bad(lambda self, out: out[99])
Quits = bad(lambda self, out: sys.exit(1))
Interrupts = bad(interrupt)
RaisesOdd = bad(odd)
Strange = bad(lambda self, out: out.append("no event"))
Unsound = bad(lambda self, out: out.append(Content(0, 7, (0, 1))))
Half = bad(lambda self, out: out.append(Content(0, chr(0xD800), (0, 1))))
Huge = bad(lambda self, out: out.append(Content(0, "a", (0, 1 << 70))))
Dies = bad(lambda self, out: os._exit(3))
Hangs = bad(lambda self, out: time.sleep(3600))
Spins = bad(lambda self, out: [None for _ in iter(int, 1)])
Loud = bad(loud)
"""
KIND = ("Raises", "Quits", "Interrupts", "RaisesOdd", "Strange", "Unsound", "Half", "Huge")
"""Those that fail and leave their process alive."""


@pytest.fixture
def bad(tmp_path: Path) -> Callable[[str], str]:
    """The name of a parser that does something bad at the third step."""
    path = tmp_path / "bad.py"
    path.write_text(BAD)
    return lambda name: f"{path}:{name}"


@asynccontextmanager
async def shadowed(
    store: EventStore, *names: str, script: Sequence[Any] = CALL, record: Recording = "full"
) -> AsyncGenerator[Server]:
    """A server whose shadows run; when the block is left, all that waits has been looked at."""
    async with serving(store, ScriptedEngine([[*script]]), parser="hermes", shadow=names) as server:
        server.recorder.mode = record
        async with server.shadows.running():
            server.shadows.finish_by(anyio.current_time() + 3 * PATIENCE)
            yield server


async def closed(store: EventStore) -> None:
    await anyio.to_thread.run_sync(store.close)


def one(store: EventStore) -> SessionInfo:
    [info] = store.sessions()
    return info


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
        shadows.finish_by(anyio.current_time() + PATIENCE)
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


# --- parsers that fail ------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_parser_that_fails_leaves_the_others_alone(
    bad: Callable[[str], str], caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store("memory:")
    names = [bad(name) for name in KIND]
    async with shadowed(store, *names, "hermes") as server:
        await Exchange(chat(tools=TOOLS)).run(server)
    shadows = server.shadows
    assert (shadows.shadowed, shadows.failed) == (1, 0)
    info = one(store)
    assert info.shadows == {**dict.fromkeys(names, "failed"), "hermes": "same"}
    assert info.differs.split() == sorted(names)
    # What they gave before is there, and can be read; but for those that raise what nobody catches.
    trace = store.load(info.session)
    for name in KIND:
        events = trace.events(f"shadow:{bad(name)}", "semantic")
        assert events == trace.events("served", "semantic")[: len(events)]
        assert bool(events) == (name not in ("Interrupts", "RaisesOdd"))
    assert "words of a client" not in caplog.text


@pytest.mark.anyio
async def test_a_parser_that_ends_its_process(
    tmp_path: Path, bad: Callable[[str], str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shadow, "STRIKES", 2)
    store = open_store(str(tmp_path / "playhead.db"))
    async with shadowed(store, bad("Dies"), "hermes", bad("Loud")) as server:
        for _ in range(3):
            exchange = await Exchange(chat(tools=TOOLS)).run(server)
            assert exchange.complete
    shadows = server.shadows
    assert (shadows.shadowed, shadows.failed) == (3, 0)
    assert shadows.verdicts == {
        (bad("Dies"), "failed"): 2, ("hermes", "same"): 3, (bad("Loud"), "failed"): 2,
    }  # fmt: skip
    newest, *rest = store.sessions()
    assert newest.shadows == {"hermes": "same"}
    assert all(info.shadows == {bad("Dies"): "failed", "hermes": "same", bad("Loud"): "failed"} for info in rest)
    told = [record.getMessage() for record in caplog.records if record.name == "playhead.shadow"]
    assert len(told) == 4
    assert f"BrokenWorkerProcess in {bad('Dies')}" in told[0]
    assert f"{bad('Dies')} hung or ended its process 2 times" in caplog.text
    assert "words of a client" not in caplog.text
    await closed(store)


@pytest.mark.anyio
@pytest.mark.parametrize("how", ["Hangs", "Spins"])
async def test_a_parser_that_hangs(monkeypatch: pytest.MonkeyPatch, bad: Callable[[str], str], how: str) -> None:
    store = open_store("memory:")
    async with shadowed(store, "hermes") as server:
        await Exchange(chat(tools=TOOLS)).run(server)
        with anyio.fail_after(PATIENCE):
            while not server.shadows.shadowed:  # noqa: ASYNC110  (another process is what is waited for)
                await anyio.sleep(0.01)
        # The other process is up: what takes longer now is the parser.
        monkeypatch.setattr(afterwards, "PATIENCE", 1.0)
        hanging = Shadows(server.recorder, [bad(how)])
        async with hanging.running():
            hanging.finish_by(anyio.current_time() + PATIENCE)
            session = store.load(one(store).session).opening
            elsewhere = Recorder(open_store("memory:"))
            for _ in range(2):
                hanging.offer(session, elsewhere.open(session, lambda: 0))
    assert hanging.verdicts[bad(how), "failed"] == 2
    assert one(store).shadows == {"hermes": "same", bad(how): "failed"}


# --- where there is nothing to do, or no time -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["hermes", "hermse"], "no parser 'hermse'; did you mean hermes"),
        (["hermes", "qwen3", "hermes"], "shadow 'hermes' is there twice"),
        (["nowhere/x.py:P"], "there is no file nowhere/x.py"),
        (["vllm:qwen3+hermes"], "not available"),
        (["x.py"], "name the attribute"),
        ([f"x{number}" for number in range(MOST + 1)], f"at most {MOST} parsers"),
    ],
)
def test_parsers_that_cannot_be_had(names: list[str], says: str) -> None:
    with pytest.raises(ReplayError, match=re.escape(says)):
        Shadows(Recorder(open_store("memory:")), names)


def test_parsers_that_can_be_had() -> None:
    Shadows(Recorder(None), ["auto", "deepseek_r1+hermes", "examples/modified_parser.py:Parser"])


@pytest.mark.anyio
async def test_where_it_lags_sessions_are_skipped() -> None:
    recorder = Recorder(open_store("memory:"))
    shadows = Shadows(recorder, ["hermes"])
    async with shadows.running():
        for number in range(afterwards.WAITING + 6):
            made = opening(f"{number:032x}")
            # Nothing runs between two offers: the first is still waited for.
            shadows.offer(made, recorder.open(made, lambda: 0))
        assert shadows.waiting == afterwards.WAITING
    assert (shadows.skipped, shadows.shadowed, shadows.failed) == (6, 0, 0)


@pytest.mark.anyio
async def test_where_there_is_nothing_to_do() -> None:
    recorder = Recorder(None)
    shadows = Shadows(recorder, ["hermes"])
    async with shadows.running():
        shadows.offer(opening(), recorder.open(opening(), lambda: 0))
    recorder = Recorder(open_store("memory:"), mode="off")
    shadows = Shadows(recorder, ["hermes"])
    async with shadows.running():
        shadows.offer(opening(), recorder.open(opening(), lambda: 0))
        # Nobody was named.
        other = Shadows(Recorder(open_store("memory:")))
        other.offer(opening(), other_recorder().open(opening(), lambda: 0))
        assert shadows.waiting == other.waiting == 0
    # Neither before nor after it runs.
    shadows.offer(opening(), other_recorder().open(opening(), lambda: 0))
    assert (shadows.skipped, shadows.shadowed, shadows.failed) == (0, 0, 0)


def other_recorder() -> Recorder:
    return Recorder(open_store("memory:"))


class Unwritable(SqliteStore):
    """A store to which nothing can be added."""

    def attach(self, *args: Any, **options: Any) -> None:
        raise RuntimeError("the words of a client")


@pytest.mark.anyio
async def test_what_cannot_be_stored_is_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = Unwritable(tmp_path / "playhead.db")
    async with shadowed(store, "hermes", "plain") as server:
        for _ in range(2):
            assert (await Exchange(chat(tools=TOOLS)).run(server)).complete
    assert (server.shadows.failed, server.shadows.shadowed) == (2, 0)
    [told] = [record.getMessage() for record in caplog.records if record.name == "playhead.shadow"]
    assert told.endswith("could not be shadowed: RuntimeError")
    await closed(store)


@pytest.mark.anyio
async def test_a_parser_that_hangs_does_not_hold_up_the_end(bad: Callable[[str], str]) -> None:
    store = open_store("memory:")
    recorder = Recorder(store)
    shadows = Shadows(recorder, [bad("Hangs")])
    began = anyio.current_time()
    async with serving(store, ScriptedEngine([CALL]), parser="hermes") as server, shadows.running():
        server.recorder = recorder
        await Exchange(chat(tools=TOOLS)).run(server)
        session = store.load(one(store).session).opening
        shadows.offer(session, other_recorder().open(session, lambda: 0))
        shadows.finish_by(anyio.current_time() + 0.5)
    assert anyio.current_time() - began < PATIENCE
    assert (shadows.shadowed, one(store).shadows) == (0, {})


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
async def test_clients_see_nothing(tmp_path: Path, bad: Callable[[str], str], where: str) -> None:
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

    return eventually(look)


def test_a_server_with_shadows(tmp_path: Path, bad: Callable[[str], str]) -> None:
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
