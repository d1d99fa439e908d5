"""Measured times among the inputs: what they measure, where they stand, and that they replay."""

from __future__ import annotations

import anyio
import pytest

from pipeline.recorder import SessionRecorder
from pipeline.session import Session
from pipeline.timings import Timings
from replay import derive
from stages import catalog
from stages.events import (
    ErrorInput,
    FinishInput,
    Frame,
    Input,
    PrefillInput,
    PromptInput,
    ScheduledInput,
    TimingInput,
    TokensInput,
    UsageInput,
)
from tests.support.live import ListStream, Taps, drained, opening, tokens, whole

PROMPT, SCHEDULED, USAGE = PromptInput((), "", 3), ScheduledInput(), UsageInput(3, 5)


def token(choice: int = 0) -> TokensInput:
    return TokensInput(choice, (7,), (b"a",), "a")


def told(*arrivals: tuple[int, list[Input]]) -> list[Input]:
    """What is passed on of inputs that arrive at these times, in ns since the opening."""
    clock = iter([at for at, _ in arrivals])
    timings = Timings(lambda: next(clock))
    return [event for _, events in arrivals for event in timings.told(events)]


def times(inputs: list[Input]) -> dict[str, int]:
    return {event.name: event.ns for event in inputs if isinstance(event, TimingInput)}


def test_what_is_measured() -> None:
    found = told(
        (100, [PROMPT]), (130, [SCHEDULED]), (140, [PrefillInput(0, 3)]), (200, [token()]), (210, [token()]),
        (250, [token()]), (251, [FinishInput(0, "eos")]), (300, [USAGE]),
    )  # fmt: skip
    assert found[-5:] == [
        TimingInput("queue", 30), TimingInput("ttft", 200), TimingInput("max_gap", 40), TimingInput("mean_gap", 25),
        USAGE,
    ]  # fmt: skip
    assert [type(event) for event in found[:-5]] == [
        PromptInput, ScheduledInput, PrefillInput, TokensInput, TokensInput, TokensInput, FinishInput,
    ]  # fmt: skip


def test_a_gap_is_between_tokens_of_one_choice() -> None:
    arrivals: list[tuple[int, list[Input]]] = [
        (10, [token(0)]), (15, [token(1)]), (40, [token(0)]), (41, [token(1)]), (42, [USAGE]),
    ]  # fmt: skip
    assert times(told(*arrivals)) == {"ttft": 10, "max_gap": 30, "mean_gap": 28}


def test_tokens_that_arrive_together_have_no_time_between_them() -> None:
    assert times(told((5, [token(), token(), USAGE]))) == {"ttft": 5, "max_gap": 0, "mean_gap": 0}


@pytest.mark.parametrize(
    ("arrivals", "expected"),
    [
        ([(9, [PROMPT, SCHEDULED, USAGE])], {"queue": 0}),
        ([(9, [token(), USAGE])], {"ttft": 9}),
        ([(3, [TokensInput(0, (), (), "")]), (9, [token(), USAGE])], {"ttft": 9}),
        ([(9, [TokensInput(0, (), (), "text without ids"), USAGE])], {"ttft": 9}),
        ([(9, [USAGE])], {}),
        ([(9, [PROMPT, token(), token(), ErrorInput("engine", "lost")])], {}),
    ],
)  # fmt: skip
def test_what_did_not_happen_has_no_time(arrivals: list[tuple[int, list[Input]]], expected: dict[str, int]) -> None:
    assert times(told(*arrivals)) == expected


@pytest.mark.anyio
@pytest.mark.parametrize("metrics", [True, False])
async def test_they_are_inputs_and_replay(metrics: bool) -> None:
    inputs = whole([tokens("Two a day.", 1), tokens("One.", 2)])
    opened, taps = opening("plain", n=2, metrics=metrics, include_usage=True), Taps()
    clock = iter(range(1, 1000))
    session = Session(
        opened, catalog.layers(opened), ListStream([[event] for event in inputs]),
        SessionRecorder(taps, lambda: next(clock)), keep_alive=0,
    )  # fmt: skip
    frames: list[Frame] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.run)
        frames += await drained(session)
    recorded = taps.events("engine")
    assert [event for event in recorded if not isinstance(event, TimingInput)] == inputs
    assert [event.name for event in recorded[-5:-1] if isinstance(event, TimingInput)] == (
        ["queue", "ttft", "max_gap", "mean_gap"] if metrics else []
    )
    assert isinstance(recorded[-1], UsageInput)
    assert frames == derive(opened, recorded).frame.events
