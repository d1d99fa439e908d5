"""The JUnit report, as build servers read it."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

from replay.derive import StageFailure
from replay.report import RunReport
from replay.reports import junit
from replay.result import SessionResult
from replay.totals import Unreadable
from replay.verdict import VERDICTS, Verdict
from tests.support.results import HOSTILE, hostile, report_of, result

_ALLOWED = {
    "testsuites": {"name", "tests", "failures", "errors", "skipped", "time"},
    "testsuite": {"name", "tests", "failures", "errors", "skipped", "time"},
    "testcase": {"classname", "name", "file", "time"},
    "failure": {"message", "type"},
    "error": {"message", "type"},
    "skipped": {"message"},
    "system-out": set[str](),
}  # fmt: skip
"""Elements and attributes that GitLab and Jenkins read."""
_INSIDE = {
    "testsuites": {"testsuite"},
    "testsuite": {"testcase"},
    "testcase": {"failure", "error", "skipped", "system-out"},
}


def written(report: RunReport, folder: Path, fail_on: Verdict = "changed") -> ElementTree.Element:
    """The file, read again, and held against the schema."""
    path = folder / "junit.xml"
    junit.write(report, str(path), fail_on)
    root = ElementTree.fromstring(path.read_bytes())
    assert root.tag == "testsuites"
    for parent in root.iter():
        assert set(parent.attrib) <= _ALLOWED[parent.tag]
        assert {child.tag for child in parent} <= _INSIDE.get(parent.tag, set())
        if parent.tag == "testcase":
            assert len(parent) <= 1 and parent.get("name") and parent.get("classname")
    for suite in [root, *root]:
        cases = list(suite.iter("testcase"))
        counts = {"tests": len(cases)}
        for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            counts[name] = sum(case.find(tag) is not None for case in cases)
        assert {name: int(suite.get(name, "-1")) for name in counts} == counts
        assert float(suite.get("time", "-1")) >= 0
    return root


def each(number: int) -> SessionResult:
    return result(number, VERDICTS[number % 7], source="a.db" if number < 14 else "traces/x.jsonl")


def test_a_case_for_every_session(tmp_path: Path) -> None:
    report = report_of(21, each, sources=("a.db", "traces"), seconds=1.5)
    root = written(report, tmp_path)
    assert [(suite.get("name"), suite.get("tests")) for suite in root] == [("a.db", "14"), ("traces", "7")]
    assert {name: root.get(name) for name in ("tests", "failures", "errors", "skipped", "time")} == {
        "tests": "21", "failures": "3", "errors": "3", "skipped": "3", "time": "1.500",
    }  # fmt: skip
    cases = {case.get("name"): case for case in root.iter("testcase")}
    assert len(cases[f"{0:032x}"]) == 0  # same
    failure = cases[f"{5:032x}"].find("failure")
    assert failure is not None and failure.get("type") == "text"
    assert failure.get("message") == "text (content → reasoning) · in content · after <tool_call>"
    assert "choice 0, content: a → nothing" in (failure.text or "").replace("'", "")
    assert f"playhead replay a.db --session {5:032x}" in (failure.text or "")
    # Nearer to same than the threshold: passed, with a word.
    told = cases[f"{3:032x}"].find("system-out")
    assert told is not None and (told.text or "").startswith("moved: ")
    assert cases[f"{20:032x}"].get("file") == "traces/x.jsonl"
    assert float(cases[f"{0:032x}"].get("time", "")) == pytest.approx(0.0015)


@pytest.mark.parametrize(("fail_on", "failures"), [("uncompared", 5), ("rechunked", 4), ("changed", 1), ("failed", 0)])
def test_what_is_a_failure(fail_on: Verdict, failures: int, tmp_path: Path) -> None:
    root = written(report_of(7, each), tmp_path, fail_on)
    assert (root.get("failures"), root.get("errors")) == (str(failures), "1")


def test_failed_and_unreadable_are_errors(tmp_path: Path) -> None:
    error = StageFailure("semantic", "mine", 3, 3, "tokens 'a'", "Timeout", "it took 60 s", "mine.py:7")
    report = report_of(1, lambda number: result(number, "failed", error=error))
    report = msgspec.structs.replace(
        report, unreadable=(Unreadable("b.db", "no store"), Unreadable("c.db", "cut", "77"))
    )
    root = written(report, tmp_path)
    errors = list(root.iter("error"))
    assert [item.get("type") for item in errors] == ["Timeout", "Unreadable", "Unreadable"]
    assert "mine did not end its work (Timeout): it took 60 s (mine.py:7, at event 3: tokens 'a')" in (
        errors[0].text or ""
    )
    assert [case.get("name") for case in root[1]] == ["b.db", "77"]


def test_hostile_texts(tmp_path: Path) -> None:
    report = report_of(2, hostile, sources=(HOSTILE,))
    root = written(msgspec.structs.replace(report, unreadable=(Unreadable(HOSTILE, HOSTILE),)), tmp_path)
    assert "\\x00\\x1b[31m" in (root[0].get("name") or "")
    assert "<script>" in (root[0].get("name") or "")
    assert "\\ud800" in (root[0].get("name") or "")


def test_memory_is_flat(tmp_path: Path) -> None:
    def peak(size: int) -> int:
        report = report_of(size, each, sources=("a.db", "traces"))
        tracemalloc.start()
        junit.write(report, str(tmp_path / "junit.xml"))
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    peak(100)  # what is imported late
    assert peak(8_000) < peak(800) + 200_000
