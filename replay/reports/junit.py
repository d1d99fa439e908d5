"""junit: a run's sessions as test cases, in the XML that build servers read. Written as a stream, in little memory.

A suite for each source, a test case for each session. What is at least as far from ``same`` as the threshold is a
failure; what a parser failed on, and what cannot be read, is an error; what could not be compared is skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import BinaryIO, Literal, TypeAlias
from xml.sax.saxutils import XMLGenerator
from xml.sax.xmlreader import AttributesImpl

import msgspec

from replay.report import RunReport
from replay.reports import words
from replay.reports.session import head_in_words, rest_in_words
from replay.result import SessionResult
from replay.run import at_least
from replay.signature import in_words
from replay.totals import Unreadable
from replay.verdict import Verdict

Outcome: TypeAlias = Literal["passed", "failure", "error", "skipped"]

_ILLEGAL = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What no XML 1.0 document may have, not even as a reference."""


class _Suite(msgspec.Struct):
    """Counts of one suite. ``ns``: the parser's CPU time."""

    name: str
    tests: int = 0
    failures: int = 0
    errors: int = 0
    skipped: int = 0
    ns: int = 0

    def add(self, outcome: Outcome, ns: int) -> None:
        """One test case."""
        self.tests += 1
        self.failures += outcome == "failure"
        self.errors += outcome == "error"
        self.skipped += outcome == "skipped"
        self.ns += ns


def write(report: RunReport, path: str, fail_on: Verdict = "changed") -> None:
    """Write the file. ``fail_on``: the nearest verdict to ``same`` that is a failure. The sessions are read twice: the
    counts stand before them. Raises OSError."""
    suites: list[_Suite] = []
    for name, results in _by_source(report):
        suites.append(_Suite(name))
        for result in results:
            suites[-1].add(_outcome(result, fail_on), result.ns)
    with open(path, "wb") as file:
        _write(report, file, suites, fail_on)


def _write(report: RunReport, file: BinaryIO, suites: Sequence[_Suite], fail_on: Verdict) -> None:
    out = XMLGenerator(file, encoding="utf-8", short_empty_elements=True)
    out.startDocument()
    total = _Suite("playhead replay", errors=len(report.unreadable), tests=len(report.unreadable))
    for suite in suites:
        for field in ("tests", "failures", "errors", "skipped", "ns"):
            setattr(total, field, getattr(total, field) + getattr(suite, field))
    _start(out, "testsuites", {**_counts(total), "time": f"{report.seconds:.3f}"})
    _break(out)
    for suite, (_, results) in zip(suites, _by_source(report), strict=True):
        _start(out, "testsuite", _counts(suite))
        _break(out)
        for result in results:
            _case(out, report, result, _outcome(result, fail_on))
        out.endElement("testsuite")
        _break(out)
    if report.unreadable:
        _unreadable(out, report.unreadable)
    out.endElement("testsuites")
    _break(out)
    out.endDocument()


def _by_source(report: RunReport) -> Iterator[tuple[str, Iterator[SessionResult]]]:
    """Suites with their results, in order: one for each source as it was given."""
    known = {source.rstrip("/") or source: source for source in report.sources}

    def given(result: SessionResult) -> str:
        folder = result.source
        while folder:
            if folder in known:
                return known[folder]
            folder = folder.rpartition("/")[0]
        return result.source

    yield from groupby(report.sessions, given)


def _outcome(result: SessionResult, fail_on: Verdict) -> Outcome:
    if result.verdict == "failed":
        return "error"
    if result.verdict != "same" and at_least(result.verdict, fail_on):
        return "failure"
    return "skipped" if result.verdict == "uncompared" else "passed"


def _counts(suite: _Suite) -> dict[str, str]:
    return {
        "name": suite.name, "tests": str(suite.tests), "failures": str(suite.failures),
        "errors": str(suite.errors), "skipped": str(suite.skipped), "time": f"{suite.ns / 1e9:.6f}",
    }  # fmt: skip


def _case(out: XMLGenerator, report: RunReport, result: SessionResult, outcome: Outcome) -> None:
    _start(
        out, "testcase",
        {
            "classname": result.parser or report.parser or "none", "name": result.session,
            "file": result.source, "time": f"{result.ns / 1e9:.6f}",
        },
    )  # fmt: skip
    if outcome == "skipped":
        _element(out, "skipped", message=result.unreplayed or result.uncompared or "nothing was compared")
    elif outcome != "passed":
        _element(out, outcome, _detail(report, result), message=_message(result), type=_type(result))
    elif result.verdict != "same":
        _element(out, "system-out", f"{result.verdict}: {_message(result)}")
    out.endElement("testcase")
    _break(out)


def _type(result: SessionResult) -> str:
    if result.error is not None and result.verdict == "failed":
        return result.error.type
    return (result.signature and result.signature.kind) or result.verdict


def _message(result: SessionResult) -> str:
    if result.signature is not None:
        return in_words(result.signature)
    return result.unreplayed or result.uncompared or words.MEANS[result.verdict]


def _detail(report: RunReport, result: SessionResult) -> str:
    return "\n".join([*head_in_words(result), *rest_in_words(result), words.example(report, result)])


def _unreadable(out: XMLGenerator, items: Sequence[Unreadable]) -> None:
    _start(out, "testsuite", _counts(_Suite("unreadable", tests=len(items), errors=len(items))))
    _break(out)
    for item in items:
        attributes = {"classname": "unreadable", "name": item.session or item.source, "time": "0.000000"}
        _start(out, "testcase", {**attributes, "file": item.source})
        _element(out, "error", message=item.error, type="Unreadable")
        out.endElement("testcase")
        _break(out)
    out.endElement("testsuite")
    _break(out)


def _element(out: XMLGenerator, name: str, text: str = "", **attributes: str) -> None:
    _start(out, name, attributes)
    if text:
        out.characters(_legal(text))
    out.endElement(name)


def _start(out: XMLGenerator, name: str, attributes: Mapping[str, str]) -> None:
    out.startElement(name, AttributesImpl({key: _legal(value) for key, value in attributes.items()}))


def _break(out: XMLGenerator) -> None:
    out.characters("\n")


def _legal(text: str) -> str:
    """The text, with what XML cannot hold escaped."""
    return _ILLEGAL.sub(lambda found: repr(found[0])[1:-1], text)
