"""The command line. Exit codes: 0 done, 1 something differs or failed, 2 usage, 3 unreadable, 130 interrupted."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

import click

_COMMANDS: Final = {
    "check": ("check", "check"), "export": ("sessions", "export"), "import": ("import_", "import_"),
    "parse": ("parse", "parse"), "play": ("play", "play"), "replay": ("replay", "replay"), "serve": ("serve", "serve"),
    "sessions": ("sessions", "sessions"), "validate": ("validate", "validate"),
}  # fmt: skip
"""Each command's module in this package, and what it is called there."""


class _Commands(click.Group):
    """Imports a command when it is asked for: the others would take longer than most of what it does. Ctrl-C ends it
    without a traceback, also while it is imported."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, name = _COMMANDS[cmd_name]
        command: click.Command = getattr(import_module(f"pipeline.cli.{module}"), name)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(130)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="playhead")
def main() -> None:
    """Serve a model's stream, record every step, replay it through a changed parser."""
