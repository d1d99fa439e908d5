"""The hermes format: worked examples and edges, under every split, both call policies where they differ."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from stages.events import CallArguments, CallEnd, CallStart, FinishReason, Tokens
from tests.support.parse import (
    PROMPT,
    THINKING,
    Collected,
    check_partition,
    check_stream,
    merged,
    message,
    opening,
    semantic,
    session,
    splits,
    tokens,
)

Calls = Literal["incremental", "whole"]


@dataclass(frozen=True)
class Case:
    """An output and what it means. ``calls``: (name, arguments as a value, or a str: the raw text of a call that is not
    complete)."""

    text: str
    reasoning: str | None = None
    content: str | None = None
    calls: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])
    faults: list[str] = field(default_factory=list[str])
    tail: str = PROMPT
    finish: FinishReason = "eos"


def _call(name: str = "tide", **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def _block(body: str) -> str:
    return f"<tool_call>\n{body}\n</tool_call>"


_NEXT = _call("moon")

# What both policies agree on.
BOTH: dict[str, Case] = {
    # worked examples
    "one call": Case(_call(port="Brest", day=3), calls=[("tide", {"port": "Brest", "day": 3})]),
    "content, two calls": Case(
        f"Checking.\n{_call('moon')}\n{_call(port='Cork')}",
        content="Checking.",
        calls=[("moon", {}), ("tide", {"port": "Cork"})],
    ),
    "reasoning, call without arguments": Case(
        '<think>\nneed moon\n</think>\n\n<tool_call>\n{"name": "moon"}\n</tool_call>',
        reasoning="need moon",
        calls=[("moon", {})],
    ),
    "order swapped, closer in a string": Case(
        '<tool_call>{"arguments": {"port": "A\\"</tool_call>\\"B"}, "name": "tide"}</tool_call>',
        calls=[("tide", {"port": 'A"</tool_call>"B'})],
    ),
    "marker in prose": Case(
        "Wrap it in <tool_call> tags.", content="Wrap it in <tool_call> tags.", faults=["stray_marker"]
    ),
    "no closer": Case('<tool_call>\n{"name": "tide", "arguments": {"day": 3}}', calls=[("tide", {"day": 3})]),
    "malformed, restored": Case(
        '<tool_call>\n{"name": tide}\n</tool_call> sorry',
        content='<tool_call>\n{"name": tide}\n</tool_call> sorry',
        faults=["malformed_call"],
    ),
    # edges
    "cut in the opener": Case("So <tool_", content="So <tool_", finish="length"),
    "cut behind the opener": Case("So\n<tool_call>\n", content="So", faults=["unclosed_call"], finish="length"),
    "cut in the name": Case('<tool_call>\n{"name": "ti', faults=["unclosed_call"], finish="length"),
    "final brace missing": Case(
        '<tool_call>{"name": "tide", "arguments": {"day": 3}\n</tool_call>', calls=[("tide", {"day": 3})]
    ),
    "final brace missing, swapped": Case(
        '<tool_call>{"arguments": {"day": 3}, "name": "tide"</tool_call>ok', content="ok", calls=[("tide", {"day": 3})]
    ),
    "extra braces": Case('<tool_call>{"name": "moon", "arguments": {}}}}\n</tool_call>', calls=[("moon", {})]),
    "arguments null": Case(_block('{"name": "moon", "arguments": null}'), calls=[("moon", {})]),
    "arguments empty text": Case(_block('{"name": "moon", "arguments": ""}'), calls=[("moon", {})]),
    "arguments as a string": Case(
        _block(r'{"name": "tide", "arguments": "{\"a\": \"1\\n\"}"}'), calls=[("tide", {"a": "1\n"})]
    ),
    "arguments as a string, swapped": Case(
        _block(r'{"arguments": "{\"a\":1}", "name": "tide"}'), calls=[("tide", {"a": 1})]
    ),
    "null, swapped": Case(_block('{"arguments": null, "name": "moon"}'), calls=[("moon", {})]),
    "parameters": Case(_block('{"name": "tide", "parameters": {"a": 1}}'), calls=[("tide", {"a": 1})]),
    "other members": Case(
        _block('{"id": [1, {"name": "no"}], "type": "f", "name": "tide", "n": -1.5e3, "arguments": {"a": 1}, "": 0}'),
        calls=[("tide", {"a": 1})],
    ),
    "escaped keys and name": Case(
        _block(r'{"na\u006de": "t\u0069de", "argument\u0073": {"\u0061": "\u00e9"}}'), calls=[("tide", {"a": "é"})]
    ),
    "unknown name": Case(_call("lunch", x=1), calls=[("lunch", {"x": 1})], faults=["unknown_tool"]),
    "name with white space": Case(_block('{"name": " tide ", "arguments": {}}'), calls=[("tide", {})]),
    "name missing": Case(_block('{"arguments": {}}'), content=_block('{"arguments": {}}'), faults=["malformed_call"]),
    "name empty": Case(_block('{"name": ""}'), content=_block('{"name": ""}'), faults=["malformed_call"]),
    "name blank": Case(_block('{"name": " "}'), content=_block('{"name": " "}'), faults=["malformed_call"]),
    "name a number": Case(_block('{"name": 3}'), content=_block('{"name": 3}'), faults=["malformed_call"]),
    "bad arguments before the name": Case(
        _block('{"arguments": [1], "name": "tide"}'),
        content=_block('{"arguments": [1], "name": "tide"}'),
        faults=["bad_arguments"],
    ),
    "bare JSON": Case('{"name": "tide", "arguments": {}}', content='{"name": "tide", "arguments": {}}'),
    "array of calls": Case(
        _block('[{"name": "moon"}, {"name": "tide", "arguments": {"a": []}}]'),
        calls=[("moon", {}), ("tide", {"a": []})],
    ),
    "several objects": Case(
        _block('{"name": "moon"}\n{"name": "tide"},{"name": "moon"}'), calls=[("moon", {}), ("tide", {}), ("moon", {})]
    ),
    "empty array": Case(_block("[]"), content=_block("[]"), faults=["malformed_call"]),
    "empty block": Case("<tool_call></tool_call>", content="<tool_call></tool_call>", faults=["stray_marker"]),
    "second opener, first malformed": Case(
        f'<tool_call>{{"name": {_call(day=1)}', content='<tool_call>{"name": ', calls=[("tide", {"day": 1})],
        faults=["malformed_call"],
    ),
    "second opener, first complete": Case(
        f'<tool_call>{{"name": "moon"}}\n{_call(day=1)}', calls=[("moon", {}), ("tide", {"day": 1})]
    ),
    "all in one": Case(
        f"<think>\nhm\n</think>\n\nA\n{_NEXT}\n{_call(a=1)}\nB",
        reasoning="hm", content="AB", calls=[("moon", {}), ("tide", {"a": 1})],
    ),
    "white space only before and after": Case(f" \n\t{_NEXT} \n\n", calls=[("moon", {})]),
    "newline runs of content": Case(f"a\n\n\nb\n\n{_NEXT}", content="a\n\n\nb", calls=[("moon", {})]),
    "content ends in a newline": Case("a\n\n", content="a\n\n"),
    "white space alone": Case(" \n ", content=" \n "),
    "prose marker keeps white space": Case(
        "Use\n\n<tool_call> \n it", content="Use\n\n<tool_call> \n it", faults=["stray_marker"]
    ),
    "stray closer in content": Case(
        "a </tool_call> b </tool_call>", content="a </tool_call> b </tool_call>", faults=["stray_marker"]
    ),
    "text behind a complete call, block open": Case(
        '<tool_call>{"name": "moon"}\nDone. </tool_call> Bye',
        content="Done. Bye", calls=[("moon", {})], faults=["malformed_call"],
    ),
    "second object of a block malformed": Case(
        _block('{"name": "moon"}\n{"no": 1}') + "x",
        content='{"no": 1}x', calls=[("moon", {})], faults=["malformed_call"],
    ),
    "second object of a block cut": Case(
        '<tool_call>{"name": "moon"}{"na', calls=[("moon", {})], faults=["unclosed_call"], finish="length"
    ),
    "cut in the closer": Case('<tool_call>{"name": "moon"}\n</tool_', calls=[("moon", {})], finish="length"),
    "raw newline in a string": Case(
        '<tool_call>{"name": "tide", "arguments": {"code": "a\n\tb"}}</tool_call>', calls=[("tide", {"code": "a\n\tb"})]
    ),
    "raw newline, swapped": Case(
        '<tool_call>{"arguments": {"code": "a\n\tb"}, "name": "tide"}</tool_call>', calls=[("tide", {"code": "a\n\tb"})]
    ),
    "string arguments with a raw newline": Case(
        _block('{"name": "tide", "arguments": "{\\"code\\": \\"a\nb\\"}"}'), calls=[("tide", {"code": "a\nb"})]
    ),
    "unicode": Case(
        "Été 😀\n" + _block('{"name": "tide", "arguments": {"q": "日本 😀 \\ud83d\\ude00"}}'),
        content="Été 😀", calls=[("tide", {"q": "日本 😀 😀"})],
    ),
    "lone surrogate in a name": Case(
        _block(r'{"name": "x\ud800y", "arguments": {}}'), calls=[("x�y", {})], faults=["unknown_tool"]
    ),
    "lone surrogate in string arguments": Case(
        _block(r'{"name": "tide", "arguments": "{\"a\": \"\ud800\"}"}'), calls=[("tide", {"a": "�"})]
    ),
    # reasoning and calls
    "call while reasoning": Case(
        f"I should call it.\n{_NEXT}", reasoning="I should call it.", calls=[("moon", {})], tail=THINKING
    ),
    "marker named while reasoning": Case(
        "I use <tool_call> then\n</think>\n\nok", reasoning="I use <tool_call> then", content="ok", tail=THINKING
    ),
    "marker and brace while reasoning": Case(
        "so <tool_call>\n{ x\n</think>ok", reasoning="so <tool_call>\n{ x", content="ok", tail=THINKING
    ),
    "marker at once while reasoning": Case(_NEXT, calls=[("moon", {})], tail=THINKING),
    "marker at the end of reasoning": Case(
        "a\n<tool_call>\n", reasoning="a\n<tool_call>\n", faults=["unclosed_reasoning"], tail=THINKING, finish="length"
    ),
    "not a call after all, while reasoning": Case(
        'a\n<tool_call>{"x": 1}</tool_call>', reasoning="a", content='<tool_call>{"x": 1}</tool_call>',
        faults=["malformed_call"], tail=THINKING,
    ),
    "call, then the closer of reasoning": Case(
        f"hm\n{_NEXT}\n</think>\n\nok", reasoning="hm", content="ok", calls=[("moon", {})], faults=["stray_marker"],
        tail=THINKING,
    ),
    "closer of reasoning behind content and a call is text": Case(
        f"A\n{_NEXT}\n</think> b", content="A</think> b", calls=[("moon", {})], faults=["stray_marker"]
    ),
}  # fmt: skip

# What the policies disagree on.
INCREMENTAL: dict[str, Case] = {
    "cut in the arguments": Case(
        '<tool_call>\n{"name": "tide", "arguments": {"port": "Br',
        calls=[("tide", '{"port": "Br')], faults=["unclosed_call"], finish="length",
    ),
    "cut behind the name": Case('<tool_call>\n{"name": "tide"', calls=[("tide", "")], faults=["unclosed_call"]),
    "cut behind the arguments": Case(
        '<tool_call>\n{"name": "tide", "arguments": {"a": 1}', calls=[("tide", '{"a": 1}')], faults=["unclosed_call"]
    ),
    "cut in string arguments": Case(
        '<tool_call>\n{"name": "tide", "arguments": "{', calls=[("tide", "")], faults=["unclosed_call"]
    ),
    "malformed arguments": Case(
        _block('{"name": "tide", "arguments": {"port": "Brest", day: 3}}') + f'\n{_NEXT}',
        calls=[("tide", '{"port": "Brest", '), ("moon", {})], faults=["bad_arguments"],
    ),
    "arguments a list": Case(
        _block('{"name": "tide", "arguments": [1]}') + f'\n{_NEXT}', calls=[("tide", ""), ("moon", {})],
        faults=["bad_arguments"],
    ),
    "arguments a string that holds no object": Case(
        _block('{"name": "tide", "arguments": "[1]"}') + 'ok', content="ok", calls=[("tide", "")],
        faults=["bad_arguments"],
    ),
    "malformed behind the name": Case(
        _block('{"name": "tide", oops}') + f'\n{_NEXT}', calls=[("tide", ""), ("moon", {})], faults=["malformed_call"]
    ),
    "brace of the arguments missing": Case(
        _block('{"name": "tide", "arguments": {"a": 1') + f'{_NEXT}', calls=[("tide", '{"a": 1\n'), ("moon", {})],
        faults=["bad_arguments"],
    ),
    "junk where only the brace was missing": Case(
        _block('{"name": "tide", "arguments": {"a": 1} oops') + f'{_NEXT}', calls=[("tide", '{"a": 1}'), ("moon", {})],
        faults=["malformed_call"],
    ),
    "second name": Case(
        _block('{"name": "tide", "name": "moon"}'), calls=[("tide", "")], faults=["malformed_call"]
    ),
    "second arguments": Case(
        _block('{"name": "tide", "arguments": {"a": 1}, "parameters": {}}'), calls=[("tide", '{"a": 1}')],
        faults=["malformed_call"],
    ),
    "opener in a broken call": Case(
        f'<tool_call>{{"name": "tide", "arguments": {{"a": <tool_call> b {_NEXT}ok', content="ok",
        calls=[("tide", '{"a": '), ("moon", {})], faults=["bad_arguments"],
    ),
    "Python literals": Case(
        _block("""{"name": "tide", "arguments": {'a': True}}"""), calls=[("tide", "{")], faults=["bad_arguments"]
    ),
    "trailing comma": Case(
        _block('{"name": "tide", "arguments": {"a": 1,}}'), calls=[("tide", '{"a": 1,')], faults=["bad_arguments"]
    ),
}  # fmt: skip

WHOLE: dict[str, Case] = {
    "cut in the arguments": Case(
        'So\n<tool_call>\n{"name": "tide", "arguments": {"port": "Br', content="So", faults=["unclosed_call"]
    ),
    "cut behind the arguments": Case(
        '<tool_call>\n{"name": "tide", "arguments": {"a": 1}\n', faults=["unclosed_call"]
    ),
    "malformed arguments": Case(
        _block('{"name": "tide", "arguments": {"port": "Brest", day: 3}}') + f'\n{_NEXT}',
        content=_block('{"name": "tide", "arguments": {"port": "Brest", day: 3}}'),
        calls=[("moon", {})], faults=["bad_arguments"],
    ),
    "arguments a list, in the middle of text": Case(
        'A\n' + _block('{"name": "tide", "arguments": [1]}') + '\nB',
        content='A\n' + _block('{"name": "tide", "arguments": [1]}') + '\nB', faults=["bad_arguments"],
    ),
    "malformed behind the name": Case(
        _block('{"name": "tide", oops}'), content=_block('{"name": "tide", oops}'), faults=["malformed_call"]
    ),
    "junk where only the brace was missing": Case(
        _block('{"name": "tide", "arguments": {"a": 1} oops'),
        content=_block('{"name": "tide", "arguments": {"a": 1} oops'), faults=["malformed_call"],
    ),
    "second of a block malformed": Case(
        _block('{"name": "moon"}, {"name": "tide", "arguments": 3}') + "\nB",
        content='{"name": "tide", "arguments": 3}B', calls=[("moon", {})], faults=["bad_arguments"],
    ),
}  # fmt: skip

ALL = [
    *((name, calls, case) for name, case in BOTH.items() for calls in ("incremental", "whole")),
    *((name, "incremental", case) for name, case in INCREMENTAL.items()),
    *((name, "whole", case) for name, case in WHOLE.items()),
]


def check(case: Case, got: Collected) -> None:
    """The message is the case's."""
    assert got.reasoning == case.reasoning
    assert got.content == case.content
    assert [call.name for call in got.calls] == [name for name, _ in case.calls]
    for call, (_, value) in zip(got.calls, case.calls, strict=True):
        if isinstance(value, str):
            assert (call.complete, call.arguments) == (False, value)
        else:
            assert (call.complete, call.value()) == (True, value)
    assert got.faults == case.faults
    assert got.finish == case.finish


@pytest.mark.parametrize(("name", "calls", "case"), ALL, ids=[f"{calls}: {name}" for name, calls, _ in ALL])
def test_case(name: str, calls: Calls, case: Case) -> None:
    """Under every split: the same message, the same events after joining, all bytes owned once."""
    opened = opening(calls=calls)
    first: list[Any] | None = None
    for split, steps in splits(case.text):
        inputs = session(steps, tail=case.tail, finish=case.finish)
        events = semantic(opened, inputs)
        check_stream(events)
        check_partition(inputs, events)
        check(case, message(events))
        if first is None:
            first = merged(events)
        assert merged(events) == first, split


@pytest.mark.parametrize("asked", [{"tools": ()}, {"tool_choice": "none"}], ids=["no tools", "choice none"])
def test_without_tools_call_markers_are_text_and_reasoning_is_not(asked: dict[str, Any]) -> None:
    text = f"<think>\nhm\n</think>\n\nA\n{_NEXT}\n"
    for _, steps in splits(text):
        inputs = session(steps)
        events = semantic(opening(**asked), inputs)
        check_partition(inputs, events)
        got = message(events)
        assert (got.reasoning, got.content, got.calls, got.faults) == ("hm", f"A\n{_NEXT}\n", [], [])


def test_calls_under_whole_come_in_one_step_when_complete() -> None:
    events = semantic(opening(calls="whole"), session(tokens(_call(port="Brest", day=3))))
    kinds = [type(event) for event in events]
    at = kinds.index(CallStart)
    assert Tokens not in kinds[at : kinds.index(CallEnd)]
    assert kinds.count(CallArguments) == 1
