"""The report on a terminal: kinds first, examples in full, what all sessions say last."""

from __future__ import annotations

import io
import re
from collections.abc import Callable

import pytest

from replay.report import RunReport
from replay.reports.align import Aligned, Emitted, Row
from replay.reports.wrote import Wrote
from replay.result import SessionResult
from replay.terminal import print_report
from replay.totals import Family
from tests.support.results import hostile, report_of, result


def printed(report: RunReport, limit: int = 20, aligned: Callable[[SessionResult], Aligned | str] | None = None) -> str:
    out = io.StringIO()
    print_report(report, out, limit=limit, aligned=aligned)
    return out.getvalue()


def many(number: int) -> SessionResult:
    """Of 100: 60 same, 30 texts, 9 calls lost, 1 failed."""
    if number < 60:
        return result(number)
    if number < 99:
        return result(number, "changed", "text" if number < 90 else "call_lost")
    return result(number, "failed", "Timeout")


def test_many_sessions_are_shown_as_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    text = printed(report_of(100, many))
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert [[cell.strip() for cell in row.split("|")][1:-1] for row in rows[:4]] == [
        ["verdict", "sessions", "of these", "kind", "example"],
        ["failed", "1", "2.5 %", "failed: Timeout at reasoning · in content · after <tool_call>", f"{99:032x}"[:31]],
        # A call that is lost is worse than a text, however few they are.
        [
            "changed",
            "9",
            "22.5 %",
            "call lost (content → reasoning) · in content · after <tool_call>",
            f"{90:032x}"[:31],
        ],
        ["changed", "30", "75.0 %", "text (content → reasoning) · in content · after <tool_call>", f"{60:032x}"[:31]],
    ]
    assert "Kind 3 of 3, 30 sessions: text" in text
    # The smallest, by tokens: the first of them.
    assert f"changed  {60:032x}  corpus.db" in text
    assert f"also: {61:032x}, " in text and " and 24 more" in " ".join(text.split())
    assert f"changed  {61:032x}" not in text
    assert "1 failed, 39 changed of 100 sessions, in 3 kinds.\n" in text
    short = printed(report_of(100, many), limit=1)
    assert "Kind 1 of 3" in short and "Kind 2 of 3" not in short
    assert "2 more kinds: see --limit, --html or --json." in short
    assert "Kind 1" not in printed(report_of(100, many), limit=0)


def test_a_handful_is_shown_one_by_one() -> None:
    text = printed(report_of(8, lambda number: result(number, "changed")))
    assert all(f"changed  {number:032x}" in text for number in range(8))
    assert "Kind 1" not in text and "also: " not in text
    assert "Kind 1 of 1, 9 sessions" in printed(report_of(9, lambda number: result(number, "changed")))


def test_both_sides_stand_beside_an_example() -> None:
    row = Row(
        3, 5, 3, True, 3, False, (Wrote("a\nb", "text"), Wrote("<end>", "special")),
        (Emitted("content", "a\nb", 0, quiet=False, differs=True),),
        (Emitted("marker", "<end>", 0, quiet=True, differs=True),),
    )  # fmt: skip
    both = Aligned((Row(0, 2, 3, False, folded=True), row), 3, 1)
    text = printed(report_of(1, lambda number: result(number, "changed"), baseline="A", parser="B"), 20, lambda _: both)
    assert re.search(r"\| the model wrote +\| A +\| B ", text)
    assert re.search(r"\|   \| … +\| 3 steps the same ", text)
    assert "| ! | 3-5 " in text and "'a\\nb' <end>" in text and "content 'a\\nb'" in text and "(marker '<end>')" in text
    # They stand for the first divergence's sides.
    assert "3 (engine step 2): content" not in text
    assert "3 (engine step 2): content" in printed(
        report_of(1, lambda number: result(number, "changed")), 20, lambda _: "gone"
    )


def test_families_statistics_and_lag() -> None:
    def two(number: int) -> SessionResult:
        parser = "parse.hermes@2" if number % 2 else "parse.llama@1"
        return result(number, "changed" if number < 20 else "same", parser=parser)

    # The record does not differ from itself: nothing is said of that.
    assert "\n| differs " not in printed(report_of(40, two))
    text = printed(report_of(40, two, seconds=4.0, baseline="hermes"))
    assert "| parse.hermes@2 |       20 |   10 |      10 |      10 |" in text
    # Every changed session differs from the record, none of the recorded ones does: 20 of 40.
    assert "| differs              | 0.0 % (0.0 to 8.8 %) | 50.0 % (35.2 to 64.8 %) | < 0.001 |" in text
    assert "new in 20, gone in 0: likely more in other sessions, too" in " ".join(text.replace("|", " ").split())
    # 953 characters a changed session: 900 at the same token, 50 two tokens later, 3 one token earlier.
    assert (
        "Of the text that both sides show, in sessions whose events differ, the recorded parser shows 94.4 % at the"
        " same token as hermes, 5.2 % later (by up to 2 tokens), 0.31 % earlier (by 1 token)."
    ) in " ".join(text.split())
    assert "4.0 s: 10 sessions/s" in " ".join(text.split())
    alone: tuple[Family, ...] = report_of(1, result).families
    assert len(alone) == 1 and "parser " not in printed(report_of(1, result)).split("verdict")[0]


def test_what_appeared_and_went_and_was_interrupted() -> None:
    report = report_of(
        3, lambda number: result(number, "changed", faults_appeared=("unclosed_call",), rules_gone=("INV-007",)),
        interrupted=True,
    )  # fmt: skip
    text = printed(report)
    assert "New, by sessions: fault unclosed call 3." in text
    assert "Broken no more, rules of the protocol:\n  in 3 sessions: INV-007: " in text
    assert "Interrupted: this is not all of it." in text


@pytest.mark.parametrize("count", [2, 30])
def test_no_text_moves_the_cursor(count: int) -> None:
    text = printed(report_of(count, hostile))
    assert not set(text) & {"\x00", "\x1b", "\u202e", "\ud800", "\u2028"}
    text.encode()
