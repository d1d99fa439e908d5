"""``playhead serve --validate``, and GET /metrics."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import msgspec
import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from pipeline.afterwards import WAITING
from pipeline.cli import main
from pipeline.http.app import Server
from pipeline.recorder import Recorder
from pipeline.validation import Validator
from store import SqliteStore, open_store
from tests.support.answers import TOOLS
from tests.support.asgi import Exchange, chat, serving
from tests.support.server import IDLE_PATIENCE, PATIENCE, Running, eventually, serve
from tests.support.store import opening

ANSWER = ["Two ", "a ", "day."]
STRANGE = ['<tool_call>\n{"name": "dive", "arguments": {}}\n</tool_call>']
"""A call of a tool that no request has: INV-036, a warning."""


def metrics(text: str) -> dict[tuple[str, ...], float]:
    """(name, label values) → value."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def scraped(running: Running) -> dict[tuple[str, ...], float]:
    return metrics(running.http.get("/metrics").text)


def until(running: Running, name: str, value: float) -> dict[tuple[str, ...], float]:
    """The metrics once this one has this value."""

    def look() -> dict[tuple[str, ...], float] | None:
        found = scraped(running)
        return found if found[name,] == value else None

    return eventually(look, IDLE_PATIENCE)


# --- a server -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("record", ["full", "lean"])
def test_sessions_are_judged_after_they_ended(tmp_path: Path, record: str) -> None:
    options = ("--validate", "1", "--record", record, "--parser", "hermes")
    with serve(tmp_path, *options, script=STRANGE, allow={"INV-036"}) as running:
        for stream in (True, False):
            assert running.post(stream=stream, tools=TOOLS).status_code == 200
        found = until(running, "playhead_validations_total", 2)
    assert found["playhead_rule_violations_total", "INV-036", "warning"] == 1
    assert found["playhead_validations_failed_total",] == found["playhead_validations_skipped_total",] == 0
    whole, streamed = running.sessions()
    assert (streamed.validated, streamed.rules, streamed.rule_errors) == (True, {"INV-036": 1}, 0)
    assert (whole.validated, whole.rules) == (True, {})
    # The process that judged has let go of the store: after the stop one file holds everything.
    assert [path.name for path in tmp_path.glob("playhead.db*")] == ["playhead.db"]
    listed = CliRunner().invoke(main, ["sessions", "list", "--store", str(running.store)]).stdout
    assert listed.split("\n")[0].split()[-2:] == ["rules", "message"]
    assert "INV-036" not in running.log.read_text()


def test_without_the_option_none_is(tmp_path: Path) -> None:
    with serve(tmp_path, script=ANSWER) as running:
        running.post(stream=True)
        found = scraped(running)
    assert found["playhead_validations_total",] == 0
    assert [info.validated for info in running.sessions()] == [False]


def test_it_stops_in_time_whatever_waits(tmp_path: Path) -> None:
    with serve(tmp_path, "--validate", "1", "--shutdown-grace", "0.5", script=ANSWER) as running:
        for _ in range(30):
            running.post(stream=True)
        began = time.monotonic()
        assert running.stop() == 0
        # Half a second, one for last frames, and what a busy machine takes to end a process.
        assert time.monotonic() - began < PATIENCE / 2
    assert "Traceback" not in running.log.read_text()


def test_it_needs_what_is_recorded() -> None:
    result = CliRunner().invoke(main, ["serve", "--engine", "scripted", "--validate", "1", "--record", "off"])
    assert result.exit_code == 2
    assert "--validate is about recorded sessions" in result.stderr


def test_what_there_is_to_scrape(tmp_path: Path) -> None:
    with serve(tmp_path, script=ANSWER) as running:
        running.post(stream=True)
        running.post(stream=False)
        until(running, "playhead_sessions_live", 0)
        eventually(lambda: scraped(running)["playhead_store_records_total",] or None)
        answer = running.http.get("/metrics")
        found = metrics(answer.text)
        modern = running.http.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert found["playhead_sessions_opened_total",] == found["playhead_sessions_recorded_total",] == 2
    assert found["playhead_store_lost_records_total",] == found["playhead_store_failures_total",] == 0
    assert found["playhead_store_records_total",] > 0
    assert not [name for name in found if name[0].startswith(("python_", "process_"))]
    assert modern.headers["content-type"].startswith("application/openmetrics-text")
    assert modern.text.endswith("# EOF\n")


# --- without a socket -----------------------------------------------------------------------------------------------


async def scrape(server: Server) -> dict[tuple[str, ...], float]:
    exchange = await Exchange(b"", method="GET", path="/metrics").run(server)
    return metrics(exchange.body.decode())


async def judged(server: Server, count: int) -> None:
    with anyio.fail_after(IDLE_PATIENCE):
        while server.validator.validated < count:  # noqa: ASYNC110  (another process is what is waited for)
            await anyio.sleep(0.01)


@pytest.mark.anyio
async def test_what_a_store_in_memory_holds_is_judged_too() -> None:
    store = open_store("memory:")
    async with serving(store, validate=1.0) as server:
        async with server.validator.running():
            server.validator.finish_by(anyio.current_time() + IDLE_PATIENCE)
            await Exchange(chat()).run(server)
        # What waited was judged before the block was left.
        assert server.validator.validated == 1
        found = await scrape(server)
    assert found["playhead_validations_total",] == 1
    assert [(info.validated, info.rules) for info in store.sessions()] == [(True, {})]
    gc.collect()  # an unclosed stream is a warning


@pytest.mark.anyio
@pytest.mark.parametrize("media", ["application/openmetrics-text", "text/plain"])
async def test_a_version_that_is_none_gets_the_plain_format(media: str) -> None:
    async with serving() as server:
        exchange = Exchange(b"", method="GET", path="/metrics", accept=f"{media}; version=x")
        await exchange.run(server)
    assert exchange.status == 200
    assert exchange.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"


@pytest.mark.anyio
async def test_servers_in_one_process_count_apart() -> None:
    async with serving() as one, serving() as other:
        await Exchange(chat()).run(one)
        assert (await scrape(one))["playhead_sessions_opened_total",] == 1
        assert (await scrape(other))["playhead_sessions_opened_total",] == 0
        assert not [name for name in await scrape(one) if name[0].startswith("playhead_store")]


@pytest.mark.anyio
async def test_where_it_lags_sessions_are_skipped(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "playhead.db"))
    recorder = Recorder(store)
    validator = Validator(recorder, 1.0)
    async with validator.running():
        for number in range(WAITING + 6):
            made = msgspec.structs.replace(opening(f"{number:032x}"), key="0" * 32)
            # Nothing runs between two offers: the first is still waited for.
            validator.offer(made, recorder.open(made, lambda: 0), 0.0)
    assert validator.skipped == 6
    assert validator.validated == validator.failed == 0
    await anyio.to_thread.run_sync(store.close)


@pytest.mark.anyio
async def test_the_sample_is_another_than_that_of_recording() -> None:
    store = open_store("memory:")
    recorder = Recorder(store, sample=0.5)
    validator = Validator(recorder, 0.5)
    async with validator.running():
        for first in range(0, 256, 16):
            for second in range(0, 256, 64):
                key = f"{first:02x}" * 4 + f"{second:02x}" * 4 + "0" * 16
                made = msgspec.structs.replace(opening(key), key=key)
                validator.offer(made, recorder.open(made, lambda: 0), 0.0)
        assert validator.skipped == 0
        assert recorder.opened == 32
        assert validator.waiting == 16


class Unreadable(SqliteStore):
    """A store whose sessions are gone when they are looked for."""

    def note_rules(self, session: str, rules: Any, errors: int) -> None:
        raise RuntimeError("the words of a client")


@pytest.mark.anyio
@pytest.mark.parametrize("spoil", ["the session is not there", "noting fails"])
async def test_what_goes_wrong_is_counted_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, spoil: str
) -> None:
    make: Callable[[str], SqliteStore] = Unreadable if spoil == "noting fails" else SqliteStore
    store = make(str(tmp_path / "playhead.db"))
    async with serving(store, validate=1.0) as server:
        validator = server.validator
        async with validator.running():
            validator.finish_by(anyio.current_time() + IDLE_PATIENCE)
            if spoil == "noting fails":
                for _ in range(2):
                    assert (await Exchange(chat()).run(server)).complete
            else:
                other = Recorder(open_store("memory:"))
                for name in ("s1", "s2"):
                    made = msgspec.structs.replace(opening(name), key="0" * 32)
                    validator.offer(made, other.open(made, lambda: 0), 0.0)
        assert (validator.failed, validator.validated, validator.skipped) == (2, 0, 0)
        assert (await scrape(server))["playhead_validations_failed_total",] == 2
    [told] = [record.getMessage() for record in caplog.records if record.name == "playhead.validation"]
    assert told.endswith(
        "could not be validated: " + ("RuntimeError" if spoil == "noting fails" else "SessionNotFound")
    )
    await anyio.to_thread.run_sync(store.close)
