"""A run through another engine's parser says which version it was, and what it was compared with."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pipeline import shadow
from replay import Replayer, run_replay
from replay.errors import NotAvailable, ReplayError
from replay.foreign import close, configure
from replay.relayed import against_served
from replay.report import to_json
from store import codec, trace
from store.api import Record, Trace
from tests.foreign.sessions import ADAPTER
from tests.support.replay import SAID, opening, record, tokens, whole
from tests.support.upstream_traces import with_records

TRACK = "shadow:vllm:scripted"
STEPS = whole(tokens(SAID))
LAST = sum(1 for event in STEPS if event.__class__.__name__ == "TokensInput") - 1
ANSWER = [
    ["reasoning", "Which port? Brest … 潮汐 🌊."],
    ["content", "Let me look that up, été 🌙."],
    ["call", 0, "chatcmpl-tool-77", "tide"],
    ["arguments", 0, '{"port": "Brest … 潮汐"}'],
    ["call", 1, "chatcmpl-tool-78", "moon"],
    ["arguments", 1, "{}"],
]
"""What ``SAID`` means, as vLLM says it."""

Engine = Callable[[str], str]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """A Python that has an engine of this version: the adapter beside this file."""

    folder = tmp_path_factory.mktemp("engines")

    def made(version: str) -> str:
        adapter = folder / f"adapter-{version}.py"
        adapter.write_text(Path(ADAPTER).read_text().replace('return "1.5"', f"return {version!r}"))
        path = folder / f"python-{version}"
        path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$1" "{adapter}"\n')
        path.chmod(0o755)
        return str(path)

    return made


def session(answer: list[Any] | None = None) -> Trace:
    """A session of ours, of which the engine's parser says ``answer``."""
    steps: list[list[Any]] = [[] for _ in range(LAST)]
    body = {"stream": True, "answer": {"steps": [*steps, ANSWER if answer is None else answer]}}
    return record(msgspec.structs.replace(opening(), request=json.dumps(body).encode()), STEPS)


def source(folder: Path) -> str:
    """A file with that session."""
    path = folder / "session.jsonl"
    trace.write(session(), path)
    return str(path)


def test_the_version_is_in_the_report_and_in_what_is_resumed(tmp_path: Path, engine: Engine) -> None:
    results = str(tmp_path / "results.jsonl")
    asked: dict[str, Any] = {"sources": [source(tmp_path)], "parser": "vllm:scripted", "resume": results}
    report = run_replay(**asked, peer_python=[f"A={engine('0.9')}", engine("1.7")], baseline="vllm@A:scripted")
    (result,) = report.sessions
    assert (result.parser, result.baseline) == ("vllm:scripted@1.7", "vllm@A:scripted@0.9")
    assert [family.parser for family in report.families] == ["vllm:scripted@1.7"]
    told = json.loads(to_json(report))
    assert (told["sessions"][0]["parser"], told["sessions"][0]["baseline"]) == (result.parser, result.baseline)


def test_another_version_does_not_go_on_with_the_results_of_one(tmp_path: Path, engine: Engine) -> None:
    results, python = str(tmp_path / "results.jsonl"), tmp_path / "python"
    asked: dict[str, Any] = {"sources": [source(tmp_path)], "parser": "vllm:scripted", "resume": results}
    for version in ("1.7", "1.8"):
        close()
        python.write_text(Path(engine(version)).read_text())
        python.chmod(0o755)
        if version == "1.7":
            first = run_replay(**asked, peer_python=[str(python)])
            assert run_replay(**asked, peer_python=[str(python)]).digest == first.digest
            continue
        with pytest.raises(ReplayError, match=r"Changed since: vllm:scripted\."):
            run_replay(**asked, peer_python=[str(python)])


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_engine_that_is_not_there_ends_the_run_at_its_start(tmp_path: Path, engine: Engine, jobs: int) -> None:
    """Also where it is named by the track only."""
    with pytest.raises(NotAvailable, match="parser 'template': which"):
        run_replay([source(tmp_path)], "template", jobs=jobs)
    with pytest.raises(ReplayError, match=r"parser 'vllm:nothing': no parser 'nothing'"):
        run_replay([source(tmp_path)], track="shadow:vllm:nothing", peer_python=[engine("1.7")], jobs=jobs)


# --- as a shadow ------------------------------------------------------------------------------------------------------


def seen(answer: list[Any] | None, python: str) -> tuple[Trace, str]:
    """A session that the engine's parser has looked at, and the verdict."""
    configure([python])
    found = session(answer)
    made = msgspec.msgpack.decode(shadow.seen(found, "vllm:scripted"), type=shadow.Made)
    rows = zip(made.causes, made.ats, made.events, strict=True)
    records = [Record(seq, *row) for seq, row in enumerate(rows)]
    return with_records(found, TRACK, "semantic", records), made.verdict


def test_its_ids_and_events_are_no_difference_to_ours(engine: Engine) -> None:
    found, verdict = seen(None, engine("1.7"))
    assert verdict == "same"
    assert against_served(found, TRACK).verdict == "same"  # type: ignore[union-attr] # a text says why it is not compared
    for parser in ("hermes", None):
        result = Replayer(parser, track=TRACK, layer="message").replay(found)
        assert (result.verdict, result.layers, result.track) == ("same", {"message": "same"}, TRACK)


def test_what_it_says_otherwise_is_one(engine: Engine) -> None:
    found, verdict = seen([["content", "No."]], engine("1.7"))
    assert verdict == "changed"
    told = against_served(found, TRACK)
    assert not isinstance(told, str)
    assert {item.kind for item in told.differences} == {"call_lost", "text"}
    result = Replayer("hermes", track=TRACK).replay(found)
    assert {item.kind for item in result.differences} == {"call_added", "text"}


def test_white_space_is_style(engine: Engine) -> None:
    found, verdict = seen([["reasoning", "\nWhich port? Brest … 潮汐 🌊.\n"], *ANSWER[1:]], engine("1.7"))
    told = against_served(found, TRACK)
    assert not isinstance(told, str)
    assert (verdict, told.verdict) == ("restyled", "restyled")
    assert Replayer("hermes", track=TRACK).replay(found).verdict == "restyled"


def test_a_digest_of_it_says_nothing_of_ours(engine: Engine) -> None:
    found, _ = seen(None, engine("1.7"))
    digest = codec.digest(found.events(TRACK, "semantic"))
    info = msgspec.structs.replace(found.info, digests={**found.info.digests, f"{TRACK}/semantic": digest})
    records = {key: rows for key, rows in found.records.items() if key[0] != TRACK}
    lean = Trace(opening=found.opening, info=info, records=records)
    result = Replayer("hermes", track=TRACK).replay(lean)
    assert (result.verdict, result.uncompared) == (
        "uncompared", f"only a digest of {TRACK} was recorded, and another engine's events differ",
    )  # fmt: skip
    assert Replayer(None, track=TRACK).replay(lean).verdict == "same"
