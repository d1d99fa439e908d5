"""The XML engine where the shared tests do not look: fragments as they go out, text that waits, cost, and limits."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

from stages import catalog
from stages.events import CallArguments, CallStart, FinishReason, Input, Semantic, TokensInput
from stages.opening import TokenizerFacts, Tool
from stages.parse.engines import xml_heads as heads
from stages.stage import fold
from tests.support.parse import (
    Collected,
    check_partition,
    check_stream,
    message,
    opening,
    session,
    splits,
    texts,
)

TIDE = Tool(
    "tide", parameters={"type": "object", "properties": {"port": {"type": "string"}, "day": {"type": "integer"}}}
)
MOON = Tool("moon", parameters={"type": "object", "properties": {}})
FACTS = TokenizerFacts(special={"<|im_end|>": 151645}, eos=(151645,))
CLOSED = "\n</parameter>\n</function>\n</tool_call>"


def parsed(text: str, parser: str = "qwen3-xml", **fields: Any) -> Collected:
    """The message; equal under every split, and every byte in its place."""
    opened = opening(parser, tokenizer=FACTS, tools=(TIDE, MOON), **fields)
    found: Collected | None = None
    for name, steps in splits(text, FACTS):
        inputs: list[Input] = session(steps, tail="")
        events = fold(catalog.parser(parser).start(opened), inputs)
        check_stream(events)
        check_partition(inputs, events)
        got = message(events)
        found = found or got
        assert got == found, name
    assert found is not None
    return found


def fragments(text: str, parser: str = "qwen3-xml") -> list[str]:
    """The call as it goes out, a character a step."""
    opened = opening(parser, tokenizer=FACTS, tools=(TIDE, MOON))
    events = fold(catalog.parser(parser).start(opened), session(texts(text), tail="", finish="length"))
    sent: list[str] = []
    for event in events:
        if isinstance(event, CallStart):
            sent.append(event.name)
        elif isinstance(event, CallArguments):
            sent.append(event.text)
    return sent


def test_name_key_and_characters_go_out_as_they_come() -> None:
    call = "<tool_call>\n<function=tide>\n<parameter=port>\nBre"
    assert fragments(call) == ["tide", '{"port": "', "B", "r", "e"]
    # What may be the end waits for what follows it.
    assert fragments(call + "\n</para") == ["tide", '{"port": "', "B", "r", "e"]
    assert fragments(call + "\n</parameter>\n")[-1] == "e"
    assert fragments(call + "\n</parameter>\nx")[-2:] == ["\\n</parameter>\\n", "x"]
    assert fragments(call + " </parameter> ")[-1] == " "
    assert fragments(call + " </parameter> o")[-2:] == ["</parameter> ", "o"]


def test_a_value_that_is_no_string_waits_for_its_end() -> None:
    call = "<tool_call>\n<function=tide>\n<parameter=day>\n3\n</parameter>\n"
    assert fragments(call) == ["tide", '{"day": ']
    assert fragments(call + "</function>") == ["tide", '{"day": ', "3", "}"]


def test_white_space_at_the_end_of_a_trimmed_value_waits() -> None:
    lead = "</think><｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜>"
    call = lead + '<steptml:invoke name="tide"><steptml:parameter name="port"> a b  '
    assert fragments(call, "step3") == ["tide", '{"port": "', "a", " ", "b"]
    assert fragments(call + "c", "step3") == ["tide", '{"port": "', "a", " ", "b", "  ", "c"]


@pytest.mark.parametrize(
    ("rest", "content"),
    [("\n</tool_call>\nSo.\n", "So."), ("\n</tool_call>\n", None), (" So,\nyes.", "So,\nyes."), ("", None)],
)
def test_text_behind_a_call_whose_value_was_not_closed(rest: str, content: str | None) -> None:
    call = "<tool_call>\n<function=tide>\n<parameter=port>\nBrest\n</function>"
    got = parsed(f"{call}{rest}<tool_call>\n<function=moon>\n</function>\n</tool_call>")
    assert [(c.name, c.value()) for c in got.calls] == [("tide", {"port": "Brest"}), ("moon", {})]
    assert (got.content, got.faults) == (content, [])


def test_an_output_that_was_cut_ends_no_value() -> None:
    text = "<tool_call>\n<function=tide>\n<parameter=port>\nBrest\n</function>\n</tool_call>"
    opened = opening("qwen3-xml", tokenizer=FACTS, tools=(TIDE,))
    ends: tuple[tuple[FinishReason, bool], ...] = (("eos", True), ("length", False))
    for finish, complete in ends:
        inputs = session(texts(text), tail="", finish=finish)
        got = message(fold(catalog.parser("qwen3-xml").start(opened), inputs))
        assert [call.complete for call in got.calls] == [complete]


def test_a_value_may_hold_a_whole_call() -> None:
    inner = "<tool_call>\n<function=moon>\n</function>\n</tool_call>"
    text = f"<tool_call>\n<function=tide>\n<parameter=port>\n{inner}{CLOSED}"
    assert parsed(text).calls[0].value() == {"port": inner}


@pytest.mark.parametrize("calls", ["incremental", "whole"])
def test_what_waits_too_long_is_content(calls: Any) -> None:
    # Behind the line </function> nothing is decided until the value's end.
    text = "<tool_call>\n<function=tide>\n<parameter=port>\na\n</function>\n" + "b" * 300
    got = parsed(text, max_held=200, calls=calls)
    assert got.faults == ["held_overflow"]
    assert got.content is not None
    assert got.content.endswith("b" * 300)


@pytest.mark.parametrize(
    ("text", "name", "end"),
    [
        ("tide>", "tide", 5), (" tide >", "tide", 7), ('"tide">', "tide", 7), ("tide\n<", "tide", 4),
        (" 'tide' >x", "tide", 9), ("a b>", "a b", 4),
    ],
)  # fmt: skip
def test_heads_behind_an_equals_sign(text: str, name: str, end: int) -> None:
    head = heads.read(text, 0, equals=True)
    assert (text[slice(*head.name)], head.end) == (name, end)
    for i in range(end - 1):
        assert heads.read(text[:i], 0, equals=True) is heads.PARTIAL


@pytest.mark.parametrize(
    ("text", "name", "rest", "empty"),
    [
        (' name="tide">', "tide", {}, False),
        ("name='tide' >", "tide", {}, False),
        (" name=tide>", "tide", {}, False),
        ('\n string="true" name="a>b" />', "a>b", {"string": "true"}, True),
        (' name = "a" string = "false">', "a", {"string": "false"}, False),
    ],
)
def test_heads_of_attributes(text: str, name: str, rest: dict[str, str], empty: bool) -> None:
    head = heads.read(text + "x", 0, equals=False)
    assert (text[slice(*head.name)], head.end, head.empty) == (name, len(text), empty)
    assert {key: value for key, value in head.attributes.items() if key != "name"} == rest
    for i in range(len(text)):
        assert heads.read(text[:i], 0, equals=False) is heads.PARTIAL, text[:i]


@pytest.mark.parametrize("text", [" name>", ' nam="x">', ">", " the tool", ' name="x" <', ' name="">', "<", " name=<"])
def test_what_is_no_head_of_attributes(text: str) -> None:
    assert heads.read(text, 0, equals=False) is heads.WRONG


def test_a_long_head_is_none() -> None:
    for text in ("x" * 600, "x" * 600 + ">"):
        assert heads.read(text, 0, equals=True) is heads.WRONG
        assert heads.read(f' name="{text}', 0, equals=False) is heads.WRONG
    assert heads.read(f' name="{"x" * 600}">', 0, equals=False) is heads.WRONG


WAITING = {
    "white space behind a closer": ("<tool_call>\n<function=tide>\n<parameter=port>\na\n</parameter>", " "),
    "text behind a line that may be the end": ("<tool_call>\n<function=tide>\n<parameter=port>\na\n</function>", "b "),
    "closers": ("<tool_call>\n<function=tide>\n<parameter=port>\na", "\n</parameter>"),
    "opened tags": ("<tool_call>\n<function=tide>\n<parameter=port>\na", "\n<parameter=k"),
    "a head": ("<tool_call>\n<function=", "n"),
    "junk": ("<tool_call>\n<function=tide>\n", "x "),
    "a held value": ("<tool_call>\n<function=tide>\n<parameter=day>\n", "1\n"),
    "newlines": ("<tool_call>\n<function=tide>\n<parameter=port>\n", "\n"),
}


@pytest.mark.parametrize("name", WAITING)
def test_what_waits_costs_no_more_the_longer_it_is(name: str) -> None:
    start, piece = WAITING[name]
    # A head has an end.
    less = heads.MOST + 100 if name == "a head" else 100
    few, many = (_cost(start + piece * count) / count for count in (less, 4 * less))
    assert many < 1.5 * few + 20, f"{few:.0f} characters and calls a piece become {many:.0f}"


def _cost(text: str) -> float:
    steps: list[TokensInput] = texts(text)
    machine = catalog.parser("qwen3-xml").start(opening("qwen3-xml", tokenizer=FACTS, tools=(TIDE,)))
    inputs = session(steps, tail="")
    total = 0

    def count(frame: FrameType, event: str, _: Any) -> None:
        nonlocal total
        if event == "call":
            code = frame.f_code
            names = code.co_varnames[: code.co_argcount]
            total += 1 + sum(len(value) for name in names if isinstance(value := frame.f_locals.get(name), str))

    done: list[Semantic] = []
    sys.setprofile(count)
    try:
        for event in inputs[:-2]:
            machine.step(event, done)
    finally:
        sys.setprofile(None)
    return total
