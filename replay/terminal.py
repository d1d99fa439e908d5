"""The report on a terminal: a table of verdicts, and the first divergence of every session that is not the same."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TextIO

from rich.box import ASCII2, SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from replay.message_diff import in_words
from replay.report import RunReport
from replay.result import SessionResult
from replay.verdict import VERDICTS, Divergence, Side, Verdict

_STYLES: dict[Verdict, str] = {
    "same": "green", "uncompared": "bold yellow",
    "rechunked": "cyan", "moved": "yellow", "restyled": "cyan", "changed": "bold red", "failed": "bold magenta",
}  # fmt: skip
_PLAIN_WIDTH = 120
_QUIET: tuple[Verdict, ...] = ("same", "uncompared", "restyled")
"""Sessions that are counted, not shown."""
_RARE: tuple[Verdict, ...] = ("uncompared", "restyled")
"""Verdicts of which a table says nothing where there are none."""
_NAMED = ("boundary", "marker_leaked", "call_lost", "call_added")
"""Kinds that say more than the field."""
_ELSE = ("chunking", "timing", "cause", "order", "unknown")
"""Kinds that no place in an event tells."""
_MOST = 8
"""Lines of a kind that are shown."""


def print_report(report: RunReport, file: TextIO, *, limit: int = 20) -> None:
    """Write the report. Plain ASCII frames and no colours unless ``file`` is a terminal; then it is as wide as COLUMNS
    says, else 120. ``limit``: sessions shown in full; the JSON report has them all."""
    terminal = file.isatty()
    console = Console(file=file, highlight=False, width=None if terminal else _width(), no_color=not terminal)
    shown = [result for result in report.sessions if result.verdict not in _QUIET]
    # The worst last: it is next to the prompt.
    shown.sort(key=lambda result: (VERDICTS.index(result.verdict), result.session))
    left = max(0, len(shown) - limit)
    for result in shown[left:]:
        _session(console, result, plain=not terminal)
    if left:
        console.print(f"{_count(left, 'more session')} not the same: see --json.\n")
    for item in report.unreadable:
        console.print(
            Text(f"unreadable: {item.source}{f' session {item.session}' if item.session else ''}: {item.error}")
        )
    _stages(console, report)
    if any(not result.unreplayed for result in report.sessions):
        _summary(console, report, plain=not terminal)


def _width() -> int:
    columns = os.environ.get("COLUMNS", "")
    return int(columns) if columns.isdecimal() and int(columns) > 0 else _PLAIN_WIDTH


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _summary(console: Console, report: RunReport, *, plain: bool) -> None:
    table = Table(box=ASCII2 if plain else SIMPLE_HEAD, title_justify="left")
    table.add_column("verdict")
    table.add_column("sessions", justify="right")
    for verdict in VERDICTS:
        count = report.summary.count(verdict)
        if count or verdict not in _RARE:
            table.add_row(Text(verdict, _STYLES[verdict] if count else "dim"), str(count))
    console.print(table)
    for split in report.splits:
        if report.sessions and all(split in result.not_compared for result in report.sessions):
            console.print(Text(f"Split {split} was not compared: no session allows it.", "bold yellow"))
    parser = report.parser or "the recorded parser"
    track = f" with track {report.track}" if report.track else ""
    console.print(
        Text(
            f"{_count(report.summary.sessions, 'session')}, {_count(report.summary.tokens, 'token')}, through {parser},"
            f" compared{track} to the {report.layer} layer, splits {','.join(report.splits)}."
            f" Run digest {report.digest[:16]}."
        )
    )


def _stages(console: Console, report: RunReport) -> None:
    """Once a kind, not once a session: which stages are not those of the record, and what is to be known of sessions
    that are not shown one by one."""
    found = Counter(
        f"{name}: recorded with {recorded or 'none'}, replayed with {present or 'none'}"
        for result in report.sessions
        for name, (recorded, present) in result.stages.items()
    )
    found.update(note for result in report.sessions if result.verdict in _QUIET for note in result.notes)
    found.update(f"not replayed: {result.unreplayed}" for result in report.sessions if result.unreplayed)
    found.update(f"message not compared: {result.uncompared}" for result in report.sessions if result.uncompared)
    for result in report.sessions:
        if result.verdict == "restyled":
            kinds = sorted({_spaced(item.kind) for item in result.differences})
            found[f"restyled: the upstream's message differs in {' and '.join(kinds)} only"] += 1
    for text, count in found.most_common(_MOST):
        console.print(Text(f"{text} ({_count(count, 'session')})"))


def _session(console: Console, result: SessionResult, *, plain: bool) -> None:
    head = Text.assemble(
        (result.verdict, _STYLES[result.verdict]), f"  {result.session}", (f"  {result.source}", "dim")
    )
    if result.state != "closed":
        head.append(f"  ({result.state})")
    console.print(head)
    _print(console, _head(result))
    first = result.first
    if first is not None and not _is_told(first) and (first.recorded is not None or first.replayed is not None):
        console.print(Padding(_sides(first, plain=plain), (0, 0, 0, 2), expand=False))
    _print(console, _rest(result))
    console.print()


def _print(console: Console, lines: Iterable[str]) -> None:
    for line in lines:
        console.print(Padding(Text(line), (0, 0, 0, 2), expand=False))


def _head(result: SessionResult) -> Iterator[str]:
    verdicts: dict[str, Verdict] = dict(result.layers)
    verdicts.update((f"split {split}", verdict) for split, verdict in result.splits.items() if split != "recorded")
    if len(verdicts) > 1:
        yield "  ".join(f"{name}: {verdict}" for name, verdict in verdicts.items())
    if result.error is not None:
        error = result.error
        place = f"at event {error.seq}: {error.input}" if error.seq >= 0 else "before its first event"
        where = f"{error.where}, " if error.where else ""
        yield f"{error.stage} raised {error.type}: {error.message} ({where}{place})"
    if result.first is not None:
        yield from _first(result.first)


def _rest(result: SessionResult) -> Iterator[str]:
    for item in result.differences[:_MOST]:
        if item.place:
            yield f"choice {item.choice}, {_spaced(item.kind)}: {item.place}"
            continue
        kind = f" ({_spaced(item.kind)})" if item.kind in _NAMED else ""
        yield f"choice {item.choice}, {in_words(item)}{kind}"
    if len(result.differences) > _MOST:
        yield f"and {_count(len(result.differences) - _MOST, 'more difference')} of the message: see --json"
    if result.faults_appeared:
        yield f"faults that appeared: {', '.join(result.faults_appeared)}"
    if result.faults_gone:
        yield f"faults that went: {', '.join(result.faults_gone)}"
    yield from result.notes


def _first(first: Divergence) -> Iterator[str]:
    """The worst difference of the message, and the first place, which may be another matter."""
    worst = f"worst: {_spaced(first.worst)}; " if first.worst else ""
    split = "" if first.split == "recorded" else f" under split {first.split}"
    if _is_told(first):
        # Both sides stand among the differences of the message; under a split those are not told.
        place = f"upstream's frame {first.frame}" if first.frame >= 0 else "the upstream's stream"
        yield f"{worst}first{split}: {first.detail if split else f'{_spaced(first.kind)} at {place}'}"
    else:
        layer = f"{first.track}/{first.layer}" if first.track else first.layer
        where = f"{layer} {first.seq}" if first.seq >= 0 else f"{layer} layer"
        yield f"{worst}first: {where}{split}, {_parting(first)}"
    if first.cause < 0 <= first.frame and first.input:
        yield f"cause: upstream's frame {first.frame}: {first.input}"
    if first.cause >= 0:
        yield f"cause: engine {first.cause}: {first.input or 'no recorded input'}"


def _is_told(first: Divergence) -> bool:
    """It is a place of another server's stream, and ``detail`` has both sides."""
    return first.worst is not None and first.track == "upstream"


def _parting(first: Divergence) -> str:
    """What differs at the first place: the events' names, or where in the event, or what else of it."""
    mine, theirs = (side.type if side is not None else "nothing" for side in (first.recorded, first.replayed))
    if mine != theirs:
        return f"{mine} → {theirs}"
    told = [_spaced(first.kind)] if first.kind in _ELSE or not first.detail else []
    told += [first.detail] if first.detail else []
    return ": ".join(told) if first.recorded is None else f"{mine} ({': '.join(told)})"


def _spaced(kind: str) -> str:
    return kind.replace("_", " ")


def _sides(first: Divergence, *, plain: bool) -> Table:
    table = Table(box=ASCII2 if plain else SIMPLE_HEAD, expand=False)
    for name in ("recorded", "replayed"):
        table.add_column(name, ratio=1, overflow="fold")
    table.add_row(_side(first.recorded), _side(first.replayed))
    return table


def _side(side: Side | None) -> Text:
    if side is None:
        return Text("nothing", "dim")
    place = f" (engine {side.cause})" if side.cause >= 0 else ""
    return Text(f"{side.seq}{place}: {side.event}")
