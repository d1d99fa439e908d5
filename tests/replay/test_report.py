"""Runs over stores, files and folders; their report, digest and exit code."""

from __future__ import annotations

import io
import random
from pathlib import Path

import msgspec
import pytest

from replay import exit_code, from_json, print_report, run_replay, to_json
from replay.errors import BadSplit, ReplayError
from replay.report import RunReport, make_report, run_digest
from replay.result import SessionResult
from replay.run import Replayer
from replay.verdict import Verdict
from stages.opening import TokenizerFacts
from store import open_store, trace
from store.api import Trace
from tests.support.replay import SAID, aborted, opening, record, text_steps, tokens, whole

STEPS = whole(tokens(SAID))
MODIFIED = "examples/modified_parser.py:Parser"
PLAIN = "Brest is a port in Brittany."


def corpus() -> list[Trace]:
    return [
        record(opening("1" * 32), STEPS),
        record(opening("2" * 32), aborted(STEPS, 30), state="aborted"),
        record(opening("3" * 32, n=2), whole(tokens(PLAIN), tokens("Déjà vu.", 1))),
        record(opening("4" * 32), whole(tokens(PLAIN)), mode="lean"),
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "traces"
    (made / "deep").mkdir(parents=True)
    first, second, third, fourth = corpus()
    trace.write(first, made / "one.jsonl")
    trace.write(second, made / "deep" / "two.jsonl.zst")
    (made / "three.jsonl").write_bytes(trace.dumps(third) + trace.dumps(fourth))
    (made / "README.md").write_text("no trace")
    return made


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "playhead.db"
    opened = open_store(str(path))
    opened.save(corpus())
    opened.close()
    return path


def verdicts(report: RunReport) -> dict[str, str]:
    return {result.session[0]: result.verdict for result in report.sessions}


def test_every_kind_of_source(folder: Path, store: Path) -> None:
    for source in (folder, store):
        report = run_replay([str(source)])
        assert verdicts(report) == dict.fromkeys("1234", "same")
        assert report.summary.sessions == report.summary.same == 4
        assert exit_code(report) == 0
    assert len(run_replay([str(folder / "one.jsonl"), str(store)]).sessions) == 5
    assert len(run_replay([str(store.parent)]).sessions) == 8


def test_a_changed_parser(store: Path) -> None:
    """Everything that is not after a ``</think>`` is reasoning now."""
    seen: list[SessionResult] = []
    report = run_replay([str(store)], MODIFIED, on_result=seen.append)
    assert verdicts(report)["3"] == verdicts(report)["4"] == "changed"
    assert tuple(seen) == report.sessions
    assert report.parser == MODIFIED
    assert exit_code(report) == 1
    third = next(result for result in report.sessions if result.session[0] == "3")
    assert third.parser == "example.modified@1"
    assert third.stages["parser"][1] == "example.modified@1"
    assert [(item.choice, item.kind) for item in third.differences if item.kind == "boundary"] == [
        (0, "boundary"),
        (0, "boundary"),
        (1, "boundary"),
        (1, "boundary"),
    ]
    assert third.faults_appeared == ("unclosed_reasoning", "unclosed_reasoning")
    assert third.first is not None
    assert third.first.recorded is not None and third.first.recorded.event.startswith("content choice=0 text='Bre'")
    assert third.first.replayed is not None and third.first.replayed.event.startswith("reasoning choice=0 text='Bre'")
    assert third.first.input == "tokens choice=0 ids=[1000] 'Bre'"


def test_only_some_sessions(store: Path) -> None:
    assert verdicts(run_replay([str(store)], sessions=["3", "111"])) == {"1": "same", "3": "same"}
    nothing = run_replay([str(store)], sessions=["9"])
    assert exit_code(nothing) == 3
    assert "9" in nothing.unreadable[0].error


def test_fail_fast(store: Path) -> None:
    report = run_replay([str(store)], MODIFIED, fail_fast=True)
    assert sum(result.verdict == "changed" for result in report.sessions) == 1


def test_what_cannot_be_read_is_told_and_stops_nothing(folder: Path, tmp_path: Path) -> None:
    (folder / "bad.jsonl").write_text("not a trace\n")
    (folder / "cut.jsonl.zst").write_bytes((folder / "deep" / "two.jsonl.zst").read_bytes()[:40])
    report = run_replay([str(folder), str(tmp_path / "gone.db"), str(tmp_path / "gone.jsonl")])
    assert verdicts(report) == dict.fromkeys("1234", "same")
    assert [Path(item.source).name for item in report.unreadable] == [
        "bad.jsonl",
        "cut.jsonl.zst",
        "gone.db",
        "gone.jsonl",
    ]
    assert all(item.error for item in report.unreadable)
    assert exit_code(report) == 3


def test_a_corrupt_session_is_told_and_the_others_are_replayed(store: Path) -> None:
    data = bytearray(store.read_bytes())
    # Every stored page of text is checked when it is read: flip one byte of a session's packed records.
    at = _packed(store)
    data[at] ^= 0xFF
    store.write_bytes(bytes(data))
    report = run_replay([str(store)])
    assert exit_code(report) == 3
    assert len(report.unreadable) == 1
    assert report.unreadable[0].session
    assert report.summary.same == 3


def _packed(store: Path) -> int:
    import sqlite3

    conn = sqlite3.connect(store)
    try:
        (body,) = conn.execute(
            "SELECT body FROM segments WHERE length(body) > 60 ORDER BY length(body) LIMIT 1"
        ).fetchone()
    finally:
        conn.close()
    return store.read_bytes().index(body[:40]) + 20


def test_an_empty_source_does_not_pass(tmp_path: Path) -> None:
    report = run_replay([str(tmp_path)])
    assert exit_code(report) == 3
    assert "no session" in report.unreadable[0].error


def test_wrong_use_raises(store: Path) -> None:
    for parser, splits in (("hermess", ("recorded",)), (None, ("words",))):
        with pytest.raises(ReplayError):
            run_replay([str(store)], parser, splits)


# --- the report -----------------------------------------------------------------------------------------------------


def reports() -> tuple[RunReport, list[SessionResult]]:
    results = [
        *Replayer().replay_many(corpus(), "a"),
        *Replayer(MODIFIED, splits=("recorded", "one", "char")).replay_many(corpus(), "b"),
    ]
    return make_report(results, [], parser=None, sources=["a", "b"], splits=["recorded"], layer="frame"), results


def test_the_json_report_round_trips() -> None:
    report, _ = reports()
    assert from_json(to_json(report)) == report
    plain = msgspec.json.decode(to_json(report))
    assert list(plain) == [
        "playhead", "parser", "sources", "splits", "layer", "summary", "digest", "cut", "compare", "ignore",
        "peer_python", "tokenizer", "seconds", "jobs", "interrupted", "clusters", "families", "paired", "lag",
        "unreadable", "missing", "counted_once", "left_out", "sessions",
    ]  # fmt: skip
    assert plain["summary"]["sessions"] == 8
    assert [session["verdict"] for session in plain["sessions"][:4]] == ["same"] * 4


def test_the_digest_does_not_depend_on_the_order() -> None:
    _, results = reports()
    digest = run_digest(results)
    for seed in range(5):
        shuffled = list(results)
        random.Random(seed).shuffle(shuffled)
        assert run_digest(shuffled) == digest
    assert run_digest(results[1:]) != digest


def test_the_digest_is_the_same_for_the_same_run(folder: Path, store: Path) -> None:
    assert run_replay([str(folder)]).digest == run_replay([str(folder)]).digest == run_replay([str(store)]).digest
    assert run_replay([str(store)], MODIFIED).digest == run_replay([str(folder)], MODIFIED).digest
    assert run_replay([str(store)], MODIFIED).digest != run_replay([str(store)]).digest


@pytest.mark.parametrize(
    ("verdict", "codes"),
    [
        ("same", (0, 0, 0, 0)),
        ("uncompared", (0, 0, 0, 0)),
        ("rechunked", (1, 0, 0, 0)),
        ("moved", (1, 1, 0, 0)),
        ("changed", (1, 1, 1, 0)),
        ("failed", (1, 1, 1, 1)),
    ],
)
def test_exit_codes(verdict: str, codes: tuple[int, ...]) -> None:
    result = msgspec.structs.replace(reports()[1][0], verdict=verdict)
    report = make_report([result], [], parser=None, sources=["a"], splits=["recorded"], layer="frame")
    thresholds: tuple[Verdict, ...] = ("rechunked", "moved", "changed", "failed")
    assert tuple(exit_code(report, threshold) for threshold in thresholds) == codes


def test_the_terminal_report_names_what_matters() -> None:
    report, _ = reports()
    out = io.StringIO()
    print_report(report, out)
    text = out.getvalue()
    assert text.isascii() or "\x1b" not in text
    assert "changed  " + "3" * 32 in text
    assert "boundary" in text
    assert "cause: engine step 1: tokens choice=0 ids=[1000] 'Bre'" in text
    assert "unclosed_reasoning" in text
    assert "example.modified@1" in text
    short = io.StringIO()
    print_report(report, short, limit=1)
    assert "1 more session not the same" in short.getvalue()


def printed(report: RunReport) -> str:
    out = io.StringIO()
    print_report(report, out)
    return out.getvalue()


def test_the_worst_and_the_first_are_told_apart() -> None:
    report, _ = reports()
    assert "worst: boundary; first: semantic event 3, content → reasoning" in printed(report)
    assert "choice 0, reasoning: nothing → 'Brest is a port in Brittany.' (boundary)" in printed(report)
    assert "choice 0, content: 'Brest is a port in Brittany.' → nothing (boundary)" in printed(report)
    assert "choice 0, faults: nothing → unclosed_reasoning\n" in printed(report)


def test_where_nothing_was_replayed_there_is_no_table(tmp_path: Path) -> None:
    text = printed(run_replay([str(tmp_path / "gone.db")]))
    assert text.startswith("unreadable: ")
    assert "verdict" not in text and "digest" not in text


def test_a_session_of_a_parser_that_is_gone_is_not_read(tmp_path: Path) -> None:
    """No stage raised: exit code 3, and what to do."""
    trace_ = record(opening(), STEPS)
    trace_.opening = msgspec.structs.replace(trace_.opening, parser="gone.py:Stage")
    trace.write(trace_, tmp_path / "one.jsonl")
    report = run_replay([str(tmp_path)])
    assert (exit_code(report), exit_code(run_replay([str(tmp_path)], "hermes"))) == (3, 0)
    text = printed(report)
    assert "recorded with gone.py:Stage, which is not found from here; give --parser" in " ".join(text.split())
    assert "(1 session)" in " ".join(text.split())
    assert "digest" not in text
    assert from_json(to_json(report)) == report


def test_a_split_that_no_session_allows_does_not_pass(store: Path, tmp_path: Path) -> None:
    with pytest.raises(BadSplit, match="nothing was compared: no session allows char"):
        run_replay([str(store)], splits=["char"])
    report = run_replay([str(store)], splits=["recorded", "char"])
    assert "Split char was not compared: no session allows it." in printed(report)
    # Where some sessions allow it, the others are told apart.
    text = record(opening("5" * 32, tokenizer=TokenizerFacts()), whole(text_steps(PLAIN)))
    trace.write(text, tmp_path / "text.jsonl")
    mixed = run_replay([str(store), str(tmp_path / "text.jsonl")], splits=["char"])
    assert (mixed.summary.same, mixed.summary.uncompared, exit_code(mixed)) == (1, 4, 0)
    assert "| uncompared |        4 |" in printed(mixed)
    assert "not compared: split 'char' cuts tokens" in printed(mixed)


@pytest.mark.parametrize(("columns", "width"), [("", 120), ("70", 70), ("160", 160), ("wide", 120), ("0", 120)])
def test_how_wide_a_report_in_a_file_is(columns: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    report, _ = reports()
    longest = max(map(len, printed(report).splitlines()))
    assert width - 40 < longest <= width


def test_one_is_one(store: Path) -> None:
    assert "1 session, " in printed(run_replay([str(store)], sessions=["1"]))
