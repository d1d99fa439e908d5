"""make mutants: is what the golden traces hold enough to catch a changed parser?

Every mutant of ``stages/parse`` is one small change of one function, as mutmut makes them. It is put to the golden
traces first, then to generated sessions. One that the generated sessions tell from the original, and the golden traces
do not, is a survivor: the traces are too weak. ``--add`` writes the smallest sessions that catch them all to
``tests/traces/mutants.jsonl.zst``; ``--families`` writes ``families.jsonl.zst`` anew.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import random
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import libcst as cst
import zstandard
from mutmut.mutation.file_mutation import create_mutations, deep_replace
from rich.console import Console
from rich.progress import track
from rich.table import Table

from store import trace
from store.api import Trace
from tests.mutation.sessions import FAMILIES, MUTANTS, Probe, generated_traces, golden
from tests.support.tree import ROOT

SEEDS = 24
"""Generated sessions of each family; seeds of the families' own traces come after them."""
LIMIT = 120
"""Seconds after which a mutant is taken to be in an endless loop."""


@dataclass
class Mutant:
    """One change. ``told``: the generated sessions that tell it from the original."""

    path: Path
    line: str
    source: str
    verdict: str = ""
    told: set[int] = field(default_factory=set[int])

    @property
    def module(self) -> str:
        return ".".join(self.path.relative_to(ROOT).with_suffix("").parts)


def chosen(most: int, seed: int) -> list[Mutant]:
    """So many of all mutants of the parsers, by chance."""
    every: list[tuple[Path, Any, Any]] = []
    for path in sorted((ROOT / "stages/parse").rglob("*.py")):
        module, mutations, _, _ = create_mutations(str(path), path.read_text())
        every += [(path, module, mutation) for mutation in mutations]
    random.Random(seed).shuffle(every)
    return [_mutant(*one) for one in every[:most]]


def _mutant(path: Path, module: Any, mutation: Any) -> Mutant:
    changed: Any = deep_replace(module, mutation.original_node, mutation.mutated_node)
    code = cst.Module([]).code_for_node
    before, after = code(mutation.original_node).strip(), code(mutation.mutated_node).strip()
    return Mutant(path, f"{before[:60]} → {after[:60]}", changed.code)


def judged(mutant: Mutant, folder: Path, probes: Path) -> None:
    """Put a mutant to the sessions."""
    with tempfile.NamedTemporaryFile("w", dir=folder, suffix=".json") as file:
        json.dump({"module": mutant.module, "path": str(mutant.path), "source": mutant.source}, file)
        file.flush()
        command = [sys.executable, "-m", "tests.mutation.probe", file.name, str(probes)]
        try:
            done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=LIMIT, check=False)
            lines, ended = done.stdout.decode().splitlines(), done.returncode == 0
        except subprocess.TimeoutExpired as slow:
            lines, ended = (slow.stdout or b"").decode().splitlines(), False
    mutant.told = {int(line.split()[1]) for line in lines if line.startswith("generated ")}
    at = [int(line.split()[1]) for line in lines if line.startswith("at ")]
    if not ended and at:
        mutant.told.add(at[-1])
    if any(line.startswith("golden ") for line in lines) or not (ended or at):
        mutant.verdict = "caught"
    else:
        mutant.verdict = "survivor" if mutant.told else "no difference"


def cover(survivors: list[Mutant], sizes: list[int]) -> list[int]:
    """Few and small sessions that tell every survivor: the one that tells most for its size, again and again."""
    left: list[Mutant] = list(survivors)
    taken: list[int] = []
    while left:
        count = Counter(number for mutant in left for number in mutant.told)
        best = max(count, key=lambda number: (count[number] / (20 + sizes[number]), -number))
        taken.append(best)
        left = [mutant for mutant in left if best not in mutant.told]
    return sorted(taken)


def write(path: Path, traces: list[Trace]) -> None:
    """Several sessions as one compressed file."""
    path.write_bytes(zstandard.compress(b"".join(map(trace.dumps, traces)), 19))


def add(traces: list[Trace], taken: list[int]) -> None:
    """Add sessions to the traces for mutants; those that are there stay."""
    have = list(trace.read_many(MUTANTS)) if MUTANTS.exists() else []
    names = {item.opening.session for item in have}
    have += [traces[number] for number in taken if traces[number].opening.session not in names]
    write(MUTANTS, sorted(have, key=lambda item: item.opening.session))


def show(found: list[Mutant]) -> None:
    """The table, and each survivor."""
    table = Table("file", "mutants", "caught", "survivors", "no difference")
    for path in sorted({one.path for one in found}):
        mine = Counter(one.verdict for one in found if one.path == path)
        row = [mine["caught"], mine["survivor"], mine["no difference"]]
        table.add_row(str(path.relative_to(ROOT / "stages/parse")), str(sum(row)), *map(str, row))
    total = Counter(one.verdict for one in found)
    row = [total["caught"], total["survivor"], total["no difference"]]
    table.add_row("all", str(sum(row)), *map(str, row))
    console = Console(width=120)
    for one in found:
        if one.verdict == "survivor":
            where = one.path.relative_to(ROOT)
            console.print(f"survivor: {where}: {one.line} (told by {len(one.told)} sessions)", markup=False)
    console.print(table)


def main() -> int:
    """0: no survivor."""
    parser = argparse.ArgumentParser(prog="tests.mutation.run", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--mutants", type=int, default=600, help="how many of all (there are thousands)")
    parser.add_argument("--seed", type=int, default=1, help="which of them")
    parser.add_argument("--add", action="store_true", help="add the sessions that catch the survivors to the traces")
    parser.add_argument("--families", action="store_true", help="write the traces of the families anew, and end")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    told = parser.parse_args()
    if told.families:
        write(FAMILIES, list(generated_traces(SEEDS, 2)))
        return 0
    traces = list(generated_traces(0, SEEDS))
    probes = [
        Probe(item.opening.session, item.opening, item.events("input", "engine"), item.events("served", "semantic"))
        for item in traces
    ]
    found = chosen(told.mutants, told.seed)
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(told.jobs) as pool:
        folder = Path(name)
        pickled = folder / "probes"
        pickled.write_bytes(pickle.dumps((list(golden()), probes)))
        judge = partial(judged, folder=folder, probes=pickled)
        for _ in track(pool.map(judge, found), "mutants", total=len(found), console=Console(stderr=True)):
            pass
    show(found)
    survivors = [one for one in found if one.verdict == "survivor"]
    if told.add and survivors:
        add(traces, cover(survivors, [len(item.events("input", "engine")) for item in traces]))
    return int(bool(survivors))


if __name__ == "__main__":
    sys.exit(main())
