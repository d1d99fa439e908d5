"""Rules 132-137: what our own encoder makes holds them, in all its ways; what differs is found where it differs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from stages.events import (
    Body,
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    End,
    Failure,
    Finish,
    Reasoning,
    Refusal,
    Semantic,
    Start,
    Tick,
    TokenLogprob,
    Tokens,
    TopLogprob,
    Usage,
)
from stages.opening import Ask
from stages.protocols.rules import Evidence, Report, Sent, Violation, check
from tests.support.chat import CASES, TOOLS, body_of, frames_of
from tests.support.wire import Stream, golden, put

RECORDED = (132, 134, 135, 136, 137)


def _tokens(number: int, text: bytes) -> Tokens:
    return Tokens(0, (number,), (TokenLogprob(number, text, -0.25, (TopLogprob(number, text, -0.25),)),))


TIDES: list[Semantic] = [
    Start(0, 9, prompt_ids=(1, 2, 3)), _tokens(1, b"Need"), Reasoning(0, "Need tides.", (0, 11)), Tick(),
    _tokens(2, b"L"), Content(0, "Looking", (11, 18)), _tokens(3, b" it"), Content(0, " it up.", (18, 25)),
    CallStart(0, 0, "call_k1", "get_tide", (25, 33)), CallArguments(0, 0, '{"port":', (33, 41)),
    _tokens(4, b"x"), CallArguments(0, 0, '"Brest"}', (41, 49)), CallEnd(0, 0, True), Finish(0, "eos"),
    Usage(9, 12, reasoning=5), End(),
]  # fmt: skip
"""In the chat protocol, what G09 and G12 say in theirs."""

STREAMS: dict[str, tuple[Ask, Sequence[Semantic]]] = {
    **CASES,
    "all that can be asked": (
        Ask(stream=True, tools=TOOLS, include_usage=True, logprobs=True, top_logprobs=2, return_token_ids=True), TIDES,
    ),
    "running usage": (Ask(stream=True, tools=TOOLS, include_usage=True, continuous_usage=True), TIDES),
    "one name for reasoning": (Ask(stream=True, tools=TOOLS, reasoning_field="reasoning_content"), TIDES),
    "the other name": (Ask(stream=True, tools=TOOLS, reasoning_field="reasoning"), TIDES),
    "hidden reasoning": (Ask(stream=True, tools=TOOLS, include_reasoning=False, include_usage=True), TIDES),
    "a stop string": (
        Ask(stream=True, stop=("x",)), [Start(0, 9), Content(0, "é😀", (0, 6)), Finish(0, "stop", "x"), End()],
    ),
    "a broken call": (
        Ask(stream=True, tools=TOOLS),
        [Start(0, 9), CallStart(0, 0, "c", "get_tide", (0, 8)), CallArguments(0, 0, '{"po', (8, 12)),
         CallEnd(0, 0, False), Finish(0, "length"), End()],
    ),
    "a refusal": (Ask(stream=True), [Start(0, 9), Refusal(0, "No.", (0, 3)), Finish(0, "eos"), End()]),
    "silence": (Ask(stream=True), [Tick(), Start(0, 9), Tick(), Finish(0, "eos"), Tick(), End()]),
    "an error behind a comment": (Ask(stream=True), [Tick(), Failure("engine", "lost"), End()]),
}  # fmt: skip


def recorded(ask: Ask, events: Sequence[Semantic], **facts: Any) -> Evidence:
    """A stream of ours, with what else was made of its events."""
    body = body_of(frames_of(ask, events))
    whole = frames_of(msgspec.structs.replace(ask, stream=False), events)
    given: dict[str, Any] = {
        "body": body, "own": True, "effort": True, "replayed": body, "request": {"stream": True},
        "whole": b"".join(frame.data for frame in whole if isinstance(frame, Body)),
        "sent": Sent(len(body), hashlib.sha256(body).hexdigest()), **facts,
    }  # fmt: skip
    return Evidence(**given)


def broken(report: Report) -> list[Violation]:
    """What the rules of this file say."""
    return [one for one in report.violations if one.rule >= "INV-132"]


@pytest.mark.parametrize("name", STREAMS)
def test_what_our_encoder_makes(name: str) -> None:
    report = check(recorded(*STREAMS[name]))
    assert broken(report) == []
    assert set(RECORDED) <= set(report.checked)
    assert report.unchecked[133] == ("other",)


def only(report: Report, rule: int) -> Violation:
    """The one violation of a rule."""
    (found,) = [one for one in report.violations if one.rule == f"INV-{rule:03}"]
    return found


# --- without streaming, and in other protocols ------------------------------------------------------------------------


def test_an_error_is_one_in_both_or_in_none() -> None:
    ask = Ask(stream=True)
    error = b'{"error":{"message":"m","type":"server_error","param":null,"code":null}}'
    failed: list[Semantic] = [Start(0, 9), Content(0, "a", (0, 1)), Failure("engine", "lost"), End()]
    assert broken(check(recorded(ask, failed, whole=error))) == []
    assert only(check(recorded(ask, failed, whole=b'{"choices":[]}')), 132).seen == "an error in the stream only"
    assert "without streaming only" in only(check(recorded(*CASES["G01"], whole=error)), 132).seen


@pytest.mark.parametrize("whole", [b"", b"[]", b"data: {}\n\n", b"\xff"])
def test_a_body_without_streaming_is_an_object(whole: bytes) -> None:
    assert "no JSON object" in only(check(recorded(*CASES["G01"], whole=whole)), 132).seen


def test_where_the_text_differs_is_shown() -> None:
    evidence = recorded(*CASES["G01"])
    assert evidence.whole is not None
    found = only(check(recorded(*CASES["G01"], whole=evidence.whole.replace(b"sky", b"sea"))), 132)
    assert "content differs from character 6" in found.seen
    assert "sea" in found.want


@pytest.mark.parametrize("marked", ["truncated", "client_closed"])
def test_of_a_cut_stream_nothing_is_compared(marked: Any) -> None:
    evidence = recorded(*CASES["G01"])
    cut = evidence.body[:400]
    sent = Sent(len(cut), hashlib.sha256(cut).hexdigest())
    report = check(recorded(*CASES["G01"], body=cut, marked=marked, replayed=cut, other=("chat", b""), sent=sent))
    assert broken(report) == []


ASK = Ask(stream=True, tools=TOOLS, include_usage=True)
BODIES: dict[Any, bytes] = {
    "chat": body_of(frames_of(ASK, TIDES)),
    "responses": golden("G09").body,
    "messages": golden("G12").body,
    "completions": golden("G07").body,
}


@pytest.mark.parametrize("one", ["chat", "responses", "messages"])
@pytest.mark.parametrize("other", ["chat", "responses", "messages"])
def test_the_same_events_in_two_protocols(one: Any, other: Any) -> None:
    report = check(Evidence(body=BODIES[one], protocol=one, other=(other, BODIES[other])))
    assert 133 in report.checked
    assert broken(report) == []


def chat(*events: Semantic, include_usage: bool = False) -> bytes:
    """A chat stream of one choice."""
    return body_of(frames_of(Ask(stream=True, include_usage=include_usage), [Start(0, 3), *events, End()]))


def test_a_completion_has_the_text_as_it_was_written() -> None:
    told = chat(Content(0, "Blue sky", (0, 8)), Finish(0, "length"), Usage(3, 2), include_usage=True)
    asked = {"stream_options": {"include_usage": True}}
    for body, protocol, other in (
        (told, "chat", ("completions", BODIES["completions"])),
        (BODIES["completions"], "completions", ("chat", told)),
    ):
        facts: dict[str, Any] = {"body": body, "protocol": protocol, "other": other, "request": asked}
        assert broken(check(Evidence(**facts))) == []
    less = chat(Content(0, "Blue sea", (0, 8)), Finish(0, "length"))
    assert "Blue" in only(check(Evidence(body=less, other=("completions", BODIES["completions"]))), 133).seen


MESSAGE = golden("G12")
ENDS: list[tuple[Finish | Refusal, str, bool]] = [
    (Finish(0, "eos"), "end_turn", True), (Finish(0, "length"), "max_tokens", True),
    (Finish(0, "context"), "model_context_window_exceeded", True), (Finish(0, "filter"), "refusal", True),
    (Finish(0, "eos"), "max_tokens", False), (Finish(0, "length"), "end_turn", False),
    (Finish(0, "eos"), "refusal", False), (Finish(0, "stop", "x"), "stop_sequence", True),
]  # fmt: skip


def message(text: str, reason: str) -> bytes:
    """A message with one text block."""
    elements = [
        MESSAGE.elements[0], {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": "x" if reason[0] == "s" else None},
         "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    ]  # fmt: skip
    return Stream("messages", elements).body


@pytest.mark.parametrize(("finish", "reason", "same"), ENDS)
def test_classes_of_finishes(finish: Semantic, reason: str, same: bool) -> None:
    body = chat(Content(0, "No.", (0, 3)), finish)
    assert (broken(check(Evidence(body=body, other=("messages", message("No.", reason))))) == []) is same


def test_a_refusal_is_text_in_messages() -> None:
    body = chat(Refusal(0, "No.", (0, 3)), Finish(0, "eos"))
    assert broken(check(Evidence(body=body, other=("messages", message("No.", "refusal"))))) == []
    assert only(check(Evidence(body=body, other=("messages", message("No.", "end_turn")))), 133).seen
    assert only(check(Evidence(body=body, other=("messages", message("Not.", "refusal")))), 133).seen


def test_a_call_that_was_named_and_one_that_was_not() -> None:
    stopped = BODIES["chat"].replace(b'"finish_reason":"tool_calls"', b'"finish_reason":"stop"')
    named = {"tool_choice": {"type": "function", "function": {"name": "get_tide"}}}
    other = ("messages", BODIES["messages"])
    for request, same in ((named, True), (None, True), ({}, False), ({"tool_choice": "auto"}, False)):
        facts: dict[str, Any] = {"other": other, "request": None if request is None else {"stream": True, **request}}
        report = check(Evidence(body=stopped, **facts))
        assert ("INV-133" not in report.counts) is same


def test_arguments_are_text_where_both_have_text() -> None:
    spaced = BODIES["chat"].replace(rb"{\"port\":", rb"{ \"port\":")
    assert only(check(Evidence(body=BODIES["chat"], other=("chat", spaced))), 133).seen
    assert broken(check(Evidence(body=BODIES["messages"], protocol="messages", other=("chat", spaced)))) == []


# --- again, and what the socket took ----------------------------------------------------------------------------------

COMMENT = b": keep-alive\n\n"
COMMENTED = BODIES["chat"]
BODY = COMMENTED.replace(COMMENT, b"")
SECOND = BODY.index(b"\n\n") + 2


@pytest.mark.parametrize(
    ("replayed", "where"),
    [
        (BODY, None), (COMMENTED, None), (BODY.replace(b"\n\n", b"\n\n" + COMMENT), None),
        (BODY.replace(b"tides", b"winds"), (1, BODY.index(b"tides"))), (BODY[:SECOND], (1, SECOND)),
        (BODY + b"data: more\n\n", (10, len(BODY))), (b"", (0, 0)), (BODY + b"da", (10, len(BODY))),
        (b"\n" + BODY, (0, 0)),
    ],
)  # fmt: skip
def test_replay_names_the_first_frame_that_differs(replayed: bytes, where: tuple[int, int] | None) -> None:
    report = check(Evidence(body=BODY, own=True, replayed=replayed))
    assert 134 in report.checked
    assert [(one.frame, one.byte) for one in broken(report)] == ([] if where is None else [where])


def test_a_torn_recording_is_the_beginning_of_its_replay() -> None:
    torn = BODY[:SECOND]
    assert broken(check(Evidence(body=torn, own=True, marked="truncated", replayed=BODY))) == []
    assert only(check(Evidence(body=torn, own=True, marked="client_closed", replayed=BODY)), 134).byte == SECOND
    spoilt = BODY.replace(b"assistant", b"assistent")
    assert only(check(Evidence(body=torn, own=True, marked="truncated", replayed=spoilt)), 134).frame == 0


@pytest.mark.parametrize("name", ["G01", "G09", "G12", "G07"])
def test_only_our_own_streams_are_decoded_again(name: str) -> None:
    assert check(golden(name).known(effort=True, own=False).evidence()).unchecked[135] == ("decoder",)
    assert check(golden(name).known(own=False).evidence()).unchecked[135] == ("effort", "decoder")


@pytest.mark.parametrize("name", STREAMS)
def test_the_beginning_of_a_stream_goes_there_and_back_too(name: str) -> None:
    ask, events = STREAMS[name]
    frames = frames_of(ask, events)
    for end in range(len(frames) + 1):
        report = check(Evidence(body=body_of(frames[:end]), own=True, marked="client_closed", effort=True))
        assert 135 in report.checked
        assert broken(report) == []


def test_round_trip_names_the_first_event_that_differs() -> None:
    stream = golden("G01").known(effort=True)
    assert broken(stream.report()) == []
    spoilt = stream.edited(put(2, "choices", 0, "delta", "mood", to="good"))
    found = only(spoilt.report(), 135)
    assert (found.frame, "mood" in found.seen) == (2, True)
    assert only(stream.edited(lambda ev: ev.insert(2, {"choices": [], "usage": None})).report(), 135).frame == 2
    late: list[Any] = [*stream.elements, "[DONE]"]
    assert only(stream.edited(lambda _: late).report(), 135).frame == 6
    unread = stream.reworked(lambda body: body.replace(b'{"id"', b'{"id', 1)).report()
    assert unread.counts.keys() & {"INV-020", "INV-135"} == {"INV-020"}


@pytest.mark.parametrize(
    ("marked", "size", "spoil", "right"),
    [
        ("complete", None, False, True), (None, None, False, True), ("complete", None, True, False),
        ("complete", 100, False, False), (None, 100, False, False), ("client_closed", 100, False, True),
        ("client_closed", 0, False, True), ("client_closed", 100, True, False), ("client_closed", None, False, True),
        ("truncated", 100, False, True),
    ],
)  # fmt: skip
def test_what_the_socket_took(marked: Any, size: int | None, spoil: bool, right: bool) -> None:
    taken = BODY[:size]
    hashed = hashlib.sha256(taken[:-1] if spoil else taken).hexdigest()
    report = check(Evidence(body=BODY, own=True, marked=marked, sent=Sent(len(taken), hashed)))
    assert ("INV-136" not in report.counts) is right


def test_the_socket_took_more_than_was_recorded() -> None:
    found = only(check(Evidence(body=BODY, marked="client_closed", sent=Sent(len(BODY) + 1, ""))), 136)
    assert found.byte == len(BODY)


def test_a_body_that_is_no_stream_is_replayed_and_counted_too() -> None:
    body = b'{"object":"chat.completion"}'
    sent = Sent(len(body), hashlib.sha256(body).hexdigest())
    report = check(Evidence(body=body, own=True, request={}, replayed=body, sent=sent, effort=True, whole=body))
    assert report.violations == ()
    assert {134, 136} == {number for number in report.checked if number > 130}
    assert only(check(Evidence(body=body, own=True, request={}, replayed=body[:-1])), 134).byte == len(body) - 1


# --- other portions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["G01", "G02", "G03", "G04", "G05", "G06", "G07", "G08", "G09", "G10", "G11", "G12", "G13"]
)
def test_portions_change_nothing(name: str) -> None:
    report = golden(name).known(effort=True).report()
    assert 137 in report.checked
    assert "INV-137" not in report.counts


def test_half_a_character_is_another_text_than_a_whole_one() -> None:
    halves = [json.loads(text) for text in ('"\\ud83d"', '"\\ude00"')]
    deltas = [{"choices": [{"index": 0, "delta": {"content": half}, "finish_reason": None}]} for half in halves]
    body = b"".join(b"data: " + json.dumps(delta).encode() + b"\n\n" for delta in deltas)
    found = only(check(Evidence(body=body, effort=True)), 137)
    assert "with merged deltas" in found.want
