"""Brace notation: what the worked examples cannot say. What waits for what, types inside containers, limits, cost."""

from __future__ import annotations

from typing import Any

import pytest

from stages.events import CallArguments, CallStart, Semantic
from stages.opening import Tool
from stages.stage import fold
from tests.support.format_checks import POLICIES, Policy, Subject, splits, text_splits
from tests.support.generate.brace import FAMILIES
from tests.support.generate.family import Family, tokenize
from tests.support.parse import TOOLS, Collected, check_resume, grouped, merged, message, opening, session, texts
from tests.support.work import work

BY_NAME: dict[str, Family] = {family.name: family for family in FAMILIES}
OPEN, CLOSE, Q = "<|tool_call>", "<tool_call|>", '<|"|>'


def run(raw: str, calls: Policy = "incremental", tools: tuple[Tool, ...] = TOOLS, family: str = "gemma4") -> Collected:
    """What an output says; the same under every split, with ids and without."""
    subject = Subject(BY_NAME[family], raw, "", tools)
    first: list[Any] | None = None
    for split, steps in (*splits(subject), *text_splits(subject)):
        got = merged(subject.events(steps, calls))
        first = first or got
        assert got == first, split
    return message(subject.events(next(splits(subject))[1], calls))


def call(inside: str, name: str = "tide") -> str:
    return f"{OPEN}call:{name}{{{inside}}}{CLOSE}"


def sent(raw: str, tools: tuple[Tool, ...] = TOOLS) -> str:
    """What an output has sent of its calls before it ends, by one character a token: names and arguments."""
    subject = Subject(BY_NAME["gemma4"], raw, "", tools)
    machine = subject.stage("incremental").start(subject.opened("incremental"))
    out: list[Semantic] = []
    pieces = tokenize(raw, subject.family.tokenizer, 1)
    for event in session(grouped(pieces, [1] * len(pieces)))[: len(pieces) + 1]:
        machine.step(event, out)
    return "".join(
        event.name + "(" if isinstance(event, CallStart) else event.text
        for event in out
        if isinstance(event, CallStart | CallArguments)
    )


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (f"{OPEN}call:tide", ""),
        (f"{OPEN}call:tide{{", "tide({"),
        (f"{OPEN}call:tide{{port", "tide({"),
        (f"{OPEN}call:tide{{port:", 'tide({"port": '),
        (f"{OPEN}call:tide{{port:{Q}", 'tide({"port": "'),
        (f"{OPEN}call:tide{{port:{Q}B", 'tide({"port": "B'),
        (f"{OPEN}call:tide{{day:12", 'tide({"day": '),
        (f"{OPEN}call:tide{{day:12,", 'tide({"day": 12'),
        (f"{OPEN}call:tide{{day:12,p:", 'tide({"day": 12, "p": '),
        (f"{OPEN}call:tide{{city:Paris,", 'tide({"city": '),
        (f"{OPEN}call:tide{{city:Paris,p:", 'tide({"city": "Paris", "p": '),
        (f"{OPEN}call:tide{{at:[", 'tide({"at": ['),
        (f"{OPEN}call:tide{{at:[{Q}6{Q},", 'tide({"at": ["6"'),
        (f"{OPEN}call:tide{{at:[x,y", 'tide({"at": ["x"'),
        (f"{OPEN}call:tide{{o:{{k:{Q}v", 'tide({"o": {"k": "v'),
        (f"{OPEN}call:tide{{o:{{}}", 'tide({"o": {}'),
        (f"{OPEN}call:tide{{o:{{}}}}", 'tide({"o": {}}'),
    ],
)
def test_every_piece_goes_out_as_soon_as_it_is_sure(raw: str, told: str) -> None:
    assert sent(raw) == told


def test_types_reach_into_containers() -> None:
    item = {"type": "object", "properties": {"s": {"type": "string"}, "n": {"type": "number"}}}
    schema = {
        "type": "object",
        "properties": {
            "l": {"type": "array", "items": item},
            "o": {"type": "object", "properties": {"deep": {"type": "array", "items": {"type": "string"}}, "any": {}}},
            "u": {"type": ["string", "integer"]},
        },
    }
    tools = (Tool("tide", parameters=schema),)
    raw = call(f"l:[{{s:1,n:2}},{{n:3,s:true,x:4}}],o:{{deep:[1,null,{Q}2{Q}],any:5,other:true}},u:7,v:8")
    for calls in POLICIES:
        assert run(raw, calls, tools).calls[0].value() == {
            "l": [{"s": "1", "n": 2}, {"n": 3, "s": "true", "x": 4}],
            "o": {"deep": ["1", "null", "2"], "any": 5, "other": True},
            "u": 7,
            "v": 8,
        }


@pytest.mark.parametrize(
    "inside",
    ["a", "a,b:1", "a:1}}", "a:[1", "a:{b:1]", "a:[1}", ":1", "a::[", "{a:1}", "a:[,]", 'a:"x" y', f"a:{Q}x{Q}y",
     "a:1,,b:2", "[1]", "a:{b}", f"a:b{Q}c"],
)  # fmt: skip
def test_what_breaks_a_call_spares_the_next(inside: str) -> None:
    got = run(call(inside) + call("b:1", "moon") + "Done.")
    if inside != "a:1}}" and inside != "a::[":
        assert got.calls[0].complete is False
        assert got.faults[0] == "bad_arguments"
    assert got.calls[-1].name == "moon"
    assert got.calls[-1].value() == {"b": 1}
    assert (got.content or "").endswith("Done.")
    got = run(call(inside) + call("b:1", "moon") + "Done.", "whole")
    assert all(one.complete for one in got.calls)
    assert got.calls[-1].name == "moon"


def test_an_answer_that_begins_like_a_call() -> None:
    for raw in (
        "c",
        "call",
        "call me",
        "call:",
        "call:tide",
        "call:lunch{a:1}",
        "call: the tide {x}",
        "calling:tide{}",
    ):
        got = run(raw)
        assert (got.content, got.calls, got.faults) == (raw, [], [])


def test_a_value_too_long_to_hold() -> None:
    stage = Subject(BY_NAME["gemma4"], "", "", TOOLS).stage("incremental")
    opened = opening("gemma4", tokenizer=BY_NAME["gemma4"].tokenizer, max_held=2000)
    raw = f"{OPEN}call:tide{{z:{Q}{'x' * 5000}{Q},a:{'1' * 5000}}}{CLOSE} end"
    for size in (1, 7, 10000):
        steps = texts(raw[i : i + size] for i in range(0, len(raw), size))
        got = message(fold(stage.start(opened), session(steps)))
        assert got.faults == ["held_overflow"]
        assert [one.complete for one in got.calls] == [False]
        assert got.calls[0].arguments == '{"z": "' + "x" * 5000 + '", "a": '
        assert got.content == "1" * 5000 + "}end"


@pytest.mark.parametrize(("left", "right"), [("[", "]"), ("{k:", "}"), ("[{k:", "}]")])
def test_nothing_is_too_deep(left: str, right: str) -> None:
    raw = call(f"a:{left * 3000}1{right * 3000},b:2")
    subject = Subject(BY_NAME["gemma4"], raw, "", TOOLS)
    pieces = tokenize(raw, subject.family.tokenizer, 50)
    inputs = session(grouped(pieces, [1] * len(pieces)))
    got = message(fold(subject.stage("incremental").start(subject.opened("incremental")), inputs))
    assert [one.complete for one in got.calls] == [True]
    assert got.calls[0].arguments.endswith(', "b": 2}')
    check_resume(subject.stage("whole"), subject.opened("whole"), inputs[:20])


@pytest.mark.parametrize(
    ("head", "part"),
    [("a:", "word, other "), ("a:", "x,y z,"), ("a:", "[1,{"), ("a:", "1"), ("a:b,", "c "), ("a:b,", " "), ("a", "b"),
     ("a:[", "1,"), ("a:", "{k:["), ('a:"', '\\u00e9"'), ("a:", "<|"), ("a:b", ",c:d:"), ("a:[", "{k:1},")],
)  # fmt: skip
def test_hostile_output_costs_no_more_where_it_is_long(head: str, part: str) -> None:
    size = max(1, 300 // len(part))
    few, lots = (
        work(Subject(BY_NAME["gemma4"], f"{OPEN}call:tide{{{head}{part * many}", "", TOOLS))
        for many in (size, size * 8)
    )
    assert lots <= few * 8 * 1.3
