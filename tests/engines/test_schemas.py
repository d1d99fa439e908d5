"""Schemas as grammars are made of them."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline.engines.schemas import writable

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
