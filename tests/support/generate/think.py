"""Output of a model that reasons, for ``stages/parse/formats/think.py``: whatever follows is content."""

from __future__ import annotations

import random

from stages.parse.formats.think import THINK
from tests.support.generate.family import Family
from tests.support.generate.hermes import QWEN3
from tests.support.generate.message import Limits, Meant

_PROMPT = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"


def write(meant: Meant, dice: random.Random, kind: str) -> str:
    """See Family."""
    pieces: list[str] = []
    if kind == "thinking":
        pieces.append(f"{meant.reasoning or ''}\n</think>\n\n")
    elif meant.reasoning is not None:
        pieces.append(f"<think>\n{meant.reasoning}\n</think>\n\n")
    pieces.append(meant.content or "")
    if dice.random() < 0.2:
        pieces.append("<|im_end|>")
    return "".join(pieces)


FAMILIES = (
    Family(
        format=THINK,
        tokenizer=QWEN3,
        write=write,
        tails={"plain": _PROMPT, "thinking": _PROMPT + "<think>\n", "off": _PROMPT + "<think>\n\n</think>\n\n"},
        markers=("<think>", "</think>"),
        limits=Limits(
            calls=0, prose_never=("<think>", "</think>"), prose_also=("<tool_call>", "</tool_call>", "<thinking>")
        ),
    ),
)
