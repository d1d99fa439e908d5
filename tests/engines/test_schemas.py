"""Schemas as grammars are made of them."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline.engines.schemas import LARGEST, refused, size, writable

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


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {**NAME, "additionalProperties": True},
        {**NAME, "additionalProperties": {"type": "integer"}},
        {**NAME, "patternProperties": {"^x": {}}},
        {**NAME, "minProperties": 3},
        {**NAME, "required": ["name", "age"]},
        # Two schemas for one object: each leaves to the other what it does not list.
        {"allOf": [NAME, {"properties": {"age": {"type": "integer"}}}]},
        {**NAME, "anyOf": [{"required": ["age"]}, {"required": ["name"]}]},
        {"$defs": {"n": NAME}, "$ref": "#/$defs/n", "required": ["age"]},
        {"type": "array", "items": {"$ref": "#/$defs/n", "properties": {"age": {}}}, "$defs": {"n": NAME}},
    ],
)
def test_unless_others_may_be_meant(schema: Any) -> None:
    assert writable(schema) == schema


def test_notes_go() -> None:
    schema: Any = {
        "type": "array", "uniqueItems": False, "items": {"anyOf": [{"format": "color"}, {"format": "date"}]}
    }  # fmt: skip
    assert writable(schema) == {"type": "array", "items": {"anyOf": [{}, {"format": "date"}]}}
    # A property may have such a name, and a value may be an object that looks like a schema.
    named: Any = {"properties": {"format": {"const": {"format": "color"}}}, "additionalProperties": False}
    assert writable(named) == named
    assert writable({"uniqueItems": True}) == {"uniqueItems": True}


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


REFUSED: list[tuple[Any, str]] = [
    ({"enum": ["x"] * 19_000}, ""),
    ({"enum": [{"a": 1}] * LARGEST}, "too large"),
    ({"required": [f"p{number}" for number in range(LARGEST)]}, "too large"),
    ({"properties": {f"p{number}": {} for number in range(LARGEST)}}, "too large"),
    # Intersections: seconds for 18 patterns, for ever for 30.
    ({"allOf": patterns(8)}, ""),
    ({"allOf": patterns(9)}, "9 patterns"),
    ({"allOf": [{"$ref": "#/$defs/x"}, *patterns(2)], "$defs": {"x": {"allOf": patterns(7)}}}, "9 patterns"),
    ({"anyOf": patterns(20)}, ""),
    ({"properties": dict(enumerate(patterns(20)))}, ""),
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


def test_doubling_references_are_read_once() -> None:
    defs: dict[str, Any] = {f"n{n}": {"allOf": [{"$ref": f"#/$defs/n{n + 1}"}] * 2} for n in range(60)}
    assert refused({"$ref": "#/$defs/n0", "$defs": {**defs, "n60": {"type": "string"}}}) == ""
    assert "patterns" in refused({"$ref": "#/$defs/n0", "$defs": {**defs, "n60": {"pattern": "a"}}})


@pytest.mark.parametrize(
    ("pattern", "want"),
    [("[^a]", r"[^\x01a]"), (r"\[^a", r"\[^a"), (r"\\[^a]", r"\\[^\x01a]"), ("^[a^]$", "^[a^]$")],
)
def test_classes_that_leave_out(pattern: str, want: str) -> None:
    assert writable({"pattern": pattern}) == {"pattern": want}
    assert writable({"patternProperties": {pattern: {}}}) == {"patternProperties": {want: {}}}
    named: Any = {"properties": {"pattern": {"const": pattern}}, "additionalProperties": False}
    assert writable(named) == named
