"""JSON calls in all their tables: ids on the wire, limits, and text made of what the grammars are made of."""

from __future__ import annotations

import random

import pytest

from stages import catalog
from stages.events import CallStart, Semantic
from stages.opening import Opening
from stages.parse.engines.json_calls import JsonBlocks, JsonCalls, JsonKeys
from stages.parse.format import Calls, Format
from stages.parse.parser import Parser
from stages.parse.site import Site
from stages.stage import fold
from tests.support.format_checks import POLICIES, Subject, check_invariance
from tests.support.generate import families
from tests.support.generate.family import Family
from tests.support.parse import (
    TOOLS,
    check_partition,
    check_resume,
    check_stream,
    message,
    opening,
    session,
    splits,
    texts,
)

FAMILIES = families("json_arrays", "json_bare", "json_cohere")
each_family = pytest.mark.parametrize("family", FAMILIES, ids=[family.name for family in FAMILIES])


def _engine(site: Site) -> JsonCalls:
    keys = JsonKeys(name=("name",), arguments=("arguments",), ids=("id",))
    return JsonCalls(site, keys, JsonBlocks(calls="array", empty=True, ends={"[CALLS]": ""}))


WIRED = Format("wired", 1, "array", "ids on the wire", calls=Calls(openers=("[CALLS]",), engine=_engine, ids="nine"))


def _events(form: Format, text: str, opened: Opening) -> list[list[Semantic]]:
    """Under every split."""
    stage = catalog.layers(opened, Parser(form)).semantic
    found: list[list[Semantic]] = []
    for _, steps in splits(text):
        inputs = session(steps)
        found.append(fold(stage.start(opened), inputs))
        check_stream(found[-1])
        check_partition(inputs, found[-1])
    return found


@pytest.mark.parametrize(
    ("objects", "wanted"),
    [
        ('{"id": "k3Jd9aQ2x", "name": "moon"}', ["k3Jd9aQ2x"]),
        ('{"name": "moon", "id": "k3Jd9aQ2x"}', [None]),
        ('{"id": "short", "name": "moon"}', [None]),
        ('{"id": "k3Jd9aQ2-", "name": "moon"}', [None]),
        ('{"id": 123456789, "name": "moon"}', [None]),
        ('{"id": "k3Jd9aQ2\\u0078", "arguments": {}, "name": "moon"}', ["k3Jd9aQ2x"]),
        ('{"id": "k3Jd9aQ2x", "name": "moon"}, {"id": "k3Jd9aQ2x", "name": "tide"}', ["k3Jd9aQ2x", None]),
        ('{"id": "k3Jd9aQ2x", "name": "moon"}, {"id": "aaaaaaaa1", "name": "tide"}', ["k3Jd9aQ2x", "aaaaaaaa1"]),
    ],
)
def test_an_id_on_the_wire_is_used_where_it_comes_in_time(objects: str, wanted: list[str | None]) -> None:
    for events in _events(WIRED, f"[CALLS][{objects}] ok", opening()):
        ids = [event.id for event in events if isinstance(event, CallStart)]
        assert len(ids) == len(wanted)
        assert len(ids) == len(dict.fromkeys(ids))
        for got, want in zip(ids, wanted, strict=True):
            assert got == want if want else len(got) == 9 and got.isalnum()
        assert message(events).content == "ok"


def test_behind_its_bracket_an_array_is_over() -> None:
    for events in _events(WIRED, '[CALLS][{"name": "moon"}], {"name": "tide"}]', opening()):
        got = message(events)
        assert [call.name for call in got.calls] == ["moon"]
        assert (got.content, got.faults) == (', {"name": "tide"}]', [])


@pytest.mark.parametrize("calls", POLICIES)
def test_a_json_answer_larger_than_may_be_held_is_content(calls: str) -> None:
    text = '{"rows": [' + "1234567, " * 2000 + "0]}"
    opened = opening("llama3_json", calls="whole" if calls == "whole" else "incremental", max_held=4096)
    for steps in (texts([text]), texts(text[i : i + 7] for i in range(0, len(text), 7))):
        inputs = session(steps)
        events = fold(catalog.layers(opened).semantic.start(opened), inputs)
        check_partition(inputs, events)
        got = message(events)
        assert (got.content, got.calls, got.faults) == (text, [], ["held_overflow"])


def test_deep_nesting_costs_no_stack() -> None:
    deep = "[" * 50_000 + "]" * 50_000
    for raw in (
        f'{{"name": "tide", "parameters": {{"a": {deep}}}}}',
        f'{{"parameters": {{"a": {deep}}}, "name": "tide"}}',
    ):
        opened = opening("llama3_json")
        got = message(fold(catalog.layers(opened).semantic.start(opened), session(texts([raw]))))
        assert got.calls[0].arguments == f'{{"a": {deep}}}'


PIECES = (
    "{", "}", "[", "]", ",", ":", ";", '"', '"name"', '"arguments"', '"parameters"', '"function"', '"tool_name"',
    '"tide"', '"moon"', '"no_function"', '"lunch"', "{}", "null", '""', "[]", "1", "\\", "\n", " ", "\t", "\x00", "é",
    "ok", '{"name": "tide", "arguments": {"a": 1}}', '{"name": "moon", "parameters": {}}', '{"tide": {}}',
    '{"tool_name": "tide", "parameters": {}}', '"{\\"a\\": 1}"', "function call",
)  # fmt: skip


def soup(family: Family, seed: int) -> str:
    """Text made of the grammar's pieces, and of its markers."""
    dice = random.Random(f"soup {family.name} {seed}")
    pieces = (*PIECES, *family.markers * 2, *family.tokenizer.special)
    return "".join(dice.choice(pieces) for _ in range(dice.choice((3, 8, 20, 40))))


@each_family
@pytest.mark.parametrize("seed", range(3))
def test_any_text_is_accounted_for(family: Family, seed: int) -> None:
    text = soup(family, seed)
    tail = random.Random(seed).choice([*family.tails.values()])
    subject = Subject(family, text, tail, TOOLS)
    for calls in POLICIES:
        check_invariance(subject, calls, seeds=1, valid=False)
    opened = subject.opened("incremental")
    check_resume(subject.stage("incremental"), opened, session(texts(text[:60]), tail=tail))
