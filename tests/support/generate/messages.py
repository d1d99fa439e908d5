"""Output of Inkling and Muse: ``stages/parse/formats/inkling.py`` and ``muse.py`` have the grammars.

One message per part. Models forget the end of a message where the next one begins.

Losses: parts of one kind are joined by a newline; content beside calls is in order with them all the same. Muse writes
no types: a string that reads as JSON is none where nothing else tells, so that the strings of Glimmer are drawn without
such, and Spark's are told by the schemas, which are true.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

from stages.opening import TokenizerFacts
from stages.parse.formats.inkling import INKLING
from stages.parse.formats.muse import MUSE, MUSE_GLIMMER
from tests.support.generate.family import Family, json_text
from tests.support.generate.message import NAME_CHARS, Invocation, Limits, Meant, mapped

_KINDS = ("thinking", "text", "invoke_tool_json", "invoke_tool_text", "tool_error")
SPECIAL = TokenizerFacts(
    special={
        "<|endoftext|>": 200000, "<|message_user|>": 200001, "<|message_model|>": 200002, "<|end_message|>": 200003,
        "<|content_model_end_sampling|>": 200004,
        **{f"<|content_{kind}|>": 200005 + i for i, kind in enumerate(_KINDS)},
    },
    eos=(200000, 200004),
)  # fmt: skip
ATEM = TokenizerFacts(
    special={"<|begin|>": 300000, "<|start|>": 300001, "<|message|>": 300002, "<|eom|>": 300003, "<|eot|>": 300004},
    eos=(300004,),
)


def _ended(messages: list[str], ender: str, last: str, dice: random.Random) -> list[str]:
    """With the ends of the messages; a body that nothing ends, and that has nothing in it, is not whole."""
    ended = [message + (ender if dice.random() < 0.9 else "") for message in messages]
    return [*ended[:-1], messages[-1] + dice.choice((ender, last))] if messages else []


def _inkling(meant: Meant, dice: random.Random, kind: str) -> str:
    meta = "tide" if dice.random() < 0.2 else ""
    messages: list[str] = []
    if meant.reasoning is not None:
        messages.append(f"<|content_thinking|>{meant.reasoning}")
    for part in meant.parts:
        if isinstance(part, str):
            messages.append(f"<|content_text|>{part}")
            continue
        members = [f'"name": {json.dumps(part.name)}', f'"args": {json_text(part.arguments, dice)}']
        if dice.random() < 0.1:
            members.reverse()
        space = dice.choice(("", "", "\n"))
        messages.append(f"{meta}<|content_invoke_tool_json|>{space}{{{', '.join(members)}}}{space}")
    start = "" if kind == "open" else "<|message_model|>"
    joined = "<|message_model|>".join(_ended(messages, "<|end_message|>", "<|content_model_end_sampling|>", dice))
    return start + joined if joined else ""


def _invoke(call: Invocation, dice: random.Random) -> str:
    gap = dice.choice(("\n", "\n", ""))
    pieces = [f'<atem:invoke name="{call.name}">']
    for key, value in call.arguments.items():
        text = value if isinstance(value, str) else json_text(value, dice)
        pieces.append(f'<atem:parameter name="{key}">{text}</atem:parameter>')
    return gap.join((*pieces, "</atem:invoke>"))


def _muse(meant: Meant, dice: random.Random, kind: str) -> str:
    alone = "reasoning" if kind == "spark" else "content"
    messages: list[str] = []
    if meant.reasoning is not None:
        to = "" if alone == "reasoning" and dice.random() < 0.2 else " to=self"
        messages.append(f"{to}<|message|>{meant.reasoning}")
    for part in meant.parts:
        if isinstance(part, str):
            to = "" if alone == "content" and dice.random() < 0.2 else dice.choice((" to=user", " to=commentary"))
            messages.append(f"{to}<|message|>{part}")
            continue
        gap = dice.choice(("\n", "\n", ""))
        calls = f"<atem:function_calls>{gap}{_invoke(part, dice)}{gap}</atem:function_calls>"
        messages.append(f" to={part.name}<|message|>{calls}")
    return "<|start|>assistant".join(_ended(messages, "<|eom|>", "<|eot|>", dice))


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


def _worded(meant: Meant, dice: random.Random, kind: str) -> str:
    """Glimmer: what reads as JSON is no string."""
    return _muse(_unread(meant), dice, kind)


def _unread(meant: Meant) -> Meant:
    def worded(call: Invocation) -> Invocation:
        return replace(call, arguments={key: _word(value) for key, value in call.arguments.items()})

    return replace(meant, parts=tuple(part if isinstance(part, str) else worded(part) for part in meant.parts))


def _word(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        json.loads(value, strict=False)
    except ValueError:
        return value
    return mapped(value, lambda text: f"so {text}")


def _expect_worded(meant: Meant, kind: str) -> Meant:
    return _expect(_unread(meant), kind)


_TEXT_TAGS = (
    "<atem:function_calls>", "</atem:function_calls>", '<atem:invoke name="tide">', "</atem:invoke>",
    '<atem:parameter name="a">', "</atem:parameter>", "<atem:invoke", "<atem:parameter",
)  # fmt: skip
_MUSE = Family(
    format=MUSE,
    tokenizer=ATEM,
    write=_muse,
    tails={"spark": "<|start|>user<|message|>hello<|eom|><|start|>assistant"},
    markers=(*ATEM.special, *_TEXT_TAGS),
    limits=Limits(keys=NAME_CHARS, strings_never=("</atem:parameter>",)),
    expect=_expect,
    tail=512,
)

FAMILIES = (
    Family(
        format=INKLING,
        tokenizer=SPECIAL,
        write=_inkling,
        tails={"open": "<|message_user|>hello<|end_message|><|message_model|>", "plain": ""},
        markers=tuple(SPECIAL.special),
        limits=Limits(),
        expect=_expect,
        tail=512,
    ),
    _MUSE,
    replace(_MUSE, format=MUSE_GLIMMER, write=_worded, tails={"glimmer": next(iter(_MUSE.tails.values()))},
            expect=_expect_worded),
)  # fmt: skip
