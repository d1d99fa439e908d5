"""What a schema says of a value's type, and the JSON that a bare text becomes under it."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.opening import Tool
from stages.parse.types import ANY, PLAIN, STRING, Kind, Parameters, Tools, Types, coerce, quoted, types_of

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


def of(*names: Kind) -> Types:
    return Types(frozenset(names))


# --- what a schema says ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in TYPE_NAMES.items() for name in names])
def test_type_names(kind: str, name: str) -> None:
    assert kinds({"type": name}) == {kind}


@pytest.mark.parametrize(
    ("schema", "want"),
    [
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
    ],
)
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


# --- values ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "types", "want"),
    [
        # null
        ("null", of("null", "string"), "null"),
        (" NULL\n", of("null", "integer"), "null"),
        ("None", of("null", "string"), "null"),
        ("null", of("string"), '"null"'),
        ("null", of("string", "integer"), '"null"'),
        ("null", of("integer"), "null"),
        ("none", of("object"), "null"),
        ("nullx", of("null", "string"), '"nullx"'),
        # integer
        ("5", of("integer"), "5"),
        (" -12\n", of("integer", "string"), "-12"),
        ("+5", of("integer"), "5"),
        ("007", of("integer"), "7"),
        ("-0", of("integer"), "-0"),
        ("5.0", of("integer"), "5"),
        ("-5.", of("integer"), "-5"),
        ("1e3", of("integer"), "1000"),
        ("5.0", of("integer", "number"), "5.0"),
        ("5.5", of("integer", "string"), '"5.5"'),
        ("5.5", of("integer"), "5.5"),
        ("1_000", of("integer"), '"1_000"'),
        ("٣", of("integer"), '"٣"'),
        ("", of("integer"), '""'),
        ("-", of("integer"), '"-"'),
        ("123456789012345678901234567890", of("integer"), "123456789012345678901234567890"),
        # number
        ("5", of("number"), "5"),
        ("3.0", of("number"), "3.0"),
        ("1E-7", of("number"), "1E-7"),
        ("1.10", of("number"), "1.10"),
        ("0.1000000000000000055511151231257827", of("number"), "0.1000000000000000055511151231257827"),
        (".5", of("number"), "0.5"),
        ("+1.", of("number"), "1.0"),
        ("-00.5e+1", of("number"), "-0.5e+1"),
        (".", of("number"), '"."'),
        ("NaN", of("number"), '"NaN"'),
        ("Infinity", of("number"), '"Infinity"'),
        ("-inf", of("number"), '"-inf"'),
        ("1e999", of("number"), '"1e999"'),
        ("1e999", of("number", "string"), '"1e999"'),
        # boolean
        ("true", of("boolean"), "true"),
        ("False", of("boolean", "string"), "false"),
        (" TRUE ", of("boolean"), "true"),
        ("1", of("boolean"), "true"),
        ("0", of("boolean"), "false"),
        ("1", of("boolean", "integer"), "1"),
        ("0", of("boolean", "number"), "0"),
        ("yes", of("boolean"), '"yes"'),
        # object, array
        ('{"a": 1}', of("object"), '{"a": 1}'),
        ('\n{"a":1.50,"a":1e400}\n', of("object"), '{"a":1.50,"a":1e400}'),
        (
            "{'a': True, 'b': None, 'c': [1, -2.5, 'it\\'s']}",
            of("object"),
            '{"a": true, "b": null, "c": [1, -2.5, "it\'s"]}',
        ),
        ("[1, 2,]", of("array"), "[1, 2]"),
        ('[\n  {"a": [ ]}\n]', of("array"), '[\n  {"a": [ ]}\n]'),
        ('["a\nb\t"]', of("array"), '["a\\nb\\t"]'),
        ("[]", of("object", "array"), "[]"),
        ("{}", of("array"), "{}"),
        ("{'a': 1}", of("array"), "\"{'a': 1}\""),
        ("[NaN]", of("array"), '"[NaN]"'),
        ('{"a": 1', of("object"), '"{\\"a\\": 1"'),
        ("{1: 'a'}", of("object"), '{"1": "a"}'),
        # string
        ("12", of("string"), '"12"'),
        ('"12"', of("string"), '"\\"12\\""'),
        ('{"a":1}', of("string"), '"{\\"a\\":1}"'),
        ("  a\n", of("string"), '"  a\\n"'),
        ('{"a":1}', of("string", "object"), '{"a":1}'),
        ("[1]", of("string", "object"), '"[1]"'),
        ('"x"', of("string", "integer"), '"\\"x\\""'),
        # nothing fits: JSON as it is, else a string
        ('"x"', of("integer"), '"x"'),
        ("true", of("integer"), "true"),
        ("[1]", of("object"), "[1]"),
        (" ten ", of("integer"), '" ten "'),
        # guessed
        ("null", ANY, "null"),
        ("-1", ANY, "-1"),
        ("true", ANY, "true"),
        ("1", ANY, "1"),
        ("{'a': ()}", ANY, "\"{'a': ()}\""),
        ("word", ANY, '"word"'),
        ("", ANY, '""'),
    ],
)
def test_values(raw: str, types: Types, want: str) -> None:
    assert coerce(raw, types) == want


@pytest.mark.parametrize(
    ("raw", "schema", "want"),
    [
        (" red\n", {"enum": ["red", "green"]}, '"red"'),
        ("red", {"enum": ["red"]}, '"red"'),
        (" red ", {"enum": [" red ", "red"]}, '" red "'),
        (" blue ", {"enum": ["red"]}, '" blue "'),
        (" red ", {"type": "string"}, '" red "'),
        (" red ", {"anyOf": [{"enum": ["red"]}, {"type": "null"}]}, '"red"'),
        (" 1 ", {"type": "string", "enum": [1]}, '" 1 "'),
        ("two ", {"enum": [1, "two"]}, '"two"'),
    ],
)
def test_an_enum_takes_the_white_space(raw: str, schema: Any, want: str) -> None:
    assert coerce(raw, types_of(schema, {})) == want


@pytest.mark.parametrize(
    ("raw", "want"),
    [
        (r"['a\nb', 'c\td', 'e\\f']", ["a\nb", "c\td", "e\\f"]),
        (r"""['it\'s', "it's", 'say "x"', "\"" ]""", ["it's", "it's", 'say "x"', '"']),
        (r"['\x41\u00e9\U0001f600\101\0\7z']", ["Aé😀A\0\7z"]),
        (r"['\ud83d\ude00']", ["😀"]),
        (r"['\a\b\f\v\r']", ["\a\b\f\v\r"]),
        ("['a\\\nb']", ["ab"]),
        (r"['\d+\.\w']", [r"\d+\.\w"]),
        ("[ True , False,None, true, false, null ]", [True, False, None, True, False, None]),
        ("[{'a': {'b': []}}, {}]", [{"a": {"b": []}}, {}]),
        ("[+1, .5, 2., -3e2]", [1, 0.5, 2.0, -300.0]),
        ("['é', \"漢\"]", ["é", "漢"]),
        ("['a\nb']", ["a\nb"]),
        ("[1, {'a': 1,},]", [1, {"a": 1}]),
    ],
)
def test_python_literals(raw: str, want: Any) -> None:
    assert json.loads(coerce(raw, of("array"))) == want
    as_text = coerce(raw, of("array", "string"), python=False)
    assert as_text == f'"{quoted(raw)}"'


@pytest.mark.parametrize(
    "raw",
    [
        "[1 2]", "[,]", "[1,,2]", "[:]", "[1:2]", "[}", "[", "[1", "[']", "['a", "['a' 'b']", "[a]", "[1]]", "[1] x",
        "{'a'}", "{'a' 1}", "{'a': }", "{'a': 1 'b': 2}", "{:1}", "{True: 1}", "{[1]: 2}", "{'a':: 1}", "{'a', 'b'}",
        "[inf]", "[nan]", "[1e999]x", "[(1, 2)]", "[b'a']", "['\\N{DASH}']", "['\\x4']", "['\\u12']",
        "['\\U00110000']", "['\\']", "[1+2]", "[--1]", "[set()]", "[__import__('os')]", "[1]\\", "[# a\n1]",
    ],
)  # fmt: skip
def test_what_is_no_literal_stays_text(raw: str) -> None:
    kind: Kind = "object" if raw[0] == "{" else "array"
    assert coerce(raw, of(kind, "string")) == f'"{quoted(raw)}"'


def test_without_python_none_is_a_word() -> None:
    assert coerce("None", of("null", "string"), python=False) == '"None"'
    assert coerce("null", of("null", "string"), python=False) == "null"


def test_quoted() -> None:
    assert quoted('"\\\n\t\r\b\f\0\x1f/\x7f\u2028é😀') == '\\"\\\\\\n\\t\\r\\b\\f\\u0000\\u001f/\x7f\u2028é😀'
    assert PLAIN("aé/\x7f'") is None
    for char in '"\\\n\0\x1f':
        found = PLAIN("ab" + char)
        assert found is not None
        assert found.start() == 2


# --- nothing breaks it ----------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)
WORDS = st.sampled_from(
    ["type", "enum", "const", "anyOf", "oneOf", "allOf", "properties", "items", "prefixItems", "nullable", "$ref",
     "additionalProperties", "required", "$defs", "a"]
)  # fmt: skip
SCHEMA = st.recursive(
    st.sampled_from([*TYPE_NAMES, "#", "#/$defs/a", "#/anyOf/0", "#//", True, False, None, 1, "a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=20,
)
KINDS = st.frozensets(st.sampled_from(get_args(Kind)))
RAW = st.text(max_size=20) | st.text("{}[]'\",:\\ \n\t0129.+-eExuNTnulrs\ud800\udfff", max_size=24) | JSON.map(repr)


def refuse(constant: str) -> None:
    raise AssertionError(constant)


@given(SCHEMA, SCHEMA, st.text(max_size=3), RAW)
def test_any_schema(schema: Any, root: Any, key: str, raw: str) -> None:
    types = types_of(schema, root)
    for part in (types, types.item(), types.member(key), types.member("a"), Parameters(schema).types("a")):
        assert part.kinds
        json.loads(coerce(raw, part), parse_constant=refuse)


@given(RAW, KINDS, st.booleans())
def test_any_text_becomes_json(raw: str, names: frozenset[Kind], python: bool) -> None:
    text = coerce(raw, Types(names), python=python)
    value = json.loads(text, parse_constant=refuse)
    if isinstance(value, str) and "string" in names:
        assert value == raw


@given(JSON)
def test_json_stays_as_it_is_written(value: Any) -> None:
    text = json.dumps(value)
    if not isinstance(value, str):
        assert coerce(text, ANY) == text
    assert json.loads(coerce(str(value), ANY)) == value or isinstance(value, str | float)
    assert coerce(text, STRING) == json.dumps(text)


@given(st.lists(JSON, max_size=3) | st.dictionaries(st.text(max_size=3), JSON, max_size=3))
def test_what_python_prints_is_understood(value: Any) -> None:
    assert json.loads(coerce(repr(value), of("object", "array"))) == value


BIG = 100_000


@pytest.mark.parametrize(
    "raw",
    [
        "9" * BIG, "-" + "0" * BIG + ".5", "." + "9" * BIG, "1e" + "9" * BIG, "9" * BIG + "x", "[" * BIG, "[" * BIG + "]" * BIG,
        '{"a":' * BIG + "1" + "}" * BIG, "[" + "9" * BIG + "]", "['" + "a" * BIG, "['" + "\\n" * BIG + "']", "[" + "'a'," * BIG,
        "{" + "'a': 1, " * BIG + "}", '["' + "\n" * BIG + '"]', " " * BIG, "[" + " " * BIG, "\\" * BIG, "['" + "\\x4" * BIG + "']",
    ],
)  # fmt: skip
def test_big_values(raw: str) -> None:
    for types in (ANY, of("integer", "array", "object"), STRING):
        text = coerce(raw, types)
        assert text[0] in '"[{-' or text[0].isdigit()
        assert len(text) <= 6 * len(raw) + 2


def test_a_deep_value_does_not_depend_on_the_stack() -> None:
    for depth in (10, 500, 990, 2_000):
        raw = "[" * depth + "]" * depth
        assert coerce(raw, of("array")) == raw
        literal = "[" * depth + "'a'" + "]" * depth
        assert coerce(literal, of("array")) == literal.replace("'", '"')


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
