"""The pytest plugin: which sessions become tests of a pytest run, and its options."""

from __future__ import annotations

import os
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import zstandard

import pytest_playhead
from pipeline.cli.replay import replay as command
from replay import DEPTHS, VERDICTS, run_replay, to_json
from tests.replay.mass.corpora import file_of, ids, sessions, store_of
from tests.support.plugin import (
    LATE,
    MODIFIED,
    ONE,
    OTHER,
    PASSES,
    Run,
    collected,
    fixture_run,
    fixture_spawn,
    said,
    settings,
    two,
)
from tests.support.replay import opening, record, tokens, whole

__all__ = ["fixture_run", "fixture_spawn"]

pytest_plugins = ["pytester"]

FIRST = """
import msgspec
from stages import catalog
from tests.support.replay import Mutant

def short(event):
    text = getattr(event, "text", "")
    return [msgspec.structs.replace(event, text=text[:3])] if text else [event]
Parser = Mutant(catalog.parser("hermes"), lambda: short)
"""


# --- what is collected ------------------------------------------------------------------------------------------------


def test_it_is_installed_and_costs_nothing_unless_it_is_asked(pytester: pytest.Pytester) -> None:
    """Found by its entry point, as in any project that Playhead is installed for."""
    pytester.makeconftest(
        "import sys\n\ndef pytest_unconfigure(config):\n"
        "    names = {'replay', 'store', 'stages', 'scipy', 'msgspec', 'rich'}\n"
        "    print(config.pluginmanager.get_plugin('playhead').__name__, names & set(sys.modules))\n"
    )
    others = [f"no:{each.name}" for each in entry_points(group="pytest11") if each.name != "playhead"]
    result = pytester.runpytest_subprocess("--collect-only", *(part for name in others for part in ("-p", name)))
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED, said(result)
    assert "pytest_playhead set()" in said(result)


def test_the_sessions_of_the_ini_file_are_tests_of_a_whole_run(run: Run, spawn: Run, pytester: pytest.Pytester) -> None:
    two(pytester.path / "traces/a.jsonl")
    settings(pytester, sources="traces")
    pytester.mkdir("unit").joinpath("test_unit.py").write_text(PASSES)
    assert collected(run("--collect-only", "-q")) == [
        f"traces/a.jsonl::{ONE}", f"traces/a.jsonl::{OTHER}", "unit/test_unit.py::test_it",
    ]  # fmt: skip
    spawn().assert_outcomes(passed=3)
    # Arguments say what to run, as ever.
    assert collected(run("--collect-only", "-q", "unit")) == ["unit/test_unit.py::test_it"]
    assert collected(run("--collect-only", "-q", "traces")) == [f"traces/a.jsonl::{ONE}", f"traces/a.jsonl::{OTHER}"]
    assert collected(run("--collect-only", "-q", f"traces/a.jsonl::{OTHER}")) == [f"traces/a.jsonl::{OTHER}"]
    assert collected(run("--collect-only", "-q", "-k", OTHER)) == [f"traces/a.jsonl::{OTHER}"]
    assert len(collected(run("--collect-only", "-q", "-k", "hermes"))) == 2
    assert len(collected(run("--collect-only", "-q", "-m", "playhead", "--strict-markers"))) == 2


def test_sources_outside_of_testpaths_are_run_too(run: Run, pytester: pytest.Pytester) -> None:
    two(pytester.path / "traces/a.jsonl")
    pytester.makeini("[pytest]\ntestpaths = unit\nplayhead_sources = traces")
    pytester.mkdir("unit").joinpath("test_unit.py").write_text(PASSES)
    run().assert_outcomes(passed=3)


def test_sources_of_the_command_line_are_arguments(
    run: Run, spawn: Run, pytester: pytest.Pytester, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Also those in another place, where no ini file is: this project's still counts."""
    settings(pytester, sources="traces", splits="recorded,one")
    two(pytester.path / "traces/a.jsonl")
    pytester.makepyfile(PASSES)
    store = store_of(tmp_path_factory.mktemp("elsewhere") / "sessions.db", [ONE, OTHER])
    only_it = spawn(f"--playhead={store}", "-v")
    only_it.assert_outcomes(passed=2)
    assert f"rootdir: {pytester.path}" in said(only_it)
    assert f"sessions.db::{ONE} PASSED" in said(only_it)
    run(f"--playhead={store}", "traces").assert_outcomes(passed=4)
    run("--playhead", "traces/a.jsonl", f"--playhead={store}").assert_outcomes(passed=4)
    spaced = run("--playhead", store)
    assert spaced.ret == pytest.ExitCode.USAGE_ERROR
    assert f"write --playhead={store}: behind a space" in said(spaced)


def test_a_source_in_addopts_hides_no_test(run: Run, pytester: pytest.Pytester) -> None:
    two(pytester.path / "traces/a.jsonl")
    pytester.makepyfile(PASSES)
    pytester.makeini("[pytest]\naddopts = --playhead traces")
    run().assert_outcomes(passed=3)


def test_only_stores_and_trace_files_of_the_sources_are_taken(run: Run, pytester: pytest.Pytester) -> None:
    text = Path(two(pytester.path / "traces/a.jsonl")).read_bytes()
    two(pytester.path / "other/b.jsonl")
    store_of(pytester.path / "traces/c.db", [ONE])
    store_of(pytester.path / "odd.name", [OTHER])
    (pytester.path / "traces/d.jsonl.zst").write_bytes(zstandard.compress(text))
    (pytester.path / "traces/notes.txt").write_text("no trace")
    settings(pytester, sources="\n  traces\n  odd.name")
    assert collected(run("--collect-only", "-q")) == [
        f"odd.name::{OTHER}", f"traces/a.jsonl::{ONE}", f"traces/a.jsonl::{OTHER}", f"traces/c.db::{ONE}",
        f"traces/d.jsonl.zst::{ONE}", f"traces/d.jsonl.zst::{OTHER}",
    ]  # fmt: skip
    run().assert_outcomes(passed=6)


def test_the_order_is_always_the_same(spawn: Run, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """What several processes collect for themselves must be the same list; they are given the arguments in full."""
    store_of(pytester.mkdir("traces") / "a.db", ids(20))
    file_of(pytester.path / "traces/b.jsonl", sessions([*ids(5), ONE]))
    settings(pytester, sources="traces")
    found: list[list[str]] = []
    for seed, arguments in (("1", []), ("2", [str(pytester.path)]), ("3", ["traces"])):
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        found.append(collected(spawn("--collect-only", "-q", *arguments)))
    assert (len(found[0]), len(set(found[0]))) == (26, 26)
    assert found[0][-1] == f"traces/b.jsonl::{ONE}#2"
    assert found[1:] == found[:1] * 2


# --- options ----------------------------------------------------------------------------------------------------------


def test_paths_of_the_ini_file_are_beside_it(run: Run, pytester: pytest.Pytester) -> None:
    """And those of the command line are where the user is."""
    two(pytester.path / "traces/a.jsonl")
    pytester.path.joinpath("mine.py").write_text(f"{LATE}\ndef rule(difference):\n    return True\n")
    settings(pytester, sources="traces", parser="mine.py:Parser", fail_on="moved")
    pytester.mkdir("deep").joinpath("a_rule.py").write_text("def rule(difference):\n    raise ValueError(7)\n")
    os.chdir(pytester.path / "deep")
    run().assert_outcomes(failed=2)
    run("--playhead-ignore", "../mine.py:rule").assert_outcomes(passed=2)
    raised = run("--playhead-ignore", "a_rule.py:rule", "--playhead-parser", MODIFIED)
    raised.assert_outcomes(failed=2)
    assert "ignore rule a_rule.py:rule raised ValueError: 7" in said(raised)


def test_an_earlier_report_is_a_baseline(run: Run, pytester: pytest.Pytester) -> None:
    source = file_of(pytester.path / "a.jsonl", sessions([ONE, OTHER]))
    pytester.path.joinpath("before.json").write_bytes(to_json(run_replay([source], MODIFIED)))
    settings(pytester, sources="a.jsonl", baseline="before.json")
    run("--playhead-parser", MODIFIED).assert_outcomes(passed=2)
    result = run()
    result.assert_outcomes(failed=2)
    assert "before.json" in said(result)


def test_cut_and_splits_reach_the_replay(run: Run, pytester: pytest.Pytester) -> None:
    """A parser that loses what comes in one step with what came before depends on the split."""
    file_of(pytester.path / "a.jsonl", [record(opening(ONE), whole(tokens("High tide at nine.")))])
    pytester.path.joinpath("first.py").write_text(FIRST)
    settings(pytester, sources="a.jsonl", parser="first.py:Parser", layer="message")
    run().assert_outcomes(passed=1)
    result = run("--playhead-splits", "recorded,one")
    result.assert_outcomes(failed=1)
    assert "depends on the split" in said(result)
    run("--playhead-cut").assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--playhead", "no.db"], "there is no file or folder"),
        (["--playhead", "empty"], "empty: no store or trace file in it"),
        (["--playhead-parser", "hermez"], "hermez"),
        (["--playhead-parser", "no.py:Parser"], "there is no file no.py"),
        (["--playhead-baseline", "hermez"], "hermez"),
        (["--playhead-baseline", "no.json"], "no.json: cannot be read"),
        (["--playhead-splits", "two"], "there is no split 'two'"),
        (["--playhead-layer", "byte"], "there is no layer 'byte' to compare down to"),
        (["--playhead-fail-on", "same"], "there is no verdict 'same' to fail on"),
        (["--playhead-track", "shadow:"], "names no parser"),
        (["--playhead-ignore", "a.py"], "a.py"),
        (["--playhead-compare", "no.py:f"], "there is no file no.py"),
        (["--playhead-time-limit", "soon"], "a time limit of 'soon'"),
        (["--playhead-time-limit", "nan"], "a time limit of 'nan'"),
        (["--playhead-peer-python", "no/python"], "there is no file no/python"),
        (["--playhead-tokenizer", "no/tokenizer"], "no/tokenizer"),
    ],
)
def test_what_cannot_be_had_is_said_in_a_line(
    run: Run, pytester: pytest.Pytester, arguments: list[str], says: str
) -> None:
    two(pytester.path / "traces/a.jsonl")
    pytester.mkdir("empty")
    settings(pytester, sources="traces")
    result = run(*arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    [line] = [line for line in result.errlines if line.startswith("ERROR: ")]
    assert line.startswith("ERROR: playhead: ")
    assert says in line
    assert "Traceback" not in said(result)


def test_a_source_of_the_ini_file_that_is_gone(run: Run, pytester: pytest.Pytester) -> None:
    """Not to replay it would pass for unchanged; what has nothing to do with it still runs."""
    settings(pytester, sources="traces")
    pytester.mkdir("unit").joinpath("test_unit.py").write_text(PASSES)
    result = run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert f"there is no file or folder {pytester.path / 'traces'}" in said(result)
    run("unit").assert_outcomes(passed=1)


def test_files_that_cannot_be_read(run: Run, pytester: pytest.Pytester) -> None:
    whole_text = Path(two(pytester.path / "traces/a.jsonl")).read_bytes()
    bad = {
        "empty.jsonl": b"", "no.jsonl": b"no trace\n", "cut.jsonl": whole_text[: len(whole_text) // 4],
        "no.db": b"no store", "no.jsonl.zst": b"not packed", "void.jsonl.zst": zstandard.compress(b""),
    }  # fmt: skip
    for name, data in bad.items():
        (pytester.path / "traces" / name).write_bytes(data)
    result = run("--playhead", "traces", "--continue-on-collection-errors")
    result.assert_outcomes(passed=2, failed=2, errors=4)
    text = said(result)
    assert "empty.jsonl: no session in it" in text
    assert "void.jsonl.zst: no session in it" in text
    assert "FAILED traces/cut.jsonl::" in text
    assert "FAILED traces/no.jsonl::line 1 - Failed: unreadable: " in text
    assert "Traceback" not in text


def test_the_help_has_the_words_of_the_command(run: Run) -> None:
    text = " ".join(said(run("--help")).split())
    verdicts = ", ".join(VERDICTS[1:]).replace("changed", "changed (the default)")
    assert f"that fails a test: {verdicts}." in text
    assert f"How deep to compare: {', '.join(DEPTHS)} (the default)." in text
    assert {option.name for option in pytest_playhead.OPTIONS} <= {
        option.removeprefix("--") for parameter in command.params for option in parameter.opts
    }
