"""What an upstream that is asked for tokens is held to: sent where it has a name for it, and else lost."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pipeline.engines.prompt import Prompt
from pipeline.http.plans import plan
from pipeline.upstream.asking import ask, lost_in_chat
from pipeline.upstream.held import Held, held
from pipeline.upstream.structural import structural
from stages import catalog
from stages.constraint import constraint_of
from stages.opening import EngineFacts, TokenizerFacts
from stages.parse.format import Format
from stages.parse.parser import Parser

SCHEMA = {"type": "object", "properties": {"port": {"type": "string"}}, "required": ["port"]}
ANY = {"type": "json_object"}
ANSWER = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}
TOOLS = [{"type": "function", "function": {"name": "tide", "parameters": SCHEMA}}]
STRICT = [{"type": "function", "function": {"name": "tide", "parameters": SCHEMA, "strict": True}}]
NAMED = {"type": "function", "function": {"name": "tide"}}
TAIL = "<|im_start|>assistant\n"
PROMPT = Prompt((1, 2), TAIL, TAIL)
SERVERS = {"generate": "sglang", "completion": "llama.cpp", "completions": "vllm"}
FACTS = TokenizerFacts(special={"<think>": 1, "</think>": 2})


def engine(kind: str, version: str = "", **arguments: str) -> EngineFacts:
    return EngineFacts(kind=kind, model="m", versions={kind: version} if version else {}, arguments=arguments)


def form(name: str) -> Format:
    stage = catalog.parser(name)
    assert isinstance(stage, Parser)
    return stage.format


def sent(
    way: str, *, tail: str = TAIL, parser: str = "qwen3+hermes", kind: str | None = None, **fields: Any
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The body of a request, and what of it is lost."""
    body = json.dumps({"messages": [{"role": "user", "content": "x"}], **fields}).encode()
    understood = plan("chat", body, "m")
    made = held(way, understood.ask, form(parser), tail, engine(SERVERS[way] if kind is None else kind))
    _, asked = ask(way, body=body, plan=understood, prompt=PROMPT, model="m", held=made.fields)
    return json.loads(asked), made.lost


@pytest.mark.parametrize(("format_", "schema"), [(ANSWER, SCHEMA), (ANY, {"type": "object"})], ids=["schema", "any"])
def test_an_answer(format_: dict[str, Any], schema: dict[str, Any]) -> None:
    body, lost = sent("generate", response_format=format_)
    assert (json.loads(body["sampling_params"]["json_schema"]), lost) == (schema, ())
    body, lost = sent("completion", response_format=format_)
    assert (body["json_schema"], lost) == (schema, ())
    body, lost = sent("completions", response_format=format_)
    wanted = ANY if format_ == ANY else {
        "type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True}
    }  # fmt: skip
    assert (body["response_format"], lost) == (wanted, ())


@pytest.mark.parametrize("way", SERVERS)
def test_nothing_is_asked(way: str) -> None:
    body, lost = sent(way, tools=TOOLS, response_format={"type": "text"})
    assert lost == ()
    assert not {"json_schema", "response_format"} & {*body, *body.get("sampling_params", ())}


@pytest.mark.parametrize("way", ["generate", "completion"])
@pytest.mark.parametrize(
    ("fields", "lost"),
    [
        # It would hold the reasoning to the schema.
        ({"response_format": ANSWER, "tail": TAIL + "<think>\n"}, ("response_format",)),
        (
            {"response_format": ANSWER, "parser": "deepseek_r1", "tail": "<｜Assistant｜><think>\n"},
            ("response_format",),
        ),
        # It would keep the model from calling.
        ({"response_format": ANSWER, "tools": TOOLS}, ("response_format",)),
        ({"tools": TOOLS, "tool_choice": "required"}, ("tool_choice",)),
        ({"tools": TOOLS, "tool_choice": NAMED}, ("tool_choice",)),
        ({"tools": STRICT}, ("tools.strict",)),
        ({"tools": STRICT, "tool_choice": NAMED}, ("tool_choice", "tools.strict")),
        # A forced call is no answer.
        ({"tools": TOOLS, "tool_choice": "required", "response_format": ANSWER}, ("tool_choice",)),
    ],
    ids=lambda each: str(each)[:60],
)
def test_lost(way: str, fields: dict[str, Any], lost: tuple[str, ...]) -> None:
    body, gone = sent(way, **fields)
    assert gone == lost
    assert not {"json_schema", "response_format"} & {*body, *body.get("sampling_params", ())}


@pytest.mark.parametrize("way", SERVERS)
def test_tools_that_may_not_be_called(way: str) -> None:
    """Then there is only the answer; behind reasoning that is over it is not hit."""
    tail = TAIL + "<think>\n\n</think>\n\n"
    body, lost = sent(way, tools=STRICT, tool_choice="none", response_format=ANSWER, tail=tail)
    assert lost == ()
    assert {"json_schema", "response_format"} & {*body, *body.get("sampling_params", ())}


def test_a_server_that_has_no_name_for_it() -> None:
    body, lost = sent("completions", kind="transformers", response_format=ANSWER)
    assert ("response_format" in body, lost) == (False, ("response_format",))


def test_what_the_model_writes_is_not_known() -> None:
    understood = plan("chat", json.dumps({"messages": [{"role": "user", "content": "x"}],
                                          "response_format": ANSWER}).encode(), "m")  # fmt: skip
    assert held("generate", understood.ask, None, TAIL, engine("sglang")) == Held({}, ("response_format",))


def test_the_chat_way_says_it_in_its_own_words() -> None:
    body = json.dumps({
        "input": "x", "tools": [{"type": "function", "name": "tide", "parameters": SCHEMA, "strict": True}],
        "tool_choice": {"type": "function", "name": "tide"}, "truncation": "disabled",
        "text": {"format": {"type": "json_schema", "name": "a", "schema": SCHEMA}},
    }).encode()  # fmt: skip
    understood = plan("responses", body, "m")
    made = held("chat", understood.ask, form("hermes"), "", engine("vllm"))
    assert made == Held({}, ())
    _, asked = ask("chat", body=body, plan=understood, prompt=None, model="m", protocol="responses", held=made.fields)
    sent = json.loads(asked)
    assert sent["tool_choice"] == NAMED
    assert sent["tools"][0]["function"] == {"name": "tide", "parameters": SCHEMA, "strict": True}
    assert sent["response_format"]["json_schema"]["schema"] == SCHEMA
    assert understood.chat is not None
    assert lost_in_chat(understood.chat) == ()


# --- structural tags --------------------------------------------------------------------------------------------------

SGLANG = engine("sglang", "0.5.23")
ASKED: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "required": ({"tools": TOOLS, "tool_choice": "required"}, ("tool_choice",)),
    "named": ({"tools": TOOLS, "tool_choice": NAMED}, ("tool_choice",)),
    "strict": ({"tools": STRICT}, ("tools.strict",)),
    "either": ({"tools": TOOLS, "response_format": ANSWER}, ("response_format",)),
}
THOUGHT = TAIL + "<think>\n"


def tagged(way: str, facts: EngineFacts, *, tail: str = TAIL, parser: str = "qwen3+hermes", **fields: Any) -> Held:
    body = json.dumps({"messages": [{"role": "user", "content": "x"}], **fields}).encode()
    return held(way, plan("chat", body, "m").ask, form(parser), tail, facts, FACTS)


def tag_of(fields: dict[str, Any], tail: str = TAIL) -> dict[str, Any]:
    """What the whole output is held to."""
    body = json.dumps({"messages": [{"role": "user", "content": "x"}], **fields}).encode()
    constraint = constraint_of(plan("chat", body, "m").ask, form("qwen3+hermes"), FACTS, "chat")
    assert constraint is not None
    tag = structural(constraint.after(tail))
    assert tag is not None
    return tag


@pytest.mark.parametrize("tail", [TAIL, THOUGHT])
@pytest.mark.parametrize("name", [*ASKED, "behind reasoning"])
def test_sglang_is_told_the_whole_output(name: str, tail: str) -> None:
    fields, lost = ASKED.get(name, ({"response_format": ANSWER}, ("response_format",)))
    made = tagged("generate", SGLANG, tail=tail, **fields)
    if name == "behind reasoning" and tail == TAIL:
        assert made == Held({"json_schema": json.dumps(SCHEMA, separators=(",", ":"))}, ())
        return
    assert (made.lost, made.less) == ((), None)
    assert json.loads(made.fields["structural_tag"]) == tag_of(fields, tail)
    # In its completions it may refuse it in time: there is a second try.
    plain = Held({}, lost)
    assert tagged("completions", SGLANG, tail=tail, **fields) == Held(
        {"response_format": tag_of(fields, tail)}, (), plain
    )


@pytest.mark.parametrize("name", ASKED)
def test_vllm_is_told_what_does_not_begin_in_reasoning(name: str) -> None:
    fields, lost = ASKED[name]
    assert tagged("completions", engine("vllm"), **fields) == Held(
        {"response_format": tag_of(fields)}, (), Held({}, lost)
    )
    assert tagged("completions", engine("vllm"), tail=THOUGHT, **fields) == Held({}, lost)


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize(
    ("way", "facts"),
    [
        ("generate", engine("sglang")),
        ("generate", engine("sglang", "0.5.9")),
        ("generate", engine("sglang", "0.5.23", grammar_backend="llguidance")),
        ("completion", engine("llama.cpp", "b7000")),
        ("completions", engine("transformers")),
        ("completions", engine("playhead")),
    ],
)
def test_others_are_not_known_to_take_tags(name: str, way: str, facts: EngineFacts) -> None:
    fields, lost = ASKED[name]
    assert tagged(way, facts, **fields) == Held({}, lost)


def test_later_versions_take_them_too() -> None:
    fields, _ = ASKED["required"]
    assert tagged("generate", engine("sglang", "0.6.0.post1", grammar_backend="xgrammar"), **fields).lost == ()


def test_a_schema_that_no_tag_holds_is_sent_and_listed() -> None:
    schema = {"type": "object", "properties": {"days": {"type": "array", "uniqueItems": True}}}
    strict = [{"type": "function", "function": {"name": "tide", "parameters": schema, "strict": True}}]
    answer = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    asked: tuple[tuple[dict[str, Any], tuple[str, ...]], ...] = (
        ({"tools": strict}, ("tools.strict",)),
        ({"tools": strict, "response_format": answer}, ("tools.strict", "response_format")),
        ({"tools": strict, "response_format": answer, "tool_choice": "required"}, ("tools.strict",)),
        ({"tools": TOOLS, "response_format": answer}, ("response_format",)),
    )
    for fields, lost in asked:
        made = tagged("generate", SGLANG, **fields)
        assert ([*made.fields], made.lost) == (["structural_tag"], lost)


def test_a_schema_that_the_format_cannot_be_held_to_is_lost() -> None:
    """``minProperties`` counts what the format writes one by one."""
    schema = {"type": "object", "additionalProperties": {"type": "string"}, "minProperties": 2}
    tools = [{"type": "function", "function": {"name": "tide", "parameters": schema}}]
    made = tagged("generate", SGLANG, parser="qwen3-xml", tools=tools, tool_choice="required")
    assert made == Held({}, ("tool_choice",))
