"""Where two layers part for good is mostly told by their beginnings, and is then what the whole of them tells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from replay import diff
from replay.run import Replayer
from stages.events import CallArguments, CallStart, Content, Fault, Marker, Reasoning, TimingInput, Tokens
from tests.support.replay import (
    CALLS,
    SAID,
    THINKING,
    Change,
    last,
    late,
    lost,
    nth,
    one_character,
    only,
    opening,
    record,
    spoiled,
    tokens,
    twice,
    whole,
)

LONG = THINKING + "Let me look that up, été 🌙.\n" * 40 + CALLS
KINDS: list[type] = [Content, Reasoning, CallStart, CallArguments, Marker, Tokens, Fault]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("change", [lost, twice, one_character], ids=lambda change: change.__name__)
@pytest.mark.parametrize("number", [0, 3])
@pytest.mark.parametrize("choices", [1, 2])
def test_one_event(kind: type, change: Callable[[Any], Any], number: int, choices: int, same: Same) -> None:
    if change is one_character and kind not in (Content, Reasoning, CallArguments, Marker):
        return
    same(nth(only(kind), number, change), choices)


@pytest.mark.parametrize("kind", [Content, Reasoning, CallArguments], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("spoil", [late, last])
def test_many_events(kind: type, spoil: Callable[[Any], Callable[[], Change]], same: Same) -> None:
    same(spoil(only(kind)), 1)


Same = Callable[[Callable[[], Change], int], None]


@pytest.fixture
def same(monkeypatch: pytest.MonkeyPatch) -> Same:
    """The result is what it is when all is looked at, at once or in small portions."""

    def check(make: Callable[[], Change], choices: int) -> None:
        trace = record(opening(n=choices), whole(*(tokens(LONG, number) for number in range(choices))))
        results: list[tuple[object, ...]] = []
        # How much is looked at first is nobody's business but diff's, and must not matter.
        for sizes in ((), diff._SOON, (4, 8, 16, 32, 64, 128, 256, 512)):  # pyright: ignore[reportPrivateUsage]
            monkeypatch.setattr(diff, "_SOON", sizes)
            result = Replayer(assemble=spoiled("semantic", make)).replay(trace)
            results.append((result.verdict, result.layers, result.first, result.differences, result.digest))
        assert results[0] == results[1] == results[2]

    return check


def test_beside_a_measured_duration() -> None:
    """It belongs to no choice."""
    inputs = whole(tokens(SAID))
    inputs.insert(-1, TimingInput("ttft", 5))
    trace = record(opening(), inputs, assemble=spoiled("semantic", nth(only(Content), 0, one_character)))
    result = Replayer().replay(trace)
    assert result.verdict == "changed"
    assert result.first is not None
    assert (result.first.layer, result.first.kind) == ("semantic", "text")
