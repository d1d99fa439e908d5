"""``playhead sessions``, ``export``, ``import``: look at a store, and move sessions in and out of it as trace files."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any, NoReturn

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipeline.cli.tokens import show_tokens
from stages.events import LAYERS
from store import open_store, trace
from store.api import EventStore, Record, SessionInfo, StoreError, Trace

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


@click.group()
def sessions() -> None:
    """List, show and search recorded sessions."""


@sessions.command("list")
@STORE
@click.option("--limit", default=20, show_default=True, help="At most so many.")
@click.option("--state", default=None,
              type=click.Choice(["open", "closed", "aborted", "detached", "torn", "incomplete"]),
              help="Only sessions in this state.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def list_(store: str, limit: int, state: Any, as_json: bool) -> None:
    """The newest sessions."""
    if not _print(opened(store).sessions(state=state, limit=limit), as_json) and not as_json:
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
def show(session: str, store: str, layer: str | None, tokens: bool, as_json: bool) -> None:
    """One session, event by event. SESSION is an id or the start of one."""
    try:
        found = opened(store).load(session)
    except StoreError as error:
        unreadable(error)
    if as_json:
        click.echo(trace.dumps(found), nl=False)
        return
    console = Console()
    _describe(console, found)
    if tokens:
        show_tokens(console, found)
        return
    for (track, of), records in found.records.items():
        if layer is None or of == layer:
            _show_layer(console, track, of, records)


def _describe(console: Console, found: Trace) -> None:
    info = found.info
    console.print(Text.assemble((info.session, "bold"), f"  {info.state}  {info.model}  {_when(info.opened)}"))
    console.print(Text("stages: " + "  ".join(f"{k}={v}" for k, v in found.opening.stages.items()), "dim"))
    if info.validated:
        console.print(Text("rules: " + (_rules(info) or "none broken"), "yellow" if info.rules else "green"))
    for index, message in enumerate(info.message):
        console.print(Text(f"choice {index}: {msgspec.json.encode(message).decode()}"))


def _rules(info: SessionInfo) -> str:
    counts = ", ".join(f"{name} {count}" for name, count in info.rules.items())
    return f"{counts} ({info.rule_errors} of them errors)" if counts else ""


def _show_layer(console: Console, track: str, layer: str, records: list[Record]) -> None:
    table = Table(title=f"{track} / {layer}", title_justify="left", box=None, pad_edge=False, header_style="dim")
    for name in ("seq", "cause", "ms"):
        table.add_column(name, justify="right")
    table.add_column("event", overflow="fold")
    for record in records:
        cause = "" if record.cause < 0 else str(record.cause)
        table.add_row(str(record.seq), cause, f"{record.at / 1e6:.1f}", Text(_event(record.event)))
    console.print(table)


def _event(event: Any) -> str:
    data = getattr(event, "data", None)
    if isinstance(data, bytes):
        return f"{type(event).__name__}: {data.decode('utf-8', 'replace').rstrip()}"
    wire = getattr(event, "wire", None)
    if wire is not None:
        try:
            return str(wire().decode())
        except UnicodeEncodeError:  # an unpaired surrogate, which no JSON can hold
            pass
    return f"{type(event).__name__} {' '.join(_fields(event))}".rstrip()


def _fields(event: Any) -> Iterator[str]:
    """What an event says beyond its defaults."""
    for field in msgspec.structs.fields(event):
        value = getattr(event, field.name)
        if value != field.default and value not in (None, ()):
            yield f"{field.name}={value.value if isinstance(value, Enum) else repr(value)}"


def _when(ns: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(ns / 1e9))


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
    except StoreError as error:
        unreadable(error)
    return count


def _list(console: Console, infos: list[SessionInfo]) -> None:
    """A line a session. In a narrow terminal it is the message, at its end, that is cut."""
    heads: tuple[str, ...] = ("session", "opened", "state", "in", "out", "ends", "faults", "rules", "message")
    rows = [_row(info) for info in infos]
    faults = sum((Counter(info.faults) for info in infos), Counter[str]())
    rules = sum((Counter(info.rules) for info in infos), Counter[str]())
    left = {*(() if faults else ("faults",)), *(() if any(info.validated for info in infos) else ("rules",))}
    kept = [index for index, head in enumerate(heads) if head not in left]
    heads, *rows = (tuple(row[index] for index in kept) for row in (heads, *rows))
    widths = [max(map(len, cells)) for cells in zip(heads, *rows, strict=True)]
    for index, row in enumerate([heads, *rows]):
        cells = [
            cell.rjust(width) if head in ("in", "out", "faults", "rules") else cell.ljust(width)
            for cell, head, width in zip(row[:-1], heads, widths, strict=False)
        ]
        line = Text("  ".join((*cells, row[-1])), "" if index else "dim")
        line.truncate(console.width, overflow="ellipsis")
        console.print(line)
    if faults:
        counts = ", ".join(f"{code} {count}" for code, count in sorted(faults.items()))
        console.print(Text(f"faults, what the model wrote wrong: {counts}; where: playhead sessions show ID", "dim"))
    if rules:
        counts = ", ".join(f"{name} {count}" for name, count in sorted(rules.items()))
        console.print(Text(f"rules, what was sent wrong: {counts}; where: playhead validate STORE --session ID", "dim"))


def _row(info: SessionInfo) -> tuple[str, ...]:
    # An error's kind only: the message of an error stands where the model's would.
    kind, _, failed = (info.error or "").partition(": ")
    ends = ",".join((*dict.fromkeys(info.finish_reasons), *([kind] if kind else [])))
    said = _said(info.message[0]) if info.message else ""
    # What a model writes must not move the cursor.
    plain = "".join(char if char.isprintable() else " " for char in said or failed)
    return (
        info.session[:14], _when(info.opened)[5:16], info.state, str(info.prompt_tokens or ""),
        str(info.completion_tokens or ""), ends if len(ends) <= 24 else f"{ends[:23]}…",
        str(sum(info.faults.values()) or ""), str(sum(info.rules.values())) if info.validated else "",
        " ".join(plain.split()),
    )  # fmt: skip


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


@click.command()
@click.argument("path", nargs=-1, required=True, type=click.Path())
@click.option("--store", default="playhead.db", show_default=True, help="The SQLite file; made if absent.")
def import_(path: tuple[str, ...], store: str) -> None:
    """Read trace files (or folders of them) into a store. What is already there is left alone."""
    try:
        target = open_store(store)
        new = target.save(found for name in path for found in trace.read_many(name))
        target.close()
    except StoreError as error:
        unreadable(error)
    click.echo(f"{new} new session{'' if new == 1 else 's'} in {store}")
