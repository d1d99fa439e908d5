"""Output of the hermes grammar: ``stages/parse/formats/hermes.py`` has it. Copy this file for the next grammar.

The template writes ``<tool_call>``, a newline, the object, a newline and ``</tool_call>``, with a newline before each
block. Models swap the members, leave empty arguments out, and put several objects into one block.
"""

from __future__ import annotations

import random

from stages.opening import TokenizerFacts
from stages.parse.formats.hermes import HERMES
from tests.support.generate.family import Family, json_text
from tests.support.generate.message import Invocation, Limits, Meant

_MARKERS = ("<tool_call>", "</tool_call>", "<think>", "</think>")
_PROMPT = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
QWEN3 = TokenizerFacts(
    special={"<|endoftext|>": 151643, "<|im_start|>": 151644, "<|im_end|>": 151645, "<|box_start|>": 151648},
    added={
        "<tool_call>": 151657, "</tool_call>": 151658, "<tool_response>": 151665, "</tool_response>": 151666,
        "<think>": 151667, "</think>": 151668,
    },
    eos=(151645, 151643),
)  # fmt: skip
LLAMA = TokenizerFacts(
    special={"<|begin_of_text|>": 128000, "<|end_of_text|>": 128001, "<|eot_id|>": 128009, "<|im_end|>": 128039},
    eos=(128039, 128009),
)
"""A base without tokens of its own for the markers (Hermes 3): all are spelled."""


def _object(call: Invocation, dice: random.Random) -> str:
    name = f'"name": {json_text(call.name, dice)}'
    if not call.arguments and dice.random() < 0.5:
        return "{" + name + dice.choice(("", ', "arguments": null', ', "arguments": ""')) + "}"
    key = "parameters" if dice.random() < 0.1 else "arguments"
    text = json_text(call.arguments, dice)
    if dice.random() < 0.05:
        text = json_text(text, dice)
    members = [name, f'"{key}": {text}']
    if dice.random() < 0.1:
        members.reverse()
    return "{" + dice.choice((", ", ", ", ",", " ,\n  ")).join(members) + "}"


def _blocks(calls: list[Invocation], dice: random.Random) -> str:
    """Calls that follow each other."""
    objects = [_object(call, dice) for call in calls]
    style = dice.random()
    if len(objects) > 1 and style < 0.1:
        return f"<tool_call>\n[{', '.join(objects)}]\n</tool_call>"
    if len(objects) > 1 and style < 0.2:
        return "<tool_call>\n" + dice.choice(("\n", ", ")).join(objects) + "\n</tool_call>"
    space = dice.choice(("\n", "\n", "\n", "", " "))
    return "\n".join(f"<tool_call>{space}{text}{space}</tool_call>" for text in objects)


def write(meant: Meant, dice: random.Random, kind: str) -> str:
    """See Family."""
    pieces: list[str] = []
    if kind == "thinking":
        pieces.append(f"{meant.reasoning or ''}\n</think>\n\n")
    elif meant.reasoning is not None:
        pieces.append(f"<think>\n{meant.reasoning}\n</think>\n\n")
    elif kind == "plain" and dice.random() < 0.1:
        pieces.append("<think>\n\n</think>\n\n")
    run: list[Invocation] = []
    for i, part in enumerate(meant.parts):
        if isinstance(part, Invocation):
            run.append(part)
            continue
        if run:
            pieces += _blocks(run, dice), "\n"
            run = []
        pieces.append(part)
        if i + 1 < len(meant.parts):
            pieces.append(dice.choice(("\n", "\n", "\n\n", "")))
    if run:
        pieces.append(_blocks(run, dice))
        pieces.append(dice.choice(("", "", "\n")))
    if dice.random() < 0.2:
        pieces.append("<|im_end|>")
    return "".join(pieces)


_LIMITS = Limits(prose_never=_MARKERS, prose_also=("<tool", "</tool", "<thinking>", "tool_call>"))
_TAILS = {"plain": _PROMPT, "thinking": _PROMPT + "<think>\n", "off": _PROMPT + "<think>\n\n</think>\n\n"}

FAMILIES = (
    Family(format=HERMES, tokenizer=QWEN3, write=write, tails=_TAILS, markers=_MARKERS, limits=_LIMITS),
    Family(
        format=HERMES, tokenizer=LLAMA, write=write, tails=_TAILS, markers=_MARKERS, limits=_LIMITS, variant="spelled"
    ),
)
