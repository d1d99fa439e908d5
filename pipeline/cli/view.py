"""Parsed text on a terminal: each byte coloured by what it was taken for, and the steps one by one."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Sequence
from itertools import groupby, zip_longest
from typing import Any

import msgspec
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from replay.parse import Step
from replay.text import printable, sound, tag
from stages.catalog import ParserEntry
from stages.events import (
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    Dropped,
    End,
    Fault,
    Finish,
    FinishInput,
    Input,
    Marker,
    PromptInput,
    Reasoning,
    Refusal,
    Semantic,
    Src,
    Start,
    Tokens,
    TokensInput,
    Usage,
    UsageInput,
)
from stages.message import Message, ToolCall
from stages.parse.reasonings import REASONINGS

STYLES = {
    "reasoning": "magenta", "content": "", "refusal": "yellow", "call name": "bold cyan", "arguments": "cyan",
    "marker": "dim", "dropped": "dim strike", "fault": "bold red",
}  # fmt: skip
_KINDS: dict[type, str] = {
    Reasoning: "reasoning", Content: "content", Refusal: "refusal", CallStart: "call name", CallArguments: "arguments",
    Marker: "marker", Dropped: "dropped", Fault: "fault",
}  # fmt: skip
_UNSEEN = ("marker", "dropped")
"""Kinds of which clients see nothing: their line ends are shown."""
_LONGEST = 300


def on_terminal() -> bool:
    """Standard output is a terminal (it may be closed)."""
    return bool(getattr(sys.stdout, "isatty", bool)())


def console() -> Console:
    """For standard output. Only a terminal has lines of a width; a pipe gets each line whole."""
    stream: Any = sys.stdout
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="backslashreplace")
    return Console(file=stream or io.StringIO(), highlight=False, soft_wrap=not on_terminal())


def plain(text: str) -> str:
    """The text on one line, and nothing in it moves the cursor."""
    return text if text.isprintable() and text.isascii() else printable(sound(text))


def indented(to: Console, line: str | Text, by: int = 2) -> None:
    """Print a line that stays indented where it is folded."""
    text = Text(line) if isinstance(line, str) else line
    to.print(Text(" " * by) + text if to.soft_wrap else Padding(text, (0, 0, 0, by), expand=False))


def listed(to: Console, label: str, style: str, lines: Sequence[str], most: int) -> None:
    """Lines under one label; at most so many."""
    for line in lines[:most]:
        to.print(Text.assemble((f"{label}: ", style), plain(line)))
    if len(lines) > most:
        to.print(f"and {len(lines) - most} more like these")


# --- a message --------------------------------------------------------------------------------------------------------


class Segment(msgspec.Struct, frozen=True):
    """Neighbouring text of one kind, as the model wrote it."""

    kind: str
    text: str


def segments(events: Iterable[Semantic], wrote: bytes) -> list[Segment]:
    """What the model wrote, by kind. Where byte ranges do not cover it once (a parser of one's own), the events' own
    texts in their order."""
    owners = [owner for event in events if (owner := _owner(event)) is not None]
    at = 0
    for src, _, _ in (ordered := sorted(owners, key=lambda owner: owner[0])):
        at = src[1] if src[0] == at <= src[1] else -1
    if at == len(wrote):
        found = [(kind, wrote[start:end]) for (start, end), kind, _ in ordered]
    else:
        found = [(kind, text.encode("utf-8", "backslashreplace")) for _, kind, text in owners]
    merged = ((kind, b"".join(data for _, data in run)) for kind, run in groupby(found, lambda item: item[0]))
    return [Segment(kind, data.decode("utf-8", "replace")) for kind, data in merged if data]


def _owner(event: Semantic) -> tuple[Src, str, str] | None:
    """The bytes that an event owns, its kind and its text; None for one that owns nothing."""
    match event:
        case CallStart():
            return event.src, "call name", event.name
        case Fault():
            return (event.src, "fault", event.text) if event.text else None
        case Reasoning() | Content() | Refusal() | CallArguments() | Marker() | Dropped():
            return event.src, _KINDS[type(event)], event.text
        case _:
            return None


def show_message(to: Console, message: Message, events: Sequence[Semantic], wrote: bytes) -> None:
    """The text by kind, then the calls, the faults and the end."""
    found = segments(events, wrote)
    if to.no_color or to.color_system is None:
        _labelled(to, found)
    else:
        _coloured(to, found)
    to.print()
    for index, call in enumerate(message.tool_calls):
        _call(to, index, call)
    for event in events:
        if isinstance(event, Fault):
            _fault(to, event, wrote)
    to.print(f"finish_reason {message.finish_reason or 'none'}")


def _coloured(to: Console, found: Sequence[Segment]) -> None:
    whole = Text()
    for segment in found:
        whole.append(_visible(to, segment), STYLES[segment.kind])
    whole.rstrip()
    to.print(whole)
    to.print()
    kinds = dict.fromkeys(segment.kind for segment in found)
    to.print(Text("  ").join(Text(kind, STYLES[kind]) for kind in STYLES if kind in kinds))


def _labelled(to: Console, found: Sequence[Segment]) -> None:
    """Where there are no colours."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for segment in found:
        text = _visible(to, segment).rstrip("\n")
        if to.soft_wrap:
            for label, line in zip_longest((segment.kind,), text.split("\n"), fillvalue=""):
                to.print(f"{label:<11}{line}".rstrip(), markup=False)
        else:
            grid.add_row(Text(segment.kind, "bold"), Text(text))
    if grid.row_count:
        to.print(grid)


def _visible(to: Console, segment: Segment) -> str:
    newline = "\n" if segment.kind not in _UNSEEN else "\\n\n" if to.options.ascii_only else "↵\n"
    lines = segment.text.split("\n")
    return newline.join("\t".join(plain(part) for part in line.split("\t")) for line in lines)


def _call(to: Console, index: int, call: ToolCall) -> None:
    line = Text.assemble(f"call {index}  ", (plain(call.name), STYLES["call name"]), "  ")
    if not call.complete:
        line.append("not complete  ", STYLES["fault"])
    to.print(line.append(_cut(call.arguments), STYLES["arguments"]))


def _fault(to: Console, event: Fault, wrote: bytes) -> None:
    start, end = event.src
    where = f"bytes {start}-{end}" if start < end else f"at byte {start}"
    line = Text.assemble((f"fault {event.code.value}", STYLES["fault"]), f"  {where}")
    if event.detail:
        line.append(f"  {plain(event.detail)}")
    if start < end:
        line.append(f"  {_cut(wrote[start:end].decode('utf-8', 'replace'))}", "dim")
    to.print(line)


def _cut(text: str) -> str:
    return plain(text) if len(text) <= _LONGEST else f"{plain(text[:_LONGEST])}… ({len(text):,} characters)"


# --- steps ------------------------------------------------------------------------------------------------------------


def show_trace(to: Console, steps: Sequence[Step]) -> None:
    """One line a step: its tokens, where the parser stands, the bytes that no event has yet, and the events."""
    rows: list[tuple[str, str, str, str, Text]] = [("step", "token", "state", "held", Text("events"))]
    held = 0
    for number, step in enumerate(steps):
        held += len(wrote_of([step.input]))
        held -= sum(end - start for (start, end), _, _ in filter(None, map(_owner, step.events)))
        if not isinstance(step.input, UsageInput):
            events = Text("  ").join(_event(event) for event in step.events if _told(event))
            rows.append((str(number), _input(step.input), step.state or "-", str(held), events))
    wide = [max(len(row[at]) for row in rows) for at in range(4)]
    token = wide[1] if to.soft_wrap else min(wide[1], max(12, to.width // 4))
    for row in rows:
        shown = row[1] if len(row[1]) <= token else f"{row[1][: token - 1]}…"
        head = f"{row[0]:>{wide[0]}}  {shown:<{token}}  {row[2]:<{wide[2]}}  {row[3]:>{wide[3]}}  "
        line = Text(head, "dim" if row is rows[0] else "") + row[4]
        line.rstrip()
        if not to.soft_wrap:
            line.truncate(to.width, overflow="ellipsis")
        to.print(line)


def wrote_of(inputs: Iterable[Input]) -> bytes:
    """All bytes of the tokens."""
    return b"".join(
        b"".join(event.pieces) or event.text.encode("utf-8", "surrogatepass")
        for event in inputs
        if isinstance(event, TokensInput)
    )


def _input(event: Input) -> str:
    match event:
        case PromptInput():
            shown = f"prompt …{event.tail[-16:]!r}" if event.tail else "prompt"
        case TokensInput():
            text = repr(sound(wrote_of([event]).decode("utf-8", "replace")))
            text = text if len(text) <= 20 else f"{text[:18]}…'"
            ids = " ".join(map(str, event.ids[:3])) + ("…" if len(event.ids) > 3 else "")
            shown = f"{ids} {text}" if ids else text
        case FinishInput():
            shown = f"finish {event.reason}"
        case _:
            shown = tag(event)
    return plain(shown)


def _told(event: Semantic) -> bool:
    return not isinstance(event, Start | Tokens | Usage | End)


def _event(event: Semantic) -> Text:
    owner = _owner(event)
    if isinstance(event, Fault):
        return Text(f"fault {event.code.value} {event.src[0]}-{event.src[1]}", STYLES["fault"])
    if owner is not None:
        return Text(plain(f"{owner[1]} {owner[2]!r}"), STYLES[owner[1]])
    if isinstance(event, CallEnd):
        return Text("call complete" if event.complete else "call not complete")
    return Text(f"finish {event.reason}" if isinstance(event, Finish) else tag(event))


# --- the catalog ------------------------------------------------------------------------------------------------------


def show_parsers(to: Console, entries: Sequence[ParserEntry]) -> None:
    """The catalog as a table, and what else may be the first half of a pair."""
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for name in ("name", "aliases", "models", "grammar"):
        table.add_column(name, overflow="fold", no_wrap=name == "name")
    for entry in entries:
        cells = ", ".join(entry.aliases), ", ".join(entry.models), entry.grammar
        table.add_row(Text(entry.name, "bold"), *map(Text, cells))
    to.print(table)
    known = {name for entry in entries for name in (entry.name, *entry.aliases)}
    more = ", ".join(name for name in REASONINGS if name not in known)
    to.print(Text.assemble(("\nmore reasoning for pairs, reasoning+tools: ", "dim"), more))
