"""The responses encoder, case by case: ends, failures, items and parts, whose token a logprob entry is."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from stages.events import (
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    Dropped,
    End,
    ErrorChunk,
    Failure,
    Fault,
    FaultCode,
    Finish,
    FinishReason,
    Marker,
    Reasoning,
    Refusal,
    Semantic,
    Start,
    Tick,
    TokenLogprob,
    Tokens,
    Usage,
)
from stages.opening import Ask, Opening, Tool
from stages.protocols.openai_responses import ENCODER, base_of
from stages.stage import fold
from tests.support.responses import CASES, answer_of, chunks_of, opening, values_of

STREAM = Ask(stream=True)
SAY: list[Semantic] = [Start(0, 9), Content(0, "Hi", (0, 2))]
CALL: list[Semantic] = [
    Start(0, 9), CallStart(0, 0, "call_1", "f", (0, 1)), CallArguments(0, 0, "{}", (1, 3)), CallEnd(0, 0, True)
]  # fmt: skip
CUT: list[Semantic] = [
    Start(0, 9), CallStart(0, 0, "call_1", "f", (0, 1)), CallArguments(0, 0, "{", (1, 2)), CallEnd(0, 0, False)
]  # fmt: skip


def kinds(values: list[Any]) -> list[str]:
    return [value["type"].removeprefix("response.") for value in values]


def ended(events: list[Semantic], reason: FinishReason, detail: str | int | None = None) -> Any:
    """The response of the terminal event; its type is its status."""
    values = values_of(STREAM, [*events, Finish(0, reason, detail), Usage(9, 4, 3, 1), End()])
    assert values[-1]["type"] == f"response.{values[-1]['response']['status']}"
    return values[-1]["response"]


@pytest.mark.parametrize(
    ("events", "reason", "status", "why", "item"),
    [
        (SAY, "eos", "completed", None, "completed"),
        (SAY, "stop", "completed", None, "completed"),
        (SAY, "stop_token", "completed", None, "completed"),
        (SAY, "length", "incomplete", "max_output_tokens", "incomplete"),
        (SAY, "context", "incomplete", "max_output_tokens", "incomplete"),
        (SAY, "filter", "incomplete", "content_filter", "incomplete"),
        (CALL, "eos", "completed", None, "completed"),
        (CALL, "stop", "completed", None, "completed"),
        (CALL, "length", "incomplete", "max_output_tokens", "completed"),
        (CUT, "length", "incomplete", "max_output_tokens", "incomplete"),
        (CUT, "filter", "incomplete", "content_filter", "incomplete"),
        (CUT, "stop", "failed", None, "incomplete"),
        (CUT, "eos", "failed", None, "incomplete"),
        (CUT[:-1], "eos", "failed", None, "incomplete"),
        ([*CUT, *SAY[1:]], "eos", "failed", None, "completed"),
    ],
)  # fmt: skip
def test_how_it_ends(events: list[Semantic], reason: FinishReason, status: str, why: str | None, item: str) -> None:
    response = ended(events, reason)
    assert response["status"] == status
    assert response["incomplete_details"] == (why and {"reason": why})
    assert [one["status"] for one in response["output"]][-1] == item
    assert (response["error"] is not None) == (status == "failed")
    if status == "failed":
        assert response["error"] == {"code": "server_error", "message": "The model's call of 'f' is not complete."}
    assert response["usage"] == {
        "input_tokens": 9, "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 0},
        "output_tokens": 4, "output_tokens_details": {"reasoning_tokens": 1}, "total_tokens": 13,
    }  # fmt: skip


def test_the_end_waits_for_the_usage() -> None:
    machine = ENCODER.start(opening(STREAM))
    before: list[Any] = fold(machine, [*SAY, Finish(0, "eos")])
    assert before[-1].event == "response.output_item.done"
    last: Any = fold(machine, [Usage(9, 4)])[-1]
    assert last.event == "response.completed"
    late: list[Semantic] = [End(), Tick(), Content(0, "x", (0, 1))]
    assert fold(machine, late) == []


def test_without_usage_the_end_comes_all_the_same() -> None:
    last = values_of(STREAM, [*SAY, Finish(0, "eos"), End()])[-1]
    assert (last["type"], last["response"]["usage"]["total_tokens"]) == ("response.completed", 0)
    last = values_of(STREAM, [*SAY, End()])[-1]
    assert last["response"]["error"] == {"code": "server_error", "message": "The output ended without a finish."}


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("engine", "server_error"), ("timeout", "server_error"), ("overloaded", "server_error"),
        ("cancelled", "server_error"), ("rate_limited", "rate_limit_exceeded"), ("bad_request", "invalid_prompt"),
    ],
)  # fmt: skip
def test_failures(kind: Any, code: str) -> None:
    failure = Failure(kind, "it broke", "own_code", "input")
    *_, last = values_of(STREAM, [*CALL, Content(0, "H", (3, 4)), failure, End()])
    assert last["type"] == "response.failed"
    assert last["response"]["status"] == "failed"
    assert last["response"]["error"] == {"code": code, "message": "it broke", "param": "input"}
    assert [item["type"] for item in last["response"]["output"]] == ["function_call"]
    [error] = chunks_of(STREAM, [failure, End()])
    assert isinstance(error, ErrorChunk)
    assert error.status >= 400
    assert error.body["error"]["message"] == "it broke"
    assert chunks_of(Ask(), [*CALL, failure, End()]) == [error]


def test_a_response_that_had_only_a_comment_out_begins_and_fails() -> None:
    tick, *events = chunks_of(STREAM, [Tick(), Failure("overloaded", "it broke", "own_code", "input"), End()])
    assert tick == Tick()
    created, begun, failed = (msgspec.to_builtins(event) for event in events)
    assert [one["type"] for one in (created, begun, failed)] == [
        "response.created", "response.in_progress", "response.failed"
    ]  # fmt: skip
    assert [one["sequence_number"] for one in (created, begun, failed)] == [0, 1, 2]
    assert (created["response"]["status"], created["response"]["output"]) == ("in_progress", ())
    assert failed["response"]["status"] == "failed"
    assert failed["response"]["error"] == {"code": "server_error", "message": "it broke", "param": "input"}


def test_a_client_that_left_is_told_nothing() -> None:
    assert chunks_of(STREAM, [Failure("client_closed", ""), End()]) == []
    assert kinds(values_of(STREAM, [*SAY, Failure("client_closed", ""), End()]))[-1] == "output_text.delta"
    assert chunks_of(Ask(), [*SAY, Failure("client_closed", ""), End()]) == []


def test_one_item_is_open_at_a_time() -> None:
    events: list[Semantic] = [
        Start(0, 9), Reasoning(0, "a", (0, 1)), Content(0, "b", (1, 2)), Refusal(0, "c", (2, 3)),
        Content(0, "d", (3, 4)), Reasoning(0, "e", (4, 5)), *CALL[1:], Content(0, "f", (9, 10)),
        Finish(0, "eos"), Usage(9, 4), End(),
    ]  # fmt: skip
    values = values_of(STREAM, events)
    output = values[-1]["response"]["output"]
    assert [(item["type"], len(item.get("content", ()))) for item in output] == [
        ("reasoning", 1), ("message", 3), ("reasoning", 1), ("function_call", 0), ("message", 1)
    ]  # fmt: skip
    assert [part["type"] for part in output[1]["content"]] == ["output_text", "refusal", "output_text"]
    assert len({item["id"] for item in output}) == 5
    assert [value["item"]["id"] for value in values if value["type"] == "response.output_item.added"] == [
        item["id"] for item in output
    ]
    assert [value["content_index"] for value in values if value["type"] == "response.content_part.added"] == [
        0, 0, 1, 2, 0, 0
    ]  # fmt: skip


def test_ids_are_those_of_the_place_in_the_response() -> None:
    ask, events = CASES["G09"]
    one, again = (values_of(ask, events)[-1]["response"]["output"] for _ in range(2))
    assert one == again
    other = msgspec.structs.replace(opening(ask), response_id="resp_b2")
    last: Any = fold(ENCODER.start(other), events)[-1]
    assert not {item["id"] for item in one} & {item.id for item in last.response.output}


def test_reasoning_as_a_summary() -> None:
    ask, events = CASES["G09"]
    for field in ("summary", "generate_summary"):
        values = values_of(ask, events, reasoning={field: "auto"})
        assert kinds(values)[3:7] == [
            "reasoning_summary_part.added", "reasoning_summary_text.delta", "reasoning_summary_text.done",
            "reasoning_summary_part.done",
        ]  # fmt: skip
        item = values[-1]["response"]["output"][0]
        assert item["summary"] == [{"type": "summary_text", "text": "Need tides."}]
        assert "content" not in item
        assert answer_of(ask, events, reasoning={field: "auto"}) == values[-1]["response"]


def test_a_response_that_wrote_nothing_is_complete() -> None:
    values = values_of(*CASES["empty"])
    assert kinds(values) == ["created", "in_progress", "completed"]
    assert values[-1]["response"]["output"] == []


def test_without_a_request_of_its_own_it_tells_the_ask() -> None:
    """A session that was asked in another protocol."""
    made = Opening(
        session="s", key="k", response_id="resp_1", created=1, opened=0, model="m", request=b'{"messages": []}',
        ask=Ask(tools=(Tool("f", "does", {"type": "object"}, True),), tool_choice="name:f", parallel=False),
    )  # fmt: skip
    base = base_of(made)
    assert base.tools == (
        {"type": "function", "name": "f", "description": "does", "parameters": {"type": "object"}, "strict": True},
    )
    assert (base.tool_choice, base.parallel_tool_calls) == ({"type": "function", "name": "f"}, False)
    allowed = msgspec.structs.replace(made, ask=Ask(tools=(Tool("f"),), allowed=("f",)))
    assert base_of(allowed).tool_choice == {
        "type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]
    }  # fmt: skip
    assert base_of(msgspec.structs.replace(made, ask=Ask(tool_choice="none"))).tool_choice == "auto"


# --- logprobs ---------------------------------------------------------------------------------------------------------

PROBED = Ask(stream=True, logprobs=True, top_logprobs=1)


def step(*pieces: bytes) -> Tokens:
    return Tokens(0, (1,) * len(pieces), tuple(TokenLogprob(1, piece, -0.5) for piece in pieces))


def entries_of(events: list[Semantic], told: bool = False) -> tuple[list[list[bytes]], list[bytes]]:
    """The tokens of each delta's entries, and those of the part."""
    opened = msgspec.structs.replace(opening(PROBED), parser="told" if told else "plain")
    chunks: list[Any] = fold(ENCODER.start(opened), [Start(0, 9), *events, Finish(0, "eos"), Usage(9, 4), End()])
    deltas = [pieces(chunk.logprobs) for chunk in chunks if chunk.event == "response.output_text.delta"]
    [done] = [pieces(chunk.logprobs) for chunk in chunks if chunk.event == "response.output_text.done"]
    parts = [chunk.part for chunk in chunks if chunk.event == "response.content_part.done"]
    part = pieces(parts[-1].logprobs)
    assert done == part == [piece for delta in deltas for piece in delta]
    return deltas, part


def pieces(logprobs: Any) -> list[bytes]:
    return [bytes(entry.bytes) for entry in logprobs]


ENTRIES: list[tuple[list[Semantic], list[list[bytes]]]] = [
    ([step(b"a"), Content(0, "a", (0, 1)), step(b"b"), Content(0, "b", (1, 2))], [[b"a"], [b"b"]]),
    # The step's text comes with the next one.
    ([step(b"a"), step(b"b"), Content(0, "ab", (0, 2))], [[b"a", b"b"]]),
    # Parts of a character; and a token of which a half was held.
    ([step(b"\xc3"), step(b"\xa9"), Content(0, "é", (0, 2))], [[b"\xc3", b"\xa9"]]),
    ([step(b"ab"), Content(0, "a", (0, 1)), Content(0, "b", (1, 2))], [[b"ab"], []]),
    # Markers, thoughts and calls have none, in one step with the answer or in their own.
    ([step(b"<t>", b"x", b"</t>", b"a"), Marker(0, "<t>", (0, 3)), Reasoning(0, "x", (3, 4)),
      Marker(0, "</t>", (4, 8)), Content(0, "a", (8, 9))], [[b"a"]]),
    ([step(b"<t>"), Marker(0, "<t>", (0, 3)), step(b"a"), Content(0, "a", (3, 4)), step(b"<end>"),
      Dropped(0, "<end>", (4, 9))], [[b"a"]]),
    # A token that ends a marker and begins the answer is of the answer.
    ([step(b">a"), Marker(0, ">", (0, 1)), Content(0, "a", (1, 2))], [[b">a"]]),
    # A held marker that turns out to be none is the answer's, and the fault that says so owns nothing.
    ([step(b"<"), step(b"c"), Fault(0, FaultCode.STRAY_MARKER, (0, 2)), Content(0, "<c", (0, 2))], [[b"<", b"c"]]),
    ([step(b"<", b"a"), Fault(0, FaultCode.STRAY_MARKER, (0, 1), "<"), Content(0, "a", (1, 2))], [[b"a"]]),
    # A token without bytes goes with the text around it.
    ([step(b"a", b""), Content(0, "a", (0, 1)), step(b"b"), Content(0, "b", (1, 2))], [[b"a"], [b"", b"b"]]),
    ([Content(0, "a", (0, 1)), step(b"<end>")], [[]]),
]  # fmt: skip


@pytest.mark.parametrize(("events", "want"), ENTRIES)
def test_entries_go_with_the_text_of_their_tokens(events: list[Semantic], want: list[list[bytes]]) -> None:
    assert entries_of(events)[0] == want


def test_of_another_servers_tokens_nothing_is_counted() -> None:
    events: list[Semantic] = [
        step(b"<think>"), step(b"x"), Reasoning(0, "x", (0, 1)), step(b"</think>"), step(b"Blue"),
        Content(0, "Blue", (1, 5)), step(b" sky"), Content(0, " sky", (5, 9)),
    ]  # fmt: skip
    assert entries_of(events, told=True)[0] == [[b"Blue"], [b" sky"]]
    # Blanks that its parser drops are in the first token of the answer.
    blanks: list[Semantic] = [step(b"\n", b"</think>", b"\n\nO\xc3", b"\xb9"), Content(0, "Où", (0, 3))]
    assert entries_of(blanks, told=True)[0] == [[b"\n\nO\xc3", b"\xb9"]]
    # What spells nothing goes with what comes.
    assert entries_of([step(b"B", b"lu"), Content(0, "Blue", (0, 4))], told=True)[0] == [[b"B", b"lu"]]


def test_entries_are_there_only_if_they_are_asked_for() -> None:
    ask, events = CASES["logprobs"]
    values = values_of(ask, events)
    shown = [value["logprobs"] for value in values if value["type"] == "response.output_text.delta"]
    assert [[entry["token"] for entry in entries] for entries in shown] == [["Blue"], [" s", "ky"]]
    assert shown[0][0] == {
        "token": "Blue", "logprob": -0.5, "bytes": [66, 108, 117, 101],
        "top_logprobs": [{"token": "Blue", "logprob": -0.5, "bytes": [66, 108, 117, 101]}],
    }  # fmt: skip
    for hidden in (STREAM, Ask(stream=True, logprobs=True, include_reasoning=False)):
        assert '"token"' not in str(values_of(hidden, events))
