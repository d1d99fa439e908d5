"""Properties of the messages encoder: it never raises, the protocol's order holds whatever comes, it resumes anywhere,
streaming folds to the answer without streaming, and what one of our parsers makes breaks no rule."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from stages import catalog
from stages.events import (
    Body,
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    Done,
    End,
    ErrorChunk,
    Failure,
    Finish,
    Head,
    Reasoning,
    Refusal,
    Semantic,
    Start,
    Tick,
    Tokens,
    Usage,
)
from stages.message import collect
from stages.opening import Ask
from stages.protocols.anthropic import ENCODER, Accumulator, Chunk, ChunkLayer
from stages.protocols.rules import Evidence, check
from stages.sse import FRAMER
from stages.stage import fold
from tests.support.chat import body_of
from tests.support.messages import SRC, chunks_of, frames_of, opening

choice = st.sampled_from([0, 0, 0, 1])
text = st.sampled_from(["", "a", "é\n", '"', "\U0001f600", "\ud800"])
piece = st.sampled_from(["", "{", "}", '"a":', "1", ",", '"x"', "[", "é"])
index = st.integers(-1, 2)

wild: st.SearchStrategy[Semantic] = st.one_of(
    st.builds(Start, choice, st.just(9), st.sampled_from([0, 4])),
    st.builds(Tokens, choice, st.just((1, 2))),
    st.builds(Reasoning, choice, text, st.just(SRC)),
    st.builds(Content, choice, text, st.just(SRC)),
    st.builds(Refusal, choice, text, st.just(SRC)),
    st.builds(CallStart, choice, index, st.just("c"), st.just("f"), st.just(SRC)),
    st.builds(CallArguments, choice, index, piece, st.just(SRC)),
    st.builds(CallEnd, choice, index, st.booleans()),
    st.builds(
        Finish, choice, st.sampled_from(["eos", "stop", "stop_token", "length", "context", "filter"]), st.just("x")
    ),
    st.just(Usage(9, 4, 1, 2)),
    st.just(Failure("engine", "lost")),
    st.just(Failure("client_closed", "")),
    st.just(End()),
    st.just(Tick()),
)
OMITTED = {"thinking": {"type": "enabled", "display": "omitted"}}
asks = st.builds(Ask, stream=st.booleans(), include_reasoning=st.booleans(), include_usage=st.just(True))
requests = st.sampled_from([{}, OMITTED])


@given(asks, requests, st.lists(wild, max_size=25))
def test_whatever_comes_it_resumes_anywhere(ask: Ask, request: dict[str, Any], events: list[Semantic]) -> None:
    start = opening(ask, request)
    want = fold(ENCODER.start(start), events)
    machine: Any = ENCODER.start(start)
    out: list[ChunkLayer] = []
    for event in events:
        snapshot = machine.snapshot()
        json.dumps(msgspec.to_builtins(snapshot))
        machine = ENCODER.resume(start, snapshot)
        machine.step(event, out)
        assert machine.snapshot() != snapshot or msgspec.to_builtins(machine.snapshot()) == msgspec.to_builtins(
            snapshot
        )
    assert out == want
    frames = fold(FRAMER.start(start), want)
    for frame in frames:
        if not isinstance(frame, Head):
            frame.data.decode()  # strict UTF-8


def index_of(chunk: Any) -> int:
    return int(chunk.index)


@given(requests, st.lists(wild, max_size=25))
def test_the_order_of_a_message_holds_whatever_comes(request: dict[str, Any], events: list[Semantic]) -> None:
    chunks = [chunk for chunk in chunks_of(events, Ask(stream=True), request) if not isinstance(chunk, Tick)]
    kinds = [chunk.event for chunk in chunks if not isinstance(chunk, ErrorChunk | Done)]
    if len(kinds) < len(chunks):
        assert len(chunks) == 1
        return
    blocks = 0
    is_open = False
    for place, kind in enumerate(kinds):
        assert (kind == "message_start") == (place == 0 and kind != "error")
        if kind == "content_block_start":
            assert (not is_open, index_of(chunks[place])) == (True, blocks)
            is_open, blocks = True, blocks + 1
        elif kind in ("content_block_delta", "content_block_stop"):
            assert (is_open, index_of(chunks[place])) == (True, blocks - 1)
            is_open = kind == "content_block_delta"
        elif kind != "message_start":
            assert not is_open
            assert kind in ("message_delta", "message_stop", "error")
            assert place == len(kinds) - 1 or kind == "message_delta"
    assert kinds.count("message_delta") <= 1


@given(st.lists(wild, max_size=25))
def test_it_says_the_same_in_one_piece(events: list[Semantic]) -> None:
    # The body cannot be told before its end, and errors have no message.
    events = [event for event in events if not isinstance(event, End | Failure)]
    collector = Accumulator()
    for chunk in chunks_of([*events, End()], Ask(stream=True)):
        if isinstance(chunk, Chunk):
            collector.add(chunk)
    [whole] = chunks_of([*events, End()], Ask())
    assert whole == collector.message()


# --- orderly streams --------------------------------------------------------------------------------------------------

whole_text = st.text(st.characters(codec="utf-8", exclude_characters="\ufffd"), min_size=1, max_size=8)


@st.composite
def calls(draw: st.DrawFn, number: int, last: bool) -> list[Semantic]:
    """One call, cut anywhere if it is the last of its choice."""
    value = draw(st.dictionaries(whole_text, st.one_of(whole_text, st.integers(-9, 9), st.lists(st.booleans()))))
    written = json.dumps(value, ensure_ascii=draw(st.booleans()))
    cut = len(written) if not last else draw(st.integers(0, len(written)))
    complete = cut == len(written) and (not last or draw(st.booleans()))
    at = draw(st.integers(0, cut))
    pieces = [one for one in (written[:at], written[at:cut]) if one]
    head = CallStart(0, number, f"call_{number}", draw(st.sampled_from(["f", "get_tide"])), SRC)
    return [head, *(CallArguments(0, number, one, SRC) for one in pieces), CallEnd(0, number, complete)]


@st.composite
def streams(draw: st.DrawFn) -> list[Semantic]:
    """What a parser of ours makes of one choice: in order, with a finish that fits."""
    prompt = draw(st.integers(1, 50))
    cached = draw(st.integers(0, prompt))
    events: list[Semantic] = [Start(0, prompt, cached)]
    count = 0
    # A choice answers or refuses, not both.
    parts = draw(
        st.lists(st.sampled_from([draw(st.sampled_from(["content", "refusal"])), "reasoning", "call"]), max_size=6)
    )
    for place, part in enumerate(parts):
        if part == "call":
            events += draw(calls(count, place == len(parts) - 1))
            count += 1
        else:
            kind: Any = {"content": Content, "reasoning": Reasoning, "refusal": Refusal}[part]
            events += [kind(0, one, SRC) for one in draw(st.lists(whole_text, min_size=1, max_size=3))]
    events.append(
        draw(
            st.sampled_from(
                [
                    Finish(0, "eos", 7),
                    Finish(0, "length"),
                    Finish(0, "context"),
                    Finish(0, "filter"),
                    Finish(0, "stop", "\x00stop"),
                ]
            )
        )
    )
    events += [Usage(prompt, 40, cached, draw(st.integers(0, 40))), End()]
    if draw(st.integers(0, 4)) == 0:
        events = [*events[: draw(st.integers(1, len(events) - 3))], Failure("overloaded", "full"), End()]
    return [item for event in events for item in ([Tick(), event] if draw(st.integers(0, 9)) == 0 else [event])]


@settings(max_examples=60)
@given(streams(), st.sampled_from([{}, OMITTED]))
def test_no_rule_is_broken(events: list[Semantic], request: dict[str, Any]) -> None:
    asked = {"stream": True, "stop_sequences": ["\x00stop"], **request}
    ask = Ask(stream=True, include_usage=True)
    body = body_of(frames_of(events, ask, asked))
    whole = frames_of(events, msgspec.structs.replace(ask, stream=False), asked)[1]
    assert isinstance(whole, Body)
    report = check(
        Evidence(
            body=body,
            protocol="messages",
            own=True,
            request=asked,
            meant=collect(events),
            whole=whole.data,
            effort=True,
        )
    )
    assert report.violations == ()
    assert {132, 135, 137} <= set(report.checked)


def test_the_chunks_are_stored_and_read_back() -> None:
    """They are one union by their type, which no event that all protocols share has."""
    tags = {str(kind.__struct_config__.tag) for kind in Chunk.__args__}
    assert len(tags) == len(Chunk.__args__)
    assert catalog.PROTOCOLS["messages"].chunk is Chunk
