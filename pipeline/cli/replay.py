"""``playhead replay``: recorded sessions through a parser, and what comes out differently."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from functools import partial
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from pipeline.cli import outputs
from replay import DEPTHS, VERDICTS, Replayer, ReplayError, RunReport, exit_code, parse_splits, print_report, run_replay
from replay.corpus import again, load
from replay.mass.spool import Results
from replay.report import write_json
from replay.reports import examples
from replay.split import SPLITS
from replay.text import printable
from stages.errors import StagesError

_ROWS = 10
"""Rows of both sides of an example, on a terminal."""
_NAMED = 3
"""Sources that a note names."""


def _jobs() -> int:
    """The CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@click.command()
@click.argument("source", nargs=-1, required=True)
@click.option("--parser", default=None, metavar="P",
              help="A catalog name, auto, file.py:Attr, package.module:Attr, or another engine's: vllm:NAME, "
              "sglang:NAME, template, openai_harmony. Default: the recorded one.")  # fmt: skip
@click.option("--baseline", default=None, metavar="B",
              help="What to compare with: recorded (the default), another parser, or FILE.json, the report of an "
              "earlier run.")  # fmt: skip
@click.option("--splits", default="recorded", show_default=True, metavar="S",
              help=f"{', '.join(SPLITS)}; joined by commas.")  # fmt: skip
@click.option("--cut", is_flag=True, help="Also end every session early, at each of its tokens.")
@click.option("--layer", type=click.Choice(DEPTHS), default="frame", show_default=True, help="How deep to compare.")
@click.option("--track", default=None, metavar="T",
              help="The track to compare with: served, upstream, shadow:P. Default: what the client got.")  # fmt: skip
@click.option("--compare", default=None, metavar="F",
              help="file.py:function that finds the differences of messages, in place of the built-in "
              "comparison.")  # fmt: skip
@click.option("--ignore", multiple=True, metavar="F",
              help="file.py:function that tells whether a difference is left out; may be repeated.")  # fmt: skip
@click.option("--session", multiple=True, help="Only this session (an id or the start of one); may be repeated.")
@click.option("--jobs", type=click.IntRange(min=1), default=_jobs, show_default="the CPUs", metavar="N",
              help="Worker processes. With 1, and for a few sessions of our own parsers, all runs in this process: "
              "good for debuggers, and without a time limit.")  # fmt: skip
@click.option("--time-limit", type=click.FloatRange(min=0, min_open=True), default=60.0, show_default=True,
              metavar="S", help="Seconds that a session may take; then it is failed.")  # fmt: skip
@click.option("--resume", default=None, type=click.Path(dir_okay=False), metavar="F",
              help="Keep the results in this file as they come, and go on where it ends.")  # fmt: skip
@click.option("--peer-python", multiple=True, metavar="PATH",
              help="The Python that runs other engines' parsers; LABEL=PATH is that of vllm@LABEL:NAME; may be "
              "repeated.")  # fmt: skip
@click.option("--tokenizer", default=None, metavar="PATH",
              help="A tokenizer for other engines' parsers that need a real one.")  # fmt: skip
@click.option("--fail-on", type=click.Choice(VERDICTS[1:]), default="changed", show_default=True,
              help="The nearest verdict to same that makes the exit code 1.")  # fmt: skip
@click.option("--fail-fast", is_flag=True, help="Stop at the first session that is changed or failed.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    help="Kinds of difference, or of a few sessions each, shown in full.",
)
@click.option("--json", "json_file", default=None, type=click.Path(dir_okay=False), metavar="F",
              help="Write the report as JSON (- is standard output, which then holds nothing else).")  # fmt: skip
@click.option("--html", "html_file", default=None, type=click.Path(dir_okay=False), metavar="F",
              help="Write the report as one HTML file.")  # fmt: skip
@click.option("--junit", "junit_file", default=None, type=click.Path(dir_okay=False), metavar="F",
              help="Write the report as JUnit XML.")  # fmt: skip
def replay(
    source: tuple[str, ...], session: tuple[str, ...], splits: str, limit: int, fail_on: Any,
    json_file: str | None, html_file: str | None, junit_file: str | None, **options: Any,
) -> None:  # fmt: skip
    """Re-derive recorded sessions and compare, layer by layer, with what was recorded.

    SOURCE: a store, a trace file, or a folder of them. Ctrl-C ends the run and keeps what was done. Exit code: 0
    nothing changed, 1 changed or failed, 2 usage, 3 something could not be read, or a session's parser is not found,
    130 interrupted.
    """
    files = (("--json", json_file), ("--html", html_file), ("--junit", junit_file))
    outputs.check(files, source, _also_read(options), options["resume"])
    try:
        asked: dict[str, Any] = {"splits": parse_splits(splits), "sessions": session, **options}
        with _progress() as on_progress:
            report = run_replay(source, on_progress=on_progress, **asked)
        replayer = again(**asked)
    except (ReplayError, StagesError) as error:
        raise click.UsageError(str(error)) from error
    _note(report)
    # Kept at once: whoever has pressed Ctrl-C may press it again.
    kept = _kept(report, options["resume"]) if report.interrupted else ""
    out = outputs.Outputs()
    try:
        if json_file != "-":
            aligned = partial(examples.aligned, load=load, replayer=replayer, limit=_ROWS)
            out.write(outputs.STDOUT, lambda: print_report(report, sys.stdout, limit=limit, aligned=aligned))
        else:
            out.write(outputs.STDOUT, lambda: write_json(report, sys.stdout.buffer))
        _write_files(out, report, replayer, fail_on, files)
    except KeyboardInterrupt:
        outputs.say(f"Interrupted while the report was written. {kept or _kept(report, options['resume'])}")
        sys.exit(130)
    if out.failed:
        kept = kept or _kept(report, options["resume"])
    if kept:
        outputs.say(f"{'Interrupted.' if report.interrupted else 'The report is not complete.'} {kept}")
    if out.failed:
        raise click.UsageError("; ".join(out.failed))
    sys.exit(exit_code(report, fail_on))


def _write_files(
    out: outputs.Outputs, report: RunReport, replayer: Replayer, fail_on: Any,
    files: Iterable[tuple[str, str | None]],
) -> None:  # fmt: skip
    def html(path: str) -> None:
        from replay.reports import html  # its templates take long to import

        html.write(report, path, load, replayer)

    def junit(path: str) -> None:
        from replay.reports import junit

        junit.write(report, path, fail_on)

    def json(path: str) -> None:
        with open(path, "wb") as file:
            write_json(report, file)

    writers = {"--json": json, "--html": html, "--junit": junit}
    for option, path in files:
        if path is not None and (option, path) != ("--json", "-"):
            out.write(path, partial(writers[option], path))


def _also_read(options: dict[str, Any]) -> Iterable[str]:
    """The files that options name: ``file.py:Attr``, ``vllm:FILE.py:NAMES``, ``FILE.json``, ``LABEL=PATH``."""
    names = (options["parser"], options["baseline"], options["compare"], options["tokenizer"], *options["ignore"])
    for name in filter(None, names):
        yield from (name, name.rpartition(":")[0], *(part for part in name.split(":") if part.endswith(".py")))
    yield from (path.rpartition("=")[2] for path in options["peer_python"])


def _note(report: RunReport) -> None:
    for what, names in (
        ("Given more than once, counted once", report.counted_once),
        ("Left out, as they hold results of a replay", report.left_out),
    ):
        if names:
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            outputs.say(printable(f"{what}: {', '.join(names[:_NAMED])}{more}"))


def _kept(report: RunReport, resume: str | None) -> str:
    """Keep the results of a run; returns how to go on."""
    results = report.sessions
    command = ["playhead", *sys.argv[1:]]
    if isinstance(results, Results) and resume is None:
        resume = time.strftime("playhead-replay-%Y%m%d-%H%M%S.jsonl")
        try:
            results.keep(resume)
        except OSError:  # where they are now is better than nowhere
            resume = results.path
            results.keep(resume)
        command += ["--resume", resume]
    return f"What was done is kept. To go on:\n  {shlex.join(command)}"


@contextmanager
def _progress() -> Generator[Callable[[int, int | None], None] | None]:
    """A bar with the rate on standard error, if that is a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (
        TextColumn("replay"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )  # fmt: skip
    begun = time.monotonic()
    with Progress(*columns, console=console, transient=True, refresh_per_second=5) as bar:
        task = bar.add_task("replay", total=None, rate="")
        told = begun

        def tell(done: int, expected: int | None) -> None:
            nonlocal told
            now = time.monotonic()
            if now - told >= 0.1:
                told = now
                total = None if expected is None else max(expected, done)
                bar.update(task, completed=done, total=total, rate=f"{done / (now - begun):,.0f} sessions/s")

        yield tell
