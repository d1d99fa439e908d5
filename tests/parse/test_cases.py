"""Cases rebuilt from public reports of other engines' parsers (data/cases_hermes.jsonl), under every split.

Reasoning and content are compared after trimming white space at both ends, as those reports are. Of the cases of medium
confidence, three leave a choice; the formats decide: a call without arguments has ``{}``, a call of an unknown tool is
passed through, and text behind a call is content.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stages.events import Input, TokensInput
from stages.opening import Tool
from tests.support.parse import (
    PROMPT,
    QWEN,
    check_partition,
    check_stream,
    merged,
    message,
    opening,
    semantic,
    session,
    splits,
    texts,
)

PATH = Path(__file__).parents[1] / "data" / "cases_hermes.jsonl"
CASES: list[dict[str, Any]] = [json.loads(line) for line in PATH.read_text(encoding="utf-8").splitlines()]


def _runs(case: dict[str, Any]) -> list[tuple[str, list[TokensInput]]]:
    if "token_bytes" in case:
        pieces = [bytes.fromhex(piece) for piece in case["token_bytes"]]
        ids = tuple(range(len(pieces)))
        return [
            ("token", [TokensInput(0, (i,), (piece,), "") for i, piece in enumerate(pieces)]),
            ("one", [TokensInput(0, ids, tuple(pieces), "")]),
        ]
    runs = list(splits(case["raw_output"], QWEN))
    if "deltas" in case:
        runs.append(("deltas", texts(case["deltas"])))
    return runs


def _trimmed(text: str | None) -> str | None:
    return text.strip() or None if text else None


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_case(case: dict[str, Any]) -> None:
    expected = case["expected"]
    opened = opening(tools=tuple(Tool(name) for name in case.get("tools", ())), stop=tuple(case.get("stop", ())))
    first: list[Any] | None = None
    for split, steps in _runs(case):
        inputs: list[Input] = session(steps, tail=case.get("prompt_tail", PROMPT))
        events = semantic(opened, inputs)
        check_stream(events)
        check_partition(inputs, events)
        got = message(events)
        assert _trimmed(got.reasoning) == _trimmed(expected["reasoning"]), split
        assert _trimmed(got.content) == _trimmed(expected["content"]), split
        calls = [{"name": call.name, "arguments": call.value()} for call in got.calls]
        assert calls == expected["tool_calls"], split
        assert all(call.complete for call in got.calls)
        for text in expected.get("forbidden_in_content", ()):
            assert text not in (got.content or ""), split
        if got.finish != "stop":  # what is dropped behind a stop string comes before or behind Finish
            first = first or merged(events)
            assert merged(events) == first, split
