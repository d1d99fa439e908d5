"""A request that streams and the same one that does not get the same answer, whatever the model wrote and however it
ended: what the stream says, collected, is the body; an error is the same error, and has its status where it can."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages import catalog
from stages.events import (
    AbortInput,
    Body,
    Done,
    ErrorChunk,
    ErrorInput,
    FailureKind,
    FinishInput,
    Frame,
    Head,
    Input,
    PromptInput,
    Tick,
    TokensInput,
    UsageInput,
)
from stages.opening import Ask, Opening, Tool
from stages.protocols import anthropic, openai_chat, openai_completions, openai_responses
from stages.protocols.rules import PROTOCOLS, Protocol
from stages.stage import fold
from tests.support.format_cases import cases
from tests.support.parse import TOOLS

Answer: TypeAlias = tuple[int, Any]
"""The status and the JSON value of a body."""

REQUEST = b'{"model":"m","input":"?","messages":[{"role":"user","content":"?"}],"max_tokens":9,"prompt":"?"}'
PROMPT = PromptInput((), "<|im_start|>assistant\n", 3)
USAGE = UsageInput(3, 7, 1)
KINDS: tuple[FailureKind, ...] = ("engine", "overloaded", "rate_limited", "timeout", "bad_request", "cancelled")


def opened(protocol: Protocol, ask: Ask, parser: str, calls: Any = "incremental") -> Opening:
    return Opening(
        session="a" * 32, key="k", response_id=f"{catalog.PROTOCOLS[protocol].prefix}a1", created=1760000000, opened=0,
        model="m", protocol=protocol, request=REQUEST, parser="plain" if protocol == "completions" else parser,
        calls=calls, ask=msgspec.structs.replace(ask, include_usage=True),
    )  # fmt: skip


def served(opening: Opening, inputs: Sequence[Input], *, stream: bool) -> tuple[list[Any], list[Frame]]:
    """The chunks and the frames."""
    opening = msgspec.structs.replace(opening, ask=msgspec.structs.replace(opening.ask, stream=stream))
    layers = catalog.layers(opening)
    chunks = fold(layers.encoder.start(opening), fold(layers.semantic.start(opening), list(inputs)))
    return chunks, fold(layers.framer.start(opening), chunks)


def answered(opening: Opening, inputs: Sequence[Input]) -> Answer | None:
    """Without streaming. None: nothing, as the client is gone."""
    _, frames = served(opening, inputs, stream=False)
    if not frames:
        return None
    head, body = frames
    assert isinstance(head, Head)
    assert isinstance(body, Body)
    return head.status, json.loads(body.data)


def collected(opening: Opening, inputs: Sequence[Input]) -> tuple[Answer | None, Any]:
    """(what a stream says in the end, its error). The first is None where there is no end."""
    chunks, frames = served(opening, inputs, stream=True)
    chunks = [chunk for chunk in chunks if not isinstance(chunk, Tick)]
    head = next((frame for frame in frames if isinstance(frame, Head)), None)
    if head is not None and head.status != 200:
        assert [type(chunk) for chunk in chunks if not isinstance(chunk, Done)] == [ErrorChunk]
        [body] = [frame.data for frame in frames if isinstance(frame, Body)]
        return (head.status, json.loads(body)), json.loads(body)["error"]
    match opening.protocol:
        case "responses":
            return _response(chunks)
        case "messages":
            return _message(chunks)
        case _:
            return _completion(chunks, opening.protocol)


def _response(chunks: list[Any]) -> tuple[Answer | None, Any]:
    got = openai_responses.Accumulator()
    for chunk in chunks:
        got.take(chunk)
    if not got.over:
        return None, None
    response = json.loads(msgspec.json.encode(got.response()))
    return (200, response), response["error"]


def _message(chunks: list[Any]) -> tuple[Answer | None, Any]:
    got = anthropic.Accumulator()
    for chunk in chunks:
        got.add(chunk)
    last = json.loads(chunks[-1].wire()) if chunks else {"type": ""}
    if last["type"] == "error":
        return None, last["error"]
    return (200, json.loads(got.message().wire())) if last["type"] == "message_stop" else None, None


def _completion(chunks: list[Any], protocol: str) -> tuple[Answer | None, Any]:
    got: Any = openai_chat.Accumulator() if protocol == "chat" else openai_completions.Accumulator()
    for chunk in chunks:
        if isinstance(chunk, ErrorChunk):
            return None, chunk.body["error"]
        if not isinstance(chunk, Done):
            got.add(chunk)
    whole = bool(chunks) and isinstance(chunks[-1], Done)
    return (200, json.loads(got.completion().wire())) if whole else None, None


def assert_agree(opening: Opening, inputs: Sequence[Input]) -> None:
    """A response says of an error what became of it, and a stream's events say it without its status."""
    whole = answered(opening, inputs)
    streamed, error = collected(opening, inputs)
    if whole is None:
        assert (streamed, error) == (None, None)
    elif whole[0] == 200:
        assert streamed == whole
    else:
        told = whole[1]["error"]
        assert error is not None
        assert error["message"] == told["message"]
        if opening.protocol != "responses":
            assert error == told
        if streamed is not None and streamed[0] != 200:
            assert streamed == whole


def texts(raw: str, size: int = 3) -> list[Input]:
    return [TokensInput(0, (), (), raw[at : at + size]) for at in range(0, len(raw), size)]


def ends(number: int) -> list[Input]:
    """Every way to end."""
    finishes: list[list[Input]] = [
        [FinishInput(0, "eos", 2), USAGE], [FinishInput(0, "length"), USAGE], [FinishInput(0, "stop", "x"), USAGE],
        [FinishInput(0, "filter"), USAGE], [FinishInput(0, "context"), USAGE], [FinishInput(0, "stop_token", 5), USAGE],
        [ErrorInput(KINDS[number % len(KINDS)], "It broke.", "broken")], [Tick(), ErrorInput("engine", "")],
        [AbortInput("timeout")], [AbortInput("shutdown")], [AbortInput("cancel")], [AbortInput("client")],
        [FinishInput(0, "eos"), ErrorInput("engine", "late")], [USAGE],
    ]  # fmt: skip
    return finishes[number % len(finishes)]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_of_all_that_formats_make_of_outputs(protocol: Protocol) -> None:
    """The worked examples of every format, whole and cut."""
    for number, case in enumerate(cases()):
        raw: str = case["raw_output"]
        ask = Ask(tools=TOOLS, include_reasoning=bool(number % 5))
        opening = opened(protocol, ask, case["parser"], ("incremental", "whole")[number % 7 == 0])
        assert_agree(opening, [PROMPT, *texts(raw), FinishInput(0, "eos"), USAGE])
        assert_agree(opening, [PROMPT, *texts(raw[: number * 37 % (len(raw) + 1)]), *ends(number)])


BROKEN = (
    '<tool_call>{"name":"tide","arguments":{"port":"Br',
    '<tool_call>{"name":"tide","arguments":{"port": nope}}</tool_call>',
    '<tool_call>{"name":"tide","arguments":[1]}</tool_call>',
    '<tool_call>{"name":"tide","arguments":"x"}</tool_call>',
    '<tool_call>{"name":"tide","arguments":{"port":"B"}',
    '<tool_call>{"name":"tide"',
    '<tool_call>{"name":"ti',
    "<tool_call>",
    '<tool_call>{"name":"other","arguments":{}}</tool_call>',
    '<tool_call>{"name":"tide","arguments":{"port":5}}</tool_call>',
    '<tool_call>{"name":"tide","arguments":{}}</tool_call>\n<tool_call>{"name":"moon","argu',
    "<think>half a thou",
    "<think>so</think>text <tool_ca",
    "",
)
tool = Tool("tide", None, {"type": "object", "properties": {"port": {"type": "string"}}, "required": ["port"]}, True)
asks = st.builds(
    Ask,
    tools=st.just((tool, Tool("moon"))),
    tool_choice=st.sampled_from(["auto", "none", "required", "name:tide"]),
    named_finish=st.sampled_from(["stop", "tool_calls"]),
    parallel=st.booleans(),
    include_reasoning=st.booleans(),
    stop=st.sampled_from([(), ("port",), ("x", "half"), ("}}",)]),
    logprobs=st.booleans(),
)  # fmt: skip
raws = st.lists(st.sampled_from([*BROKEN, "Hello. ", "\n", "}", '{"a":1}', "</tool_call>"]), max_size=4).map("".join)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@given(asks, raws, st.integers(0, 200), st.integers(0, 60), st.sampled_from(["incremental", "whole"]), st.booleans())
def test_of_broken_outputs_under_every_policy(
    protocol: Protocol, ask: Ask, raw: str, cut: int, end: int, calls: str, admitted: bool
) -> None:
    inputs: list[Input] = [*texts(raw[:cut]), *ends(end)]
    assert_agree(opened(protocol, ask, "hermes", calls), [PROMPT, *inputs] if admitted else ends(end))


@pytest.mark.parametrize("raw", BROKEN)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_of_a_half_call_that_ends_by_itself(protocol: Protocol, raw: str) -> None:
    """It is an answer in all protocols, and no error of the server."""
    opening = opened(protocol, Ask(tools=(tool,)), "hermes")
    inputs = [PROMPT, *texts(raw), FinishInput(0, "eos"), USAGE]
    assert_agree(opening, inputs)
    answer = answered(opening, inputs)
    assert answer is not None
    assert answer[0] == 200
