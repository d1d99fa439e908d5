"""html: a run's report as one file for a browser: no script, nothing from elsewhere, bounded however large the run is.

All text is data: it is escaped, and characters that would hide or turn other text are shown by name.
"""

from __future__ import annotations

import re
from importlib.resources import files
from math import log
from typing import Any

import jinja2
import msgspec
from markupsafe import Markup, escape

from replay.report import RunReport
from replay.reports import words
from replay.reports.align import Aligned
from replay.reports.examples import Load, aligned
from replay.reports.overview import span
from replay.reports.rules import titled
from replay.reports.session import parts, rest_in_words
from replay.reports.survey import Survey, breach_of, faults_and_rules, survey
from replay.reports.weigh import BETTER_MEANS, Sense, headline, ranked, sense_of, worst_of
from replay.reports.words import MARKED, MEANS, counted
from replay.result import SessionResult
from replay.run import Replayer
from replay.signature import in_words
from replay.totals import Cluster, Family
from replay.verdict import ORACLES, VERDICTS, Mark, Verdict

_HERE = files("replay.reports")

_SHOWN = 20
"""Kinds with an example in full."""
_TABLED = 200
"""Kinds in the table."""
_ROWS = 50
"""Rows of the other tables."""
_LONGEST = 400
"""Characters of one text; of one in a cell, and of one that must be whole, such as a command."""
_CELL = 160
_LINE = 1000
_WHOLE = 8000
_ROOM = 800_000
"""Characters that the examples may take together; the rest of the page is bounded by its rows."""
_SKEWED = 50
"""So many times the shortest bar, the bars are drawn by logarithm."""

_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ufffe\uffff"
    "\ud800-\udfff\U000e0000-\U000e0fff]"
)
"""Controls, unpaired surrogates, and what makes no mark or turns the direction of others."""


def write(report: RunReport, path: str, load: Load | None = None, replayer: Replayer | None = None) -> None:
    """Write the file. ``load``: gives an example's session, and ``replayer`` replays it, so that both sides are shown;
    without them the examples are in words only. Raises OSError."""
    text = page(report, load, replayer)
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write(text)


def page(report: RunReport, load: Load | None = None, replayer: Replayer | None = None) -> str:
    """The page. See ``write``."""
    made = _environment()
    seen = survey(report)
    clusters = ranked(report, seen)
    examples = _examples(made.get_template("kind.html").module, report, seen, load, replayer)
    return made.get_template("report.html").render(
        report=report, seen=seen, kinds=_kinds(report, seen, len(examples)), worst=worst_of(report, seen),
        headline=headline(report, seen), words=words, examples=examples, verdicts=_verdicts(report),
        bar=_bar(report, seen), families=_families(report), lag=_lag(report), oracles=_oracles(report, seen),
        left=max(0, len(clusters) - _TABLED), in_words=in_words, name=_name, limit=_ROWS, MARKED=MARKED, MEANS=MEANS,
        BETTER_MEANS=BETTER_MEANS, named=faults_and_rules, titled=titled,
    )  # fmt: skip


def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: _HERE.joinpath(name).read_text("utf-8")), autoescape=True,
        undefined=jinja2.StrictUndefined, finalize=visible, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    made.filters.update(cell=_cell, whole=_whole, ends=_ends)
    return made


def visible(value: Any) -> Any:
    """A text with what cannot be seen named, and cut where it is long; anything else as it is."""
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    return _visible(value, _LONGEST)


def _visible(text: str, longest: int) -> str:
    shown = _HIDDEN.sub(_named, text[: longest + 1].replace("\r\n", "\n"))
    return shown if len(shown) <= longest else f"{shown[:longest]}…"


def _cell(text: str) -> str:
    """A text for a cell."""
    return _visible(text, _CELL)


def _whole(text: str) -> Markup:
    """A text that must be whole."""
    return escape(_visible(text, _WHOLE))


def _named(found: re.Match[str]) -> str:
    code = ord(found[0])
    return chr(0x2400 + code) if code < 0x20 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _ends(text: str) -> str:
    """A text of which the ends of lines can be seen."""
    return _visible(text, _LONGEST).replace("\n", "↵\n").replace("\t", "⇥ ")


# --- what the page shows ----------------------------------------------------------------------------------------------


class _Kind(msgspec.Struct, frozen=True):
    """A row of the table of kinds. ``sense``: see weigh; ``shown``: there is an example in full."""

    number: int
    verdict: Verdict
    sense: Sense
    text: str
    count: int
    share: str
    models: str
    session: str
    shown: bool


def _kinds(report: RunReport, seen: Survey, examples: int) -> list[_Kind]:
    shown = max(1, words.not_same(report))
    return [
        _Kind(
            number, each.signature.verdict, sense_of(report, seen, each), in_words(each.signature), each.count,
            words.percent(each.count / shown), words.shares(each.models), each.example.session, number <= examples,
        )
        for number, each in enumerate(ranked(report, seen)[:_TABLED], 1)
    ]  # fmt: skip


def _examples(macros: Any, report: RunReport, seen: Survey, load: Load | None, replayer: Replayer | None) -> list[str]:
    """The sections of the kinds, as HTML, as many as there is room for."""
    made: list[str] = []
    room = _ROOM
    for number, cluster in enumerate(ranked(report, seen)[:_SHOWN], 1):
        both: Aligned | str = ""
        if load is not None and replayer is not None:
            both = aligned(cluster.example, load, replayer)
        told = _shown(report, seen, cluster)
        section = macros.kind(number, told, _table(report, both))
        if len(section) > room:
            section = macros.kind(number, told, {"why": "this page has no room for them"})
        if len(section) > room:
            break
        room -= len(section)
        made.append(section)
    return made


def _shown(report: RunReport, seen: Survey, cluster: Cluster) -> dict[str, Any]:
    """What is said of a kind."""
    result = cluster.example
    return {
        "text": in_words(cluster.signature), "verdict": cluster.signature.verdict, "result": result,
        "sense": sense_of(report, seen, cluster), "name": _name,
        "count": counted(cluster.count, "session"), "models": words.shares(cluster.models),
        "parts": [(name, [_visible(line, _LINE) for line in lines]) for name, lines in parts(result)],
        "command": words.example(report, result),
        "sessions": cluster.sessions, "left": cluster.count - len(cluster.sessions),
    }  # fmt: skip


def _table(report: RunReport, both: Aligned | str) -> dict[str, Any]:
    """Both sides of an example; or ``why`` not."""
    if isinstance(both, str):
        return {"why": both}
    if not both.differing:
        return {"why": words.nothing_differs(both), "now": both.now}
    names = words.shown_sides(report)
    return {
        "why": "", "rows": both.rows, "names": names, "choices": both.choices, "span": span, "folded": words.folded,
    }  # fmt: skip


class _Share(msgspec.Struct, frozen=True):
    """A verdict, how many sessions have it, and how much of a bar it takes, in percent."""

    verdict: Verdict
    count: int
    share: str
    width: float


def _verdicts(report: RunReport) -> list[_Share]:
    total = max(1, report.summary.sessions)
    made: list[_Share] = []
    for verdict in VERDICTS:
        count = report.summary.count(verdict)
        if count or verdict not in words.RARE:
            made.append(_Share(verdict, count, words.percent(count / total), 100 * count / total))
    return made


def _bar(report: RunReport, seen: Survey) -> list[tuple[str, int]]:
    """The bar: classes, and how many sessions each stands for. Where there is another parser or run to be better than,
    what differs is told by that."""
    if not report.baseline or not words.not_same(report):
        return [(_name(verdict), count) for verdict in VERDICTS if (count := report.summary.count(verdict))]
    alike = [(_name(verdict), report.summary.count(verdict)) for verdict in VERDICTS if verdict in words.QUIET]
    found = seen.weighed
    weighed = (("s-better", found.better), ("s-neither", found.neither), ("s-worse", found.worse))
    return [(name, count) for name, count in (*alike, *weighed) if count]


class _Bar(msgspec.Struct, frozen=True):
    label: str
    characters: int
    share: str
    width: float


def _lag(report: RunReport) -> dict[str, Any]:
    """The histogram. ``log``: its bars are drawn by logarithm."""
    bars = words.bars(report.lag)
    total, most = sum(bar.characters for bar in bars), max((bar.characters for bar in bars), default=0)
    least = min((bar.characters for bar in bars if bar.characters), default=0)
    by_log = most > _SKEWED * max(1, least)

    def width(characters: int) -> float:
        if not characters:
            return 0.0
        return 100 * (log(1 + characters) / log(1 + most) if by_log else characters / most)

    rows = [
        _Bar(bar.label, bar.characters, words.percent(bar.characters / total), round(width(bar.characters), 2))
        for bar in bars
    ]
    return {"bars": rows, "log": by_log, "told": words.lag_in_words(report)}


class _Parser(msgspec.Struct, frozen=True):
    """A row of the table of parsers."""

    parser: str
    sessions: int
    verdicts: list[int]
    marks: list[int]
    pace: str
    models: str


def _families(report: RunReport) -> dict[str, Any]:
    """The table of parsers: its columns and rows."""
    families = sorted(report.families, key=lambda family: (-family.sessions, family.parser))
    verdicts: list[Verdict] = [verdict for verdict in VERDICTS if any(each.verdicts.get(verdict) for each in families)]
    marks: list[Mark] = [mark for mark in MARKED if any(each.marks.get(mark) for each in families) and mark != "failed"]

    def row(family: Family) -> _Parser:
        pace = f"{family.ns / 1000 / family.tokens:.1f}" if family.ns and family.tokens else ""
        return _Parser(
            family.parser or "none", family.sessions, [family.verdicts.get(verdict, 0) for verdict in verdicts],
            [family.marks.get(mark, 0) for mark in marks], pace, words.shares(family.models),
        )  # fmt: skip

    return {
        "rows": [row(family) for family in families[:_ROWS]], "left": max(0, len(families) - _ROWS),
        "verdicts": verdicts, "marks": marks,
    }  # fmt: skip


def _oracles(report: RunReport, seen: Survey) -> dict[str, Any]:
    """What holds of every right parser, and in how many sessions it does not; the smallest pair of splits."""
    result = seen.pair
    pair: dict[str, Any] = {}
    if result is not None and result.split_pair is not None:
        pair = {
            "session": result.session, "shown": words.pair_in_words(result.split_pair),
            "command": words.example(report, result),
            "differences": list(rest_in_words(_only(result))),
        }  # fmt: skip
    rows: list[dict[str, Any]] = [
        {"oracle": words.spaced(oracle), "means": MARKED[oracle], "count": seen.breached[oracle], "session": ""}
        for oracle in ORACLES
    ]
    for row, oracle in zip(rows, ORACLES, strict=True):
        if seen.breached[oracle]:
            result, breach = breach_of(seen, oracle)
            row |= {"session": result.session, "source": result.source, "detail": breach.detail}
    cuts = words.cuts_in_words(seen.cuts, seen.cut, seen.cut_broken) if report.cut else ""
    return {"rows": rows, "pair": pair, "cuts": cuts}


def _only(result: SessionResult) -> SessionResult:
    """A result that says what its pair of splits does, and nothing else."""
    pair = result.split_pair
    return SessionResult(
        session=result.session, verdict=result.verdict, differences=() if pair is None else pair.differences
    )


def _name(verdict: str, sense: Sense = "") -> str:
    """The class of a verdict, for colours; what has become better is no matter of alarm."""
    return f"s-{sense}" if sense in ("better", "neither") else f"v-{verdict}"
