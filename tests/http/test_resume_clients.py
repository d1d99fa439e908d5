"""Official clients on streams with ids and comments, and the command that deletes a session."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from click.testing import CliRunner

from pipeline.cli import main as playhead
from stages.catalog import PROTOCOLS
from stages.events import Block, Comment, Head
from stages.positions import Positions
from stages.sse import SseDecoder
from tests.support.node import asked
from tests.support.resuming import ASKED
from tests.support.server import MESSAGES, PATIENCE, Running, serve

IDS: dict[str, Any] = {"extra_query": {"event_ids": "true"}}


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A token every 0.3 s, a comment after every 0.1 s of silence."""
    with serve(
        tmp_path_factory.mktemp("slow"), "--pace", "0.3", "--keep-alive", "0.1", script=["Two ", "a day."]
    ) as running:
        yield running


def test_openai_reads_ids_and_the_comments_between(slow: Running) -> None:
    with slow.client() as client:
        chunks: list[Any] = list(slow.create(client, stream=True, **IDS))
        one: Any = chunks[0].__class__
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Two a day."
        name = chunks[0].id
        wire = slow.http.get(f"/v1/streams/{name}?event_ids=true").text
        assert "\nid: 3\n" in wire
        # And a stream that is taken up again, by the same client.
        kind: Any = openai.Stream
        get: Any = client.get
        path = f"/streams/{name}?after=1&event_ids=true"
        assert list(get(path, cast_to=one, stream=True, stream_cls=kind[one])) == chunks[1:]
        with pytest.raises(openai.ConflictError, match="nothing behind event 99"):
            client.get(f"/streams/{name}?after=99", cast_to=object)
        with pytest.raises(openai.NotFoundError, match="on record"):
            client.get("/streams/chatcmpl-0", cast_to=object)


def test_openai_reads_responses_with_ids(slow: Running) -> None:
    with slow.client() as client:
        found: Any = client.responses.create(input="When?", stream=True, **IDS)
        assert "".join(event.delta for event in found if event.type == "response.output_text.delta") == "Two a day."


def test_anthropic_reads_ids_and_the_comments_between(slow: Running) -> None:
    with anthropic.Anthropic(base_url=slow.address, api_key="k", max_retries=0, timeout=PATIENCE) as client:
        found: Any = client.messages.create(model=slow.model, max_tokens=50, messages=MESSAGES, stream=True, **IDS)
        text = [event.delta.text for event in found if event.type == "content_block_delta"]
        assert "".join(text) == "Two a day."


# --- JavaScript, and what a proxy puts in between ---------------------------------------------------------------------

NODE = (
    "openai chat", "openai completions", "openai responses", "anthropic messages", "openai chat helper",
    "openai responses helper", "anthropic messages helper", "ai chat",
)  # fmt: skip


def question(address: str, client: str, model: str) -> dict[str, Any]:
    """What ids.mjs is told."""
    protocol = client.split()[1]
    request = {**ASKED[protocol], "model": model, "stream": True}
    return {"client": client, "url": address, "protocol": protocol, "request": request}


def test_javascript_clients_read_ids_and_the_comments_between(slow: Running) -> None:
    answers = asked([question(slow.address, client, slow.model) for client in NODE], "ids.mjs")
    assert answers == [{"text": "Two a day.", "error": None}] * len(NODE)


def test_javascript_clients_take_up_streams_with_ids(slow: Running) -> None:
    questions: list[dict[str, Any]] = []
    for protocol, entry in PROTOCOLS.items():
        made = slow.http.post(entry.path, json={**ASKED[protocol], "stream": True})
        client, root = ("anthropic again", "/v1") if protocol == "messages" else ("openai again", "")
        for after in (0, 1):
            path = f"{root}/streams/{made.headers['x-request-id']}?event_ids=true&after={after}"
            questions.append({"client": client, "url": slow.address, "protocol": protocol, "path": path})
    answers = asked(questions, "ids.mjs")
    assert {answer["error"] for answer in answers} == {None}
    # The first event of a completion has text already.
    assert [answer["text"] for answer in answers] == ["Two a day."] * 3 + ["a day."] + ["Two a day."] * 4


@pytest.fixture(scope="module")
def between(slow: Running) -> Iterator[str]:
    """The address of a proxy that puts a whole comment behind each event, as some do to keep a connection alive."""
    wires: dict[str, bytes] = {}
    for protocol, entry in PROTOCOLS.items():
        body = {**ASKED[protocol], "stream": True}
        wire = slow.http.post(f"{entry.path}?event_ids=true", json=body).content
        wires[entry.path] = wire.replace(b"\n\n", b"\n\n: proxy\n\n")

    class Proxy(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

        def do_POST(self) -> None:
            """See BaseHTTPRequestHandler."""
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            self.wfile.write(wires[self.path.partition("?")[0]])

    with ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_only_openai_python_fails_on_a_whole_comment_behind_an_id(between: str) -> None:
    answers = asked([question(between, client, "m") for client in NODE], "ids.mjs")
    assert answers == [{"text": "Two a day.", "error": None}] * len(NODE)
    with anthropic.Anthropic(base_url=between, api_key="k", max_retries=0, timeout=PATIENCE) as client:
        found: Any = client.messages.create(model="m", max_tokens=50, messages=MESSAGES, stream=True)
        assert [event.delta.text for event in found if event.type == "content_block_delta"] == ["Two ", "a day."]
    with openai.OpenAI(base_url=f"{between}/v1", api_key="k", max_retries=0, timeout=PATIENCE) as other:
        kinds: dict[str, Any] = {
            "chat": other.chat.completions, "completions": other.completions, "responses": other.responses,
        }  # fmt: skip
        for protocol, kind in kinds.items():
            stream = kind.create(model="m", stream=True, **ASKED[protocol])
            with stream, pytest.raises(json.JSONDecodeError):
                list(stream)


# --- ids on what another server sent --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("blocks", "wire"),
    [
        ([b"data: a\n\n", b"data: b\n\n"], b"id: 1\ndata: a\n\nid: 2\ndata: b\n\n"),
        ([b"data: a\r\n\r\n", b"data: b\r\r"], b"id: 1\ndata: a\r\n\r\nid: 2\ndata: b\r\r"),
        # Its own ids are replaced, wherever they stand; what only looks like one is not.
        ([b"id: 9\nevent: x\nid\ndata: id: 3\nid:\n\n"], b"id: 1\nevent: x\ndata: id: 3\n\n"),
        ([b"idea: 9\ndata: a\n\n"], b"id: 1\nidea: 9\ndata: a\n\n"),
        # A mark of byte order stays in front; so does the second half of a line end.
        ([b"\xef\xbb\xbfdata: a\n\n"], b"\xef\xbb\xbfid: 1\ndata: a\n\n"),
        ([b"data: a\r\n\r", b"\ndata: b\r\n\r\n"], b"id: 1\ndata: a\r\n\r\nid: 2\ndata: b\r\n\r\n"),
        # An event in several blocks is one event, and its bytes are its own.
        ([b"data: aaa", b"id: aaa\n", b"\n", b"data: b\n\n"], b"id: 1\ndata: aaaid: aaa\n\nid: 2\ndata: b\n\n"),
    ],
)
def test_ids(blocks: list[bytes], wire: bytes) -> None:
    positions = Positions()
    made = b"".join(positions.with_ids([Head(200, ()), *map(Block, blocks)]))
    assert made == wire
    count = len(SseDecoder().feed(b"".join(blocks)))
    assert (positions.n, [event.id for event in SseDecoder().feed(made)]) == (
        count, [str(n) for n in range(1, count + 1)],
    )  # fmt: skip


@pytest.mark.parametrize("plain", [True, False])
def test_what_is_behind_a_position(plain: bool) -> None:
    frames = [Block(b"data: %d\n\n" % n) for n in range(5)]
    for n in range(6):
        positions = Positions()
        assert positions.behind(n, frames[:2], plain=plain) == frames[n:2]
        rest = positions.behind(n, frames[2:], plain=plain) if n > 2 else []
        assert (positions.n, rest) == (n, frames[n:] if n > 2 else [])
    assert Positions().behind(9, frames, plain=plain) == []


def test_what_is_behind_a_position_of_events_in_several_blocks() -> None:
    frames = [*map(Block, [b"data: a", b"a\n\n", b"data: b\n", b"\n", b"data: c\n\n"])]
    for n, rest in ((0, frames), (1, frames[2:]), (2, frames[4:]), (3, [])):
        positions = Positions()
        assert (positions.behind(n, frames, plain=False), positions.n) == (rest, n)


@pytest.mark.parametrize(
    ("comment", "wire"),
    [(b": a\n\n", b": a\n"), (b": a\r\n: b\r\n\r\n", b": a\r\n: b\n"), (b"\n", b""), (b":\n\n", b":\n")],
)
def test_comments_between_ids_have_no_blank_line(comment: bytes, wire: bytes) -> None:
    assert Positions(3).with_ids([Comment(comment), Block(b"data: a\n\n")]) == [wire, b"id: 4\ndata: a\n\n"]


# --- playhead sessions delete ---------------------------------------------------------------------------------------


def test_a_session_is_deleted(tmp_path: Path) -> None:
    with serve(tmp_path, script=["Two ", "a ", "day."]) as running:
        names = [running.post().json()["id"].removeprefix("chatcmpl-") for _ in range(2)]
        for name in names:
            running.recorded(name)
        store = ["--store", str(running.store)]
        done = CliRunner().invoke(playhead, ["sessions", "delete", names[0], *store])
        assert (done.exit_code, done.output) == (0, f"deleted {names[0]}\n")
        assert running.http.get(f"/v1/streams/{names[0]}").status_code == 404
        assert running.http.get(f"/v1/streams/{names[1]}").status_code == 200
        done = CliRunner().invoke(playhead, ["sessions", "delete", names[0], *store])
        assert done.exit_code == 3
        assert "no session" in done.output
        assert [info.session for info in running.sessions()] == names[1:]
