"""What a call that is not complete excuses, in the rules of each protocol, and what it does not."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from stages.events import (
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    End,
    Failure,
    Finish,
    FinishReason,
    Frame,
    Reasoning,
    Semantic,
    Start,
    Usage,
)
from stages.message import collect
from stages.opening import Ask
from stages.protocols.rules import Evidence, Protocol, check
from stages.protocols.rules.evidence import EngineChoice, EngineFacts
from tests.support import chat, completions, messages, responses

ASK = Ask(stream=True, tools=chat.TOOLS, include_usage=True)
FRAMES: dict[Protocol, Callable[[Ask, Iterable[Semantic]], list[Frame]]] = {
    "chat": chat.frames_of, "completions": completions.frames_of, "responses": responses.frames_of,
    "messages": lambda ask, events: messages.frames_of(events, ask),
}  # fmt: skip


def half(said: str = "So.", text: str = '{"port":', reason: FinishReason = "eos") -> list[Semantic]:
    """A text, and a call that its model did not complete."""
    return [
        Start(0, 9), Content(0, said, (0, 3)), CallStart(0, 0, "call_k1", "get_tide", (3, 9)),
        CallArguments(0, 0, text, (9, 17)), CallEnd(0, 0, False), Finish(0, reason), Usage(9, 12), End(),
    ]  # fmt: skip


def body(protocol: Protocol, events: list[Semantic]) -> bytes:
    return chat.body_of(FRAMES[protocol](ASK, events))


def broken(rule: int, one: bytes, protocol: Protocol, **facts: Any) -> bool:
    """The rule was checked, and fires."""
    report = check(Evidence(body=one, protocol=protocol, request={"stream": True}, **facts))
    assert rule in report.checked
    return f"INV-{rule:03}" in report.counts


def engine(reason: str, written: int = 12, markers: tuple[str, ...] = ("<tool_call>",)) -> EngineFacts:
    return EngineFacts({0: EngineChoice(tuple(range(written)), reason, 20)}, markers=markers)


# --- INV-133 ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", ["chat", "messages"])
def test_a_response_that_fails_for_it_says_what_others_say(other: Protocol) -> None:
    assert b"response.failed" in body("responses", half())
    pairs: tuple[tuple[Protocol, Protocol], ...] = (("responses", other), (other, "responses"))
    for one, two in pairs:
        assert not broken(133, body(one, half()), one, other=(two, body(two, half())))
        assert broken(133, body(one, half()), one, other=(two, body(two, half("No."))))
        assert broken(133, body(one, half()), one, other=(two, body(two, half(text='{"prt":'))))


def test_it_excuses_no_other_error() -> None:
    error = body("chat", [*half()[:5], Failure("engine", "lost")])
    others: tuple[Protocol, ...] = ("responses", "messages")
    for protocol in others:
        whole = body(protocol, half(reason="length"))
        assert broken(133, error, "chat", other=(protocol, whole))
        assert broken(133, whole, protocol, other=("chat", error))


def test_max_tokens_is_what_a_message_says_of_it_and_nothing_else() -> None:
    told = body("messages", half())
    other = ("chat", body("chat", half()))
    assert b'"stop_reason":"max_tokens"' in told
    assert not broken(133, told, "messages", other=other)
    # Other servers of chat say of a half call what they say of a whole one.
    calls = ("chat", other[1].replace(b'"finish_reason":"stop"', b'"finish_reason":"tool_calls"'))
    assert calls != other
    assert not broken(133, told, "messages", other=calls)
    for reason in (b"refusal", b"model_context_window_exceeded"):
        assert broken(133, told.replace(b'"max_tokens"', b'"%b"' % reason), "messages", other=other)
    cut = body("chat", half()).replace(b'"finish_reason":"stop"', b'"finish_reason":"length"')
    assert broken(133, cut, "chat", other=("responses", body("responses", half(reason="filter"))))


THOUGHT: list[Semantic] = [
    Start(0, 9), Reasoning(0, "The moon.", (7, 16)), Content(0, "Two ", (24, 28)), Content(0, "a day.", (28, 34)),
    Finish(0, "eos"), Usage(9, 12), End(),
]  # fmt: skip


def written(text: str) -> bytes:
    """A completion."""
    return body("completions", [Start(0, 9), Content(0, text, (0, 1)), Finish(0, "eos"), Usage(9, 12), End()])


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("<think>The moon.</think>\nTwo a day.", True), ("assistantThe moon.finalTwo a day.", True),
        ("<think>The mon.</think>\nTwo a day.", False), ("<think>The moon.</think>\nTwo a dxay.", False),
        ("Two a day.<think>The moon.</think>", False), ("", False),
    ],
)  # fmt: skip
def test_pieces_stand_in_a_completion_in_their_order(text: str, same: bool) -> None:
    assert broken(133, body("chat", THOUGHT), "chat", other=("completions", written(text))) is not same
    assert broken(133, written(text), "completions", other=("messages", body("messages", THOUGHT))) is not same


def test_without_a_parser_a_completion_is_the_content() -> None:
    told = ("chat", body("chat", [Start(0, 9), Content(0, "Two", (0, 3)), Finish(0, "eos"), Usage(9, 12), End()]))
    assert not broken(133, written("Two"), "completions", other=told, engine=engine("eos", markers=()))
    assert broken(133, written("Two."), "completions", other=told, engine=engine("eos", markers=()))
    assert not broken(133, written("Two."), "completions", other=told, engine=engine("eos"))


# --- other rules ------------------------------------------------------------------------------------------------------


def test_other_servers_may_have_no_whole_message_with_it() -> None:
    error = b'{"error":{"message":"m","type":"server_error","param":null,"code":null}}'
    of_messages = b'{"type":"error","error":{"type":"api_error","message":"m"}}'
    assert not broken(132, body("messages", half()), "messages", whole=of_messages)
    assert broken(132, body("messages", half()), "messages", whole=of_messages, own=True)
    assert broken(132, body("chat", half()), "chat", whole=error)


def test_the_reason_of_a_message_that_has_it() -> None:
    events = half(text="{}")
    told, meant = body("messages", events), collect(events)
    assert not broken(126, told, "messages", meant=meant)
    for reason in (b"tool_use", b"end_turn"):
        spoilt = told.replace(b'"max_tokens"', b'"%b"' % reason)
        assert broken(126, spoilt, "messages", meant=meant)
    stopped = told.replace(b'"max_tokens","stop_sequence":null', b'"stop_sequence","stop_sequence":"x"')
    assert not broken(126, stopped, "messages", meant=meant)
    assert broken(126, stopped, "messages")


def test_a_filter_may_cut_and_a_refusal_may_not() -> None:
    told = body("messages", half(reason="filter"))
    assert b'"stop_reason":"refusal"' in told
    assert not broken(123, told, "messages")
    assert not broken(123, told, "messages", engine=engine("filter"))
    assert broken(123, told, "messages", engine=engine("eos"))


def test_it_excuses_max_tokens_where_the_engine_ended_by_itself() -> None:
    told = body("messages", half())
    assert not broken(39, told, "messages", engine=engine("eos"))
    assert broken(39, told, "messages", engine=engine("length"))  # 12 tokens of 20
    assert not broken(39, told, "messages", engine=engine("length", 20))
    other = told.replace(b'"max_tokens"', b'"model_context_window_exceeded"')
    assert broken(39, other, "messages", engine=engine("eos"))
