"""Statistics of two parsers on the same sessions: exact McNemar, Wilson's interval."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, TypeAlias

from replay.totals import Paired
from replay.verdict import MARKS, Mark

Counts: TypeAlias = tuple[int, int, int, int]
"""Sessions where both sides have a mark, only the one before, only the one after, neither."""


def paired(counts: Mapping[Mark, Counts]) -> tuple[Paired, ...]:
    """A row for each mark that either side has somewhere, in the order of MARKS.

    ``p`` is the chance of a split of the sessions in which the sides disagree that is at least as uneven, were both
    equally good (exact McNemar, two-sided); 1.0 where they never disagree.
    """
    return tuple(_paired(mark, counts[mark]) for mark in MARKS if mark in counts and any(counts[mark][:3]))


def _paired(mark: Mark, counts: Counts) -> Paired:
    both, before, after, neither = counts
    total = sum(counts)
    return Paired(
        mark=mark, both=both, before=before, after=after, neither=neither, p=mcnemar(before, after),
        rate_before=_rate(both + before, total), rate_after=_rate(both + after, total),
    )  # fmt: skip


def mcnemar(before: int, after: int) -> float:
    """The exact two-sided p of so many sessions of which only one side has a mark. Raises ValueError below 0."""
    if before < 0 or after < 0:
        raise ValueError(f"{before} and {after}: sessions are counted from 0")
    if before + after == 0:
        return 1.0
    return float(_binomtest(min(before, after), before + after, 0.5).pvalue)


def wilson(k: int, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval (low, high) of the rate behind k of n; (0.0, 1.0) where n is 0: nothing is known. Raises
    ValueError where k is no number from 0 to n."""
    if not 0 <= k <= n:
        raise ValueError(f"{k} of {n} is no rate")
    if n == 0:
        return 0.0, 1.0
    interval = _binomtest(k, n).proportion_ci(confidence_level=0.95, method="wilson")
    return max(0.0, float(interval.low)), min(1.0, float(interval.high))


def _binomtest(k: int, n: int, p: float = 0.5) -> Any:
    # scipy.stats takes long to import, and few runs compare.
    return import_module("scipy.stats").binomtest(k, n, p)


def _rate(k: int, n: int) -> tuple[float, float, float]:
    return (k / n if n else 0.0, *wilson(k, n))
