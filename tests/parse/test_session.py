"""The parser as a stage: the life of a session, choices beside each other, snapshots, truncation, limits."""

from __future__ import annotations

import random
from typing import Literal

import pytest

from stages import catalog
from stages.events import (
    AbortInput,
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    Dropped,
    End,
    ErrorInput,
    Failure,
    Fault,
    Finish,
    FinishInput,
    Input,
    Marker,
    PrefillInput,
    PromptInput,
    Reasoning,
    ScheduledInput,
    Semantic,
    Start,
    Tick,
    TimingInput,
    Tokens,
    TokensInput,
    Usage,
    UsageInput,
)
from stages.parse.writer import call_id
from tests.support.parse import (
    PROMPT,
    THINKING,
    check_partition,
    check_resume,
    check_stream,
    merged,
    message,
    opening,
    owned,
    semantic,
    session,
    texts,
    tokens,
    wrote,
)

TEXT = (
    "<think>\nhm 😀\n</think>\n\nA\n"
    '<tool_call>\n{"name": "tide", "arguments": {"a": "b\\n\\"c", "d": [1, 2.5e3]}}\n</tool_call>\n'
    '<tool_call>{"arguments": "{}", "name": "moon"}</tool_call>\n'
    'B <tool_call> c\n<tool_call>{"name": "x", "arguments": nul}</tool_call>'
)
POLICIES: tuple[Literal["incremental", "whole"], ...] = ("incremental", "whole")


def test_the_whole_of_a_plain_session() -> None:
    inputs: list[Input] = [
        PromptInput((1, 2, 3), PROMPT, 3, 1),
        ScheduledInput(),
        PrefillInput(0, 3),
        TokensInput(0, (5,), (b"Hi",), "Hi"),
        Tick(),
        TimingInput("ttft", 5),
        FinishInput(0, "eos", 151645),
        UsageInput(3, 2, 1),
    ]
    assert semantic(opening("plain", tools=()), inputs) == [
        Start(0, 3, 1),
        Tokens(0, (5,)),
        Content(0, "Hi", (0, 2)),
        Tick(),
        TimingInput("ttft", 5),
        Finish(0, "eos", 151645),
        Usage(3, 2, 1, 0),
        End(),
    ]


def test_every_choice_starts_at_the_prompt_and_the_first_tells_the_ids() -> None:
    inputs: list[Input] = [PromptInput((1, 2), PROMPT, 2)]
    assert semantic(opening(n=3), inputs) == [Start(0, 2), Start(1, 2), Start(2, 2)]
    assert semantic(opening(n=2, return_token_ids=True), inputs) == [Start(0, 2, 0, (1, 2)), Start(1, 2)]


def test_call_events_at_the_earliest_moment() -> None:
    """The name at its closing quote, arguments from their first brace, the end at the last brace of the wrapper."""
    said: list[tuple[str, list[str | bool]]] = [
        ("<tool_call>", []), ('{"na', []), ('me": "ti', []), ("de", []), ('"', ["tide"]),
        (', "arguments"', []), (": ", []), ("{", ["{"]),
        ('"a', ['"a']), ('": "b', ['": "b']), ('"}', ['"}']), ("}", [True]), ("</tool_call>", []),
    ]  # fmt: skip
    inputs = session([TokensInput(0, (7,), (piece.encode(),), "") for piece, _ in said])
    machine = catalog.parser("hermes").start(opening())
    for event, want in zip(inputs, [[], *(want for _, want in said)], strict=False):
        out: list[Semantic] = []
        machine.step(event, out)
        assert [_telling(event) for event in out if isinstance(event, CallStart | CallArguments | CallEnd)] == want


def _telling(event: CallStart | CallArguments | CallEnd) -> str | bool:
    if isinstance(event, CallEnd):
        return event.complete
    return event.name if isinstance(event, CallStart) else event.text


def test_sources_of_a_call() -> None:
    text = '<tool_call>\n{"name": "moon", "arguments": {"é": 1}}\n</tool_call>'
    inputs = session(tokens(text, size=100))
    events = [event for event in semantic(opening(), inputs) if isinstance(event, Marker | CallStart | CallArguments)]
    data = wrote(inputs)
    assert [(type(event), data[slice(*event.src)].decode()) for event in events] == [
        (Marker, "<tool_call>"),
        (Marker, '\n{"name": "'),
        (CallStart, "moon"),
        (Marker, '", "arguments": '),
        (CallArguments, '{"é": 1}'),
        (Marker, "}"),
        (Marker, "\n"),
        (Marker, "</tool_call>"),
    ]


def test_call_ids_come_from_the_opening() -> None:
    text = '<tool_call>{"name": "moon"}{"name": "tide"}</tool_call>'
    steps = [*tokens(text), *tokens(text, choice=1)]
    events = semantic(opening(n=2), session(steps, n=2))
    ids = [event.id for event in events if isinstance(event, CallStart)]
    assert ids == [call_id("key-1", choice, index) for choice in (0, 1) for index in (0, 1)]
    assert len(set(ids)) == 4
    assert all(len(each) == len("call_") + 24 and each.startswith("call_") for each in ids)


@pytest.mark.parametrize(
    ("last", "failure"),
    [
        (ErrorInput("engine", "out of memory", "oom"), Failure("engine", "out of memory", "oom")),
        (AbortInput("client"), "client_closed"),
        (AbortInput("timeout"), "timeout"),
        (AbortInput("cancel"), "cancelled"),
        (AbortInput("shutdown"), "cancelled"),
    ],
)
def test_an_abort_delivers_what_is_held_and_finishes_nothing(last: Input, failure: Failure | str) -> None:
    held = tokens("So\n<tool_ca", size=50)
    calling = tokens('<tool_call>{"name": "tide", "arguments": {"a', choice=1)
    done: list[Input] = [*tokens("ok", choice=2), FinishInput(2, "eos")]
    inputs: list[Input] = [PromptInput((), PROMPT, 3), *held, *calling, *done, last]
    events = semantic(opening(n=3), inputs)
    check_stream(events)
    for choice in range(3):
        check_partition(inputs, events, choice)
    assert message(events, 0).content == "So\n<tool_ca"
    assert [(call.arguments, call.complete) for call in message(events, 1).calls] == [('{"a', False)]
    assert [event.choice for event in events if isinstance(event, Finish)] == [2]
    assert isinstance(events[-2], Failure)
    assert events[-2] == failure or events[-2].kind == failure
    assert events[-1] == End()


def test_a_refused_request_has_a_failure_only() -> None:
    refused: list[Input] = [ErrorInput("bad_request", "too long", "context_length_exceeded", "messages"), Tick()]
    assert semantic(opening(), refused) == [
        Failure("bad_request", "too long", "context_length_exceeded", "messages"),
        End(),
    ]


def test_nothing_follows_the_end() -> None:
    inputs = session(tokens("hi"))
    more: list[Input] = [Tick(), *tokens("x"), FinishInput(0, "eos"), UsageInput(1, 1), AbortInput("client")]
    assert semantic(opening(), [*inputs, *more]) == semantic(opening(), inputs)


def test_tokens_behind_a_finish_are_dropped() -> None:
    inputs: list[Input] = [
        PromptInput((), PROMPT, 3),
        *tokens("hi"),
        FinishInput(0, "stop", "x"),
        *tokens("late\xe9<think>"),
        *texts(["r"]),
        FinishInput(0, "eos"),
        UsageInput(3, 3),
    ]
    events = semantic(opening(), inputs)
    check_stream(events)
    check_partition(inputs, events)
    assert [event for event in events if isinstance(event, Finish)] == [Finish(0, "stop", "x")]
    assert "".join(event.text for event in events if isinstance(event, Dropped)) == "late\xe9<think>r"


def test_inputs_of_no_choice_are_ignored() -> None:
    stray: list[Input] = [*tokens("x", choice=7), FinishInput(-1, "eos")]
    inputs = session(tokens("hi"))
    assert semantic(opening(), [*stray, *inputs[:1], PromptInput((), "", 9), *stray, *inputs[1:]]) == semantic(
        opening(), inputs
    )


# --- snapshots, interleaving, truncation -----------------------------------------------------------------------------


@pytest.mark.parametrize("calls", POLICIES)
@pytest.mark.parametrize("parser", ["plain", "hermes"])
def test_resume_after_every_event(parser: str, calls: Literal["incremental", "whole"]) -> None:
    opened = opening(parser, calls=calls, n=2)
    first, second = tokens(TEXT, size=3), tokens(TEXT[::-1] + TEXT, size=2, choice=1)
    both: list[Input] = [step for pair in zip(first, second, strict=False) for step in pair]
    stage = catalog.layers(opened).semantic
    check_resume(stage, opened, session(both, n=2))
    check_resume(stage, opened, session(texts(TEXT)))
    check_resume(stage, opened, session(_bytes(TEXT), tail=THINKING))


def _bytes(text: str) -> list[TokensInput]:
    return [TokensInput(0, (7,), (bytes([byte]),), "") for byte in text.encode()]


@pytest.mark.parametrize("calls", POLICIES)
def test_interleaving_changes_no_choice(calls: Literal["incremental", "whole"]) -> None:
    opened = opening(calls=calls, n=3)
    streams = [tokens(TEXT, size=2 + choice, choice=choice) for choice in range(3)]
    ends: list[Input] = [*(FinishInput(choice, "eos") for choice in range(3)), UsageInput(3, 1)]
    seen: list[list[list[Semantic]]] = []
    for seed in range(6):
        dice = random.Random(seed)
        waiting = [list(stream) for stream in streams]
        mixed: list[Input] = [PromptInput((), PROMPT, 3)]
        while any(waiting):
            mixed.append(dice.choice([stream for stream in waiting if stream]).pop(0))
        events = semantic(opened, [*mixed, *ends])
        check_stream(events)
        seen.append([[event for event in events if getattr(event, "choice", None) == c] for c in range(3)])
    assert all(other == seen[0] for other in seen)
    alone = semantic(opening(calls=calls), session(streams[0]))
    assert [event for event in alone if getattr(event, "choice", None) == 0] == seen[0][0]


@pytest.mark.parametrize("calls", POLICIES)
def test_truncation_at_every_token(calls: Literal["incremental", "whole"]) -> None:
    """What was sent before the cut is a prefix of the whole message; nothing is closed or repaired."""
    opened = opening(calls=calls)
    steps = [TokensInput(0, step.ids, step.pieces, "") for step in tokens(TEXT, size=2)]
    full = message(semantic(opened, session(steps)))
    for i in range(len(steps)):
        inputs = session(steps[:i], finish="length")
        events = semantic(opened, inputs)
        check_stream(events)
        check_partition(inputs, events)
        got = message(events)
        assert got.finish == "length"
        assert (full.reasoning or "").startswith((got.reasoning or "").removesuffix("\n").partition("</")[0])
        assert len(got.calls) <= len(full.calls)
        for cut, whole in zip(got.calls, full.calls, strict=False):
            assert cut.name == whole.name
            assert whole.arguments.startswith(cut.arguments)
            if cut.complete:
                assert cut == whole
            else:
                assert calls == "incremental"
                assert got.faults
        live = semantic(opened, [PromptInput((), PROMPT, 3), *steps[:i]])
        assert semantic(opened, session(steps))[: len(live)] == live


def test_a_cut_call_leaks_no_markup() -> None:
    text = 'Look.\n<tool_call>\n{"name": "tide", "arguments": {"port": "Brest"}}\n</tool_call>'
    steps = tokens(text, size=1)
    for calls in POLICIES:
        for i in range(len(steps)):
            got = message(semantic(opening(calls=calls), session(steps[:i], finish="length")))
            assert (got.content or "").rstrip("\n") in ("Look."[:i], "Look.")


# --- limits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("calls", POLICIES)
@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "' + "x" * 99,
        '<tool_call>{"arguments": {"a": "' + "x" * 99 + '"}, "name": "tide"}</tool_call>ok',
        '<tool_call>{"name": "tide", "arguments": "{\\"a\\": \\"' + "x" * 99 + '\\"}"}</tool_call>ok',
        "a" + "\n" * 99 + "b",
        "\n" * 99 + "b",
        " \t" * 60,
        "<think>" + "\n" * 99 + "b</think>c",
        "<think>a" + "\n" * 99,
        "<think>a<tool_call>" + " " * 99 + "b</think>c",
        '<tool_call>{"name": "moon"}' + " " * 99 + "</tool_call>" + " " * 99 + "x",
        '<tool_call>{"name": "moon", "x": "' + "y" * 99 + '"}</tool_call>',
    ],
)
def test_held_text_is_bounded(text: str, calls: Literal["incremental", "whole"]) -> None:
    opened = opening(calls=calls, max_held=40)
    inputs = session(tokens(text, size=3))
    events = semantic(opened, inputs)
    check_stream(events)
    check_partition(inputs, events)
    done: list[Semantic] = []
    machine = catalog.parser("hermes").start(opened)
    for i, event in enumerate(inputs[:-2]):
        machine.step(event, done)
        at = max((end for _, _, (_, end) in owned(done)), default=0)
        assert len(wrote(inputs[: i + 1])) - at <= 60  # the limit, a step and a marker
    check_resume(catalog.parser("hermes"), opened, inputs)


def test_an_overflow_is_delivered_verbatim() -> None:
    text = 'A\n<tool_call>{"arguments": {"a": "' + "x" * 99 + '"}, "name": "tide"}</tool_call>'
    got = message(semantic(opening(max_held=50), session(tokens(text))))
    assert got.content == text
    assert got.faults == ["held_overflow"]


def test_string_arguments_that_overflow_end_the_call() -> None:
    text = '<tool_call>{"name": "tide", "arguments": "{\\"a\\": \\"' + "x" * 99 + '\\"}"}</tool_call>\nB'
    got = message(semantic(opening(max_held=50), session(tokens(text))))
    assert [(call.name, call.arguments, call.complete) for call in got.calls] == [("tide", "", False)]
    assert got.content == '"{\\"a\\": \\"' + "x" * 99 + '\\"}"}B'
    assert got.faults == ["held_overflow"]


def test_deep_nesting_is_no_problem() -> None:
    deep = "[" * 20_000 + "]" * 20_000
    text = f'<tool_call>{{"name": "tide", "arguments": {{"a": {deep}}}}}</tool_call>'
    for calls in POLICIES:
        got = message(semantic(opening(calls=calls), session(tokens(text, size=500))))
        assert [(call.arguments, call.complete) for call in got.calls] == [(f'{{"a": {deep}}}', True)]


def test_faults_say_where() -> None:
    text = '<tool_call>{"name": "tide", "arguments": {"a": 1,}}</tool_call>'
    events = semantic(opening(), session(tokens(text)))
    faults = [event for event in events if isinstance(event, Fault)]
    assert [(text[slice(*fault.src)], fault.text) for fault in faults] == [("}", "")]
    rest = [event.text for event in merged(events) if isinstance(event, Dropped)]
    assert rest == ["}}"]


def test_reasoning_is_reasoning_only() -> None:
    events = semantic(opening(), session(tokens("a", size=1), tail=THINKING))
    assert [event for event in events if isinstance(event, Content | Reasoning)] == [Reasoning(0, "a", (0, 1))]
