"""Output of the XML grammars that type their values themselves: DeepSeek's DSML and GigaChat's GCML.

A value ends at the first closer, which has no escape. Nothing stands between the calls, and nothing behind their block.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from stages.opening import TokenizerFacts
from stages.parse.formats.deepseek_dsml import DEEPSEEK_V4, DEEPSEEK_V32
from stages.parse.formats.gigachat35 import GIGACHAT35
from tests.support.generate.family import Family, json_text
from tests.support.generate.message import NAME_CHARS, Invocation, Limits, Meant

Writer = Callable[[Meant, random.Random, str], str]


def _invoke(call: Invocation, token: str, blank: str, dice: random.Random) -> str:
    tag = f"{token}{blank}invoke"
    if not call.arguments and dice.random() < 0.2:
        return f'<{tag} name="{call.name}"/>'
    if dice.random() < 0.05:
        return f'<{tag} name="{call.name}">\n{json_text(call.arguments, dice)}\n</{tag}>'
    lines = [f'<{tag} name="{call.name}">']
    for key, value in call.arguments.items():
        string = isinstance(value, str)
        attributes = [f'name="{key}"', f'string="{"true" if string else "false"}"']
        if dice.random() < 0.1:
            attributes.reverse()
        text = value if isinstance(value, str) else json_text(value, dice)
        lines.append(f"<{token}{blank}parameter {' '.join(attributes)}>{text}</{token}{blank}parameter>")
    return "\n".join((*lines, f"</{tag}>"))


def _writer(token: str, name: str, blank: str, end: str) -> Writer:
    def write(meant: Meant, dice: random.Random, kind: str) -> str:
        pieces: list[str] = []
        if kind == "thinking":
            pieces.append(f"{meant.reasoning or ''}</think>")
        elif meant.reasoning is not None:
            pieces.append(f"<think>\n{meant.reasoning}\n</think>\n\n")
        pieces += [part for part in meant.parts if isinstance(part, str)]
        if meant.calls:
            calls = "\n".join(_invoke(call, token, blank, dice) for call in meant.calls)
            pieces.append(f"\n\n<{token}{blank}{name}>\n{calls}\n</{token}{blank}{name}>")
            pieces.append(dice.choice(("", "", "\n", "\n\nmore")))
        if dice.random() < 0.2:
            pieces.append(end)
        return "".join(pieces)

    return write


DSML = "｜DSML｜"
GCML = "｜GCML｜"
V32 = TokenizerFacts(
    special={
        "<｜begin▁of▁sentence｜>": 0, "<｜end▁of▁sentence｜>": 1, "<｜User｜>": 128803, "<｜Assistant｜>": 128804,
    },
    added={DSML: 128793, "<think>": 128798, "</think>": 128799},
    eos=(1,),
)  # fmt: skip
V4 = TokenizerFacts(special=V32.special, added={DSML: 128825, "<think>": 128821, "</think>": 128822}, eos=(1,))
SPECIAL = TokenizerFacts(special={**V32.special, DSML: 128793}, added={"<think>": 128798, "</think>": 128799}, eos=(1,))
"""A conversion that made the token a special one."""
GIGA = TokenizerFacts(special={"<s>": 1, "</s>": 2, "<|message_sep|>": 128001, "<|role_sep|>": 128000}, eos=(2,))


def _markers(token: str) -> tuple[str, ...]:
    tags = (f"{token}{word}" for word in ("invoke", "parameter", "tool_calls>"))
    return (
        "<think>",
        "</think>",
        *(f"{opener}{tag}" for tag in tags for opener in ("<", "</")),
        f"<{token}",
        f"</{token}",
    )


def _limits(token: str) -> Limits:
    return Limits(
        between=False, after=False, keys=NAME_CHARS, prose_never=("<think>", "</think>", token),
        prose_also=("<invoke", "<｜", "｜>", "</｜"), strings_never=(f"</{token}",),
    )  # fmt: skip


_TAILS = {
    "plain": "<｜User｜>hello<｜Assistant｜>",
    "thinking": "<｜User｜>hello<｜Assistant｜><think>",
    "off": "<｜User｜>hello<｜Assistant｜></think>",
}
_END = "<｜end▁of▁sentence｜>"
_V32 = Family(
    format=DEEPSEEK_V32, tokenizer=V32, write=_writer(DSML, "function_calls", "", _END), tails=_TAILS,
    markers=_markers(DSML), limits=_limits(DSML), tail=80,
)  # fmt: skip

FAMILIES = (
    _V32,
    replace(_V32, tokenizer=SPECIAL, variant="special",
            limits=replace(_V32.limits, prose_never=_V32.limits.prose_never[:2], strings_never=())),
    replace(_V32, format=DEEPSEEK_V4, tokenizer=V4, write=_writer(DSML, "tool_calls", "", _END)),
    replace(_V32, format=DEEPSEEK_V4, tokenizer=V4, write=_writer(DSML, "calls", " ", _END), variant="v4.1"),
    replace(_V32, format=GIGACHAT35, tokenizer=GIGA, write=_writer(GCML, "tool_calls", "", "<|message_sep|>"),
            tails=_TAILS | {"plain": "<s>user<|role_sep|>hi<|message_sep|>assistant<|role_sep|>",
                            "thinking": "<s>user<|role_sep|>hi<|message_sep|>assistant<|role_sep|><think>"},
            markers=_markers(GCML), limits=_limits(GCML)),
)  # fmt: skip
