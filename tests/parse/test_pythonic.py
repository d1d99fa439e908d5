"""Pythonic formats: what the worked examples cannot say. Python's own reading, what waits for what, echoes, limits."""

from __future__ import annotations

import ast
import json
import warnings
from typing import Any

import pytest

from stages.events import CallArguments, CallStart, Content, Semantic
from stages.opening import Tool
from stages.stage import fold
from tests.support.format_checks import POLICIES, Policy, Subject, splits, text_splits
from tests.support.generate.family import Family, tokenize
from tests.support.generate.pythonic import FAMILIES, SCOUT
from tests.support.parse import TOOLS, Collected, check_resume, grouped, merged, message, opening, session, texts
from tests.support.work import work

BY_NAME: dict[str, Family] = {family.name: family for family in FAMILIES}
START, END = "<|tool_call_start|>", "<|tool_call_end|>"


def run(family: str, raw: str, calls: Policy = "incremental", tools: tuple[Tool, ...] = TOOLS) -> Collected:
    """What an output says; the same under every split, with ids and without."""
    subject = Subject(BY_NAME[family], raw, "", tools)
    first: list[Any] | None = None
    for split, steps in (*splits(subject), *text_splits(subject)):
        got = subject.events(steps, calls)
        first = first or merged(got)
        assert merged(got) == first, split
    return message(subject.events(next(splits(subject))[1], calls))


def sent(family: str, raw: str, tools: tuple[Tool, ...] = TOOLS) -> list[str]:
    """What each character of an output sends: arguments, content, and ``name(``."""
    subject = Subject(BY_NAME[family], raw, "", tools)
    machine = subject.stage("incremental").start(subject.opened("incremental"))
    told: list[str] = []
    for event in session(texts(raw)):
        out: list[Semantic] = []
        machine.step(event, out)
        shown = [e.name + "(" if isinstance(e, CallStart) else e.text for e in out
                 if isinstance(e, CallStart | CallArguments | Content)]  # fmt: skip
        told.append("".join(shown))
    return told[1:]


# --- values ----------------------------------------------------------------------------------------------------------

LITERALS = (
    r"'\x41\x7f\u00e9\U0001F600'", r"'\101\7\08\777'", r"'\a\b\f\n\r\t\v\0'", r"'\d\q\8'", r"'\\\'\"'", "'a\\\nb'",
    r"'\N{BULLET}\N{LATIN SMALL LETTER E WITH ACUTE}'", r"r'\n\'\\'", r"R'\d'", "u'x'", "'a' 'b'", "'a' \"b\"'''c'''",
    "('a'\n'b')", "'''a'b''c\n'''", '"""a"b""c"""', "''", '""', "''''''", "'' 'a'", "'é日😀'", "'{}'", "'</x>'",
    "0", "00", "-0", "1_000", "0x1F", "0X_1f", "0o17", "0b101", "-0b1", "1.5", ".5", "5.", "1e3", "1E-3", "1_0.5_0e1_0",
    "-2.5e+3", "123456789012345678901234567890", "True", "False", "None",
    "[]", "[1]", "[1,]", "[[], [[]]]", "()", "(1,)", "(1)", "((1))", "((1,),)", "(1, 2,)", "('a')", "{}", "{1}",
    "{'a', }", "{'a': 1}", "{'a': {'b': [1]}, }", "{'a': (1)}", "[{}, {1}, ()]", "{('a', 1)}", "{'a' 'b': 'c' 'd'}",
    "{('a'): 1}", "[ 1 , 2 ]", "{ 'a' : 1 }", "[\n1\n,\n2\n]", "[-1, -.5]", "[True, None, 'x', \"y\"]",
)  # fmt: skip


def plain(value: Any) -> Any:
    """A Python value as JSON has it."""
    kind: Any = value.__class__
    if kind is dict:
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if kind in (list, tuple, set) else value


@pytest.mark.parametrize("literal", LITERALS)
def test_a_literal_is_what_python_reads(literal: str) -> None:
    got = run("pythonic", f"[tide(a={literal}, b=1)]")
    assert [call.complete for call in got.calls] == [True]
    value = got.calls[0].value()["a"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # escapes that Python keeps as they are, but does not like
        want = plain(ast.literal_eval(literal))
    assert value == want
    assert type(value) is type(want)


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("f'a'", "a"),
        ("f'{{}}'", "{}"),
        (r"rf'\d{{\'}}'", r"\d{\'}"),
        ("F'''{{a}}'''", "{a}"),
        ("'a' f'{{' r'b'", "a{b"),
    ],
)
def test_a_format_string_without_placeholders_is_a_string(literal: str, value: str) -> None:
    assert run("pythonic", f"[tide(a={literal})]").calls[0].value() == {"a": value}


@pytest.mark.parametrize(
    "literal",
    ["1__0", "1_", "_1", "0x", "1e", "1e400", "1j", "1.2.3", "0xG", "True1", "tru", "nan", "b'x'", "f'{x}'", "f'}'",
     "[1 2]", "[,]", "{1: 2, 3}", "{1, 2: 3}", "{[1]: 2}", "{(1,): 2}", "{'a':}", "x", "x.y", "f()", "*a", "...", "+1",
     "- 1", "not 1", "1 if 2 else 3", "[1)", "(1]", "{1]", "'a' % 1", "'a'.b()", "lambda: 1"],
)  # fmt: skip
def test_what_is_no_literal_breaks_the_call(literal: str) -> None:
    raw = f"[tide(z=1, a={literal}), moon()]"
    got = run("pythonic", raw)
    assert got.faults[0] == "bad_arguments"
    assert [(call.name, call.complete) for call in got.calls][:1] == [("tide", False)]
    assert got.calls[0].arguments.startswith('{"z": 1, "a": ')
    assert run("pythonic", raw, "whole").calls == []
    assert (run("pythonic", raw, "whole").content or "").startswith(f"[tide(z=1, a={literal[:1]}")


def test_the_arguments_are_what_was_written_as_json() -> None:
    got = run("pythonic", "[tide(a='x', b=[1, {'k': None}], c=(True,), d='\\u00e9\"')]")
    assert got.calls[0].arguments == '{"a": "x", "b": [1, {"k": null}], "c": [true], "d": "é\\""}'


# --- when it goes out ------------------------------------------------------------------------------------------------


def test_every_piece_goes_out_as_soon_as_it_is_sure() -> None:
    raw = "[tide(a='it', n=12, l=[1, {'k': 'v'}], p=(3), s={4}), moon()]"
    told = sent("pythonic", raw)
    places = (
        "[tide", "tide(", "a=", "'i", "'it', n", "n=", "12", "12,", "l=", "[1", "[1,", "{'k'", "{'k':", "'v", "}]",
        "p=(3", "p=(3)", "s={4", "s={4}", "4}),", "moon(", "moon()",
    )  # fmt: skip
    at = {place: "".join(told[: raw.index(place) + len(place)]) for place in places}
    assert at["[tide"] == ""
    assert at["tide("] == "tide("
    assert at["a="] == 'tide({"a": '
    assert at["'i"] == 'tide({"a": "i'
    assert at["'it', n"] == 'tide({"a": "it'
    assert at["n="] == 'tide({"a": "it", "n": '
    assert at["12"] == at["n="]
    assert at["12,"] == at["n="] + "12"
    assert at["l="] == at["12,"] + ', "l": '
    assert at["[1"] == at["l="] + "["
    assert at["[1,"] == at["l="] + "[1"
    assert at["{'k'"] == at["[1,"]
    assert at["{'k':"] == at["[1,"] + ', {"k": '
    assert at["'v"] == at["{'k':"] + '"v'
    assert at["}]"] == at["'v"] + '"}]'
    assert at["p=(3"] == at["}]"] + ', "p": '
    assert at["p=(3)"] == at["p=(3"] + "3"
    assert at["s={4"] == at["p=(3)"] + ', "s": '
    assert at["s={4}"] == at["s={4"] + "[4]"
    assert at["4}),"] == at["s={4}"] + "}"
    assert at["moon("] == at["4}),"] + "moon("
    assert at["moon()"] == at["moon("] + "{}"


def test_an_answer_in_brackets_waits_for_a_name_that_is_no_tool() -> None:
    told = sent("pythonic", "[note(see below)]")
    assert told[:5] == [""] * 5
    assert told[5] == "[note("


# --- repairs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("'l'eau d'ici'", "l'eau d'ici"),
        ("'say 'no' or 'yes''", "say 'no' or 'yes'"),
        ("'a', 'b' and c'", "a', 'b' and c"),
        ("'f(x='a') + 'b''", "f(x='a') + 'b'"),
        ("'x = ['a', 'b']'", "x = ['a', 'b']"),
        ("'{'a': 1}'", "{'a': 1}"),
        ("'don't, b is'", "don't, b is"),
        ("'(the 'one') is'", "(the 'one') is"),
        ("'a' 'b'", "a' 'b"),
        ("'C:\\dir'", "C:\\dir"),
        ('"say "hi" now"', 'say "hi" now'),
    ],
)
def test_lfm2_writes_quotes_as_they_are(written: str, value: str) -> None:
    got = run("lfm2", f"{START}[tide(z=1, a={written}, b='x'), moon()]{END}")
    assert [call.value() for call in got.calls] == [{"z": 1, "a": value, "b": "x"}, {}]
    got = run("lfm2", f"{START}[tide(a={written})]{END}")
    assert [call.value() for call in got.calls] == [{"a": value}]


@pytest.mark.parametrize("calls", POLICIES)
def test_lfm2_repeats_itself(calls: Policy) -> None:
    for block in ("[tide(port='Brest'), moon()]", '[{"name": "moon", "arguments": {}}]', "\n[moon()]\n"):
        got = run("lfm2", f"{START}{block}{END}{block.strip()}{END}\nDone.", calls)
        assert (got.content, got.faults) == ("Done.", [])
        got = run("lfm2", f"{START}{block}{END}\n{block.strip()} was it.", calls)
        assert (got.content, got.faults) == (f"{block.strip()} was it.", [])
        got = run("lfm2", f"{START}{block}{END}{block.strip()[:-3]}", calls)
        assert (got.content, got.faults) == (block.strip()[:-3], [])


# --- what breaks -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("calls", POLICIES)
def test_text_behind_a_broken_call_arrives(calls: Policy) -> None:
    for body in ("tide(a=x", "tide(a='x", "tide(a=[x, (", "tide(a=it's)]", "tide(a={1: }, b='\\'', c"):
        got = run("pythonic", f"[moon(), {body}\n\nThe end.", calls)
        assert (got.content or "").endswith("The end.") or got.faults[-1] == "unclosed_call", body


def test_a_value_too_long_to_hold() -> None:
    opened = opening("pythonic", tokenizer=BY_NAME["pythonic"].tokenizer, max_held=2000)
    stage = Subject(BY_NAME["pythonic"], "", "", TOOLS).stage("incremental")
    raw = f"[tide(z='{'x' * 5000}', a={'1' * 5000})] end"
    for size in (1, 7, 10000):
        steps = texts(raw[i : i + size] for i in range(0, len(raw), size))
        got = message(fold(stage.start(opened), session(steps)))
        assert got.faults == ["held_overflow"]
        assert [call.complete for call in got.calls] == [False]
        assert got.calls[0].arguments == '{"z": "' + "x" * 5000 + '", "a": '
        assert got.content == "1" * 5000 + ")] end"


@pytest.mark.parametrize(("left", "right"), [("[", "]"), ("(", ",)"), ("{'k': ", "}"), ("{", "}"), ("[(", ",)]")])
def test_nothing_is_too_deep(left: str, right: str) -> None:
    raw = f"[tide(a={left * 3000}{'{1}' if left == '{' else '1'}{right * 3000}, b=2)]"
    subject = Subject(BY_NAME["pythonic"], raw, "", TOOLS)
    pieces = tokenize(raw, SCOUT, 50)
    inputs = session(grouped(pieces, [1] * len(pieces)))
    got = message(fold(subject.stage("incremental").start(subject.opened("incremental")), inputs))
    assert [call.complete for call in got.calls] == [True]
    assert got.calls[0].arguments.endswith(', "b": 2}')
    check_resume(subject.stage("whole"), subject.opened("whole"), inputs[:20])


# --- cost ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "head", "part"),
    [
        ("lfm2", f"{START}[tide(a='", "it's, b is ('no') "), ("lfm2", f"{START}[tide(a='b'", " "),
        ("lfm2", f"{START}[tide(a='b',", " "), ("lfm2", f"{START}[tide(a='b', c", "c"), ("pythonic", "[tide(a=", "("),
        ("pythonic", "[tide(a=", "{'k': "), ("pythonic", "[tide(a=", "{'k', "), ("pythonic", "[tide(a=1", "1"),
        ("pythonic", "[tide(a='", "\\x41\\u00e9\\d"), ("pythonic", "[tide(a='b' ", "'c' "), ("pythonic", "[", "x"),
        ("pythonic", "[tide(a=x", "('b', [1]) "), ("pythonic", "[tide(", " "), ("pythonic", "[tide(a", "a"),
        ("pythonic", "[moon()", ", moon(x)"), ("olmo3", "<function_calls>moon(x)", "'<' "),
    ],
)  # fmt: skip
def test_hostile_output_costs_no_more_where_it_is_long(family: str, head: str, part: str) -> None:
    size = max(1, 300 // len(part))
    few, lots = (work(Subject(BY_NAME[family], head + part * many, "", TOOLS)) for many in (size, size * 8))
    assert lots <= few * 8 * 1.3


def test_llama4_reads_strings_by_the_schema() -> None:
    tool = Tool(
        "tide", parameters={"type": "object", "properties": {"n": {"type": "integer"}, "s": {"type": "string"}}}
    )
    got = run("llama4_pythonic", '[tide(n="12", s="12"), tide(n=r"7", s="a" "b")]', tools=(tool,))
    assert [call.value() for call in got.calls] == [{"n": 12, "s": "12"}, {"n": 7, "s": "ab"}]
    told = sent("llama4_pythonic", '[tide(n="12", s="12")]', (tool,))
    assert "".join(told[:11]) == 'tide({"n": '
    assert "".join(told[:17]) == 'tide({"n": 12, "s": '
    assert json.loads(got.calls[0].arguments) == {"n": 12, "s": "12"}
    assert got.faults == []
