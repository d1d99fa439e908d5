"""How many tokens come at a time, under the splits that draw it or hold something back."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from replay.sizes import Histogram
from replay.split import histogram, regroup
from stages.events import Input, Tick, TokensInput
from tests.support.numbers import splitmix
from tests.support.replay import SAID, VOCABULARY, opening, record, text_steps, tokens, whole


def steps(inputs: Sequence[Input], choice: int = 0) -> list[TokensInput]:
    return [event for event in inputs if isinstance(event, TokensInput) and event.choice == choice]


def ids(inputs: Sequence[Input], choice: int = 0) -> list[tuple[int, ...]]:
    return [event.ids for event in steps(inputs, choice)]


def singles(count: int, choice: int = 0) -> list[Input]:
    return [TokensInput(choice, (number,), (b"x",), "x") for number in range(count)]


def lengths(inputs: Sequence[Input], split: str, histogram: Histogram = (), choice: int = 0) -> list[int]:
    return [len(group) for group in ids(regroup(inputs, split, VOCABULARY, histogram), choice)]


def test_spec_brings_what_was_accepted_and_one_more() -> None:
    """A drafted token is accepted where its 64-bit number is below 0.7 of all."""
    expected: list[int] = []
    accepted = 0
    for number in splitmix(5 * 0x9E3779B97F4A7C15 % 2**64):
        refused = number / 2**64 >= 0.7
        accepted += not refused
        if refused or accepted == 3:
            expected.append(accepted + 1)
            accepted = 0
    assert len(set(expected)) > 1
    made = lengths(singles(sum(expected)), "spec:5:3")
    assert made[: len(expected)] == expected
    many = lengths(singles(20_000), "spec:1:4")
    assert set(many[:-1]) == {1, 2, 3, 4, 5}
    # (1 - 0.7 ** 5) / (1 - 0.7) tokens a step.
    assert 20_000 / len(many) == pytest.approx(2.773, rel=0.03)


def test_interval_sends_the_first_token_at_once() -> None:
    assert lengths(singles(10), "interval:4") == [1, 4, 4, 1]
    assert lengths(singles(3), "interval:4") == [1, 2]
    assert lengths(singles(3), "interval:1") == [1, 1, 1]
    # It is the first token of the choice, not of what another input separates.
    assert lengths([*singles(6), Tick(), *singles(6)], "interval:4") == [1, 4, 1, 4, 2]
    both = [event for pair in zip(singles(5), singles(5, 1), strict=True) for event in pair]
    assert lengths(both, "interval:3", choice=0) == lengths(both, "interval:3", choice=1) == [1, 3, 1]


def test_slow_is_one_by_one_but_for_stalls_without_a_typical_length() -> None:
    made = lengths(singles(60_000), "slow:1")
    stalls = [size for size in made if size > 1]
    assert made[:-1] != [1] * (len(made) - 1)
    assert 1 / 64 < len(stalls) / len(made) < 1 / 16
    assert min(stalls) >= 4 and max(stalls) == 256
    # Half of them are shorter than 8, and yet the few long ones have most of the tokens that waited.
    assert 0.4 < sum(size < 8 for size in stalls) / len(stalls) < 0.6
    assert sum(size for size in stalls if size >= 16) > sum(stalls) / 2
    assert lengths(singles(60_000), "slow:1") == made != lengths(singles(60_000), "slow:2")


@pytest.mark.parametrize("known", [((0, 5),), ((3, 0),), ((-1, 2),), ((0, 1), (1, 4))])
def test_a_histogram_of_steps_that_cannot_be(known: Histogram) -> None:
    assert lengths(singles(5), "histogram:1", known) == [1, 1, 1, 1, 1]


def test_histogram_draws_from_what_the_corpus_has() -> None:
    made = lengths(singles(30_000), "histogram:3", ((2, 1), (5, 3)))
    assert set(made[:-1]) == {2, 5}
    assert made.count(5) / len(made) == pytest.approx(0.75, abs=0.02)
    # Without one it is the session's own.
    own = regroup(singles(400), "rand:1:3", VOCABULARY)
    assert set(lengths(own, "histogram:3")[:-1]) == {1, 2, 3}
    assert regroup([TokensInput(0, (), (), "ab")], "histogram:3", VOCABULARY) == [TokensInput(0, (), (), "ab")]


def test_a_histogram_of_sessions_knows_no_order() -> None:
    one = record(opening("a" * 32), whole(tokens(SAID, size=3)))
    sized = regroup(whole(tokens("x" * 39)), "interval:4", VOCABULARY)
    other, text = record(opening("b" * 32), sized), record(opening("c" * 32), whole(text_steps(SAID)))
    assert len(tokens("x" * 39)) == 13
    assert histogram([one, other, text]) == histogram([text, other, one]) == ((1, len(tokens(SAID)) + 1), (4, 3))
    assert histogram([text]) == histogram([]) == ()


def test_held_text_comes_later_than_its_ids() -> None:
    inputs: list[Input] = [TokensInput(0, (number,), (b"x",), char) for number, char in enumerate("abcde")]
    made = regroup([*inputs, Tick(), *inputs[:2]], "held:2", VOCABULARY)
    assert [event.text for event in steps(made)] == ["", "", "a", "b", "cde", "", "ab"]
    assert ids(made) == [(0,), (1,), (2,), (3,), (4,), (0,), (1,)]
    assert [event.pieces for event in steps(made)] == [(b"x",)] * 7
