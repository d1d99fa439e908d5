"""Typed elements at their edges: long heads, deep values, and the start of a message whose header the prompt began."""

from __future__ import annotations

import pytest

from stages import catalog
from tests.support.format_checks import Subject, check_invariance
from tests.support.generate import families
from tests.support.generate.family import Family
from tests.support.parse import TOOLS, check_resume, grouped, message, session


def family(module: str, name: str) -> Family:
    return next(found for found in families(module) if found.format.name == name)


K3 = family("kimi_k3", "kimi_k3")
COFL = family("cofl", "cohere_command5")
INKLING = family("messages", "inkling")


def k3(head: str) -> Subject:
    tag = f"<|open|>{head}<|sep|>"
    raw = f"<|open|>tools<|sep|>{tag}<|close|>call<|sep|><|close|>tools<|sep|>"
    return Subject(K3, raw, K3.tails["off"], TOOLS)


@pytest.mark.parametrize("size", [1013, 1014, 1015, 1016])
def test_a_head_is_one_up_to_a_length_wherever_it_is_cut(size: int) -> None:
    head = f'call tool="{"n" * size}"'
    got = check_invariance(k3(head), "incremental", valid=False)
    if size + len(' tool=""') <= 1024:
        assert [(call.name, call.value()) for call in got.calls] == [("n" * size, {})]
    else:
        assert not got.calls
        assert got.faults == ["malformed_call"]
        assert got.content == f"<|open|>{head}<|sep|><|close|>call<|sep|>"


@pytest.mark.parametrize("depth", [99, 100])
def test_values_nest_so_deep_and_no_deeper(depth: int) -> None:
    opened = '<cofl:value name="a" type="list">' + '<cofl:value type="list">' * (depth - 1)
    inner = '<cofl:value type="json">1</cofl:value>'
    call = f'<cofl:tool_call id="0" name="tide">{opened}{inner}{"</cofl:value>" * depth}</cofl:tool_call>'
    raw = f"<cofl:tool_calls>{call}</cofl:tool_calls><|START_TEXT|>ok<|END_TEXT|>"
    got = check_invariance(Subject(COFL, raw, COFL.tails["off"], TOOLS), "incremental", valid=False)
    assert got.content == "ok"
    if depth < 100:
        assert got.calls[0].arguments == f'{{"a": {"[" * depth}1{"]" * depth}}}'
        assert not got.faults
    else:
        assert (got.calls[0].complete, got.calls[0].arguments) == (False, f'{{"a": {"[" * depth}')
        assert got.faults == ["malformed_call"]


@pytest.mark.parametrize(
    "tail", ["<|message_model|>", "<|message_model|>tide", "<|message_model|><|content_text|>", ""]
)
def test_a_header_that_the_prompt_began_is_resumed_anywhere(tail: str) -> None:
    raw = "High<|end_message|><|message_model|><|content_text|>ok<|end_message|>"
    if "content" not in tail:
        raw = "<|content_text|>" + raw
    subject = Subject(INKLING, raw, tail, TOOLS)
    tokens = subject.pieces()
    inputs = session(grouped(tokens, [1] * len(tokens)), tail=tail)
    check_resume(subject.stage("incremental"), subject.opened("incremental"), inputs)
    got = message(subject.events(grouped(tokens, [len(tokens)]), "incremental"))
    assert (got.reasoning, got.content, got.faults) == (None, "High\nok", [])


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("kimi-k3", "kimi_k3"), ("Kimi_K3", "kimi_k3"), ("cofl", "cohere_command5"), ("inkling", "inkling"),
        ("muse-spark", "muse"), ("muse-glimmer", "muse_glimmer"),
    ],
)  # fmt: skip
def test_names(name: str, form: str) -> None:
    assert catalog.parser(name).id.startswith(f"parse.{form}@")
