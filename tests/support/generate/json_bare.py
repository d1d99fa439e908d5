"""Output of the grammars whose calls are bare JSON: Llama 3 and xLAM.

What a message loses is excluded by the limits: in content, what would be read as a call there. An object is held until
its arguments begin, so that is what may be undecided where an output is cut: ``tail``.
"""

from __future__ import annotations

import random
from functools import partial

from stages.opening import TokenizerFacts
from stages.parse.formats.llama_json import LLAMA_JSON
from stages.parse.formats.xlam import XLAM
from tests.support.generate.family import Family
from tests.support.generate.json_arrays import array_text, object_text
from tests.support.generate.message import Invocation, Limits, Meant

_LLAMA = TokenizerFacts(
    special={
        "<|begin_of_text|>": 128000, "<|end_of_text|>": 128001, "<|start_header_id|>": 128006,
        "<|end_header_id|>": 128007, "<|eom_id|>": 128008, "<|eot_id|>": 128009, "<|python_tag|>": 128010,
    },
    eos=(128009, 128008, 128001),
)  # fmt: skip
_SPELLED = TokenizerFacts(special={"<|end_of_text|>": 128001, "<|eot_id|>": 128009}, eos=(128009,))
"""A fine-tune without the tag in its vocabulary."""
_HELD = 400
"""A name, and members before it."""


def _wrapped(text: str, dice: random.Random) -> str:
    return f'{{"type": "function", "function": {text}}}' if dice.random() < 0.1 else text


def _calls(calls: list[Invocation], dice: random.Random) -> str:
    keys = ("parameters", "parameters", "parameters", "arguments")
    objects = [_wrapped(object_text(call, dice, *keys, must=True, swap=False), dice) for call in calls]
    if dice.random() < 0.15:
        return array_text(objects, dice)
    return dice.choice(("; ", "; ", ";", ",", ", ", "\n", ";\n", "")).join(objects)


def _llama(meant: Meant, dice: random.Random, kind: str) -> str:
    del kind
    pieces: list[str] = []
    run = [part for part in meant.parts if isinstance(part, Invocation)]
    for part in meant.parts:
        if isinstance(part, str):
            pieces.append(part)
        elif run:
            tag = "<|python_tag|>" if pieces or dice.random() < 0.4 else dice.choice(("", "", " ", "\n"))
            pieces += tag, dice.choice(("", "", "\n")), _calls(run, dice), dice.choice(("", "\n", " "))
            run = []
    return "".join(pieces)


def _xlam(meant: Meant, dice: random.Random, kind: str) -> str:
    pieces = [f"{meant.reasoning or ''}</think>{dice.choice(('', chr(10)))}"] if kind == "thinking" else []
    run = [part for part in meant.parts if isinstance(part, Invocation)]
    spoken = False
    for part in meant.parts:
        if isinstance(part, str):
            pieces.append(part)
            spoken = True
        elif run:
            objects = [object_text(call, dice, "arguments", "arguments", "parameters", must=True, swap=False)
                       for call in run]  # fmt: skip
            text = objects[0] if len(objects) == 1 and dice.random() < 0.3 else array_text(objects, dice)
            pieces += dice.choice(("\n", "\n\n", "")) if spoken else "", _enveloped(text, dice, spoken), "\n"
            run = []
    return "".join(pieces)


def _enveloped(text: str, dice: random.Random, spoken: bool) -> str:
    envelopes = (("", ""),) * 4 * (not spoken) + (
        ("```json\n", "\n```"), ("```\n", "\n```"), ("[TOOL_CALLS]", ""), ("[TOOL_CALLS] ", ""),
        ("<tool_call>", "</tool_call>"), ("<tool_call>\n", "\n</tool_call>"),
    )  # fmt: skip
    opener, closer = dice.choice(envelopes)
    return f"{opener}{text}{closer}"


_TURN = "<|start_header_id|>assistant<|end_header_id|>\n\n"
_TAG = ("<|python_tag|>", "{", "[")
_ENVELOPES = ("```json", "```", "[TOOL_CALLS]", "<tool_call>", "</tool_call>", "</think>", "{", "[")
_bare = partial(Limits, between=False, prose_also=("functools", "<|python", "{'a': 1}", "[1]"))

FAMILIES = (
    Family(
        format=LLAMA_JSON, tokenizer=_LLAMA, write=_llama, tails={"plain": _TURN}, markers=_TAG, tail=_HELD,
        limits=_bare(reasoning=False, prose_never=("<|python_tag|>", "{")),
    ),
    Family(
        format=LLAMA_JSON, tokenizer=_SPELLED, write=_llama, tails={"plain": _TURN}, markers=_TAG, tail=_HELD,
        limits=_bare(reasoning=False, prose_never=("<|python_tag|>", "{")), variant="spelled",
    ),
    Family(
        format=XLAM, tokenizer=_SPELLED, write=_xlam, markers=_ENVELOPES, tail=_HELD,
        tails={"thinking": _TURN + "<think>", "off": _TURN},
        limits=_bare(prose_never=(*_ENVELOPES[:-2], "<think>")),
    ),
)  # fmt: skip
