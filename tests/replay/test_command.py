"""The command that the reports print for an example: the command line takes it as it took the run's."""

from __future__ import annotations

import shlex
from typing import Any

import msgspec
import pytest
from click import Context

from pipeline.cli.replay import replay
from replay.report import make_report
from replay.reports.words import command, missing

replace = msgspec.structs.replace


def read(line: str) -> dict[str, Any]:
    """The command line, as click reads it."""
    words = shlex.split(line)
    assert words[:2] == ["playhead", "replay"]
    context: Context = replay.make_context("replay", words[2:])
    return context.params


@pytest.mark.parametrize("source", ["a.db", "-a.db", "my traces/ü 'q\" $x.jsonl", "two\nlines.db"])
def test_all_that_decides_a_result_is_in_it(source: str) -> None:
    report = make_report([], [], parser="vllm@B:hermes", sources=[source], splits=["one", "rand:1:5"], layer="message")
    given: dict[str, Any] = {
        "baseline": "vllm@A:hermes", "cut": True, "compare": "my file.py:f", "ignore": ("a.py:f", "-b.py:g"),
        "peer_python": ("A=/a b/python", "B=/b/python"), "tokenizer": "a tokenizer",
    }  # fmt: skip
    params = read(command(replace(report, **given), source, "-odd id"))
    assert {name: params[name] for name in given} == given
    assert (params["parser"], params["splits"], params["layer"]) == ("vllm@B:hermes", "one,rand:1:5", "message")
    assert params["session"] == ("-odd id",)
    assert params["source"] == (f"./{source}" if source.startswith("-") else source,)


def test_what_was_not_given_is_not_in_it() -> None:
    report = make_report([], [], parser=None, sources=["a.db"], splits=["recorded"], layer="frame")
    assert command(report, "a.db", "1") == "playhead replay a.db --session 1"
    assert command(replace(report, track="upstream"), "a.db", "1").endswith(" --track upstream")


def test_sessions_of_the_earlier_report_that_are_missing() -> None:
    report = make_report([], [], parser=None, sources=["a.db"], splits=["recorded"], layer="frame")
    assert missing(report) == ""
    gone = replace(report, baseline="x.json", missing=tuple("abcdef"), summary=replace(report.summary, missing=1200))
    assert missing(gone) == "1,200 sessions of x.json are not in the sources: a, b, c, d, e and 1,195 more"
