"""Rule and Finding: a numbered invariant as a small pure check.

A check takes the Case (the evidence, read) and yields what breaks it. Its first docstring line says what is right:
people are shown it. It may rely on every need that it names, and on nothing else being there. Total: whatever the
body holds, it raises nothing; what is another rule's to report it passes over. Linear in the body.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from stages.protocols.rules.evidence import PROTOCOLS, Need, Protocol

if TYPE_CHECKING:
    from stages.protocols.rules.case import Case

Severity: TypeAlias = Literal["E", "O", "W"]
"""``E``: an error always; ``O``: an error in streams of our own encoders, else a warning; ``W``: a warning."""


class Finding(msgspec.Struct, frozen=True, gc=False):
    """One breach. ``frame``: number of the block (-1: none, the response as a whole); ``byte``: offset in the body;
    ``seen``: what is there, short; ``want``: what is right, where the rule's own line does not say it; ``severity``:
    where a part of a rule weighs otherwise than the rule."""

    frame: int
    byte: int
    seen: str
    want: str | None = None
    severity: Severity | None = None


Check: TypeAlias = "Callable[[Case], Iterable[Finding]]"


class Rule(msgspec.Struct, frozen=True):
    """A numbered rule. ``protocols``: where it applies; ``text``: what is right, one line."""

    number: int
    key: str
    severity: Severity
    text: str
    protocols: tuple[Protocol, ...]
    needs: frozenset[Need]
    check: Check

    @property
    def name(self) -> str:
        """``INV-044``."""
        return f"INV-{self.number:03}"


class Rules:
    """The rules of one file: a decorator that collects them, in order."""

    def __init__(self, *protocols: Protocol) -> None:
        """``protocols``: where they apply; none: everywhere."""
        self._protocols = protocols or PROTOCOLS
        self.all: list[Rule] = []

    def __call__(
        self, number: int, key: str, severity: Severity, *needs: Need, protocols: tuple[Protocol, ...] | None = None
    ) -> Callable[[Check], Check]:
        """Register a check under its number and key."""

        def register(check: Check) -> Check:
            text = (inspect.getdoc(check) or "").split("\n\n")[0].replace("\n", " ")
            self.all.append(Rule(number, key, severity, text, protocols or self._protocols, frozenset(needs), check))
            return check

        return register
