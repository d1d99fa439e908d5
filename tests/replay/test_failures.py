"""A parser that raises, or gives what is no event, fails its session and nothing else."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from replay import print_report
from replay.report import make_report
from replay.run import Replayer
from stages.events import Content, Input, Tick
from stages.opening import Opening
from tests.support.replay import SAID, Raising, opening, record, tokens, whole

STEPS = whole(tokens(SAID))


def test_a_parser_that_raises_at_a_step() -> None:
    result = Replayer(Raising(7)).replay(record(opening(), STEPS))
    assert result.verdict == "failed"
    assert result.error is not None
    assert (result.error.type, result.error.message) == ("RuntimeError", "no such state")
    assert (result.error.layer, result.error.seq, result.error.step) == ("semantic", 6, 6)
    assert result.error.stage == "raising@1"
    assert result.error.input.startswith("tokens choice=0 ids=[")
    assert re.fullmatch(r"replay\.py:\d+", result.error.where)  # tests/support/replay.py


def test_the_line_is_the_users_own(tmp_path: Path) -> None:
    """Not that of the library which it called, and without the folder."""
    path = tmp_path / "mine.py"
    path.write_text(
        "import json\n"
        "class Parser:\n"
        "    def start(self, opening): return self\n"
        "    def step(self, event, out):\n"
        "        json.loads('{')\n"
    )
    result = Replayer(f"{path}:Parser").replay(record(opening(), STEPS))
    assert result.error is not None
    assert (result.error.type, result.error.where) == ("JSONDecodeError", "mine.py:5")
    out = io.StringIO()
    print_report(make_report([result], [], parser=None, sources=[], splits=["recorded"], layer="frame"), out)
    assert "(mine.py:5, at event 0: prompt" in " ".join(out.getvalue().split())


def test_a_parser_that_raises_at_its_start() -> None:
    result = Replayer(Raising(0)).replay(record(opening(), STEPS))
    assert result.verdict == "failed"
    assert result.error is not None
    assert (result.error.seq, result.error.input) == (-1, "")


@pytest.mark.parametrize("error", [RecursionError(), SystemExit(1), MemoryError(), AssertionError("x"), KeyError("y")])
def test_whatever_it_raises(error: BaseException) -> None:
    traces = [record(opening(str(number) * 32), STEPS) for number in range(3)]
    results = list(Replayer(Raising(5, error)).replay_many(traces))
    assert [result.verdict for result in results] == ["failed"] * 3
    assert {result.error and result.error.type for result in results} == {type(error).__name__}


def test_an_interrupt_is_not_the_parsers() -> None:
    with pytest.raises(KeyboardInterrupt):
        Replayer(Raising(5, KeyboardInterrupt())).replay(record(opening(), STEPS))


def test_fail_fast_ends_with_the_first() -> None:
    traces = [record(opening(str(number) * 32), STEPS) for number in range(3)]
    assert len(list(Replayer(Raising(5), fail_fast=True).replay_many(traces))) == 1
    assert len(list(Replayer(fail_fast=True).replay_many(traces))) == 3


class Emitting:
    """Emits one thing for each input."""

    id = "emitting@1"

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make

    def start(self, opening: Opening) -> Any:
        return self

    def resume(self, opening: Opening, snapshot: Any) -> Any:
        return self

    def step(self, event: Input, out: list[Any]) -> None:
        out.append(self.make())

    def snapshot(self) -> msgspec.Struct:
        return Tick()


@pytest.mark.parametrize(
    ("made", "says"),
    [
        ("text", "str, which is no semantic event"),
        (None, "NoneType"),
        (STEPS[0], "PromptInput"),
        # What the types forbid is what a foreign parser may make.
        (Content(0, None, (0, 1)), "str"),  # type: ignore[arg-type]
        (Content("0", "a", (0, 1)), "int"),  # type: ignore[arg-type]
        (Content(0, "a", 5), "array"),  # type: ignore[arg-type]
        (Content(0, object(), (0, 1)), "object"),  # type: ignore[arg-type]
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_what_is_no_event(made: Any, says: str, stream: bool) -> None:
    result = Replayer(Emitting(lambda: made)).replay(record(opening(stream=stream), STEPS))
    assert result.verdict == "failed"
    assert result.error is not None
    assert result.error.layer == "semantic"
    assert result.error.stage == "emitting@1"
    assert says in result.error.message
    assert (result.error.seq, result.error.step) == (0, 0)


def test_events_in_no_order_are_no_failure() -> None:
    result = Replayer(Emitting(lambda: Content(0, "a", (0, 1)))).replay(record(opening(), STEPS))
    assert result.verdict == "changed"
