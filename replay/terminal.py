"""The report on a terminal: the kinds of what is not the same, an example of each, and what all sessions say."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TextIO, TypeAlias

from rich.box import ASCII2, SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from replay.report import RunReport
from replay.reports import overview, words
from replay.reports.align import Aligned
from replay.reports.session import head_in_words, is_told, rest_in_words
from replay.reports.survey import Survey, survey
from replay.reports.weigh import ranked
from replay.reports.words import STYLES, counted, not_same
from replay.result import SessionResult
from replay.signature import in_words as kind_in_words
from replay.text import printable
from replay.totals import Cluster
from replay.verdict import Divergence, Side

Sides: TypeAlias = Callable[[SessionResult], Aligned | str]
"""Both sides of a session, step by step; or why they cannot be shown."""

_PLAIN_WIDTH = 120
_IDS = 5
"""Sessions of a kind that are named beside its example."""


def print_report(report: RunReport, file: TextIO, *, limit: int = 20, aligned: Sides | None = None) -> None:
    """Write the report. Plain ASCII frames and no colours unless ``file`` is a terminal; then it is as wide as COLUMNS
    says, else 120. A handful of sessions that are not the same are shown one by one; of more, the kinds, each with its
    smallest example. ``limit``: sessions or kinds shown in full; the JSON report has all. ``aligned``: gives both sides
    of what is shown in full."""
    terminal = file.isatty()
    console = _console(file)
    seen = survey(report)
    full = _Full(console, words.shown_sides(report), aligned, plain=not terminal)
    if seen.few or not report.clusters:
        _few(full, seen, limit)
        left = not_same(report) - len(seen.few)
        if left:
            console.print(f"{counted(left, 'session')} not the same: see --json.\n")
    else:
        kinds = ranked(report, seen)
        console.print(overview.kinds_table(report, seen, kinds, plain=not terminal))
        _kinds(full, kinds, limit)
    overview.print_overview(console, report, seen, plain=not terminal)


def print_session(report: RunReport, result: SessionResult, file: TextIO, *, aligned: Sides | None = None) -> None:
    """Write one session of a run in full, as ``print_report`` does. ``report``: names the two sides."""
    _Full(_console(file), words.shown_sides(report), aligned, plain=not file.isatty()).session(result)


def _console(file: TextIO) -> Console:
    terminal = file.isatty()
    return Console(file=file, highlight=False, width=None if terminal else _width(), no_color=not terminal)


def _width() -> int:
    columns = os.environ.get("COLUMNS", "")
    return int(columns) if columns.isdecimal() and int(columns) > 0 else _PLAIN_WIDTH


def _few(full: _Full, seen: Survey, limit: int) -> None:
    """The sessions themselves, the worst last: it is next to the prompt."""
    left = max(0, len(seen.few) - limit)
    for result in seen.few[left:]:
        full.session(result)
    if left:
        full.console.print(f"{counted(left, 'more session')} not the same: see --json.\n")


def _kinds(full: _Full, clusters: Sequence[Cluster], limit: int) -> None:
    for number, cluster in enumerate(clusters[:limit], 1):
        told = f"Kind {number} of {len(clusters)}, {counted(cluster.count, 'session')}: "
        full.console.print(Text(told + printable(kind_in_words(cluster.signature)), "bold"))
        full.session(cluster.example, _others(cluster))
    left = len(clusters) - limit
    if left > 0:
        full.console.print(f"{counted(left, 'more kind')}: see --limit, --html or --json.\n")


def _others(cluster: Cluster) -> str:
    """Other sessions of the kind, by their ids."""
    ids = [session for _, session in cluster.sessions if session != cluster.example.session]
    if not ids:
        return ""
    left = cluster.count - 1 - len(ids[:_IDS])
    short = words.shortened(session for _, session in cluster.sessions)
    named = ", ".join(short[session] for session in ids[:_IDS])
    return f"also: {named}{f' and {left:,} more' if left > 0 else ''}"


class _Full:
    """Prints sessions in full. ``names``: of both sides; ``aligned``: gives them, step by step."""

    def __init__(self, console: Console, names: tuple[str, str], aligned: Sides | None, *, plain: bool) -> None:
        self.console = console
        self._names = names
        self._aligned = aligned
        self._plain = plain

    def session(self, result: SessionResult, others: str = "") -> None:
        """One session. ``others``: more of its kind, in words."""
        head = Text.assemble(
            (result.verdict, STYLES[result.verdict]), f"  {printable(result.session)}",
            (f"  {printable(result.source)}", "dim"),
        )  # fmt: skip
        if result.state != "closed":
            head.append(f"  ({result.state})")
        self.console.print(head)
        self._print(*(Text(printable(line)) for line in head_in_words(result)))
        both = None if self._aligned is None else self._aligned(result)
        first = result.first
        if first is not None and not _is_shown(first, both):
            self._print(_sides(first, self._names, plain=self._plain))
        self._print(*(Text(printable(line)) for line in rest_in_words(result)))
        if others:
            self._print(Text(printable(others)))
        if both is not None:
            self._print(overview.sides_table(both, self._names, plain=self._plain))
        self.console.print()

    def _print(self, *parts: Text | Table) -> None:
        for part in parts:
            if isinstance(part, Table):
                self.console.print(Padding(part, (0, 0, 0, 2), expand=False))
            else:
                overview.print_indented(self.console, part)


def _is_shown(first: Divergence, both: Aligned | str | None) -> bool:
    """Its two sides stand elsewhere, or it has none."""
    if is_told(first) or (first.recorded is None and first.replayed is None):
        return True
    return isinstance(both, Aligned) and both.differing > 0 and first.layer == "semantic"


def _sides(first: Divergence, names: tuple[str, str], *, plain: bool) -> Table:
    table = Table(box=ASCII2 if plain else SIMPLE_HEAD, expand=False)
    for name in names:
        table.add_column(Text(printable(name)), ratio=1, overflow="fold")
    table.add_row(_side(first.recorded), _side(first.replayed))
    return table


def _side(side: Side | None) -> Text:
    if side is None:
        return Text("nothing", "dim")
    place = f" (engine step {side.cause})" if side.cause >= 0 else ""
    return Text(printable(f"{side.seq}{place}: {side.event}"))
