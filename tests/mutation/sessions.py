"""What mutants of the parsers are put to: the golden traces, and generated sessions of every family."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import msgspec

from replay.derive import derive_layers
from stages import catalog
from stages.events import Input
from stages.opening import Opening
from store import trace
from store.api import Trace
from tests.support.format_broken import broken
from tests.support.format_checks import generated
from tests.support.generate import families
from tests.support.generate.family import Family
from tests.support.parse import grouped, session
from tests.support.replay import record
from tests.support.tree import ROOT

TRACES = ROOT / "tests/traces"
FAMILIES = TRACES / "families.jsonl.zst"
"""Two sessions of every family: what all parsers are held to."""
MUTANTS = TRACES / "mutants.jsonl.zst"
"""Sessions that tell a mutant from its original where no other trace did."""


class Probe(msgspec.Struct):
    """A session, and the semantic events that it has to give."""

    name: str
    opening: Opening
    inputs: list[Input]
    events: list[object]

    @property
    def same(self) -> bool:
        """The parsers of today give them. Whatever they raise is another answer."""
        try:
            layers = catalog.layers(self.opening)
            derived = derive_layers(self.opening, self.inputs, layers, depth="semantic")
        except Exception:  # a mutant may raise anything, anywhere
            return False
        return derived.failed is None and derived.semantic.events == self.events


def golden(folder: Path = TRACES) -> Iterator[Probe]:
    """The sessions of the golden traces."""
    for item in trace.read_many(folder):
        inputs, events = item.events("input", "engine"), item.events("served", "semantic")
        yield Probe(item.opening.session, item.opening, inputs, events)


def made(family: Family, seed: int) -> Trace:
    """A generated session as a trace: valid output, damaged output, output that was cut; a token a step, or several."""
    dice = random.Random(f"mutation {family.name} {seed}")
    subject = broken(family, seed) if seed % 3 == 2 else generated(family, seed)[0]
    tokens = subject.pieces()
    finish = subject.finish
    if seed % 5 == 4 and len(tokens) > 2:
        tokens, finish = tokens[: dice.randint(1, len(tokens) - 1)], "length"
    sizes = [1] * len(tokens) if seed % 2 else [dice.randint(1, 6) for _ in tokens]
    opened = subject.opened("whole" if seed % 4 == 3 else "incremental")
    name = f"{family.name.replace('/', '-')}-{seed}"
    opened = msgspec.structs.replace(
        opened, session=name, key=name, ask=msgspec.structs.replace(opened.ask, stream=True)
    )
    opened = msgspec.structs.replace(opened, stages=catalog.stage_ids(catalog.layers(opened)))
    found = record(opened, session(grouped(tokens, sizes), tail=subject.tail, finish=finish))
    counts = {f"{track}/{layer}": len(records) for (track, layer), records in found.records.items()}
    found.info = msgspec.structs.replace(found.info, events=counts)
    return found


def generated_traces(first: int, seeds: int) -> Iterator[Trace]:
    """So many sessions of each family."""
    for family in families():
        for seed in range(first, first + seeds):
            yield made(family, seed)
