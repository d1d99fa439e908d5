"""After a kill, a failing store, a cut connection: what is recorded is served exactly, and the end says what happened.
Real processes, a real browser."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio
import httpx2

from stages.catalog import PROTOCOLS
from stages.events import Block, Head, PromptInput, TokensInput
from store import SqliteStore, open_store
from store.api import Batch
from tests.support.asgi import serving
from tests.support.browser import browsing
from tests.support.live import opening
from tests.support.resuming import ASKED, again, events, served, until_stored
from tests.support.server import Running, eventually, reserved, serve

WORDS = [f"word{n} " for n in range(2000)]
ENDS = {
    "chat": [b'"code":"interrupted"', b"data: [DONE]"],
    "completions": [b'"code":"interrupted"', b"data: [DONE]"],
    "responses": [b"event: response.failed"],
    "messages": [b"event: content_block_stop", b"event: error"],
}
"""The last events of a stream that was interrupted, and what is in them."""


def stream(running: Running, name: str, after: int = 0) -> httpx2.Response:
    return running.http.get(f"/v1/streams/{name}", params={"after": after})


def test_a_killed_server(tmp_path: Path) -> None:
    store = tmp_path / "playhead.db"
    had: dict[str, list[bytes]] = {}
    names: dict[str, str] = {}
    readers: list[Iterator[bytes]] = []
    with serve(tmp_path, "--pace", "0.01", script=WORDS, store=store) as running, ExitStack() as streams:
        for protocol, entry in PROTOCOLS.items():
            body = {**ASKED[protocol], "stream": True}
            response = streams.enter_context(running.http.stream("POST", entry.path, json=body))
            read, pieces = b"", response.iter_raw()
            readers.append(pieces)  # who is dropped leaves
            while read.count(b"\n\n") < 20:
                read += next(pieces)
            names[protocol] = response.headers["x-request-id"]
            had[protocol] = events(read[: read.rindex(b"\n\n") + 2])
        until_stored(running, names.values(), 10)  # a client may be ahead of the disk
        running.stop(signal.SIGKILL)
    (tmp_path / "again").mkdir()
    with serve(tmp_path / "again", script=WORDS, store=store) as running:
        kept = open_store(str(store), create=False)
        for protocol, name in names.items():
            trace = kept.load(name[-32:])
            assert trace.info.state == "torn"
            recorded = served(trace)
            assert len(recorded) > 5
            whole = events(stream(running, name).content)
            # What the client had before is what it would get again, as far as it is on record.
            both = min(len(had[protocol]), len(recorded))
            assert had[protocol][:both] == recorded[:both]
            assert whole[: len(recorded)] == recorded
            ends = ENDS[protocol]
            assert all(want in got for want, got in zip(ends, whole[-len(ends) :], strict=True))
            assert b"interrupted" in b"".join(whole[-2:])
            # The tail is not of the record: there is no place behind its events.
            known = len(whole) - len(ends)
            for after in [*range(0, known, 7), known - 1, known]:
                assert events(stream(running, name, after).content) == whole[after:], after
            beyond = stream(running, name, len(whole))
            assert beyond.status_code == 409
            assert "No more are coming" in beyond.text
        kept.close()


def test_a_session_whose_records_were_lost(tmp_path: Path) -> None:
    """Of an incomplete session what is there is served, and then an error that says so."""
    store = SqliteStore(tmp_path / "sessions.db")
    opened = opening("plain")
    writer = store.writer(opened)
    writer.append(Batch("input", "engine", 0, 1, [PromptInput((1,), "", 1), TokensInput(0, (2,), (b"Two ",), "")]))
    head = Head(200, (("content-type", "text/event-stream; charset=utf-8"), ("x-request-id", opened.response_id)))
    writer.append(Batch("served", "frame", 0, 2, [head, Block(b"data: {}\n\n")], [0, 0]))
    writer.append(Batch("served", "semantic", 0, 3, [object()], [0]))
    store.flush()
    assert eventually(lambda: store.info(opened.session).state == "incomplete" or None)

    async def ask() -> list[bytes]:
        async with serving(store) as server:
            return events((await again(opened.session).run(server)).body)

    got = anyio.run(ask)
    store.close()
    assert got[0] == b"data: {}\n\n"
    assert b'"code":"record_incomplete"' in got[1]
    assert got[2] == b"data: [DONE]\n\n"
    assert len(got) == 3


# --- a browser ------------------------------------------------------------------------------------------------------

LISTEN = """
window.got = []; window.ids = []; window.opened = 0;
window.source = new EventSource(%s);
source.onopen = () => { opened += 1; };
source.onmessage = event => { got.push(event.data); ids.push(event.lastEventId); };
"""


def data_of(found: list[bytes]) -> list[str]:
    return [event.decode().removeprefix("data: ").strip() for event in found]


def look(page: Any) -> dict[str, Any]:
    state: dict[str, Any] = json.loads(
        page.evaluate("JSON.stringify({got: got, ids: ids, opened: opened, state: source.readyState})")
    )
    return state


def test_a_browser_takes_a_finished_stream_and_stops(tmp_path: Path) -> None:
    """It reconnects behind the end by itself, and 204 tells it to stop."""
    home = tmp_path / "home"
    home.mkdir()
    with serve(tmp_path, script=["Two ", "a ", "day."]) as running, browsing(home) as browser:
        with running.stream() as wire:
            whole = events(wire.rest())
        page = browser.page()
        page.open(f"{running.address}/health")
        page.evaluate(LISTEN % json.dumps(f"/v1/streams/{wire.id}?event_ids=true"))
        found = eventually(lambda: state if (state := look(page))["state"] == 2 else None)
        assert found["got"] == data_of(whole)
        assert found["ids"] == [str(n) for n in range(1, len(whole) + 1)]


def test_a_browser_goes_on_where_its_server_was_killed(tmp_path: Path) -> None:
    home, store = tmp_path / "home", tmp_path / "playhead.db"
    home.mkdir()
    (tmp_path / "again").mkdir()
    with browsing(home) as browser, reserved() as port:
        with serve(tmp_path, "--pace", "0.01", "--port", str(port), script=WORDS, store=store) as running:
            page = browser.page()
            page.open(f"{running.address}/health")
            with running.stream() as wire:
                wire.until(b"\n\n", 3)
                page.evaluate(LISTEN % json.dumps(f"/v1/streams/{wire.id}?event_ids=true"))
                before = eventually(lambda: state if len((state := look(page))["got"]) > 10 else None)
                running.stop(signal.SIGKILL)
        with serve(tmp_path / "again", "--port", str(port), script=WORDS, store=store) as running:
            found = eventually(lambda: state if (state := look(page))["state"] == 2 else None)
            whole = events(stream(running, wire.id).content)
    assert before["opened"] == 1
    assert found["opened"] == 2
    assert found["got"] == data_of(whole)
    assert found["ids"] == [str(n) for n in range(1, len(whole) + 1)]
    assert '"code":"interrupted"' in found["got"][-2]
