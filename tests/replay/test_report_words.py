"""What reports say, and how: only what counts is marked, everything has a name, and no text breaks them."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest

from replay import Difference, Replayer
from replay.derive import StageFailure
from replay.report import RunReport, from_json, to_json
from replay.reports import html, junit, words
from replay.reports.align import Aligned, align
from replay.reports.counting import counting
from replay.reports.examples import aligned
from replay.reports.session import head_in_words, rest_in_words
from replay.result import Breach, SessionResult, SplitPair
from replay.terminal import print_report
from replay.text import readable
from replay.totals import Unreadable
from stages import catalog
from stages.events import CallArguments, Content, Finish, FinishInput, Input, Semantic, TokensInput
from stages.opening import Opening
from stages.protocols.rules import RULES
from stages.stage import Machine
from store.api import Trace
from tests.support.replay import SAID, record, tokens, track, whole
from tests.support.replay import opening as opened
from tests.support.results import report_of, result

LONG = "x" * 300
ODD = ('it\'s "quoted"', "<b>&amp;</b>", "bell\x07 esc\x1b[31m tab\t line\nend", LONG, "\ud800 half", "]]> --", "-dash")
"""Ids that sessions may have."""


def printed(report: RunReport, both: Callable[[SessionResult], Aligned | str] | None = None) -> str:
    out = io.StringIO()
    print_report(report, out, aligned=both)
    return out.getvalue()


def steps(*pieces: str) -> list[Input]:
    """A step for each piece."""
    return [TokensInput(0, (100,), (piece.encode(),), piece) for piece in pieces]


def joined(text: str) -> str:
    return " ".join(text.split())


# --- what counts ------------------------------------------------------------------------------------------------------


class Shouting:
    """Hermes, with content and arguments in capitals."""

    id = "shouting@1"
    inner = catalog.parser("hermes")

    def start(self, opening: Opening) -> Machine[Input, Semantic]:
        return _Shouting(self.inner.start(opening))

    def resume(self, opening: Opening, snapshot: Any) -> Machine[Input, Semantic]:
        return _Shouting(self.inner.resume(opening, snapshot))


class _Shouting:
    def __init__(self, machine: Machine[Input, Semantic]) -> None:
        self.machine = machine

    def snapshot(self) -> msgspec.Struct:
        return self.machine.snapshot()

    def step(self, event: Input, out: list[Semantic]) -> None:
        seen = len(out)
        self.machine.step(event, out)
        for at in range(seen, len(out)):
            made = out[at]
            if isinstance(made, Content | CallArguments):
                out[at] = msgspec.structs.replace(made, text=made.text.upper())


def not_in_content(item: Difference) -> bool:
    return item.field == "content"


def replayed(replayer: Replayer) -> tuple[SessionResult, Aligned]:
    trace: Trace = record(opened(), whole(tokens(SAID)))
    found = replayer.replay(trace)
    both = aligned(found, lambda source, session: trace, replayer, limit=200)
    assert isinstance(both, Aligned)
    return found, both


def marked(both: Aligned) -> set[str]:
    return {item.kind for row in both.rows for side in (row.left, row.right) for item in side if item.differs}


def test_what_a_rule_leaves_out_is_not_marked() -> None:
    found, both = replayed(Replayer(Shouting()))
    assert {"content", "arguments"} <= marked(both)
    found, both = replayed(Replayer(Shouting(), ignore=[not_in_content]))
    assert [item.field for item in found.differences] == ["tool_calls[0].arguments"]
    assert marked(both) == {"arguments"}
    assert all(not row.differs or any(item.kind == "arguments" for item in row.left) for row in both.rows)
    # The place that is told first counts, too.
    assert found.first is not None and found.first.recorded is not None
    assert found.first.recorded.type == "call_arguments"
    assert found.signature is not None and found.signature.kind == "call_arguments"
    # With another comparer nothing but what it finds.
    found, both = replayed(
        Replayer(Shouting(), compare=lambda mine, theirs: [Difference(0, "text", "content", "a", "b")])
    )
    assert marked(both) == {"content"}


def test_where_only_messages_are_compared_markers_are_not_marked() -> None:
    found, both = replayed(Replayer("plain", layer="message"))
    assert found.layers == {"message": "changed"}
    assert "marker" not in marked(both) and "content" in marked(both)
    assert both.partly
    _, deep = replayed(Replayer("plain"))
    assert "marker" in marked(deep) and not deep.partly


def test_nothing_that_counts_differs() -> None:
    side = track((0, Content(0, "a", (0, 0))))
    other = track((0, Content(0, "b", (0, 0))))
    same = counting(result(0, "changed", layers={"message": "changed"}, differences=()))
    both = align(steps("a"), side, other, counting=same)
    assert both.differing == 0
    assert words.nothing_differs(both) == "what was compared is the same at every step"
    assert "step by step: what was compared is the same at every step" in printed(
        report_of(1, lambda number: result(number, "changed")), lambda _: both
    )
    assert counting(result(0, "changed", layers={"message": "same", "semantic": "changed"})) is None
    assert counting(result(0, "moved", layers={"message": "same"})) is None
    whole_calls = counting(
        result(0, "changed", layers={"message": "changed"},
               differences=(Difference(1, "call_lost", "tool_calls", "1 call", None),))
    )  # fmt: skip
    assert whole_calls is not None
    assert whole_calls.counts(1, "arguments", 3) and whole_calls.counts(1, "call", 0)
    assert not whole_calls.counts(0, "arguments", 3) and not whole_calls.counts(1, "content", -1)
    own = counting(
        result(0, "changed", layers={"message": "changed"}, differences=(Difference(0, "text", "my own", "1", "2"),))
    )
    assert own is not None and own.counts(0, "marker", -1) and not own.counts(1, "marker", -1)


def test_what_is_the_same_gives_way_before_what_differs() -> None:
    """9 steps, every second one differs, in ways of its own: in 9 rows all of them are seen."""
    said = [*"abcdefghi"]
    left = track(*((at, Content(0, each, (0, 0))) for at, each in enumerate(said)), (9, Finish(0, "eos")))
    right = track(*((at, Content(at % 2, each, (0, 0))) for at, each in enumerate(said)), (9, Finish(0, "eos")))
    given: list[Input] = [*steps(*said), FinishInput(0, "eos")]
    shown = align(given, left, right, limit=9).rows
    assert [row.first for row in shown if row.differs and not row.folded] == [1, 3, 5, 7]
    full = align(given, left, right, limit=40)
    assert sum(row.differing for row in full.rows) == 4


# --- words ------------------------------------------------------------------------------------------------------------


def test_bytes_that_are_no_character_are_told_as_such() -> None:
    assert readable(b"ab\xf0\x9f\x8c") == [("ab", True), ("f0 9f 8c", False)]
    assert readable(b"\x99\xc3\xa9") == [("99", False), ("é", True)]
    assert readable(b"") == []
    cut: list[Input] = [TokensInput(0, (1, 2), (b"ab \xf0\x9f", b"\x8c"), "")]
    both = align(cut, track((0, Content(0, "x", (0, 0)))), track((0, Content(0, "y", (0, 0)))))
    text = printed(report_of(1, lambda number: result(number, "changed")), lambda _: both)
    assert "'ab ' <f0 9f 8c>" in text and "\\xf0" not in text


def test_what_holds_at_every_cut_is_told_with_counts() -> None:
    report = report_of(3, lambda number: result(number, cuts=40), cut=True)
    held = "Cut short at 120 places of 3 sessions: what must hold without a record did."
    assert held in joined(printed(report))
    assert held in html.page(report)
    assert "Cut short" not in printed(report_of(3, result))
    assert "No session has tokens to be cut short at." in printed(report_of(1, result, cut=True))


def test_a_breach_has_an_example() -> None:
    broken = Breach("leaked", "ended after token 3 of 9: the marker '<a>' in the content", 0, 3, "cut:3")

    def make(number: int) -> SessionResult:
        if number not in (2, 3):
            return result(number, cuts=10)
        notes = ("cut short at 10 places: `leaked` is broken at 2",)
        return result(number, cuts=10, breaches=(broken,), tokens=50 - number, notes=notes)

    text = joined(printed(report_of(5, make, cut=True)))
    assert f"leaked in 2 sessions, such as {3:032x} (corpus.db): {broken.detail}" in text
    assert "Cut short at 50 places of 5 sessions: broken in 2 sessions." in text
    # Told once.
    assert "places: `leaked`" not in text
    page = html.page(report_of(5, make, cut=True))
    assert f"such as <code>{3:032x}</code>" in page and "ended after token 3 of 9" in page


def test_what_was_ended_says_no_place() -> None:
    for kind in ("Timeout", "Crashed"):
        error = StageFailure("semantic", "mine@1", -1, -1, "", kind, "no end within 1 s")
        (line,) = head_in_words(result(0, "failed", error=error, first=None))
        assert line == f"mine@1 did not end its work ({kind}): no end within 1 s"
    trace = record(opened(), whole(tokens(SAID)))
    found = Replayer("hermes").failed(trace, "a.db", StageFailure("semantic", "", -1, -1, "", "Timeout", "why"))
    # Like one that raises: there is no message, so it is not the recorded one.
    assert found.marks == ("failed", "differs")
    raised = StageFailure("semantic", "vllm:hermes@0.33.0", -1, -1, "", "ValueError", "no", "hermes.py:7")
    (line,) = head_in_words(result(0, "failed", error=raised, first=None))
    assert line == "vllm:hermes@0.33.0 raised ValueError: no (hermes.py:7)"
    ours = msgspec.structs.replace(raised, stage="mine@1")
    (line,) = head_in_words(result(0, "failed", error=ours, first=None))
    assert line == "mine@1 raised ValueError: no (hermes.py:7, before its first event)"


def test_splits_are_told_by_verdict_and_codes_once() -> None:
    found = result(
        0, "changed", splits={"recorded": "same", "one": "changed", "token": "same", "rand:1:5": "changed"},
        rules_appeared=("INV-032",) * 6 + ("INV-004",), faults_gone=("unclosed_call",),
    )  # fmt: skip
    assert "by split: same: recorded, token; changed: one, rand:1:5" in list(head_in_words(found))
    told = list(rest_in_words(found))
    texts = {rule.name: rule.text for rule in RULES}
    for code, times in (("INV-004", ""), ("INV-032", " (6 times)")):
        [line] = [line for line in told if code in line]
        start = f"rule that is broken now: {code}{times}: "
        assert line.startswith(start)
        # Its first words say what is right.
        assert (
            texts[code].replace("``", "").casefold().startswith(line.removeprefix(start).removesuffix(" …").casefold())
        )
    assert "faults that are gone: unclosed_call" in told


def test_better_and_worse_are_told_apart() -> None:
    """Of 12 that changed: 10 lose what was wrong, 1 gets something, 1 had a parser that failed and now has a fault."""

    def make(number: int) -> SessionResult:
        before, after = {10: ((), ("leaked",)), 11: (("failed", "differs"), ("fault",))}.get(
            number, (("differs", "split"), ("split",))
        )
        kind = "text" if number == 10 else "call_lost"
        return result(number, "changed", kind, marks_before=before, marks=after)

    told = "12 changed of 12 sessions, in 2 kinds: 11 better, 1 worse"
    report = report_of(12, make, baseline="hermes")
    text, page = joined(printed(report)), html.page(report)
    assert f"{told}." in text and f"<h1>{told}</h1>" in page
    worst = "text (content → reasoning) · in content · after <tool_call>, 1 session"
    assert f"Worst kind: changed: {worst}" in text
    assert f'<span class="tag v-changed">changed</span> {worst.replace(">", "&gt;").replace("<", "&lt;")}' in page
    assert "Kind 1 of 2, 1 session" in text
    # Nothing is worse: there is no worst kind, and nothing is red.
    better = html.page(report_of(10, make, baseline="earlier.json"))
    assert "<h1>10 changed of 10 sessions, in 1 kind: 10 better, 0 worse</h1>" in better
    assert "Worst kind" not in better and '<span class="s-better" style="flex: 10 1 0">' in better
    # Without another side nothing is better than it.
    assert " better" not in joined(printed(report_of(10, make)))


def test_ids_are_as_short_as_tells_them_apart() -> None:
    ids = ["0" * 31 + "1", "0" * 31 + "2", "a" * 32, "short"]
    assert words.shortened(ids) == {
        "0" * 31 + "1": "0" * 31 + "1", "0" * 31 + "2": "0" * 31 + "2", "a" * 32: "a" * 12, "short": "short"
    }  # fmt: skip
    assert words.shortened([LONG + "1", LONG + "2"])[LONG + "1"] == "x" * 48 + "…"
    assert words.shortened([]) == {}
    text = printed(report_of(20, lambda number: result(number, "changed", session=f"{number:02x}" * 16)))
    assert f"also: {'01' * 6}, {'02' * 6}, {'03' * 6}, {'04' * 6}, {'05' * 6} and 14 more" in text


def test_a_path_is_told_once() -> None:
    item = Unreadable("bad.json", "/data/bad.json: file is not a database")
    assert words.unread(item) == "bad.json: file is not a database"
    assert words.unread(Unreadable("./a/b", "/x/a/b: gone", "77")) == "./a/b session 77: gone"
    assert words.unread(Unreadable("a.db", "line 3: cut")) == "a.db: line 3: cut"
    assert words.unread(Unreadable("a.db", "no session in it")) == "a.db: no session in it"
    report = msgspec.structs.replace(report_of(1, result), unreadable=(item,))
    assert "unreadable: bad.json: file is not a database\n" in printed(report)
    assert "<li>bad.json: file is not a database</li>" in html.page(report)


def test_an_earlier_report_is_no_side_of_an_example() -> None:
    report = report_of(1, lambda number: result(number, "changed"), baseline="earlier.json", parser="mine.py:P")
    assert words.shown_sides(report) == ("recorded", "mine.py:P")
    assert words.sides(report)[0] == "earlier.json"
    assert "the replay shows" in words.lag_in_words(report)


def test_the_groupings_of_a_pair_have_names() -> None:
    pair = SplitPair(0, ((0, 2),), ((0, 2), (4, 6), (8, 10)), ("a", "b"), splits=("marker", "one"))
    assert words.pair_in_words(pair) == (
        ("`marker`", "a"), ("like `marker`, but with 2 groups of tokens as `one` has it", "b")
    )  # fmt: skip
    assert words.pair_in_words(SplitPair(0, (), (), ("a", "b")))[0] == ("one way", "a")


def test_no_table_has_two_columns_of_one_name() -> None:
    def make(number: int) -> SessionResult:
        return result(number, "changed" if number % 2 else "same")

    page = html.page(report_of(30, make, baseline="P0"))
    heads = re.findall(r"<thead>(.*?)</thead>", page, re.DOTALL)
    assert len(heads) >= 5
    for head in heads:
        names = re.findall(r"<th[^>]*>(.*?)</th>", head)
        assert len(names) == len(set(names)), names
    names = re.findall(r"<th scope=\"col\"[^>]*>([^<]*)</th>", page)
    assert "share" not in names  # of what?


# --- reports of all sorts ---------------------------------------------------------------------------------------------


def all_failed(number: int) -> SessionResult:
    error = StageFailure("semantic", "mine@1", -1, -1, "", "Timeout", "no end within 1 s")
    return result(number, "failed", "Timeout", error=error, first=None, differences=(), lag={}, marks=("failed",))


def none_compared(number: int) -> SessionResult:
    why = "the baseline failed: ValueError: no"
    return result(number, "uncompared", uncompared=why, notes=(why,))


@pytest.mark.parametrize("count", [1, 3, 30])
@pytest.mark.parametrize("make", [all_failed, none_compared])
def test_nothing_could_be_compared(count: int, make: Callable[[int], SessionResult], tmp_path: Path) -> None:
    report = report_of(count, make, parser="mine.py:P", cut=True, splits=("recorded", "one"))
    text, page = joined(printed(report)), html.page(report)
    if make is all_failed:
        assert f"{count} failed of {words.counted(count, 'session')}" in text
        assert "mine@1 did not end its work (Timeout): no end within 1 s" in text and "Timeout" in page
    else:
        assert f"Nothing could be compared in {words.counted(count, 'session')}" in page
        assert f"Nothing could be compared in {words.counted(count, 'session')}." in text
        assert f"the baseline failed: ValueError: no ({words.counted(count, 'session')})" in text
    junit.write(report, str(tmp_path / "a.xml"))
    root = ElementTree.parse(tmp_path / "a.xml").getroot()
    assert root.get("errors" if make is all_failed else "skipped") == str(count)
    assert from_json(to_json(report)).summary == report.summary


def test_some_could_not_be_compared() -> None:
    report = report_of(10, lambda number: none_compared(number) if number < 3 else result(number))
    assert "Nothing changed in 7 sessions; 3 sessions could not be compared." in joined(printed(report))
    assert "Nothing changed in 5 sessions." in joined(printed(report_of(5, result)))


def odd(number: int) -> SessionResult:
    name = ODD[number % len(ODD)]
    return result(number, "changed", session=name, source=f"{name}.db", model=name, parser=name)


@pytest.mark.parametrize("count", [len(ODD), 3 * len(ODD)])
def test_ids_with_odd_characters(count: int, tmp_path: Path) -> None:
    report = report_of(count, odd)
    text = printed(report)
    assert not {"\x07", "\x1b", "\t", "\ud800"} & set(text)
    text.encode()
    assert max(map(len, text.splitlines())) <= 120
    page = html.page(report)
    page.encode()
    assert "<b>&amp;</b>" not in page and not {"\x07", "\x1b"} & set(page)
    junit.write(report, str(tmp_path / "odd.xml"))
    cases = list(ElementTree.parse(tmp_path / "odd.xml").getroot().iter("testcase"))
    assert len(cases) == count
    assert {case.get("name") for case in cases} >= {ODD[0], ODD[1], LONG, ODD[5]}
    assert all((case.find("failure") is not None) for case in cases)
