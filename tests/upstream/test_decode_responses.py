"""Reading the responses protocol: each part of its definition as semantic events."""

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
    Refusal,
    Semantic,
    Start,
    Usage,
)
from stages.message import ToolCall, collect
from stages.upstream.decode import Upstream
from tests.support.decoding import read

Event = tuple[str, dict[str, Any]]


def stream(*events: Event, last: Upstream | None = None) -> list[Semantic]:
    """What is read of these events; types are without ``response.``, but ``error`` is whole."""
    blocks: list[Upstream] = []
    for number, (kind, fields) in enumerate(events):
        name = kind if kind == "error" else f"response.{kind}"
        value = {"type": name, "sequence_number": number, **fields}
        blocks.append(Block(f"event: {name}\ndata: {json.dumps(value)}\n\n".encode()))
    return read("responses", [Head(200, ()), *blocks, last or End()])


def whole(value: dict[str, Any]) -> list[Semantic]:
    """What is read of a body."""
    return read("responses", [Head(200, ()), Body(json.dumps(value).encode()), End()])


def response(status: str, output: list[Any] | None = None, **fields: Any) -> dict[str, Any]:
    """A response object."""
    return {"id": "resp_1", "object": "response", "status": status, "output": output or [], "error": None, **fields}


USAGE = {
    "input_tokens": 9, "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0}, "output_tokens": 6,
    "output_tokens_details": {"reasoning_tokens": 2}, "total_tokens": 15,
}  # fmt: skip
CREATED: Event = ("created", {"response": response("in_progress")})
DONE: Event = ("completed", {"response": response("completed", usage=USAGE)})
ENDED = [Finish(0, "eos"), Usage(9, 6, 4, 2), End()]


def added(index: int, kind: str, **fields: Any) -> Event:
    return "output_item.added", {"output_index": index, "item": {"id": f"i{index}", "type": kind, **fields}}


def done(index: int, kind: str, **fields: Any) -> Event:
    return "output_item.done", {"output_index": index, "item": {"id": f"i{index}", "type": kind, **fields}}


def at(index: int, kind: str, place: int = 0, **fields: Any) -> Event:
    return kind, {"output_index": index, "item_id": f"i{index}", "content_index": place, **fields}


CALL = {"call_id": "call_1", "name": "tide", "arguments": "", "status": "in_progress"}


def test_a_response_of_all_kinds() -> None:
    events = stream(
        CREATED,
        ("in_progress", {"response": response("in_progress")}),
        added(0, "reasoning", summary=[]),
        at(0, "content_part.added", part={"type": "reasoning_text", "text": ""}),
        at(0, "reasoning_text.delta", delta="hmé"),
        at(0, "reasoning_text.done", text="hmé"),
        at(0, "content_part.done", part={"type": "reasoning_text", "text": "hmé"}),
        done(0, "reasoning", summary=[], content=[{"type": "reasoning_text", "text": "hmé"}]),
        added(1, "message", content=[]),
        at(1, "content_part.added", part={"type": "output_text", "text": "", "annotations": []}),
        at(1, "output_text.delta", delta="Look"),
        at(1, "output_text.delta", delta="ing."),
        at(1, "output_text.done", text="Looking."),
        at(1, "content_part.added", 1, part={"type": "refusal", "refusal": ""}),
        at(1, "refusal.delta", 1, delta="no"),
        at(1, "refusal.done", 1, refusal="no"),
        done(1, "message", content=[{"type": "output_text", "text": "Looking."}, {"type": "refusal", "refusal": "no"}]),
        added(2, "function_call", **CALL),
        at(2, "function_call_arguments.delta", delta='{"port": '),
        at(2, "function_call_arguments.delta", delta='"Brest"}'),
        at(2, "function_call_arguments.done", arguments='{"port": "Brest"}', name="tide"),
        done(2, "function_call", **{**CALL, "arguments": '{"port": "Brest"}', "status": "completed"}),
        DONE,
    )
    assert events == [
        Start(0, 0), Reasoning(0, "hmé", (0, 4)), Content(0, "Look", (4, 8)), Content(0, "ing.", (8, 12)),
        Refusal(0, "no", (12, 14)), CallStart(0, 0, "call_1", "tide", (14, 18)),
        CallArguments(0, 0, '{"port": ', (18, 27)), CallArguments(0, 0, '"Brest"}', (27, 35)), CallEnd(0, 0, True),
        *ENDED,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "fields", "want"),
    [
        ("completed", {}, Finish(0, "eos")),
        ("incomplete", {"incomplete_details": {"reason": "max_output_tokens"}}, Finish(0, "length")),
        ("incomplete", {"incomplete_details": {"reason": "content_filter"}}, Finish(0, "filter")),
        ("incomplete", {"incomplete_details": {"reason": "max_messages"}}, Finish(0, "eos")),
        ("incomplete", {}, Finish(0, "eos")),
        ("completed", {"incomplete_details": {"reason": "max_output_tokens"}}, Finish(0, "eos")),
    ],
)
def test_reasons(kind: str, fields: dict[str, Any], want: Finish) -> None:
    value = response(kind, usage=USAGE, **fields)
    assert stream(CREATED, (kind, {"response": value}))[1:] == [want, Usage(9, 6, 4, 2), End()]
    assert whole(value)[1:] == [want, Usage(9, 6, 4, 2), End()]


@pytest.mark.parametrize(
    ("value", "want"),
    [
        (response("failed", error={"code": "server_error", "message": "m"}), Failure("engine", "m", "server_error")),
        (
            response("failed", error={"code": "rate_limit_exceeded", "message": "m"}),
            Failure("rate_limited", "m", "rate_limit_exceeded"),
        ),
        (
            response("failed", error={"code": "invalid_prompt", "message": "m"}),
            Failure("bad_request", "m", "invalid_prompt"),
        ),
        (response("failed"), Failure("engine", "The stream has an error.")),
        (response("cancelled"), Failure("cancelled", "The response was cancelled.", "cancelled")),
    ],
)
def test_failures(value: dict[str, Any], want: Failure) -> None:
    kind = "failed" if value["status"] == "failed" else "completed"  # as vLLM has it
    begun = [CREATED, added(0, "function_call", **CALL), at(0, "function_call_arguments.delta", delta="{}")]
    assert stream(*begun, (kind, {"response": value}))[-3:] == [CallEnd(0, 0, False), want, End()]
    assert whole(value)[-2:] == [want, End()]


@pytest.mark.parametrize(
    ("fields", "kind", "code"),
    [
        ({"code": "server_error", "message": "m", "param": None}, "engine", "server_error"),
        ({"error": {"message": "m", "type": "server_error", "code": "timeout"}}, "timeout", "timeout"),
        ({"error": {"message": "m", "type": "invalid_request_error", "code": None}}, "bad_request", None),
        ({"error": {"message": "m", "code": 429}}, "rate_limited", "429"),
        ({"error": "m"}, "engine", None),
    ],
)
def test_an_error_event(fields: dict[str, Any], kind: FailureKind, code: str | None) -> None:
    events = stream(CREATED, ("error", fields), at(0, "output_text.delta", delta="void"), DONE)
    assert events == [Start(0, 0), Failure(kind, "m", code), End()]
    if "error" in fields:
        untyped = Block(b"data: %b\n\n" % json.dumps(fields).encode())
        assert read("responses", [Head(200, ()), untyped, End()]) == [Failure(kind, "m", code), End()]


SUMMARY = at(0, "reasoning_summary_text.delta", summary_index=0, delta="In short.")


def test_a_summary_counts_where_the_reasoning_is_not_told() -> None:
    told = stream(CREATED, added(0, "reasoning", summary=[]), SUMMARY, DONE)
    assert told[1] == Reasoning(0, "In short.", (0, 9))
    both = stream(CREATED, added(0, "reasoning", summary=[]), at(0, "reasoning_text.delta", delta="hm"), SUMMARY, DONE)
    assert [event for event in both if isinstance(event, Reasoning)] == [Reasoning(0, "hm", (0, 2))]
    item = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "In short."}]}
    assert whole(response("completed", [item]))[1] == Reasoning(0, "In short.", (0, 9))
    item["content"] = [{"type": "reasoning_text", "text": "hm"}]
    assert whole(response("completed", [item]))[1] == Reasoning(0, "hm", (0, 2))


TEXT = [{"type": "output_text", "text": "Hi"}]


@pytest.mark.parametrize(
    "events",
    [
        [added(0, "message", content=[]), at(0, "output_text.done", text="Hi")],
        [at(0, "content_part.done", part=TEXT[0])],
        [at(0, "content_part.added", part=TEXT[0]), at(0, "content_part.done", part=TEXT[0])],
        [added(0, "message", content=[]), done(0, "message", content=TEXT)],
        [at(0, "output_text.done", text="Hi"), at(0, "content_part.done", part=TEXT[0]),
         done(0, "message", content=TEXT)],
        [at(0, "output_text.delta", delta="Hi"), done(0, "message", content=[*TEXT, *TEXT])],
        [],
    ],
)  # fmt: skip
def test_a_text_without_deltas_is_told_once(events: list[Event]) -> None:
    final = response("completed", [{"type": "message", "content": TEXT}], usage=USAGE)
    assert stream(CREATED, *events, ("completed", {"response": final})) == [
        Start(0, 0), Content(0, "Hi", (0, 2)), *ENDED,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "events",
    [
        [added(0, "function_call", **{**CALL, "name": None}), at(0, "function_call_arguments.done", arguments='{"a":1}',
                                                                 name="tide")],
        [done(0, "function_call", **{**CALL, "arguments": '{"a":1}'})],
        [added(0, "function_call", **CALL), at(0, "function_call_arguments.delta", delta='{"a":1}'),
         at(0, "function_call_arguments.done", arguments='{"a":1}'),
         done(0, "function_call", **{**CALL, "arguments": '{"a":1}'}),
         at(0, "function_call_arguments.delta", delta="late")],
        [("output_item.added", {"item": {"type": "function_call", "id": "x", **CALL}}),
         ("function_call_arguments.delta", {"item_id": "x", "delta": '{"a":1}'})],
    ],
)  # fmt: skip
def test_a_call_however_it_is_told(events: list[Event]) -> None:
    [message] = collect(stream(CREATED, *events, DONE))
    [call] = message.tool_calls
    assert (call.name, call.arguments, call.complete) == ("tide", '{"a":1}', True)
    assert call.id == "call_1"


@pytest.mark.parametrize(
    ("arguments", "status", "complete"),
    [
        ('{"a":1}', "completed", True), ('{"a":1}', "incomplete", False), ('{"a":', "completed", False),
        ("[]", "completed", False), ("", "completed", True), (" ", "completed", True), ("", "incomplete", False),
    ],
)  # fmt: skip
def test_when_a_call_is_complete(arguments: str, status: str, complete: bool) -> None:
    item = {**CALL, "arguments": arguments, "status": status}
    [message] = collect(stream(CREATED, added(0, "function_call", **CALL), done(0, "function_call", **item), DONE))
    assert message.tool_calls == (ToolCall("call_1", "tide", arguments, complete),)


def test_items_that_overlap() -> None:
    other = {**CALL, "call_id": "call_2", "name": "moon"}
    events = stream(
        CREATED, added(0, "function_call", **CALL), added(1, "function_call", **other),
        at(1, "function_call_arguments.delta", delta='{"b":2}'),
        at(0, "function_call_arguments.delta", delta='{"a":1}'),
        done(1, "function_call", **other), done(0, "function_call", **CALL), DONE,
    )  # fmt: skip
    assert [type(event) for event in events[1:-3]] == [CallStart, CallArguments, CallEnd] * 2
    [message] = collect(events)
    assert message.tool_calls == (ToolCall("call_1", "tide", '{"a":1}'), ToolCall("call_2", "moon", '{"b":2}'))


def test_the_input_of_a_custom_tool_is_free_text() -> None:
    item = {"call_id": "call_1", "name": "sh", "input": ""}
    events = stream(
        CREATED, added(0, "custom_tool_call", **item), at(0, "custom_tool_call_input.delta", delta="ls -"),
        at(0, "custom_tool_call_input.delta", delta="l"), at(0, "custom_tool_call_input.done", input="ls -l"),
        done(0, "custom_tool_call", **{**item, "input": "ls -l"}), DONE,
    )  # fmt: skip
    [message] = collect(events)
    assert message.tool_calls == (ToolCall("call_1", "sh", "ls -l"),)


def test_what_is_passed_over() -> None:
    said = [CREATED, added(0, "message"), at(0, "output_text.delta", delta="a")]
    odd: list[Event] = [
        ("a_new.event", {"output_index": 0, "delta": "x"}),
        ("mcp_call_arguments.delta", {"output_index": 0, "delta": "{"}),
        added(1, "web_search_call", status="in_progress"), done(1, "web_search_call", status="completed"),
        ("output_text.annotation.added", {"output_index": 0, "annotation": {}}), ("output_item.added", {"item": None}),
        at(0, "output_text.delta", delta=5), at(0, "content_part.added", part="odd"),
        at(0, "function_call_arguments.delta", delta="{"), ("function_call_arguments.delta", {"delta": "{"}),
        ("audio.delta", {"delta": "AA"}), ("queued", {}),
    ]  # fmt: skip
    keepalive = Block(b'data: {"type":"keepalive","sequence_number":3}\n\n')
    assert stream(*said, *odd, DONE) == stream(*said, DONE)
    plain: list[Upstream] = [Head(200, ()), keepalive, Block(b"data: [DONE]\n\n"), End()]
    assert read("responses", plain) == [
        Failure("engine", "The stream ended before its response.", "truncated"), End(),
    ]  # fmt: skip


def test_ends() -> None:
    begun = [CREATED, added(0, "function_call", **CALL), at(0, "function_call_arguments.delta", delta='{"a":1}')]
    cut = Failure("engine", "The stream ended before its response.", "truncated")
    assert stream(*begun)[3:] == [CallEnd(0, 0, False), cut, End()]
    assert stream(*begun, last=AbortInput("client"))[3:] == [CallEnd(0, 0, False), End()]
    late = ErrorInput("engine", "cut", "upstream_cut")
    assert stream(*begun, last=late)[3:] == [CallEnd(0, 0, False), Failure("engine", "cut", "upstream_cut"), End()]
    for last in (late, AbortInput("client")):
        assert stream(*begun, DONE, last=last) == stream(*begun, DONE)
    # The final response counts what nobody ended: its status says that it is whole.
    assert stream(*begun, DONE)[3:] == [CallEnd(0, 0, True), *ENDED]


def test_a_whole_response() -> None:
    output = [
        {"id": "rs_1", "type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"id": "msg_1", "type": "message", "content": [*TEXT, {"type": "refusal", "refusal": "no"}]},
        {"id": "fc_1", "type": "function_call", **CALL, "arguments": "{}", "status": "completed"},
        {"id": "ws_1", "type": "web_search_call"},
    ]
    assert whole(response("completed", output, usage=USAGE)) == [
        Start(0, 9, 4), Reasoning(0, "hm", (0, 2)), Content(0, "Hi", (2, 4)), Refusal(0, "no", (4, 6)),
        CallStart(0, 0, "call_1", "tide", (6, 10)), CallArguments(0, 0, "{}", (10, 12)), CallEnd(0, 0, True), *ENDED,
    ]  # fmt: skip
    assert whole(response("queued"))[1:] == [Failure("engine", "The response is queued.", "truncated"), End()]
