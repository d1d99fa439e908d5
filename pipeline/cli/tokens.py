"""A session token by token: what the bytes of each became."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from stages.alignment import Aligned, Part, align_session
from stages.events import TokensInput
from store.api import Trace


def show_tokens(console: Console, found: Trace) -> None:
    """A table for each choice: number, id, bytes, kinds."""
    inputs = found.events("input", "engine")
    semantic = found.events("served", "semantic")
    if not semantic:
        console.print("The session was recorded without its semantic layer: replay it to see what its tokens became.")
        return
    written: dict[int, bytes] = {}
    for event in inputs:
        if isinstance(event, TokensInput):
            written[event.choice] = written.get(event.choice, b"") + b"".join(event.pieces)
    aligned = align_session(inputs, semantic)
    for choice in sorted(written):
        if choice in aligned:
            console.print(_table(choice, aligned[choice], written[choice]))
        else:
            console.print(f"choice {choice}: the engine did not tell the bytes of its tokens.")


def _table(choice: int, tokens: list[Aligned], written: bytes) -> Table:
    table = Table(title=f"choice {choice}", title_justify="left", box=None, pad_edge=False, header_style="dim")
    for name in ("token", "id"):
        table.add_column(name, justify="right")
    for name in ("bytes", "became"):
        table.add_column(name, overflow="fold")
    for number, token in enumerate(tokens):
        became = ", ".join(_named(part, len(token.parts) > 1, written) for part in token.parts)
        table.add_row(str(number), str(token.id), Text(_shown(written[slice(*token.src)])), Text(became))
    return table


def _named(part: Part, several: bool, written: bytes) -> str:
    name = part.kind if part.call < 0 else f"{part.kind} of call {part.call}"
    return f"{name} {_shown(written[slice(*part.src)])}" if several else name


def _shown(data: bytes) -> str:
    """As Python writes it: text where it is whole characters, else bytes."""
    try:
        return repr(data.decode())
    except UnicodeDecodeError:
        return repr(data)
