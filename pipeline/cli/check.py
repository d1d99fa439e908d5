"""``playhead check``: case files, each case under every split."""

from __future__ import annotations

import sys
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.text import Text

from pipeline.cli.view import console, indented, listed, plain
from replay import ReplayError, parse_splits, resolve
from replay.check import CheckReport, Failed, check_files, exit_code
from replay.expected import in_words
from replay.split import SPLITS

_MOST = 20
"""Lines of a kind that are shown."""


@click.command()
@click.argument("cases", nargs=-1, required=True)
@click.option("--splits", default=None, metavar="S",
              help=f"{', '.join(SPLITS)}; joined by commas. Default: those that apply of the first six.",
              )  # fmt: skip
@click.option("--calls", type=click.Choice(["incremental", "whole", "both"]), default="incremental", show_default=True,
              help="The call policy, for cases that do not name theirs.")  # fmt: skip
@click.option("--parser", default=None, metavar="P", help="This parser instead of the one that each case names.")
@click.option("--trim", is_flag=True, help="White space at the ends of reasoning and content does not matter.")
@click.option("--limit", default=20, show_default=True, type=click.IntRange(0), help="Failures shown in full.")
@click.option("--json", "json_file", default=None, type=click.Path(dir_okay=False), metavar="F",
              help="Write the report as JSON (- is standard output, which then holds nothing else).")  # fmt: skip
def check(
    cases: tuple[str, ...], splits: str | None, calls: Any, parser: str | None, trim: bool, limit: int,
    json_file: str | None,
) -> None:  # fmt: skip
    """Run the cases of case files, each under every split, and compare with what they expect.

    CASES: files of one JSON object a line (- is standard input). Exit code: 0 all hold, 1 one does not, 2 usage,
    3 a file, a line or a parser cannot be had.
    """
    try:
        wanted = None if splits is None else parse_splits(splits)
        if parser is not None and parser != "auto":
            resolve(parser)
    except ReplayError as error:
        raise click.UsageError(str(error)) from error
    to = console()
    quiet = json_file == "-"
    shown = 0

    def failed(one: Failed) -> None:
        nonlocal shown
        shown += 1
        if not quiet and shown <= limit:
            _failed(to, one)

    report = check_files(cases, wanted, calls, parser, trim=trim, on_failed=failed)
    if json_file is not None:
        _write(json_file, msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
    if not quiet:
        if shown > limit:
            to.print(f"and {shown - limit} more: --limit {shown} or --json F shows them\n")
        _rest(to, report)
    if wanted is not None and report.cases and not report.runs and not report.unreadable:
        raise click.UsageError(f"no case allows the splits {','.join(wanted)}: nothing was compared")
    sys.exit(exit_code(report))


def _write(path: str, data: bytes) -> None:
    if path == "-":
        click.echo(data, nl=False)
        return
    try:
        with open(path, "wb") as file:
            file.write(data)
    except OSError as error:
        raise click.UsageError(f"cannot write {path}: {error.strerror}") from error


def _failed(to: Console, one: Failed) -> None:
    to.print(Text.assemble(("failed", "bold red"), "  ", (plain(one.id), "bold"), (f"  {plain(one.where)}", "dim")))
    indented(to, plain(f"parser {one.parser}; calls {one.calls}; splits {', '.join(one.splits)}"))
    for item in one.differences[:_MOST]:
        for line in in_words(item).splitlines():
            indented(to, plain(line.lstrip()), 4 if line.startswith(" ") else 2)
    if len(one.differences) > _MOST:
        indented(to, f"and {len(one.differences) - _MOST} more differences: --json F shows them")
    to.print()


def _rest(to: Console, report: CheckReport) -> None:
    alike: dict[str, list[str]] = {}
    for one in report.unreadable:
        alike.setdefault(one.error, []).append(one.where)
    told = (f"{first}: {error}{f' (and {len(rest)} more)' if rest else ''}" for error, (first, *rest) in alike.items())
    listed(to, "unreadable", "bold magenta", list(told), _MOST)
    listed(to, "note", "yellow", report.notes, _MOST)
    line = Text(f"{report.cases} case{'' if report.cases == 1 else 's'}, {report.runs} runs")
    if report.failing:
        line.append(f": {report.failing} failed", "bold red")
    elif report.runs:
        line.append(": all hold", "green")
    if report.unreadable:
        line.append(f"; {len(report.unreadable)} unreadable", "bold magenta")
    to.print(line)
