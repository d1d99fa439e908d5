"""Write the generated pages: events.md from the events' docstrings, commands.md from the command line's help, formats/
from the formats and what the parser does with them.

``python -m docs.generate`` writes them; with ``--check`` it writes nothing, names those that differ, and exits 1.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import click
import msgspec

from docs.format_pages import format_pages
from docs.prose import MADE, body_of, documented, prose
from pipeline.cli import main as playhead
from stages import events, opening

HERE = Path(__file__).parent

LAYERS: tuple[tuple[str, str, Any], ...] = (
    ("Engine", "Inputs, in arrival order. The only layer of facts; the other three follow from it.", events.Input),
    ("Semantic", "What the text means. Made by the parser, then by the stop and policy stages.", events.Semantic),
    (
        "Chunk",
        "Each protocol defines its own objects beside its encoder (`stages/protocols/`); these are common to all.",
        events.CommonChunk,
    ),
    ("Frame", "What is written to the socket.", events.Frame),
)


def _list(text: str) -> list[str]:
    return [f"- {prose(item)}" for item in text.removeprefix("* ").split("\n* ")]


def _fields(kind: type[Any]) -> list[str]:
    rows: list[str] = []
    for statement, doc in documented(body_of(kind)):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            default = f" = {ast.unparse(statement.value)}" if statement.value is not None else ""
            row = f"- `{statement.target.id}: {ast.unparse(statement.annotation)}{default}`"
            rows.append(f"{row}: {doc}" if doc else row)
    return rows


def _struct(kind: type[Any]) -> list[str]:
    info = msgspec.inspect.type_info(kind)
    tag = info.tag if isinstance(info, msgspec.inspect.StructType) else None
    title = f"### {kind.__name__}" + (f" (`{tag}`)" if tag else "")
    fields = _fields(kind)
    return [title, "", prose(kind.__doc__), "", *fields, *([""] if fields else [])]


def events_page() -> str:
    """Every event by layer, with its recorded tag, its fields and their defaults."""
    out = [MADE, "# Events", "", "Beside each name stands the tag under which the event is recorded.", ""]
    paragraphs = inspect.cleandoc(events.__doc__ or "").split("\n\n")
    for text in paragraphs[1:]:
        out += [*_list(text), ""] if text.startswith("* ") else [prose(text), ""]
    for name, text, union in LAYERS:
        out += [f"## {name} layer", "", text, ""]
        for kind in get_args(union):
            out += _struct(kind)
    out += ["## Parts", ""]
    for name, alias in (("FinishReason", events.FinishReason), ("FailureKind", events.FailureKind)):
        out += [f"### {name}", "", "One of " + ", ".join(f"`{value}`" for value in get_args(alias)) + ".", ""]
    for kind in (events.TokenLogprob, events.TopLogprob, events.Sent):
        out += _struct(kind)
    out += ["## Faults", "", prose(events.FaultCode.__doc__), ""]
    for statement, doc in documented(body_of(events.FaultCode)):
        match statement:
            case ast.Assign(value=ast.Constant(value=str(code))):
                out.append(f"- `{code}`: {doc}")
            case _:
                pass
    out += ["", "## Before the first event", ""]
    for kind in (opening.Opening, opening.Ask, opening.Tool, opening.EngineFacts, opening.TokenizerFacts):
        out += _struct(kind)
    return "\n".join(out).rstrip() + "\n"


def commands(
    command: click.Command, name: str = "playhead", parent: click.Context | None = None
) -> Iterator[click.Context]:
    """The context of a command, then of all below it."""
    # A fixed width: the page must not depend on a terminal.
    settings: dict[str, Any] = {**command.context_settings, "terminal_width": 110, "max_content_width": 110}
    context = click.Context(command, parent, name, **settings)
    yield context
    if isinstance(command, click.Group):
        for name in sorted(command.list_commands(context)):
            below = command.get_command(context, name)
            assert below is not None
            yield from commands(below, name, context)


def commands_page() -> str:
    """The help of every command."""
    out = [MADE, "# Commands", ""]
    for context in commands(playhead):
        out += [f"## {context.command_path}", "", "```text", context.get_help(), "```", ""]
    return "\n".join(out).rstrip() + "\n"


def pages() -> dict[str, str]:
    """File name to text."""
    return {"events.md": events_page(), "commands.md": commands_page(), **format_pages()}


def main(arguments: list[str]) -> int:
    """Write what differs, or with ``--check`` only name it; then the exit status is 1."""
    made = pages()
    stale = [name for name, text in made.items() if not (HERE / name).exists() or (HERE / name).read_text() != text]
    for name in stale:
        if "--check" in arguments:
            print(f"docs/{name} is stale: make docs")
        else:
            (HERE / name).parent.mkdir(exist_ok=True)
            (HERE / name).write_text(made[name])
            print(f"docs/{name} written")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
