"""Output of the plain grammar: all is content; special tokens are dropped, and an end of turn ends it."""

from __future__ import annotations

import random

from stages.parse.formats.plain import PLAIN
from tests.support.generate.family import Family
from tests.support.generate.hermes import QWEN3
from tests.support.generate.message import Limits, Meant


def write(meant: Meant, dice: random.Random, kind: str) -> str:
    """See Family."""
    del kind
    pieces = [part for part in meant.parts if isinstance(part, str)]
    if dice.random() < 0.2:
        pieces.insert(0, "<|box_start|>")
    if dice.random() < 0.2:
        pieces.append("<|im_end|>")
    return "".join(pieces)


_LIMITS = Limits(reasoning=False, calls=0, prose_also=("<think>", "</think>", "<tool_call>", "<|im_end|>"))

FAMILIES = (
    Family(format=PLAIN, tokenizer=QWEN3, write=write, tails={"plain": "", "off": ""}, markers=(), limits=_LIMITS),
)
