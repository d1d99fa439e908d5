"""The golden streams break no rule, and every rule that needs only the body and the request is checked on them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stages.protocols.rules import PROTOCOLS, RULES, Evidence, Need, Protocol, check
from tests.support.wire import GOLDENS, fired, golden

DATA = Path(__file__).parents[2] / "data"
EVERYWHERE = range(1, 44)
OF_ONE: dict[Protocol, range] = {
    "chat": range(44, 80),
    "completions": range(80, 90),
    "responses": range(90, 116),
    "messages": range(116, 132),
}
RECORDED = range(132, 138)
NEEDING_MORE = {
    # The response's head, the clock, the writes.
    *(1, 2, 4, 5, 6, 8, 9, 25),
    # The decoder's self-check, which costs more than one reading.
    *(23,),
    # What the engine generated, what was meant.
    *(26, 27, 28, 32, 41, 72, 74, 79),
    *RECORDED,
}
"""Rules 29, 39 and 127 have a part that needs less: the catalogue of faults exercises them on bodies and requests."""


@pytest.mark.parametrize("own", [True, False], ids=["own", "foreign"])
@pytest.mark.parametrize("name", GOLDENS)
def test_a_golden_stream_is_clean(name: str, own: bool) -> None:
    report = golden(name).known(own=own).report()
    assert report.violations == ()
    assert report.counts == {}


@pytest.mark.parametrize("name", GOLDENS)
def test_what_is_checked_on_a_body_and_its_request(name: str) -> None:
    stream = golden(name)
    report = stream.report()
    applying = {*EVERYWHERE, *OF_ONE[stream.protocol], *RECORDED}
    assert applying - NEEDING_MORE <= set(report.checked)
    assert set(report.checked) | set(report.unchecked) == applying
    assert not set(report.checked) & set(report.unchecked)


@pytest.mark.parametrize("name", GOLDENS)
def test_what_lacks_its_evidence_is_not_checked(name: str) -> None:
    stream = golden(name)
    report = check(Evidence(body=stream.body, protocol=stream.protocol, own=True))
    needing = {*NEEDING_MORE, 3, 7, 31, 36, 37, 38} - {23, 135, 137}
    applying = needing & {*EVERYWHERE, *OF_ONE[stream.protocol], *RECORDED}
    assert applying <= set(report.unchecked)
    assert all(report.unchecked[number] for number in applying)


@pytest.mark.parametrize("name", GOLDENS)
def test_without_its_request_a_stream_is_clean_and_less_is_checked(name: str) -> None:
    stream = golden(name).known(request=None)
    report = stream.report()
    assert fired(report) == frozenset()
    assert {3, 7, 31, 36, 37, 38} <= set(report.unchecked)
    assert all("request" in report.unchecked[number] for number in (3, 7, 31, 36, 37, 38))


def test_numbers_names_and_weights() -> None:
    rows = [json.loads(line) for line in (DATA / "rules.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["number"] for row in rows] == list(range(1, 138))
    expected = {row["number"]: (row["key"], row["severity"]) for row in rows}
    assert {rule.number: (rule.key, rule.severity) for rule in RULES} == expected
    assert len(RULES) == 137


def test_what_is_right_is_one_sentence_or_more() -> None:
    for rule in RULES:
        assert rule.text.endswith("."), rule.name
        assert rule.text.strip() == rule.text


def test_where_a_rule_applies() -> None:
    for rule in RULES:
        where = {one for one in PROTOCOLS if rule.number in OF_ONE[one]} or set(PROTOCOLS)
        assert set(rule.protocols) == where, rule.name


def test_a_rule_that_lacks_something_says_what() -> None:
    report = check(golden("G01").known(request=None).evidence())
    for rule in RULES:
        if rule.number in report.unchecked:
            assert report.unchecked[rule.number] == tuple(sorted(need.value for need in rule.needs))
            assert all(need in Need for need in rule.needs)
