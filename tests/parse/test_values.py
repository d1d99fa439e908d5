"""The JSON that a bare text becomes under the type that its schema says."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.parse.literals import PLAIN, quoted
from stages.parse.types import ANY, STRING, Kind, Types, coerce, types_of


def of(*names: Kind) -> Types:
    return Types(frozenset(names))


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
        ("1.5e1", of("integer"), "15"),
        ("-1e-400", of("integer"), "-1e-400"),  # not 0
        ("4503599627370496.1e0", of("integer"), "4503599627370496.1e0"),
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


LITERALS: list[tuple[str, Any]] = [
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
]


@pytest.mark.parametrize(("raw", "want"), LITERALS)
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
KINDS = st.frozensets(st.sampled_from(get_args(Kind)))
RAW = st.text(max_size=20) | st.text("{}[]'\",:\\ \n\t0129.+-eExuNTnulrs\ud800\udfff", max_size=24) | JSON.map(repr)


def refuse(constant: str) -> None:
    raise AssertionError(constant)


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
        "9" * BIG, "-" + "0" * BIG + ".5", "." + "9" * BIG, "1e" + "9" * BIG, "9" * BIG + "x", "[" * BIG,
        "[" * BIG + "]" * BIG, '{"a":' * BIG + "1" + "}" * BIG, "[" + "9" * BIG + "]", "['" + "a" * BIG,
        "['" + "\\n" * BIG + "']", "[" + "'a'," * BIG, "{" + "'a': 1, " * BIG + "}", '["' + "\n" * BIG + '"]',
        " " * BIG, "[" + " " * BIG, "\\" * BIG, "['" + "\\x4" * BIG + "']",
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
