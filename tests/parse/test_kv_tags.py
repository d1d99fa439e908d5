"""Key/value tags beyond the examples: what is looked at ahead, where the output ends, suffixes, bounds."""

from __future__ import annotations

import pytest

from stages.events import FinishReason
from stages.opening import Tool
from stages.parse.formats.glm import GLM
from stages.parse.formats.hy import HY_V3, HY_V4
from stages.parse.formats.k2_horizon import K2_HORIZON
from stages.parse.parser import Parser
from stages.stage import fold
from tests.support.format_checks import POLICIES, Policy, Subject, check_invariance
from tests.support.generate import families
from tests.support.generate.family import Family
from tests.support.generate.kv_tags import GLM5, GLM45
from tests.support.parse import Call, Collected, message, opening, semantic, session, splits

TOOLS = (
    Tool("tide", parameters={"type": "object", "properties": {"port": {"type": "string"}, "day": {"type": "integer"}}}),
    Tool("moon", parameters={"type": "object", "properties": {}}),
)
BY_NAME: dict[str, Family] = {family.name: family for family in families("kv_tags")}
OPEN = "<tool_call>tide<arg_key>port</arg_key><arg_value>"


def got(raw: str, calls: Policy = "incremental", finish: FinishReason = "eos", family: str = "glm") -> Collected:
    """What the parser makes of it, the same under every split."""
    subject = Subject(BY_NAME[family], raw, BY_NAME[family].tails["plain"], TOOLS, finish)
    return check_invariance(subject, calls, valid=False)


@pytest.mark.parametrize("finish", ["length", "context", "stop", "stop_token", "filter"])
def test_the_end_of_a_value_is_only_forgotten_where_the_model_ended(finish: FinishReason) -> None:
    raw = OPEN + "Brest\n</tool_call>\n"
    assert got(raw).calls == [Call("tide", '{"port": "Brest\\n"}', True)]
    cut = got(raw, finish=finish)
    assert (cut.calls, cut.faults) == ([Call("tide", '{"port": "Brest\\n', False)], ["unclosed_call"])
    assert got(raw, "whole", finish).calls == []


def test_an_end_of_turn_by_its_id_is_an_end_too() -> None:
    ended = got(OPEN + "Brest</tool_call><|observation|>", finish="stop_token")
    assert ended.calls == [Call("tide", '{"port": "Brest"}', True)]


@pytest.mark.parametrize("calls", POLICIES)
@pytest.mark.parametrize(
    "text",
    [
        "x</tool_call> and more",
        "x</tool_call><tool_call>",
        "x</tool_call></tool_call>",
        "x</tool_call>\n<tool_call>the moon",
        f"x</tool_call>{' ' * 400}<tool_call>moon</tool_call>",
        f"x<arg_key>{'k' * 400}",
        "x<arg_key>k</arg_key>",
        "x<arg_key>k</arg_key> <arg_key>",
        "x<arg_key><arg_key>k",
        "x</arg_key><arg_value>",
        "</tool_call" * 3,
    ],
)
def test_tags_in_a_value_are_text_unless_a_whole_header_follows(text: str, calls: Policy) -> None:
    one = got(f"{OPEN}{text}</arg_value></tool_call>", calls)
    assert [call.value() for call in one.calls] == [{"port": text}]
    assert one.faults == []


def test_undecided_text_of_a_value_is_bounded() -> None:
    filler = "</tool_call>" + " " * 1000
    cut = got(OPEN + filler * 3, finish="length")
    assert cut.calls[0].arguments == '{"port": "' + filler * 3


@pytest.mark.parametrize("calls", POLICIES)
def test_a_key_that_passes_the_limit_ends_the_call(calls: Policy) -> None:
    raw = "<tool_call>tide<arg_key>" + "k" * 500 + "</arg_key><arg_value>x</arg_value></tool_call> ok"
    for _, steps in splits(raw, GLM45):
        opened = opening("glm", calls=calls, tokenizer=GLM45, tools=TOOLS, max_held=200)
        one = message(fold(Parser(GLM).start(opened), session(steps)))
        assert "held_overflow" in one.faults
        assert (one.content or "").endswith("ok")
        assert "k" * 200 in (one.content or "")
        assert one.calls == ([Call("tide", "", False)] if calls == "incremental" else [])


@pytest.mark.parametrize("calls", POLICIES)
def test_a_section_that_passes_the_limit_is_content(calls: Policy) -> None:
    call = "<ifm|tool_call>moon</ifm|tool_call>"
    raw = f"<ifm|tool_calls>{call * 20}</ifm|tool_calls>ok"
    for _, steps in splits(raw, BY_NAME["k2_horizon"].tokenizer):
        opened = opening(calls=calls, tokenizer=BY_NAME["k2_horizon"].tokenizer, tools=TOOLS, max_held=300)
        one = message(fold(Parser(K2_HORIZON).start(opened), session(steps)))
        assert (one.content, one.calls, one.faults) == (raw, [], ["held_overflow"])


def test_deep_json_in_a_section_is_no_recursion() -> None:
    deep = "[" * 5000 + "]" * 5000
    call = f'{{"name": "moon", "arguments": {{"a": {deep}}}}}'
    raw = f"<ifm|tool_calls><ifm|tool_call>{call}</ifm|tool_call></ifm|tool_calls>"
    opened = opening(tokenizer=BY_NAME["k2_horizon"].tokenizer, tools=TOOLS)
    for _, steps in splits(raw, BY_NAME["k2_horizon"].tokenizer, seeds=1):
        one = message(fold(Parser(K2_HORIZON).start(opened), session(steps)))
        assert [(call.arguments, call.complete) for call in one.calls] == [(f'{{"a": {deep}}}', True)]


def test_the_suffix_comes_from_the_vocabulary() -> None:
    plain, suffixed = BY_NAME["hy_v4"].tokenizer, BY_NAME["hy_v4/suffix"].tokenizer
    assert HY_V4.variant is not None
    assert HY_V4.variant(plain) == HY_V4
    table = HY_V4.variant(suffixed)
    assert table.calls is not None
    assert table.calls.openers == ("<tool_calls:ab12>", "<tool_call:ab12>")
    assert table is HY_V4.variant(suffixed), "made once: plans are kept by table"
    assert HY_V3.variant is not None
    assert HY_V3.variant(GLM5) == HY_V3


def test_a_pair_has_the_suffix_too() -> None:
    call = "<tool_calls:ab12><tool_call:ab12>moon</tool_call:ab12></tool_calls:ab12>"
    tokenizer = BY_NAME["hy_v4/suffix"].tokenizer
    for parser, raw in (
        ("deepseek_r1+hy_v4", f"hm</think>{call}"),
        ("hy_v4+hy_v4", f"<think:ab12>hm</think:ab12>{call}"),
    ):
        opened = opening(parser, tokenizer=tokenizer, tools=TOOLS)
        tail = "<think>" if parser.startswith("deepseek") else ""
        for _, steps in splits(raw, tokenizer):
            one = message(semantic(opened, session(steps, tail=tail)))
            assert (one.reasoning, one.calls) == ("hm", [Call("moon", "{}", True)])
