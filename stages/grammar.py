"""Grammars of outputs, in no library's terms: what ``stages.constraint`` says and an engine holds a model to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias, Union

import msgspec


class Literal(msgspec.Struct, frozen=True):
    """This text. Where the vocabulary has a special token of a part of it, that part is the token."""

    text: str


class Json(msgspec.Struct, frozen=True):
    """One JSON value that satisfies a schema. ``param``: the schema's place in the request; ``compact``: no white space
    but one blank behind a comma or a colon, else lines may be indented too; ``without``: these do not occur in its
    strings and names."""

    schema: dict[str, Any]
    param: str
    compact: bool = True
    without: tuple[str, ...] = ()


class Free(msgspec.Struct, frozen=True):
    """Any text in which none of ``without`` occurs, without special tokens. ``until``: up to the first of these, which
    belongs to it; ``first``: it does not begin with one of these characters, behind white space; ``ahead``: it does not
    begin with one of these texts."""

    until: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    first: str = ""
    ahead: tuple[str, ...] = ()


class String(msgspec.Struct, frozen=True):
    """A string as its bare characters, behind ``opens``, and one of ``until``, which belong to it (as the format spells
    it: special tokens in them are tokens).

    ``patterns``: regular expressions, each of the whole of it; ``unlike``: of a whole text that it is not; ``least``,
    ``most``: code points; ``without``: these do not occur in it."""

    until: tuple[str, ...]
    patterns: tuple[str, ...] = ()
    least: int = 0
    most: int | None = None
    without: tuple[str, ...] = ()
    unlike: tuple[str, ...] = ()
    opens: str = ""


class Text(msgspec.Struct, frozen=True):
    """Letters that ``pattern``, a regular expression, matches as a whole: no special tokens."""

    pattern: str


class Number(msgspec.Struct, frozen=True):
    """A number over 0, in decimal digits."""


class Newlines(msgspec.Struct, frozen=True):
    """Two newlines, one, or none."""


class Row(msgspec.Struct, frozen=True):
    """All of them, in order."""

    parts: tuple[Rule, ...]


class OneOf(msgspec.Struct, frozen=True):
    """One of them."""

    options: tuple[Rule, ...]


class Again(msgspec.Struct, frozen=True):
    """This, ``least`` to ``most`` times (None: any number)."""

    rule: Rule
    least: int = 0
    most: int | None = None


class Members(msgspec.Struct, frozen=True):
    """``parts``, each a rule and whether it must be there, in order, ``between`` two of them; behind these any number
    of ``others``, or (``once``) one at most."""

    parts: tuple[tuple[Rule, bool], ...]
    between: str = ""
    others: Rule | None = None
    once: bool = False


class Refer(msgspec.Struct, frozen=True):
    """The rule of this name in the ``Defined`` around it."""

    name: str


class Defined(msgspec.Struct, frozen=True):
    """``rule``; in it and in ``rules`` each name stands for its rule, in that rule too."""

    rules: dict[str, Rule]
    rule: Rule


class Spelled(msgspec.Struct, frozen=True):
    """A value of a schema, as a format writes it. The schema is looked at, what is written is ``rule``."""

    schema: dict[str, Any]
    param: str
    rule: Rule


Rule: TypeAlias = Union[  # noqa: UP007 (names that follow)
    Literal, Json, Free, String, Text, Number, Newlines, Row, OneOf, Again, Members, Refer, Defined, Spelled
]

NOTHING: Final = Row(())


def one_of(options: Sequence[Rule]) -> Rule:
    """One of them, where there may be only one."""
    return options[0] if len(options) == 1 else OneOf(tuple(options))
