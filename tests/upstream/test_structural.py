"""Rules as structural tags: what is written for each, and that a tag's own texts are those of the rule."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline.upstream.structural import loose, structural
from stages.constraint import constraint_of
from stages.grammar import Again, Free, Json, Literal, Members, Newlines, Number, OneOf, Row, Rule, Spelled, String
from stages.opening import Ask, TokenizerFacts, Tool
from stages.parse.formats import FORMATS

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"port": {"type": "string"}}, "required": ["port"]}
NOTHING = Row(())


def const(text: str) -> dict[str, Any]:
    return {"type": "const_string", "value": text}


def row(*elements: dict[str, Any]) -> dict[str, Any]:
    return {"type": "sequence", "elements": [*elements]}


def either(*elements: dict[str, Any]) -> dict[str, Any]:
    return {"type": "or", "elements": [*elements]}


def maybe(content: dict[str, Any]) -> dict[str, Any]:
    return {"type": "optional", "content": content}


def star(content: dict[str, Any]) -> dict[str, Any]:
    return {"type": "star", "content": content}


def text(*excludes: str, **more: Any) -> dict[str, Any]:
    return {"type": "any_text", "excludes": [*excludes], **more}


def json_of(schema: dict[str, Any], spaces: int = 1) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": schema, "max_whitespace_cnt": spaces}


A, B, C = Literal("a"), Literal("b"), Literal("c")


@pytest.mark.parametrize(
    ("rule", "tag"),
    [
        (Literal("<x>"), const("<x>")),
        (NOTHING, const("")),
        (Json(SCHEMA, "p"), json_of(SCHEMA)),
        (Json(SCHEMA, "p", compact=False), json_of(SCHEMA, 33)),
        (Spelled(SCHEMA, "p", A), const("a")),
        (Number(), {"type": "regex", "pattern": "[1-9][0-9]{0,3}"}),
        (Newlines(), {"type": "regex", "pattern": "\\n{0,2}"}),
        (Row((A, Row((B, C)))), const("abc")),
        (Row((A, Json({}, "p"), B, C)), row(const("a"), json_of({}), const("bc"))),
        (OneOf((A, Row((B, C)))), either(const("a"), const("bc"))),
        (OneOf((A, NOTHING)), maybe(const("a"))),
        (OneOf((A, NOTHING, B)), maybe(either(const("a"), const("b")))),
        (OneOf((A,)), const("a")),
        (Again(OneOf((A, B))), star(either(const("a"), const("b")))),
        (Free(), text()),
        (Free(without=("<c>", "<d>")), text("<c>", "<d>")),
        (Free(until=("</t>",), without=("<c>",)), row(text("<c>", "</t>"), const("</t>"))),
        (
            Free(until=("</t>", "<e>")),
            either(row(text("</t>", "<e>"), const("</t>")), row(text("</t>", "<e>"), const("<e>"))),
        ),
        (String(("</p>",)), row(text("</p>"), const("</p>"))),
        (String(("</p>",), most=8, without=("<q>",)), row(text("<q>", "</p>", max_chars=8), const("</p>"))),
        (String(("</p>",), patterns=(r"a\x{3c}|b|c\x{3c}\x{2f}p\x{3e}",)), either(const("a<</p>"), const("b</p>"))),
        # Members: without something between two, each where it is; behind them others.
        (Members(((A, True), (B, False)), others=C), row(const("a"), maybe(const("b")), star(const("c")))),
        (Members(((A, True), (B, True)), between=", "), const("a, b")),
        (Members(((A, True), (B, False)), between=", "), row(const("a"), maybe(const(", b")))),
        # Any of those that may be missing is the first that is there.
        (
            Members(((A, False), (B, True)), between=", "),
            either(const("a, b"), const("b")),
        ),
        (Members((), between=", ", others=C), maybe(row(const("c"), star(const(", c"))))),
        (Members(()), const("")),
    ],
    ids=lambda each: repr(each)[:70],
)  # fmt: skip
def test_a_rule(rule: Rule, tag: dict[str, Any]) -> None:
    assert structural(rule) == {"type": "structural_tag", "format": tag}


def test_a_text_that_no_tag_has_a_word_for_is_a_grammar() -> None:
    """At least one character, and no ``<p``: what is written by what may follow, a rule for each state."""
    tag = structural(String(("<p",), least=1))
    assert tag is not None
    written, end = tag["format"]["elements"]
    assert end == const("<p")
    assert written == {
        "type": "grammar",
        "grammar": "root ::= s0\n"
        "s0 ::= [^\\u003c] s1 | [\\u003c] s2\n"
        's1 ::= "" | [^\\u003c] s1 | [\\u003c] s2\n'
        's2 ::= "" | [^\\u003c\\u0070] s1 | [\\u003c] s2',
    }


def test_a_text_whose_end_could_come_early() -> None:
    """``aa`` behind ``a`` would end behind its first character; white space may not come first."""
    tag = structural(String(("aa",), unlike=(r"\s(?s:.*)",)))
    assert tag is not None
    space = r"\u0009-\u000d\u0020\u0061\u0085\u00a0\u1680\u2000-\u200a\u2028-\u2029\u202f\u205f\u3000"  # and a
    lines = (
        "root ::= s0",
        f's0 ::= "" | [^{space}] s1 | [\\u0061] s2',
        r's1 ::= "" | [^\u0061] s1 | [\u0061] s2',
        r"s2 ::= [^\u0061] s1",
    )
    assert tag["format"]["elements"] == [{"type": "grammar", "grammar": "\n".join(lines)}, const("aa")]


def test_what_cannot_be_said() -> None:
    assert structural(String(("x",), patterns=(r"\p{L}+",))) is None
    assert structural(String(("x",), patterns=("a", "b"))) is None  # no text is both
    assert structural(String(("x",), least=5000)) is None
    many = tuple((Literal(str(number)), False) for number in range(40))
    assert structural(Members(many, between=",")) is None
    assert structural(Row((A, String(("x",), patterns=("(",))))) is None


def test_a_forced_call_of_hermes() -> None:
    form = next(each for each in FORMATS if each.name == "hermes")
    tools = (Tool("tide", None, SCHEMA), Tool("moon", None, None))
    facts = TokenizerFacts(special={"<think>": 1, "</think>": 2})
    constraint = constraint_of(Ask(tools=tools, tool_choice="required"), form, facts, "chat")
    assert constraint is not None
    head = '<tool_call>\n{"name": "'
    empty: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}

    def calls(lead: str) -> dict[str, Any]:
        return either(
            row(const(f'{lead}{head}tide", "arguments": '), json_of(SCHEMA), const("}\n</tool_call>")),
            row(const(f'{lead}{head}moon", "arguments": '), json_of(empty), const("}\n</tool_call>")),
        )

    both = (calls(""), star(calls("\n")), {"type": "optional", "content": const("\n")})
    lines = {"type": "regex", "pattern": "\\n{0,2}"}
    thought = (text("<tool_call>", "</think>"), const("</think>"), lines)
    assert structural(constraint.after("<|im_start|>assistant\n<think>\n")) == {
        "type": "structural_tag", "format": row(*thought, *both),
    }  # fmt: skip
    assert structural(constraint.after("<|im_start|>assistant\n")) == {
        "type": "structural_tag", "format": row(lines, either(row(*both), row(const("<think>"), *thought, *both))),
    }  # fmt: skip


@pytest.mark.parametrize("form", [form for form in FORMATS if form.spellings], ids=lambda form: form.name)
def test_all_formats_have_tags(form: Any) -> None:
    """Of tools whose schemas are plain: forced, strict, and beside an answer."""
    facts = TokenizerFacts(special={spelling.token: 9 for spelling in form.spellings if spelling.token})
    strict = Tool("tide", None, SCHEMA, True)
    tails = ["", *([] if form.reasoning is None else [f"{opener}\n" for opener in form.reasoning.openers])]
    for ask in (
        Ask(tools=(strict,), tool_choice="required"),
        Ask(tools=(strict,), tool_choice="name:tide"),
        Ask(tools=(strict,)),
        Ask(tools=(strict,), answer=SCHEMA),
        Ask(answer={}),
    ):
        constraint = constraint_of(ask, form, facts, "chat")
        assert constraint is not None
        for tail in tails:
            assert structural(constraint.after(tail)) is not None


@pytest.mark.parametrize(
    ("schema", "want"),
    [
        (SCHEMA, False),
        (None, False),
        ({"type": "object", "properties": {"not": {"type": "string"}, "if": {"enum": [{"not": 1}]}}}, False),
        ({"type": "array", "uniqueItems": False}, False),
        ({"type": "array", "uniqueItems": True}, True),
        ({"properties": {"a": {"items": {"not": {}}}}}, True),
        ({"type": "string", "pattern": "a"}, False),
        ({"type": "string", "pattern": "a", "maxLength": 2}, True),
        ({"type": "string", "format": "date", "minLength": 2}, True),
        ({"allOf": [{"type": "string"}], "title": "x"}, False),
        ({"allOf": [{"type": "string"}, {"enum": ["a"]}]}, True),
        ({"allOf": [{"required": ["a"]}], "required": ["b"]}, True),
    ],
)
def test_what_is_held_in_part(schema: Any, want: bool) -> None:
    assert loose(schema) is want
