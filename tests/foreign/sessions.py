"""Small sessions, and stages of the adapter beside this file."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from replay.derive import StageFailure, Track, run
from replay.foreign import ForeignStage, Settings
from stages.events import Content, FinishInput, FinishReason, Input, PromptInput, TokensInput, UsageInput
from stages.opening import Ask, Opening, TokenizerFacts

ADAPTER = str(Path(__file__).parent / "adapter.py")
SPECIAL = {"<|im_end|>": 2}
ADDED = {"<tool_call>": 3, "</tool_call>": 4}


def opening(request: dict[str, Any] | None = None, **fields: Any) -> Opening:
    fields = {"ask": Ask(stream=True), **fields}
    return Opening(
        session="s", key="k", response_id="r", created=0, opened=0, model="m",
        request=json.dumps(request or {"model": "m", "messages": []}).encode(),
        tokenizer=TokenizerFacts(special=SPECIAL, added=ADDED, eos=(2,)), **fields,
    )  # fmt: skip


def step(*texts: str, choice: int = 0) -> TokensInput:
    """A step of tokens with these texts."""
    known = {**SPECIAL, **ADDED}
    ids = tuple(known.get(text, 100 + len(text)) for text in texts)
    return TokensInput(choice, ids, tuple(text.encode() for text in texts), "")


def inputs(*steps: TokensInput, reason: FinishReason = "eos") -> list[Input]:
    """A session of one choice with these steps."""
    return [PromptInput((1,), "ask:", 1), *steps, FinishInput(0, reason, 2), UsageInput(1, len(steps))]


def stage(name: str, *, time_limit: float = 60.0, tokenizer: str | None = None) -> ForeignStage:
    """The adapter's parser of this name."""
    settings = Settings(time_limit=time_limit, tokenizer=tokenizer)
    return ForeignStage(f"test:{name}", ADAPTER, name, python=sys.executable, settings=settings)


SESSION = inputs(step("Hello"), step(" you"), step("<|im_end|>"))


def ran(parser: ForeignStage, request: dict[str, object] | None = None) -> tuple[Track, StageFailure | None]:
    """``SESSION`` through a parser."""
    return run(parser, "semantic", opening(request), SESSION, range(len(SESSION)))


def said(track: Track) -> str:
    """Its content."""
    return "".join(event.text for event in track.events if isinstance(event, Content))


PARENT = """
import os, sys
from replay.derive import run
from tests.foreign.sessions import inputs, opening, stage, step
session = inputs(step("a"))
track, _ = run(stage("process"), "semantic", opening(), session, range(len(session)))
print(track.events[2].text, flush=True)
sys.stdin.readline()
{end}
"""
"""A script that replays one session, tells what it says, and then does what it is told."""


def gone(number: int) -> bool:
    """A process has ended."""
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return True
    # A zombie of an adopted process waits for init, which may be slow in a container.
    status = Path(f"/proc/{number}/stat")
    try:
        return status.read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def engine(folder: Path, text: str) -> str:
    """An adapter with this source."""
    path = folder / "engine.py"
    path.write_text(text)
    return str(path)
