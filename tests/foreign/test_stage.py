"""A worker's answer as semantic events."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from replay.derive import run
from replay.foreign.events import PlayedState
from stages.events import (
    AbortInput,
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    End,
    ErrorInput,
    Failure,
    Finish,
    FinishInput,
    Input,
    PromptInput,
    Reasoning,
    Semantic,
    Start,
    Tick,
    Tokens,
    Usage,
    UsageInput,
)
from stages.message import Message, ToolCall, collect
from stages.opening import Ask, Opening, Tool
from stages.stage import fold
from tests.foreign.sessions import inputs, opening, stage, step


def played(answer: dict[str, Any], session: list[Input], **fields: Any) -> list[Semantic]:
    """What the stage gives where the worker answers so."""
    track, failed = run(stage("scripted"), "semantic", opening({"answer": answer}, **fields), session, range(99))
    assert failed is None
    return track.events


ONE = {
    "steps": [
        [["reasoning", "Hm."]],
        [["content", "So:"], ["call", 0, "chatcmpl-tool-77", "look"], ["arguments", 0, '{"at": ']],
        [["arguments", 0, "1}"], ["call", 1, None, "wait"]],
    ],
    "flush": {"0": [["arguments", 1, '{"s": 2']]},
    "one_shot": [
        {
            "choice": 0, "reasoning": "Hm.", "content": None,
            "tool_calls": [{"name": "look", "arguments": '{"at": 1}'}, {"name": "wait", "arguments": '{"s": 2'}],
        }
    ],
    "ns": 1234,
}  # fmt: skip
THREE = inputs(step("a"), step("b"), step("c", "<|im_end|>"))


def test_the_events_of_each_step() -> None:
    assert played(ONE, THREE) == [
        Start(0, 1),
        Tokens(0, (101,)),
        Reasoning(0, "Hm.", (0, 0)),
        Tokens(0, (101,)),
        Content(0, "So:", (0, 0)),
        CallStart(0, 0, "call-0-0", "look", (0, 0)),
        CallArguments(0, 0, '{"at": ', (0, 0)),
        Tokens(0, (101, 2)),
        CallArguments(0, 0, "1}", (0, 0)),
        CallEnd(0, 0, True),
        CallStart(0, 1, "call-0-1", "wait", (0, 0)),
        CallArguments(0, 1, '{"s": 2', (0, 0)),
        CallEnd(0, 1, False),
        Finish(0, "eos", 2),
        Usage(1, 3),
        End(),
    ]


def test_their_ids_are_random_and_ours_are_not() -> None:
    other = json.loads(json.dumps(ONE).replace("chatcmpl-tool-77", "chatcmpl-tool-12"))
    assert played(ONE, THREE) == played(other, THREE)


def test_the_message_at_once() -> None:
    ready = stage("scripted").prepared(opening({"answer": ONE}), THREE)
    calls = (ToolCall("call-0-0", "look", '{"at": 1}'), ToolCall("call-0-1", "wait", '{"s": 2', False))
    assert ready.one_shot == [Message(0, "Hm.", None, None, calls, "stop")]
    assert (ready.one_shot_error, ready.ns, ready.foreign) == ("", 1234, True)


def test_there_is_no_message_at_once_where_a_choice_did_not_end() -> None:
    session: list[Input] = [*THREE[:3], AbortInput("client")]
    assert stage("scripted").prepared(opening({"answer": ONE}), session).one_shot is None


def test_the_path_at_once_raised() -> None:
    error = {"type": "ValueError", "message": "no JSON", "where": ""}
    answer: dict[str, Any] = {"steps": [[], [], []], "one_shot": None, "one_shot_error": error}
    ready = stage("scripted").prepared(opening({"answer": answer}), THREE)
    assert (ready.one_shot, ready.one_shot_error) == (None, "ValueError: no JSON")


@pytest.mark.parametrize("last", [AbortInput("client"), ErrorInput("engine", "it broke")])
def test_open_calls_end_before_the_failure(last: Input) -> None:
    events = played(ONE, [*THREE[:3], last])
    assert events[-3:-1] == [CallEnd(0, 0, False), events[-2]]
    assert isinstance(events[-2], Failure)
    assert events[-1] == End()


def test_a_choice_that_wrote_nothing_still_ends() -> None:
    answer: dict[str, Any] = {"steps": [[]], "flush": {"0": [["content", "so"]]}}
    session: list[Input] = [PromptInput((1,), "", 1), FinishInput(0, "length"), UsageInput(1, 0)]
    assert played(answer, session) == [
        Start(0, 1), Content(0, "so", (0, 0)), Finish(0, "length"), Usage(1, 0), End(),
    ]  # fmt: skip


def test_two_choices_and_silence_between() -> None:
    answer = {"steps": [[["content", "one"]], [["content", "two"]], [["content", "!"]]]}
    session: list[Input] = [
        PromptInput((1,), "", 1), step("x"), Tick(), step("y", choice=1), step("z"),
        FinishInput(1, "eos"), FinishInput(0, "eos"), UsageInput(1, 3),
    ]  # fmt: skip
    events = played(answer, session, ask=Ask(n=2))
    assert [each.content for each in collect(events)] == ["one!", "two"]
    assert Tick() in events


def test_what_comes_for_no_choice_or_after_its_end_is_nothing() -> None:
    session: list[Input] = [
        step("early"), PromptInput((1,), "", 1), step("x"), step("y", choice=5), FinishInput(0, "eos"), step("late"),
        UsageInput(1, 1), step("later"),
    ]  # fmt: skip
    events = played({"steps": [[["content", "one"]]]}, session)
    assert events == [
        Start(0, 1), Tokens(0, (101,)), Content(0, "one", (0, 0)), Finish(0, "eos"), Tokens(0, (104,)), Usage(1, 1),
        End(),
    ]  # fmt: skip


def test_a_call_without_arguments() -> None:
    answer: dict[str, Any] = {"steps": [[["call", 0, None, "now"]], [], []]}
    calls = collect(played(answer, THREE))[0].tool_calls
    assert calls == (ToolCall("call-0-0", "now", "", True),)


@pytest.mark.parametrize("delta", [["shout", "a"], ["content", 1], ["call", "0", None, "f"], ["arguments", 0], []])
def test_no_delta(delta: list[Any]) -> None:
    answer = {"steps": [[delta], [], []]}
    _, failed = run(stage("scripted"), "semantic", opening({"answer": answer}), THREE, range(99))
    assert failed is not None
    assert (failed.type, failed.seq) == ("Crashed", 1)
    assert failed.message.startswith("the worker gave what is no delta: ")


def test_resuming_after_any_input_goes_on_the_same() -> None:
    told = opening({"answer": ONE})
    ready = stage("scripted").prepared(told, THREE)
    whole = fold(ready.start(told), THREE)
    for at in range(len(THREE) + 1):
        machine, out = ready.start(told), list[Semantic]()
        for event in THREE[:at]:
            machine.step(event, out)
        state = machine.snapshot()
        assert isinstance(state, PlayedState)
        assert msgspec.to_builtins(state)["seq"] == at  # plain data
        rest = ready.resume(told, state)
        machine.step(Tick(), [])  # does not change a snapshot that is taken
        for event in THREE[at:]:
            rest.step(event, out)
        assert out == whole


# --- what the worker is asked -----------------------------------------------------------------------------------------


def question(session: list[Input], told: Opening | None = None, tokenizer: str | None = None) -> list[Any]:
    """The session and the facts that the worker gets."""
    track, failed = run(stage("asked", tokenizer=tokenizer), "semantic", told or opening(), session, range(99))
    assert failed is None
    (content,) = [event.text for event in track.events if isinstance(event, Content)]
    found: list[Any] = json.loads(content)
    return found


@pytest.mark.parametrize("body", [{"model": "x"}, {"model": "x", "tools": []}, {"model": "x", "tools": None}])
def test_tools_that_are_not_in_the_body_that_was_kept(body: dict[str, Any]) -> None:
    ask = Ask(stream=True, tools=(Tool("look"),), tool_choice="required", parallel=False)
    asked, _ = question(THREE, opening(body, ask=ask))
    assert [tool["function"]["name"] for tool in asked["tools"]] == ["look"]
    assert (asked["tool_choice"], asked["request"]["model"]) == ("required", "x")
    assert asked["request"]["parallel_tool_calls"] is False


def test_the_question() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "tool_choice": "none", "seed": 3}
    session: list[Input] = [
        PromptInput((5, 6), "<|im_start|>", 2), step("é"[:1]), step("<tool_call>", "x"), FinishInput(0, "stop", "END"),
        UsageInput(2, 3),
    ]  # fmt: skip
    asked, facts = question(session, opening(body), "/some/where")
    assert asked == {
        "prompt_ids": [5, 6],
        "prompt_tail": "<|im_start|>",
        "request": body,
        "tools": [],
        "tool_choice": "none",
        "n": 1,
        "steps": [
            {"choice": 0, "ids": [101], "pieces": ["\u00c3\u00a9"], "text": "é"},
            {"choice": 0, "ids": [3, 101], "pieces": ["<tool_call>", "x"], "text": "<tool_call>x"},
        ],
        "finish": {"0": {"reason": "stop", "stop": "END"}},
        "special": {"<|im_end|>": 2},
        "added": {"<tool_call>": 3, "</tool_call>": 4},
        "eos": [2],
    }
    assert facts == {"tokenizer": "/some/where", "plugin": None}


def test_another_protocols_request_is_put_in_the_chat_protocols_words() -> None:
    ask = Ask(
        stream=True, tools=(Tool("look", "looks", {"type": "object"}),), tool_choice="name:look", parallel=False,
        stop=("END",), keep_special=True,
    )  # fmt: skip
    told = opening({"input": "hi", "chat_template_kwargs": {"enable_thinking": False}}, protocol="responses", ask=ask)
    asked, _ = question(THREE, told)
    function = {"name": "look", "description": "looks", "parameters": {"type": "object"}}
    assert asked["request"] == {
        "model": "m", "messages": [{"role": "user", "content": ""}], "stream": True, "n": 1, "include_reasoning": True,
        "skip_special_tokens": False, "include_stop_str_in_output": False, "stop": ["END"],
        "tools": [{"type": "function", "function": function}],
        "tool_choice": {"type": "function", "function": {"name": "look"}}, "parallel_tool_calls": False,
        "chat_template_kwargs": {"enable_thinking": False},
    }  # fmt: skip


def test_how_much_to_think_is_told_whatever_the_protocol() -> None:
    """A parser may look for reasoning only where the template was told to begin it."""
    turns = [{"role": "user", "content": "hi"}]
    off: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": turns, "thinking": {"type": "disabled"}}
    asking: dict[str, dict[str, Any]] = {
        "responses": {"model": "m", "input": "hi", "reasoning": {"effort": "none"}},
        "messages": off,
        "chat": {"model": "m", "messages": turns, "reasoning_effort": "none"},
    }
    for protocol, request in asking.items():
        asked, _ = question(THREE, opening(request, protocol=protocol))
        assert asked["request"]["reasoning_effort"] == "none", protocol
    # What another server takes may be no request to ours: then it is told without.
    asked, _ = question(THREE, opening({**off, "messages": []}, protocol="messages"))
    assert "reasoning_effort" not in asked["request"]


def test_ids_without_bytes_are_not_supported() -> None:
    session: list[Input] = [PromptInput((1,), "", 1), msgspec.structs.replace(step("x"), pieces=())]
    _, failed = run(stage("echo"), "semantic", opening(), session, range(99))
    assert failed is not None
    assert failed.type == "Unsupported"
    assert "playhead import --tokenizer" in failed.message
