"""Schemas as grammars are made of them."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline.engines.schemas import refused, writable
from stages.parse.spellings.patterns import translated
from stages.schema_size import WIDEST, size

NAME: dict[str, Any] = {"type": "object", "properties": {"name": {"type": "string"}}}
CLOSED: dict[str, Any] = {**NAME, "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "want"),
    [
        (NAME, CLOSED),
        ({"type": "array", "items": NAME}, {"type": "array", "items": CLOSED}),
        ({"$defs": {"n": NAME}, "$ref": "#/$defs/n"}, {"$defs": {"n": CLOSED}, "$ref": "#/$defs/n"}),
        ({"anyOf": [NAME, {"type": "null"}]}, {"anyOf": [CLOSED, {"type": "null"}]}),
        ({"properties": {"properties": NAME}}, {"properties": {"properties": CLOSED}, "additionalProperties": False}),
    ],
)
def test_an_object_that_lists_its_properties_has_no_others(schema: Any, want: Any) -> None:
    assert writable(schema) == want


ANY: dict[str, Any] = {"patternProperties": {"": {}}, "additionalProperties": False}
"""Any others: every name matches."""
AGE: dict[str, Any] = {"properties": {"age": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("schema", "want"),
    [
        ({"type": "object"}, {"type": "object"}),
        ({**NAME, "additionalProperties": True}, {**NAME, **ANY}),
        ({**NAME, "minProperties": 3}, {**NAME, "minProperties": 3, **ANY}),
        ({**NAME, "required": ["name", "age"]}, {**NAME, "required": ["name", "age"], **ANY}),
        # Two schemas for one object: each leaves to the other what it does not list.
        ({"allOf": [NAME, AGE]}, {"allOf": [{**NAME, **ANY}, {**AGE, **ANY}]}),
        (
            {**NAME, "anyOf": [{"required": ["age"]}, {"required": ["name"]}]},
            {**NAME, "anyOf": [{"required": ["age"]}, {"required": ["name"]}], **ANY},
        ),
        (
            {"$defs": {"n": NAME}, "$ref": "#/$defs/n", "required": ["age"]},
            {"$defs": {"n": {**NAME, **ANY}}, "$ref": "#/$defs/n", "required": ["age"]},
        ),
        (
            {"type": "array", "items": {"$ref": "#/$defs/n", **AGE}, "$defs": {"n": NAME}},
            {"type": "array", "items": {"$ref": "#/$defs/n", **AGE, **ANY}, "$defs": {"n": {**NAME, **ANY}}},
        ),
        # The pattern's object and the property's are one.
        (
            {"properties": {"a": NAME}, "patternProperties": {"^a": AGE}},
            {
                "properties": {"a": {**NAME, **ANY}},
                "patternProperties": {"^a": {**AGE, **ANY}},
                "additionalProperties": False,
            },
        ),
    ],
)
def test_unless_others_may_be_meant(schema: Any, want: Any) -> None:
    assert writable(schema) == want


def test_others_of_a_schema_are_those_whose_names_are_not_listed() -> None:
    schema: Any = {"properties": {"a": {}}, "additionalProperties": {"type": "null"}}
    assert writable(schema) == {
        "properties": {"a": {}},
        "patternProperties": {r"^(?:[^\x01a][^\x01]*|a(?:[^\x01][^\x01]*))?$": {"type": "null"}},
        "additionalProperties": False,
    }
    # All names are others where none is listed; by patterns nobody can say "all but these".
    assert writable({"additionalProperties": {}}) == {"additionalProperties": {}}
    assert writable({"patternProperties": {"^x": {}}, "additionalProperties": {"type": "null"}}) == {
        "patternProperties": {"^x": {}},
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    ("branches", "same"),
    [
        ([{"const": "a"}, {"const": "b", "title": "B"}, {"const": None}], False),
        ([{"enum": ["a", "b"]}, {"enum": ["c", True]}], False),
        ([{"const": "a"}, {"enum": ["b", "a"]}], True),
        ([{"const": 1}, {"const": 1.0}], True),
        ([{"const": "a"}, {"type": "string"}], True),
    ],
)
def test_one_of_several_values_is_any_of_them(branches: Any, same: bool) -> None:
    assert writable({"oneOf": branches}) == {"oneOf" if same else "anyOf": branches}
    assert writable({"oneOf": branches, "anyOf": [{}]}) == {"oneOf": branches, "anyOf": [{}]}


@pytest.mark.parametrize(
    ("schema", "want"),
    [
        ({"exclusiveMinimum": 0}, {"exclusiveMinimum": 0}),
        ({"exclusiveMinimum": 0, "maximum": 1}, {"exclusiveMinimum": 0, "maximum": 1}),
        ({"exclusiveMinimum": 0, "maximum": 0.5}, {"minimum": 1e-6, "maximum": 0.5}),
        ({"exclusiveMaximum": -1, "minimum": -1.5}, {"maximum": -1.000001, "minimum": -1.5}),
        ({"type": "integer", "exclusiveMinimum": 0, "maximum": 0.5}, None),
        # Another part may have the other bound.
        ({"allOf": [{"exclusiveMinimum": 1}, {"maximum": 1.5}]}, {"allOf": [{"minimum": 1.000001}, {"maximum": 1.5}]}),
    ],
)
def test_a_number_keeps_off_a_whole_one_that_it_is_not(schema: Any, want: Any) -> None:
    assert writable(schema) == (schema if want is None else want)


def test_a_minute_has_sixty_seconds() -> None:
    assert writable({"format": "time"}) == {"format": "time", "pattern": ":[0-5][0-9]:[0-5]"}
    assert writable({"format": "time", "pattern": "Z$"}) == {"format": "time", "pattern": "Z$"}


def test_notes_go() -> None:
    schema: Any = {
        "type": "array", "uniqueItems": False, "items": {"anyOf": [{"format": "color"}, {"format": "date"}]}
    }  # fmt: skip
    assert writable(schema) == {"type": "array", "items": {"anyOf": [{}, {"format": "date"}]}}
    # A property may have such a name, and a value may be an object that looks like a schema.
    named: Any = {"properties": {"format": {"const": {"format": "color"}}}, "additionalProperties": False}
    assert writable(named) == named
    assert writable({"uniqueItems": True}) == {"uniqueItems": True}
    assert writable({"propertyNames": {"type": "string"}}) == {}
    assert writable({"propertyNames": {"maxLength": 3}}) == {"propertyNames": {"maxLength": 3}}


def test_a_deep_nesting_is_an_error_that_can_be_caught() -> None:
    schema: Any = {}
    for _ in range(10_000):
        schema = {"items": schema}
    with pytest.raises(RecursionError):
        writable(schema)


def patterns(count: int) -> list[dict[str, Any]]:
    return [{"pattern": f"a{number}"} for number in range(count)]


def names(count: int) -> dict[str, Any]:
    return {f"^p{number}$": {"type": "integer"} for number in range(count)}


def wide(outer: str, count: int) -> dict[str, Any]:
    inner: dict[str, Any] = {f"p{number}": {} for number in range(count)}
    return {"properties": {name: {"properties": inner} for name in outer}}


REFUSED: list[tuple[Any, str]] = [
    ({"enum": ["x"] * 19_000}, ""),
    ({"enum": [{"a": 1}] * WIDEST}, "too large"),
    ({"required": [f"p{number}" for number in range(WIDEST)]}, "too large"),
    ({"properties": {f"p{number}": {} for number in range(WIDEST)}}, "too large"),
    # So does text.
    ({"pattern": "ab" * 2000}, ""),
    ({"pattern": "(a|b)?" * 4000}, "too large"),
    ({"patternProperties": {"a" * 30_000: {}}}, "too large"),
    ({"enum": ["a" * 2_000_000]}, "too large"),
    ({"const": "a" * 2_000_000}, "too large"),
    ({"properties": {"a" * 2_000_000: {}}}, "too large"),
    ({"description": "a" * 2_000_000}, ""),
    # Width is what takes long.
    (wide("abcdefghi", 500), ""),
    (wide("abcdefghij", 500), "5000 are the most"),
    (wide("abcde", 501), "2000 are the most"),
    # Intersections: seconds for 18 patterns, for ever for 30.
    ({"allOf": patterns(8)}, ""),
    ({"allOf": patterns(9)}, "9 patterns"),
    ({"allOf": [{"$ref": "#/$defs/x"}, *patterns(2)], "$defs": {"x": {"allOf": patterns(7)}}}, "9 patterns"),
    ({"anyOf": patterns(20)}, ""),
    ({"properties": {f"p{number}": part for number, part in enumerate(patterns(20))}}, ""),
    ({"patternProperties": names(50)}, ""),
    ({"items": {"patternProperties": names(51)}}, "51 patternProperties"),
    ({"allOf": [{"patternProperties": names(26)}, {"patternProperties": names(25)}], "x": 1}, "51"),
    # Nothing is written between one and the next.
    ({"$ref": "#"}, "refers to itself"),
    ({"anyOf": [{"type": "string"}, {"$ref": "#"}]}, "refers to itself"),
    ({"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}}, "itself"),
    ({"properties": {"a": {"$ref": "#"}}}, ""),
    ({"items": {"$ref": "#"}}, ""),
    # {"x": 1, "x": 2} is one property.
    ({"minProperties": 1}, ""),
    ({"minProperties": 2}, "minProperties"),
    ({"minProperties": 2, "required": ["a"]}, ""),
    ({"minProperties": 2, "additionalProperties": False}, ""),
    # The library's numbers have 64 bits.
    ({"maximum": 2**63 - 1, "minimum": -(2**63)}, ""),
    ({"maximum": 2**63}, "'maximum'"),
    ({"items": {"enum": ["a", {"b": [-(2**63) - 1]}]}}, "'enum'"),
    ({"const": 10**30}, "'const'"),
    # What is no pattern's name cannot be said where several schemas say it.
    ({"allOf": [{"patternProperties": {"x": {}}}, {"required": ["a"]}]}, "additionalProperties"),
    ({"allOf": [{"patternProperties": {"x": {}}, "additionalProperties": False}, {"required": ["a"]}]}, ""),
    ({"properties": {"a": {}}, "patternProperties": {"^a$": {}}}, "'^a$'"),
    ({"properties": {"a": {}}, "patternProperties": {"^b$": {}}}, ""),
    ({"properties": {"a": {}, "b" * 200: {}}, "additionalProperties": {"type": "null"}}, "too many"),
    ({"properties": {"a": {}, "b" * 200: {}}, "additionalProperties": True}, ""),
]


@pytest.mark.parametrize(("schema", "says"), REFUSED)
def test_what_is_refused(schema: Any, says: str) -> None:
    why = refused(schema)
    assert says in why
    assert bool(why) is bool(says)


def test_the_size_of_a_schema() -> None:
    assert size({}) == 1
    # Itself, properties, a, required, its two names, enum; and two for 25 of its values.
    assert size({"properties": {"a": {}}, "required": ["a", "b"], "enum": ["x"] * 25}) == 1 + 1 + 1 + 1 + 2 + 1 + 2
    # 250 characters of a name and of values, 12 of patterns.
    assert size({"properties": {"a" * 250: {}}}) == 1 + 1 + 1 + 1
    assert size({"enum": ["a" * 200, "b" * 50]}) == 1 + 1 + 1
    assert size({"pattern": "^[a-z]+$", "patternProperties": {"^x-.": {}}}) == 1 + 1 + 1 + 3


def test_doubling_references_are_read_once() -> None:
    defs: dict[str, Any] = {f"n{n}": {"allOf": [{"$ref": f"#/$defs/n{n + 1}"}] * 2} for n in range(60)}
    assert refused({"$ref": "#/$defs/n0", "$defs": {**defs, "n60": {"type": "string"}}}) == ""
    assert "patterns" in refused({"$ref": "#/$defs/n0", "$defs": {**defs, "n60": {"pattern": "a"}}})


@pytest.mark.parametrize("pattern", ["[^a]", "a.b"])
def test_patterns_are_translated(pattern: str) -> None:
    want = translated(pattern)
    assert writable({"pattern": pattern}) == {"pattern": want}
    assert writable({"patternProperties": {pattern: {}}}) == {
        "patternProperties": {want: {}}, "additionalProperties": False
    }  # fmt: skip
    named: Any = {"properties": {"pattern": {"const": pattern}}, "additionalProperties": False}
    assert writable(named) == named
