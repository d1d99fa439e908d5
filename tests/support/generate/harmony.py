"""Output of the harmony grammar: ``stages/parse/formats/harmony.py`` has it.

The renderer writes one message per part: reasoning on analysis, text before calls on commentary, the answer on final, a
call as commentary to ``functions.NAME``. Models put the recipient before the channel, leave ``<|constrain|>`` out, and
end a call with ``<|end|>`` when more follow.

Losses: parts of one kind are joined by a newline; content beside calls is in order with them all the same.
"""

from __future__ import annotations

import random

from stages.opening import TokenizerFacts
from stages.parse.formats.harmony import HARMONY
from tests.support.generate.family import Family, json_text
from tests.support.generate.message import Invocation, Limits, Meant

GPT_OSS = TokenizerFacts(
    special={
        "<|startoftext|>": 199998, "<|endoftext|>": 199999, "<|return|>": 200002, "<|constrain|>": 200003,
        "<|channel|>": 200005, "<|start|>": 200006, "<|end|>": 200007, "<|message|>": 200008, "<|call|>": 200012,
    },
    eos=(199999, 200002, 200012),
)  # fmt: skip
_START = "<|start|>assistant"


def _call(call: Invocation, dice: random.Random) -> str:
    to = f" to=functions.{call.name}"
    channel = "<|channel|>" + dice.choice(("commentary", "commentary", "commentary", "analysis"))
    header = to + channel if dice.random() < 0.3 else channel + to
    header += dice.choice((" <|constrain|>json", " <|constrain|>json", "<|constrain|>json", " json", " code", ""))
    body = "" if not call.arguments and dice.random() < 0.2 else json_text(call.arguments, dice)
    space = dice.choice(("", "", "", " ", "\n"))
    return f"{header}<|message|>{space}{body}{space}"


def write(meant: Meant, dice: random.Random, kind: str) -> str:
    """See Family."""
    del kind
    messages: list[str] = []
    if meant.reasoning is not None:
        messages.append(f"<|channel|>analysis<|message|>{meant.reasoning}<|end|>")
    elif dice.random() < 0.1:
        messages.append("<|channel|>analysis<|message|><|end|>")
    calls = bool(meant.calls)
    for i, part in enumerate(meant.parts):
        last = i + 1 == len(meant.parts)
        if isinstance(part, Invocation):
            messages.append(_call(part, dice) + (dice.choice(("<|call|>", "")) if last else "<|end|>"))
            if not last and dice.random() < 0.3:
                messages[-1] = messages[-1].removesuffix("<|end|>") + "<|call|>"
        else:
            channel = "commentary" if calls else "final"
            ender = dice.choice(("<|return|>", "<|end|>", "")) if last else "<|end|>"
            messages.append(f"<|channel|>{channel}<|message|>{part}{ender}")
    # A body without an end of its own: an empty one is not whole.
    if messages and messages[-1].rstrip().endswith("<|message|>"):
        messages[-1] += "<|call|>"
    return _START.join(messages)


def _expect(meant: Meant, kind: str) -> Meant:
    del kind
    parts: list[str | Invocation] = []
    wrote = False
    for part in meant.parts:
        if isinstance(part, str):
            parts.append("\n" + part if wrote else part)
            wrote = True
        else:
            parts.append(part)
    return Meant(meant.reasoning, tuple(parts))


FAMILIES = (
    Family(
        format=HARMONY,
        tokenizer=GPT_OSS,
        write=write,
        tails={"plain": "<|start|>user<|message|>hello<|end|><|start|>assistant"},
        markers=tuple(GPT_OSS.special),
        limits=Limits(),
        expect=_expect,
        tail=512,
    ),
)
