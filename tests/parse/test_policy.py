"""What the request does not want is dropped, what it did not offer is noted."""

from __future__ import annotations

from stages import catalog, policy
from stages.events import CallEnd, CallStart, Dropped, Fault, TokenLogprob, Tokens, TokensInput
from stages.opening import Ask, Tool
from tests.support.parse import (
    THINKING,
    check_partition,
    check_resume,
    check_stream,
    message,
    opening,
    semantic,
    session,
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
