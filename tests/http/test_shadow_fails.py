"""Shadows that fail, hang or come too late: counted, and nothing else."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.to_process
import pytest

from pipeline import afterwards, shadow
from pipeline.engines.scripted import ScriptedEngine
from pipeline.recorder import Recorder
from pipeline.shadow import MOST, Shadows
from replay import ReplayError
from stages.opening import Opening
from store import SqliteStore, open_store
from tests.support.answers import TOOLS
from tests.support.asgi import Exchange, chat, serving
from tests.support.server import IDLE_PATIENCE, PATIENCE
from tests.support.shadow import CALL, KIND, Bad, closed, one, shadowed
from tests.support.store import opening


@pytest.fixture
def bad(tmp_path: Path) -> Bad:
    return Bad(tmp_path)


# --- parsers that fail ------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_parser_that_fails_leaves_the_others_alone(bad: Bad, caplog: pytest.LogCaptureFixture) -> None:
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
    tmp_path: Path, bad: Bad, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
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
async def test_a_parser_that_hangs(monkeypatch: pytest.MonkeyPatch, bad: Bad, how: str) -> None:
    store = open_store("memory:")
    async with shadowed(store, "hermes") as server:
        await Exchange(chat(tools=TOOLS)).run(server)
        with anyio.fail_after(IDLE_PATIENCE):
            while not server.shadows.shadowed:  # noqa: ASYNC110  (another process is what is waited for)
                await anyio.sleep(0.01)
        # The other process is up: what takes longer now is the parser.
        monkeypatch.setattr(afterwards, "PATIENCE", 1.0)
        hanging = Shadows(server.recorder, [bad(how)])
        async with hanging.running():
            hanging.finish_by(anyio.current_time() + IDLE_PATIENCE)
            session = store.load(one(store).session).opening
            elsewhere = Recorder(open_store("memory:"))
            for _ in range(2):
                hanging.offer(session, elsewhere.open(session, lambda: 0))
    assert hanging.verdicts[bad(how), "failed"] == 2
    assert one(store).shadows == {"hermes": "same", bad(how): "failed"}


@pytest.mark.anyio
@pytest.mark.skipif(sys.platform != "linux", reason="no other system tells how long a process waited")
async def test_a_sound_parser_on_a_machine_that_is_busy(monkeypatch: pytest.MonkeyPatch, bad: Bad) -> None:
    """What others take of the processor is not the parser's time: it has far less of it than its patience here."""
    store = open_store("memory:")
    async with shadowed(store, "hermes") as server:
        await Exchange(chat(tools=TOOLS)).run(server)
        shadows = Shadows(server.recorder, [bad("Slow")])
        elsewhere = Recorder(open_store("memory:"))
        async with shadows.running():
            shadows.finish_by(anyio.current_time() + IDLE_PATIENCE)
            session = store.load(one(store).session).opening
            await looked_at(shadows, session, elsewhere, 1)
            # The other process is up, and the parser loaded. Now it shares a processor with one of higher priority.
            with busy(await anyio.to_process.run_sync(os.getpid)):
                monkeypatch.setattr(afterwards, "PATIENCE", 1.0)
                await looked_at(shadows, session, elsewhere, 2)
    assert shadows.verdicts == {(bad("Slow"), "same"): 2}


async def looked_at(shadows: Shadows, session: Opening, elsewhere: Recorder, count: int) -> None:
    """Offer a session, and wait until that many were looked at."""
    shadows.offer(session, elsewhere.open(session, lambda: 0))
    with anyio.fail_after(IDLE_PATIENCE):
        while shadows.shadowed + shadows.failed < count:  # noqa: ASYNC110  (another process is what is waited for)
            await anyio.sleep(0.01)


@contextmanager
def busy(pid: int) -> Generator[None]:
    """Keep the processor busy that a process is bound to while the block runs."""
    allowed = os.sched_getaffinity(pid)
    mine = {min(allowed)}
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
        try:
            for bound in (pid, other.pid):
                os.sched_setaffinity(bound, mine)
            yield
        finally:
            other.kill()
            with suppress(ProcessLookupError):
                os.sched_setaffinity(pid, allowed)


# --- where there is nothing to do, or no time -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["hermes", "hermse"], "no parser 'hermse'; did you mean hermes"),
        (["hermes", "qwen3", "hermes"], "shadow 'hermes' is there twice"),
        (["nowhere/x.py:P"], "there is no file nowhere/x.py"),
        (["vllm:qwen3+hermes"], "there is no vLLM here"),
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
async def test_a_parser_that_hangs_does_not_hold_up_the_end(bad: Bad) -> None:
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
