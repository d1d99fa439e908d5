"""Properties of the responses encoder: it never raises, the protocol holds whatever comes, it resumes anywhere,
streaming tells the answer, grouping of text does not matter, and a stream can be written again from what it says."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay.coalesce import merge
from stages.events import (
    Block,
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    Dropped,
    Echo,
    End,
    ErrorChunk,
    Failure,
    Fault,
    FaultCode,
    Finish,
    Marker,
    Reasoning,
    Refusal,
    Semantic,
    Start,
    Tick,
    TimingInput,
    TokenLogprob,
    Tokens,
    Usage,
)
from stages.opening import Ask
from stages.protocols.openai_responses import ENCODER, Accumulator, ChunkLayer, Response, rewritten
from stages.protocols.openai_responses.chunks import LifecycleEvent, ResponseBody, StreamEvent
from stages.protocols.rules import Evidence, check
from stages.stage import fold, run_steps
from store import codec
from tests.support.chat import body_of
from tests.support.responses import CASES, chunks_of, frames_of, opening, payloads, request_of

text = st.sampled_from(["", "a", "é\n", '"', "\U0001f600"])
index = st.integers(-1, 2)
src = st.tuples(st.integers(0, 6), st.integers(0, 3)).map(lambda ends: (ends[0], ends[0] + ends[1]))


def tokens(number: int, ids: tuple[int, ...]) -> Tokens:
    return Tokens(number, ids, tuple(TokenLogprob(token_id, b"\xc3" * (token_id % 3), -0.5) for token_id in ids))


choice = st.sampled_from([0, 0, 0, 0, 0, 1])
event: st.SearchStrategy[Semantic] = st.one_of(
    st.builds(Start, choice, st.just(9), st.just(0), st.sampled_from([(), (1, 2)])),
    st.builds(tokens, choice, st.lists(st.integers(0, 9), max_size=2).map(tuple)),
    st.builds(Reasoning, choice, text, src),
    st.builds(Content, choice, text, src),
    st.builds(Content, choice, text, src),
    st.builds(Refusal, choice, text, src),
    st.builds(CallStart, choice, index, st.just("c"), st.just("f"), src),
    st.builds(CallArguments, choice, index, st.sampled_from(["", "{", "}", "x"]), src),
    st.builds(CallEnd, choice, index, st.booleans()),
    st.builds(Marker, choice, text, src),
    st.builds(Dropped, choice, text, src),
    st.builds(Fault, choice, st.sampled_from(FaultCode), src, text),
    st.builds(Finish, choice, st.sampled_from(["eos", "stop", "stop_token", "length", "context", "filter"])),
    st.just(Usage(9, 4, 1, 2)),
    st.just(Failure("engine", "lost")),
    st.just(Failure("rate_limited", "", "slow", "model")),
    st.just(Failure("client_closed", "")),
    st.just(End()),
    st.just(Tick()),
    st.just(TimingInput("ttft", 5)),
    st.just(Echo(0, "p")),
)
asks = st.builds(
    Ask, stream=st.booleans(), logprobs=st.booleans(), include_reasoning=st.booleans(), top_logprobs=st.just(1)
)
fields = st.sampled_from([{}, {"reasoning": {"summary": "auto", "effort": "low"}, "instructions": "i"}])
UNMEANT = ("a_argsjson", "a_names", "a_idsuniq")
"""Rules that the generated calls break."""


def streaming(ask: Ask) -> Ask:
    return msgspec.structs.replace(ask, stream=True)


def assert_silent(ask: Ask, chunks: list[Any], body: bytes, asked: dict[str, Any]) -> None:
    """The rules about a body, its request, and its way back."""
    ended = any(_terminal(chunk) for chunk in chunks)
    evidence = Evidence(
        body=body, protocol="responses", own=True, marked=None if ended else "truncated", effort=True,
        request=request_of(ask, **asked),
    )  # fmt: skip
    broken = [one for one in check(evidence).violations if one.key not in UNMEANT]
    assert broken == []


def _terminal(chunk: Any) -> bool:
    return isinstance(chunk, LifecycleEvent) and chunk.response.status != "in_progress"


@given(asks, fields, st.lists(event, max_size=14))
def test_anything_in_any_order_keeps_the_protocol(ask: Ask, asked: dict[str, Any], events: list[Semantic]) -> None:
    ask = streaming(ask)
    chunks = chunks_of(ask, events, **asked)
    if any(isinstance(chunk, ErrorChunk) for chunk in chunks):
        assert len(chunks) == 1
    elif any(isinstance(chunk, StreamEvent) for chunk in chunks):
        assert_silent(ask, chunks, body_of(frames_of(ask, events, **asked)), asked)


@given(asks, fields, st.lists(event, max_size=12))
def test_it_resumes_after_every_event(ask: Ask, asked: dict[str, Any], events: list[Semantic]) -> None:
    start = opening(ask, **asked)
    whole = fold(ENCODER.start(start), events)
    for cut in range(len(events) + 1):
        machine = ENCODER.start(start)
        first = fold(machine, events[:cut])
        snapshot = machine.snapshot()
        stored: Any = msgspec.json.encode(snapshot)
        fold(machine, events[cut:])
        assert msgspec.json.encode(snapshot) == stored
        resumed: Any = msgspec.json.decode(stored, type=type(snapshot))
        assert first + fold(ENCODER.resume(start, resumed), events[cut:]) == whole


@given(asks, fields, st.lists(event, max_size=14))
def test_many_at_once_are_as_one_by_one(ask: Ask, asked: dict[str, Any], events: list[Semantic]) -> None:
    start = opening(streaming(ask), **asked)
    one, many, ends, want = ENCODER.start(start), list[ChunkLayer](), list[int](), list[ChunkLayer]()
    run_steps(ENCODER.start(start), events, many, ends)
    for item, end in zip(events, ends, strict=True):
        one.step(item, want)
        assert len(want) == end
    assert many == want


@given(asks, fields, st.lists(event, max_size=14))
def test_a_stream_tells_the_answer(ask: Ask, asked: dict[str, Any], events: list[Semantic]) -> None:
    """The terminal event's response is the body of the same request without streaming; so is what an accumulator has
    then. An error is an error there too."""
    events = [Start(0, 9), *(item for item in events if not isinstance(item, Tick)), End()]
    collected = Accumulator()
    chunks = chunks_of(streaming(ask), events, **asked)
    for chunk in chunks:
        collected.take(chunk)
    made = chunks_of(msgspec.structs.replace(ask, stream=False), events, **asked)
    got = collected.response()
    if any(isinstance(item, Failure) and item.kind == "client_closed" for item in events) and not made:
        assert not collected.over
        return
    [answer] = made
    assert collected.over
    assert got is not None
    if isinstance(answer, ErrorChunk):
        assert got.error is not None
        assert got.error.message == answer.body["error"]["message"]
    else:
        assert isinstance(answer, ResponseBody)
        assert answer.response == got


@given(asks, fields, st.lists(event, max_size=10))
def test_the_accumulator_shows_what_was_said_so_far(ask: Ask, asked: dict[str, Any], events: list[Semantic]) -> None:
    """At every point, through bytes: the texts of the response are the deltas so far; and it resumes there."""
    ask = msgspec.structs.replace(streaming(ask), include_reasoning=True)
    collected = Accumulator()
    said = ""
    for chunk in chunks_of(ask, [Start(0, 9), *events], **asked):
        collected.take(chunk)
        said += str(getattr(chunk, "delta", ""))
        shown = collected.response()
        assert shown is not None
        if not collected.over:
            assert "".join(spoken(shown)) == said
        collected = Accumulator(collected.state())
        assert collected.response() == shown


def spoken(response: Response) -> list[str]:
    made = msgspec.to_builtins(response)["output"]
    texts: list[str] = []
    for item in made:
        texts += [
            part.get("text", part.get("refusal")) for part in (*item.get("summary", ()), *item.get("content", ()))
        ]
        texts.append(item.get("arguments", ""))
    return texts


@given(asks, fields, st.lists(event, max_size=14))
def test_chunks_are_stored_and_read_again(ask: Ask, asked: dict[str, Any], events: list[Semantic]) -> None:
    chunks = chunks_of(ask, [Start(0, 9), *events, End()], **asked)
    where = codec.Where("s", "served", "chunk", 0)
    assert codec.decode(where, codec.array(len(chunks), codec.encode(chunks)), "responses", lambda _hash: b"") == chunks


@given(asks, fields, st.lists(event, max_size=10))
def test_the_bytes_are_the_chunks(ask: Ask, asked: dict[str, Any], events: list[Semantic]) -> None:
    ask = streaming(ask)
    events = [Start(0, 9), *events]
    frames = frames_of(ask, events, **asked)
    chunks = [chunk for chunk in chunks_of(ask, events, **asked) if isinstance(chunk, StreamEvent)]
    blocks = [frame.data for frame in frames if isinstance(frame, Block)]
    assert [block.split(b"\n")[0] for block in blocks] == [b"event: " + chunk.event.encode() for chunk in chunks]
    values = payloads(frames)
    assert values == [json.loads(chunk.wire()) for chunk in chunks]
    assert [value["sequence_number"] for value in values] == list(range(len(values)))
    assert [value["type"] for value in values] == [chunk.event for chunk in chunks]


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_stream_is_written_again_wherever_it_is_cut(name: str) -> None:
    """INV-135."""
    ask, events = CASES[name]
    values = payloads(frames_of(ask, events))
    for cut in range(1, len(values) + 1):
        assert payloads(rewritten(values[:cut])) == values[:cut]


@pytest.mark.parametrize("name", sorted(set(CASES) - {"logprobs"}))
def test_grouping_of_text_does_not_matter(name: str) -> None:
    """INV-137: text cut into characters folds to the same answer."""
    ask, events = CASES[name]
    cut: list[Semantic] = []
    for item in events:
        if isinstance(item, Content | Reasoning | Refusal | CallArguments):
            cut += [msgspec.structs.replace(item, text=letter) for letter in item.text]
        else:
            cut.append(item)
    ask = msgspec.structs.replace(ask, stream=False)
    assert chunks_of(ask, cut) == chunks_of(ask, events)


@pytest.mark.parametrize("name", sorted(set(CASES) - {"logprobs"}))
def test_replay_sees_that_only_the_grouping_differs(name: str) -> None:
    """Deltas that came at other borders, and events that have other numbers for it, are the same when merged."""
    ask, events = CASES[name]
    cut: list[Semantic] = []
    for item in events:
        pieces = item.text if isinstance(item, Content | Reasoning | Refusal | CallArguments) else ""
        cut += [msgspec.structs.replace(item, text=letter) for letter in pieces] or [item]
    one, two = chunks_of(ask, events), chunks_of(ask, cut)
    runs = [merge("chunk", chunks, [0] * len(chunks), "lane") for chunks in (one, two)]
    assert len(runs[0]) == len(runs[1])
    assert all(mine.same(theirs) for mine, theirs in zip(*runs, strict=True))
