"""``python -m tests.support.parrot serve …``: a server whose scripted engine writes what the last message says.

So a request that is translated on its way can say what its answer is. A text that begins with ``error:`` is not
written: the engine refuses the request as overloaded; one with ``|error`` in it is written up to there, and then the
engine fails. No text stops the engine but those that a request names.
"""

from __future__ import annotations

from typing import Any

from pipeline.cli import main, serve
from pipeline.config import Config
from pipeline.engines.base import Engine, EngineRequest
from pipeline.engines.scripted import ScriptedEngine
from pipeline.engines.scripts import Compiled, compiled
from stages.events import ErrorInput

BEFORE = "error:"
INSIDE = "|error"
REFUSED = ErrorInput("overloaded", "The queue is full.", "overloaded")
BROKEN = ErrorInput("engine", "The engine lost its memory.")


class Parrot(ScriptedEngine):
    """The engine."""

    def scripts_of(self, request: EngineRequest, turn: int) -> list[Compiled]:
        """See ScriptedEngine."""
        if request.conversation is None:
            text = str(request.prompts[0])
        else:
            text = str(request.conversation.messages[-1].get("content") or "")
        if text.startswith(BEFORE):
            return [[REFUSED]]
        written, broken, _ = text.partition(INSIDE)
        steps = [*self.tokens_of(written), *([BROKEN] if broken else [])]
        return [compiled(steps, self.toy)] * request.n

    def tokens_of(self, text: str) -> list[Any]:
        """What it writes, step by step."""
        return [([token], [piece]) for token, piece in self.toy.encode(text)]


def make_engine(config: Config) -> Engine:
    """In place of the command's own."""
    return Parrot(pace=config.pace)


if __name__ == "__main__":
    serve.make_engine = make_engine
    main()
