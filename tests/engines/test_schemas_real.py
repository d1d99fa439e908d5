"""Schemas as people send them: each is held, and what is written satisfies it, or it is refused by name."""

from __future__ import annotations

import json
import sys
from typing import Any

import jsonschema_rs
import pytest

from stages.errors import RequestError
from stages.grammar import Json
from tests.support.constrained import Vocabulary, text_of

TEXTS = Vocabulary(words=("}", "]", '"}'))


def strict(**properties: Any) -> dict[str, Any]:
    """As OpenAI's strict mode wants them."""
    return {
        "type": "object", "properties": properties, "required": [*properties], "additionalProperties": False
    }  # fmt: skip


def ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{name}"}


def optional(schema: dict[str, Any], **more: Any) -> dict[str, Any]:
    """As pydantic writes ``X | None``."""
    return {"anyOf": [schema, {"type": "null"}], **more}


TEXT: dict[str, Any] = {"type": "string", "maxLength": 20}
STEP = strict(explanation=TEXT, output=TEXT)
DRAFT7 = "http://json-schema.org/draft-07/schema#"

HELD: dict[str, dict[str, Any]] = {
    "weather": strict(location={**TEXT, "description": "City"}, unit={"type": "string", "enum": ["C", "F"]}),
    "strict optional": strict(location=TEXT, unit={"type": ["string", "null"], "enum": ["C", "F", None]}),
    "math steps": {**strict(steps={"type": "array", "items": ref("Step")}, final=TEXT), "$defs": {"Step": STEP}},
    "moderation": strict(flagged={"type": "boolean"}, why={"type": ["string", "null"], "maxLength": 9}),
    "ui tree": {
        **strict(
            type={"type": "string", "enum": ["div", "button", "form"]},
            label=TEXT,
            children={"type": "array", "items": {"$ref": "#"}, "maxItems": 2},
        ),
        "title": "UI",
    },
    "linked list": {
        **strict(head=ref("node")),
        "$defs": {"node": strict(value={"type": "number"}, next={"anyOf": [ref("node"), {"type": "null"}]})},
    },
    "discriminated": {
        **strict(item={"anyOf": [ref("user"), ref("place")]}),
        "$defs": {
            "user": strict(kind={"const": "user", "type": "string"}, age={"type": "integer"}),
            "place": strict(kind={"const": "place", "type": "string"}, city=TEXT),
        },
    },
    "pydantic model": {
        "title": "Person", "type": "object", "required": ["name"],
        "properties": {
            "name": {"title": "Name", **TEXT},
            "age": optional({"type": "integer", "minimum": 0}, default=None, title="Age"),
            "tags": {"type": "array", "items": TEXT, "default": [], "title": "Tags"},
            "address": optional(ref("Address"), default=None),
        },
        "$defs": {"Address": {"title": "Address", "type": "object", "required": ["street"],
                              "properties": {"street": TEXT, "zip": {"type": "string", "pattern": "^[0-9]{5}$"}}}},
    },
    "pydantic enum": {
        "$defs": {"Color": {"enum": ["red", "green"], "title": "Color", "type": "string"}},
        "properties": {"color": {"$ref": "#/$defs/Color", "default": "red"}}, "title": "Car", "type": "object",
    },
    "pydantic tuple": {
        "type": "object", "required": ["point"],
        "properties": {"point": {"type": "array", "maxItems": 2, "minItems": 2,
                                 "prefixItems": [{"type": "integer"}, {"type": "number"}]}},
    },
    "pydantic dict": {
        "type": "object", "required": ["scores"],
        "properties": {"scores": {"type": "object", "additionalProperties": {"type": "integer"}}},
    },
    "pydantic union": {
        "type": "object", "required": ["value"],
        "properties": {
            "value": {"anyOf": [{"type": "integer"}, TEXT, {"type": "array", "items": {"type": "boolean"}}]}},
    },
    "pydantic discriminator": {
        "$defs": {
            "Cat": {"type": "object", "required": ["pet", "lives"],
                    "properties": {"pet": {"const": "cat", "type": "string"}, "lives": {"type": "integer"}}},
            "Dog": {"type": "object", "required": ["pet"],
                    "properties": {"pet": {"const": "dog", "type": "string"}, "name": TEXT}},
        },
        "type": "object", "required": ["pet"],
        "properties": {"pet": {"discriminator": {"mapping": {"cat": "#/$defs/Cat"}, "propertyName": "pet"},
                               "oneOf": [ref("Cat"), ref("Dog")]}},
    },
    "pydantic recursive": {
        "$defs": {"Node": {"type": "object", "required": ["name"], "properties": {
            "name": {"type": "string", "maxLength": 3},
            "children": {"type": "array", "items": ref("Node"), "maxItems": 2}}}},
        **ref("Node"),
    },
    "pydantic times": strict(
        at={"type": "string", "format": "date-time"}, day={"type": "string", "format": "date"},
        hour={"type": "string", "format": "time"}, lasts={"type": "string", "format": "duration"},
        id={"type": "string", "format": "uuid"}, secret={"type": "string", "format": "password", "maxLength": 5},
    ),
    "pydantic decimal": strict(price={"anyOf": [
        {"type": "number", "exclusiveMinimum": 0}, {"type": "string", "pattern": r"^[+-]?\d{1,5}\.?\d{0,3}$"}]}),
    "addresses": strict(
        mail={"type": "string", "format": "email", "maxLength": 30}, host={"type": "string", "format": "hostname"},
        v4={"type": "string", "format": "ipv4"}, v6={"type": "string", "format": "ipv6"},
    ),
    "zod object": {
        "$schema": DRAFT7, **strict(id={"type": "integer", "minimum": -(2**53) + 1, "maximum": 2**53 - 1},
                                    role={"type": "string", "enum": ["admin", "user"]}),
    },
    "zod record": {
        "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
        "propertyNames": {"type": "string"}, "additionalProperties": {"type": "boolean"},
    },
    "zod literals": {"$schema": DRAFT7, "anyOf": [{"type": "string", "const": "a"}, {"type": "number", "const": 1}]},
    "zod tuple": {"$schema": DRAFT7, "type": "array", "minItems": 2, "maxItems": 2,
                  "items": [{"type": "boolean"}, {"type": "null"}]},
    "zod nullable": {"$schema": DRAFT7, **strict(a={"type": ["string", "null"], "minLength": 1, "maxLength": 4})},
    "zod intersection": {"$schema": DRAFT7, "allOf": [
        {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]},
        {"type": "object", "properties": {"b": {"type": "boolean"}}, "required": ["b"]}]},
    "openapi nullable": {"type": "object", "required": ["x"], "properties": {
        "x": {"type": "integer", "format": "int64", "nullable": False, "example": 3, "xml": {"name": "x"}}}},
    "openapi inheritance": {
        "$defs": {"Base": {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}},
        "allOf": [ref("Base"), {"type": "object", "properties": {"name": TEXT}, "required": ["name"]}],
    },
    "openapi titled enum": {"oneOf": [{"const": "low", "title": "Low"}, {"const": "high", "title": "High"}]},
    "openapi request": {
        "type": "object", "required": ["filters"],
        "properties": {
            "filters": {"type": "array", "minItems": 1, "maxItems": 2, "items": strict(
                field=TEXT, op={"enum": ["=", "<", ">"]}, value={"type": ["string", "number", "boolean"]})},
            "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 10},
            "sort": {"type": "string", "pattern": "^-?[a-z_]+$", "maxLength": 9},
        },
    },
    "matrix": strict(rows={"type": "array", "maxItems": 2,
                           "items": {"type": "array", "maxItems": 2, "items": {"type": "number"}}}),
    "bounds": strict(share={"type": "number", "minimum": 0, "maximum": 1},
                     part={"type": "number", "exclusiveMinimum": 0, "maximum": 0.25},
                     even={"type": "integer", "multipleOf": 2, "minimum": 0, "maximum": 50}),
    "extraction": strict(entities={"type": "array", "maxItems": 3, "items": strict(
        text=TEXT, label={"type": "string", "enum": ["PERSON", "ORG", "Ort: 東京", 'a "b" \\c']},
        span={"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 2, "maxItems": 2})}),
    "http headers": {"type": "object", "patternProperties": {"^[A-Z][a-z-]*$": TEXT}, "additionalProperties": False},
    "definitions": {"$schema": DRAFT7, "definitions": {"n": {"type": "integer", "minimum": 1, "maximum": 3}},
                    "type": "object", "properties": {"n": {"$ref": "#/definitions/n"}}, "required": ["n"],
                    "additionalProperties": {"type": "boolean"}},
    "no arguments": {"type": "object", "properties": {}},
    "any object": {"type": "object", "additionalProperties": True},
    "empty properties": {"type": "object", "properties": {"a": {}, "b": True}, "required": ["a"]},
    "tool with examples": {
        "$id": "https://example.test/search.json", "$comment": "x", "type": "object", "required": ["query"],
        "properties": {"query": {**TEXT, "minLength": 1, "examples": ["tides"], "deprecated": False},
                       "mode": {"type": "string", "enum": ["fast", "deep"], "default": "fast", "readOnly": True}},
    },
}  # fmt: skip


def finite(number: str) -> float:
    """JSON's numbers have no bounds, Python's have."""
    return max(-sys.float_info.max, min(float(number), sys.float_info.max))


@pytest.mark.parametrize("name", HELD)
def test_what_is_written_satisfies_it(name: str) -> None:
    schema = HELD[name]
    valid = jsonschema_rs.validator_for(schema, validate_formats=True)
    for compact in (True, False):
        begin = TEXTS.grammars.compiled(Json(schema, "x", compact))
        for seed in range(5):
            text = text_of(TEXTS.written(begin(), seed)).removesuffix("<end of turn>")
            value = json.loads(text, parse_float=finite)
            assert valid.is_valid(value), text


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"type": "object", "if": {"properties": {"a": {"const": 1}}}, "then": {"required": ["b"]}}, '"if"'),
        ({"type": "object", "dependentRequired": {"card": ["address"]}}, '"dependentRequired"'),
        ({"type": "array", "uniqueItems": True, "items": TEXT}, '"uniqueItems"'),
        ({"type": "object", "unevaluatedProperties": False}, '"unevaluatedProperties"'),
        ({"type": "array", "contains": {"type": "integer"}}, '"contains"'),
        ({"type": "string", "not": {"const": "x"}}, '"not"'),
        ({"type": "string", "pattern": "^(?!x)"}, "look-around"),
        ({"$ref": "https://example.test/other.json"}, "example.test"),
        ({"$ref": "#/$defs/missing"}, "missing"),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "oneOf"),
        ({"type": "object", "propertyNames": {"pattern": "^a"}}, '"propertyNames"'),
        ({"type": "integer", "maximum": 2**64}, "2^63"),
        ({"type": "string", "minLength": 9, "maxLength": 3}, "minLength"),
    ],
)
def test_others_are_refused_by_name(schema: dict[str, Any], says: str) -> None:
    with pytest.raises(RequestError, match="no output can be held to this schema: ") as caught:
        TEXTS.grammars.compiled(Json(schema, "tools[0].function.parameters"))
    assert says in caught.value.message
    assert (caught.value.param, caught.value.code) == ("tools[0].function.parameters", "unsupported_schema")


OPEN: tuple[dict[str, Any], ...] = (
    {"properties": {"u": {"type": "integer"}, "é": {"const": 1}}, "additionalProperties": {"type": "null"}},
    {"properties": {"u": {"type": "integer"}, "\n": {"const": 1}}, "additionalProperties": True},
    {"properties": {"u": {"const": 1}}, "required": ["u", "z"]},
    {"patternProperties": {"^[^u]+$": {"type": "null"}}, "additionalProperties": {"const": 1}},
    {"allOf": [{"properties": {"u": {"const": 1}}}, {"properties": {"d": {"const": 2}}, "required": ["z"]}]},
    {"properties": {"u": {"properties": {"d": {"const": 1}}}}, "patternProperties": {"^u+$": {"required": ["z"]}}},
)


@pytest.mark.parametrize("schema", OPEN)
def test_other_names_are_none_that_are_listed(schema: dict[str, Any]) -> None:
    """A name may be spelled in several ways: the library forgot those with ``\\u``."""
    texts = Vocabulary(words=("\\u00", "\\u0075", "u", "\\n", "z", "\\", "}"))
    whole = {"type": "object", **schema}
    valid = jsonschema_rs.validator_for(whole)
    begin = texts.grammars.compiled(Json(whole, "x"))
    for seed in range(40):
        text = text_of(texts.written(begin(), seed)).removesuffix("<end of turn>")
        assert valid.is_valid(json.loads(text)), text
    for name in ("\\u0075", "\\u0064", "\\u00e9", "\\u000a", "\\ud800"):
        assert not texts.takes(begin(), f'{{"{name}":')
