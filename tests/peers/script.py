"""What the scripted engines play, and what they tell of it. Runs under the peers' own Python: standard library only.

The script is a JSON file that may change between requests: ``{"choices": [{"steps": [[ids], ...], "end": E}]}``, with
``delay``: seconds between steps.
``end``: what happens behind the last step where no end of turn was among them: ``error`` (the engine fails this
request), ``raise`` (the loop over outputs raises), ``abort`` (the engine gives it up), or nothing more comes.
The log: one JSON object a line: ``{"prompt": ids, "held": tag}`` (SGLang), ``{"step": ids}``, ``{"aborted": request}``.
"""

from __future__ import annotations

import json
import os
from typing import Any

EOS = (151645, 151643)
"""Qwen3's ``<|im_end|>`` and ``<|endoftext|>``."""


def read(which: int) -> tuple[dict[str, Any], float]:
    """The choice's script, counted around, and the seconds between steps."""
    with open(os.environ["PEER_SCRIPT"], encoding="utf-8") as file:
        found: dict[str, Any] = json.load(file)
    choices = found["choices"]
    return choices[which % len(choices)], found.get("delay", 0.005)


def log(**entry: Any) -> None:
    """Say what happened."""
    with open(os.environ["PEER_LOG"], "a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")
