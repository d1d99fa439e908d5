"""Docstrings as Markdown: what the generated pages share."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any, Final

MADE: Final = "<!-- Written by docs/generate.py (make docs). Change the docstrings, not this page. -->\n"


_TICKS: Final = re.compile("(?<!`)``(?!`)")


def prose(text: str | None) -> str:
    """A paragraph on one line."""
    return " ".join(_TICKS.sub("`", inspect.cleandoc(text or "")).split())


def drawing(text: str) -> list[str]:
    """The lines of a fenced block."""
    return ["```text", *_TICKS.sub("", inspect.cleandoc(f"\n{text}")).splitlines(), "```"]


def documented(body: list[ast.stmt]) -> Iterator[tuple[ast.stmt, str]]:
    """Each statement with the docstring that follows it, if one does."""
    for statement, following in zip(body, [*body[1:], None], strict=True):
        match following:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield statement, prose(text)
            case _:
                yield statement, ""


def body_of(kind: type[Any]) -> list[ast.stmt]:
    """The statements of a class."""
    [definition] = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(definition, ast.ClassDef)
    return definition.body


def documented_members(kind: type[Any]) -> dict[str, str]:
    """The members of an enumeration, each with its docstring."""
    found: dict[str, str] = {}
    for statement, text in documented(body_of(kind)):
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            found[statement.targets[0].id] = text
    return found
