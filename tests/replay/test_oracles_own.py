"""Our own parsers under the oracles: whatever a model writes, no markup reaches a client without a fault that says so,
nothing is retracted, and the arguments of a complete call are an object."""

from __future__ import annotations

import random

import pytest

from replay.oracles import breaches
from replay.result import Breach
from stages import catalog
from stages.message import collect
from stages.stage import fold_causes
from tests.support.format_broken import broken
from tests.support.format_checks import POLICIES, Subject, Tokens, generated
from tests.support.generate import MODULES, families
from tests.support.generate.family import Family
from tests.support.parse import grouped, session


def _broken(subject: Subject, pieces: Tokens) -> list[Breach]:
    """What the parser's events of these tokens break, a token a step."""
    found: list[Breach] = []
    for calls in POLICIES:
        opened = subject.opened(calls)
        inputs = session(grouped(pieces, [1] * len(pieces)), tail=subject.tail, finish=subject.finish)
        events, causes = fold_causes(catalog.layers(opened).semantic.start(opened), inputs)
        found += breaches(opened, inputs, events, causes, collect(events))
    return found


def strewn(family: Family, pieces: Tokens, dice: random.Random) -> Tokens:
    """Tokens of the grammar where they do not belong: some more, alone, anywhere."""
    special = {**family.tokenizer.added, **family.tokenizer.special}
    known = [(number, text.encode()) for text, number in special.items() if text in family.markers]
    made = list(pieces)
    for _ in range(dice.randint(1, 3)):
        if known:
            made.insert(dice.randint(0, len(made)), dice.choice(known))
    return made


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("module", MODULES)
def test_they_hold_whatever_was_written(module: str, seed: int) -> None:
    for family in families(module):
        for subject in (broken(family, seed), generated(family, seed)[0]):
            dice = random.Random(f"strewn {family.name} {seed}")
            for pieces in (subject.pieces(), strewn(family, subject.pieces(), dice)):
                assert _broken(subject, pieces) == [], (family.name, b"".join(p for _, p in pieces))
