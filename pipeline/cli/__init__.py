"""The command line. Exit codes: 0 done, 1 something differs or failed, 2 usage, 3 unreadable."""

from __future__ import annotations

import click

from pipeline.cli.check import check
from pipeline.cli.import_ import import_
from pipeline.cli.parse import parse
from pipeline.cli.replay import replay
from pipeline.cli.serve import serve
from pipeline.cli.sessions import export, sessions
from pipeline.cli.validate import validate


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="playhead")
def main() -> None:
    """Serve a model's stream, record every step, replay it through a changed parser."""


main.add_command(serve)
main.add_command(sessions)
main.add_command(replay)
main.add_command(parse)
main.add_command(check)
main.add_command(validate)
main.add_command(export)
main.add_command(import_, "import")
