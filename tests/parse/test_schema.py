"""Arguments against a tool's schema: a verdict in bounded time, whatever the client's schema is."""

from __future__ import annotations

import json
import socket
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.schema import checker

DEEP = 150


def verdict(schema: Any, arguments: str) -> str | None:
    """The broken rule, ``fits``, or None where the schema is not used."""
    made = checker(schema)
    return (
        None if made is None else (made.fault(arguments) or "fits").removeprefix("the arguments break the schema at ")
    )


@pytest.mark.parametrize(
    ("schema", "arguments", "want"),
    [
        ({"type": "object"}, '{"a": 1}', "fits"),
        ({"properties": {"a": {"type": "integer"}}}, '{"a": 1.0}', "fits"),
        ({"properties": {"a": {"type": "integer"}}}, '{"a": 1.5}', "properties/a/type"),
        ({"properties": {"a": {"type": "integer"}}}, '{"a": "x", "a": 1}', "fits"),
        ({"additionalProperties": False, "type": "object"}, '{"secret": 1}', "additionalProperties"),
        ({"properties": {"a": {"items": {"enum": ["x"]}}}}, '{"a": ["x", "y"]}', "properties/a/items/enum"),
        ({"properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": {"maxLength": 1}}}, '{"a": "xy"}',
         "$defs/b/maxLength"),
        ({"properties": {"a": {"pattern": "^[a-z]+$"}}}, '{"a": "A"}', "properties/a/pattern"),
        ({"properties": {"a": {"format": "date"}}}, '{"a": "today"}', "fits"),
        ({"properties": {"a": {"type": "string"}}}, '{"a": "\\ud83d"}', "fits"),
        ({"properties": {"a": {"maxLength": 1}}}, '{"a": "\\ud83d\\ude00"}', "fits"),
        ({"properties": {"a": {"maximum": 5}}}, '{"a": 99999999999999999999999999}', "properties/a/maximum"),
        # Older drafts: named, or told by what the newest does not allow.
        ({"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 1,
          "exclusiveMinimum": True, "type": "number"}, '1', "exclusiveMinimum"),
        ({"properties": {"a": {"items": [{"type": "string"}]}}}, '{"a": [1]}', "properties/a/items/0/type"),
        ({"properties": {"a": {"minimum": 1, "exclusiveMinimum": True}}}, '{"a": 1}', "properties/a/exclusiveMinimum"),
        # What OpenAPI says.
        ({"properties": {"a": {"type": "string", "nullable": True}}}, '{"a": null}', "fits"),
        ({"properties": {"a": {"type": ["string"], "enum": ["x"], "nullable": True}}}, '{"a": null}', "fits"),
        ({"properties": {"a": {"type": "string", "nullable": True}}}, '{"a": 1}', "properties/a/type"),
        ({"properties": {"a": {"type": "string", "nullable": False}}}, '{"a": null}', "properties/a/type"),
        ({"properties": {"nullable": {"type": "string"}}}, '{"nullable": null}', "properties/nullable/type"),
    ],
)  # fmt: skip
def test_verdicts(schema: Any, arguments: str, want: str) -> None:
    assert verdict(schema, arguments) == want


def test_the_rule_of_a_recursive_schema_is_not_named() -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": "#"}}}
    assert verdict(schema, '{"a": {"a": {}}}') == "fits"
    assert verdict(schema, '{"a": {"a": 1}}') == "the arguments do not satisfy the tool's schema"


@pytest.mark.parametrize(
    "schema",
    [
        None, {}, {"type": "dict"}, {"type": 5}, {"properties": []}, {"$ref": "#/$defs/none"}, {"$ref": "other.json"},
        {"properties": {"a": {"pattern": "("}}}, {"properties": {"a": {"pattern": "^(?=a)b"}}}, {"required": "a"},
        {"$dynamicRef": "#a"}, {"$defs": {"a": {"$id": "https://example.com/a"}}}, {"const": "\ud800"}, {1: 2},
    ],
)  # fmt: skip
def test_a_schema_that_is_not_used(schema: Any) -> None:
    assert checker(schema) is None


@pytest.mark.parametrize(
    "ref",
    ["https://example.com/a.json", "http://127.0.0.1:9/a", "file:///etc/hostname", "//example.com/a", "a.json#/b"],
)
def test_nothing_is_fetched(ref: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> NoReturn:
        raise AssertionError(args)

    monkeypatch.setattr(socket, "socket", refuse)
    assert checker({"$ref": ref}) is None
    assert checker({"properties": {"a": {"anyOf": [{"$ref": ref}, {"type": "null"}]}}}) is None
    assert verdict({"$schema": ref, "type": "object"}, "{}") in (None, "fits")
    assert verdict({"$id": ref, "type": "object", "properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": False}},
                   "{}") in (None, "fits")  # fmt: skip


@pytest.mark.parametrize(
    "arguments",
    ["", "{", "[NaN]", "[1e999]", "[" + "9" * 5000 + "]", "[" * 201 + "]" * 201, "[" * 500_000, "{" * 500_000, '"\\u"'],
)
def test_what_cannot_be_read_is_not_judged(arguments: str) -> None:
    assert verdict({"type": "string"}, arguments) == "fits"


def test_brackets_in_strings_do_not_nest() -> None:
    text = json.dumps(["[{\\" * 300 + '"'])
    assert verdict({"type": "object"}, text) == "type"
    assert verdict({"type": "object"}, "[" + "[]," * 500 + "[]]") == "type"


def nested(bottom: str, depth: int = DEEP) -> str:
    return '{"x":' * depth + bottom + "}" * depth


AGAIN: dict[str, Any] = {"properties": {"x": {"$ref": "#/$defs/a"}}}
GROWING: dict[str, dict[str, Any]] = {
    "anyOf": {"anyOf": [{"type": "integer"}, AGAIN, {**AGAIN, "minProperties": 0}]},
    "allOf": {"allOf": [AGAIN, {**AGAIN, "minProperties": 0}]},
    "if": {"if": AGAIN, "then": {**AGAIN, "minProperties": 0}, "else": AGAIN},
    "patternProperties": {**AGAIN, "patternProperties": {"x": {"$ref": "#/$defs/a"}}},
    "dependentSchemas": {**AGAIN, "dependentSchemas": {"x": AGAIN}},
}


@pytest.mark.parametrize("name", GROWING)
def test_schemas_that_double_with_every_level(name: str) -> None:
    recursive = {"$ref": "#/$defs/a", "$defs": {"a": {"type": ["object", "integer"], **GROWING[name]}}}
    assert verdict(recursive, nested('"no"')) == "the arguments do not satisfy the tool's schema"
    assert verdict(recursive, nested("1")) == "fits"
    # The same without recursion: each level is a definition of its own.
    chain = {
        f"a{level}": json.loads(json.dumps(GROWING[name]).replace("/a", f"/a{level + 1}")) for level in range(40)
    } | {"a40": {"type": "integer"}}
    assert checker({"$ref": "#/$defs/a0", "$defs": chain}) is None


def test_big_schemas() -> None:
    deep: Any = {"type": "integer"}
    for _ in range(100_000):
        deep = {"anyOf": [deep]}
    assert checker(deep) is None
    assert checker({"properties": {f"p{i}": {"type": "string"} for i in range(20_000)}}) is None
    assert verdict({"properties": {"a": {"enum": list(range(50_000))}}}, '{"a": -1}') == "properties/a/enum"
    loop: dict[str, Any] = {"type": "object"}
    loop["properties"] = {"a": loop}
    assert checker(loop) is None


def test_big_arguments() -> None:
    schema = {"properties": {"a": {"anyOf": [{"items": {"type": "integer"}}, {"items": {"type": "null"}}]}}}
    assert verdict(schema, json.dumps({"a": ["x"]})) == "properties/a/anyOf"
    assert verdict(schema, json.dumps({"a": ["x"] * 100_000})) == "the arguments do not satisfy the tool's schema"
    pattern = {"properties": {"a": {"pattern": "^(a+)+$"}}}
    assert verdict(pattern, json.dumps({"a": "a" * 100_000 + "b"})) != "fits"


def test_a_long_path_is_cut() -> None:
    got = verdict({"properties": {"k" * 1000: {"type": "string"}}}, json.dumps({"k" * 1000: 1}))
    assert got == "properties/" + "k" * 189 + "…"


WORDS = st.sampled_from(
    ["type", "enum", "const", "anyOf", "allOf", "not", "properties", "items", "nullable", "$ref", "$id", "required",
     "additionalProperties", "$defs", "a", "pattern", "$schema", "minimum"]
)  # fmt: skip
SCHEMA = st.recursive(
    st.sampled_from(["string", "integer", "object", "null", "#", "#/$defs/a", "#/a", "x:y", True, False, None, 1, "a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=16,
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(WORDS, SCHEMA, max_size=5), JSON)
def test_any_schema_and_any_arguments(schema: dict[str, Any], arguments: Any) -> None:
    text = json.dumps(arguments)
    first = verdict(schema, text)
    assert verdict(schema, text) == first
