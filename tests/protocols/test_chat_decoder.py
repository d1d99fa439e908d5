"""The decoder: our own streams come back as the events they were made of; any stream is read without raising."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.events import (
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    Done,
    End,
    ErrorChunk,
    Failure,
    FailureKind,
    Finish,
    FinishInput,
    Input,
    PromptInput,
    Reasoning,
    Semantic,
    Start,
    Tick,
    TimingInput,
    TokenLogprob,
    Tokens,
    TokensInput,
    TopLogprob,
    Usage,
    UsageInput,
)
from stages.message import Message, collect
from stages.opening import Ask, Opening
from stages.protocols.openai_chat import (
    DECODER,
    OWN_DECODER,
    Accumulator,
    ChatChunk,
    chunk_of,
    event_of,
    failure_of,
    opening_of,
    reencoded,
    semantic_of,
)
from stages.stage import fold
from tests.support.chat import CASES, chunks_of
from tests.support.decoding import EVENT, check_grammar, odd
from tests.support.parse import OFF, PROMPT, QWEN, THINKING, grouped, semantic, vocabulary
from tests.support.parse import opening as asked_for

# --- our own streams --------------------------------------------------------------------------------------------------


def wire_of(chunks: list[Any]) -> list[Any]:
    """Chunks as a client reads them, errors too."""
    texts: list[str] = []
    for chunk in chunks:
        if isinstance(chunk, ErrorChunk):
            texts.append(msgspec.json.encode(chunk.body).decode())
        elif not isinstance(chunk, Tick):
            texts.append("[DONE]" if isinstance(chunk, Done) else chunk.wire().decode())
    return [event_of(text) for text in texts]


def body(chunks: list[Any]) -> list[Any]:
    """Chunks without what is not on the wire: the status and headers of an error."""
    return [chunk.body if isinstance(chunk, ErrorChunk) else chunk for chunk in chunks if not isinstance(chunk, Tick)]


@pytest.mark.parametrize("name", sorted(CASES))
def test_the_golden_streams_come_back(name: str) -> None:
    """INV-135, and the message is the one that was meant."""
    ask, events = CASES[name]
    chunks = chunks_of(ask, events)
    assert body(reencoded(wire_of(chunks))) == body(chunks)
    back = semantic_of(wire_of(chunks), own=True)
    assert collect(back) == collect(events)
    shown = (Start, Reasoning, Content, CallStart, CallArguments, CallEnd, Finish, Failure, End)
    want = [spread(event) for event in events if isinstance(event, shown)]
    assert [spread(event) for event in back if isinstance(event, shown)] == want


def spread(event: Any) -> Any:
    """An event without what no stream tells: where it was written, how large the prompt is, whether a code is usual."""
    if isinstance(event, Start):
        return "start", event.choice
    if isinstance(event, Finish):
        return "finish", event.choice, event.reason
    if isinstance(event, Failure):
        return "failure", event.kind, event.message
    return msgspec.structs.replace(event, src=(0, 0)) if hasattr(event, "src") else event


def test_tokens_usage_and_metrics_come_back() -> None:
    ask = Ask(
        stream=True, logprobs=True, top_logprobs=2, return_token_ids=True, include_usage=True, continuous_usage=True,
        metrics=True,
    )  # fmt: skip
    entry = TokenLogprob(5, b"\xe2\x82", -0.5, (TopLogprob(5, b"\xe2\x82", -0.5), TopLogprob(6, b"x", -9999.0)))
    events: list[Semantic] = [
        Start(0, 3, 0, (11, 12, 13)), Tokens(0, (5,), (entry,)), Tokens(0, (7,), (TokenLogprob(7, b"\xac", -1.0),)),
        Content(0, "€", (0, 3)), Finish(0, "stop_token", 0), TimingInput("queue", 1), TimingInput("ttft", 1234567),
        TimingInput("mean_gap", 10_538_667), TimingInput("max_gap", 4_806_985_702_003), Usage(3, 2, 1, 1), End(),
    ]  # fmt: skip
    back = semantic_of(wire_of(chunks_of(ask, events)), own=True)
    unknown = tuple(msgspec.structs.replace(top, id=-1) for top in entry.top)
    events[1] = Tokens(0, (5,), (msgspec.structs.replace(entry, top=unknown),))
    assert back == events


def test_a_count_is_known_where_ids_are_not() -> None:
    events: list[Semantic] = [
        Start(0, 9), Tokens(0, (1, 2)), Content(0, "a", (0, 1)), Tokens(0, (3,)), Finish(0, "eos"), Usage(9, 3), End(),
    ]  # fmt: skip
    ask = Ask(stream=True, include_usage=True, continuous_usage=True)
    back = semantic_of(wire_of(chunks_of(ask, events)), own=True)
    assert [event for event in back if isinstance(event, Tokens)] == [Tokens(0, (-1, -1)), Tokens(0, (-1,))]
    assert back[0] == Start(0, 9)


PARTS = st.sampled_from([
    "<think>\n", "hm é", "\n</think>\n\n", "</think>", "Hi 😀.", "\n", "STOP", "ST", "<tool_call>", "</tool_call>",
    '<tool_call>\n{"name": "tide", "arguments": {"port": "Brest STOP \\ud83d"}}\n</tool_call>',
    '<tool_call>{"name": "moon"}</tool_call>', '<tool_call>{"name": "tide", "arguments": {"a": ', "<|im_end|>",
    '<tool_call>{"name": "tide", "arguments": [1]}</tool_call>', '<tool_call>{"name": "tide", "arguments": {}',
])  # fmt: skip
LANES = st.lists(
    st.tuples(
        st.lists(PARTS, max_size=6).map("".join), st.integers(1, 5), st.integers(1, 4),
        st.sampled_from(["eos", "stop_token", "length", "context", "filter"]),
    ),
    min_size=1, max_size=3,
)  # fmt: skip
ASKS = st.fixed_dictionaries({
    "stop": st.sampled_from([(), ("STOP",), ("TO", "é"), ("\n", "}")]), "parallel": st.booleans(),
    "include_reasoning": st.booleans(), "logprobs": st.booleans(), "top_logprobs": st.sampled_from([0, 1]),
    "return_token_ids": st.booleans(), "include_usage": st.booleans(), "continuous_usage": st.booleans(),
    "metrics": st.booleans(), "end_token": st.booleans(),
    "tool_choice": st.sampled_from(["auto", "required", "none", "name:tide"]),
    "named_finish": st.sampled_from(["stop", "tool_calls"]),
    "reasoning_field": st.sampled_from(["both", "reasoning", "reasoning_content"]),
    "calls": st.sampled_from(["incremental", "whole"]),
})  # fmt: skip


def session(lanes: list[Any], tail: str) -> list[Input]:
    """What an engine says: choices in turn."""
    queues: list[list[Input]] = []
    for choice, (text, width, group, finish) in enumerate(lanes):
        pieces = vocabulary(text, QWEN, width)
        steps: list[Input] = [
            msgspec.structs.replace(
                step, logprobs=tuple(TokenLogprob(*pair, -0.5) for pair in zip(step.ids, step.pieces, strict=True))
            )
            for step in grouped(pieces, [group] * len(pieces), choice)
        ]
        queues.append([*steps, FinishInput(choice, finish, 7 if finish == "stop_token" else None)])
    told = [queue[at] for at in range(max(map(len, queues))) for queue in queues if at < len(queue)]
    count = sum(len(event.ids) for event in told if isinstance(event, TokensInput))
    return [PromptInput((1, 2), tail, 2, 1), *told, TimingInput("ttft", 1_000_001), UsageInput(2, count, 1)]


@settings(max_examples=300)
@given(LANES, ASKS, st.sampled_from([PROMPT, THINKING, OFF]), st.integers(0, 99))
def test_what_the_stages_send_comes_back(lanes: list[Any], asks: dict[str, Any], tail: str, cut: int) -> None:
    """INV-135 on whole streams and on ones that broke off; and what a client collects is what was meant."""
    asks["continuous_usage"] = asks["continuous_usage"] and asks["include_usage"]
    asks["metrics"] = asks["metrics"] and asks["include_usage"]
    asked = asked_for(stream=True, n=len(lanes), **asks)
    meant = semantic(asked, session(lanes, tail))
    chunks = chunks_of(asked.ask, meant)
    wire = wire_of(chunks)
    assert body(reencoded(wire)) == chunks
    begun = wire[: cut % len(wire)]
    assert body(reencoded(begun)) == chunks[: len(begun)]
    said = [told(message) for message in collect(meant, named=asked.ask.named)]
    hidden = not asked.ask.include_reasoning
    for back in (semantic_of(wire, own=True), semantic_of(wire)):
        assert [told(message) for message in collect(back, named=asked.ask.named)] == [
            {**want, "reasoning": None} if hidden else want for want in said
        ]


def told(message: Message) -> dict[str, Any]:
    """A message as far as a stream tells it."""
    calls = [(call.id, call.name, call.arguments) for call in message.tool_calls]
    return {"reasoning": message.reasoning, "content": message.content, "calls": calls}


# --- any stream -------------------------------------------------------------------------------------------------------

STREAM = st.lists(odd(EVENT).map(chunk_of) | st.just(Done()) | st.just(Tick()), max_size=6)


@settings(max_examples=300)
@given(STREAM, st.booleans())
def test_any_stream_is_read(chunks: list[Any], own: bool) -> None:
    wire = [*chunks, End()]
    events = semantic_of(wire, own=own)
    check_grammar(events)
    accumulator = Accumulator()
    for chunk in chunks:
        accumulator.take(chunk)
    accumulator.completion().wire()
    stage = OWN_DECODER if own else DECODER
    opening = opening_of(wire)
    for cut in range(len(wire)):
        machine = stage.start(opening)
        first = fold(machine, wire[:cut])
        stored = msgspec.json.encode(machine.snapshot())
        resumed: Any = msgspec.json.decode(stored, type=type(machine.snapshot()))
        assert first + fold(stage.resume(opening, resumed), wire[cut:]) == events


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wire", "want"),
    [
        ({"error": {"message": "m", "type": "server_error", "param": None, "code": "timeout"}}, "timeout"),
        ({"error": {"message": "m", "type": "invalid_request_error", "code": "model_not_found"}}, "not_found"),
        ({"error": {"message": "m", "type": "invalid_request_error", "param": "n", "code": None}}, "bad_request"),
        ({"error": {"message": "m", "type": "BadRequestError", "code": 400}}, "bad_request"),
        ({"object": "error", "message": "m", "type": "BadRequest", "param": None, "code": 400}, "bad_request"),
        ({"error": "Unauthorized"}, "engine"),
        ({"error": {"message": "m", "code": 429}}, "rate_limited"),
        ({"error": {"message": "m", "code": 529}}, "overloaded"),
        ({"error": {"message": "m", "type": "invalid_request_error", "code": "context_length"}}, "bad_request"),
        ({"error": {"message": "m", "type": "other"}}, "engine"),
        ({"error": {"message": "m", "type": "requests", "code": "mine"}}, "rate_limited"),
        ({"error": {"message": "m", "type": "server_error", "code": "client_closed"}}, "engine"),
        ({"error": ["odd"]}, "engine"),
        ({"error": {"message": "m"}, "choices": [{"index": 0, "delta": {"content": "a"}}]}, "engine"),
    ],
)
def test_errors_of_every_shape(wire: dict[str, Any], want: str) -> None:
    chunk = chunk_of(wire)
    assert isinstance(chunk, ErrorChunk)
    failure = failure_of(chunk)
    assert failure.kind == want
    assert failure.message
    assert set(chunk.body["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize("kind", [kind for kind in get_args(FailureKind) if kind != "client_closed"])
@pytest.mark.parametrize("code", [None, "mine"])
def test_our_own_errors_come_back(kind: FailureKind, code: str | None) -> None:
    chunks = chunks_of(Ask(stream=True), [Start(0, 1), Failure(kind, "m", code, "n"), End()])
    assert body(reencoded(wire_of(chunks))) == body(chunks)


def test_what_is_no_object_is_an_error_too() -> None:
    for text in ("{", "", "nul", "[1]", "3", '"a"', "null", "[" * 100_000):
        chunk = event_of(text)
        assert isinstance(chunk, ErrorChunk)
        assert chunk.body["error"]["code"] == "malformed_event"
    assert event_of("[DONE]") == event_of(" [DONE] ") == Done()


def test_an_opening_tells_what_was_asked() -> None:
    ask = Ask(stream=True, n=2, logprobs=True, top_logprobs=20, include_usage=True, reasoning_field="reasoning")
    events: list[Semantic] = [
        Start(0, 1), Start(1, 1), Reasoning(1, "r", (0, 1)), Tokens(0, (1,), (TokenLogprob(1, b"a", -1.0),)),
        Finish(0, "eos"), Finish(1, "eos"), Usage(1, 1), End(),
    ]  # fmt: skip
    chunks = chunks_of(ask, events)
    found: Opening = opening_of(wire_of(chunks))
    assert found.ask == ask
    first = chunks[0]
    assert isinstance(first, ChatChunk)
    assert (found.response_id, found.created, found.model) == (first.id, first.created, first.model)
    assert opening_of([]).ask == Ask(stream=True, top_logprobs=20)
