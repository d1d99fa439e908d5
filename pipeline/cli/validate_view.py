"""What ``playhead validate`` found: counted, as JSON lines, and on a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, Literal, TypeAlias

import msgspec
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pipeline.cli.view import indented, listed, plain
from replay import Unreadable
from stages.protocols.rules import PROTOCOLS, RULES, Protocol, Report, Rule, Violation

STYLES: dict[str, str] = {"error": "bold red", "warning": "yellow"}
WANTS = {
    "request": "the request", "http": "the response's head", "writes": "the times of its writes",
    "engine": "what the engine generated", "meant": "what the parser made of it", "whole": "the same without streaming",
    "replayed": "what the encoder makes of it again", "sent": "what the socket took", "effort": "time",
    "other": "the same in another protocol", "decoder": "a decoder of it (Playhead's own streams have one)",
    "stream": "an event stream",
}  # fmt: skip


def in_words(text: str) -> str:
    """A rule's line as people are shown it."""
    return text.replace("``", "`")


_TEXTS = {rule.name: in_words(rule.text) for rule in RULES}
_WIDE = 1000
_MOST = 8
"""Lines of a kind that are shown."""


class Judged(msgspec.Struct, frozen=True):
    """A response that was held to the rules. ``size``: bytes of its body; ``session``, ``state``: of a recorded one."""

    source: str
    protocol: Protocol
    size: int
    report: Report
    session: str = ""
    state: str = ""

    @property
    def errors(self) -> int:
        """Breaches that are errors."""
        return sum(self.report.error_counts.values())

    @property
    def warnings(self) -> int:
        """The other breaches."""
        return sum(self.report.counts.values()) - self.errors


class Unfinished(msgspec.Struct, frozen=True):
    """A session that is still being recorded."""

    source: str
    session: str


Found: TypeAlias = Judged | Unreadable | Unfinished


class Tally:
    """All that was found, counted."""

    def __init__(self) -> None:
        self.streams = 0
        self.errors = self.warnings = 0
        """Breaches."""
        self.with_errors = 0
        self.broken = 0
        """Responses with any breach."""
        self.unfinished = 0
        self.unreadable: list[Unreadable] = []
        self.checked: Counter[int] = Counter()
        self.unchecked: Counter[tuple[tuple[str, ...], int]] = Counter()
        """What was missing, and the rule's number → responses."""
        self.rules: Counter[str] = Counter()

    def add(self, one: Found) -> None:
        """The next."""
        if isinstance(one, Unreadable):
            self.unreadable.append(one)
        elif isinstance(one, Unfinished):
            self.unfinished += 1
        else:
            self.streams += 1
            self.errors, self.warnings = self.errors + one.errors, self.warnings + one.warnings
            self.with_errors += one.errors > 0
            self.broken += bool(one.report.counts)
            self.checked.update(one.report.checked)
            self.unchecked.update((missing, number) for number, missing in one.report.unchecked.items())
            self.rules.update(one.report.counts)

    def failing(self, on: Literal["error", "warning"]) -> bool:
        """Something as bad as this was found."""
        return (self.with_errors if on == "error" else self.broken) > 0


# --- JSON lines -------------------------------------------------------------------------------------------------------


class _Line(msgspec.Struct, omit_defaults=True):
    source: str
    session: str = ""


class _Breach(_Line, kw_only=True):
    rule: str
    key: str
    severity: str
    frame: int
    byte: int
    seen: str
    want: str


class _Stream(_Line, kw_only=True):
    protocol: str
    bytes: int
    errors: int
    warnings: int
    counts: dict[str, int]
    checked: tuple[int, ...]
    unchecked: dict[int, tuple[str, ...]]


class _Error(_Line, kw_only=True):
    error: str


def lines_of(one: Found) -> Iterator[bytes]:
    """The JSON lines: one for each breach, then one for the response; or one that says why there are none."""
    lines: list[_Line] = []
    if isinstance(one, Unreadable):
        lines.append(_Error(one.source, one.session, error=one.error))
    elif isinstance(one, Unfinished):
        lines.append(_Error(one.source, one.session, error="it is still being recorded"))
    else:
        report = one.report
        lines += [
            _Breach(
                one.source, one.session, rule=each.rule, key=each.key, severity=each.severity, frame=each.frame,
                byte=each.byte, seen=each.seen, want=in_words(each.want),
            )
            for each in report.violations
        ]  # fmt: skip
        lines.append(
            _Stream(
                one.source, one.session, protocol=one.protocol, bytes=one.size, errors=one.errors,
                warnings=one.warnings, counts=report.counts, checked=report.checked, unchecked=report.unchecked,
            )
        )  # fmt: skip
    for line in lines:
        yield msgspec.json.encode(line) + b"\n"


# --- the terminal -----------------------------------------------------------------------------------------------------


def show_stream(to: Console, one: Judged, limit: int) -> None:
    """A response and what is broken in it, rule by rule, errors first. ``limit``: places shown of each rule."""
    worst = "error" if one.errors else "warning"
    of = "  ".join(part for part in (one.protocol, one.state, f"{one.size} bytes") if part)
    head = Text.assemble((_breaches(one.errors, one.warnings), STYLES[worst]), "  ", (plain(one.source), "bold"))
    if one.session:
        head.append(f"  {plain(one.session)}")
    head.append(f"  {of}", "dim")
    to.print(head)
    by_rule: dict[tuple[str, str], list[Violation]] = {}
    for each in sorted(one.report.violations, key=lambda each: each.severity):
        by_rule.setdefault((each.severity, each.rule), []).append(each)
    frames = max(len(str(each.frame)) for each in one.report.violations)
    offsets = max(len(str(each.byte)) for each in one.report.violations)
    for (severity, rule), places in by_rule.items():
        label = Text.assemble((f"{severity:<7}", STYLES[severity]), f"  {rule} {places[0].key}")
        _row(to, 2, label, Text(_TEXTS.get(rule, ""), "dim"))
        for each in places[:limit]:
            _row(to, 4, Text(_where(each, frames, offsets), "cyan"), _seen(each))
        errors = one.report.error_counts.get(rule, 0)
        left = (errors if severity == "error" else one.report.counts[rule] - errors) - len(places[:limit])
        if left > 0:
            indented(to, Text(f"and {_count(left, 'more place')}", "dim"), 4)
    to.print()


def _breaches(errors: int, warnings: int) -> str:
    told = ((errors, "error"), (warnings, "warning"))
    return ", ".join(_count(number, what) for number, what in told if number)


def _row(to: Console, by: int, label: Text, text: Text) -> None:
    """Two columns; what is folded stays in its own."""
    if to.soft_wrap:
        to.print(Text.assemble(" " * by, label, "  ", text))
        return
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(label, text)
    to.print(Padding(grid, (0, 0, 0, by), expand=False))


def _where(each: Violation, frames: int, offsets: int) -> str:
    where = f"frame {each.frame:>{frames}}  byte {each.byte:>{offsets}}"
    return "the response".ljust(len(where)) if each.frame < 0 else where


def _seen(each: Violation) -> Text:
    text = Text(plain(each.seen))
    if in_words(each.want) != _TEXTS.get(each.rule):
        text.append(f"; right: {plain(in_words(each.want))}", "dim")
    return text


def show_summary(to: Console, tally: Tally, limit: int) -> None:
    """What was judged, by how many rules, and which could not be, for want of what."""
    if tally.broken > limit:
        to.print(
            f"and {_count(tally.broken - limit, 'more response')}: --limit {tally.broken} or --json F shows them\n"
        )
    told = (f"{one.source}{f' session {one.session}' if one.session else ''}: {one.error}" for one in tally.unreadable)
    listed(to, "unreadable", "bold magenta", list(told), _MOST)
    for missing, numbers in _unchecked(tally):
        _row(to, 0, Text("not checked", "dim"), Text(f"{numbers}, for want of {missing}", "dim"))
    line = Text(_count(tally.streams, "response"))
    if tally.streams:
        line.append(f", {_count(len(tally.checked), 'rule')} checked: ").append(*_verdict(tally))
    if tally.unfinished:
        line.append(f"; {_count(tally.unfinished, 'session')} still being recorded", "yellow")
    if tally.unreadable:
        line.append(f"; {len(tally.unreadable)} unreadable", "bold magenta")
    to.print(line)


def _verdict(tally: Tally) -> tuple[str, str]:
    """In words, and their style."""
    if not tally.broken:
        return "clean" if tally.streams == 1 else "all clean", "green"
    told = _breaches(tally.errors, tally.warnings)
    if tally.streams > 1:
        counts = (tally.with_errors, tally.broken - tally.with_errors, tally.streams - tally.broken)
        kinds = zip(counts, ("with errors", "with warnings only", "clean"), strict=True)
        told = ", ".join(f"{count} {kind}" for count, kind in kinds if count)
    return told, STYLES["error" if tally.errors else "warning"]


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _unchecked(tally: Tally) -> Iterator[tuple[str, str]]:
    """(what is missing, the rules) in the order of the rules; where only some responses lack it, how many do."""
    grouped: dict[tuple[tuple[str, ...], int], list[int]] = {}
    for (missing, number), count in tally.unchecked.items():
        grouped.setdefault((missing, count), []).append(number)
    for (missing, count), numbers in sorted(grouped.items(), key=lambda item: min(item[1])):
        words = " and ".join(WANTS.get(need, need) for need in missing)
        if count < tally.streams:
            words += f" ({count} of {tally.streams} responses)"
        yield words, f"INV-{', '.join(_ranges(numbers))}"


def _ranges(numbers: Iterable[int]) -> Iterator[str]:
    for _, run in groupby(enumerate(sorted(numbers)), key=_apart):
        found = [number for _, number in run]
        yield f"{found[0]:03}" if len(found) == 1 else f"{found[0]:03}-{found[-1]:03}"


def _apart(item: tuple[int, int]) -> int:
    return item[1] - item[0]


def show_rules(to: Console) -> None:
    """All rules."""
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for name in ("rule", "key", "", "protocols", "needs", "what is right"):
        table.add_column(name, overflow="fold", no_wrap=name in ("rule", "key"))
    for rule in RULES:
        table.add_row(*_rule(rule))
    if to.soft_wrap:
        # Not a terminal: a line for each rule, however long.
        to.width = _WIDE
        to.width = to.measure(table).maximum
    to.print(table)
    to.print(Text("\nE: an error. O: an error in streams of our own, else a warning. W: a warning.", "dim"))


def _rule(rule: Rule) -> tuple[Any, ...]:
    protocols = "all" if rule.protocols == PROTOCOLS else ", ".join(rule.protocols)
    needs = ", ".join(sorted(rule.needs))
    style = {"E": STYLES["error"], "O": "magenta", "W": STYLES["warning"]}[rule.severity]
    return Text(rule.name, "bold"), rule.key, Text(rule.severity, style), protocols, needs, _TEXTS[rule.name]
