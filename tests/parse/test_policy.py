"""What the request does not want is dropped; what it did not offer, or asked for in vain, is noted."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages import catalog, policy
from stages.events import (
    CallArguments,
    CallEnd,
    CallStart,
    Dropped,
    Fault,
    FaultCode,
    FinishReason,
    Semantic,
    TokenLogprob,
    Tokens,
    TokensInput,
)
from stages.opening import Ask, Tool
from stages.stage import fold
from tests.support.parse import (
    THINKING,
    check_partition,
    check_resume,
    check_stream,
    message,
    opening,
    semantic,
    session,
    splits,
    texts,
    tokens,
)

TWO = '<tool_call>{"name": "moon"}</tool_call>\n<tool_call>{"name": "tide", "arguments": {"a": 1}}</tool_call>\nok'


def test_it_is_there_only_where_it_has_something_to_do() -> None:
    assert not policy.needed(Ask())
    assert policy.needed(Ask(include_reasoning=False))
    assert policy.needed(Ask(tools=(Tool("a"),)))
    assert not policy.needed(Ask(tools=(Tool("a"),), tool_choice="none"))
    assert not policy.needed(Ask(parallel=False))
    assert "policy" not in catalog.layers(opening("plain", tools=())).parts


def test_hidden_reasoning_is_dropped_with_what_would_tell_it() -> None:
    entry = (TokenLogprob(5, b"a", -0.5),)
    steps = [TokensInput(0, (5,), (b"a",), "", entry), *tokens("</think>b")]
    for shown in (False, True):
        inputs = session(steps, tail=THINKING)
        asked = opening(include_reasoning=False, return_token_ids=shown)
        events = semantic(asked, inputs)
        check_stream(events)
        check_partition(inputs, events)
        got = message(events)
        assert (got.reasoning, got.content) == (None, "b")
        assert [event.text for event in events if isinstance(event, Dropped)] == ["a"]
        told = [event for event in events if isinstance(event, Tokens)]
        assert all(event.logprobs == () for event in told)
        # The ids are counted; that they are not shown is the encoder's part.
        assert [len(event.ids) for event in told] == [1, 1, 1]


def test_one_call_only() -> None:
    inputs = session(tokens(TWO))
    opened = opening(parallel=False)
    events = semantic(opened, inputs)
    check_stream(events)
    check_partition(inputs, events)
    got = message(events)
    assert [call.name for call in got.calls] == ["moon"]
    assert got.content == "ok"
    assert sum(isinstance(event, CallEnd) for event in events) == 1
    assert "".join(event.text for event in events if isinstance(event, Dropped)) == 'tide{"a": 1}'
    check_resume(catalog.layers(opened).semantic, opened, inputs)


def test_an_unknown_tool_is_noted_and_passed() -> None:
    inputs = session(tokens(TWO))
    events = semantic(opening(tools=(Tool("moon"),)), inputs)
    at = next(i for i, event in enumerate(events) if isinstance(event, CallStart) and event.name == "tide")
    fault = events[at + 1]
    assert isinstance(fault, Fault)
    assert (fault.code, fault.text) == ("unknown_tool", "")
    got = message(events)
    assert [(call.name, call.complete) for call in got.calls] == [("moon", True), ("tide", True)]
    assert got.faults == ["unknown_tool"]


def test_of_a_call_that_is_dropped_nothing_is_noted() -> None:
    got = message(semantic(opening(tools=(Tool("moon"),), parallel=False), session(tokens(TWO))))
    assert got.faults == []


# --- arguments ------------------------------------------------------------------------------------------------------

TIDE: dict[str, Any] = {
    "type": "object",
    "properties": {"port": {"type": "string"}, "days": {"type": "integer", "minimum": 1}},
    "required": ["port"],
}
TOOLS = (Tool("tide", parameters=TIDE), Tool("moon"))
GOOD = '<tool_call>{"name": "tide", "arguments": {"port": "Brest", "days": 2}}</tool_call>'
BAD = 'é<tool_call>{"name": "tide", "arguments": {"port": "Brest", "days": "a secret"}}</tool_call> after'


def faults(events: list[Semantic]) -> list[Fault]:
    return [event for event in events if isinstance(event, Fault)]


@pytest.mark.parametrize("calls", ["incremental", "whole"])
def test_arguments_that_break_the_schema_are_noted_and_passed(calls: Literal["incremental", "whole"]) -> None:
    opened = opening(tools=TOOLS, calls=calls)
    written = BAD.encode()
    start = written.index(b'{"port"')
    src = start, written.index(b"}}</tool_call>") + 1
    for split, steps in splits(BAD):
        inputs = session(steps)
        events = semantic(opened, inputs)
        check_stream(events)
        check_partition(inputs, events)
        got = message(events)
        assert got.faults == ["schema_mismatch"], split
        assert [(call.value(), call.complete) for call in got.calls] == [({"port": "Brest", "days": "a secret"}, True)]
        (fault,) = faults(events)
        assert fault == Fault(
            0, FaultCode.SCHEMA_MISMATCH, src, "", "the arguments break the schema at properties/days/type"
        )
        assert isinstance(events[events.index(fault) + 1], CallEnd)
    check_resume(catalog.layers(opened).semantic, opened, session(texts(BAD)))


def test_arguments_that_satisfy_it_are_not() -> None:
    for _, steps in splits(GOOD + GOOD):
        assert message(semantic(opening(tools=TOOLS), session(steps))).faults == []


@pytest.mark.parametrize(
    ("arguments", "detail"),
    [
        ("{}", "the arguments break the schema at required: port"),
        ('{"port": null}', "the arguments break the schema at properties/port/type"),
        ('{"port": "a", "days": 0}', "the arguments break the schema at properties/days/minimum"),
    ],
)
def test_the_detail_names_the_rule_and_never_the_value(arguments: str, detail: str) -> None:
    text = f'<tool_call>{{"name": "tide", "arguments": {arguments}}}</tool_call>'
    events = semantic(opening(tools=TOOLS), session(texts([text])))
    assert [fault.detail for fault in faults(events)] == [detail]
    no_arguments = '<tool_call>{"name": "tide"}</tool_call>'
    assert message(semantic(opening(tools=TOOLS), session(texts([no_arguments])))).faults == ["schema_mismatch"]


def test_only_complete_calls_of_offered_tools_are_checked() -> None:
    cut = '<tool_call>{"name": "tide", "arguments": {"days": "a"'
    assert message(semantic(opening(tools=TOOLS), session(texts([cut])))).faults == ["unclosed_call"]
    other = (Tool("moon", parameters=TIDE),)
    assert message(semantic(opening(tools=other), session(texts([BAD])))).faults == ["unknown_tool"]
    free = (Tool("tide"),)
    assert message(semantic(opening(tools=free), session(texts([BAD])))).faults == []
    assert message(semantic(opening(tools=TOOLS, parallel=False), session(texts([GOOD + BAD])))).faults == []


def test_a_schema_that_cannot_be_used_says_nothing() -> None:
    for schema in (
        {"type": "dict"},
        {"$ref": "https://example.com/a.json"},
        {"properties": {"days": {"pattern": "("}}},
    ):
        tools = (Tool("tide", parameters=schema),)
        assert message(semantic(opening(tools=tools), session(texts([BAD])))).faults == []


def test_arguments_beyond_the_bound_are_not_checked() -> None:
    size = len('{"port": "Brest", "days": "a secret"}')
    machine = policy.POLICY.start(opening(tools=TOOLS, max_held=size - 1))
    arguments = '{"port": "Brest", "days": "a secret"}'
    for bound, want in ((size, 1), (size - 1, 0)):
        for pieces in (arguments, [arguments]):
            events: list[Semantic] = [
                CallStart(0, 0, "c", "tide", (0, 4)),
                *(CallArguments(0, 0, piece, (4, 4)) for piece in pieces),
                CallEnd(0, 0, True),
            ]
            machine = policy.POLICY.start(opening(tools=TOOLS, max_held=bound))
            assert len(faults(fold(machine, events))) == want


def test_choices_are_kept_apart() -> None:
    one, two = '{"port": "a"}', '{"port": 1}'
    events: list[Semantic] = [CallStart(0, 0, "a", "tide", (0, 4)), CallStart(1, 0, "b", "tide", (0, 4))]
    for i in range(max(len(one), len(two))):
        events += [
            CallArguments(0, 0, one[i : i + 1], (4 + i, 5 + i)),
            CallArguments(1, 0, two[i : i + 1], (4 + i, 5 + i)),
        ]
    events += [CallEnd(0, 0, True), CallEnd(1, 0, True)]
    found = faults(fold(policy.POLICY.start(opening(tools=TOOLS, n=2)), events))
    assert [(fault.choice, fault.code, fault.src) for fault in found] == [(1, "schema_mismatch", (4, 4 + len(one)))]


# --- tool_choice ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("choice", "text", "want"),
    [
        ("required", "no call", ["unmet_tool_choice"]),
        ("required", "", ["unmet_tool_choice"]),
        ("required", GOOD, []),
        ("required", TWO, []),
        ("required", '<tool_call>{"name": "sun"}</tool_call>', ["unknown_tool"]),
        ("required", '<tool_call>{"name": "tide", "arguments": {"port', ["unclosed_call"]),
        ("name:tide", GOOD, []),
        ("name:tide", "no call", ["unmet_tool_choice"]),
        ("name:moon", GOOD, ["unmet_tool_choice"]),
        ("name:tide", '<tool_call>{"name": "moon"}</tool_call>' + GOOD, ["unmet_tool_choice"]),
        ("name:tide", '<tool_call>{"name": "sun"}</tool_call>', ["unknown_tool"]),
        ("auto", "no call", []),
        ("auto", GOOD, []),
    ],
)
def test_tool_choice(choice: str, text: str, want: list[str]) -> None:
    offered = (Tool("tide"), Tool("moon"))
    opened = opening(tools=offered, tool_choice=choice)
    plain = message(semantic(opening(tools=offered), session(texts([text]))))
    for split, steps in splits(text):
        inputs = session(steps)
        events = semantic(opened, inputs)
        check_stream(events)
        check_partition(inputs, events)
        got = message(events)
        assert got.faults == want, split
        assert (got.content, got.calls, got.finish) == (plain.content, plain.calls, plain.finish)
    check_resume(catalog.layers(opened).semantic, opened, session(texts(text)))


def test_a_missing_call_is_noted_before_the_finish_of_each_choice() -> None:
    opened = opening(tools=TOOLS, tool_choice="required", n=2)
    steps = [TokensInput(0, (), (), "no"), TokensInput(1, (), (), GOOD)]
    events = semantic(opened, session(steps, n=2))
    (fault,) = faults(events)
    assert fault == Fault(0, FaultCode.UNMET_TOOL_CHOICE, (0, 0), "", "a call was required")
    assert type(events[events.index(fault) + 1]).__name__ == "Finish"


@pytest.mark.parametrize("finish", ["eos", "length", "stop"])
def test_a_cut_answer_lacks_its_call_too(finish: FinishReason) -> None:
    got = message(semantic(opening(tools=TOOLS, tool_choice="required"), session(texts(["no"]), finish=finish)))
    assert (got.faults, got.finish) == (["unmet_tool_choice"], finish)


def test_with_tool_choice_none_markers_are_text() -> None:
    opened = opening(tools=TOOLS, tool_choice="none")
    assert "policy" not in catalog.layers(opened).parts
    for _, steps in splits(BAD):
        got = message(semantic(opened, session(steps)))
        assert (got.content, got.calls, got.faults) == (BAD, [], [])


def test_what_it_does_not_touch_passes_by_it() -> None:
    machine = policy.POLICY.start(opening(tools=TOOLS))
    assert {kind.__name__ for kind in machine.touches} == {"CallStart", "CallArguments", "CallEnd"}
    machine = policy.POLICY.start(opening(tools=TOOLS, tool_choice="required", include_reasoning=False))
    assert {kind.__name__ for kind in machine.touches} >= {"Finish", "Reasoning", "Tokens"}


EVENT = st.one_of(
    st.builds(CallStart, st.integers(0, 1), st.integers(0, 2), st.just("c"), st.sampled_from(["tide", "moon", "x"]),
              st.just((0, 1))),
    st.builds(CallArguments, st.integers(0, 1), st.integers(0, 2),
              st.sampled_from(['{"port"', ":1", ': "a"', "}", "["]), st.just((1, 2))),
    st.builds(CallEnd, st.integers(0, 1), st.integers(0, 2), st.booleans()),
)  # fmt: skip


@given(
    st.lists(EVENT, max_size=12), st.sampled_from(["auto", "required", "name:tide"]), st.booleans(), st.integers(0, 12)
)
def test_any_events_in_any_order(events: list[Semantic], choice: str, parallel: bool, cut: int) -> None:
    opened = opening(tools=TOOLS, tool_choice=choice, parallel=parallel)
    straight = fold(policy.POLICY.start(opened), events)
    kept = [event for event in straight if not isinstance(event, Fault | Dropped)]
    assert kept == [event for event in events if parallel or getattr(event, "index", 0) == 0]
    first = policy.POLICY.start(opened)
    done = fold(first, events[:cut])
    assert done + fold(policy.POLICY.resume(opened, first.snapshot()), events[cut:]) == straight
