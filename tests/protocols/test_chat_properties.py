"""Properties of the chat encoder: it never raises, the protocol holds whatever comes, it resumes anywhere, streaming
folds to the non-streaming answer, and grouping of text does not matter."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from stages.events import (
    Block,
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    Done,
    Dropped,
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
from stages.protocols.openai_chat import ENCODER, Accumulator, ChatChunk, ChatCompletion, chunk_of
from stages.protocols.openai_chat.chunks import CompletionUsage
from stages.sse import SseDecoder
from stages.stage import fold
from tests.support.chat import CASES, body_of, chunks_of, frames_of, opening

SRC = (0, 0)
choice = st.integers(0, 3)
text = st.sampled_from(["", "a", "é\n", '"', "\U0001f600"])
index = st.integers(-1, 2)
token_ids = st.lists(st.integers(0, 9), max_size=2).map(tuple)


def tokens(number: int, ids: tuple[int, ...]) -> Tokens:
    return Tokens(number, ids, tuple(TokenLogprob(token_id, b"\xc3", -0.5) for token_id in ids))


event: st.SearchStrategy[Semantic] = st.one_of(
    st.builds(Start, choice, st.just(9), st.just(0), st.sampled_from([(), (1, 2)])),
    st.builds(tokens, choice, token_ids),
    st.builds(Reasoning, choice, text, st.just(SRC)),
    st.builds(Content, choice, text, st.just(SRC)),
    st.builds(Refusal, choice, text, st.just(SRC)),
    st.builds(CallStart, choice, index, st.just("c"), st.just("f"), st.just(SRC)),
    st.builds(CallArguments, choice, index, text, st.just(SRC)),
    st.builds(CallEnd, choice, index, st.booleans()),
    st.builds(Marker, choice, text, st.just(SRC)),
    st.builds(Dropped, choice, text, st.just(SRC)),
    st.builds(Fault, choice, st.sampled_from(FaultCode), st.just(SRC)),
    st.builds(Finish, choice, st.sampled_from(["eos", "stop", "stop_token", "length", "filter"]), st.just("x")),
    st.just(Usage(9, 4, 1, 2)),
    st.just(Failure("engine", "lost")),
    st.just(Failure("client_closed", "")),
    st.just(End()),
    st.just(Tick()),
    st.builds(TimingInput, st.sampled_from(["queue", "ttft", "max_gap", "mean_gap", "other"]), st.integers(0, 10**12)),
)
asks = st.builds(
    Ask, stream=st.booleans(), n=st.integers(1, 3), logprobs=st.booleans(), return_token_ids=st.booleans(),
    include_usage=st.booleans(), continuous_usage=st.booleans(), include_reasoning=st.booleans(),
    reasoning_field=st.sampled_from(["reasoning", "reasoning_content", "both"]),
    tool_choice=st.sampled_from(["auto", "name:f"]), named_finish=st.sampled_from(["stop", "tool_calls"]),
    metrics=st.booleans(), end_token=st.booleans(), stop_ids=st.just((3,)),
)  # fmt: skip


@given(asks, st.lists(event, max_size=14))
def test_anything_in_any_order_keeps_the_protocol(ask: Ask, events: list[Semantic]) -> None:
    chunks = chunks_of(msgspec.structs.replace(ask, stream=True), events)
    if Done() in chunks:
        assert chunks.index(Done()) == len(chunks) - 1
    errors = [place for place, chunk in enumerate(chunks) if isinstance(chunk, ErrorChunk)]
    assert errors in ([], [len(chunks) - 2])
    seen: dict[int, list[Any]] = {}
    for chunk in chunks:
        if isinstance(chunk, ChatChunk):
            made = json.loads(chunk.wire())
            assert len(made["choices"]) == 1 or made["usage"]
            for item in made["choices"]:
                assert item["index"] in seen or item["index"] == len(seen)
                seen.setdefault(item["index"], []).append(item)
    for items in seen.values():
        check_choice(items)


def check_choice(items: list[Any]) -> None:
    """INV-033, 034, 051, 058, 059, 060, 062 on one choice's objects."""
    assert items[0]["delta"] == {"role": "assistant", "content": ""}
    assert not any("role" in item["delta"] for item in items[1:])
    assert all(item["finish_reason"] is None for item in items[:-1])
    calls = 0
    for entry in (entry for item in items for entry in item["delta"].get("tool_calls", ())):
        if "id" in entry:
            assert entry["index"] == calls
            calls += 1
        else:
            assert entry["index"] == calls - 1
            assert "name" not in entry["function"]


@given(asks, st.lists(event, max_size=12))
def test_it_resumes_after_every_event(ask: Ask, events: list[Semantic]) -> None:
    start = opening(ask)
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


@given(asks, st.lists(event, max_size=14))
def test_streaming_folds_to_the_answer(ask: Ask, events: list[Semantic]) -> None:
    """Text, calls, logprobs, token ids, usage and metrics, in every usage mode (the final usage is always there without
    streaming), however a client reads the chunks."""
    events = [item for item in events if not isinstance(item, Failure | End | Tick)]
    (answer,) = chunks_of(msgspec.structs.replace(ask, stream=False), [*events, End()])
    assert isinstance(answer, ChatCompletion)
    if not ask.include_usage:
        answer = msgspec.structs.replace(answer, usage=CompletionUsage(0, 0, 0), metrics=UNSET)
    typed, lenient = Accumulator(), Accumulator()
    for chunk in chunks_of(msgspec.structs.replace(ask, stream=True), [*events, End()]):
        if isinstance(chunk, ChatChunk):
            typed.add(msgspec.json.decode(chunk.wire(), type=ChatChunk))
            lenient.take(chunk_of(json.loads(chunk.wire())))
    # Where nothing was said there was no chunk to take the id from.
    if typed.state().first is not None:
        if ask.continuous_usage and not any(isinstance(item, Usage) for item in events):
            # The last running count stands where there is no final one.
            answer = msgspec.structs.replace(answer, usage=typed.completion().usage)
        assert typed.completion() == answer
        assert lenient.completion() == answer


@given(asks, st.lists(event, max_size=10))
def test_the_bytes_decode_to_the_chunks(ask: Ask, events: list[Semantic]) -> None:
    ask = msgspec.structs.replace(ask, stream=True)
    frames = frames_of(ask, [Start(0, 9), *events])
    texts = [item.data for item in SseDecoder().feed(body_of(frames))]
    assert len(texts) == sum(isinstance(frame, Block) for frame in frames)
    chunks = [chunk for chunk in chunks_of(ask, [Start(0, 9), *events]) if isinstance(chunk, ChatChunk)]
    read = [msgspec.json.decode(item, type=ChatChunk) for item in texts if "error" not in item and item != "[DONE]"]
    assert read == chunks


def test_grouping_of_text_does_not_matter() -> None:
    """INV-137: text cut into characters, and carriers beside it, fold to the same answer."""
    for ask, events in CASES.values():
        cut: list[Semantic] = []
        for item in events:
            if isinstance(item, Content | Reasoning | CallArguments):
                cut += [msgspec.structs.replace(item, text=letter) for letter in item.text]
            else:
                cut.append(item)
        ask = msgspec.structs.replace(ask, stream=False)
        assert chunks_of(ask, cut) == chunks_of(ask, events)


def test_the_interleaving_of_choices_does_not_matter() -> None:
    ask, events = CASES["G04"]
    ours = [[item for item in events if getattr(item, "choice", None) == number] for number in (0, 1)]
    in_order: list[Semantic] = [
        ours[0][0], ours[1][0], *ours[0][1:], *ours[1][1:], *[item for item in events if isinstance(item, Usage | End)],
    ]  # fmt: skip
    assert in_order != events
    for number in (0, 1):
        assert of_choice(chunks_of(ask, in_order), number) == of_choice(chunks_of(ask, events), number)


def of_choice(chunks: list[Any], number: int) -> list[Any]:
    return [chunk for chunk in chunks if isinstance(chunk, ChatChunk) and chunk.choices[0].index == number]
