"""Messages and their differences; parse_text."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from replay import Message, ParserFailed, ToolCall, collect, parse_text
from replay.errors import BadSplit
from replay.message_diff import differences, in_words
from stages.events import (
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    Fault,
    FaultCode,
    Finish,
    FinishReason,
    Marker,
    Reasoning,
    Refusal,
    Start,
)
from tests.support.replay import SAID, TOOLS, VOCABULARY, Raising

CALL = [
    CallStart(0, 0, "call_a", "tide", (0, 0)),
    CallArguments(0, 0, '{"a"', (0, 0)),
    CallArguments(0, 0, ":1}", (0, 0)),
]


def test_a_message_is_the_collected_stream() -> None:
    events = [
        Start(0, 3), Start(1, 3), Reasoning(0, "a", (0, 1)), Content(1, "x", (0, 1)), Reasoning(0, "b", (1, 2)),
        Marker(0, "</think>", (2, 10)), Content(0, "c", (10, 11)), *CALL, CallEnd(0, 0, True), Finish(0, "eos"),
        Refusal(1, "no", (1, 3)), Fault(1, FaultCode.STRAY_MARKER, (3, 3)), Finish(1, "length"),
    ]  # fmt: skip
    assert collect(events) == [
        Message(0, "ab", "c", None, (ToolCall("call_a", "tide", '{"a":1}'),), "tool_calls"),
        Message(1, None, "x", "no", (), "length", ("stray_marker",)),
    ]


def test_nothing_said_is_none() -> None:
    assert collect([Start(0, 3)]) == [Message(0)]
    assert collect([]) == []


@pytest.mark.parametrize(
    ("reason", "complete", "expected"),
    [
        ("eos", None, "stop"), ("stop", None, "stop"), ("stop_token", None, "stop"), ("length", None, "length"),
        ("context", None, "length"), ("filter", None, "content_filter"), ("eos", True, "tool_calls"),
        ("stop", True, "tool_calls"), ("stop", False, "stop"), ("eos", False, "stop"), ("length", True, "length"),
    ],
)  # fmt: skip
def test_finish_reasons(reason: FinishReason, complete: bool | None, expected: str) -> None:
    """The classes of protocols/index: calls end in tool_calls, unless the cap or a stop inside a call ended them."""
    call = [] if complete is None else [*CALL, CallEnd(0, 0, complete)]
    assert collect([*call, Finish(0, reason)])[0].finish_reason == expected


def test_differences_come_most_telling_first() -> None:
    one = Message(0, "think", "answer", None, (ToolCall("a", "tide", "{}"),), "tool_calls")
    other = Message(0, "thi", "nkanswer", None, (ToolCall("a", "moon", "{}"),), "stop", ("unclosed_call",))
    assert [item.kind for item in differences([one], [other])] == [
        "call_name",
        "boundary",
        "boundary",
        "finish_reason",
        "fault",
    ]
    assert differences([one], [one]) == ()
    assert [item.kind for item in differences([one], [])] == ["call_lost", "text", "text", "finish_reason"]


def test_markup_that_turned_into_text_is_a_leak() -> None:
    one, other = Message(0, content="Hi."), Message(0, content="Hi.<tool_call>")
    assert [item.kind for item in differences([one], [other], [Marker(0, "<tool_call>\n", (0, 12))])] == [
        "marker_leaked"
    ]
    assert [item.kind for item in differences([one], [other], (), VOCABULARY)] == ["marker_leaked"]
    assert [item.kind for item in differences([other], [one], (), VOCABULARY)] == ["text"]


def test_excerpts_show_the_place() -> None:
    long = "x" * 1000
    (item,) = differences([Message(0, content=long + "a")], [Message(0, content=long + "b")])
    assert item.recorded is not None and item.replayed is not None
    assert item.recorded.startswith("…x") and item.recorded.endswith("xa") and item.replayed.endswith("xb")
    assert len(item.recorded) < 200


def test_a_difference_names_the_field_and_both_sides_as_plain_values() -> None:
    calls = (ToolCall("a", "tide", '{"port": "Brest"}'), ToolCall("b", "moon", "{}", complete=False))
    one = Message(0, None, "need the\ntide", None, (), "stop")
    other = Message(0, "need the\ntide", None, None, calls[:1], "tool_calls", ("stray_marker",))
    found = differences([one], [other])
    assert [(item.kind, item.field, item.recorded, item.replayed) for item in found] == [
        ("call_added", "tool_calls", None, '1 call: tide {"port": "Brest"}'),
        ("boundary", "reasoning", None, "need the\ntide"),
        ("boundary", "content", "need the\ntide", None),
        ("finish_reason", "finish_reason", "stop", "tool_calls"),
        ("fault", "faults", None, "stray_marker"),
    ]
    assert [in_words(item) for item in found] == [
        'tool_calls: nothing → 1 call: tide {"port": "Brest"}',
        r"reasoning: nothing → 'need the\ntide'",
        r"content: 'need the\ntide' → nothing",
        "finish_reason: stop → tool_calls",
        "faults: nothing → stray_marker",
    ]
    changed = msgspec.structs.replace(calls[1], complete=True, arguments='{"a":1}')
    (first, second) = differences([Message(0, tool_calls=calls)], [Message(0, tool_calls=(calls[0], changed))])
    assert in_words(first) == "tool_calls[1].arguments: '{}' → '{\"a\":1}'"
    assert in_words(second) == "tool_calls[1].complete: false → true"


def test_what_a_model_writes_moves_no_cursor_and_fits_into_json() -> None:
    calls = (ToolCall("a", "ti\x1b[2Jde\n", "\ud800"),)
    (item,) = differences([Message(0)], [Message(0, tool_calls=calls)])
    assert in_words(item) == r"tool_calls: nothing → 1 call: ti\x1b[2Jde\n \ud800"
    assert msgspec.json.encode(item)


@pytest.mark.parametrize("split", ["recorded", "one", "token", "marker", "char", "rand:7:9"])
@pytest.mark.parametrize("tokenizer", [True, False])
def test_parse_text(split: str, tokenizer: bool) -> None:
    facts: dict[str, Any] = {"tokenizer": VOCABULARY} if tokenizer else {}
    message = parse_text("hermes", SAID, tools=TOOLS, split=split, **facts)
    assert message.reasoning is not None and message.reasoning.strip() == "Which port? Brest … 潮汐 🌊."
    assert message.content is not None and message.content.strip() == "Let me look that up, été 🌙."
    assert [(call.name, msgspec.json.decode(call.arguments)) for call in message.tool_calls] == [
        ("tide", {"port": "Brest … 潮汐"}),
        ("moon", {}),
    ]
    assert message.finish_reason == "tool_calls"
    assert message.faults == ()


def test_parse_text_with_a_prompt_that_opened_reasoning() -> None:
    message = parse_text("hermes", "need moon\n</think>\n\nDone.", prompt_tail="<|im_start|>assistant\n<think>\n")
    assert message.reasoning is not None and message.reasoning.strip() == "need moon"
    assert message.content is not None and message.content.strip() == "Done."


def test_parse_text_tells_what_failed() -> None:
    with pytest.raises(ParserFailed, match="raising@1 raised RuntimeError: no such state"):
        parse_text(Raising(2), "Hello")
    with pytest.raises(BadSplit):
        parse_text("hermes", "Hello", split="words")
