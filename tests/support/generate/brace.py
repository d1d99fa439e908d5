"""Output of brace notation: Gemma 4 and FunctionGemma.

The templates sort keys and write no white space; here keys keep their order, and the deviations that models show are
drawn now and then. What a message loses: nothing.
"""

from __future__ import annotations

import json
import random

from replay.plain import is_list, is_map
from stages.opening import TokenizerFacts
from stages.parse.formats.functiongemma import FUNCTIONGEMMA
from stages.parse.formats.gemma4 import GEMMA4
from tests.support.generate.family import Family
from tests.support.generate.message import NAME_CHARS, Invocation, Limits, Meant, Value

GEMMA = TokenizerFacts(
    special={
        "<pad>": 0, "<eos>": 1, "<bos>": 2, "<|tool_call>": 48, "<tool_call|>": 49, "<|tool_response>": 50,
        "<tool_response|>": 51, '<|"|>': 52, "<|think|>": 98, "<|channel>": 100, "<channel|>": 101, "<|turn>": 105,
        "<turn|>": 106,
    },
    eos=(1, 106, 50),
)  # fmt: skip
SMALL = TokenizerFacts(
    special={"<pad>": 0, "<eos>": 1, "<bos>": 2, "<start_of_turn>": 105, "<end_of_turn>": 106},
    added={
        "<start_function_declaration>": 46, "<end_function_declaration>": 47, "<start_function_call>": 48,
        "<end_function_call>": 49, "<start_function_response>": 50, "<end_function_response>": 51, "<escape>": 52,
    },
    eos=(1, 106, 50),
)  # fmt: skip


def value(meant: Value, dice: random.Random, quote: str, space: str) -> str:
    """A value, its structure with ``space``."""
    if isinstance(meant, str):
        if dice.random() < 0.05:
            return json.dumps(meant, ensure_ascii=False)
        return f"{quote}{meant}{quote}"
    comma = "," + space
    if is_list(meant):
        return f"[{comma.join(value(item, dice, quote, space) for item in meant)}]"
    if is_map(meant):
        return f"{{{comma.join(pairs(meant, dice, quote, space))}}}"
    return json.dumps(meant) if meant is not None or dice.random() < 0.8 else "None"


def pairs(meant: dict[str, Value], dice: random.Random, quote: str, space: str) -> list[str]:
    """The members of an object."""
    written: list[str] = []
    for key, item in meant.items():
        mark = dice.choice(("",) * 8 + (quote, '"'))
        written.append(f"{mark}{key}{mark}:{space}{value(item, dice, quote, space)}")
    return written


def call(meant: Invocation, dice: random.Random, opener: str, closer: str, quote: str) -> str:
    """A call between its markers."""
    space = dice.choice(("", "", "", " "))
    inside = ("," + space).join(pairs(meant.arguments, dice, quote, space))
    if not inside and dice.random() < 0.1:
        return f"{opener}call:{meant.name}{closer}"
    left, right = dice.choice(("{}",) * 9 + ("()",))
    prefix = dice.choice(("call:",) * 8 + (":", ""))
    return f"{opener}{prefix}{meant.name}{left}{inside}{right}{closer}"


def gemma4(meant: Meant, dice: random.Random, kind: str) -> str:
    """See Family."""
    pieces: list[str] = []
    if kind == "thinking":
        pieces.append(f"{meant.reasoning or ''}{dice.choice(('', chr(10)))}<channel|>")
    elif meant.reasoning is not None:
        label, end = dice.choice(("thought", "thought", "analysis", "")), dice.choice(("", "\n"))
        pieces.append(f"<|channel>{label}\n{meant.reasoning}{end}<channel|>")
    elif kind == "plain" and dice.random() < 0.2:
        pieces.append("<|channel>thought\n<channel|>")
    for i, part in enumerate(meant.parts):
        if isinstance(part, str):
            pieces.append(part)
            continue
        written = call(part, dice, "<|tool_call>", "<tool_call|>", '<|"|>')
        if i + 1 == len(meant.parts) and dice.random() < 0.1 and not written.endswith(":" + part.name + "<tool_call|>"):
            written = written.removesuffix("<tool_call|>")
        pieces.append(written)
    return "".join(pieces) + dice.choice(("", "", "<turn|>", "<|tool_response>"))


def functiongemma(meant: Meant, dice: random.Random, kind: str) -> str:
    """See Family."""
    del kind
    pieces: list[str] = []
    for part in meant.parts:
        if isinstance(part, str):
            pieces.append(part)
        else:
            pieces.append(call(part, dice, "<start_function_call>", "<end_function_call>", "<escape>"))
    return "".join(pieces) + dice.choice(("", "", "<end_of_turn>", "<start_function_response>"))


_PROMPT = "<|turn>user\nhello<turn|>\n<|turn>model\n"
_CHANNEL = "<|channel>thought\n"
_CALLS = ("<start_function_call>", "<end_function_call>", "<escape>")

FAMILIES = (
    Family(
        format=GEMMA4, tokenizer=GEMMA, write=gemma4,
        tails={"plain": _PROMPT, "thinking": _PROMPT + _CHANNEL, "off": f"{_PROMPT}{_CHANNEL}<channel|>"},
        markers=("<|tool_call>", "<tool_call|>", '<|"|>', "<|channel>", "<channel|>", "call:"),
        limits=Limits(keys=NAME_CHARS, prose_also=("(call:tide{})", "<|tool_", "call:")),
    ),
    Family(
        format=FUNCTIONGEMMA, tokenizer=SMALL, write=functiongemma, tails={"plain": "", "off": ""},
        markers=(*_CALLS, "call:"),
        limits=Limits(reasoning=False, keys=NAME_CHARS, prose_never=_CALLS, strings_never=("<escape>",),
                      prose_also=("(call:tide{})", "<start_function", "<end_function_")),
    ),
)  # fmt: skip
