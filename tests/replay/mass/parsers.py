"""Parsers that end badly, for some sessions: what a session's id begins with says how. Named by file in the tests."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path
from typing import Any

from stages import catalog
from stages.events import Input, Semantic
from stages.opening import Opening
from stages.stage import Machine

GATE = "PLAYHEAD_TEST_GATE"
"""The environment's variable with the path of a file for which ``Waits`` waits."""
HANGS = "PLAYHEAD_TEST_HANGS"
"""That with the path of a folder, where ``Bad`` leaves a file for each process that hangs, named by its id."""

_HERMES = catalog.parser("hermes")


class Fine:
    """As hermes."""

    id = "test.fine@1"

    def start(self, opening: Opening) -> Machine[Input, Semantic]:
        self.meet(opening.session)
        return _HERMES.start(opening)

    def resume(self, opening: Opening, snapshot: Any) -> Machine[Input, Semantic]:
        return _HERMES.resume(opening, snapshot)

    def meet(self, session: str) -> None:
        pass


class Bad(Fine):
    """Ends badly at sessions that begin with a, b, c, d or e."""

    id = "test.bad@1"

    def meet(self, session: str) -> None:
        match session[0]:
            case "a":
                (Path(os.environ[HANGS]) / str(os.getpid())).touch()
                while True:
                    time.sleep(1)
            case "b":
                os._exit(0)
            case "c":
                os._exit(7)
            case "d":
                os.kill(os.getpid(), signal.SIGKILL)
            case "e":
                raise RuntimeError("e")
            case _:
                pass


class Waits(Fine):
    """Waits for the gate at sessions that begin with f; at those that begin with fe, for ever, deaf to all signals."""

    id = "test.fine@1"

    def meet(self, session: str) -> None:
        if session.startswith("fe"):
            # Backtracks for ever, and lets no thread run meanwhile.
            re.match("(a+)+$", "a" * 100 + "b")
        while session[0] == "f" and not Path(os.environ[GATE]).exists():
            time.sleep(0.01)


def broken() -> Fine:
    """Ends the process in which it is made."""
    os._exit(5)
