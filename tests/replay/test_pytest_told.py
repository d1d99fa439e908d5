"""The pytest plugin: what a session that is a test says, and the fixture."""

from __future__ import annotations

import io
import os
import re
import shutil
from functools import partial
from xml.etree import ElementTree

import msgspec
import pytest

import pytest_playhead
from replay import print_report, run_replay, to_json
from replay.corpus import again, load
from replay.reports import examples
from store.api import Trace
from tests.replay.mass.corpora import PARSERS, file_of, ids, sessions, store_of
from tests.support.plugin import (
    LATE,
    MODIFIED,
    ONE,
    OTHER,
    Run,
    collected,
    fixture_run,
    fixture_spawn,
    said,
    settings,
    two,
)
from tests.support.replay import opening, record, tokens, whole
from tests.support.tree import ROOT

__all__ = ["fixture_run", "fixture_spawn"]

pytest_plugins = ["pytester"]


# --- names ------------------------------------------------------------------------------------------------------------


def test_ids_that_would_reach_the_terminal(spawn: Run, pytester: pytest.Pytester) -> None:
    """They are escaped, and each has a name of its own."""
    names = ["\x1b[2J\nx", r"\x1b[2J\nx", "a", "a", "a#2", "", "\x07"]
    shown = [r"\x1b[2J\nx", r"\x1b[2J\nx#2", "a", "a#2", "a#2#2"]
    file_of(pytester.path / "a.jsonl", sessions(names))
    found = [line.partition("::")[2] for line in collected(spawn("--playhead", "a.jsonl", "--collect-only", "-q"))]
    assert (found[:5], found[6]) == (shown, r"\x07")
    assert re.fullmatch(r"line \d+", found[5])
    result = spawn("--playhead", "a.jsonl", "--playhead-parser", MODIFIED, "-v")
    assert not set(said(result)) & {"\x1b", "\x07"}
    spawn("--playhead", "a.jsonl", rf"a.jsonl::{shown[1]}").assert_outcomes(passed=1)


def test_results_of_a_replay_in_a_folder(spawn: Run, pytester: pytest.Pytester) -> None:
    """Left out, and that is told; named, they are an error."""
    source = two(pytester.path / "traces/a.jsonl")
    run_replay([source], resume=str(pytester.path / "traces/r.jsonl"))
    result = spawn("--playhead", "traces")
    result.assert_outcomes(passed=2)
    assert "playhead: left out, as it holds results of a replay: traces/r.jsonl" in result.outlines
    spawn("--playhead", "traces/r.jsonl").assert_outcomes(failed=1)


# --- what a test says -------------------------------------------------------------------------------------------------


def terminal_report(source: str, parser: str) -> str:
    """What ``playhead replay`` prints."""
    replayer = again(
        parser=parser, splits=("recorded",), layer="frame", track=None, baseline=None, compare=None, ignore=(),
        time_limit=60, peer_python=(), tokenizer=None,
    )  # fmt: skip
    assert replayer is not None
    out = io.StringIO()
    aligned = partial(examples.aligned, load=load, replayer=replayer, limit=10)
    print_report(run_replay([source], parser), out, aligned=aligned)
    return out.getvalue()


def test_a_changed_session_fails_in_the_words_of_the_report(
    spawn: Run, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = msgspec.structs.replace(opening(ONE), request=b'{"messages": [{"role": "user", "content": "SESAME"}]}')
    file_of(pytester.path / "a.jsonl", [record(asked, whole(tokens("High tide at nine.")))])
    result = spawn("--playhead", "a.jsonl", "--playhead-parser", MODIFIED)
    result.assert_outcomes(failed=1)
    kind = "changed: boundary (content → reasoning)"
    assert f"FAILED ({kind}) a.jsonl::{ONE} - Failed: {kind}" in said(result)
    monkeypatch.chdir(pytester.path)
    told = terminal_report("a.jsonl", MODIFIED).split("\n\n")[0]
    assert told.startswith(f"changed  {ONE}  a.jsonl\n")
    assert "cause: engine step 1: tokens" in told
    assert "| ! |" in told
    assert told in said(result)
    assert f"playhead replay a.jsonl --session {ONE} --parser {MODIFIED}" in said(result)
    assert "SESAME" not in said(result)
    assert "Traceback" not in said(result)


def test_a_test_fails_from_the_verdict_that_is_asked_for(run: Run, pytester: pytest.Pytester) -> None:
    file_of(pytester.path / "a.jsonl", sessions([ONE]))
    settings(pytester, sources="a.jsonl", parser="slow.py:Parser")
    pytester.path.joinpath("slow.py").write_text(LATE)
    passes = run("-v")
    passes.assert_outcomes(passed=1)
    assert f"a.jsonl::{ONE} PASSED (moved)" in said(passes)
    run("--playhead-fail-on", "rechunked").assert_outcomes(failed=1)
    run("--playhead-fail-on", "restyled").assert_outcomes(passed=1)
    run("--playhead-layer", "message", "--playhead-fail-on", "uncompared").assert_outcomes(passed=1)


def test_what_is_not_compared_is_skipped(run: Run, pytester: pytest.Pytester) -> None:
    file_of(pytester.path / "a.jsonl", sessions([ONE]))
    skipped = run("--playhead", "a.jsonl", "--playhead-splits", "char")
    skipped.assert_outcomes(skipped=1)
    assert "this session's tokens have ids" in said(skipped)
    fails = run("--playhead", "a.jsonl", "--playhead-splits", "char", "--playhead-fail-on", "uncompared")
    fails.assert_outcomes(failed=1)


def test_a_session_whose_parser_is_not_there_does_not_pass(run: Run, pytester: pytest.Pytester) -> None:
    [one] = sessions([ONE])
    away = msgspec.structs.replace(one.opening, parser="gone.py:Parser")
    file_of(pytester.path / "a.jsonl", [Trace(opening=away, info=one.info, records=one.records)])
    result = run("--playhead", "a.jsonl")
    result.assert_outcomes(failed=1)
    assert "not replayed: recorded with gone.py:Parser, which is not found from here" in said(result)


def test_a_parser_that_raises(run: Run, pytester: pytest.Pytester) -> None:
    file_of(pytester.path / "a.jsonl", sessions([ONE, "e" * 32]))
    result = run("--playhead", "a.jsonl", "--playhead-parser", f"{PARSERS}:Bad", "--playhead-fail-on", "failed")
    result.assert_outcomes(passed=1, failed=1)
    assert "FAILED (failed: RuntimeError at parsers.py:" in said(result)
    assert "test.bad@1 raised RuntimeError: e (parsers.py:" in said(result)


def test_the_kinds_of_what_failed_are_told_at_the_end(run: Run, pytester: pytest.Pytester) -> None:
    file_of(pytester.path / "a.jsonl", sessions([*ids(3), "e" * 32]))
    pytester.makepyfile("def test_fails():\n    assert False\n")
    result = run("--playhead", "a.jsonl", ".", "--playhead-parser", MODIFIED)
    result.assert_outcomes(failed=5)
    result.stdout.fnmatch_lines(["*= 4 sessions in 1 kinds =*", "*  4  changed: *", f" *a.jsonl::{ONE}"])


def test_pytest_s_own_options_work(spawn: Run, pytester: pytest.Pytester) -> None:
    file_of(pytester.path / "a.jsonl", sessions([ONE, "e" * 32, OTHER]))
    settings(pytester, sources="a.jsonl", parser=f"{PARSERS}:Bad")
    result = spawn("-x", "--junitxml", "out.xml")
    result.assert_outcomes(passed=1, failed=1)
    spawn("--lf", "--playhead-parser", "hermes").assert_outcomes(passed=1)
    cases = {each.get("name"): each for each in ElementTree.parse(pytester.path / "out.xml").iter("testcase")}
    assert [*cases] == [ONE, "e" * 32]
    properties = {each.get("name"): each.get("value") for each in cases[ONE].iter("property")}
    assert properties == {"verdict": "same", "parser": "test.bad@1", "tokens": properties["tokens"]}
    failure = cases["e" * 32].find("failure")
    assert failure is not None
    assert "raised RuntimeError: e" in (failure.text or "")


# --- in Python --------------------------------------------------------------------------------------------------------

IN_PYTHON = """
import pytest
import pytest_playhead
from replay import Difference, ReplayError, SessionResult
from stages import catalog

HERMES = catalog.parser("hermes")

def test_results(replayed):
    found = replayed("traces/a.jsonl", "b.db", parser=HERMES)
    assert [type(each) for each in found] == [SessionResult] * 3
    assert [each.verdict for each in found] == ["same"] * 3
    assert [each.session for each in replayed("b.db", sessions=[found[2].session[:40]])] == [found[2].session]

def test_functions(replayed):
    def compare(recorded, replayed):
        yield Difference(0, "text", "content", "a", "b")
    def ignore(difference):
        return difference.replayed == "b"
    assert {each.verdict for each in replayed("traces", parser="mine.py:Parser", compare=compare)} == {"changed"}
    assert {each.verdict for each in replayed("traces", parser="mine.py:Parser", ignore=[ignore])} == {"changed"}
    both = replayed("traces", parser="mine.py:Parser", compare=compare, ignore=[ignore])
    assert {each.verdict for each in both} == {"same"}

def test_baselines(replayed):
    assert {each.verdict for each in replayed("traces", baseline="mine.py:Parser")} == {"changed"}
    assert {each.verdict for each in replayed("traces", parser="mine.py:Parser", baseline="mine.json")} == {"same"}

@pytest.mark.parametrize(("sources", "options", "says"), [
    (["no.db"], {}, "no.db"),
    (["empty"], {}, "no session in it"),
    (["traces"], {"parser": "hermez"}, "hermez"),
    (["traces"], {"splits": "one,token"}, r"such as \\['one', 'token'\\], not 'one,token'"),
    (["traces"], {"ignore": print}, r"ignore is a sequence of functions, such as \\[print\\]"),
    (["traces"], {"compare": 3}, "comparer 3 is int, not a function"),
    (["traces"], {"sessions": "00"}, r"such as \\['00'\\], not '00'"),
])
def test_errors(replayed, sources, options, says):
    with pytest.raises(ReplayError, match=says):
        replayed(*sources, **options)
"""


def test_the_fixture(spawn: Run, pytester: pytest.Pytester) -> None:
    """Its arguments only decide: of the options, no parser."""
    source = two(pytester.path / "traces/a.jsonl")
    store_of(pytester.path / "b.db", ids(1, "2"))
    pytester.mkdir("empty")
    shutil.copy(ROOT / "examples/modified_parser.py", pytester.path / "mine.py")
    pytester.path.joinpath("mine.json").write_bytes(to_json(run_replay([source], MODIFIED)))
    pytester.makepyfile(IN_PYTHON)
    pytester.makeini("[pytest]\nplayhead_parser = hermez")
    pytester.mkdir("deep")
    os.chdir(pytester.path / "deep")
    spawn("..").assert_outcomes(passed=10)


def test_the_example(spawn: Run, pytester: pytest.Pytester) -> None:
    shutil.copytree(ROOT / "examples/regression", pytester.path / "regression")
    os.chdir(pytester.path / "regression")
    spawn().assert_outcomes(passed=4)
    spawn("--playhead-parser", MODIFIED).assert_outcomes(passed=3, failed=1)


def test_the_page(run: Run, pytester: pytest.Pytester) -> None:
    """docs/pytest.md: its tests run, and it has every option."""
    page = (ROOT / "docs/pytest.md").read_text()
    for option in pytest_playhead.OPTIONS:
        assert f"--playhead-{option.name} " in page
        assert option.key in page or option.name in ("tokenizer", "time-limit")
    [code] = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    two(pytester.mkdir("tests") / "traces/a.jsonl")
    pytester.path.joinpath("my_parser.py").write_text((ROOT / "examples/regression/my_parser.py").read_text())
    pytester.makepyfile(code)
    [ini] = re.findall(r"^```ini\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    pytester.makeini(ini)
    run().assert_outcomes(passed=4)
