"""Arguments in Python and in braces: what a grammar allows is read back as what the schema asks for."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any, Final

import jsonschema_rs
import pytest

from stages.constraint import constraint_of
from stages.errors import RequestError
from stages.grammar import Again, Defined, Literal, Members, OneOf, Refer, Row, Rule, String, Text
from stages.opening import Ask, Tool
from stages.parse.format import Format
from stages.parse.formats import FORMATS
from tests.support.constrained import Vocabulary, markers
from tests.support.parse import message, opening, semantic, session

NESTED: Final = ("pythonic", "llama4_pythonic", "olmo3", "gemma3", "lfm2", "gemma4", "functiongemma")
FORMS: Final = {form.name: form for form in FORMATS if form.name in NESTED}
ENDS: Final = ("'", ")", "]", "}", "', ", '", ', "')", '")', "\\", "\\'", "null", "True")
KNOWN: dict[tuple[str, bool], Vocabulary] = {}


def vocabulary(form: Format, ids: bool) -> Vocabulary:
    """``ids``: the format's literals are special tokens."""
    key = form.name, ids
    if key not in KNOWN:
        assert form.calls is not None
        KNOWN[key] = Vocabulary(markers(form), ENDS) if ids else Vocabulary(words=(*ENDS, *form.calls.literals))
    return KNOWN[key]


def takes(name: str, schema: Any, text: str, ids: bool = True) -> bool:
    """Calls of ``tide`` with this schema, and of ``moon``, may be written so."""
    known = vocabulary(FORMS[name], ids)
    ask = Ask(tools=(Tool("tide", None, schema), Tool("moon", None, None)), tool_choice="required")
    constraint = constraint_of(ask, FORMS[name], known.facts, "chat")
    assert constraint is not None
    return known.takes(known.held(constraint, "<assistant>"), text)


def refusal(name: str, schema: Any) -> str:
    """Why no call of ``tide`` can be held to the schema."""
    with pytest.raises(RequestError) as caught:
        takes(name, schema, "")
    assert (caught.value.code, caught.value.param) == ("unsupported_schema", "tools[0].function.parameters")
    return caught.value.message


def has(**properties: Any) -> dict[str, Any]:
    """An object with these members, all of them."""
    return {"type": "object", "properties": properties, "required": [*properties]}


# --- the documented spellings ---------------------------------------------------------------------------------------

TIDE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "port": {"type": "string"}, "day": {"type": "integer"}, "deep": {"type": "boolean"},
        "at": {"type": ["array", "null"], "items": {}}, "o": {"type": "object"},
    },
}  # fmt: skip


@pytest.mark.parametrize("ids", [True, False])
@pytest.mark.parametrize(
    ("name", "text", "want"),
    [
        ("pythonic", '[tide(port="Brest", day=3), moon()]', True),
        ("pythonic", "[tide(port='l\\'eau\\n', deep=True, at=None)]", True),
        ("pythonic", "[tide(at=[\"06:10\", '18', 40], o={'k': {\"x\": -1.5}})]", True),
        ("pythonic", "[tide(day='3')]", False),
        ("pythonic", "[tide(deep=true)]", False),
        ("pythonic", "[tide(day=3, port='x')]", False),  # the schema's order
        ("pythonic", "[tide(day=007)]", False),
        ("llama4_pythonic", '[tide(port="Cork", deep=True, at=None)]', True),
        ("llama4_pythonic", "[tide(port='Cork')]", False),
        ("olmo3", '<function_calls>\ntide(port="A, B)", deep=false)\nmoon()\n</function_calls>', True),
        ("olmo3", '<function_calls>\ntide(o={"k": [null, {}]})\n</function_calls>', True),
        ("gemma3", '```tool_code\n[tide(port="Brest"), moon()]\n```', True),
        ("lfm2", "<|tool_call_start|>[tide(port='Brest', day=3, deep=True)]<|tool_call_end|>", True),
        ("lfm2", "<|tool_call_start|>[moon(), tide(at=[\"a\", true], o={})]<|tool_call_end|>", True),
        ("gemma4", '<|tool_call>call:tide{day:3,port:<|"|>Brest<|"|>}<tool_call|>', True),
        ("gemma4", '<|tool_call>call:tide{port:<|"|>Brest<|"|>,day:3}<tool_call|>', False),  # the alphabet's
        ("gemma4", "<|tool_call>call:moon{}<tool_call|><|tool_call>call:moon{}<tool_call|>", True),
        ("gemma4", '<|tool_call>call:tide{at:[<|"|>06:10<|"|>,<|"|>a,b}<|"|>],deep:true}<tool_call|>', True),
        ("gemma4", '<|tool_call>call:tide{o:{k:<|"|>v "q"<|"|>,n:-1.5}}<tool_call|>', True),
        ("functiongemma", "<start_function_call>call:tide{port:<escape>Brest<escape>}<end_function_call>", True),
    ],
)  # fmt: skip
def test_a_call_is_spelled_as_the_family_has_it(name: str, text: str, want: bool, ids: bool) -> None:
    assert takes(name, TIDE, text, ids) is want


BARE: Final = "pythonic"
FRAMES: Final = {
    "pythonic": "[tide(%s)]",
    "olmo3": "<function_calls>\ntide(%s)\n</function_calls>",
    "lfm2": "<|tool_call_start|>[tide(%s)]<|tool_call_end|>",
    "gemma4": "<|tool_call>call:tide{%s}<tool_call|>",
    "functiongemma": "<start_function_call>call:tide{%s}<end_function_call>",
}
SHORT: Final = has(x={"type": "string", "maxLength": 2})
LIKE_A: Final = has(x={"type": "string", "pattern": "^a+$"})
MORE: Final = {**has(a={"const": 1}), "additionalProperties": {"type": "integer"}}
EITHER: Final = has(x={"type": ["string", "integer"]})
SOME: Final = has(x={"type": "array", "items": {"type": "null"}, "minItems": 2, "maxItems": 3})
PAIR: Final = has(x={"type": "array", "prefixItems": [{"const": 1}, {"const": 2}], "items": False})
KEYED: Final = has(x={"type": "object", "patternProperties": {"^n": {"const": 1}}})


@pytest.mark.parametrize(
    ("name", "schema", "arguments", "want"),
    [
        # Lengths are of what is read, not of what is written.
        (BARE, SHORT, "x='\\n\\''", True),
        (BARE, SHORT, "x='\\n\\'a'", False),
        (BARE, SHORT, 'x="\\n\\""', True),
        (BARE, SHORT, "x='éé'", True),
        (BARE, SHORT, 'x="\\/"', False),  # two characters to Python, one in JSON
        (BARE, LIKE_A, "x='aa'", True),
        (BARE, LIKE_A, "x='b'", False),
        ("lfm2", has(x={"type": "string", "pattern": "'"}), 'x="it\'s"', True),
        # A name that comes twice is no call where there is no opener.
        (BARE, {"type": "object"}, "a=1", True),
        (BARE, {"type": "object"}, "a=1, a=2", False),
        ("olmo3", {"type": "object"}, "a=1, a=2", True),
        # What is listed is not written as one that is not.
        ("olmo3", {**has(a={"const": 1}), "additionalProperties": True}, "a=1, a=2", False),
        ("gemma4", MORE, "a:1,b:2", True),
        ("gemma4", MORE, "a:1,a:2", False),
        # Numbers have an end: those that no reader holds are not written.
        (BARE, has(x={"type": "number"}), "x=1e99", True),
        (BARE, has(x={"type": "number"}), "x=1e999", False),
        # Names that are no bare keys.
        ("gemma4", has(x=has(**{"a:b": {"const": 1}})), 'x:{<|"|>a:b<|"|>:1}', True),
        # Quoted text that is read as what it looks like, where the schema allows both.
        ("functiongemma", EITHER, "x:<escape>5<escape>", False),
        ("functiongemma", EITHER, "x:5", True),
        ("functiongemma", has(x={"type": "string"}), "x:<escape>5<escape>", True),
        ("functiongemma", has(x={"enum": ["5", 5, "a"]}), "x:<escape>5<escape>", False),
        ("gemma4", EITHER, 'x:<|"|>5<|"|>', True),
        # How many, and which ones.
        (BARE, SOME, "x=[None, None]", True),
        (BARE, SOME, "x=[None]", False),
        (BARE, SOME, "x=[None, None, None, None]", False),
        (BARE, has(x={"prefixItems": [{"const": 1}], "items": {"const": 3}}), "x=[1, 3, 3]", True),
        (BARE, PAIR, "x=[1]", True),
        (BARE, PAIR, "x=[1, 2, 2]", False),
        (BARE, KEYED, 'x={"n_a": 1, "n_b": 1, "c": 2}', True),
        (BARE, KEYED, 'x={"n_a": 2}', False),
        (BARE, {"anyOf": [has(a={"const": 1}), has(b={"const": 2})]}, "b=2", True),
        (BARE, {"allOf": [has(a={"type": "string"}), has(a={"maxLength": 2})]}, "a='abc'", False),
        (BARE, has(x={"const": {"a": ["it's", None, {}]}}), "x={'a': [\"it's\", None, {}]}", True),
    ],
)
def test_what_is_written_is_what_is_read(name: str, schema: Any, arguments: str, want: bool) -> None:
    assert takes(name, schema, FRAMES[name] % arguments) is want


def test_a_tool_that_is_not_strict_has_the_arguments_that_it_lists() -> None:
    """Beside a strict one; where a name may not come twice, others would be one at most."""
    form = FORMS["pythonic"]
    known = vocabulary(form, True)
    loose = Tool("tide", None, {"allOf": [{"properties": {"b": {"type": "string"}}}], "properties": {"z": {}, "a": {}}})
    ask = Ask(tools=(loose, Tool("moon", None, None, True)))
    constraint = constraint_of(ask, form, known.facts, "chat")
    assert constraint is not None
    for text, want in {
        "[tide(z=1, a='x', b=[2])]": True,
        "[tide(z=1, z=2)]": False,
        "[moon(), tide(b=1)]": True,
    }.items():
        assert known.takes(known.held(constraint), text) is want


# --- recursion and size ---------------------------------------------------------------------------------------------

NODE: dict[str, Any] = {
    "type": "object", "required": ["v"], "additionalProperties": False,
    "properties": {"v": {"type": "integer"}, "to": {"$ref": "#/$defs/node"}, "never": {"$ref": "#/$defs/loop"}},
}  # fmt: skip
LOOP: dict[str, Any] = {"type": "object", "properties": {"on": {"$ref": "#/$defs/loop"}}, "required": ["on"]}
RECURSIVE: dict[str, Any] = {**has(x={"$ref": "#/$defs/node"}), "$defs": {"node": NODE, "loop": LOOP}}


def test_a_recursive_schema_is_recursive_rules() -> None:
    assert takes("pythonic", RECURSIVE, "[tide(x={'v': 1, 'to': {'v': 2, 'to': {'v': 3}}})]")
    assert not takes("pythonic", RECURSIVE, "[tide(x={'v': 1, 'to': {'to': {'v': 3}}})]")
    assert takes("gemma4", RECURSIVE, "<|tool_call>call:tide{x:{to:{to:{v:3},v:2},v:1}}<tool_call|>")


def test_what_has_no_end_is_not_begun() -> None:
    known = vocabulary(FORMS["pythonic"], True)
    ask = Ask(tools=(Tool("tide", None, RECURSIVE),), tool_choice="required")
    constraint = constraint_of(ask, FORMS["pythonic"], known.facts, "chat")
    assert constraint is not None
    held = known.held(constraint)
    for number in known.ids("[tide(x={'v': 1, '"):
        held.take(number)
    assert known.allowed(held) == [ord("t")]
    assert "unsatisfiable" in refusal("pythonic", {**has(x={"$ref": "#/$defs/loop"}), "$defs": {"loop": LOOP}})


def nest(depth: int, word: str) -> Any:
    schema: Any = {}
    for _ in range(depth):
        schema = (
            {"type": "array", "items": schema} if word == "items" else {"type": "object", "properties": {"a": schema}}
        )
    return schema


@pytest.mark.parametrize("name", ["pythonic", "gemma4"])
def test_large_schemas_are_held_or_refused(name: str) -> None:
    """At once: what would take minutes, or overflow the library's stack, is refused."""
    equals = {"pythonic": "=", "gemma4": ":"}[name]
    many = {"type": "object", "properties": {f"p{number}": {"type": "integer"} for number in range(600)}}
    assert takes(name, many, FRAMES[name] % f"p599{equals}1")
    assert takes(name, has(x=nest(60, "items")), FRAMES[name] % f"x{equals}{'[' * 60}{']' * 60}")
    for word in ("items", "properties"):
        assert "too large" in refusal(name, has(x=nest(400, word)))
    for word in ("allOf", "anyOf"):
        doubling = {f"d{n}": {word: [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}
        assert "too deep" in refusal(name, {**has(x={"$ref": "#/$defs/d0"}), "$defs": {**doubling, "d40": {}}})
    assert "too large" in refusal(name, has(x={"enum": [f"v{number}" for number in range(100_000)]}))
    ways: list[Any] = [{"anyOf": [{"properties": {f"p{one}{two}": {}}} for two in range(6)]} for one in range(6)]
    assert "more than 500 ways" in refusal(name, {"type": "object", "allOf": ways})


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (has(x={"not": {}}), '"not"'),
        (has(x={"type": "array", "uniqueItems": True}), '"uniqueItems"'),
        (has(x={"type": "array", "contains": {}}), '"contains"'),
        ({"type": "object", "minProperties": 1}, '"minProperties"'),
        ({"type": "object", "maxProperties": 3}, '"maxProperties"'),
        ({"type": "object", "const": {}}, '"const"'),
        (has(x={"pattern": "(?=x)"}), "(?="),
        (has(x={"type": "string", "pattern": "("}), "regex"),
        (has(x={"type": ["string", "null"], "pattern": "^abc$", "maxLength": 2}), ""),
        (has(x={"type": "integer", "minimum": 5, "maximum": 3}), "greater than maximum"),
        (has(x=False), "'x' is required"),
        (has(x={"enum": []}), "'x' is required"),
        (has(x={"type": "dict"}), "'dict' is no type"),
        (has(x={"type": 5}), "5 is no type"),
        (has(x="string"), "where a schema should"),
        (has(x={"anyOf": {}}), '"anyOf" is no list'),
        (has(x={"$ref": "http://x.test/y"}), "x.test"),
        (has(x={"$ref": "#/properties/x"}), "too deep"),
        (has(x={"const": float("inf")}), "inf"),
        (has(x={"oneOf": [{"type": "integer"}, {"type": "number"}]}), "overlap"),
        ({"type": "object", "properties": [1]}, '"properties"'),
        ({"type": "object", "required": "x"}, '"required"'),
        (has(x={"type": "array", "minItems": -1}), '"minItems"'),
        ({"type": "string"}, "unsatisfiable"),
    ],
)
@pytest.mark.parametrize("name", ["pythonic", "functiongemma"])
def test_what_cannot_be_held_is_named(name: str, schema: Any, says: str) -> None:
    assert says in refusal(name, schema)


def test_names_that_cannot_be_written_are_refused_where_they_must_be() -> None:
    assert "'a b'" in refusal("pythonic", has(**{"a b": {}}))
    assert takes("pythonic", {"type": "object", "properties": {"a b": {}}}, "[tide()]")
    assert "'<escape>'" in refusal("functiongemma", has(x=has(**{"<escape>": {}})))
    assert "nothing can be written" in refusal("gemma4", has(x={"const": 'a<|"|>b'}))
    facts = vocabulary(FORMS["pythonic"], True).facts
    for protocol, param in {"chat": "tools[1].function.name", "messages": "tools[1].name"}.items():
        ask = Ask(tools=(Tool("tide", None, None), Tool("5-day", None, None)), tool_choice="required")
        with pytest.raises(RequestError, match="'5-day'") as caught:
            constraint_of(ask, FORMS["pythonic"], facts, protocol)
        assert (caught.value.param, caught.value.code) == (param, "unsupported_schema")


# --- rules ----------------------------------------------------------------------------------------------------------

ITEM: Final = Literal("a")


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        (Again(ITEM, 2, 3), ("aa", "aaa"), ("a", "aaaa")),
        (Again(ITEM, 1), ("a", "aaaaa"), ("",)),
        (Members(((ITEM, False),), ",", Literal("b"), once=True), ("", "a", "b", "a,b"), ("b,b", "a,b,b")),
        (Text("[0-9]+|x/y"), ("12", "x/y"), ("", "x")),
        (String(("'",), opens="'", without=("-",)), ("''", "'ab'"), ("'a-b'", "ab'")),
        (
            Defined({"n": OneOf((Row((Literal("("), Refer("n"), Literal(")"))), ITEM))}, Row((Refer("n"), Refer("n")))),
            ("aa", "((a))(a)"),
            ("a", "((a)a"),
        ),
        # Of two with the same name each has its own.
        (Row((Defined({"n": ITEM}, Refer("n")), Defined({"n": Literal("b")}, Refer("n")))), ("ab",), ("aa",)),
    ],
)
def test_rules(rule: Rule, good: Sequence[str], bad: Sequence[str]) -> None:
    known = vocabulary(FORMS["pythonic"], True)
    for want, texts in ((True, good), (False, bad)):
        for text in texts:
            assert known.takes(known.grammars.compiled(rule)(), text) is want, text


# --- random schemas, and what models write --------------------------------------------------------------------------

NAMES: Final = (
    "a", "naïve 潮", 'q"uote', "back\\slash", "new\nline", "</tool_call>", "<|tool_call_end|>", "", "k:v", "it's", "{",
    "a,b", "true", "None",
)  # fmt: skip
WORDS: Final = (
    "red", '"', "\\", "\n", "```", "", "null", "true", "5", "{", "it's", " x ", '<|"', "<escape", "a,b:c", "\x01",
    "<tool_call|>", "<|tool_call_end|>", "')]", "\\'", "1e5", "None", "-", " 5", "潮\u2028", "\x7f",
)  # fmt: skip
LEAVES: Final[tuple[Any, ...]] = (
    {"type": "string", "maxLength": 4}, {"type": "string", "minLength": 2, "maxLength": 3}, {"type": "string"},
    {"type": "string", "pattern": '^[^"]{1,3}$'}, {"type": "string", "pattern": "['\"]"},
    {"type": "string", "pattern": r"^\d{3}-\w{1,2}$"}, {"type": "string", "format": "date"},
    {"type": "integer"}, {"type": "integer", "minimum": -3, "maximum": 170}, {"type": "integer", "minimum": 4},
    {"type": "number"}, {"type": "number", "minimum": -1.5, "maximum": 2.25}, {"type": "number", "exclusiveMinimum": 0},
    {"type": ["boolean", "null"]}, {"type": ["string", "integer"], "maxLength": 5},
    {"type": ["string", "boolean", "number"], "maxLength": 6}, {"const": {"a": ["x", None]}},
    {"const": [True, {"": "it's"}]}, {"enum": [1, "1", 1.5, None, True, "true", "null"]}, {"const": "5"},
    {"$ref": "#/$defs/leaf"}, {"$ref": "#/$defs/tree"}, {"$ref": "#/$defs/list"}, {}, True, {"description": "any"},
    {"type": "object"}, {"type": "array"}, {"minLength": 2}, {"minimum": 3}, {"items": {"type": "null"}},
    {"type": "object", "additionalProperties": {"type": "string", "maxLength": 3}},
    {"type": "object", "patternProperties": {"^n_": {"type": "integer"}}, "additionalProperties": {"type": "string"}},
    {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string", "maxLength": 2}], "items": False},
    {"oneOf": [{"type": "string", "maxLength": 2}, {"type": "integer", "maximum": 5}]},
    {"oneOf": [has(k={"const": "x"}, v={"type": "integer"}), has(k={"const": "y"}, v={"type": "null"})]},
    {"allOf": [has(k={"type": "string"}), {"properties": {"k": {"maxLength": 3}, "z": {"type": "boolean"}}}]},
    {"anyOf": [{"enum": ["a", "b"]}, {"type": "integer", "maximum": 9}]},
    {"type": "object", "properties": {"a": {"const": 1}}, "additionalProperties": {"type": "integer"}},
)  # fmt: skip
DEFINED: Final[dict[str, Any]] = {
    "leaf": {"enum": [1, "潮"]},
    "tree": {
        "type": "object", "required": ["v"], "additionalProperties": False,
        "properties": {
            "v": {"type": "integer"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 1},
        },
    },
    "list": {"anyOf": [{"type": "null"}, {
        "type": "array", "minItems": 2, "items": False,
        "prefixItems": [{"type": "integer", "maximum": 3}, {"$ref": "#/$defs/list"}],
    }]},
}  # fmt: skip


def part(dice: random.Random, depth: int) -> Any:
    kind = dice.randrange(7 if depth else 4)
    if kind == 0:
        return {"enum": dice.sample(WORDS, 3)}
    if kind < 4:
        return dice.choice(LEAVES)
    if kind == 4:
        least = dice.randint(0, 2)
        return {"type": "array", "items": part(dice, depth - 1), "minItems": least, "maxItems": least + 1}
    if kind == 5:
        return {"anyOf": [part(dice, depth - 1) for _ in range(dice.randint(1, 3))]}
    return table(dice, depth - 1, NAMES)


def table(dice: random.Random, depth: int, names: Sequence[str]) -> dict[str, Any]:
    names = dice.sample(names, dice.randint(0, 3))
    made: dict[str, Any] = {"type": "object", "properties": {name: part(dice, depth) for name in names}}
    made["required"] = [name for name in names if dice.random() < 0.6]
    return made if dice.random() < 0.7 else {**made, "additionalProperties": part(dice, 0)}


@pytest.mark.parametrize("ids", [True, False])
@pytest.mark.parametrize("name", NESTED)
def test_nested_values_satisfy_random_schemas(name: str, ids: bool) -> None:
    known = vocabulary(FORMS[name], ids)
    dice = random.Random(f"{name} {ids}")
    for seed in range(8):
        made = {tool: table(dice, 2, ("a", "city", "from", "_x9", "naïve", "call")) for tool in ("tide", "tides")}
        schemas = {tool: {**schema, "$defs": DEFINED} for tool, schema in made.items()}
        tools = tuple(Tool(tool, None, schema) for tool, schema in schemas.items())
        ask = Ask(tools=tools, tool_choice="required", parallel=seed % 2 == 0)
        constraint = constraint_of(ask, FORMS[name], known.facts, "chat")
        assert constraint is not None
        steps = known.written(known.held(constraint, "<assistant>"), seed)
        opened = opening(name, tokenizer=known.facts, ask=ask)
        got = message(semantic(opened, session(steps, tail="<assistant>")))
        assert (got.faults, got.content) == ([], None)
        assert 1 <= len(got.calls) <= (99 if ask.parallel else 1)
        for call in got.calls:
            assert call.complete
            assert jsonschema_rs.is_valid(schemas[call.name], call.value()), json.dumps(schemas[call.name])
