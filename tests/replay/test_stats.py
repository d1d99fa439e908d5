"""Paired statistics: exact McNemar and Wilson's interval, against worked values."""

from __future__ import annotations

import math
import subprocess
import sys
from itertools import product

import pytest

from replay.stats import mcnemar, paired, wilson
from replay.verdict import MARKS, Mark


@pytest.mark.parametrize(
    ("before", "after", "p"),
    [
        # 2 * (C(10,0) + C(10,1)) / 2**10
        (1, 9, 0.021484375),
        (9, 1, 0.021484375),
        (0, 5, 0.0625),
        (0, 6, 0.03125),
        (5, 5, 1.0),
        (0, 0, 1.0),
        (0, 1, 1.0),
        (0, 40, 2 / 2**40),
    ],
)
def test_mcnemar(before: int, after: int, p: float) -> None:
    assert mcnemar(before, after) == pytest.approx(p, rel=1e-12)


def test_mcnemar_is_the_sum_of_all_splits_that_are_as_uneven() -> None:
    for before, after in product(range(9), repeat=2):
        n = before + after
        tail = sum(math.comb(n, k) for k in range(n + 1) if abs(2 * k - n) >= abs(before - after))
        assert mcnemar(before, after) == pytest.approx(tail / 2**n)


@pytest.mark.parametrize(
    ("k", "n", "low", "high"),
    [
        (8, 10, 0.490162, 0.943318),
        # Newcombe (1998), table I, method 3.
        (81, 263, 0.255254, 0.366178),
        (15, 148, 0.062388, 0.160482),
        (0, 20, 0.0, 0.161125),
        (1, 29, 0.006114, 0.171755),
        (29, 29, 0.883032, 1.0),
    ],
)
def test_wilson(k: int, n: int, low: float, high: float) -> None:
    assert wilson(k, n) == pytest.approx((low, high), abs=5e-5)


def test_none_of_many_is_about_the_rule_of_three_and_a_bit() -> None:
    # z² / (n + z²): 3.84 of n, where the rule of three says 3.
    low, high = wilson(0, 10_000)
    assert low == 0.0
    assert high == pytest.approx(3.8415 / 10_003.8415, rel=1e-4)


def test_of_nothing_nothing_is_known() -> None:
    assert wilson(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize(("k", "n"), [(-1, 3), (4, 3), (1, 0)])
def test_what_is_no_rate(k: int, n: int) -> None:
    with pytest.raises(ValueError, match="is no rate"):
        wilson(k, n)


def test_what_is_no_count() -> None:
    with pytest.raises(ValueError, match="counted from 0"):
        mcnemar(-1, 3)


def test_rows_come_in_the_order_of_marks_without_those_that_nobody_has() -> None:
    counts: dict[Mark, tuple[int, int, int, int]] = {
        "fault": (1, 0, 0, 99),
        "leaked": (0, 0, 0, 100),
        "differs": (10, 1, 9, 80),
        "split": (0, 0, 2, 98),
    }
    rows = paired(counts)
    assert [row.mark for row in rows] == [mark for mark in MARKS if mark in ("differs", "split", "fault")]
    differs = rows[0]
    assert (differs.both, differs.before, differs.after, differs.neither) == (10, 1, 9, 80)
    assert differs.p == pytest.approx(0.021484375)
    assert differs.rate_before == pytest.approx((0.11, *wilson(11, 100)))
    assert differs.rate_after == pytest.approx((0.19, *wilson(19, 100)))
    assert rows[-1].p == 1.0


def test_the_library_is_not_loaded_before_it_is_needed() -> None:
    code = "import replay, replay.stats, sys; sys.exit('scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
