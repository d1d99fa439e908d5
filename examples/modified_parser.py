"""A parser to try on recorded sessions: Hermes, but every answer is taken to begin inside reasoning.

    playhead replay playhead.db --parser examples/modified_parser.py:Parser

Some models are served like this: their template opens ``<think>`` in the prompt. Where it does not, everything that the
model says before a ``</think>``, often all of it, turns into reasoning. The replay shows it for each session.

Commands are in ``.venv/bin``: ``. .venv/bin/activate``, or write ``.venv/bin/playhead``.
"""

from typing import Any

import msgspec

from stages import catalog
from stages.events import Input, PromptInput, Semantic
from stages.opening import Opening
from stages.stage import Machine

HERMES = catalog.parser("hermes")


class Parser:
    """Wraps the catalog's ``hermes``."""

    id = "example.modified@1"

    def start(self, opening: Opening) -> Machine[Input, Semantic]:
        """A machine for a new session."""
        return Modified(HERMES.start(opening))

    def resume(self, opening: Opening, snapshot: Any) -> Machine[Input, Semantic]:
        """A machine that continues after a snapshot; the change has no state of its own."""
        return Modified(HERMES.resume(opening, snapshot))


class Modified:
    """Passes everything on, but tells the parser that the prompt ended with ``<think>``."""

    def __init__(self, machine: Machine[Input, Semantic]) -> None:
        self.machine = machine

    def step(self, event: Input, out: list[Semantic]) -> None:
        """Append what follows from one input."""
        if isinstance(event, PromptInput):
            event = msgspec.structs.replace(event, tail=event.tail + "<think>\n")
        self.machine.step(event, out)

    def snapshot(self) -> msgspec.Struct:
        """The state as plain data."""
        return self.machine.snapshot()
