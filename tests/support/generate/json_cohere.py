"""Output of Cohere's Command models: thinking, responses and actions between tokens, ids on the wire.

What a message loses: the ids (a message here has none), and white space at the end of content, where a response token
or an action follows.
"""

from __future__ import annotations

import random

from stages.opening import TokenizerFacts
from stages.parse.formats.cohere import COHERE_COMMAND3, COHERE_COMMAND4
from tests.support.generate.family import Family, json_text
from tests.support.generate.json_arrays import array_text
from tests.support.generate.message import Invocation, Limits, Meant

_TOKENS = (
    "<|START_THINKING|>", "<|END_THINKING|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>",
    "<|END_TEXT|>", "<|START_ACTION|>", "<|END_ACTION|>", "<|START_TOOL_RESULT|>", "<|END_TOOL_RESULT|>",
    "<|START_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>", "<|CHATBOT_TOKEN|>",
)  # fmt: skip
_SPECIAL = {text: 255000 + i for i, text in enumerate(_TOKENS)}
_TOKENIZER = TokenizerFacts(special=_SPECIAL, eos=(_SPECIAL["<|END_OF_TURN_TOKEN|>"],))
_TURN = "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>"


def _action(calls: list[Invocation], start: int, dice: random.Random) -> str:
    objects: list[str] = []
    for i, call in enumerate(calls, start):
        members = [f'"tool_call_id": "{i}"', f'"tool_name": {json_text(call.name, dice)}']
        if call.arguments or dice.random() < 0.7:
            members.append(f'"parameters": {json_text(call.arguments, dice)}')
        if dice.random() < 0.1:
            del members[0]
        if dice.random() < 0.1:
            dice.shuffle(members)
        objects.append("{" + ", ".join(members) + "}")
    space = dice.choice(("", "\n"))
    return f"<|START_ACTION|>{space}{array_text(objects, dice)}{space}<|END_ACTION|>"


def _response(text: str, tokens: tuple[str, str], dice: random.Random) -> str:
    style = dice.random()
    if style < 0.15:
        return text
    if style < 0.3:
        return tokens[0] + text
    return f"{tokens[0]}{text}{dice.choice(('', ' ', chr(10)))}{tokens[1]}"


def write(meant: Meant, dice: random.Random, kind: str) -> str:
    """See Family."""
    pieces: list[str] = []
    if kind == "thinking":
        pieces.append(f"{meant.reasoning or ''}<|END_THINKING|>")
    elif meant.reasoning is not None:
        pieces.append(f"<|START_THINKING|>{meant.reasoning}<|END_THINKING|>")
    tokens = dice.choice((_TOKENS[2:4], _TOKENS[4:6]))
    run: list[Invocation] = []
    done = 0
    for part in (*meant.parts, ""):
        if isinstance(part, Invocation):
            run.append(part)
            continue
        if run:
            pieces.append(_action(run, done, dice))
            done += len(run)
            run = []
        if part:
            pieces.append(_response(part, (tokens[0], tokens[1]), dice) if part == part.rstrip() else part)
    return "".join(pieces)


def _family(variant: bool) -> Family:
    open_ = _TURN + "<|START_THINKING|>"
    return Family(
        format=COHERE_COMMAND4 if variant else COHERE_COMMAND3, tokenizer=_TOKENIZER, write=write,
        tails={"plain": _TURN, "thinking": open_, "off": open_ + "<|END_THINKING|>"}, markers=_TOKENS[:8],
        limits=Limits(prose_also=("<|START", "</co", "<code>")),
    )  # fmt: skip


FAMILIES = (_family(False), _family(True))
