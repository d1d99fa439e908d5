"""Small sessions, and stages of the adapter beside this file."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from replay.foreign import ForeignStage, Settings
from stages.events import FinishInput, FinishReason, Input, PromptInput, TokensInput, UsageInput
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
