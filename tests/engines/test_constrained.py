"""What a grammar allows is what was asked for: read back by the parser of each format."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest

from stages.constraint import Constraint, constraint_of
from stages.opening import Ask, Tool
from stages.parse.formats import FORMATS
from stages.parse.formats.hermes import HERMES
from stages.parse.formats.plain import PLAIN
from tests.support.constrained import PREFIXES, Vocabulary, ends, markers, writable
from tests.support.constrained import vocabulary as vocabulary_of
from tests.support.parse import OFF, PROMPT, THINKING, Collected, message, opening, semantic, session


def const(**values: Any) -> dict[str, Any]:
    properties = {name: {"const": value} for name, value in values.items()}
    return {"type": "object", "properties": properties, "required": [*values]}


VALUES: dict[str, dict[str, Any]] = {
    "get_tide": {"port": 'Saint-Malo "intra\\muros" 潮', "days": 3, "deep": {"a": [1, None, {"b": False}]}},
    "get_tides": {"port": "</tool_call>\n"},
    "moon": {},
}


def tools_of(values: dict[str, dict[str, Any]]) -> tuple[Tool, ...]:
    return tuple(Tool(name, None, const(**each) if each else None) for name, each in values.items())


TOOLS = tools_of(VALUES)
FORCED = [form for form in FORMATS if form.spellings]
TEXTS = Vocabulary()


def read(form: str, vocabulary: Vocabulary, ask: Ask, constraint: Constraint, seed: int, tail: str) -> Collected:
    steps = vocabulary.written(vocabulary.held(constraint, tail), seed)
    opened = opening(form, tokenizer=vocabulary.facts, ask=ask)
    return message(semantic(opened, session(steps, tail=tail)))


def made(ask: Ask, form: Any = HERMES, vocabulary: Vocabulary = TEXTS, protocol: str = "chat") -> Constraint:
    constraint = constraint_of(ask, form, vocabulary.facts, protocol)
    assert constraint is not None
    return constraint


# --- calls ----------------------------------------------------------------------------------------------------------


def test_the_families_that_are_held() -> None:
    """All that know calls."""
    assert [form.name for form in FORMATS if not form.spellings] == ["plain", "think"]


@pytest.mark.parametrize("ids", [True, False])
@pytest.mark.parametrize("form", FORCED, ids=lambda form: form.name)
@pytest.mark.parametrize(("choice", "parallel"), [("required", True), ("required", False), ("name:get_tide", True)])
def test_a_forced_call_is_read_as_that_call(form: Any, ids: bool, choice: str, parallel: bool) -> None:
    """``ids``: the format's literals are special tokens."""
    vocabulary = vocabulary_of(form, ids)
    values = writable(form, VALUES)
    ask = Ask(tools=tools_of(values), tool_choice=choice, parallel=parallel)
    constraint = made(ask, form, vocabulary)
    for seed in range(3):
        got = read(form.name, vocabulary, ask, constraint, seed, tail="<assistant>")
        assert (got.faults, got.content, got.finish) == ([], None, "eos")
        assert 1 <= len(got.calls) <= (20 if parallel and choice == "required" else 1)
        for call in got.calls:
            assert call.complete and call.value() == values[call.name]
            assert choice in ("required", f"name:{call.name}")


@pytest.mark.parametrize("form", FORCED, ids=lambda form: form.name)
def test_several_calls_are_read_as_several(form: Any) -> None:
    """Or as one, where the family has no other."""
    vocabulary = Vocabulary(markers(form))
    ask = Ask(tools=TOOLS[2:], tool_choice="required")
    constraint = made(ask, form, vocabulary)
    counts = {len(read(form.name, vocabulary, ask, constraint, seed, "<assistant>").calls) for seed in range(30)}
    assert (max(counts) >= 2) == (form.name != "gigachat3")


@pytest.mark.parametrize("ids", [True, False])
@pytest.mark.parametrize("form", FORCED, ids=lambda form: form.name)
def test_a_strict_tool_is_held_behind_the_opener(form: Any, ids: bool) -> None:
    start = form.spellings[-1].opens + form.spellings[-1].call[0]
    words = (*form.calls.bare, start[: start.find("[") + 1])
    words = (*words, *(end for word in PREFIXES if word in start for end in (start[: start.find(word)], "</")))
    words = (*words, *ends(form))
    vocabulary = (
        Vocabulary(markers(form), words) if ids else Vocabulary(words=(*words, *markers(form), *form.calls.all()))
    )
    strict = Tool("get_tide", None, const(**VALUES["get_tide"]), True)
    ask = Ask(tools=(strict, TOOLS[2]))
    constraint = made(ask, form, vocabulary)
    seen: set[str] = set()
    for seed in range(100):
        if seed >= 25 and seen > {"content"}:
            break
        got = read(form.name, vocabulary, ask, constraint, seed, "<assistant>")
        seen |= {call.name for call in got.calls} | ({"content"} if got.content else set())
        for call in got.calls:
            assert call.complete
            assert call.name != "get_tide" or call.value() == VALUES["get_tide"]
    assert seen > {"content"}


def test_only_the_functions_that_are_allowed() -> None:
    held = TEXTS.held(made(Ask(tools=TOOLS, tool_choice="required", allowed=("moon",))))
    assert not TEXTS.takes(held, '<tool_call>\n{"name": "get')
    assert TEXTS.takes(
        TEXTS.held(made(Ask(tools=TOOLS, tool_choice="required", allowed=("moon",)))),
        '<tool_call>\n{"name": "moon", "arguments": {}}\n</tool_call>',
    )


def test_the_end_is_allowed_where_the_call_is_whole_and_nowhere_else() -> None:
    held = TEXTS.held(made(Ask(tools=TOOLS, tool_choice="required", parallel=False)))
    for number in TEXTS.ids('<tool_call>\n{"name": "moon", "arguments": {}}\n</tool_call>'):
        assert TEXTS.end not in TEXTS.allowed(held)
        assert not held.complete
        held.take(number)
    assert held.complete
    assert TEXTS.allowed(held) == [TEXTS.end]
    held.take(TEXTS.end)


def test_a_special_token_is_no_letters_and_letters_are_no_special_token() -> None:
    vocabulary = Vocabulary(("<tool_call>", "</tool_call>"))
    held = vocabulary.held(made(Ask(tools=TOOLS, tool_choice="required"), vocabulary=vocabulary))
    assert vocabulary.allowed(held) == [vocabulary.facts.special["<tool_call>"]]
    answer = vocabulary.held(made(Ask(answer={"type": "string"}), vocabulary=vocabulary))
    answer.take(ord('"'))
    assert vocabulary.special.isdisjoint(vocabulary.allowed(answer))


def test_words_that_are_no_call_are_content() -> None:
    """Phi 4's opener is a word: a text may have it."""
    phi = next(form for form in FORMATS if form.name == "phi4_mini_json")
    strict = Tool("moon", None, None, True)
    assert TEXTS.takes(TEXTS.held(made(Ask(tools=(strict,)), phi)), "import functools, functools again")
    assert not TEXTS.takes(TEXTS.held(made(Ask(tools=(strict,)), phi)), "import functools[1")


def test_text_behind_a_call_makes_no_opener_of_its_end() -> None:
    """Gemma 3's fence ends with what the next one begins with."""
    gemma = next(form for form in FORMATS if form.name == "gemma3")
    call = "```tool_code\n[moon()]\n```"
    constraint = made(Ask(tools=(Tool("moon", None, None, True),)), gemma)
    texts = {"": True, "\ntool_code": True, "tool_code": False, "tools": True, "python\n[": False, f"\n{call}": True}
    for text, want in texts.items():
        assert TEXTS.takes(TEXTS.held(constraint), f"So: {call}{text}") is want


# --- reasoning ------------------------------------------------------------------------------------------------------

CALL = '<tool_call>\n{"name": "moon", "arguments": {}}\n</tool_call>'
THINKS = Vocabulary(("<think>", "</think>"))


@pytest.mark.parametrize(
    ("vocabulary", "tail", "text", "want"),
    [
        (TEXTS, PROMPT, CALL, True),
        (TEXTS, PROMPT, f"<think>\nhm\n</think>\n\n{CALL}", False),  # this model knows no such token
        (THINKS, PROMPT, CALL, True),
        (THINKS, PROMPT, f"<think>\nhm\n</think>\n\n{CALL}", True),
        (THINKS, THINKING, f"hm\n</think>\n\n{CALL}", True),
        (THINKS, THINKING, CALL, False),
        (TEXTS, THINKING, f"hm\n</think>\n\n{CALL}", True),
        (TEXTS, THINKING, "hm\n</think>\n\nWell", False),
        (TEXTS, THINKING, f"hm {CALL}", False),
        (THINKS, OFF, CALL, True),
        (THINKS, OFF, f"<think>\nhm\n</think>\n\n{CALL}", False),
        (THINKS, "<|im_start|>assistant\n<think></think>", f"\n\n{CALL}", True),
    ],
)
def test_reasoning_comes_before_it(vocabulary: Vocabulary, tail: str, text: str, want: bool) -> None:
    constraint = made(Ask(tools=TOOLS, tool_choice="required"), vocabulary=vocabulary)
    assert vocabulary.takes(vocabulary.held(constraint, tail), text) is want


@pytest.mark.parametrize("form", FORCED, ids=lambda form: form.name)
def test_reasoning_and_a_call_are_read_as_both(form: Any) -> None:
    if form.reasoning is None or not form.reasoning.openers:
        return
    vocabulary = Vocabulary(markers(form), ends(form))
    values = writable(form, VALUES)
    ask = Ask(tools=tools_of(values), tool_choice="required", parallel=False)
    constraint = made(ask, form, vocabulary)
    opener = form.reasoning.openers[-1]
    for seed in range(4):
        got = read(form.name, vocabulary, ask, constraint, seed, tail=f"<assistant>{opener}\n")
        assert got.content is None
        assert set(got.faults) <= {"invalid_utf8"}  # random bytes
        [call] = got.calls
        assert call.value() == values[call.name]


# --- answers --------------------------------------------------------------------------------------------------------

SCHEMAS: dict[str, tuple[Any, str]] = {
    "nested": (
        {
            "type": "object",
            "properties": {
                "who": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}},
                        "required": ["name"], "additionalProperties": False},
                "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 1, "maxItems": 3},
            },
            "required": ["who", "tags"],
            "additionalProperties": False,
        },
        '{"who": {"name": "x"}, "tags": []}',
    ),
    "pattern": ({"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3}$"}, '"AB-12"'),
    "bounds": ({"type": "integer", "minimum": 3, "maximum": 117}, "118"),
    "any of": ({"anyOf": [{"type": "null"}, {"const": {"k": [1]}}]}, '{"k": [2]}'),
    "recursive": (
        {
            "$defs": {"node": {"type": "object", "properties": {"to": {"anyOf": [
                {"$ref": "#/$defs/node"}, {"type": "null"}]}}, "required": ["to"], "additionalProperties": False}},
            "$ref": "#/$defs/node",
        },
        '{"to": {"to": 1}}',
    ),
    "more properties": (
        {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"],
         "additionalProperties": {"enum": [1, 2]}},
        '{"a": true, "b": 3}',
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SCHEMAS)
def test_an_answer_satisfies_its_schema(name: str) -> None:
    schema, wrong = SCHEMAS[name]
    ask = Ask(answer=schema)
    constraint = made(ask, PLAIN)
    valid = jsonschema_rs.validator_for(schema)
    assert not valid.is_valid(json.loads(wrong))
    assert not TEXTS.takes(TEXTS.held(constraint), wrong)
    seen: set[str] = set()
    for seed in range(30):
        got = read("plain", TEXTS, ask, constraint, seed, tail="")
        assert valid.is_valid(json.loads(got.content or ""))
        seen.add(got.content or "")
    assert len(seen) > 1


def test_any_object_is_an_object() -> None:
    for text, want in {'{"a": [1, {"b": null}]}': True, '{\n  "a": 1\n}': True, "[]": False, "1": False}.items():
        assert TEXTS.takes(TEXTS.held(made(Ask(answer={}))), text) is want
    assert not TEXTS.takes(TEXTS.held(made(Ask(answer={}))), "{" + " " * 40)


def test_tools_and_an_answer_are_a_call_or_an_answer() -> None:
    ask = Ask(tools=TOOLS, answer={"enum": ["yes", "no"]})
    for text, want in {CALL: True, f"{CALL}\n{CALL}": True, '"yes"': True, '"maybe"': False, "Yes": False}.items():
        assert TEXTS.takes(TEXTS.held(made(ask)), text) is want
    forced = Ask(tools=TOOLS, answer={"enum": ["yes", "no"]}, tool_choice="required")
    assert not TEXTS.takes(TEXTS.held(made(forced)), '"yes"')
    none = Ask(tools=TOOLS, answer={"enum": ["yes", "no"]}, tool_choice="none")
    assert not TEXTS.takes(TEXTS.held(made(none)), CALL)


# --- what is not held -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ask",
    [Ask(), Ask(tools=TOOLS), Ask(tools=TOOLS, tool_choice="none"), Ask(tools=TOOLS, parallel=False)],
)
def test_free_requests_are_free(ask: Ask) -> None:
    assert constraint_of(ask, HERMES, TEXTS.facts, "chat") is None


def test_a_family_without_calls_is_steered() -> None:
    think = next(form for form in FORMATS if form.name == "think")
    assert constraint_of(Ask(tools=TOOLS, tool_choice="required"), think, TEXTS.facts, "chat") is None
    assert constraint_of(Ask(tools=TOOLS, answer={}), think, TEXTS.facts, "chat") is None
    assert constraint_of(Ask(answer={}), think, TEXTS.facts, "chat") is not None
    assert constraint_of(Ask(answer={}), None, TEXTS.facts, "chat") is None
