"""``playhead play``: the bytes of a recorded response, or those of another protocol."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stages.events import Head
from store import open_store, trace
from store.api import Trace
from tests.cli.conftest import Playhead


def loaded(path: Path, session: str) -> Trace:
    store = open_store(str(path), create=False)
    try:
        return store.load(session)
    finally:
        store.close()


def body(found: Trace) -> bytes:
    return b"".join(frame.data for frame in found.events("served", "frame") if not isinstance(frame, Head))


def events(wire: bytes) -> list[Any]:
    return [json.loads(line[6:]) for line in wire.decode().splitlines() if line.startswith("data: {")]


def test_it_writes_what_the_client_got(recorded: Path, ids: dict[str, str], playhead: Playhead) -> None:
    for asked in ("text", "calls", "fails"):
        result = playhead("play", ids[asked][:16], "--store", recorded)
        assert (result.exit_code, result.stderr) == (0, "")
        assert result.stdout_bytes == body(loaded(recorded, ids[asked]))


def test_another_protocol(recorded: Path, ids: dict[str, str], playhead: Playhead) -> None:
    result = playhead("play", ids["text"], "--store", recorded, "--as", "messages")
    assert (result.exit_code, result.stderr) == (0, "")
    made = events(result.stdout_bytes)
    assert made[0]["message"]["id"] == f"msg_{ids['text']}"
    text = "".join(event["delta"]["text"] for event in made if event["type"] == "content_block_delta")
    assert text == "Two tides a day, says the almanac, and the almanac is right, mostly, about such things."
    assert made[-1] == {"type": "message_stop"}


def test_one_of_two_choices(recorded: Path, ids: dict[str, str], playhead: Playhead) -> None:
    first = playhead("play", ids["calls"], "--store", recorded, "--as", "responses")
    assert "note: choice 0 of 2: responses has one only" in first.stderr
    other = playhead("play", ids["calls"], "--store", recorded, "--as", "responses", "--choice", "1")
    assert "note: choice 1 of 2" in other.stderr
    assert events(other.stdout_bytes)[-1]["type"] == "response.completed"
    wrong = playhead("play", ids["calls"], "--store", recorded, "--as", "responses", "--choice", "2")
    assert (wrong.exit_code, wrong.stdout) == (3, "")
    assert "choices 0 to 1" in wrong.stderr


def test_the_head_comes_first_if_asked(recorded: Path, ids: dict[str, str], playhead: Playhead) -> None:
    result = playhead("play", ids["text"], "--store", recorded, "--head", "--as", "completions")
    head, _, rest = result.stdout_bytes.partition(b"\r\n\r\n")
    assert head.splitlines()[0] == b"HTTP/1.1 200"
    assert f"x-request-id: cmpl-{ids['text']}".encode() in head.splitlines()
    assert rest.endswith(b"data: [DONE]\n\n")
    judged = playhead("play", ids["text"], "--store", recorded, "--head")
    Path("one.http").write_bytes(judged.stdout_bytes)
    assert playhead("validate", "one.http").exit_code == 0


def test_a_trace_file(recorded: Path, ids: dict[str, str], playhead: Playhead) -> None:
    Path("one.jsonl").write_bytes(trace.dumps(loaded(recorded, ids["text"])))
    alone = playhead("play", "--store", "one.jsonl", "--as", "messages", "--speed", "1000")
    assert alone.stdout_bytes == playhead("play", ids["text"], "--store", recorded, "--as", "messages").stdout_bytes


def test_what_it_refuses(recorded: Path, playhead: Playhead) -> None:
    several = playhead("play", "--store", recorded)
    assert several.exit_code == 2
    assert "has several sessions: name one of them" in several.stderr
    for arguments in (("nothing", "--store", recorded), ("--store", "nowhere.db")):
        result = playhead("play", *arguments)
        assert (result.exit_code, result.stdout) == (3, "")
        assert result.stderr.startswith("Error: ")
