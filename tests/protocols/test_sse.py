"""The decoder on the standard's vectors under every cut; the framer's rules."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.events import Block, Body, Comment, Content, Done, End, ErrorChunk, Finish, Head, Start, Tick
from stages.opening import Ask
from stages.protocols.openai_chat import ChatChunk, ChatCompletion, error_chunk
from stages.protocols.openai_chat.chunks import ChunkChoice, Delta
from stages.sse import FRAMER, ChunkLayer, SseDecoder, SseEvent
from stages.stage import fold
from tests.support.chat import DATA, body_of, frames_of, opening

VECTORS = [json.loads(line) for line in (DATA / "sse_vectors.jsonl").read_text(encoding="utf-8").splitlines()]


def cuts(data: bytes) -> Iterator[list[bytes]]:
    """The whole, bytes one by one, every single cut (also with an empty read), every double cut of short streams."""
    yield [data]
    yield [data[i : i + 1] for i in range(len(data))]
    for i in range(len(data) + 1):
        yield [data[:i], b"", data[i:]]
    if len(data) < 40:
        for i in range(len(data)):
            for k in range(i, len(data)):
                yield [data[:i], data[i:k], data[k:]]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"])
def test_vector_under_every_cut(vector: dict[str, Any]) -> None:
    want = [SseEvent(*event) for event in vector["ev"]]
    for pieces in cuts(vector["in"].encode("latin-1")):
        decoder = SseDecoder()
        assert [event for piece in pieces for event in decoder.feed(piece)] == want
        assert decoder.retry_ms == vector.get("retry")
        assert decoder.last_id == vector.get("last_id", "")


def test_all_vectors_are_here() -> None:
    assert [vector["id"] for vector in VECTORS] == [f"S{number:02}" for number in range(1, 49)]


@pytest.mark.parametrize(
    ("data", "at"),
    [
        (b"data: a\n\ndata: b\n\n", [9, 18]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [10, 21]),
        (b"data: a\r\rdata: b\r\r", [9, 18]),
        (b"data: a\n\r\ndata: b\n\n", [9, 19]),
        (b"data: a\r\n\ndata: b\n\n", [10, 19]),
        (b"data: a\r\n\rdata: b\n\n", [10, 19]),
    ],
)
def test_an_event_comes_out_at_its_last_byte(data: bytes, at: list[int]) -> None:
    decoder = SseDecoder()
    assert [i + 1 for i in range(len(data)) for _ in decoder.feed(data[i : i + 1])] == at


def test_pending_tells_what_the_end_discards() -> None:
    decoder = SseDecoder()
    for data, pending in ((b"", False), (b"da", True), (b"ta: a\n", True), (b"\n", False), (b"\xe2\x82", True)):
        decoder.feed(data)
        assert decoder.pending is pending


def test_huge_retry_does_not_raise() -> None:
    decoder = SseDecoder()
    decoder.feed(b"retry: " + b"9" * 10_000 + b"\n")
    assert decoder.retry_ms == (1 << 63) - 1


@given(st.lists(st.binary(max_size=40), max_size=8))
def test_decoder_is_total_and_blind_to_cuts(pieces: list[bytes]) -> None:
    whole, cut = SseDecoder(), SseDecoder()
    assert [event for piece in pieces for event in cut.feed(piece)] == whole.feed(b"".join(pieces))


# --- the framer -----------------------------------------------------------------------------------------------------


def test_keep_alive_is_a_comment_and_may_come_first() -> None:
    head, *rest = frames_of(Ask(stream=True), [Tick(), Start(0, 1), Tick(), Finish(0, "eos"), Tick(), End(), Tick()])
    assert isinstance(head, Head)
    assert head.status == 200
    assert [type(frame) for frame in rest] == [Comment, Block, Comment, Block, Comment, Block]
    assert rest[0] == Comment(b": keep-alive\n\n")
    assert rest[-1] == Block(b"data: [DONE]\n\n")


def test_each_write_is_one_whole_event() -> None:
    frames = frames_of(
        Ask(stream=True), [Start(0, 1), Content(0, "a\r\n\u2028é\0\x7f", (0, 9)), Finish(0, "eos"), End()]
    )
    decoder = SseDecoder()
    for frame in frames[1:]:
        data = body_of([frame])
        assert b"\r" not in data
        assert data.count(b"\n") == 2
        assert data.endswith(b"\n\n")
        assert len(decoder.feed(data)) == 1
    assert not decoder.pending


def test_error_before_the_head_is_a_json_answer() -> None:
    inputs: list[ChunkLayer] = [error_chunk("overloaded", "full"), Done(), Tick()]
    frames = fold(FRAMER.start(opening(Ask(stream=True))), inputs)
    body = b'{"error":{"message":"full","type":"server_error","param":null,"code":"overloaded"}}'
    assert frames == [
        Head(
            503,
            (
                ("content-type", "application/json"), ("content-length", str(len(body))),
                ("x-request-id", "chatcmpl-7a1"), ("retry-after", "1"),
            ),
        ),
        Body(body),
    ]  # fmt: skip


def test_error_after_the_head_ends_the_stream() -> None:
    chunk = ChatChunk("i", 1, "m", None, (ChunkChoice(0, Delta(content="a")),))
    inputs: list[ChunkLayer] = [chunk, error_chunk("engine", "lost"), chunk, Tick(), Done(), chunk, Done()]
    frames = fold(FRAMER.start(opening(Ask(stream=True))), inputs)
    assert [type(frame) for frame in frames] == [Head, Block, Block, Block]
    assert frames[-1] == Block(b"data: [DONE]\n\n")


def test_completion_is_a_json_answer() -> None:
    frames = fold(FRAMER.start(opening(Ask())), [ChatCompletion("i", 1, "m")])
    body = b'{"id":"i","object":"chat.completion","created":1,"model":"m","system_fingerprint":null,"choices":[]}'
    assert frames == [
        Head(
            200,
            (
                ("content-type", "application/json"), ("content-length", str(len(body))),
                ("x-request-id", "chatcmpl-7a1"),
            ),
        ),
        Body(body),
    ]  # fmt: skip


def test_unpaired_surrogates_become_replacement_characters() -> None:
    chunk = ChatChunk("i", 1, "m", None, (ChunkChoice(0, Delta(content="a\ud800b\U0001f600\udc00")),))
    inputs: list[ChunkLayer] = [chunk, ErrorChunk(500, {"error": {"message": "x\udfff"}})]
    _, block, error = fold(FRAMER.start(opening(Ask(stream=True))), inputs)
    assert isinstance(block, Block)
    assert json.loads(block.data[6:])["choices"][0]["delta"] == {"content": "a\ufffdb\U0001f600\ufffd"}
    assert error == Block('data: {"error":{"message":"x\ufffd"}}\n\n'.encode())


CHUNKS: list[ChunkLayer] = [
    ChatChunk("i", 1, "m", None, (ChunkChoice(0, Delta(content="a")),)), ChatCompletion("i", 1, "m"),
    error_chunk("engine", "lost"), error_chunk("bad_request", "no", param="n"), Done(), Tick(),
]  # fmt: skip


@given(st.lists(st.sampled_from(CHUNKS), max_size=7))
def test_framer_is_total_and_resumes_anywhere(inputs: list[ChunkLayer]) -> None:
    start = opening(Ask(stream=True))
    whole = fold(FRAMER.start(start), inputs)
    assert [isinstance(frame, Head) for frame in whole] == [index == 0 for index in range(len(whole))]
    for cut in range(len(inputs) + 1):
        machine = FRAMER.start(start)
        first = fold(machine, inputs[:cut])
        snapshot = machine.snapshot()
        stored: Any = msgspec.json.decode(msgspec.json.encode(snapshot), type=type(snapshot))
        assert first + fold(FRAMER.resume(start, stored), inputs[cut:]) == whole
