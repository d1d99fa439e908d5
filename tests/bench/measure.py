"""What the benches share: words, and the clock."""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable
from typing import Any, TypeAlias

Rows: TypeAlias = list[tuple[str, float, str]]
"""(what, median, unit)."""
TOKENS = 2_000
ROUNDS = 7
WORDS = (
    "the of and to in is that for it as was with be by on not he his but at are this have from or had an they which "
    "one were all her would there their we him been has when who will no more if out so said what up its about into "
    "than them can only other new some could time these two may then do first any my now such like our over man me "
    "even most made after also did many before must through back years where much your way well down should because"
).split()


def pieces(n: int) -> list[str]:
    """n word-like tokens of English-looking text: 4.4 characters each or so, with punctuation and names."""
    rng = random.Random(7)
    made: list[str] = []
    while len(made) < n:
        word = (
            rng.choice(WORDS)
            if rng.random() < 0.8
            else "".join(rng.choices("bcdfgklmnprstaeiou", k=rng.randint(3, 11)))
        )
        made += [" " + word[:6], *([word[6:]] if len(word) > 6 else ())]
        if rng.random() < 0.12:
            made.append(rng.choice((",", ".", ";", ":", "\n\n", " -")))
    return made[:n]


def per_token(work: Callable[[], Any], n: int = TOKENS, rounds: int = ROUNDS) -> float:
    """CPU µs per token, median of rounds, garbage collection out of the way."""
    found: list[float] = []
    for _ in range(rounds):
        gc.collect()
        start = time.process_time_ns()
        work()
        found.append((time.process_time_ns() - start) / 1000 / n)
    return statistics.median(found)
