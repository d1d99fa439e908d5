"""Rows of a table on a terminal: laid out where there are few, a line each where there are many."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipeline.cli.view import plain

MOST = 300
"""Rows that are laid out: that takes time for each, and looks at all of them first."""
_WIDEST = 60
"""Of a column that is not the last, where there are many rows."""


def show_rows(
    console: Console, title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], *, right: int = 0
) -> None:
    """``right``: so many columns from the left hold numbers."""
    if len(rows) > MOST:
        _lines(console, title, heads, rows, right)
        return
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="dim")
    for place, name in enumerate(heads):
        number = place < right
        table.add_column(name, justify="right" if number else "left", overflow="fold", no_wrap=number)
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)


def _lines(console: Console, title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], right: int) -> None:
    """Not folded, and as wide as the first rows are; numbers as wide as the last row's."""
    seen = [heads, *islice(rows, MOST), rows[-1]]
    widths = [min(_WIDEST, max(len(row[place]) for row in seen)) for place in range(len(heads) - 1)]
    console.print(Text(title, "italic"))
    write = console.file.write
    for row in (heads, *rows):
        cells = [
            cell.rjust(width) if place < right else plain(cell)[:_WIDEST].ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=False))
        ]
        write("  ".join([*cells, plain(row[-1])]).rstrip() + "\n")
