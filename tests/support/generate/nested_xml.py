"""Output of nested namespaced XML: ``stages/parse/formats/minimax_m3.py`` has the grammar.

The schema tells types: no argument is drawn whose schema leaves a doubt about the text of a string. Behind the block
nothing is output.
"""

from __future__ import annotations

import random
from typing import Any

from replay.plain import is_list, is_map
from stages.opening import TokenizerFacts
from stages.parse.formats.minimax_m3 import MINIMAX_M3
from tests.support.generate.family import Family, json_text
from tests.support.generate.message import WORD_CHARS, Invocation, Limits, Meant, Value, tools_for

NS = "]<]minimax[>["
_MARKERS = (f"{NS}<tool_call>", f"{NS}</tool_call>", f'{NS}<invoke name="', f"{NS}</invoke>", "<mm:think>",
            "</mm:think>", NS)  # fmt: skip
M3 = TokenizerFacts(
    special={NS: 200058, "]~b]": 200019, "[e~[": 200020}, added={"<mm:think>": 200050, "</mm:think>": 200051},
    eos=(200020,),
)  # fmt: skip
SPELLED = TokenizerFacts(special={"[e~[": 200020}, eos=(200020,))
"""All but the end of turn is spelled."""


def _doubtful(schema: Any) -> bool:
    """Somewhere a string and another type have one place, or an array and an object, which look alike where empty."""
    if is_list(schema):
        return any(map(_doubtful, schema))
    if not is_map(schema):
        return False
    branches: Any = schema.get("anyOf", ())
    kinds = {branch.get("type") for branch in branches}
    return "string" in kinds or {"array", "object"} <= kinds or any(map(_doubtful, schema.values()))


class NestedFamily(Family):
    """Draws again where the schema would not tell the types."""

    def draw(self, dice: random.Random, kind: str) -> Meant:
        """See Family."""
        while True:
            meant = super().draw(dice, kind)
            if not any(_doubtful(tool.parameters) for tool in tools_for(meant)):
                return meant


def _element(tag: str, value: Value, dice: random.Random) -> str:
    return f"{NS}<{tag}>{_inside(value, dice)}{NS}</{tag}>"


def _inside(value: Value, dice: random.Random) -> str:
    if isinstance(value, str):
        return value
    elements: list[str] = []
    if is_list(value):
        elements = [_element("item", item, dice) for item in value]
    elif is_map(value):
        elements = [_element(key, item, dice) for key, item in value.items()]
    if not elements or dice.random() < 0.05:
        return "" if value in ([], {}) and dice.random() < 0.5 else json_text(value, dice)
    space = dice.choice(("", "", "\n"))
    return space + space.join(elements) + space


def _invoke(call: Invocation, dice: random.Random) -> str:
    space = dice.choice(("", "", "\n"))
    elements = [_element(key, value, dice) for key, value in call.arguments.items()]
    return f'{NS}<invoke name="{call.name}">{space}{"".join(e + space for e in elements)}{NS}</invoke>'


def write(meant: Meant, dice: random.Random, kind: str) -> str:
    """See Family."""
    line = dice.choice(("", "\n"))
    pieces: list[str] = []
    if kind == "thinking":
        pieces.append(f"{meant.reasoning or ''}{line}</mm:think>{line}")
    elif meant.reasoning is not None:
        pieces.append(f"<mm:think>{line}{meant.reasoning}{line}</mm:think>{line}")
    calls: list[str] = []
    for part in meant.parts:
        if isinstance(part, str):
            pieces.append(part)
        else:
            calls.append(_invoke(part, dice))
    if calls:
        space = dice.choice(("", "\n", "\n"))
        block = f"{NS}<tool_call>{space}{space.join(calls)}{space}{NS}</tool_call>"
        pieces += dice.choice(("", "\n")), block, dice.choice(("", "\n"))
    if dice.random() < 0.2:
        pieces.append("[e~[")
    return "".join(pieces)


_TURN = "]~b]ai\n"
_TAILS = {"plain": _TURN, "thinking": _TURN + "<mm:think>", "off": _TURN + "</mm:think>"}


def _limits(*never: str) -> Limits:
    return Limits(
        between=False, after=False, prose_never=_MARKERS, prose_also=("<tool_call>", "</invoke>", "<mm:", "]<]mini"),
        strings_never=never, keys=WORD_CHARS + "-.",
    )  # fmt: skip


FAMILIES = (
    NestedFamily(MINIMAX_M3, M3, write, _TAILS, _MARKERS, limits=_limits()),
    NestedFamily(MINIMAX_M3, SPELLED, write, _TAILS, _MARKERS, limits=_limits(NS), variant="spelled"),
)
