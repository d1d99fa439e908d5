"""The completions encoder: the golden streams, echo and logprobs, and properties of whatever comes."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.events import (
    Content,
    Done,
    Echo,
    End,
    ErrorChunk,
    Failure,
    Finish,
    FinishReason,
    Frame,
    Semantic,
    Start,
    Tick,
    Tokens,
    Usage,
)
from stages.opening import Ask, TokenizerFacts
from stages.protocols.openai_completions import ENCODER, Accumulator, ChunkLayer, CompletionChunk, TextCompletion
from stages.sse import FRAMER
from stages.stage import fold
from tests.support.chat import body_of
from tests.support.completions import ASK, EVENT, chunks_of, frames_of, logprob, opening
from tests.support.wire import golden, write

SKY = logprob(5, b" sky", -2.0, (b" sky", -2.0))
IS = logprob(7, b" is", -0.3, (b" is", -0.3))
ECHO = Echo(0, "The sky", b"The", (SKY,))


def wires(chunks: list[Any]) -> list[Any]:
    """The JSON values of the chunks that are objects."""
    return [json.loads(chunk.wire()) for chunk in chunks if isinstance(chunk, CompletionChunk | TextCompletion)]


def parts(chunks: list[Any]) -> list[tuple[int, str]]:
    """The texts of all choices, in order."""
    return [(choice["index"], choice["text"]) for chunk in wires(chunks) for choice in chunk["choices"]]


def test_golden_g07() -> None:
    events: list[Semantic] = [
        Start(0, 3), Tokens(0, (1,)), Content(0, "Blue", (0, 4)), Tokens(0, (2,)), Content(0, " sky", (4, 8)),
        Finish(0, "length"), Usage(3, 2), End(),
    ]  # fmt: skip
    *others, usage, done = golden("G07").elements
    # We tell the details of a usage too, as in chat.
    details = {"completion_tokens_details": {"reasoning_tokens": 0}, "prompt_tokens_details": {"cached_tokens": 0}}
    usage["usage"].update(details)
    want = write("completions", [*others, usage, done])
    assert body_of(frames_of(Ask(stream=True, include_usage=True), events)) == want


def test_golden_g08() -> None:
    """The golden packs a step's arrays with its text. We send them first, on an empty text, as in chat."""
    events: list[Semantic] = [
        Start(0, 2),
        ECHO,
        Tokens(0, (7,), (IS,)),
        Content(0, " is", (0, 3)),
        Finish(0, "eos"),
        Usage(2, 1),
        End(),
    ]
    echoed, packed, *others = golden("G08").elements
    choice = packed["choices"][0]
    carrier, text = {"choices": [{**choice, "text": ""}]}, {"choices": [{**choice, "logprobs": None}]}
    want = write("completions", [echoed, carrier, text, *others])
    assert body_of(frames_of(Ask(stream=True, echo=True, logprobs=True, top_logprobs=1), events)) == want


def test_a_whole_answer_is_the_stream_joined() -> None:
    events: list[Semantic] = [
        Start(0, 2),
        ECHO,
        Tokens(0, (7,), (IS,)),
        Content(0, " is", (0, 3)),
        Finish(0, "stop", "!"),
        End(),
    ]
    (answer,) = wires(chunks_of(Ask(echo=True, logprobs=True, top_logprobs=1), events))
    assert answer["object"] == "text_completion"
    assert answer["choices"] == [
        {
            "index": 0,
            "text": "The sky is",
            "logprobs": {
                "tokens": ["The", " sky", " is"],
                "token_logprobs": [None, -2.0, -0.3],
                "top_logprobs": [None, {" sky": -2.0}, {" is": -0.3}],
                "text_offset": [0, 3, 7],
            },
            "finish_reason": "stop",
            "stop_reason": "!",
        }
    ]


def test_a_prompt_is_told_to_each_of_its_choices() -> None:
    ask = Ask(stream=True, n=4, prompts=2, echo=True, return_token_ids=True)
    events: list[Semantic] = [
        *(Start(choice, 2 + choice // 2, 0, ((1, 2), (), (3,), ())[choice]) for choice in range(4)),
        Echo(0, "one"), Tokens(1, (9,)), Content(1, "x", (0, 1)), Echo(1, "two"), Content(3, "y", (0, 1)),
    ]  # fmt: skip
    chunks = chunks_of(ask, events)
    assert parts(chunks) == [(0, "one"), (1, "one"), (1, ""), (1, "x"), (2, "two"), (3, "two"), (3, "y")]
    firsts = [choice.get("prompt_token_ids") for chunk in wires(chunks) for choice in chunk["choices"]]
    assert firsts == [[1, 2], [1, 2], None, None, [3], [3], None]


def test_without_echo_the_prompt_ids_are_on_the_first_chunk_of_a_choice() -> None:
    events: list[Semantic] = [
        Start(0, 2, 0, (1, 2)),
        Start(1, 2),
        Tokens(1, (8,)),
        Content(1, "x", (0, 1)),
        Finish(0, "length"),
    ]
    chunks = wires(chunks_of(Ask(stream=True, n=2, return_token_ids=True), events))
    shown = [(choice["index"], choice.get("prompt_token_ids")) for chunk in chunks for choice in chunk["choices"]]
    assert shown == [(1, [1, 2]), (1, None), (0, [1, 2])]


def test_tokens_that_read_the_same() -> None:
    """The chosen token's number is its own; of others that read the same the likeliest is told."""
    entry = logprob(5, b"\xc3", -3.0, (b"\xa9", -1.0), (b"a", -1.5), (b"a", -2.0))
    (chunk,) = wires(chunks_of(Ask(stream=True, logprobs=True, top_logprobs=3), [Tokens(0, (5,), (entry,))]))
    assert chunk["choices"][0]["logprobs"] == {
        "tokens": ["\ufffd"],
        "token_logprobs": [-3.0],
        "top_logprobs": [{"\ufffd": -3.0, "a": -1.5}],
        "text_offset": [0],
    }


def test_the_chosen_token_is_told_beside_the_likeliest() -> None:
    entry = logprob(5, b"z", -8.0, (b"a", -1.0), (b"b", -2.0))
    (chunk,) = wires(chunks_of(Ask(stream=True, logprobs=True, top_logprobs=2), [Tokens(0, (5,), (entry,))]))
    assert chunk["choices"][0]["logprobs"]["top_logprobs"] == [{"a": -1.0, "b": -2.0, "z": -8.0}]


def test_the_end_token_is_left_out_once() -> None:
    ask = Ask(stream=True, logprobs=True, end_token=False)
    start = msgspec.structs.replace(opening(ask), tokenizer=TokenizerFacts(eos=(7,)))
    entries = (SKY, IS, logprob(7, b" is", -0.4))
    (chunk,) = wires(fold(ENCODER.start(start), [Tokens(0, (5, 7, 7), entries)]))
    assert chunk["choices"][0]["logprobs"]["token_logprobs"] == [-2.0, -0.4]


def test_finish_reasons() -> None:
    reasons: tuple[FinishReason, ...] = ("eos", "stop", "stop_token", "length", "context", "filter")
    events: list[Semantic] = [Finish(index, reason, 5) for index, reason in enumerate(reasons)]
    found = [choice for chunk in wires(chunks_of(Ask(stream=True, n=6), events)) for choice in chunk["choices"]]
    assert [choice["finish_reason"] for choice in found] == [
        "stop", "stop", "stop", "length", "length", "content_filter",
    ]  # fmt: skip
    assert [choice.get("stop_reason") for choice in found] == [None, 5, 5, None, None, None]


@pytest.mark.parametrize("stream", [True, False])
def test_an_error_before_anything_has_its_status(stream: bool) -> None:
    frames = frames_of(Ask(stream=stream), [Failure("overloaded", "full"), End()])
    assert getattr(frames[0], "status", None) == 503
    assert json.loads(body_of(frames))["error"]["message"] == "full"


def test_the_tags_of_the_store_are_not_on_the_wire() -> None:
    chunk, answer = CompletionChunk("i", 1, "m"), TextCompletion("i", 1, "m")
    assert (
        chunk.wire() == answer.wire() == b'{"id":"i","object":"text_completion","created":1,"model":"m","choices":[]}'
    )
    assert msgspec.to_builtins(chunk)["object"] == "text_completion.chunk"
    stored = msgspec.msgpack.encode([chunk, answer])
    assert msgspec.msgpack.decode(stored, type=list[CompletionChunk | TextCompletion]) == [chunk, answer]


@given(ASK, st.lists(EVENT, max_size=14))
def test_anything_in_any_order_keeps_the_protocol(ask: Ask, events: list[Semantic]) -> None:
    chunks = chunks_of(msgspec.structs.replace(ask, stream=True), events)
    if Done() in chunks:
        assert chunks.index(Done()) == len(chunks) - 1
    errors = [place for place, chunk in enumerate(chunks) if isinstance(chunk, ErrorChunk)]
    assert errors in ([], [len(chunks) - 2])
    offsets: dict[int, int] = {}
    finished: set[int] = set()
    for chunk in wires(chunks):
        assert len(chunk["choices"]) == 1 or chunk["usage"]
        for choice in chunk["choices"]:
            index = choice["index"]
            assert 0 <= index < ask.n
            assert index not in finished
            if choice["finish_reason"]:
                finished.add(index)
            told: dict[str, list[Any]] = choice["logprobs"] or {}
            assert len({len(values) for values in told.values()}) <= 1
            if None not in told.get("token_logprobs", [None]):
                for token, offset in zip(told["tokens"], told["text_offset"], strict=True):
                    assert offset == offsets.get(index, offset)
                    offsets[index] = offset + len(token)


@given(ASK, st.lists(EVENT, max_size=12))
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


@given(ASK, st.lists(EVENT, max_size=14))
def test_many_steps_at_once_are_the_steps_one_by_one(ask: Ask, events: list[Semantic]) -> None:
    start = opening(ask)
    machine = ENCODER.start(start)
    one_by_one: list[ChunkLayer] = []
    for event in events:
        machine.step(event, one_by_one)
    assert fold(ENCODER.start(start), events) == one_by_one
    framer = FRAMER.start(start)
    frames: list[Frame] = []
    for chunk in one_by_one:
        framer.step(chunk, frames)
    assert fold(FRAMER.start(start), one_by_one) == frames


@given(ASK, st.lists(EVENT, max_size=14))
def test_streaming_folds_to_the_answer(ask: Ask, events: list[Semantic]) -> None:
    events = [item for item in events if not isinstance(item, Failure | End | Tick)]
    (answer,) = chunks_of(msgspec.structs.replace(ask, stream=False), [*events, End()])
    assert isinstance(answer, TextCompletion)
    streamed = Accumulator()
    for chunk in chunks_of(msgspec.structs.replace(ask, stream=True), [*events, End()]):
        if isinstance(chunk, CompletionChunk):
            streamed.add(chunk)
    if streamed.state().first is not None:
        made = streamed.completion()
        if not ask.include_usage or not any(isinstance(event, Usage) for event in events):
            made = msgspec.structs.replace(made, usage=answer.usage, metrics=answer.metrics)
        assert made == answer
    else:
        assert answer.choices == ()
