"""Official clients on streams with ids and comments, and the command that deletes a session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from click.testing import CliRunner

from pipeline.cli import main as playhead
from stages.events import Block, Comment, Head
from stages.positions import Positions
from stages.sse import SseDecoder
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
