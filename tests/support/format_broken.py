"""Off-grammar output: generated output with damage. Nothing raises, nothing is lost, and what follows still arrives."""

from __future__ import annotations

import random
import re
from typing import Any

from stages.events import Fault, Marker
from tests.support.format_checks import POLICIES, Subject, check_invariance, generated
from tests.support.generate.family import Family
from tests.support.parse import check_resume, grouped, owned, session

SENTINEL = "\n\nthe last words 47"
"""Stands behind all damage."""
FOREIGN = (
    "<tool_call>", "</tool_call>", "<think>", "</think>", "<function=", "</function>", "<parameter=a>", "</parameter>",
    "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "<tool_response>", "[TOOL_CALLS]", "[ARGS]", "[THINK]",
    "<|python_tag|>", "<|im_end|>", "<|eot_id|>", "<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|call|>",
    "<|return|>", "<|tool_calls_section_begin|>", "<|tool_call_begin|>", "<|tool_call_end|>", "<invoke name=\"a\">",
    "</invoke>", "<minimax:tool_call>", "<｜tool▁calls▁begin｜>", "<｜tool▁sep｜>", "<｜DSML｜invoke name=\"a\">",
    "<|tool_call>call:", "<tool_call|>", "<|\"|>", "<escape>", "<start_function_call>", "functools[", "<|tool_call|>",
    "<seed:think>", "<|open|>", "<|sep|>", "[", "]", "{", "}", "\"", "'", "(", ")", "\\", "```json\n", "```", "</", "<",
    ">", "=", ":", ",", "\n", "null", "\x00", "é", "😀",
)  # fmt: skip
"""Markers of all grammars, and what grammars are made of."""


def broken(family: Family, seed: int) -> Subject:
    """An output with damage; now and then in a request without tools, or with little room for what is undecided."""
    subject, _ = generated(family, seed)
    dice = random.Random(f"broken {family.name} {seed}")
    literals = sorted((*family.markers, *family.tokenizer.special, *family.tokenizer.added), key=len, reverse=True)
    pattern = f"({'|'.join(map(re.escape, literals))}|[{{}}\\[\\]()<>\"',:=\\n])" if literals else "(\\s)"
    parts = [part for part in re.split(pattern, subject.raw) if part]
    for _ in range(dice.choice((1, 1, 2, 3, 5))):
        if parts:
            _damage(parts, family, dice)
    asks: dict[str, Any] = {}
    if dice.random() < 0.1:
        asks["max_held"] = dice.choice((0, 16, 64, 300))
    tools = () if dice.random() < 0.1 else subject.tools
    return Subject(family, "".join(parts) + SENTINEL, subject.tail, tools, asks=asks)


def _damage(parts: list[str], family: Family, dice: random.Random) -> None:
    i, j = dice.randrange(len(parts)), dice.randrange(len(parts))
    match dice.randrange(7):
        case 0:
            del parts[i]
        case 1:
            parts.insert(i, parts[i])
        case 2:
            parts[i], parts[j] = parts[j], parts[i]
        case 3:
            parts[i] = parts[i][: dice.randrange(len(parts[i]) + 1)] or " "
        case 4:
            del parts[i + 1 :]
        case 5:
            parts.insert(i, dice.choice(FOREIGN))
        case _:
            parts.insert(i, dice.choice((*family.markers, *family.tokenizer.special, "\n")))


def check_broken(family: Family, seed: int) -> None:
    """Nothing raises, nothing is lost, no split changes anything, and what stands behind the damage arrives."""
    subject = broken(family, seed)
    for calls in POLICIES:
        check_invariance(subject, calls, seeds=1, valid=False)
        tokens = subject.pieces()
        events = subject.events(grouped(tokens, [1] * len(tokens)), calls)
        told = "".join(text for event, text, _ in owned(events) if not isinstance(event, Marker))
        # In a call that never ended, members that mean nothing are structure.
        arrived = SENTINEL.strip() in told or any(isinstance(event, Fault) for event in events)
        assert arrived, "what stands behind the damage is lost"
    if seed % 4 == 0 and len(subject.pieces()) < 300:
        calls = POLICIES[seed // 4 % 2]
        steps = grouped(subject.pieces(), [random.Random(i).randint(1, 8) for i in range(300)])
        check_resume(subject.stage(calls), subject.opened(calls), session(steps, tail=subject.tail))
