"""What a schema says of a value's type."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.opening import Tool
from stages.parse.types import ANY, STRING, Kind, Parameters, Tools, coerce, types_of

TYPE_NAMES = {
    "null": ["null"],
    "string": ["string", "str", "text", "varchar", "char", "enum", "String", " STRING "],
    "integer": ["integer", "int", "int32", "int64", "uint", "uint8", "uint64", "long", "short", "unsigned", "INTEGER"],
    "number": ["number", "num", "float", "float32", "float64", "double"],
    "boolean": ["boolean", "bool", "binary"],
    "object": ["object", "dict", "map"],
    "array": ["array", "arr", "list", "tuple", "sequence"],
}
TREE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "color": {"$ref": "#/$defs/color"},
        "size": {"$ref": "#/definitions/size"},
        "deep": {"$ref": "#/$defs/chain"},
        "loop": {"$ref": "#/$defs/loop"},
        "node": {"$ref": "#/$defs/node"},
        "lost": {"$ref": "#/$defs/nowhere"},
        "far": {"$ref": "https://example.com/color.json"},
        "odd": {"$ref": "#/$defs/a~1b~0c"},
        "branch": {"$ref": "#/$defs/list/anyOf/1"},
    },
    "$defs": {
        "color": {"enum": ["red", "green"]},
        "chain": {"$ref": "#/$defs/link"},
        "link": {"$ref": "#/definitions/size"},
        "loop": {"$ref": "#/$defs/pool"},
        "pool": {"$ref": "#/$defs/loop"},
        "node": {
            "type": "object",
            "properties": {
                "value": {"type": "integer"},
                "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
            },
        },
        "list": {"anyOf": [{"type": "string"}, {"type": "boolean"}]},
        "a/b~c": {"type": "boolean"},
    },
    "definitions": {"size": {"type": ["integer", "null"]}},
}


def kinds(schema: Any, root: Any = None) -> set[str]:
    return set(types_of(schema, root or {}).kinds)


# --- what a schema says ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in TYPE_NAMES.items() for name in names])
def test_type_names(kind: str, name: str) -> None:
    assert kinds({"type": name}) == {kind}


KINDS_OF: list[tuple[Any, set[str]]] = [
    ({"type": ["integer", "null"]}, {"integer", "null"}),
    ({"type": ["str", "float"]}, {"string", "number"}),
    ({"enum": ["a", 1, 1.5, None, True, [], {}]}, set(get_args(Kind))),
    ({"const": 7}, {"integer"}),
    ({"const": None}, {"null"}),
    ({"type": "string", "enum": [1, 2]}, {"string"}),
    ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, {"integer", "string"}),
    (
        {"oneOf": [{"type": "integer"}, {"oneOf": [{"type": "null"}, {"const": "x"}]}]},
        {"integer", "null", "string"},
    ),
    ({"allOf": [{"type": "object"}, {"required": ["a"]}]}, {"object"}),
    ({"type": "object", "anyOf": [{"required": ["a"]}, {"type": "string"}]}, {"object"}),
    ({"properties": {"a": {}}}, {"object"}),
    ({"items": {"type": "string"}}, {"array"}),
    ({"prefixItems": [{"type": "string"}]}, {"array"}),
    ({"type": "integer", "nullable": True}, {"integer", "null"}),
    ({"anyOf": [{"type": "integer", "nullable": True}]}, {"integer", "null"}),
    ({"nullable": True}, {"string", "null"}),
    ({"type": "integer", "nullable": "true"}, {"integer"}),
    # Nothing usable.
    ({}, {"string"}),
    ({"description": "a word"}, {"string"}),
    ({"type": "thing"}, {"string"}),
    ({"type": []}, {"string"}),
    ({"type": {"type": "integer"}}, {"string"}),
    ({"type": [1, None, ["integer"], "bool"]}, {"boolean"}),
    ({"enum": []}, {"string"}),
    ({"enum": "ab"}, {"string"}),
    ({"anyOf": [True, 1, "integer", None]}, {"string"}),
    ({"anyOf": {"type": "integer"}}, {"string"}),
    ({"properties": 5}, {"string"}),
    ({"type": "interval"}, {"string"}),
    (True, {"string"}),
    (False, {"string"}),
    (None, {"string"}),
    ("integer", {"string"}),
    ([{"type": "integer"}], {"string"}),
]


@pytest.mark.parametrize(("schema", "want"), KINDS_OF)
def test_kinds(schema: Any, want: set[str]) -> None:
    assert kinds(schema) == want


@pytest.mark.parametrize(
    ("name", "want", "enum"),
    [
        ("color", {"string"}, ("red", "green")),
        ("size", {"integer", "null"}, None),
        ("deep", {"integer", "null"}, None),
        ("loop", {"string"}, None),
        ("node", {"object"}, None),
        ("lost", {"string"}, None),
        ("far", {"string"}, None),
        ("odd", {"boolean"}, None),
        ("branch", {"boolean"}, None),
    ],
)
def test_references(name: str, want: set[str], enum: tuple[str, ...] | None) -> None:
    got = types_of(TREE["properties"][name], TREE)
    assert (set(got.kinds), got.enum) == (want, enum)


@pytest.mark.parametrize(
    ("schema", "want"),
    [
        ({"enum": ["a", "b"]}, ("a", "b")),
        ({"type": "string", "enum": ["a"]}, ("a",)),
        ({"const": "a"}, ("a",)),
        ({"anyOf": [{"enum": ["a"]}, {"const": "b"}, {"type": "null"}]}, ("a", "b")),
        ({"allOf": [{"type": "string"}, {"enum": ["a"]}]}, ("a",)),
        # Any string is allowed.
        ({"anyOf": [{"enum": ["a"]}, {"type": "string"}]}, None),
        ({"anyOf": [{"enum": ["a"]}, {"description": "or any"}]}, None),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, None),
        ({"type": "string"}, None),
    ],
)
def test_enums(schema: Any, want: tuple[str, ...] | None) -> None:
    assert types_of(schema, {}).enum == want


def test_verbatim_is_a_string_that_nothing_can_change() -> None:
    assert STRING.verbatim
    assert types_of({"type": "string", "minLength": 2}, {}).verbatim
    assert types_of({}, {}).verbatim
    assert not types_of({"type": "string", "enum": ["a"]}, {}).verbatim
    assert not types_of({"type": ["string", "null"]}, {}).verbatim
    assert not ANY.verbatim


def test_inside_objects_and_arrays() -> None:
    root = {"$defs": {"point": {"type": "object", "properties": {"x": {"type": "integer"}}}}}
    points = types_of({"type": "array", "items": {"$ref": "#/$defs/point"}}, root)
    assert points.item().kinds == {"object"}
    assert points.item().member("x").kinds == {"integer"}
    assert points.item().member("y") is STRING
    assert points.member("x") is STRING
    assert STRING.item() is STRING
    assert ANY.item() is STRING

    loose = types_of({"additionalProperties": {"type": "number"}, "properties": {"a": {"type": "string"}}}, {})
    assert [set(loose.member(key).kinds) for key in ("a", "b", "a")] == [{"string"}, {"number"}, {"string"}]
    closed = types_of({"type": "object", "additionalProperties": False}, {})
    assert closed.member("a") is STRING

    either = types_of(
        {"anyOf": [{"properties": {"a": {"type": "integer"}}}, {"properties": {"a": {"const": "x"}}}]}, {}
    )
    assert either.member("a").kinds == {"integer", "string"}
    maybe = types_of({"oneOf": [{"type": "array", "items": {"type": "boolean"}}, {"type": "null"}]}, {})
    assert maybe.item().kinds == {"boolean"}
    pair = types_of({"type": "array", "items": [{"type": "integer"}, {"type": "boolean"}]}, {})
    assert pair.item().kinds == {"integer", "boolean"}

    node = types_of(TREE["properties"]["node"], TREE)
    for _ in range(100):
        assert node.member("value").kinds == {"integer"}
        node = node.member("next")
        assert node.kinds == {"object", "null"}


# --- nothing breaks it ----------------------------------------------------------------------------------------------

WORDS = st.sampled_from(
    ["type", "enum", "const", "anyOf", "oneOf", "allOf", "properties", "items", "prefixItems", "nullable", "$ref",
     "additionalProperties", "required", "$defs", "a"]
)  # fmt: skip
SCHEMA = st.recursive(
    st.sampled_from([*TYPE_NAMES, "#", "#/$defs/a", "#/anyOf/0", "#//", True, False, None, 1, "a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=20,
)
RAW = st.text(max_size=20)


def refuse(constant: str) -> None:
    raise AssertionError(constant)


@given(SCHEMA, SCHEMA, st.text(max_size=3), RAW)
def test_any_schema(schema: Any, root: Any, key: str, raw: str) -> None:
    types = types_of(schema, root)
    for part in (types, types.item(), types.member(key), types.member("a"), Parameters(schema).types("a")):
        assert part.kinds
        json.loads(coerce(raw, part), parse_constant=refuse)


BIG = 100_000


def test_big_schemas() -> None:
    deep: Any = {"type": "integer"}
    for _ in range(BIG):
        deep = {"anyOf": [deep]}
    assert kinds(deep) == {"string"}
    assert kinds({"anyOf": [{"type": "integer"}] * BIG}) == {"integer"}
    assert kinds({"$ref": "#" + "/a" * BIG}) == {"string"}
    fan: Any = {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}] * 50 + [{"type": "integer"}]}}, "$ref": "#/$defs/a"}
    assert kinds(fan, fan) == {"integer"}
    twice: Any = {"type": "boolean"}
    for _ in range(30):
        twice = {"anyOf": [twice, twice]}
    assert kinds(twice) == {"boolean"}
    assert types_of(twice, {}).member("a") is STRING


# --- tools ----------------------------------------------------------------------------------------------------------


def test_parameters() -> None:
    schema: dict[str, Any] = {
        "$ref": "#/$defs/base",
        "allOf": [{"properties": {"unit": {"enum": ["c", "f"]}}, "required": ["unit", 5]}, {"$ref": "#/$defs/more"}],
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
        "$defs": {
            "base": {"properties": {"key": {"type": "boolean"}}, "required": ["key"]},
            "more": {"anyOf": [{"properties": {"x": {"type": "number"}}, "required": ["x"]}]},
        },
    }
    parameters = Parameters(schema)
    assert parameters.keys == {"city", "days", "unit", "key", "x"}
    assert parameters.required == {"city", "unit", "key"}
    assert parameters.types("days").kinds == {"integer"}
    assert parameters.types("unit").enum == ("c", "f")
    assert parameters.types("key").kinds == {"boolean"}
    assert parameters.types("other") is STRING
    assert parameters.types("days") is parameters.types("days")


def test_tools() -> None:
    tools = Tools((Tool("a"), Tool("b", parameters={"properties": {"x": {"type": "integer"}}}), Tool("c")))
    assert tools.names == {"a", "b", "c"}
    assert len(tools) == 3
    assert not Tools(())
    assert tools.get("d") is None
    bare, known = tools.get("a"), tools.get("b")
    assert bare is not None
    assert bare.keys == frozenset()
    assert bare.types("x") is STRING
    assert known is not None
    assert known.types("x").kinds == {"integer"}
    assert tools.get("b") is known
