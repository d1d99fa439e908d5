"""Output of Kimi K3's elements: ``stages/parse/formats/kimi_k3.py`` has the grammar.

The renderer writes everything in one place: reasoning, response, tools. Models leave the response out where there are
calls only, forget closers of what the next tag ends, and write the whole arguments as one JSON element where the
conversation stored them as a string.

Losses: none. Text between the elements is not written.
"""

from __future__ import annotations

import random

from stages.opening import TokenizerFacts
from stages.parse.formats.kimi_k3 import KIMI_K3
from tests.support.generate.family import Family, json_text
from tests.support.generate.message import Invocation, Limits, Meant, Value, kind_of

K3 = TokenizerFacts(
    special={"[BOS]": 163584, "<|end_of_msg|>": 163586, "<|open|>": 163587, "<|close|>": 163588, "<|sep|>": 163589},
    eos=(163586,),
)


def _open(name: str) -> str:
    return f"<|open|>{name}<|sep|>"


def _close(name: str) -> str:
    return f"<|close|>{name}<|sep|>"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;")


def _argument(key: str, value: Value, dice: random.Random) -> str:
    kind = kind_of(value)
    # Without its type, the schema tells it; the harness's schemas are true.
    typed = f' type="{"number" if kind == "integer" else kind}"' if dice.random() < 0.9 else ""
    text = value if isinstance(value, str) else json_text(value, dice)
    return _open(f'argument key="{_escaped(key)}"{typed}') + text


def _call(call: Invocation, index: int, dice: random.Random) -> str:
    pieces = [_open(f'call tool="{call.name}" index="{index}"')]
    if dice.random() < 0.1:
        pieces += _open('json type="object"'), json_text(call.arguments, dice), _close("json")
        return "".join(pieces)
    space = dice.choice(("", "", "", "\n"))
    for key, value in call.arguments.items():
        pieces += _argument(key, value, dice), _close("argument") + space if dice.random() < 0.9 else ""
    return "".join(pieces)


def write(meant: Meant, dice: random.Random, kind: str) -> str:
    """See Family."""
    pieces: list[str] = []
    if kind == "thinking":
        pieces.append(meant.reasoning or "")
    elif meant.reasoning is not None:
        pieces.append(_open("think") + meant.reasoning)
    text = meant.parts[0] if meant.parts and isinstance(meant.parts[0], str) else ""
    silent = not text and dice.random() < 0.3 and kind != "off"
    if pieces and (dice.random() < 0.9 or (text and silent)):
        pieces.append(_close("think"))
    if not silent:
        pieces += _open("response") if kind != "off" else "", text, _close("response")
    if meant.calls:
        pieces.append(_open("tools"))
        for index, call in enumerate(meant.calls, 1):
            pieces.append(_call(call, index, dice) + (_close("call") if dice.random() < 0.9 else ""))
        pieces.append(_close("tools"))
    elif silent and not pieces:
        pieces.append(_open("response") + _close("response"))
    pieces.append(_close("message") + dice.choice(("", "<|end_of_msg|>")))
    return "".join(pieces)


_MESSAGE = '<|open|>message role="assistant"<|sep|>'
_USER = '<|open|>message role="user"<|sep|>hello<|close|>message<|sep|>'

FAMILIES = (
    Family(
        format=KIMI_K3,
        tokenizer=K3,
        write=write,
        tails={
            "thinking": f"{_USER}{_MESSAGE}<|open|>think<|sep|>",
            "off": f"{_USER}{_MESSAGE}<|open|>response<|sep|>",
            "plain": f"{_USER}{_MESSAGE}",
        },
        markers=(
            *(tag(name) for name in ("think", "response", "tools", "message", "json", "call", "argument") for tag in (
                _open, _close)),
            '<|open|>call tool="tide" index="1"<|sep|>', '<|open|>argument key="a" type="string"<|sep|>',
            "<|open|>call", "<|open|>argument", "<|open|>json", "<|open|>", "<|close|>", "<|sep|>",
        ),
        limits=Limits(between=False, after=False),
    ),
)  # fmt: skip
