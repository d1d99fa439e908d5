"""The HTML report: one file that needs nothing and runs nothing, whatever the sessions say; bounded."""

from __future__ import annotations

import io
import re
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from replay import run_replay
from replay.corpus import load
from replay.reports import html, words
from replay.reports.survey import survey
from replay.result import Breach, SessionResult, SplitPair
from replay.run import Replayer
from replay.terminal import print_report
from replay.totals import Paired, Unreadable
from replay.verdict import Difference
from store import trace
from tests.support.replay import SAID, opening, record, tokens, whole
from tests.support.results import HOSTILE, hostile, report_of, result

_EMPTY = {"meta", "link", "br", "img", "input", "hr"}


class Read(HTMLParser):
    """The elements, and the text of the page."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in _EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        if tag in ("td", "th", "dt", "dd", "li", "p"):
            self.text.append(" ")

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text.append(data)

    @property
    def said(self) -> str:
        return " ".join("".join(self.text).split())


def harmless(page: str) -> Read:
    """It has no script, asks for nothing, and every element is closed."""
    read = Read(page)
    assert read.open == []
    for tag, attributes in read.tags:
        assert tag not in ("script", "img", "iframe", "object", "embed", "form", "base", "audio", "video")
        for name, value in attributes.items():
            assert not name.startswith("on") and name not in ("src", "srcset", "action", "background")
            assert name != "href" or (value or "").startswith(("#", "data:,"))
    style = re.search(r"<style>(.*)</style>", page, re.DOTALL)
    assert style is not None and "url(" not in style[1] and "@import" not in style[1]
    assert page.isprintable() or set(filter(lambda char: not char.isprintable(), page)) <= {"\n"}
    page.encode()
    return read


def kinds(number: int) -> str:
    """Of a corpus: 90 of 100 same, 6 texts, 3 calls lost, 1 failed."""
    return {0: "RuntimeError", 1: "call_lost", 2: "call_lost", 3: "call_lost"}.get(number % 100, "text")


def test_the_numbers_are_there() -> None:
    def make(number: int) -> SessionResult:
        place = number % 100
        if place >= 10:
            return result(number)
        return result(number, "failed" if place == 0 else "changed", kinds(number))

    report = report_of(1000, make, seconds=2.0, jobs=2)
    read = harmless(html.page(report))
    assert read.said.startswith("10 failed, 90 changed of 1,000 sessions, in 3 kinds")
    assert (
        "Worst kind: failed failed: RuntimeError at reasoning · in content · after <tool_call>, 10 sessions"
        in read.said
    )
    # Of 100 that are not the same: 10 failed, first; then what does most harm.
    shares = re.findall(
        r"\d (?:failed|changed) (failed: RuntimeError|text|call lost)[^%]*? (\d+) (\d+\.\d) %", read.said
    )
    assert shares == [("failed: RuntimeError", "10", "10.0"), ("call lost", "30", "30.0"), ("text", "60", "60.0")]
    # Each has sent 900 characters at the same token, 50 two later, 3 one earlier.
    assert "2 tokens later 5,000 5.2 %" in read.said
    assert "1 token earlier 300 0.31 %" in read.said
    assert "at the same token 90,000 94.4 %" in read.said
    assert f"playhead replay corpus.db --session {1:032x}" in read.said
    assert "2.0 s with 2 processes: 500 sessions/s" in read.said


def test_nothing_changed() -> None:
    read = harmless(html.page(report_of(7, result)))
    assert read.said.startswith("Nothing changed in 7 sessions")
    assert "Worst kind" not in read.said
    assert harmless(html.page(report_of(0, result))).said.startswith("No session was replayed")


def test_hostile_texts_are_shown_as_text() -> None:
    report = report_of(
        3, hostile, sources=(HOSTILE,), parser=HOSTILE, baseline=HOSTILE, splits=("recorded", HOSTILE),
    )  # fmt: skip
    unread = (Unreadable(HOSTILE, HOSTILE, HOSTILE),)
    page = html.page(msgspec.structs.replace(report, unreadable=unread))
    read = harmless(page)
    assert "</script><script>document.title='run'</script>" in read.said
    assert "\\u202egnp.exe␀␛[31m\\u2028" in read.said
    assert "\\ud800" in read.said


@pytest.mark.slow
def test_it_is_bounded_however_large_the_run() -> None:
    """3,000 kinds of long words, sessions and notes that are all different."""

    def make(number: int) -> SessionResult:
        if number % 10:
            return result(number, source=f"{'folder/' * 30}{number}.jsonl", model=f"model-{number}", notes=("n" * 500,))
        long = f"{number % 3000} " + HOSTILE[:-1] * 40
        return result(
            number, "changed", long, model=f"{number}{'m' * 300}", parser=f"{number}{'p' * 300}",
            differences=(Difference(0, "text", "content", "<" * 4000, "&" * 4000),) * 8,
            breaches=(Breach("leaked", "<" * 4000),) * 8, notes=("<" * 4000,),
        )  # fmt: skip

    report = report_of(30_000, make, sources=tuple(f"{'s' * 500}{at}" for at in range(5000)))
    assert len(report.clusters) == 300
    page = html.page(report)
    assert len(page.encode()) < 2_000_000
    harmless(page)


def test_statistics_in_words() -> None:
    row = Paired(
        mark="leaked", both=1, before=2, after=20, neither=77, p=0.00012, rate_before=(0.03, 0.01, 0.085),
        rate_after=(0.21, 0.14, 0.3),
    )  # fmt: skip
    even = Paired(
        mark="fault", both=0, before=3, after=4, neither=93, p=1.0, rate_before=(0.03, 0.01, 0.085),
        rate_after=(0.04, 0.016, 0.098),
    )  # fmt: skip
    report = msgspec.structs.replace(
        report_of(100, result, baseline="vllm@A:hermes", parser="vllm@B:hermes"), paired=(row, even)
    )
    said = harmless(html.page(report)).said
    assert "vllm@A:hermes vllm@B:hermes on both gone new p means" in said
    assert (
        "3.0 % (1.0 to 8.5 %) 21.0 % (14.0 to 30.0 %) 1 2 20 p < 0.001"
        " new in 20, gone in 2: likely more in other sessions, too" in said
    )
    assert "p = 1 new in 4, gone in 3: too few to generalise" in said


def test_the_smallest_pair_of_splits() -> None:
    def make(number: int) -> SessionResult:
        pair = SplitPair(
            0, ((1, 3 + number),), (), (f"'a' 'b' #{number}", f"'a' | 'b' #{number}"),
            (Difference(0, "text", "content", "a", "b"),), 7, ("token", "one"),
        )  # fmt: skip
        return result(number, "changed", split_pair=pair, breaches=(Breach("split", "it differs"),), tokens=9 - number)

    report = report_of(3, make, splits=("recorded", "one"))
    said = harmless(html.page(report)).said
    like = "like `token`, but with 1 group of tokens as `one` has it:"
    alike = f"{like.removesuffix(':')} 'a' | 'b' #0"
    assert f"`token` 'a' 'b' #0 {alike} the second message differs choice 0, content: 'a' → 'b'" in said
    assert f"--session {0:032x} --splits recorded,one" in said
    assert "split 3 the message depends on how tokens are grouped" in said
    out = io.StringIO()
    print_report(report, out)
    assert f"  `token`:\n    'a' 'b' #0\n  {like}\n    'a' | 'b' #0\n" in out.getvalue()


def test_both_sides_of_a_real_replay(tmp_path: Path) -> None:
    for name in "12":
        trace.write(record(opening(name * 32), whole(tokens(SAID))), tmp_path / f"{name}.jsonl")
    report = run_replay([str(tmp_path)], "plain")
    path = tmp_path / "out.html"
    html.write(report, str(path), load, Replayer("plain"))
    read = harmless(path.read_text("utf-8"))
    assert read.said.startswith("2 changed of 2 sessions, in 1 kind ")
    assert "step the model wrote recorded replayed" in read.said
    assert "call tide" in read.said
    # A session that is gone by then is told.
    (tmp_path / "1.jsonl").unlink()
    (tmp_path / "2.jsonl").unlink()
    assert "it cannot be read again" in harmless(html.page(report, load, Replayer("plain"))).said


@pytest.mark.parametrize(
    ("rate", "told"),
    [(0, "0.0 %"), (1, "100.0 %"), (0.00001, "< 0.01 %"), (0.99999999, "> 99.99 %"), (0.005, "0.50 %"),
     (0.9996, "99.96 %"), (0.5, "50.0 %")],
)  # fmt: skip
def test_percent(rate: float, told: str) -> None:
    assert words.percent(rate) == told


def test_the_histogram_of_lag() -> None:
    bars = words.bars({0: 5, 1: 1, 4: 2, 3: 3, 100: 7, -2: 4})
    assert [(bar.label, bar.characters) for bar in bars if bar.characters] == [
        ("2 tokens earlier", 4),
        ("at the same token", 5),
        ("1 token later", 1),
        ("3 to 4 tokens later", 5),
        ("65+ tokens later", 7),
    ]
    assert bars[1].label == "1 token earlier"
    assert words.bars({}) == []
    assert sum(bar.characters for bar in words.bars(dict.fromkeys(range(-200, 201), 1))) == 401


def test_what_all_sessions_say_together() -> None:
    def make(number: int) -> SessionResult:
        if number == 5:
            return result(
                number, "changed", faults_appeared=("unclosed_call", "unclosed_call"), rules_gone=("INV-001",)
            )
        return result(
            number,
            "uncompared",
            uncompared="no tokens",
            not_compared=("char",),
            cuts=number,
            splits={"recorded": "same"},
        )

    seen = survey(report_of(10, make, splits=("recorded", "char")))
    assert seen.told == [("message not compared: no tokens", 9)]
    assert dict(seen.appeared) == {"fault unclosed_call": 1}
    assert dict(seen.gone) == {"rule INV-001": 1}
    assert [each.session for each in seen.few] == [f"{5:032x}"]
    assert seen.cuts == 40
    assert seen.nowhere == ()
