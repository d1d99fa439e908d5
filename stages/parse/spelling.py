"""How a format spells calls when they are forced: one way of those that it reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from stages.grammar import Json, Rule

NUMBER: Final = "{i}"
"""In the text before a call's arguments, at most once: its number, from 0."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """``opens call { between call } closes``.

    ``call``: what stands before the name, between the name and the arguments, and behind them; ``between``: None:
    there is one call at most; ``token``: only for vocabularies that have this token; ``arguments``: how they are
    written; None: as JSON. It raises RequestError for a schema that the format cannot be held to. ``name``: a regular
    expression of the names that a call can have. ``also``: other ways to write a call, among which the model chooses;
    of these ``call``, ``arguments`` and ``name`` count, and what cannot hold a schema is left out. ``known``: a call
    has no other members than the schema lists, or not many.
    """

    call: tuple[str, str, str]
    opens: str = ""
    between: str | None = ""
    closes: str = ""
    token: str = ""
    arguments: Callable[[Json], Rule] | None = None
    name: str = r"(?s:.*)"
    also: tuple[Spelling, ...] = ()
    known: bool = False


def objects(opener: str, closer: str, *, arguments: str = "arguments", between: str | None = "\n") -> Spelling:
    """A JSON object a call, each between markers of its own."""
    return Spelling((f'{opener}{{"name": "', f'", "{arguments}": ', f"}}{closer}"), between=between)


def array(opener: str, closer: str, *, token: str = "") -> Spelling:
    """One JSON array of all calls."""
    return Spelling(
        ('{"name": "', '", "arguments": ', "}"), opens=f"{opener}[", between=", ", closes=f"]{closer}", token=token
    )
