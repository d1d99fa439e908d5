"""The table of a header-and-JSON family; see ``header_json`` for what is read with it."""

from __future__ import annotations

import re
from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from stages.parse.text import MARK, OUT

NAMES: Final = re.compile(f"[^\\s<{{`{OUT}{MARK}]++")
"""What most names are made of: nothing that could begin a literal or the arguments."""

Wire: TypeAlias = Callable[[str, str, Set[str]], tuple[str, str]]
"""(what stands for the name, the id behind it or "", ids in use) → (name or "" if there is none, id or "")."""


def as_written(head: str, number: str, used: Set[str]) -> tuple[str, str]:
    """The name is written as it is, and no id with it."""
    del number, used
    return head, ""


@dataclass(frozen=True, slots=True)
class Header:
    """A family's literals; "" and (): it has none."""

    call: str
    ends: tuple[str, ...]
    """End the name."""
    close: str = ""
    section: str = ""
    section_end: str = ""
    lead: tuple[str, ...] = ()
    """May stand before the name."""
    around: tuple[str, ...] = ()
    """May stand before the arguments and behind them."""
    number: str = ""
    """Opens an id behind the name."""
    brace: bool = False
    """The arguments may follow the name without an end."""
    word: Literal["never", "function", "always"] = "never"
    """A type word may stand in the name's place, the name then behind its end, on a line: only the word ``function``,
    or any. The arguments' ``{`` behind the end tells that it was the name."""
    names: re.Pattern[str] = NAMES
    wire: Wire = as_written
    infer: bool = False
    """A name of digits only is none: the arguments' keys tell the tool, if they fit exactly one."""

    def literals(self) -> tuple[str, ...]:
        """All of them."""
        found = (self.call, *self.ends, self.close, self.section, self.section_end, *self.lead, *self.around)
        return tuple(dict.fromkeys(filter(None, (*found, self.number))))
