"""``playhead serve --engine upstream``: its options, and what they put together."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import click
from starlette.applications import Starlette

from pipeline.cli.ranges import Range
from pipeline.config import Config
from pipeline.http.host import Host
from pipeline.recorder import Recorder

F = TypeVar("F", bound=Callable[..., Any])
_OWN = (
    "depth", "tokenizer", "key_env", "connect_timeout", "first_token_timeout", "token_timeout", "retries",
)  # fmt: skip
"""Settings of an upstream that is named by its URL; a file has its own."""


_OPTIONS = (
    click.option("--upstream", default=None, metavar="URL|FILE.toml",
                  help="upstream: a server's URL, or a TOML file that names several (docs/proxy.md)."),
    click.option("--upstream-protocol", type=click.Choice(["all", "chat", "completions", "responses", "messages"]),
                  default="all", show_default=True,
                  help="upstream: the protocol that it speaks; requests in others are translated (docs/translate.md)."),
    click.option("--depth", type=click.Choice(["auto", "tokens", "text", "verbatim"]), default="auto",
                 show_default=True, help="upstream: the most that is recorded of what the model wrote."),
    click.option("--tokenizer", default=None, metavar="T",
                  help="upstream: its model's tokenizer, a folder, file or name; without it ids stay ids."),
    click.option("--key-env", default=None, metavar="NAME",
                  help="upstream: environment variable with the key that replaces the clients'."),
    click.option("--connect-timeout", default=5.0, show_default=True, type=Range(0, min_open=True),
                  help="upstream: seconds for a connection."),
    click.option("--first-token-timeout", default=300.0, show_default=True, type=Range(0, min_open=True),
                  help="upstream: seconds until the first byte of an answer."),
    click.option("--token-timeout", default=120.0, show_default=True, type=Range(0, min_open=True),
                  help="upstream: seconds between two reads of an answer."),
    click.option("--retries", default=2, show_default=True, type=click.IntRange(0, 10),
                  help="upstream: times to ask again before the first byte."),
)  # fmt: skip


def upstream_options(command: F) -> F:
    """Gives a command the options."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def check_upstream(config: Config) -> None:
    """Raises UsageError for options that would have no effect, or cannot be together."""
    given = [name for name in (*_OWN, "upstream_protocol") if getattr(config, name) != getattr(Config(), name)]
    if config.engine != "upstream":
        if config.upstream is not None or given:
            raise click.UsageError(f"--{'upstream' if config.upstream else _option(given[0])} needs --engine upstream")
        return
    if config.upstream is None:
        raise click.UsageError("--engine upstream needs --upstream URL, or a TOML file that names several")
    given += ["parser"] if config.parser is not None else []
    if config.upstream.endswith(".toml") and given:
        raise click.UsageError(f"--{_option(given[0])} is for one --upstream URL: say it in {config.upstream}")
    if not config.upstream.endswith(".toml") and config.parser is not None and config.tokenizer is None:
        raise click.UsageError("--parser with --engine upstream reads tokens: it needs --tokenizer")
    if config.served_name is not None:
        raise click.UsageError("--served-name: the models of upstreams keep their names")


def _option(name: str) -> str:
    return name.replace("_", "-")


@asynccontextmanager
async def hosted(config: Config, recorder: Recorder) -> AsyncGenerator[tuple[Host, Starlette]]:
    """The proxy that the settings describe, running, and its application."""
    try:
        from pipeline.http import proxy
        from pipeline.upstream.pool import Pool
        from pipeline.upstream.settings import BadSettings, UpstreamSettings, from_file, from_url
    except ImportError as error:
        raise click.ClickException(
            f"--engine upstream needs aiohttp and tenacity ({error.name} is missing): pip install 'playhead[proxy]'"
        ) from error
    where = config.upstream or ""
    try:
        if not where.endswith(".toml"):
            own = {name: getattr(config, name) for name in _OWN}
            if config.upstream_protocol != "all":
                own["protocols"] = (config.upstream_protocol,)
            settings: tuple[UpstreamSettings, ...] = (from_url(where, os.environ, parser=config.parser, **own),)
        else:
            settings = from_file(Path(where), os.environ)
    except BadSettings as error:
        raise click.UsageError(str(error)) from error
    async with Pool(settings, strip=bool(config.keys)) as pool:
        made = proxy.Proxy(config, pool, recorder)
        yield made, proxy.app(made)
