"""``playhead replay``: recorded sessions through a parser, and what comes out differently."""

from __future__ import annotations

import sys
from typing import Any

import click

from replay import DEPTHS, VERDICTS, ReplayError, exit_code, parse_splits, print_report, run_replay, to_json
from stages.errors import StagesError


@click.command()
@click.argument("source", nargs=-1, required=True)
@click.option("--parser", default=None, metavar="P",
              help="A catalog name, auto, file.py:Attr or package.module:Attr. Default: the recorded one.")  # fmt: skip
@click.option("--splits", default="recorded", show_default=True, metavar="S",
              help="recorded, one, token, marker, char, rand:SEED:MAX; joined by commas.")  # fmt: skip
@click.option("--layer", type=click.Choice(DEPTHS), default="frame", show_default=True, help="How deep to compare.")
@click.option("--track", default=None, metavar="T",
              help="The track to compare with: served, upstream, shadow:P. Default: what the client got.")  # fmt: skip
@click.option("--session", multiple=True, help="Only this session (an id or the start of one); may be repeated.")
@click.option("--fail-on", type=click.Choice(VERDICTS[1:]), default="changed", show_default=True,
              help="The nearest verdict to same that makes the exit code 1.")  # fmt: skip
@click.option("--fail-fast", is_flag=True, help="Stop at the first session that is changed or failed.")
@click.option("--limit", default=20, show_default=True, help="Sessions shown in full.")
@click.option("--json", "json_file", default=None, type=click.Path(dir_okay=False), metavar="F",
              help="Write the report as JSON (- is standard output, which then holds nothing else).")  # fmt: skip
def replay(
    source: tuple[str, ...], parser: str | None, splits: str, layer: Any, track: str | None,
    session: tuple[str, ...], fail_on: Any, fail_fast: bool, limit: int, json_file: str | None,
) -> None:  # fmt: skip
    """Re-derive recorded sessions and compare, layer by layer, with what was recorded.

    SOURCE: a store, a trace file, or a folder of them. Exit code: 0 nothing changed, 1 changed or failed, 2 usage,
    3 something could not be read, or a session's parser is not found.
    """
    try:
        report = run_replay(
            source, parser, parse_splits(splits), layer, track=track, sessions=session, fail_fast=fail_fast
        )
    except (ReplayError, StagesError) as error:
        raise click.UsageError(str(error)) from error
    if json_file == "-":
        click.echo(to_json(report), nl=False)
    else:
        print_report(report, sys.stdout, limit=limit)
        if json_file is not None:
            try:
                with open(json_file, "wb") as file:
                    file.write(to_json(report))
            except OSError as error:
                raise click.UsageError(f"cannot write {json_file}: {error.strerror}") from error
    sys.exit(exit_code(report, fail_on))
