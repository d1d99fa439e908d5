"""Two servers on one store, as behind a load balancer: what one of them has told its client can be had at the other."""

from __future__ import annotations

import json
import signal
import sqlite3
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Barrier
from typing import Any

import httpx2
import pytest

from pipeline.http.live import LAG
from stages.catalog import PROTOCOLS
from tests.support.resuming import ASKED, events
from tests.support.server import Running, eventually, serve

Two = tuple[Running, Running]

SAID = "This is the scripted engine. You said: "
LOCKED = (409, "conversation_locked", "conversation")
WORDS = [f"word{n} " for n in range(2000)]


@contextmanager
def both(folder: Path, *options: str, script: list[Any] | None = None) -> Generator[Two]:
    """Two servers, and what they record in one file."""
    (folder / "a").mkdir()
    (folder / "b").mkdir()
    store = folder / "playhead.db"
    with (
        serve(folder / "a", *options, script=script, store=store) as one,
        serve(folder / "b", *options, script=script, store=store) as other,
    ):
        yield one, other


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    """They quote what was said last."""
    with both(tmp_path_factory.mktemp("quick")) as two:
        yield two


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    """They talk for minutes."""
    with both(tmp_path_factory.mktemp("slow"), "--pace", "0.05", script=WORDS) as two:
        yield two


def post(running: Running, **fields: Any) -> httpx2.Response:
    """POST /v1/responses."""
    return running.http.post("/v1/responses", json=fields)


def refusal(answer: httpx2.Response) -> tuple[int, Any, Any]:
    """(status, code, param)."""
    error = answer.json()["error"]
    return answer.status_code, error["code"], error["param"]


@contextmanager
def begun(running: Running, protocol: str, count: int, query: str = "") -> Generator[tuple[str, list[bytes]]]:
    """A stream of which so many events, at least, have come: its id, and these. Its client leaves with the block."""
    path = PROTOCOLS[protocol].path + query
    with running.http.stream("POST", path, json={**ASKED[protocol], "stream": True}) as response:
        read, pieces = b"", response.iter_raw()
        while read.count(b"\n\n") < count:
            read += next(pieces)
        yield response.headers["x-request-id"], events(read[: read.rindex(b"\n\n") + 2])


# --- streams ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", list(PROTOCOLS))
def test_who_has_seen_an_id_takes_its_stream_up_anywhere(slow: Two, protocol: str) -> None:
    """At once: long before what it has seen is on record. And behind the last event that it has."""
    one, other = slow
    for count in (1, 2, 3, 5):
        with begun(one, protocol, count) as (name, had):
            path = f"/v1/streams/{name}?after={len(had)}"
            with other.http.stream("GET", path) as response:
                assert response.status_code == 200
                more = next(response.iter_raw())
            with other.http.stream("GET", f"/v1/streams/{name}") as response:
                read, pieces = b"", response.iter_raw()
                while not read.startswith(b"".join(had) + more):
                    read += next(pieces)


def test_what_a_client_cannot_have_is_refused_in_bounded_time(slow: Two) -> None:
    one, other = slow
    with begun(one, "chat", 2) as (name, _):
        start = time.monotonic()
        got = other.http.get(f"/v1/streams/{name}?after=100000")
        assert (got.status_code, got.json()["error"]["code"]) == (409, "position_beyond_tail")
        assert "More may be coming" in got.text
        assert LAG <= time.monotonic() - start < LAG + 5
    # What is old is not waited for.
    assert other.http.get(f"/v1/streams/chatcmpl-{'0' * 32}").status_code == 404
    # It is new, and never was.
    never = f"{time.time_ns() // 1_000_000:012x}{'0' * 20}"
    assert other.http.get(f"/v1/streams/chatcmpl-{never}").status_code == 404


def test_a_reader_elsewhere_is_told_that_the_writer_was_killed(tmp_path: Path) -> None:
    """Soon, by an error; what it got is what is on record."""
    with both(tmp_path, "--pace", "0.02", script=WORDS) as (one, other):
        names: dict[str, str] = {}
        for protocol in PROTOCOLS:
            body = {**ASKED[protocol], "stream": True}
            path = f"{PROTOCOLS[protocol].path}?resume=600"
            with one.http.stream("POST", path, json=body) as response:
                next(response.iter_raw())
                names[protocol] = response.headers["x-request-id"]

        def read(name: str) -> tuple[bytes, float]:
            body = other.http.get(f"/v1/streams/{name}").content
            return body, time.monotonic()

        with ThreadPoolExecutor(len(names)) as threads:
            reading = {protocol: threads.submit(read, name) for protocol, name in names.items()}
            with other.http.stream("GET", f"/v1/streams/{names['chat']}?after=20") as response:
                next(response.iter_raw())
                one.stop(signal.SIGKILL)
                killed = time.monotonic()
                for protocol, future in reading.items():
                    read_on, ended = future.result(20)
                    assert ended - killed < 5
                    assert b"interrupted" in read_on
                    assert events(read_on) == events(other.http.get(f"/v1/streams/{names[protocol]}").content)
        # A response of the dead, and a place in it, as the API has them.
        stored = other.http.get(f"/v1/responses/{names['responses']}").json()
        assert stored["status"] == "failed"


# --- a stop signal ----------------------------------------------------------------------------------------------------


def test_a_stop_ends_the_readers_of_another_server(tmp_path: Path) -> None:
    """Their stream is not over: it is cut, and nothing says that it had ended."""
    read = b""
    with both(tmp_path, "--pace", "0.02", "--shutdown-grace", "1", script=WORDS) as (one, other):
        with begun(one, "chat", 3, "?resume=600") as (name, _), pytest.raises(httpx2.TransportError):
            with other.http.stream("GET", f"/v1/streams/{name}") as response:
                pieces = response.iter_raw()
                while read.count(b"\n\n") < 5:
                    read += next(pieces)
                other.process.send_signal(signal.SIGTERM)
                for piece in pieces:
                    read += piece
        assert other.process.wait(20) == 0
        assert b"[DONE]" not in read
        assert b"error" not in read
        with one.http.stream("GET", f"/v1/streams/{name}?after={len(events(read))}") as response:
            assert response.status_code == 200
            assert next(response.iter_raw()).startswith(b"data: ")


def test_a_torn_stream_is_taken_up_while_a_server_stops(tmp_path: Path) -> None:
    """On a connection that it has already, as long as it waits for its sessions."""
    with both(tmp_path, "--pace", "0.02", "--shutdown-grace", "5", script=WORDS) as (one, other):
        with begun(one, "chat", 5) as (name, _):
            with other.http.stream("GET", f"/v1/streams/{name}?after=5") as response:
                # So much is on record.
                next(response.iter_raw())
            one.stop(signal.SIGKILL)
        whole = other.http.get(f"/v1/streams/{name}").content
        with begun(other, "chat", 1):
            other.http.get("/health")
            other.process.send_signal(signal.SIGTERM)
            eventually(lambda: b"Stopping" in _said(other) or None)
            got = other.http.get(f"/v1/streams/{name}?after=2")
            assert got.status_code == 200
            assert events(got.content) == events(whole)[2:]
            assert b'"code":"interrupted"' in got.content
        assert other.process.wait(20) == 0


def _said(running: Running) -> bytes:
    return running.log.read_bytes()


# --- stored responses -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False])
def test_who_has_heard_the_end_of_a_response_is_told_it_anywhere(quick: Two, stream: bool) -> None:
    one, other = quick
    for _ in range(10):
        made = post(one, input="Hi", stream=stream)
        got = other.http.get(f"/v1/responses/{made.headers['x-request-id']}")
        assert got.json()["status"] == "completed"


def test_one_that_runs_elsewhere(slow: Two) -> None:
    """What there is of it, in bounded time; of one in the background at once. It is cancelled where it runs."""
    one, other = slow
    with begun(one, "responses", 3) as (name, _):
        start = time.monotonic()
        assert other.http.get(f"/v1/responses/{name}").json()["status"] == "in_progress"
        assert time.monotonic() - start < LAG + 5
        assert one.http.get(f"/v1/responses/{name}").json()["status"] == "in_progress"
    name = post(one, input="Hi", background=True).json()["id"]
    assert other.http.get(f"/v1/responses/{name}").json()["status"] in ("queued", "in_progress")
    refused = other.http.post(f"/v1/responses/{name}/cancel")
    assert refused.status_code == 409
    assert "another process" in refused.text
    assert one.http.post(f"/v1/responses/{name}/cancel").json()["status"] == "cancelled"
    # At once, and as one that has ended.
    assert other.http.post(f"/v1/responses/{name}/cancel").json()["status"] == "cancelled"


def test_what_is_deleted_at_once_is_deleted_once(quick: Two) -> None:
    """Who was slower is told that it is not there: the store has not failed."""
    for _ in range(12):
        name = post(quick[0], input="Hi").json()["id"]
        answers = at_once(quick, partial(_delete, path=f"/v1/responses/{name}"))
        assert sorted(answer.status_code for answer in answers) == [200, 404]
        assert [refusal(answer)[1] for answer in answers if answer.status_code == 404] == ["not_found"]
    for _ in range(6):
        name = quick[0].http.post("/v1/conversations", json={}).json()["id"]
        answers = at_once(quick, partial(_delete, path=f"/v1/conversations/{name}"))
        assert sorted(answer.status_code for answer in answers) in ([200, 404], [200, 409])
    assert all(b"ERROR" not in _said(running) for running in quick)


def _delete(running: Running, path: str) -> httpx2.Response:
    return running.http.delete(path)


def test_two_proxies_of_which_some_responses_are_the_upstream_s(tmp_path: Path) -> None:
    """What is made here the upstream does not have: who has just heard of it must not be sent there."""
    for name in ("upstream", "a", "b"):
        (tmp_path / name).mkdir()
    store = tmp_path / "playhead.db"
    with serve(tmp_path / "upstream", "--pace", "0.05", script=WORDS) as behind:
        settings = tmp_path / "upstreams.toml"
        settings.write_text(
            f'[[upstream]]\nname = "a"\nurl = "{behind.address}/v1"\nmodels = ["{behind.model}"]\n'
            'protocols = ["chat"]\n'
            f'[[upstream]]\nname = "b"\nurl = "{behind.address}/v1"\n'
        )
        options = ("--upstream", str(settings))
        with (
            serve(tmp_path / "a", *options, engine="upstream", store=store) as one,
            serve(tmp_path / "b", *options, engine="upstream", store=store) as other,
        ):
            for _ in range(5):
                asked = {"model": behind.model, "input": "Hi", "stream": True, "max_output_tokens": 4}
                with one.http.stream("POST", "/v1/responses", json=asked) as response:
                    pieces = response.iter_raw()  # who is dropped leaves
                    next(pieces)
                    name = response.headers["x-request-id"]
                    assert other.http.get(f"/v1/responses/{name}").json()["status"] == "incomplete"
            with sqlite3.connect(store) as held:
                held.execute("ALTER TABLE sessions RENAME TO away")
            got = other.http.get(f"/v1/responses/{name}")
            assert (got.status_code, refusal(got)[1]) == (503, "store_unavailable")
            with held:
                held.execute("ALTER TABLE away RENAME TO sessions")
            held.close()


# --- what was said before ---------------------------------------------------------------------------------------------


def test_a_chain_goes_from_one_server_to_the_other(quick: Two) -> None:
    """Each turn is asked for as soon as the one before was answered."""
    before: dict[str, str] = {}
    for turn in range(12):
        stream = bool(turn % 3)
        got = post(quick[turn % 2], input=f"Turn {turn}", stream=stream, **before)
        assert got.status_code == 200, got.text
        before = {"previous_response_id": got.headers["x-request-id"]}
    [prompt] = quick[0].recorded(before["previous_response_id"]).events("input", "engine")[:1]
    assert [prompt.tail.count(f"Turn {turn}<") for turn in range(12)] == [2] * 11 + [1]


def test_a_conversation_goes_from_one_server_to_the_other(quick: Two) -> None:
    name = quick[0].http.post("/v1/conversations", json={}).json()["id"]
    said: list[str] = []
    for turn in range(12):
        got = post(quick[turn % 2], input=f"Turn {turn}", stream=bool(turn % 3), conversation=name)
        assert got.status_code == 200, got.text
        said += [f"Turn {turn}", f"{SAID}Turn {turn}"]
        if turn % 4 == 0:
            item = {"role": "user", "content": f"Note {turn}"}
            added = quick[1 - turn % 2].http.post(f"/v1/conversations/{name}/items", json={"items": [item]})
            assert added.status_code == 200
            said.append(f"Note {turn}")
    query = {"order": "asc", "limit": "100"}
    for running in quick:
        listed = running.http.get(f"/v1/conversations/{name}/items", params=query).json()["data"]
        assert [item["content"][0]["text"] for item in listed] == said
    gone = post(quick[0], input="Last", conversation=name).json()["id"]
    assert quick[1].http.delete(f"/v1/responses/{gone}").status_code == 200
    assert quick[1].http.delete(f"/v1/conversations/{name}").status_code == 200
    assert refusal(post(quick[0], input="?", conversation=name))[:2] == (404, "not_found")


def at_once(two: Two, ask: Callable[[Running], httpx2.Response]) -> list[httpx2.Response]:
    """The answers of both to the same, asked in one moment."""
    gate = Barrier(2)

    def one(running: Running) -> httpx2.Response:
        gate.wait(20)
        return ask(running)

    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(one, two))


@pytest.mark.parametrize("background", [True, False])
def test_two_responses_at_once_in_one_conversation(slow: Two, background: bool) -> None:
    """One of them is refused, as it is at one server; nothing of it is recorded."""
    for _ in range(5):
        name = slow[0].http.post("/v1/conversations", json={}).json()["id"]
        fields: dict[str, Any] = {
            "input": "Hi",
            "conversation": name,
            "max_output_tokens": 40,
            "background": background,
        }
        answers = at_once(slow, partial(post, **fields))
        assert sorted(answer.status_code for answer in answers) == [200, 409]
        [won] = [answer.json()["id"] for answer in answers if answer.status_code == 200]
        assert [refusal(answer) for answer in answers if answer.status_code == 409] == [LOCKED]
        of_it = [info.session for info in slow[0].sessions() if info.conversation == name]
        assert sorted(of_it) == sorted([won[5:], name[5:]])
        assert slow[0].health()["store"]["lost_records"] == slow[1].health()["store"]["lost_records"] == 0


@pytest.mark.parametrize("background", [True, False])
def test_two_proxies_of_a_server_that_keeps_no_conversations(tmp_path: Path, background: bool) -> None:
    """The conversation is kept here, and so it is decided here; what was refused asks the upstream for nothing more."""
    for name in ("upstream", "a", "b"):
        (tmp_path / name).mkdir()
    store = tmp_path / "playhead.db"
    with serve(tmp_path / "upstream", "--pace", "0.05", script=WORDS) as behind:
        options = ("--upstream", f"{behind.address}/v1", "--upstream-protocol", "chat")
        with (
            serve(tmp_path / "a", *options, engine="upstream", store=store) as one,
            serve(tmp_path / "b", *options, engine="upstream", store=store) as other,
        ):
            for _ in range(3):
                name = one.http.post("/v1/conversations", json={}).json()["id"]
                fields: dict[str, Any] = {
                    "model": behind.model, "input": "Hi", "conversation": name, "max_output_tokens": 40,
                    "background": background,
                }  # fmt: skip
                answers = at_once((one, other), partial(post, **fields))
                assert [refusal(answer) for answer in answers if answer.status_code != 200] == [LOCKED]
                assert len([info for info in one.sessions() if info.conversation == name]) == 2


def test_what_is_added_at_once_is_added_once(quick: Two) -> None:
    name = quick[0].http.post("/v1/conversations", json={}).json()["id"]
    kept: list[str] = []
    for number in range(12):

        def add(running: Running, number: int = number) -> httpx2.Response:
            item = {"role": "user", "content": f"{number} {running.address}"}
            return running.http.post(f"/v1/conversations/{name}/items", json={"items": [item]})

        for answer in at_once(quick, add):
            if answer.status_code == 200:
                kept.append(answer.json()["data"][0]["content"][0]["text"])
            else:
                assert refusal(answer) == LOCKED
    assert len(kept) >= 12
    listed = quick[1].http.get(f"/v1/conversations/{name}/items", params={"order": "asc", "limit": "100"}).json()
    assert sorted(item["content"][0]["text"] for item in listed["data"]) == sorted(kept)


def test_a_conversation_is_free_when_its_writer_was_killed(tmp_path: Path) -> None:
    with both(tmp_path, "--pace", "0.05", script=WORDS) as (one, other):
        name = one.http.post("/v1/conversations", json={}).json()["id"]
        running = post(one, input="Hi", conversation=name, background=True).json()["id"]
        assert refusal(post(other, input="Hi", conversation=name)) == LOCKED
        item = {"role": "user", "content": "?"}
        assert refusal(other.http.post(f"/v1/conversations/{name}/items", json={"items": [item]})) == LOCKED
        assert refusal(other.http.delete(f"/v1/conversations/{name}")) == LOCKED
        one.stop(signal.SIGKILL)
        got = post(other, input="Again", conversation=name, max_output_tokens=2)
        assert got.status_code == 200
        assert json.loads(got.content)["status"] == "incomplete"
        assert other.http.get(f"/v1/responses/{running}").json()["status"] == "failed"
