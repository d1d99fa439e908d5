"""The golden traces of every format: the stages of today make of them what was recorded, to the byte."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from replay import Replayer
from stages import catalog
from store import trace
from store.api import Trace
from tests.mutation import probe
from tests.mutation.sessions import TRACES, Probe, golden, made
from tests.support.generate import families
from tests.support.tree import ROOT

FILES = sorted(path.name for path in TRACES.iterdir() if path.name.endswith(trace.SUFFIXES))


@pytest.mark.parametrize("name", FILES)
def test_they_replay_the_same(name: str) -> None:
    results = list(Replayer().replay_many(trace.read_many(TRACES / name)))
    assert results
    assert {result.session: result.verdict for result in results if result.verdict != "same"} == {}


def test_every_parser_of_the_generators_has_one() -> None:
    have = {item.opening.parser for item in golden()}
    assert {family.format.name for family in families()} <= have


def test_a_generated_session_is_the_same_each_time() -> None:
    [family, *_] = families("hermes")
    one, other = made(family, 4), made(family, 4)
    assert trace.dumps(one) == trace.dumps(other)
    assert one.opening.parser in {entry.name for entry in catalog.names()}


def _lines(tmp_path: Path, change: tuple[str, str]) -> list[str]:
    """What the mutant of ``stages/parse/parser.py`` with this change is told by."""
    path = ROOT / "stages/parse/parser.py"
    source = path.read_text()
    assert change[0] in source
    mutant = {"module": "stages.parse.parser", "path": str(path), "source": source.replace(*change)}
    (tmp_path / "mutant").write_text(json.dumps(mutant))
    first = next(item for item in golden() if not item.name.startswith("client"))
    (tmp_path / "probes").write_bytes(pickle.dumps(([first], [_probe(made(families("hermes")[0], 1))])))
    command = [sys.executable, "-m", probe.__name__, str(tmp_path / "mutant"), str(tmp_path / "probes")]
    return subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=60).stdout.decode().splitlines()


def _probe(item: Trace) -> Probe:
    inputs, events = item.events("input", "engine"), item.events("served", "semantic")
    return Probe(item.opening.session, item.opening, inputs, events)


def test_a_mutant_is_told_from_the_original(tmp_path: Path) -> None:
    first = next(item for item in golden() if not item.name.startswith("client"))
    change = "out += Usage(event.prompt, event.completion,", "out += Usage(event.prompt, event.completion + 1,"
    assert _lines(tmp_path, change) == [f"golden {first.name}"]
    assert _lines(tmp_path, ("scheduling means nothing here", "nor anywhere")) == ["at 0", "done"]
