"""How a format spells calls when they are forced: one way of those that it reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from stages.grammar import Json, Rule

NUMBER: Final = "{i}"
"""In the text before a call's arguments, at most once: its number."""
NAME: Final = "{name}"
"""In the text between a call's name and its arguments: the name, once more."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """``opens call { between call } closes``.

    ``call``: what stands before the name, between the name and the arguments, and behind them; ``between``: None:
    there is one call at most; ``token``: only for vocabularies that have this token; ``arguments``: how they are
    written; None: as JSON. It raises RequestError for a schema that the format cannot be held to. ``first``: the number
    of the first call. ``name``: a regular expression of the names that a call can have; "": any. ``also``: other ways
    to write a call, among which the model chooses; of these ``call``, ``arguments`` and ``name`` count, and what cannot
    hold a schema is left out.
    """

    call: tuple[str, str, str]
    opens: str = ""
    between: str | None = ""
    closes: str = ""
    token: str = ""
    arguments: Callable[[Json], Rule] | None = None
    first: str = "0"
    name: str = ""
    also: tuple[Spelling, ...] = ()


@dataclass(frozen=True, slots=True)
class Spoken:
    """How messages begin where the output is held, behind the ``start`` of each, which the prompt has of the first:
    ``thought`` for reasoning, ``preamble`` for text that is not the answer (empty: there is none), ``answer`` for that.
    Each ends with ``ender``, the last one also without. A call is a message of its own.
    """

    start: str
    ender: str
    thought: str
    answer: str
    preamble: str = ""


def objects(opener: str, closer: str, *, arguments: str = "arguments", between: str | None = "\n") -> Spelling:
    """A JSON object a call, each between markers of its own."""
    return Spelling((f'{opener}{{"name": "', f'", "{arguments}": ', f"}}{closer}"), between=between)


def array(opener: str, closer: str, *, token: str = "") -> Spelling:
    """One JSON array of all calls."""
    return Spelling(
        ('{"name": "', '", "arguments": ', "}"), opens=f"{opener}[", between=", ", closes=f"]{closer}", token=token
    )
