"""The accumulator on streams that are not ours, and reading logprobs that another server sends."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.events import Content, ErrorChunk, Finish, Semantic, Start, TokenLogprob, Tokens, TopLogprob, Usage
from stages.protocols.openai_responses import Accumulator, ResponsesReader, chunk_of
from tests.support.responses import CASES, values_of
from tests.support.wire import full, golden

STREAMS = [values_of(*CASES[name]) for name in sorted(CASES)]
STREAMS.append(values_of(*CASES["G09"], reasoning={"summary": "auto"}))


@st.composite
def disordered(draw: st.DrawFn) -> list[Any]:
    """Events of several streams, mixed, with places that nobody has."""
    values = draw(st.lists(st.sampled_from([value for stream in STREAMS for value in stream]), max_size=20))
    return [
        {**value, "output_index": draw(st.integers(-1, 3))} if "output_index" in value else value for value in values
    ]


@given(disordered())
def test_it_takes_anything(values: list[Any]) -> None:
    collected = Accumulator()
    for value in values:
        chunk = chunk_of(value)
        assert chunk is not None
        collected.take(chunk)
        collected.response()


@pytest.mark.parametrize("name", ["G09", "G10", "G11"])
def test_the_golden_streams(name: str) -> None:
    """Through ``chunk_of``: what the last event has is the response."""
    collected = Accumulator()
    values = [full("responses", element, number) for number, element in enumerate(golden(name).elements)]
    for value in values:
        chunk = chunk_of(value)
        assert chunk is not None
        collected.take(chunk)
    got = collected.response()
    assert got is not None
    want = values[-1]["response"]
    assert (got.id, got.status, len(got.output)) == (want["id"], want["status"], len(want["output"]))
    assert collected.over


def test_what_is_done_counts_where_the_last_event_has_no_output() -> None:
    values = values_of(*CASES["G09"])
    last: Any = {**values[-1], "response": {**values[-1]["response"], "output": []}}
    collected = Accumulator()
    for value in [*values[:-1], last]:
        chunk = chunk_of(value)
        assert chunk is not None
        collected.take(chunk)
    got = collected.response()
    assert got is not None
    assert [item.id for item in got.output] == [item["id"] for item in values[-1]["response"]["output"]]


def test_errors() -> None:
    created = chunk_of(values_of(*CASES["text"])[0])
    assert created is not None
    for error in (
        ErrorChunk(500, {"error": {"message": "it broke"}}),
        chunk_of({"type": "error", "sequence_number": 1, "code": None, "message": "it broke"}),
    ):
        assert error is not None
        collected = Accumulator()
        collected.take(error)
        assert (collected.response(), collected.over) == (None, True)
        collected = Accumulator()
        for chunk in (created, error, created):
            collected.take(chunk)
        got = collected.response()
        assert got is not None
        assert got.error is not None
        assert (got.status, got.error.message) == ("failed", "it broke")


@pytest.mark.parametrize("value", [5, None, {}, {"type": "response.nonsense"}, {"type": "response.created"}])
def test_what_is_no_event_of_ours_is_none(value: Any) -> None:
    assert chunk_of(value) is None


def test_logprobs_are_tokens() -> None:
    out: list[Semantic] = []
    reader = ResponsesReader()
    delta: Any = {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "item_id": "m"}
    top: Any = [{"token": "b", "logprob": None}, 5]
    reader.event("", {**delta, "delta": "é", "logprobs": [{"token": "é", "logprob": -0.5, "top_logprobs": top}]}, out)
    reader.event("", {**delta, "delta": "a", "logprobs": [{"token": "?", "bytes": [97, 300], "logprob": -1}]}, out)
    reader.event("", {**delta, "delta": "b", "logprobs": [{"token": "?", "bytes": [98], "logprob": -1}]}, out)
    reader.event("", {**delta, "delta": "c", "logprobs": "none"}, out)
    reader.event("", {"type": "response.completed", "response": {"status": "completed", "usage": {}}}, out)
    entry = TokenLogprob(-1, "é".encode(), -0.5, (TopLogprob(-1, b"b", -9999.0),))
    assert out[:-1] == [
        Start(0, 0), Tokens(0, (-1,), (entry,)), Content(0, "é", (0, 2)),
        Tokens(0, (-1,), (TokenLogprob(-1, b"?", -1.0),)), Content(0, "a", (2, 3)),
        Tokens(0, (-1,), (TokenLogprob(-1, b"b", -1.0),)), Content(0, "b", (3, 4)), Content(0, "c", (4, 5)),
        Finish(0, "eos"), Usage(0, 0),
    ]  # fmt: skip
