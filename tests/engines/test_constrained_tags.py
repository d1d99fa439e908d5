"""Key/value tags and nested XML, held to: the exact calls of the families' templates, and what would break one."""

from __future__ import annotations

import time
from typing import Any

import jsonschema_rs
import pytest

from stages.catalog import parser
from stages.constraint import Constraint, constraint_of
from stages.errors import RequestError
from stages.opening import Ask, Tool
from stages.parse.format import Format
from stages.parse.formats import FORMATS
from stages.parse.parser import Parser
from tests.support.constrained import Vocabulary, markers
from tests.support.parse import Collected, message, opening, semantic, session, texts

TAIL = "<assistant>"
NS = "]<]minimax[>["
TIDE = Tool(
    "tide",
    None,
    {
        "type": "object",
        "properties": {"port": {"type": "string"}, "day": {"type": "integer"}, "opts": {"type": "object"}},
        "additionalProperties": False,
    },
)
MOON = Tool("moon", None, None)
TAGGED = ("glm", "glm47", "ling3", "poolside_v1", "spark2.5", "iquest_q1", "hy_v3", "hy_v4", "k2_horizon", "longcat")


def form_of(name: str) -> Format:
    return next(form for form in FORMATS if form.name == name)


def made(form: Format, vocabulary: Vocabulary, *tools: Tool, choice: str = "required") -> Constraint:
    ask = Ask(tools=tools, tool_choice=choice)
    constraint = constraint_of(ask, form, vocabulary.facts, "chat")
    assert constraint is not None
    return constraint


def takes(name: str, text: str, *tools: Tool, ids: bool = True, choice: str = "required") -> bool:
    vocabulary = Vocabulary(markers(form_of(name)) if ids else ())
    constraint = made(form_of(name), vocabulary, *(tools or (TIDE, MOON)), choice=choice)
    return vocabulary.takes(vocabulary.held(constraint, TAIL), text)


def read(name: str, text: str, *tools: Tool) -> Collected:
    """Of letters, as an engine without ids writes them."""
    opened = opening(name, tokenizer=Vocabulary().facts, ask=Ask(tools=tools or (TIDE, MOON)))
    return message(semantic(opened, session(texts([text]), tail=TAIL)))


# --- the templates' own spelling ------------------------------------------------------------------------------------

WRITTEN = {
    "glm": "<tool_call>tide\n<arg_key>port</arg_key>\n<arg_value>Brest</arg_value>\n<arg_key>day</arg_key>\n"
    "<arg_value>3</arg_value>\n</tool_call>\n<tool_call>moon\n</tool_call>",
    "glm47": "<tool_call>tide<arg_key>port</arg_key><arg_value>Brest</arg_value><arg_key>day</arg_key>"
    "<arg_value>3</arg_value></tool_call><tool_call>moon</tool_call>",
    "iquest_q1": "<iquest_tool_call>tide<arg_key>port</arg_key><arg_value>Brest</arg_value><arg_key>day</arg_key>"
    "<arg_value>3</arg_value></iquest_tool_call><iquest_tool_call>moon</iquest_tool_call>",
    "hy_v3": "<tool_calls>\n<tool_call>tide<tool_sep>\n<arg_key>port</arg_key>\n<arg_value>Brest</arg_value>\n"
    "<arg_key>day</arg_key>\n<arg_value>3</arg_value>\n</tool_call>\n<tool_call>moon<tool_sep>\n</tool_call>\n"
    "</tool_calls>",
    "hy_v4": "<tool_calls><tool_call>tide<arg_key>port</arg_key><arg_value>Brest</arg_value><arg_key>day</arg_key>"
    "<arg_value>3</arg_value></tool_call><tool_call>moon</tool_call></tool_calls>",
    "k2_horizon": "<ifm|tool_calls><ifm|tool_call>tide<ifm|arg_key>port</ifm|arg_key><ifm|arg_value>Brest"
    "</ifm|arg_value><ifm|arg_key>day</ifm|arg_key><ifm|arg_value>3</ifm|arg_value></ifm|tool_call>"
    "<ifm|tool_call>moon</ifm|tool_call></ifm|tool_calls>",
    "longcat": "<longcat_tool_call>tide\n<longcat_arg_key>port</longcat_arg_key>\n"
    "<longcat_arg_value>Brest</longcat_arg_value>\n<longcat_arg_key>day</longcat_arg_key>\n"
    "<longcat_arg_value>3</longcat_arg_value>\n</longcat_tool_call>\n<longcat_tool_call>moon\n</longcat_tool_call>",
    "minimax_m3": f'{NS}<tool_call>\n{NS}<invoke name="tide">{NS}<port>Brest{NS}</port>{NS}<day>3{NS}</day>'
    f'{NS}</invoke>\n{NS}<invoke name="moon">{NS}</invoke>\n{NS}</tool_call>',
}
for same in ("ling3", "poolside_v1", "spark2.5"):
    WRITTEN[same] = WRITTEN["glm47"]


@pytest.mark.parametrize("name", WRITTEN)
def test_a_call_is_written_as_the_template_writes_it(name: str) -> None:
    text = WRITTEN[name]
    assert takes(name, text)
    assert takes(name, text, ids=False) == (name != "longcat")  # without the token of a key it is JSON alone
    got = read(name, text)
    assert (got.faults, got.content) == ([], None)
    assert [(call.name, call.value()) for call in got.calls] == [("tide", {"port": "Brest", "day": 3}), ("moon", {})]
    assert not takes(name, text.replace(">3<", ">three<").replace("day>3", "day>x"))


@pytest.mark.parametrize(
    "call",
    [
        'tide<ifm|arg_key>port</ifm|arg_key><ifm|arg_type>string</ifm|arg_type><ifm|arg_value>12</ifm|arg_value>',
        '{"name": "tide", "arguments": {"port": "12"}}',
        "tide<ifm|arg_key>port</ifm|arg_key><ifm|arg_value>12</ifm|arg_value>",
    ],
)  # fmt: skip
def test_a_model_that_has_several_spellings_chooses(call: str) -> None:
    text = f"<ifm|tool_calls><ifm|tool_call>{call}</ifm|tool_call></ifm|tool_calls>"
    assert takes("k2_horizon", text)
    assert read("k2_horizon", text).calls[0].value() == {"port": "12"}


def test_another_kind_than_the_schemas_is_not_told() -> None:
    typed = "<ifm|tool_calls><ifm|tool_call>tide<ifm|arg_key>day</ifm|arg_key><ifm|arg_type>{}</ifm|arg_type>"
    typed += "<ifm|arg_value>3</ifm|arg_value></ifm|tool_call></ifm|tool_calls>"
    assert takes("k2_horizon", typed.format("number"))
    assert not takes("k2_horizon", typed.format("string"))


def test_longcat_may_still_write_json() -> None:
    text = '<longcat_tool_call>\n{"name": "tide", "arguments": {"port": "12"}}\n</longcat_tool_call>'
    assert takes("longcat", text)
    assert takes("longcat", text, ids=False)


def test_tags_have_the_suffix_of_the_vocabulary() -> None:
    vocabulary = Vocabulary(("<think:ab12>", "</think:ab12>", "<tool_calls:ab12>", "</tool_calls:ab12>"))
    text = "<tool_calls:ab12><tool_call:ab12>moon</tool_call:ab12></tool_calls:ab12>"
    assert vocabulary.takes(vocabulary.held(made(form_of("hy_v4"), vocabulary, MOON)), text)
    assert not vocabulary.takes(vocabulary.held(made(form_of("hy_v4"), vocabulary, MOON)), text.replace(":ab12", ""))


@pytest.mark.parametrize("name", [*TAGGED, "minimax_m3"])
def test_pairs_of_formats_spell_as_the_second(name: str) -> None:
    stage = parser(f"deepseek_r1+{name}")
    assert isinstance(stage, Parser)
    paired, form = stage.format, form_of(name)
    assert [one.call for one in paired.spellings] == [one.call for one in form.spellings]
    vocabulary = Vocabulary(markers(paired))
    assert vocabulary.takes(vocabulary.held(made(paired, vocabulary, TIDE, MOON), TAIL), WRITTEN[name])


# --- strings --------------------------------------------------------------------------------------------------------

ORDINARY = ("Brest", "", " ", "\n", " a\n", "null", "None", "true", "5", "-", "1e5", "{", '{"a": 1}', "[", '"q"',
            "a\\n", "</arg", "<", "a < b", "潮", "</think>", "<tool_call", "&lt;")  # fmt: skip
HOSTILE = ("</arg_value>", "x</arg_value>y", "<arg_key>", "<arg_key>k</arg_key><arg_value>v", "</tool_call>",
           "</tool_call>\n<tool_call>moon</tool_call>", "a</tool_call> <tool_call>tide<arg_key>", "</tool_calls>",
           "<tool_call>", "</longcat_arg_value>", "<ifm|arg_key>", "</ifm|tool_call></ifm|tool_calls>",
           f"{NS}</port>", NS, f"{NS}<b>x", "]<]minimax[>", f"a{NS[:5]}", "]<]")  # fmt: skip


@pytest.mark.parametrize("ids", [True, False])
@pytest.mark.parametrize("name", WRITTEN)
def test_a_string_is_written_only_if_it_is_read_as_itself(name: str, ids: bool) -> None:
    if name == "longcat" and not ids:
        return
    nulls = ("null",) if name == "spark2.5" else ()
    vocabulary = Vocabulary(markers(form_of(name)) if ids else ())
    constraint = made(form_of(name), vocabulary, TIDE, MOON)
    for value in (*ORDINARY, *HOSTILE):
        text = WRITTEN[name].replace("Brest", value)
        taken = vocabulary.takes(vocabulary.held(constraint, TAIL), text)
        token = any(marker in value for marker in vocabulary.facts.special)
        assert taken or token or value in (*HOSTILE, *nulls), value
        assert not (taken and token)
        if taken:
            got = read(name, text)
            assert (got.faults, got.content) == ([], None), value
            assert got.calls[0].value() == {"port": value, "day": 3}


@pytest.mark.parametrize("name", WRITTEN)
def test_a_string_that_may_be_another_kind_is_not_written_like_it(name: str) -> None:
    schema = {"type": "object", "properties": {"port": {"type": ["string", "null"], "maxLength": 9},
              "day": {"type": "integer"}}, "required": ["port"], "additionalProperties": False}  # fmt: skip
    tool = Tool("tide", None, schema)
    for value, want in {
        "Brest": "Brest",
        "null": None,
        "5": "5",
        "true": "true",
        "{": "{",
        "2024-01": "2024-01",
    }.items():
        text = WRITTEN[name].replace("Brest", value)
        assert takes(name, text, tool, MOON)
        assert read(name, text, tool, MOON).calls[0].value()["port"] == want
    assert not takes(name, WRITTEN[name].replace("Brest", "1234567890"), tool, MOON)


def test_what_cannot_be_written_is_refused() -> None:
    null: dict[str, Any] = {"type": "object", "properties": {"port": {"const": "null"}}, "required": ["port"]}
    marker: dict[str, Any] = {
        "type": "object",
        "properties": {"port": {"const": "a</arg_value>"}},
        "required": ["port"],
    }
    blank: dict[str, Any] = {"type": "object", "properties": {"a b": {}}, "required": ["a b"]}
    tag: dict[str, Any] = {"type": "object", "properties": {"<a>": {}}, "required": ["<a>"]}
    for name, schema in (("spark2.5", null), ("glm", marker), ("minimax_m3", blank), ("glm", tag)):
        with pytest.raises(RequestError) as caught:
            takes(name, "", Tool("tide", None, schema))
        assert (caught.value.param, caught.value.code) == ("tools[0].function.parameters", "unsupported_schema")
    for name in ("glm", "hy_v3", "k2_horizon"):
        with pytest.raises(RequestError, match="cannot write a call of 'high tide'"):
            takes(name, "", Tool("high tide", None, None))
    with pytest.raises(RequestError, match="cannot write a call of 'a<b'"):
        takes("minimax_m3", "", Tool("a<b", None, None))


# --- groups that stand or fall as a whole ---------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["xml", "json"])
@pytest.mark.parametrize("listed", [True, False])
def test_no_name_comes_twice_where_that_breaks_the_call(shape: str, listed: bool) -> None:
    """One that is not listed may come, and once."""
    pair = "<ifm|arg_key>{}</ifm|arg_key><ifm|arg_value>v</ifm|arg_value>"
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"port": {"type": "string"}},
        "additionalProperties": {"type": "string"},
    }
    tool = Tool("tide", None, schema if listed else {"type": "object"})

    def call(*names: str) -> str:
        if shape == "xml":
            inside = "tide" + "".join(map(pair.format, names))
        else:
            inside = '{"name": "tide", "arguments": {' + ", ".join(f'"{name}": "v"' for name in names) + "}}"
        return f"<ifm|tool_calls><ifm|tool_call>{inside}</ifm|tool_call></ifm|tool_calls>"

    assert takes("k2_horizon", call("port"), tool)
    assert takes("k2_horizon", call(), tool)
    assert not takes("k2_horizon", call("port", "port"), tool)
    assert takes("k2_horizon", call("other"), tool) == (shape == "xml" or not listed)
    assert takes("k2_horizon", call("port", "other"), tool) == (shape == "xml" and listed)
    assert not takes("k2_horizon", call("other", "other"), tool)


@pytest.mark.parametrize("name", ["k2_horizon", "minimax_m3"])
def test_a_tool_that_is_not_strict_may_have_all_its_arguments(name: str) -> None:
    """Its schema is not looked at, but that names must be known."""
    loose = Tool("tide", None, {"type": "object", "properties": {"port": {"not": {}}, "day": {"type": "integer"}}})
    text = WRITTEN[name].replace(">3", ">three")
    assert takes(name, f"ebb {text}", loose, Tool("moon", None, None, True), choice="auto")


@pytest.mark.parametrize("name", ["hy_v3", "hy_v4", "minimax_m3"])
def test_nothing_is_written_behind_a_block_where_it_would_be_lost(name: str) -> None:
    strict = Tool("moon", None, None, True)
    for text, want in {f"ebb {WRITTEN[name]}": True, f"{WRITTEN[name]} ebb": False, "ebb": True}.items():
        assert takes(name, text, TIDE, strict, choice="auto") is want


# --- nested XML -----------------------------------------------------------------------------------------------------

NESTED = {
    "type": "object",
    "properties": {
        "at": {"type": "array", "items": {"type": "string"}},
        "o": {
            "type": "object",
            "properties": {"k": {"type": "string"}, "n": {"type": "integer"}, "l": {"type": "array", "items": {
                "type": "object", "properties": {"x": {"type": "boolean"}}, "required": ["x"]}, "maxItems": 2}},
            "required": ["k"],
        },
        "map": {"type": "object", "additionalProperties": {"type": "integer"}},
        "node": {"$ref": "#/$defs/node"},
        "both": {"type": ["array", "string"], "items": {"type": "integer"}},
    },
    "$defs": {"node": {"type": "object", "properties": {"to": {"$ref": "#/$defs/node"}}}},
}  # fmt: skip
ELEMENTS: dict[str, Any] = {
    "<at>[<item>06[</item>[<item>18[</item>[</at>": {"at": ["06", "18"]},
    "<at>[</at>": {"at": []},
    "<o>[<k>v[</k>[<n>1[</n>[</o>": {"o": {"k": "v", "n": 1}},
    "<o>[<k>[</k>[<l>[<item>[<x>true[</x>[</item>[</l>[</o>": {"o": {"k": "", "l": [{"x": True}]}},
    '<map>{"a": 1}[</map>': {"map": {"a": 1}},
    "<node>[<to>[<to>[</to>[</to>[</node>": {"node": {"to": {"to": {}}}},
    "<both>[<item>1[</item>[</both>": {"both": [1]},
    "<both>a[</both>": {"both": "a"},
    "<both>[</both>": {"both": ""},
    "<both>[][</both>": {"both": []},
}
WRONG = (
    "<o>[<n>1[</n>[</o>", "<o>[</o>", "<at>x[</at>", "<at>[<port>06[</port>[</at>", "<map>[<a>1[</a>[</map>",
    "<o>[<k>v[</k>[<l>[<item>[<x>1[</x>[</item>[</l>[</o>", "<both>[<item>x[</item>[</both>", "<at>[<item>a[</at>",
)  # fmt: skip


def invoked(inside: str) -> str:
    """``[`` before a tag stands for the namespace."""
    inside = f"[{inside}".replace("[<", f"{NS}<")
    return f'{NS}<tool_call>\n{NS}<invoke name="tide">{inside}{NS}</invoke>\n{NS}</tool_call>'


@pytest.mark.parametrize("ids", [True, False])
def test_objects_and_arrays_are_elements(ids: bool) -> None:
    tool = Tool("tide", None, NESTED)
    for inside, want in ELEMENTS.items():
        assert takes("minimax_m3", invoked(inside), tool, ids=ids), inside
        got = read("minimax_m3", invoked(inside), tool)
        assert (got.faults, [call.value() for call in got.calls]) == ([], [want])
        assert jsonschema_rs.is_valid(NESTED, want)
    for inside in WRONG:
        assert not takes("minimax_m3", invoked(inside), tool, ids=ids), inside


# --- hostile schemas ------------------------------------------------------------------------------------------------


def doubled(levels: int) -> dict[str, Any]:
    """Each level refers to the next one twice."""
    two = {f"d{n}": {"properties": {side: {"$ref": f"#/$defs/d{n + 1}"} for side in "lr"}} for n in range(levels)}
    return {"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": {**two, f"d{levels}": {}}}


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"x": schema}, "required": ["x"]}
    return schema


JUNK: tuple[dict[str, Any], ...] = (
    {"type": 5}, {"properties": 5}, {"properties": {"a": 5}}, {"required": "a"}, {"required": [1, {}, "a"]},
    {"allOf": 5}, {"allOf": [5]}, {"anyOf": []}, {"oneOf": [True, True]}, {"$ref": 5}, {"$ref": "#"}, {"$ref": "#/x"},
    {"$ref": "http://x.test/"}, {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}, {"enum": [{}]}, {"const": {"a": 1}},
    {"properties": {"a": {"$ref": "#/properties/a"}}}, {"properties": {"a": {"enum": 5}}}, {"additionalProperties": 5},
    {"properties": {"a": {"enum": []}}}, {"properties": {"a": {"pattern": "("}}}, {"properties": {"a": {"pattern": 5}}},
    {"properties": {"a": {"type": "string", "minLength": "x", "maxLength": -1}}}, {"patternProperties": {"(": {}}},
    {"properties": {"a": {"type": ["string", 5]}}}, {"properties": {"a": {"items": 5}}, "minProperties": "x"},
    {"properties": {"a": {"anyOf": [5, {"type": "string"}]}}}, {"not": {}}, {"if": {}}, {"propertyNames": {}},
    {"properties": {"a": {"type": "array", "minItems": 5, "maxItems": 2}}}, {"properties": {"a": False}},
    {"properties": {"a": {"type": "array", "items": [{}], "minItems": "x"}}}, {"properties": {"": {}, "\n": True}},
    doubled(40), nested(60), nested(400),
)  # fmt: skip


@pytest.mark.parametrize("name", ["glm", "k2_horizon", "minimax_m3"])
def test_any_schema_is_held_or_refused(name: str) -> None:
    vocabulary = Vocabulary(markers(form_of(name)))
    for schema in JUNK:
        begun = time.perf_counter()
        try:
            held = vocabulary.held(made(form_of(name), vocabulary, Tool("tide", None, schema)))
        except RequestError as error:
            assert error.status == 400
        else:
            assert held.mask()
        assert time.perf_counter() - begun < 10, schema


@pytest.mark.parametrize("name", ["glm", "k2_horizon", "minimax_m3"])
def test_five_hundred_properties_are_held(name: str) -> None:
    listed = {f"p{n}": {"type": "string", "maxLength": 3} if n % 2 else {"type": "integer"} for n in range(500)}
    tool = Tool("tide", None, {"type": "object", "properties": {**listed, "port": {"type": "string"}, "day": {}}})
    begun = time.perf_counter()
    assert takes(name, WRITTEN[name], tool, MOON)
    assert time.perf_counter() - begun < 20
