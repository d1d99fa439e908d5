"""What a report says of all sessions together, on a terminal: tables, and a line each for what needs no table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from rich.box import ASCII2, SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from replay.report import RunReport
from replay.reports import words
from replay.reports.align import QUOTED, Aligned, Emitted, Row
from replay.reports.rules import titled
from replay.reports.survey import Survey, breach_of, faults_and_rules
from replay.reports.weigh import BETTER_MEANS, headline, sense_of, worst_of
from replay.reports.words import MARKED, RARE, STYLES, counted
from replay.reports.wrote import Wrote
from replay.signature import in_words
from replay.text import printable
from replay.totals import Cluster, Family
from replay.verdict import ORACLES, VERDICTS, Mark, Verdict

_MOST = 8
"""Lines of a kind that are shown."""
_FAMILIES = 30
_TABLED = 40
"""Kinds in the table."""


def print_overview(console: Console, report: RunReport, seen: Survey, *, plain: bool) -> None:
    """Everything but the sessions; the verdicts and the run's one line come last, next to the prompt."""
    _unreadable(console, report)
    if report.counted_once:
        _print(console, words.counted_once(report))
    if report.summary.missing:
        _print(console, words.missing(report))
    for text, count in seen.told[:_MOST]:
        _print(console, f"{text} ({counted(count, 'session')})")
    left = sum(count for _, count in seen.told[_MOST:]) + seen.other
    if left:
        console.print(f"and {counted(left, 'more note')} of this sort: see --json")
    if report.summary.sessions == report.summary.unreplayed:
        return
    _named(console, "New", seen.appeared)
    _named(console, "Gone", seen.gone)
    _oracles(console, report, seen)
    _pair(console, seen)
    if len(report.families) > 1:
        console.print(_families(report.families, plain=plain))
    if report.baseline or any(item.before or item.after for item in words.paired_of(report)):
        _paired(console, report, plain=plain)
    told = words.lag_in_words(report)
    if told:
        _print(console, told)
    _summary(console, report, seen, plain=plain)


def _unreadable(console: Console, report: RunReport) -> None:
    for item in report.unreadable[: 5 * _MOST]:
        _print(console, f"unreadable: {words.unread(item)}")
    left = report.summary.unreadable - len(report.unreadable[: 5 * _MOST])
    if left > 0:
        console.print(f"{left:,} more that cannot be read: see --json")


def _named(console: Console, what: str, found: Counter[Any]) -> None:
    """Faults on a line, and each rule on one of its own, with what it says."""
    faults, rules = faults_and_rules(found)
    if faults:
        told = ", ".join(f"{printable(words.spaced(name))} {count:,}" for name, count in faults[:_MOST])
        more = f" and {len(faults) - _MOST} more" if len(faults) > _MOST else ""
        _print(console, f"{what}, by sessions: {told}{more}.")
    if rules:
        _print(console, f"{'Broken now' if what == 'New' else 'Broken no more'}, rules of the protocol:")
    for code, count in rules[:_MOST]:
        print_indented(console, Text(printable(f"in {counted(count, 'session')}: {titled(code)}")))
    if len(rules) > _MOST:
        print_indented(console, Text(f"and {counted(len(rules) - _MOST, 'more rule')}: see --json"))


def print_indented(console: Console, text: Text, indent: str = "  ") -> None:
    """A text, each of its lines a little to the right, and with nothing behind it."""
    for line in text.wrap(console, max(1, console.width - len(indent)), overflow="fold"):
        line.rstrip()
        console.print(Text.assemble(indent, line))


def _print(console: Console, text: str, style: str = "") -> None:
    print_indented(console, Text(printable(text), style), "")


def _oracles(console: Console, report: RunReport, seen: Survey) -> None:
    """What is broken, with the smallest session of each; and what the cuts showed."""
    if seen.breached:
        console.print("Oracles broken:")
    for oracle in ORACLES:
        if not seen.breached[oracle]:
            continue
        result, breach = breach_of(seen, oracle)
        told = f"{words.spaced(oracle)} in {counted(seen.breached[oracle], 'session')}, such as {result.session}"
        print_indented(console, Text(printable(f"{told} ({result.source}): {breach.detail}")))
    if report.cut:
        _print(console, words.cuts_in_words(seen.cuts, seen.cut, seen.cut_broken))


def _pair(console: Console, seen: Survey) -> None:
    """The smallest pair of splits that give different messages."""
    result = seen.pair
    if result is None or result.split_pair is None:
        return
    _print(console, f"The smallest pair of splits that differ, in {result.session}:")
    for name, shown in words.pair_in_words(result.split_pair):
        print_indented(console, Text(printable(f"{name}:")))
        print_indented(console, Text(printable(f"  {shown}")))


def _table(*columns: tuple[str, str], plain: bool) -> Table:
    """A table; each column with its name and how it is justified."""
    table = Table(box=ASCII2 if plain else SIMPLE_HEAD, expand=False)
    for name, justify in columns:
        table.add_column(Text(printable(name)), justify="right" if justify == "right" else "left", overflow="fold")
    return table


def kinds_table(report: RunReport, seen: Survey, clusters: Sequence[Cluster], *, plain: bool) -> Table:
    """The kinds, with an example's id."""
    table = _table(
        ("verdict", "left"), ("sessions", "right"), ("of these", "right"), ("kind", "left"), ("example", "left"),
        plain=plain,
    )  # fmt: skip
    shown = max(1, words.not_same(report))
    short = words.shortened(cluster.example.session for cluster in clusters[:_TABLED])
    for cluster in clusters[:_TABLED]:
        table.add_row(
            _verdict(report, seen, cluster), f"{cluster.count:,}", words.percent(cluster.count / shown),
            Text(printable(in_words(cluster.signature))), Text(printable(short[cluster.example.session])),
        )  # fmt: skip
    if len(clusters) > _TABLED:
        left = clusters[_TABLED:]
        table.add_row("", f"{sum(each.count for each in left):,}", "", f"{counted(len(left), 'more kind')}", "")
    return table


def _verdict(report: RunReport, seen: Survey, cluster: Cluster) -> Text:
    """A kind's verdict, and whether that is for the better or the worse."""
    verdict, sense = cluster.signature.verdict, sense_of(report, seen, cluster)
    style = "green" if sense == "better" else STYLES[verdict]
    return Text(f"{verdict}, {sense}" if sense else verdict, style)


def _families(families: Sequence[Family], *, plain: bool) -> Table:
    present: list[Verdict] = [
        verdict for verdict in VERDICTS if any(family.verdicts.get(verdict) for family in families)
    ]
    marks: list[Mark] = [mark for mark in MARKED if any(family.marks.get(mark) for family in families)]
    table = _table(
        ("parser", "left"), ("sessions", "right"), *((verdict, "right") for verdict in present),
        *((words.spaced(mark), "right") for mark in marks if mark != "failed"), ("us/token", "right"), plain=plain,
    )  # fmt: skip
    most = sorted(families, key=lambda family: (-family.sessions, family.parser))
    for family in most[:_FAMILIES]:
        pace = f"{family.ns / 1000 / family.tokens:.1f}" if family.ns and family.tokens else ""
        table.add_row(
            Text(printable(family.parser or "none")), f"{family.sessions:,}",
            *(f"{family.verdicts.get(verdict, 0):,}" for verdict in present),
            *(f"{family.marks.get(mark, 0):,}" for mark in marks if mark != "failed"), pace,
        )  # fmt: skip
    if len(most) > _FAMILIES:
        left = most[_FAMILIES:]
        table.add_row(f"{len(left)} more", f"{sum(family.sessions for family in left):,}")
    return table


def _paired(console: Console, report: RunReport, *, plain: bool) -> None:
    before, after = words.sides(report)
    table = _table(
        ("wrong with a session", "left"), (before, "right"), (after, "right"), ("p", "right"), ("means", "left"),
        plain=plain,
    )  # fmt: skip
    for item in words.paired_of(report):
        table.add_row(
            words.spaced(item.mark), words.rate(item.rate_before), words.rate(item.rate_after),
            words.p_value(item.p).removeprefix("p = ").removeprefix("p "), words.judged(item),
        )  # fmt: skip
    if words.paired_of(report):
        console.print(table)
        _print(console, words.PAIRED_MEANS, "dim")


def _summary(console: Console, report: RunReport, seen: Survey, *, plain: bool) -> None:
    table = _table(("verdict", "left"), ("sessions", "right"), plain=plain)
    for verdict in VERDICTS:
        count = report.summary.count(verdict)
        if count or verdict not in RARE:
            table.add_row(Text(verdict, STYLES[verdict] if count else "dim"), f"{count:,}")
    console.print(table)
    for split in seen.nowhere:
        _print(console, f"Split {split} was not compared: no session allows it.", "bold yellow")
    _print(console, f"{headline(report, seen)}.", "bold")
    if report.baseline and words.not_same(report):
        _print(console, BETTER_MEANS, "dim")
    worst = worst_of(report, seen)
    if worst is not None:
        told = f"Worst kind: {worst.signature.verdict}: {in_words(worst.signature)}, {counted(worst.count, 'session')}."
        _print(console, told)
    parser = report.parser or "the recorded parser"
    track = f" with track {report.track}" if report.track else ""
    base = f" with {report.baseline}" if report.baseline else ""
    pace = words.pace(report)
    _print(
        console,
        f"{counted(report.summary.sessions, 'session')}, {counted(report.summary.tokens, 'token')}, through {parser},"
        f" compared{base}{track} {words.depth_of(report)}, splits {','.join(report.splits)}."
        f" {f'{pace}. ' if pace else ''}Run digest {report.digest[:16]}.",
    )
    if report.interrupted:
        console.print(Text("Interrupted: this is not all of it.", "bold yellow"))


# --- both sides of one session ----------------------------------------------------------------------------------------


def sides_table(aligned: Aligned | str, names: tuple[str, str], *, plain: bool) -> Table | Text:
    """What both sides emitted, step by step; ! where they differ. ``names``: of the sides."""
    if isinstance(aligned, str):
        return Text(f"step by step: not shown: {printable(aligned)}", "dim")
    if not aligned.differing:
        return Text("\n".join([f"step by step: {words.nothing_differs(aligned)}", *map(printable, aligned.now)]), "dim")
    table = _table(
        ("", "left"), ("step", "left"), ("the model wrote", "left"), *((name, "left") for name in names), plain=plain,
    )  # fmt: skip
    for row in aligned.rows:
        if row.folded:
            table.add_row(Text("!" if row.differs else "", "bold red"), "…", Text(words.folded(row), "dim"))
        else:
            table.add_row(
                Text("!" if row.differs else "", "bold red"), span(row), _wrote(row.wrote),
                _emitted(row.left, aligned.choices), _emitted(row.right, aligned.choices),
            )  # fmt: skip
    return table


def span(row: Row) -> str:
    """Which steps a row is of, short."""
    if row.last < 0:
        return "-"
    return f"{max(0, row.first)}" if row.first == row.last else f"{max(0, row.first)}-{row.last}"


def _wrote(wrote: Iterable[Wrote]) -> Text:
    """Text in quotes; tokens that are markers, and what is no text, without."""
    shown = {"text": ("'{}'", ""), "special": ("{}", "bold cyan"), "bytes": ("<{}>", "dim"), "input": ("{}", "dim")}
    return Text(" ").join(
        Text(shown[item.piece][0].format(printable(item.text)), shown[item.piece][1]) for item in wrote
    )


def _emitted(emitted: Sequence[Emitted], choices: int) -> Text:
    """A line each; what clients do not see is in brackets."""
    if not emitted:
        return Text("nothing", "dim")
    return Text("\n").join(_line(item, choices) for item in emitted)


def _line(item: Emitted, choices: int) -> Text:
    choice = f"{item.choice}: " if choices > 1 else ""
    text = f"'{printable(item.text)}'" if item.kind in QUOTED else printable(item.text)
    told = f"{choice}{item.kind} {text}".rstrip()
    style = "bold" if item.differs else "dim" if item.quiet else ""
    return Text(f"({told})" if item.quiet else told, style)
