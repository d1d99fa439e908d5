"""Output of Cohere's Command 5: calls as elements, thinking and responses between tokens.

Losses: white space at the end of content, where a response token or a block of calls follows.
"""

from __future__ import annotations

import random

from replay.plain import is_list, is_map
from stages.opening import TokenizerFacts
from stages.parse.formats.cohere_command5 import COHERE_COMMAND5
from tests.support.generate.family import Family, json_text
from tests.support.generate.message import NAME_CHARS, Invocation, Limits, Meant, Value

_TOKENS = (
    "<|START_THINKING|>", "<|END_THINKING|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>",
    "<|END_TEXT|>", "<|START_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>", "<|CHATBOT_TOKEN|>",
)  # fmt: skip
_SPECIAL = {text: 255000 + i for i, text in enumerate(_TOKENS)}
_CLOSERS = ("</cofl:value>", "</cofl:tool_param>")
_TAGS = (
    "<cofl:tool_calls>", "</cofl:tool_calls>", '<cofl:tool_call id="0" name="tide">', "</cofl:tool_call>",
    '<cofl:value name="a" type="raw">', '<cofl:value type="raw">', "</cofl:value>", "<cofl:tool_call", "<cofl:value",
    "<cofl:tool_param", "</cofl:tool_param>",
)  # fmt: skip
_TURN = "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>"


def _value(key: str | None, value: Value, gap: str, dice: random.Random) -> str:
    named = "" if key is None else f' name="{key.replace("&", "&amp;").replace(chr(34), "&quot;")}"'
    if key is not None and dice.random() < 0.1:
        string = isinstance(value, str)
        text = value if isinstance(value, str) else json_text(value, dice)
        return f'<cofl:tool_param{named} string="{str(string).lower()}">{text}</cofl:tool_param>'
    if isinstance(value, str):
        return f'<cofl:value{named} type="raw">{value}</cofl:value>'
    if is_list(value) and dice.random() < 0.8:
        items = gap.join(("", *(_value(None, item, gap, dice) for item in value), ""))
        return f'<cofl:value{named} type="list">{items}</cofl:value>'
    if is_map(value) and dice.random() < 0.8:
        members = gap.join(("", *(_value(name, item, gap, dice) for name, item in value.items()), ""))
        return f'<cofl:value{named} type="dict">{members}</cofl:value>'
    return f'<cofl:value{named} type="json">{json_text(value, dice)}</cofl:value>'


def _block(calls: list[Invocation], dice: random.Random) -> str:
    gap = dice.choice(("", "", "\n"))
    pieces = ["<cofl:tool_calls>"]
    for i, call in enumerate(calls):
        values = (_value(key, value, gap, dice) for key, value in call.arguments.items())
        pieces.append(gap.join((f'<cofl:tool_call id="{i}" name="{call.name}">', *values, "</cofl:tool_call>")))
    return gap.join((*pieces, "</cofl:tool_calls>"))


def write(meant: Meant, dice: random.Random, kind: str) -> str:
    """See Family."""
    pieces: list[str] = []
    if kind == "thinking":
        pieces.append(f"{meant.reasoning or ''}<|END_THINKING|>")
    elif meant.reasoning is not None:
        pieces.append(f"<|START_THINKING|>{meant.reasoning}<|END_THINKING|>")
    run: list[Invocation] = []
    opener, closer = dice.choice((_TOKENS[2:4], _TOKENS[4:6]))
    for part in (*meant.parts, ""):
        if isinstance(part, Invocation):
            run.append(part)
            continue
        if run:
            pieces.append(_block(run, dice))
            run = []
        if part:
            pieces.append(f"{opener}{part}{closer}" if part == part.rstrip() and dice.random() < 0.8 else part)
    return "".join(pieces)


FAMILIES = (
    Family(
        format=COHERE_COMMAND5,
        tokenizer=TokenizerFacts(special=_SPECIAL, eos=(_SPECIAL["<|END_OF_TURN_TOKEN|>"],)),
        write=write,
        tails={
            "thinking": _TURN + "<|START_THINKING|>",
            "off": _TURN + "<|START_THINKING|><|END_THINKING|>",
            "plain": _TURN,
        },
        markers=(*_TOKENS[:6], *_TAGS),
        limits=Limits(
            keys=NAME_CHARS, prose_never=("<cofl:tool_call", "</cofl:tool_calls>"), strings_never=_CLOSERS,
            prose_also=("<cofl", "<cofl:value", "</cofl:value>"),
        ),
    ),
)  # fmt: skip
