"""Nested namespaced XML beyond the examples: schemas inside schemas, strings as they come, bounds."""

from __future__ import annotations

from typing import Any

import pytest

from stages.events import CallArguments
from stages.opening import Tool
from tests.support.format_checks import POLICIES, Policy, Subject, check_invariance
from tests.support.generate import families
from tests.support.generate.nested_xml import NS
from tests.support.parse import Collected, tokens

FAMILY, SPELLED = families("nested_xml")


def one(inside: str, properties: dict[str, Any], calls: Policy = "incremental", close: bool = True) -> Collected:
    """What comes of a call with these elements (``N`` is the namespace token) under every split."""
    tools = (Tool("tide", parameters={"type": "object", "properties": properties}),)
    end = "N</invoke>N</tool_call>" if close else ""
    raw = f'N<tool_call>N<invoke name="tide">{inside}{end}'.replace("N<", NS + "<").replace("N!", NS)
    found = [
        check_invariance(Subject(family, raw, family.tails["plain"], tools), calls, valid=False)
        for family in (FAMILY, SPELLED)
    ]
    assert found[0] == found[1]
    return found[0]


def value(inside: str, schema: dict[str, Any]) -> Any:
    """The parameter ``a``."""
    got = one(inside, {"a": schema})
    assert [call.complete for call in got.calls] == [True], got
    return got.calls[0].value()["a"]


OBJECT = {"type": "object", "properties": {"n": {"type": "integer"}, "s": {"type": "string"}}}
NUMBERS = {"type": "array", "items": {"type": "integer"}}


@pytest.mark.parametrize(
    ("inside", "schema", "expected"),
    [
        ("N<a>12N</a>", {"type": "integer"}, 12),
        ("N<a> TrueN</a>", {"type": "boolean"}, True),
        ("N<a>nullN</a>", {"type": ["string", "null"]}, None),
        ("N<a>12N</a>", {"anyOf": [{"type": "string"}, {"type": "null"}]}, "12"),
        ("N<a>\n  N<n>1N</n>\n  N<s>\n1\nN</s>\nN</a>", OBJECT, {"n": 1, "s": "\n1\n"}),
        ("N<a>N<item>N<n>1N</n>N</item>N<item>N</item>N</a>", {"type": "array", "items": OBJECT}, [{"n": 1}, {}]),
        ("N<a>N<item>N<item>1N</item>N</item>N<item>N</item>N</a>", {"type": "array", "items": NUMBERS}, [[1], []]),
        ("N<a>N<x>1N</x>N<x>2N</x>N</a>", NUMBERS, [1, 2]),
        ("N<a>N<item>1N</item>N</a>", NUMBERS, [1]),
        ("N<a>N<item>1N</item>N</a>", {"type": "object", "properties": {"item": {"type": "integer"}}}, {"item": 1}),
        ("N<a>1N</a>N<a>2N</a>\nN<a>3N</a>", NUMBERS, [1, 2, 3]),
        ("N<a>N<item>1N</item>N</a>N<a>2N</a>", NUMBERS, [1, 2]),
        ("N<a>N<k>7N</k>N</a>", {"type": "object", "additionalProperties": {"type": "integer"}}, {"k": 7}),
        ("N<a>N<n>1N</n>N</a>", {"$ref": "#/$defs/no"}, {"n": "1"}),
        ("N<a>N!xN!N<b>yN</b>N</a>", {}, {"$text": "x", "b": "y"}),
        ("N<a>x<b>yN</a>", {"type": "string"}, "x<b>y"),
        ("N<a>N<b>N<a>N</a>N</b>N</a>", {"type": "string"}, "<b><a></a></b>"),
        ("N<a>N<>N<bN</a>", {"type": "string"}, "<><b"),
        (f"N<a>N<{'t' * 300}>N</a>", {"type": "string"}, f"<{'t' * 300}>"),
    ],
)  # fmt: skip
def test_values_follow_the_schema(inside: str, schema: dict[str, Any], expected: Any) -> None:
    assert value(inside, schema) == expected


@pytest.mark.parametrize("calls", POLICIES)
def test_elements_deeper_than_any_schema_break_the_call(calls: Policy) -> None:
    got = one("N<a>" + "N<b>" * 5000, {}, calls)
    assert got.faults == ["bad_arguments"]
    assert len(got.calls) == (calls == "incremental")
    assert value("N<a>" + "N<item>" * 60 + "N</item>" * 60 + "N</a>", {"type": "array"})[0][0][0]


def test_a_string_goes_out_as_it_comes_and_other_values_when_they_end() -> None:
    raw = f'{NS}<tool_call>{NS}<invoke name="tide">{NS}<a>Brest and{NS}</a>{NS}<b>12{NS}</b>'
    tools = (
        Tool("tide", parameters={"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}}),
    )
    subject = Subject(FAMILY, raw, FAMILY.tails["plain"], tools, "length")
    events = subject.events(tokens(raw, FAMILY.tokenizer), "incremental")
    sent = [event.text for event in events if isinstance(event, CallArguments)]
    assert sent == ['{"a": "', *sent[1:-2], '"', ', "b": 12']
    assert len(sent) > 4
    assert "".join(sent[1:-2]) == "Brest and"


def test_the_only_lists_that_wait_are_arrays() -> None:
    got = one("N<a>1N</a>N<b>2N</b>N<a>3N</a>", {"a": NUMBERS, "b": {"type": "integer"}}, close=False)
    assert got.calls[0].arguments == '{"a": 1, "b": 2'
    assert got.faults == ["unclosed_call"]
