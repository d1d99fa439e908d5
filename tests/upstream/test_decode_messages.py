"""Reading the messages protocol: each part of its definition as semantic events."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stages.events import (
    AbortInput,
    Block,
    Body,
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    End,
    ErrorInput,
    Failure,
    FailureKind,
    Finish,
    Head,
    Reasoning,
    Semantic,
    Start,
    Usage,
)
from stages.message import ToolCall, collect
from stages.upstream.decode import Upstream
from tests.support.decoding import read


def stream(*values: dict[str, Any], last: Upstream | None = None) -> list[Semantic]:
    """What is read of these events, each under the name of its type."""
    blocks = [
        Block(f"event: {value.get('type', 'x')}\ndata: {json.dumps(value)}\n\n".encode()) for value in values
    ]  # fmt: skip
    return read("messages", [Head(200, ()), *blocks, last or End()])


def whole(value: dict[str, Any]) -> list[Semantic]:
    """What is read of a body."""
    return read("messages", [Head(200, ()), Body(json.dumps(value).encode()), End()])


def start(**usage: int) -> dict[str, Any]:
    """The beginning of a message."""
    return {
        "type": "message_start",
        "message": {
            "id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": "m", "stop_reason": None,
            "stop_sequence": None, "usage": usage or {"input_tokens": 9, "output_tokens": 1},
        },
    }  # fmt: skip


def begin(index: int, kind: str, **fields: Any) -> dict[str, Any]:
    """A block begins."""
    return {"type": "content_block_start", "index": index, "content_block": {"type": kind, **fields}}


def delta(index: int, kind: str, **fields: Any) -> dict[str, Any]:
    """A piece of a block."""
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def stop(index: int) -> dict[str, Any]:
    """A block ends."""
    return {"type": "content_block_stop", "index": index}


def change(reason: str | None, sequence: str | None = None, **usage: int) -> dict[str, Any]:
    """Why the message ends."""
    told = {"stop_reason": reason, "stop_sequence": sequence}
    return {"type": "message_delta", "delta": told, "usage": usage or {"output_tokens": 4}}


STOP: dict[str, Any] = {"type": "message_stop"}
TOOL: dict[str, Any] = {"id": "toolu_1", "name": "tide", "input": {}}


def test_a_message_of_all_kinds() -> None:
    events = stream(
        start(input_tokens=5, cache_read_input_tokens=3, cache_creation_input_tokens=2, output_tokens=1),
        {"type": "ping"},
        begin(0, "thinking", thinking="", signature=""),
        delta(0, "thinking_delta", thinking="hmé"),
        delta(0, "signature_delta", signature="abc"),
        stop(0),
        begin(1, "text", text=""),
        delta(1, "text_delta", text="Look"),
        delta(1, "text_delta", text="ing."),
        stop(1),
        begin(2, "tool_use", **TOOL),
        delta(2, "input_json_delta", partial_json=""),
        delta(2, "input_json_delta", partial_json='{"port": '),
        delta(2, "input_json_delta", partial_json='"Brest"}'),
        stop(2),
        change("tool_use", output_tokens=40),
        STOP,
    )
    assert events == [
        Start(0, 10, 3), Reasoning(0, "hmé", (0, 4)), Content(0, "Look", (4, 8)), Content(0, "ing.", (8, 12)),
        CallStart(0, 0, "toolu_1", "tide", (12, 16)), CallArguments(0, 0, '{"port": ', (16, 25)),
        CallArguments(0, 0, '"Brest"}', (25, 33)), CallEnd(0, 0, True), Finish(0, "eos"), Usage(10, 40, 3), End(),
    ]  # fmt: skip
    [message] = collect(events)
    assert message.finish_reason == "tool_calls"


@pytest.mark.parametrize(
    ("reason", "sequence", "want"),
    [
        ("end_turn", None, Finish(0, "eos")),
        ("tool_use", None, Finish(0, "eos")),
        ("max_tokens", None, Finish(0, "length")),
        ("model_context_window_exceeded", None, Finish(0, "context")),
        ("stop_sequence", "###", Finish(0, "stop", "###")),
        ("refusal", None, Finish(0, "filter")),
        ("pause_turn", None, Finish(0, "eos")),
        ("a_new_one", None, Finish(0, "eos")),
    ],
)
def test_reasons(reason: str, sequence: str | None, want: Finish) -> None:
    told = [Start(0, 9), want, Usage(9, 4), End()]
    assert stream(start(), change(reason, sequence), STOP) == told
    assert whole({
        "type": "message", "content": [], "stop_reason": reason, "stop_sequence": sequence,
        "usage": {"input_tokens": 9, "output_tokens": 4},
    }) == told  # fmt: skip


def test_counts_are_totals_and_what_is_not_told_again_stays() -> None:
    details: Any = {"output_tokens": 30, "output_tokens_details": {"thinking_tokens": 12}}
    nulls: Any = {"input_tokens": None, "output_tokens": 31}
    assert stream(
        start(input_tokens=7, output_tokens=1), change(None, **details), change("end_turn", **nulls), STOP
    )[-2:] == [Usage(7, 31, 0, 12), End()]  # fmt: skip


def test_the_last_reason_counts() -> None:
    assert Finish(0, "length") in stream(start(), change("end_turn"), change("max_tokens"), change(None), STOP)


@pytest.mark.parametrize(
    ("pieces", "begun", "want"),
    [
        ([], {}, ToolCall("toolu_1", "tide", "{}")),
        ([""], {}, ToolCall("toolu_1", "tide", "{}")),
        ([], {"port": "Brest"}, ToolCall("toolu_1", "tide", '{"port":"Brest"}')),
        (['{"a":1}'], {"port": "Brest"}, ToolCall("toolu_1", "tide", '{"a":1}')),
        (['{"a":'], {}, ToolCall("toolu_1", "tide", '{"a":', False)),
        (["[1]"], {}, ToolCall("toolu_1", "tide", "[1]", False)),
        (["{} {"], {}, ToolCall("toolu_1", "tide", "{} {", False)),
    ],
)
def test_calls(pieces: list[str], begun: dict[str, Any], want: ToolCall) -> None:
    """Nothing stands for an empty object; a call is complete exactly if its input is one object."""
    deltas = [delta(0, "input_json_delta", partial_json=piece) for piece in pieces]
    block = begin(0, "tool_use", **{**TOOL, "input": begun})
    for end in ([stop(0)], []) if pieces and pieces[0] else ([stop(0)],):
        [message] = collect(stream(start(), block, *deltas, *end, change("tool_use"), STOP))
        assert message.tool_calls == (want,)


def test_blocks_that_overlap() -> None:
    """The protocol has them one after the other; with right indexes clients read others too."""
    other = {**TOOL, "id": "toolu_2", "name": "moon"}
    events = stream(
        start(), begin(0, "tool_use", **TOOL), begin(1, "tool_use", **other), begin(2, "text", text=""),
        delta(1, "input_json_delta", partial_json='{"b":2}'), delta(0, "input_json_delta", partial_json='{"a":1}'),
        delta(2, "text_delta", text="x"), stop(1), stop(0), stop(2), change("tool_use"), STOP,
    )  # fmt: skip
    kinds = [type(event) for event in events]
    assert kinds[1:-3] == [
        CallStart, CallArguments, Content, CallEnd, CallStart, CallArguments, CallEnd
    ]  # fmt: skip
    [message] = collect(events)
    assert message.tool_calls == (ToolCall("toolu_1", "tide", '{"a":1}'), ToolCall("toolu_2", "moon", '{"b":2}'))


def test_what_is_passed_over() -> None:
    said = [start(), begin(0, "text", text="a"), delta(0, "text_delta", text="b"), stop(0), change("end_turn"), STOP]
    odd = [
        {"type": "a_new_event", "index": 0},
        begin(1, "server_tool_use", id="s", name="web_search", input={}),
        delta(1, "input_json_delta", partial_json="{}"),
        delta(1, "text_delta", text="not of this block"),
        stop(1),
        begin(2, "redacted_thinking", data="x"),
        stop(2),
        stop(7),
        stop(0),
        delta(9, "input_json_delta", partial_json="{}"),
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": 5}},
        {"type": "content_block_delta", "index": 0, "delta": "odd"},
        {"type": "content_block_start", "index": "x", "content_block": None},
    ]
    assert stream(*said[:4], *odd, *said[4:]) == stream(*said)
    assert [event for event in stream(*said) if isinstance(event, Content)] == [
        Content(0, "a", (0, 1)), Content(0, "b", (1, 2)),
    ]  # fmt: skip


def test_text_of_a_block_that_never_began() -> None:
    events = stream(delta(0, "text_delta", text="a"), delta(1, "thinking_delta", thinking="b"), change("end_turn"))
    assert events == [
        Start(0, 0), Content(0, "a", (0, 1)), Reasoning(0, "b", (1, 2)), Finish(0, "eos"), Usage(0, 4), End(),
    ]  # fmt: skip


def test_names_do_not_matter_where_the_type_is_told() -> None:
    values = [start(), begin(0, "text", text=""), delta(0, "text_delta", text="a"), stop(0), change("end_turn"), STOP]
    unnamed = [Block(f"data: {json.dumps(value)}\n\n".encode()) for value in values]
    assert read("messages", [Head(200, ()), *unnamed, End()]) == stream(*values)
    untyped = [
        Block(f"event: {value.pop('type')}\ndata: {json.dumps(value)}\n\n".encode())
        for value in map(dict[str, Any], values)
    ]
    assert read("messages", [Head(200, ()), *untyped, End()]) == stream(*values)


@pytest.mark.parametrize(
    ("kind", "want"),
    [
        ("overloaded_error", "overloaded"), ("rate_limit_error", "rate_limited"), ("api_error", "engine"),
        ("authentication_error", "unauthorized"), ("permission_error", "unauthorized"),
        ("not_found_error", "not_found"), ("request_too_large", "too_large"), ("timeout_error", "timeout"),
        ("invalid_request_error", "bad_request"), ("billing_error", "rate_limited"), ("a_new_error", "engine"),
    ],
)  # fmt: skip
def test_an_error_ends_it(kind: str, want: FailureKind) -> None:
    error = {"type": "error", "error": {"type": kind, "message": "no more"}}
    events = stream(
        start(), begin(0, "tool_use", **TOOL), delta(0, "input_json_delta", partial_json='{"a":1}'), error,
        delta(0, "text_delta", text="void"), STOP,
    )  # fmt: skip
    assert events[-3:] == [CallEnd(0, 0, False), Failure(want, "no more", kind), End()]
    assert whole(error) == [Failure(want, "no more", kind), End()]


@pytest.mark.parametrize("value", [{"error": "text"}, {"error": {"message": "text"}}, {"message": "text"}])
def test_errors_of_other_shapes(value: dict[str, Any]) -> None:
    [failure, _] = stream({"type": "error", **value})
    assert isinstance(failure, Failure)
    assert failure.message == "text"


def test_ends() -> None:
    begun = [start(), begin(0, "tool_use", **TOOL), delta(0, "input_json_delta", partial_json='{"a":1}')]
    open_call = [CallEnd(0, 0, False)]
    cut = Failure("engine", "The message ended without a reason.", "truncated")
    assert stream(*begun)[3:] == [*open_call, cut, End()]
    assert stream(*begun, STOP)[3:] == [*open_call, cut, End()]
    assert stream() == [Failure("engine", "The stream has no message.", "truncated"), End()]
    assert stream(*begun, last=AbortInput("client"))[3:] == [*open_call, End()]
    late = ErrorInput("timeout", "late", "upstream_token_timeout")
    assert stream(*begun, last=late)[3:] == [*open_call, Failure("timeout", "late", "upstream_token_timeout"), End()]
    # What ends behind the reason is whole, as for every client; what breaks there, is not.
    assert stream(*begun, stop(0), change("tool_use"))[-3:] == [Finish(0, "eos"), Usage(9, 4), End()]
    assert isinstance(stream(*begun, stop(0), change("tool_use"), last=late)[-2], Failure)
    done = stream(*begun, stop(0), change("tool_use"), STOP)
    assert stream(*begun, stop(0), change("tool_use"), STOP, last=late) == done


def test_a_whole_message() -> None:
    events = whole({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "Looking."},
            {"type": "tool_use", "id": "toolu_1", "name": "tide", "input": {"port": "Brest"}},
            {"type": "tool_use", "id": "toolu_2", "name": "moon", "input": {}},
        ],
        "stop_reason": "tool_use", "stop_sequence": None, "usage": {"input_tokens": 9, "output_tokens": 40},
    })  # fmt: skip
    assert events == [
        Start(0, 9), Reasoning(0, "hm", (0, 2)), Content(0, "Looking.", (2, 10)),
        CallStart(0, 0, "toolu_1", "tide", (10, 14)), CallArguments(0, 0, '{"port":"Brest"}', (14, 30)),
        CallEnd(0, 0, True), CallStart(0, 1, "toolu_2", "moon", (30, 34)), CallArguments(0, 1, "{}", (34, 36)),
        CallEnd(0, 1, True), Finish(0, "eos"), Usage(9, 40), End(),
    ]  # fmt: skip
