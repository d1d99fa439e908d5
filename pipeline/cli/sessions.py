"""``playhead sessions``, ``export``: look at a store, and take sessions out of it as trace files."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import click
import msgspec
from rich.console import Console
from rich.text import Text

from pipeline.cli.session_view import describe, show_session, when
from pipeline.cli.tokens import show_tokens
from stages.events import LAYERS
from store import open_store, trace
from store.api import BadQuery, EventStore, SessionInfo, StoreError

STORE = click.option("--store", default="playhead.db", show_default=True, help="The SQLite file.")


def unreadable(error: Exception) -> NoReturn:
    """Exit 3 with the message."""
    click.echo(f"Error: {error}", err=True)
    sys.exit(3)


def opened(path: str) -> EventStore:
    """An existing store; exit 3 when there is none."""
    try:
        return open_store(path, create=False)
    except StoreError as error:
        unreadable(error)


class _Listing(click.Group):
    """Lists where no command is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """See click."""
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_Listing)
def sessions() -> None:
    """List, show and search recorded sessions. With options only, or nothing, it lists."""


@sessions.command("list")
@STORE
@click.option("--where", default=None, metavar="SQL", help="Only sessions that a condition holds for; see above.")
@click.option("--limit", default=20, show_default=True, help="At most so many.")
@click.option("--state", default=None,
              type=click.Choice(["open", "closed", "aborted", "detached", "torn", "incomplete"]),
              help="Only sessions in this state.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def list_(store: str, where: str | None, limit: int, state: Any, as_json: bool) -> None:
    """The newest sessions.

    SQL is a condition over the columns of a session; a wrong one is answered with their names. Lists and the like
    are JSON. Some examples:

    \b
    --where "protocol = 'messages'"         asked in this protocol
    --where "differs != ''"                 another parser's message differs, or it failed
    --where "depth = 'verbatim'"            only what the upstream made of it is known
    --where "json_extract(shadows, '$.hermes') = 'changed'"
    --where "model like 'qwen%' and completion_tokens > 1000"
    --where "ttft_ns > 2e9 or max_gap_ns > 1e9"
    """
    if not _print(opened(store).sessions(where, state=state, limit=limit), as_json) and not as_json:
        click.echo("no sessions", err=True)


@sessions.command()
@click.argument("text")
@STORE
@click.option("--limit", default=20, show_default=True, help="At most so many.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def search(text: str, store: str, limit: int, as_json: bool) -> None:
    """Full-text search over the final messages."""
    if not _print(opened(store).search(text, limit=limit), as_json) and not as_json:
        click.echo(f"no answer contains {text!r} (whole words of final messages are searched)", err=True)


@sessions.command()
@click.argument("session")
@STORE
@click.option("--layer", type=click.Choice(LAYERS), default=None, help="Only this layer.")
@click.option("--tokens", is_flag=True, help="Instead of the events, each generated token and what its bytes became.")
@click.option("--json", "as_json", is_flag=True, help="The session as a trace file.")
def show(session: str, store: str, layer: Any, tokens: bool, as_json: bool) -> None:
    """One session, event by event. SESSION is an id or the start of one."""
    try:
        found = opened(store).load(session)
    except StoreError as error:
        unreadable(error)
    if as_json:
        click.echo(trace.dumps(found), nl=False)
        return
    console = Console()
    if tokens:
        describe(console, found)
        show_tokens(console, found)
    else:
        show_session(console, found, layer)


@sessions.command()
@click.argument("session", nargs=-1, required=True)
@STORE
def delete(session: tuple[str, ...], store: str) -> None:
    """Delete sessions for good. SESSION is an id or the start of one.

    What sessions share, such as prompts, stays in the file; and a file does not shrink: see docs/recording.md.
    """
    source = opened(store)
    try:
        for name in session:
            source.delete(name)
            click.echo(f"deleted {name}")
    except StoreError as error:
        unreadable(error)
    finally:
        source.close()


def _print(found: Iterator[SessionInfo], as_json: bool) -> int:
    """Returns how many there were."""
    count = 0
    try:
        if as_json:
            for info in found:
                click.echo(msgspec.json.encode(info))
                count += 1
        else:
            infos = list(found)
            count = len(infos)
            if infos:
                _list(Console(highlight=False), infos)
    except BadQuery as error:
        raise click.UsageError(f"--where: {error}") from error
    except StoreError as error:
        unreadable(error)
    return count


def _list(console: Console, infos: list[SessionInfo]) -> None:
    """A line a session. In a narrow terminal it is the message, at its end, that is cut."""
    rows = [_row(info) for info in infos]
    several = len({info.protocol for info in infos}) > 1
    shown = _ALWAYS | {"protocol"} if several else _ALWAYS
    heads = [head for head in _HEADS if head in shown or (head != "protocol" and any(row[head] for row in rows))]
    rows.insert(0, {head: head for head in heads})
    widths = {head: max(len(row[head]) for row in rows) for head in heads}
    for index, row in enumerate(rows):
        cells = [
            row[head].rjust(widths[head]) if head in _NUMBERS else row[head].ljust(widths[head]) for head in heads[:-1]
        ]
        line = Text("  ".join((*cells, row[heads[-1]])), "" if index else "dim")
        line.truncate(console.width, overflow="ellipsis")
        console.print(line)
    _explain(console, infos)


def _explain(console: Console, infos: list[SessionInfo]) -> None:
    """What the numbers and names of the list are about, and where to see more."""
    faults = sum((Counter(info.faults) for info in infos), Counter[str]())
    rules = sum((Counter(info.rules) for info in infos), Counter[str]())
    differs = Counter(
        name for info in infos for name, verdict in info.shadows.items() if verdict in ("changed", "failed")
    )
    for what, counts, where in (
        ("faults, what the model wrote wrong", faults, "sessions show ID"),
        ("rules, what was sent wrong", rules, "validate STORE --session ID"),
        ("differs, parsers whose message is another", differs, "replay STORE --session ID --parser P"),
    ):
        if counts:
            told = ", ".join(f"{_plain(name)} {count}" for name, count in sorted(counts.items()))
            console.print(Text(f"{what}: {told}; where: playhead {where}", "dim"))


_HEADS = (
    "session",
    "opened",
    "protocol",
    "state",
    "depth",
    "in",
    "out",
    "ends",
    "faults",
    "rules",
    "differs",
    "message",
)
_ALWAYS = frozenset(("session", "opened", "state", "in", "out", "ends", "message"))
_NUMBERS = frozenset(("in", "out", "faults", "rules"))


def _row(info: SessionInfo) -> dict[str, str]:
    # An error's kind only: the message of an error stands where the model's would.
    kind, _, failed = (info.error or "").partition(": ")
    said = _said(info.message[0]) if info.message else ""
    return {
        "session": info.session[:14],
        "opened": when(info.opened)[5:16],
        "protocol": info.protocol,
        "state": info.state,
        "depth": info.depth,
        "in": str(info.prompt_tokens or ""),
        "out": str(info.completion_tokens or ""),
        "ends": _short(",".join((*dict.fromkeys(info.finish_reasons), *([kind] if kind else [])))),
        "faults": str(sum(info.faults.values()) or ""),
        "rules": str(sum(info.rules.values())) if info.validated else "",
        "differs": _short(_plain(info.differs)),
        # What is done to a stored conversation has a session, and no model says anything.
        "message": _plain(said or failed or ("" if info.model else info.conversation)),
    }


def _short(text: str) -> str:
    return text if len(text) <= 24 else f"{text[:23]}…"


def _plain(text: str) -> str:
    """On one line, without what moves the cursor: a model, or another server, wrote it."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def _said(message: dict[str, Any]) -> str:
    calls = (f"{call['name']}({call['arguments']})" for call in message.get("tool_calls") or ())
    return str(message.get("content") or " ".join(calls) or message.get("reasoning") or "")


@click.command()
@click.argument("session", nargs=-1)
@STORE
@click.option("--all", "everything", is_flag=True, help="Every session of the store.")
@click.option("--to", "folder", default=".", show_default=True, type=click.Path(file_okay=False),
              help="Folder; made if absent.")  # fmt: skip
@click.option("--zst", is_flag=True, help="Compress the files.")
def export(session: tuple[str, ...], store: str, everything: bool, folder: str, zst: bool) -> None:
    """Write sessions as trace files, one a session."""
    if bool(session) == everything:
        raise click.UsageError("name sessions or say --all, not both" if session else "name sessions, or say --all")
    source = opened(store)
    target = Path(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
        names: Iterable[str] = (info.session for info in list(source.sessions())) if everything else session
        for name in names:
            found = source.load(name)
            path = target / f"{trace.file_name(found.info.session)}{'.zst' if zst else ''}"
            trace.write(found, path)
            click.echo(str(path))
    except StoreError as error:
        unreadable(error)
    except OSError as error:
        raise click.UsageError(f"cannot write to {folder}: {error.strerror or error}") from error
