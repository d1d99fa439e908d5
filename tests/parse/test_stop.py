"""Stop strings: held over token borders, in every kind of text, never leaked; the choice ends at once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages import catalog, stop
from stages.events import (
    AbortInput,
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    Dropped,
    Fault,
    Finish,
    FinishInput,
    Input,
    Marker,
    PromptInput,
    Reasoning,
    Semantic,
    TimingInput,
    Tokens,
    TokensInput,
    UsageInput,
)
from stages.opening import Ask
from stages.stage import fold
from tests.support.parse import (
    PROMPT,
    Collected,
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


def _say(*pieces: str, parser: str = "plain", tail: str = PROMPT, **asked: Any) -> list[Semantic]:
    """The session's events when the engine says the pieces, one a step."""
    inputs = session([TokensInput(0, (7,), (piece.encode(),), "") for piece in pieces], tail=tail)
    opened = opening(parser, **asked)
    events = semantic(opened, inputs)
    check_stream(events)
    check_partition(inputs, events)
    check_resume(catalog.layers(opened).semantic, opened, inputs)
    return events


def _content(events: list[Semantic]) -> list[str]:
    return [event.text for event in events if isinstance(event, Content)]


def test_it_is_there_only_where_it_has_something_to_do() -> None:
    assert not stop.needed(Ask())
    assert not stop.needed(Ask(stop=("",)))
    assert not stop.needed(Ask(stop=("a",), stop_scopes=()))
    assert stop.needed(Ask(stop=("a",)))


def test_a_match_over_token_borders() -> None:
    events = _say("alpha", " be", "ta gam", "ma delta", " more", stop=("beta gamma",))
    assert _content(events) == ["alpha", " "]
    assert message(events).finish == "stop"
    assert message(events).detail == "beta gamma"
    at = [i for i, event in enumerate(events) if isinstance(event, Finish)]
    assert len(at) == 1
    # The end comes on the step that completes the string; what follows is dropped.
    assert [type(event) for event in events[at[0] - 1 : at[0] + 3]] == [Dropped, Finish, Tokens, Dropped]
    assert "".join(event.text for event in events if isinstance(event, Dropped)) == "beta gamma delta more"


def test_what_may_become_a_stop_string_is_held_and_no_more() -> None:
    events = _say("a", "b", "c", "x", "ab", "ab", "cd", "z", stop=("abcd",))
    assert _content(events) == ["a", "b", "c", "x", "ab"]
    assert message(events).content == "abcxab"
    said: list[list[str]] = []
    machine = stop.STOP.start(opening("plain", stop=("abcd",)))
    for i, text in enumerate(["a", "b", "c", "x", "ab", "ab", "cd"]):
        out: list[Semantic] = []
        machine.step(Content(0, text, (i, i + len(text))), out)
        said.append(_content(out))
    assert said == [[], [], [], ["a", "b", "c", "x"], [], ["ab"], []]


def test_include_stop_delivers_it() -> None:
    events = _say("one ST", "OP two", stop=("STOP",), include_stop=True)
    assert message(events).content == "one STOP"
    assert [event.text for event in events if isinstance(event, Dropped)] == [" two"]


@pytest.mark.parametrize(
    ("strings", "text", "content", "which"),
    [
        (("abcd", "bc"), "xabcd", "xa", "bc"),  # complete first
        (("bc", "abc"), "xabc", "x", "abc"),  # complete together: the longest
        (("abc", "bc"), "xabc", "x", "abc"),
        (("d", "b"), "abcd", "a", "b"),
        (("aab",), "aaaab", "aa", "aab"),
        (("<", ""), "a<b", "a", "<"),
        (("é😀",), "aé😀b", "a", "é😀"),
        (("\n\n",), "a\n\nb", "a", "\n\n"),
    ],
)
def test_which_match_wins_does_not_depend_on_the_split(
    strings: tuple[str, ...], text: str, content: str, which: str
) -> None:
    for _, steps in splits(text):
        inputs = session(steps)
        events = semantic(opening("plain", stop=strings), inputs)
        check_stream(events)
        check_partition(inputs, events)
        got = message(events)
        assert (got.content, got.finish, got.detail) == (content, "stop", which)


def test_the_sources_are_exact() -> None:
    events = _say("é", "aST", "OP€", "b", stop=("STOP",))
    assert [(event.text, event.src) for event in events if isinstance(event, Content | Dropped)] == [
        ("é", (0, 2)),
        ("a", (2, 3)),
        ("ST", (3, 5)),
        ("OP€", (5, 10)),
        ("b", (10, 11)),
    ]


CALL = '<tool_call>\n{"name": "tide", "arguments": {"port": "Brest", "day": 3}}\n</tool_call>'


def _hermes(text: str, **asked: Any) -> list[tuple[Collected, list[Semantic]]]:
    found: list[tuple[Collected, list[Semantic]]] = []
    for _, steps in splits(text):
        inputs = session(steps)
        events = semantic(opening(**asked), inputs)
        check_stream(events)
        check_partition(inputs, events)
        found.append((message(events), events))
    assert all(got == found[0][0] for got, _ in found)
    return found


def test_in_reasoning() -> None:
    got, _ = _hermes("<think>\nlet me END see</think>ok", stop=("END",))[0]
    assert (got.reasoning, got.content, got.finish, got.detail) == ("let me ", None, "stop", "END")
    assert got.faults == []


def test_in_arguments_the_call_stays_incomplete() -> None:
    got, events = _hermes(f"Look.\n{CALL}", stop=('st", ',))[0]
    assert got.content == "Look."
    assert [(call.name, call.arguments, call.complete) for call in got.calls] == [("tide", '{"port": "Bre', False)]
    assert (got.finish, got.faults) == ("stop", ["unclosed_call"])
    at = next(i for i, event in enumerate(events) if isinstance(event, CallEnd))
    assert isinstance(events[at + 1], Finish)


def test_the_fault_of_a_cut_call_says_where_the_stop_string_stands() -> None:
    """The same under every split: the steps are not the text."""
    at = CALL.index('st", ')
    for _, events in _hermes(CALL, stop=('st", ',)):
        assert [event.src for event in events if isinstance(event, Fault)] == [(at, at + 5)]


def test_under_whole_a_call_that_it_cuts_is_the_fault_alone() -> None:
    got, events = _hermes(f"{CALL}\n{CALL}", stop=('st", ',), calls="whole")[0]
    assert (got.calls, got.finish, got.faults) == ([], "stop", ["unclosed_call"])
    assert not any(isinstance(event, CallStart) for event in events)
    second = '<tool_call>{"name": "moon", "arguments": {"a": "END"}}'
    got, events = _hermes(f"{CALL}\n{second}", stop=("END",), calls="whole")[0]
    assert [(call.name, call.complete) for call in got.calls] == [("tide", True)]
    assert (got.finish, got.faults) == ("stop", ["unclosed_call"])


def test_a_match_never_spans_kinds() -> None:
    assert _hermes("<think>\nAB</think>CD", stop=("BC", "B</think>C"))[0][0].finish == "eos"
    assert _hermes(f"moon\n{CALL}", stop=('n{"port', "tide{"))[0][0].finish == "eos"
    two = '<tool_call>{"name": "moon", "arguments": {}}</tool_call>'
    assert _hermes(two + two, stop=("}{",))[0][0].finish == "eos"
    assert _hermes("a<|box_start|>b", stop=("ab",))[0][0].content == "ab"


@pytest.mark.parametrize("string", ["<tool_call>", "tool_c"])
def test_a_marker_as_a_stop_string(string: str) -> None:
    got, events = _hermes(f"Look.\n{CALL}", stop=(string,))[0]
    assert (got.content, got.calls, got.finish, got.detail) == ("Look.", [], "stop", string)
    assert not [event for event in events if isinstance(event, CallStart)]


def test_the_closing_marker_as_a_stop_string_leaves_a_complete_call() -> None:
    got, _ = _hermes(f"{CALL}\nmore", stop=("</tool_call>",))[0]
    assert [call.complete for call in got.calls] == [True]
    assert (got.content, got.finish) == (None, "stop")


def test_the_wrapper_of_a_call_as_a_stop_string_ends_it() -> None:
    got, _ = _hermes(CALL, stop=('"arguments"',))[0]
    assert [(call.arguments, call.complete) for call in got.calls] == [("", False)]
    assert got.finish == "stop"


def test_the_end_of_reasoning_as_a_stop_string() -> None:
    got, _ = _hermes("<think>\na\n</think>\n\nb", stop=("</think>",))[0]
    assert (got.reasoning, got.content, got.finish) == ("a", None, "stop")


def test_white_space_structure_does_not_stop() -> None:
    got, _ = _hermes(f"<think>\na\n</think>\n\nb\n\n{CALL}\n\n", stop=("\n", "\n\n"))[0]
    assert (got.reasoning, got.content, got.finish) == ("a", "b", "eos")


def test_scopes() -> None:
    text = f"<think>\nSTOP\n</think>\n\nSTOP\n{CALL.replace('Brest', 'STOP')}"
    assert _hermes(text, stop=("STOP",), stop_scopes=("content",))[0][0].reasoning == "STOP"
    assert _hermes(text, stop=("STOP",), stop_scopes=("content",))[0][0].content is None
    got, _ = _hermes(text, stop=("STOP",), stop_scopes=("arguments",))[0]
    assert (got.content, [call.arguments for call in got.calls]) == ("STOP", ['{"port": "'])
    got, _ = _hermes(text, stop=("STOP", "think"), stop_scopes=("marker",))[0]
    assert (got.reasoning, got.detail) == (None, "think")


def test_held_text_comes_before_what_ends_it() -> None:
    events = _say("<think>", "aST", "</think>", "bST", parser="hermes", stop=("STOP",))
    kinds = [event for event in events if isinstance(event, Reasoning | Content | Marker | Finish)]
    assert [getattr(event, "text", None) for event in kinds] == ["<think>", "a", "ST", "</think>", "b", "ST", None]
    assert message(events).finish == "eos"


def test_times_pass_what_is_held() -> None:
    inputs: list[Input] = [
        PromptInput((), PROMPT, 3), *tokens("a ST"), TimingInput("ttft", 5), FinishInput(0, "eos"), UsageInput(3, 2),
    ]  # fmt: skip
    opened = opening("plain", stop=("STOP",))
    events = semantic(opened, inputs)
    assert message(events).content == "a ST"
    assert events.count(TimingInput("ttft", 5)) == 1
    check_resume(catalog.layers(opened).semantic, opened, inputs)


def test_an_abort_delivers_what_is_held() -> None:
    inputs: list[Input] = [PromptInput((), PROMPT, 3), *tokens("a ST"), AbortInput("client")]
    events = semantic(opening("plain", stop=("STOP",)), inputs)
    assert message(events).content == "a ST"
    assert not [event for event in events if isinstance(event, Finish)]


def test_only_one_choice_stops() -> None:
    steps = [*tokens("aSTOPb"), *tokens("cSTO", choice=1), *tokens("d", choice=1)]
    inputs = session(steps, n=2)
    opened = opening("plain", stop=("STOP",), n=2)
    events = semantic(opened, inputs)
    check_stream(events)
    for choice in (0, 1):
        check_partition(inputs, events, choice)
    assert (message(events, 0).content, message(events, 1).content) == ("a", "cSTOd")
    assert (message(events, 0).finish, message(events, 1).finish) == ("stop", "eos")
    check_resume(catalog.layers(opened).semantic, opened, inputs)


def test_the_engines_own_stop_is_not_told_twice() -> None:
    inputs: list[Input] = [
        PromptInput((), PROMPT, 3),
        *tokens("a STOP"),
        FinishInput(0, "stop", "STOP"),
        UsageInput(3, 2),
    ]
    events = semantic(opening("plain", stop=("STOP",)), inputs)
    assert [event for event in events if isinstance(event, Finish)] == [Finish(0, "stop", "STOP")]
    cut: list[Input] = [PromptInput((), PROMPT, 3), *tokens("a "), FinishInput(0, "stop", "STOP"), UsageInput(3, 2)]
    assert message(semantic(opening("plain", stop=("STOP",)), cut)).detail == "STOP"


def test_faults_of_what_is_dropped_are_not_told() -> None:
    events = _say("<think>", "a STOP b", parser="hermes", stop=("STOP",))
    assert [event for event in events if isinstance(event, Fault)] == []
    events = _say("STOP", CALL[:-30], parser="hermes", stop=("STOP",))
    assert [event for event in events if isinstance(event, Fault | CallEnd | CallStart)] == []


def test_decoded_arguments_are_cut_without_losing_bytes() -> None:
    text = '<tool_call>{"name": "tide", "arguments": "{\\"a\\": \\"xSTOPy\\"}"}</tool_call>'
    got, events = _hermes(text, stop=("STOP",))[0]
    assert [(call.arguments, call.complete) for call in got.calls] == [('{"a": "x', False)]
    assert isinstance(next(event for event in events if isinstance(event, CallArguments)).text, str)


@given(
    st.lists(st.sampled_from(["a", "b", "ab", "ba", "aab", "é", "<", "\n"]), max_size=10),
    st.lists(st.sampled_from(["ab", "aba", "bb", "é<", "abab", "b"]), min_size=1, max_size=3),
    st.lists(st.integers(1, 5), max_size=8),
    st.booleans(),
)
def test_any_grouping_stops_at_the_same_place(
    pieces: list[str], strings: list[str], sizes: list[int], keep: bool
) -> None:
    text = "".join(pieces)
    opened = opening("plain", stop=tuple(strings), include_stop=keep)
    ends = [(text.find(s) + len(s), -len(s), s) for s in strings if s in text]
    want = text
    if ends:
        end, size, _ = min(ends)
        want = text[:end] if keep else text[: end + size]
    groups, i = list[str](), 0
    for size in sizes:
        groups.append(text[i : i + size])
        i += size
    groups.append(text[i:])
    for cut in (groups, [text], list(text)):
        inputs = session(texts(cut))
        events = fold(catalog.layers(opened).semantic.start(opened), inputs)
        check_partition(inputs, events)
        assert (message(events).content or "") == want
