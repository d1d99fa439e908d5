"""Grammars: what cannot be held is refused, what is compiled is kept."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline.engines.base import Unservable
from pipeline.engines.constrained import KEPT
from stages.constraint import Constraint, constraint_of
from stages.errors import RequestError
from stages.grammar import Free, Json, Literal
from stages.opening import Ask, Tool
from stages.parse.formats.hermes import HERMES
from stages.parse.formats.plain import PLAIN
from tests.support.constrained import Vocabulary, text_of

TEXTS = Vocabulary()


def made(ask: Ask, form: Any = HERMES, protocol: str = "chat") -> Constraint:
    constraint = constraint_of(ask, form, TEXTS.facts, protocol)
    assert constraint is not None
    return constraint


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


def chain(links: int) -> dict[str, Any]:
    return {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(links)} | {f"d{links}": {"type": "string"}}


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"type": "object", "not": {}}, '"not" cannot be held to: leave it out'),
        ({"type": "object", "properties": {"x": {"oneOf": [{"minimum": 1}, {"maximum": 3}]}}}, 'write "anyOf"'),
        ({"type": "object", "properties": {"x": {"type": "array", "uniqueItems": True}}}, '"uniqueItems"'),
        ({"type": "object", "properties": {"x": {"pattern": "(?=x)"}}}, "regex"),
        ({"type": "object", "properties": {"x": {"$ref": "http://x.test/y"}}}, "http://x.test/y: put it into"),
        ({"type": "object", "properties": {"x": False}, "required": ["x"]}, "nsatisfiable"),
        ({"type": "string"}, "nsatisfiable"),
        ({"type": "object", "properties": {"x": deep(300)}}, "recursion"),
        ({"type": "object", "properties": {"x": {"$ref": "#/$defs/d0"}}, "$defs": chain(900)}, "refers, too deep"),
        ({"type": "object", "properties": {"x": {"enum": [f"v{n}" for n in range(100_000)]}}}, "too large"),
    ],
)
@pytest.mark.parametrize(
    ("protocol", "param"),
    [("chat", "tools[1].function.parameters"), ("responses", "tools[1].parameters"),
     ("messages", "tools[1].input_schema")],
)  # fmt: skip
def test_a_schema_that_cannot_be_held_is_named(schema: Any, says: str, protocol: str, param: str) -> None:
    ask = Ask(tools=(Tool("good", None, None), Tool("bad", None, schema)), tool_choice="required")
    with pytest.raises(RequestError) as caught:
        TEXTS.held(made(ask, protocol=protocol))
    assert (caught.value.param, caught.value.code, caught.value.status) == (param, "unsupported_schema", 400)
    assert says in caught.value.message
    assert caught.value.message.startswith(f"{param}: ")
    assert len(caught.value.message) < 500


def test_schemas_that_are_too_large_together_are_refused_at_once() -> None:
    """As one of them is: compiling 8000 optional properties takes the library 80 s."""
    many = {"type": "object", "properties": {f"p{number}": {"type": "string"} for number in range(1990)}}
    tools = tuple(Tool(f"tool{number}", None, {**many, "title": f"{number}"}) for number in range(3))
    with pytest.raises(RequestError, match="all schemas together are too large") as caught:
        TEXTS.held(made(Ask(tools=tools, tool_choice="required")))
    assert caught.value.param == "tools[2].function.parameters"


def test_an_object_of_many_optional_properties_is_held() -> None:
    """Each is four items of a row, of which the library allows 2000 by itself."""
    schema = {"type": "object", "properties": {f"p{number}": {"type": "boolean"} for number in range(600)}}
    assert TEXTS.takes(TEXTS.held(made(Ask(answer=schema), PLAIN)), '{"p3": true, "p599": false}')


@pytest.mark.parametrize(
    ("protocol", "param"),
    [("chat", "response_format.json_schema.schema"), ("completions", "response_format.json_schema.schema"),
     ("responses", "text.format.schema"), ("messages", "output_config.format.schema")],
)  # fmt: skip
def test_so_is_that_of_an_answer(protocol: str, param: str) -> None:
    with pytest.raises(RequestError) as caught:
        TEXTS.held(made(Ask(answer={"not": {}}), PLAIN, protocol=protocol))
    assert caught.value.param == param


def test_a_model_without_an_end_cannot_be_held() -> None:
    vocabulary = Vocabulary()
    endless = type(vocabulary.grammars)(vocabulary.pieces, type(vocabulary.facts)())
    with pytest.raises(RequestError, match="ends its output"):
        endless.compiled(Literal("x"))


def test_a_token_that_is_not_allowed_is_an_error() -> None:
    held = TEXTS.grammars.compiled(Literal("x"))()
    with pytest.raises(Unservable, match="left what it was held to"):
        held.take(ord("y"))
    with pytest.raises(Unservable, match="cannot be held"):
        held.mask()


def test_choices_do_not_know_each_other() -> None:
    begin = TEXTS.grammars.compiled(Literal("xy"))
    one, other = begin(), begin()
    one.take(ord("x"))
    assert (TEXTS.allowed(one), TEXTS.allowed(other)) == ([ord("y")], [ord("x")])


def test_a_grammar_is_compiled_once_and_the_latest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    vocabulary = Vocabulary()
    made: list[str] = []
    compiled: Any = vocabulary.grammars._matcher  # pyright: ignore[reportPrivateUsage]  (nobody is told of the cache)

    def matcher(text: str) -> Any:
        made.append(text)
        return compiled(text)

    monkeypatch.setattr(vocabulary.grammars, "_matcher", matcher)
    for number in range(KEPT + 1):
        for _ in range(3):
            vocabulary.grammars.compiled(Json({"const": number}, "x"))
    assert len(made) == KEPT + 1
    vocabulary.grammars.compiled(Json({"const": KEPT}, "x"))
    assert len(made) == KEPT + 1
    vocabulary.grammars.compiled(Json({"const": 0}, "x"))
    assert len(made) == KEPT + 2


def test_free_text_up_to_the_first_of_several() -> None:
    vocabulary = Vocabulary(("<b>",))
    for text, want in {"x<a>": True, "x<b>": True, "x": False, "x<a>y": False, "x<c><a>": False}.items():
        held = vocabulary.grammars.compiled(Free(until=("<a>", "<b>"), without=("<c>",)))()
        assert vocabulary.takes(held, text) is want
    assert text_of(vocabulary.written(vocabulary.grammars.compiled(Free(until=("<b>",)))(), 1)).endswith(
        "<b><end of turn>"
    )
