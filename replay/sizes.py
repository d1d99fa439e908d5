"""sizes: how many tokens come at a time, under the splits that draw it. The same numbers in every Python, for ever."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TypeAlias

Sizes: TypeAlias = Iterator[int]
"""Without an end; each from 1."""

Histogram: TypeAlias = Sequence[tuple[int, int]]
"""(tokens in a step, how often), by rising size; empty: nothing is known."""

_BITS = (1 << 64) - 1

ACCEPTED = 7, 10
"""How likely a drafted token is accepted, as a fraction. That each is accepted with one fixed probability, until the
first that is not, is the model with which speculative decoding was published (Leviathan, Kalman, Matias, 2023, section
3); the acceptance that they measured for small drafting models lies between 0.5 and 0.9. With 0.7, a step of 4 drafted
tokens brings 2.8 on average."""

LONGEST_STALL = 256
"""Tokens that wait at most for a slow client."""
_STALLS = 32
"""One read in so many stalls."""
_SHORTEST_STALL = 4


def uniform(seed: int, choice: int, largest: int) -> Sizes:
    """1 to ``largest``, all as likely."""
    for number in _numbers(seed, choice):
        yield 1 + number % largest


def speculative(seed: int, choice: int, drafted: int) -> Sizes:
    """The drafted tokens up to the first that is refused, and the one that the model itself adds."""
    likely, out_of = ACCEPTED
    accepted = 0
    for number in _numbers(seed, choice):
        if number * out_of < likely << 64:
            accepted += 1
            if accepted < drafted:
                continue
        yield accepted + 1
        accepted = 0


def interval(length: int) -> Sizes:
    """The first token, then ``length`` at a time."""
    yield 1
    while True:
        yield length


def slow(seed: int, choice: int) -> Sizes:
    """Mostly 1. A stall is twice as long half as often, without a typical length: such is the tail of pauses."""
    numbers = _numbers(seed, choice)
    for number in numbers:
        if number % _STALLS:
            yield 1
            continue
        number //= _STALLS
        base = _SHORTEST_STALL
        while number % 2 and base < LONGEST_STALL:
            number //= 2
            base *= 2
        yield min(LONGEST_STALL, base + number // 2 % base)


def drawn(seed: int, choice: int, histogram: Histogram) -> Sizes:
    """As often as the histogram has them; 1 where it has none."""
    known = [(size, count) for size, count in histogram if size > 0 and count > 0]
    ends = list(accumulate(count for _, count in known))
    for number in _numbers(seed, choice):
        yield known[bisect_right(ends, number % ends[-1])][0] if ends else 1


def _numbers(seed: int, choice: int) -> Iterator[int]:
    """SplitMix64: 64 bits each."""
    state = (seed * 0x9E3779B97F4A7C15 + choice * 0xD1B54A32D192ED03) & _BITS
    while True:
        state = (state + 0x9E3779B97F4A7C15) & _BITS
        mixed = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _BITS
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _BITS
        yield mixed ^ (mixed >> 31)
