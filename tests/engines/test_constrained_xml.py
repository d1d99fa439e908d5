"""Formats that write arguments in tags: what a grammar of theirs allows is what templates write, and nothing that the
reader takes for something else."""

from __future__ import annotations

import random
from typing import Any

import jsonschema_rs
import pytest

from stages.constraint import constraint_of
from stages.errors import RequestError
from stages.opening import Ask, Tool
from stages.parse.format import Format
from stages.parse.formats import FORMATS
from stages.parse.spellings.pairs import Pairs
from tests.support.constrained import Vocabulary, ends, markers
from tests.support.parse import Collected, message, opening, semantic, session

NAMES = (
    "qwen3-xml", "qwen3.5", "nemotron3", "step3p5", "step5", "mimo", "minicpmv", "minimax_m2",
    "minimax_m2_append_think", "seed_oss", "dots", "step3", "minicpm5", "deepseek_v32",
    "deepseek_v4", "gigachat3.5", "kimi_k3",
)  # fmt: skip
FORMS = [form for form in FORMATS if form.name in NAMES]
SEEDS = 4
TAIL = "<assistant>"
each_form = pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)


def test_all_of_them_are_there() -> None:
    assert sorted(form.name for form in FORMS) == sorted(NAMES)
    assert all(isinstance(form.spellings[0].arguments, Pairs) for form in FORMS)


# --- what templates write -------------------------------------------------------------------------------------------

TIDE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "port": {"type": "string"}, "day": {"type": "integer"}, "deep": {"type": "boolean"},
        "at": {"type": ["array", "null"], "items": {"type": "string"}},
    },
    "required": ["port"],
}  # fmt: skip
MOON: dict[str, Any] = {"type": "object", "properties": {}}
QWEN = """<tool_call>
<function=tide>
<parameter=port>
Le "Havre"
</parameter>
<parameter=day>
3
</parameter>
<parameter=deep>
True
</parameter>
<parameter=at>
["06:10", "18:40"]
</parameter>
</function>
</tool_call>
<tool_call>
<function=moon>
</function>
</tool_call>"""
WRITTEN = {
    **dict.fromkeys(("qwen3-xml", "qwen3.5", "nemotron3", "step3p5", "step5", "minicpmv"), QWEN),
    "mimo": '<tool_call><function=tide><parameter=port>Le "Havre"</parameter><parameter=day>3</parameter>'
    '<parameter=deep>True</parameter><parameter=at>["06:10", "18:40"]</parameter></function></tool_call>'
    "<tool_call><function=moon></function></tool_call>",
    **dict.fromkeys(
        ("minimax_m2", "minimax_m2_append_think"),
        '<minimax:tool_call>\n<invoke name="tide">\n<parameter name="port">Le "Havre"</parameter>\n'
        '<parameter name="day">3</parameter>\n<parameter name="deep">true</parameter>\n'
        '<parameter name="at">["06:10", "18:40"]</parameter>\n</invoke>\n<invoke name="moon">\n</invoke>\n'
        "</minimax:tool_call>",
    ),
    "seed_oss": '<seed:tool_call>\n<function=tide>\n<parameter=port>Le "Havre"</parameter>\n'
    '<parameter=day>3</parameter>\n'
    '<parameter=deep>True</parameter>\n<parameter=at>["06:10", "18:40"]</parameter>\n</function>\n</seed:tool_call>\n'
    "<seed:tool_call>\n<function=moon>\n</function>\n</seed:tool_call>",
    "dots": '<dots_function_call>\n<invoke name="tide"><parameter name="port">Le "Havre"</parameter>'
    '<parameter name="day">3</parameter><parameter name="deep">true</parameter>'
    '<parameter name="at">["06:10", "18:40"]</parameter></invoke>\n<invoke name="moon"></invoke>\n'
    "</dots_function_call>",
    "step3": "<｜tool_calls_begin｜>\n<｜tool_call_begin｜>function<｜tool_sep｜>"
    '<steptml:invoke name="tide"><steptml:parameter name="port">Le "Havre"</steptml:parameter>'
    '<steptml:parameter name="day">3</steptml:parameter><steptml:parameter name="deep">true</steptml:parameter>'
    '<steptml:parameter name="at">["06:10", "18:40"]</steptml:parameter></steptml:invoke><｜tool_call_end｜>\n'
    '<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="moon"></steptml:invoke><｜tool_call_end｜>\n'
    "<｜tool_calls_end｜>",
    "minicpm5": '<function name="tide"><param name="port">Le "Havre"</param><param name="day">3</param>'
    '<param name="deep">true</param><param name="at"><![CDATA[["06:10", "18:40"]]]></param></function>\n'
    '<function name="moon"></function>',
    **{
        name: f'<｜{word}｜{block}>\n<｜{word}｜invoke name="tide">\n'
        f'<｜{word}｜parameter name="port" string="true">Le "Havre"</｜{word}｜parameter>\n'
        f'<｜{word}｜parameter name="day" string="false">3</｜{word}｜parameter>\n'
        f'<｜{word}｜parameter name="deep" string="false">true</｜{word}｜parameter>\n'
        f'<｜{word}｜parameter name="at" string="false">["06:10", "18:40"]</｜{word}｜parameter>\n'
        f'</｜{word}｜invoke>\n<｜{word}｜invoke name="moon">\n</｜{word}｜invoke>\n</｜{word}｜{block}>'
        for name, word, block in (
            ("deepseek_v32", "DSML", "function_calls"), ("deepseek_v4", "DSML", "tool_calls"),
            ("gigachat3.5", "GCML", "tool_calls"),
        )
    },
    "kimi_k3": '<|open|>tools<|sep|><|open|>call tool="tide" index="1"<|sep|>'
    '<|open|>argument key="port" type="string"<|sep|>Le "Havre"<|close|>argument<|sep|>'
    '<|open|>argument key="day" type="number"<|sep|>3<|close|>argument<|sep|>'
    '<|open|>argument key="deep" type="boolean"<|sep|>true<|close|>argument<|sep|>'
    '<|open|>argument key="at" type="array"<|sep|>["06:10", "18:40"]<|close|>argument<|sep|><|close|>call<|sep|>'
    '<|open|>call tool="moon" index="2"<|sep|><|close|>call<|sep|><|close|>tools<|sep|><|close|>message<|sep|>',
}  # fmt: skip


def called(form: Format, vocabulary: Vocabulary, tools: tuple[Tool, ...], seed: int, **ask: Any) -> Collected:
    wanted = Ask(tools=tools, tool_choice="required", **ask)
    constraint = constraint_of(wanted, form, vocabulary.facts, "chat")
    assert constraint is not None
    steps = vocabulary.written(vocabulary.held(constraint, TAIL), seed, most=20_000)
    return message(semantic(opening(form.name, tokenizer=vocabulary.facts, ask=wanted), session(steps, tail=TAIL)))


@each_form
@pytest.mark.parametrize("ids", [True, False])
def test_what_a_template_writes_is_allowed(form: Format, ids: bool) -> None:
    vocabulary = Vocabulary(markers(form) if ids else ())
    tools = (Tool("tide", None, TIDE), Tool("moon", None, MOON))
    constraint = constraint_of(Ask(tools=tools, tool_choice="required"), form, vocabulary.facts, "chat")
    assert constraint is not None
    held = vocabulary.grammars.compiled(constraint.rule)()
    assert vocabulary.takes(held, WRITTEN[form.name])


# --- hostile values -------------------------------------------------------------------------------------------------

LEAVES: tuple[Any, ...] = (
    {}, True,
    {"type": "string"},
    {"type": ["string", "null"]},
    {"type": ["string", "integer"]},
    {"type": ["string", "boolean", "number"]},
    {"type": ["string", "object", "array"]},
    {"anyOf": [{"type": "string", "maxLength": 3}, {"type": "null"}]},
    {"oneOf": [{"type": "string", "pattern": "^[a-z<]+$"}, {"type": "integer", "minimum": 3}]},
    {"enum": ["red", "5", 5, None, "null", True, "true", " x ", "<b>", "a\nb", ""]},
    {"type": "string", "enum": ["5", "null", "\\n"]},
    {"const": "a<b>&amp;"},
    {"type": "number"},
    {"type": "integer"},
    {"type": ["integer", "null"]},
    {"type": "number", "exclusiveMinimum": 0},
    {"anyOf": [{"type": "number"}, {"type": "null"}]},
    {"type": "boolean"},
    {"type": "array", "items": {"type": "string"}, "maxItems": 2},
    {"type": "array", "maxItems": 2},
    {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 2},
    {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "integer"},
     "required": ["a"], "maxProperties": 2},
    {"$ref": "#/$defs/node"},
    {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "string"}]},
    {"type": "string", "minLength": 2, "maxLength": 5},
    {"type": "string", "pattern": "^.{1,3}$", "nullable": True},
    {"allOf": [{"type": "string", "pattern": "a"}, {"maxLength": 6}]},
    {"type": "string", "format": "date-time"},
    {"type": ["string", "null"], "default": None, "title": "T", "description": "{"},
)  # fmt: skip
NODE = {"type": "object", "properties": {"to": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
                                         "text": {"type": "string", "maxLength": 30}},
        "required": ["to"], "additionalProperties": False}  # fmt: skip
HOSTILE = (
    "null", "None", "true", "5", "{", "[", "\n", " ", "<", "</", "\\n", "&lt;", "<![CDATA[", "]]>", "x", "1e999",
    "\n</parameter>", "</parameter", "</parameter>", "<parameter=x>", "\n< parameter=x>", "\n<parameter =",
    "</function>", "</invoke>", "<invoke", "<tool_call>", "</tool_call>", "</param>", "<|close|>argument",
    "<|sep|>", "<|open|>", "</｜DSML｜", "</｜GCML｜parameter>", "</think>", '"', "\\",
)  # fmt: skip


def hostile(dice: random.Random) -> dict[str, Any]:
    names = dice.sample(("a", "city", "naïve 潮", "x-y.z", "arguments", "$ref_er", "properties"), dice.randint(0, 4))
    made: dict[str, Any] = {
        "type": "object",
        "properties": {name: dice.choice(LEAVES) for name in names},
        "required": [name for name in names if dice.random() < 0.7],
        "$defs": {"node": NODE},
    }
    if dice.random() < 0.4:
        made["additionalProperties"] = dice.choice((True, False, {}, {"type": "integer"}, {"type": ["string", "null"]}))
    return made


@each_form
@pytest.mark.parametrize("ids", [True, False])
def test_hostile_values_are_read_as_they_were_held(form: Format, ids: bool) -> None:
    vocabulary = Vocabulary(markers(form) if ids else (), (*ends(form), *HOSTILE))
    dice = random.Random(form.name)
    for seed in range(SEEDS):
        schema = hostile(dice)
        try:
            got = called(form, vocabulary, (Tool("tide", None, schema),), seed, parallel=seed % 3 == 0)
        except RequestError as error:
            assert error.code == "unsupported_schema"
            assert "can be written" in error.message or "cannot be written" in error.message
            continue
        assert set(got.faults) <= {"invalid_utf8"}, schema
        assert got.content is None
        for call in got.calls:
            assert call.complete
            assert jsonschema_rs.is_valid(schema, call.value()), (schema, call.arguments)


# --- what cannot be, and what it costs ------------------------------------------------------------------------------


def refusal(form: Format, schema: dict[str, Any]) -> str:
    vocabulary = Vocabulary(markers(form))
    with pytest.raises(RequestError) as caught:
        called(form, vocabulary, (Tool("moon", None, MOON), Tool("bad", None, schema)), 0)
    assert (caught.value.param, caught.value.code) == ("tools[1].function.parameters", "unsupported_schema")
    return caught.value.message


def needs(value: Any, name: str = "x", **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {name: value}, "required": [name], **more}


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (needs({"type": "string"}, "two\nlines"), "the name 'two\\nlines' cannot be written"),
        (needs({"type": "string"}, ""), "the name '' cannot be written"),
        (needs({"const": "</parameter>"}), "no value of 'x' can be written"),
        (needs(False), "unsatisfiable"),
        ({"type": "string"}, "unsatisfiable"),
        (needs({"type": "string", "not": {"const": "a"}}), '"not"'),
        (needs({"type": "string"}, propertyNames={"maxLength": 3}), '"propertyNames"'),
        (needs({"type": "string"}, minProperties=2, additionalProperties=True), '"minProperties"'),
        (needs({"oneOf": [{"type": "string"}, {"maxLength": 3}]}), '"oneOf"'),
        ({"oneOf": [needs({"type": "string"}), needs({"type": "string"})]}, '"oneOf"'),
        (needs({"type": "string", "pattern": "(?=a)b"}), "(?="),
        (needs({"type": "string", "pattern": "^a$", "minLength": 2}), "no string that can be written"),
        (needs({"$ref": "#/$defs/gone"}), "leads nowhere"),
        (needs({"$ref": "#/properties/x"}), "too deep"),
        (needs({"type": "string", "enum": [f"v{number}" for number in range(200_000)]}), "too large"),
    ],
)
def test_what_cannot_be_held_is_refused(schema: dict[str, Any], says: str) -> None:
    form = next(form for form in FORMS if form.name == "mimo")
    assert says in refusal(form, schema)


def test_an_array_of_itself_by_reference_is_what_it_was_in_the_whole() -> None:
    """The value is compiled by itself: ``#`` is the tool's schema all the same."""
    form = next(form for form in FORMS if form.name == "seed_oss")
    schema = {"type": "object", "properties": {"n": {"type": "integer"},
                                               "kids": {"type": "array", "items": {"$ref": "#"}, "maxItems": 1}},
              "additionalProperties": False}  # fmt: skip
    vocabulary = Vocabulary()
    constraint = constraint_of(
        Ask(tools=(Tool("t", None, schema),), tool_choice="required"), form, vocabulary.facts, "chat"
    )
    assert constraint is not None
    text = "<seed:tool_call>\n<function=t>\n<parameter=kids>{}</parameter>\n</function>\n</seed:tool_call>"
    for kids, want in {'[{"n": 5, "kids": []}]': True, '[{"n": "x"}]': False, "[[]]": False}.items():
        assert vocabulary.takes(vocabulary.grammars.compiled(constraint.rule)(), text.format(kids)) is want


def test_a_name_that_is_not_listed_may_begin_as_one_that_is() -> None:
    form = next(form for form in FORMS if form.name == "minimax_m2")
    vocabulary = Vocabulary()
    schema = {
        "type": "object",
        "properties": {"port": {"type": "integer"}},
        "additionalProperties": {"type": "boolean"},
    }
    constraint = constraint_of(
        Ask(tools=(Tool("t", None, schema),), tool_choice="required"), form, vocabulary.facts, "chat"
    )
    assert constraint is not None
    text = '<minimax:tool_call>\n<invoke name="t">\n<parameter name="{}</parameter>\n</invoke>\n</minimax:tool_call>'
    for pair, want in {'port">5': True, 'pole">true': True, 'port">true': False, 'port2">5': False}.items():
        assert vocabulary.takes(vocabulary.grammars.compiled(constraint.rule)(), text.format(pair)) is want


@pytest.mark.parametrize(
    ("schema", "pairs", "want"),
    [
        # Patterns of names, also beside names that are listed.
        ({"properties": {"n": {"type": "null"}}, "patternProperties": {"^n": {"type": "string"}}}, ["n=null"], False),
        ({"properties": {"m": {"type": "null"}}, "patternProperties": {"^n": {"type": "string"}}}, ["m=null"], True),
        ({"properties": {"m": {"type": "null"}}, "patternProperties": {"^n": {"type": "string"}}}, ["nb=x"], True),
        ({"properties": {"m": {"type": "null"}}, "patternProperties": {"^n": {"type": "string"}}}, ["b=x"], False),
        ({"properties": {"m": {"type": "null"}}, "patternProperties": {"^n": {"type": "string"}}}, ["m=x"], False),
        # One branch lists what the other needs: they are told apart only where nothing else may list it.
        ({"oneOf": [needs({"type": "null"}, "a"), needs({"type": "null"}, "b")]}, ["b=null"], True),
        ({"oneOf": [needs({"type": "null"}, "a"), needs({"type": "null"}, "b")]}, ["a=null", "b=null"], False),
        # A name of which nothing can be is none, where it may be missing.
        ({"properties": {"a": False, "b": {"type": "null"}}}, ["b=null"], True),
        ({"properties": {"a": False, "b": {"type": "null"}}}, ["a=null"], False),
        ({"anyOf": [needs(False, "a"), needs({"type": "null"}, "b")]}, ["b=null"], True),
    ],
)
def test_what_a_schema_says_of_the_object_is_held(schema: dict[str, Any], pairs: list[str], want: bool) -> None:
    form = next(form for form in FORMS if form.name == "mimo")
    vocabulary = Vocabulary()
    tool = Tool("t", None, {"type": "object", **schema})
    constraint = constraint_of(Ask(tools=(tool,), tool_choice="required"), form, vocabulary.facts, "chat")
    assert constraint is not None
    inside = "".join("<parameter={}>{}</parameter>".format(*pair.split("=")) for pair in pairs)
    text = f"<tool_call><function=t>{inside}</function></tool_call>"
    assert vocabulary.takes(vocabulary.grammars.compiled(constraint.rule)(), text) is want


def test_branches_that_another_part_may_make_one_are_refused() -> None:
    form = next(form for form in FORMS if form.name == "mimo")
    branches = {"oneOf": [needs({"type": "null"}, "a"), needs({"type": "null"}, "b")]}
    assert "overlap" in refusal(form, {"allOf": [branches, {"properties": {"a": {}, "b": {}}}]})


def test_a_tool_that_is_not_strict_is_called_with_its_own_names_once_each() -> None:
    """Of two arguments of one name, this family makes no call."""
    form = next(form for form in FORMS if form.name == "dots")
    vocabulary = Vocabulary()
    tools = (Tool("moon", None, MOON, True), Tool("tide", None, TIDE))
    constraint = constraint_of(Ask(tools=tools), form, vocabulary.facts, "chat")
    assert constraint is not None
    text = '<dots_function_call>\n<invoke name="tide">{}</invoke>\n</dots_function_call>'
    day, port = ('<parameter name="day">x</parameter>', '<parameter name="port">5</parameter>')
    for pairs, want in {port + day: True, day + day: False, "": True}.items():
        assert vocabulary.takes(vocabulary.grammars.compiled(constraint.rule)(), text.format(pairs)) is want


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("qwen3-xml", "<function=tide>\n</function>"), ("seed_oss", "<function=tide>\n</function>"),
        ("minimax_m2", '<invoke name="tide"></invoke>'), ("minicpm5", '<functionname="tide"></function>'),
    ],
)  # fmt: skip
def test_no_call_is_written_past_a_strict_tool(name: str, text: str) -> None:
    """Where the reader takes a call that stands in no block."""
    form = next(form for form in FORMS if form.name == name)
    vocabulary = Vocabulary()
    constraint = constraint_of(Ask(tools=(Tool("tide", None, TIDE, True),)), form, vocabulary.facts, "chat")
    assert constraint is not None
    for said, want in {"A <b>tide</b>": True, f"Well: {text}": False}.items():
        assert vocabulary.takes(vocabulary.grammars.compiled(constraint.rule)(), said) is want


def test_an_answer_of_kimi_k3_stands_in_its_element() -> None:
    form = next(form for form in FORMS if form.name == "kimi_k3")
    vocabulary = Vocabulary(("<|open|>", "<|close|>", "<|sep|>"))
    constraint = constraint_of(Ask(tools=(Tool("tide", None, TIDE, True),)), form, vocabulary.facts, "chat")
    assert constraint is not None
    answer = "<|open|>response<|sep|>{}<|close|>response<|sep|>"
    call = WRITTEN["kimi_k3"].partition('<|open|>call tool="moon"')[0] + "<|close|>tools<|sep|><|close|>message<|sep|>"
    for said in (
        "Hi" + answer.format("you"),
        answer.format("Hi") + "<|close|>message<|sep|>",
        answer.format("Hi") + call,
    ):
        assert vocabulary.takes(vocabulary.grammars.compiled(constraint.rule)(), said)


@pytest.mark.parametrize("name", ["qwen3-xml", "minicpm5", "kimi_k3"])
def test_a_tool_of_500_optional_properties_is_held(name: str) -> None:
    form = next(form for form in FORMS if form.name == name)
    kinds = [leaf for leaf in LEAVES if "$ref" not in str(leaf) and "const" not in str(leaf)]
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {f"p{number}": kinds[number % len(kinds)] for number in range(500)},
    }
    got = called(form, Vocabulary(markers(form), (*ends(form), "</")), (Tool("tide", None, schema),), 1, parallel=False)
    assert [call.complete for call in got.calls] == [True]
