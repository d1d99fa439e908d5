r"""Output of the XML grammars that the schema types: Qwen, MiniMax M2, Seed-OSS, dots, Step-3, MiniCPM.

Values are raw text, so what would end one (and has no escape) is kept out of it: see each family's ``strings_never``.
Scalars are written as JSON and, where templates do that, as Python; Seed writes arrays and objects as Python, too.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from stages.opening import TokenizerFacts
from stages.parse.formats.dots import DOTS
from stages.parse.formats.minicpm5 import MINICPM5
from stages.parse.formats.minimax_m2 import MINIMAX_M2, MINIMAX_M2_APPEND_THINK
from stages.parse.formats.qwen3_xml import MIMO, MINICPMV, NEMOTRON3, QWEN3_5, QWEN3_XML, STEP3P5, STEP5
from stages.parse.formats.seed_oss import SEED_OSS
from stages.parse.formats.step3 import STEP3
from tests.support.generate.family import Family, json_text
from tests.support.generate.message import NAME_CHARS, Invocation, Limits, Meant, Value

Text = Callable[[Value, random.Random], str]
Call = Callable[[Invocation, random.Random], str]


@dataclass(frozen=True)
class Style:
    """How one family writes a message. ``think``: opener, what stands behind it, before the closer, the closer, what
    stands behind that; ``block``: what stands around calls; ``between``: blocks; ``end``: ends of turn."""

    call: Call
    block: tuple[str, str]
    think: tuple[str, str, str, str, str] = ("<think>", "\n", "\n", "</think>", "\n\n")
    between: str = "\n"
    many: bool = False
    """Several calls stand in one block."""
    end: str = "<|im_end|>"


def _reasoning(meant: Meant, style: Style, kind: str) -> str:
    opener, lead, trail, closer, space = style.think
    if kind == "thinking":
        return f"{meant.reasoning or ''}{trail}{closer}{space}"
    return "" if meant.reasoning is None else f"{opener}{lead}{meant.reasoning}{trail}{closer}{space}"


def _run(calls: list[Invocation], style: Style, dice: random.Random) -> str:
    texts = [style.call(call, dice) for call in calls]
    opener, closer = style.block
    if style.many or (len(texts) > 1 and dice.random() < 0.1):
        return f"{opener}{style.between.join(texts)}{closer}"
    return style.between.join(f"{opener}{text}{closer}" for text in texts)


def writer(style: Style) -> Callable[[Meant, random.Random, str], str]:
    """``Family.write`` for a style."""

    def write(meant: Meant, dice: random.Random, kind: str) -> str:
        pieces = [_reasoning(meant, style, kind)]
        run: list[Invocation] = []
        for i, part in enumerate(meant.parts):
            if isinstance(part, Invocation):
                run.append(part)
                continue
            if run:
                pieces += _run(run, style, dice), style.between
                run = []
            pieces.append(part)
            if i + 1 < len(meant.parts):
                pieces.append(dice.choice(("\n", "\n\n", "")) if style.between else "")
        if run:
            pieces += _run(run, style, dice), dice.choice(("", style.between))
        if dice.random() < 0.2:
            pieces.append(style.end)
        return "".join(pieces)

    return write


def scalar(value: Value, dice: random.Random) -> str:
    """A value as templates write it: text as it is, ``True`` and ``None`` as Jinja writes them, now and then."""
    if isinstance(value, str):
        return value
    if dice.random() < 0.4 and (value is None or isinstance(value, bool)):
        return str(value)
    return json_text(value, dice)


def python(value: Value, dice: random.Random) -> str:
    """A value as Python's ``str`` writes it."""
    return str(value) if dice.random() < 0.8 else scalar(value, dice)


# --- Qwen ------------------------------------------------------------------------------------------------------------

_TAGS = ("<function=", "</function>", "<parameter=", "</parameter>")
_QWEN_MARKERS = ("<tool_call>", "</tool_call>", "<think>", "</think>", *_TAGS)


def _fits(text: str) -> bool:
    """It can stand inline."""
    return re.search(r"\A\n|\n\Z|</parameter>|<parameter=|</function>", text) is None


def _qwen(text: Text) -> Call:
    def call(invocation: Invocation, dice: random.Random) -> str:
        lines = [f"<function={invocation.name}>"]
        for key, value in invocation.arguments.items():
            raw = text(value, dice)
            inline = dice.random() < 0.15 and _fits(raw)
            lines.append(f"<parameter={key}>{raw}</parameter>" if inline else f"<parameter={key}>\n{raw}\n</parameter>")
        return "\n".join((*lines, "</function>"))

    return call


def _compact(invocation: Invocation, dice: random.Random) -> str:
    inside = (f"<parameter={key}>{scalar(value, dice)}</parameter>" for key, value in invocation.arguments.items())
    return f"<function={invocation.name}>{''.join(inside)}</function>"


def _slashed(value: Value, dice: random.Random) -> str:
    r"""Newlines written as ``\n``, now and then; what is written so by chance would be read so."""
    text = scalar(value, dice)
    return text.replace("\n", "\\n") if isinstance(value, str) and dice.random() < 0.5 else text


QWEN = TokenizerFacts(
    special={"<|endoftext|>": 248044, "<|im_start|>": 248045, "<|im_end|>": 248046},
    added={"<tool_call>": 248058, "</tool_call>": 248059, "<think>": 248068, "</think>": 248069},
    eos=(248046, 248044),
)
SPELLED = TokenizerFacts(special={"<|im_end|>": 2, "<|endoftext|>": 3}, eos=(2, 3))
"""A vocabulary in which all of it is spelled."""
_PROMPT = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
_TAILS = {"plain": _PROMPT, "thinking": _PROMPT + "<think>\n", "off": _PROMPT + "<think>\n\n</think>\n\n"}
_PROSE = ("<tool", "</tool", "<parameter=", "</parameter>", "</function>", "<function", "tool_call>")
_QWEN_LIMITS = Limits(
    prose_never=(*_QWEN_MARKERS[:4], "<function="),
    prose_also=_PROSE,
    keys=NAME_CHARS,
    # Tags at the start of a line, and a closer that structure follows.
    strings_never=("<parameter=", "</function>", "\n</parameter>", *(f"</parameter>{c}" for c in "<\n \t\r")),
)
_COMPACT_LIMITS = replace(_QWEN_LIMITS, strings_never=("</parameter>", "<parameter=", "</function>"))
_QWEN_STYLE = Style(_qwen(scalar), ("<tool_call>\n", "\n</tool_call>"))
_MIMO_STYLE = Style(_compact, ("<tool_call>", "</tool_call>"), ("<think>", "", "", "</think>", ""), "")


def _of_qwen() -> tuple[Family, ...]:
    qwen = Family(
        format=QWEN3_XML, tokenizer=QWEN, write=writer(_QWEN_STYLE), tails=_TAILS, markers=_QWEN_MARKERS,
        limits=_QWEN_LIMITS,
    )  # fmt: skip
    slashed = replace(_QWEN_STYLE, call=_qwen(_slashed))
    return (
        qwen,
        replace(qwen, tokenizer=SPELLED, variant="spelled"),
        replace(qwen, format=QWEN3_5),
        replace(qwen, format=NEMOTRON3),
        replace(qwen, format=STEP3P5),
        replace(qwen, format=STEP5),
        replace(qwen, format=MIMO, write=writer(_MIMO_STYLE), limits=_COMPACT_LIMITS,
                tails=_TAILS | {"thinking": _PROMPT + "<think>", "off": _PROMPT + "<think></think>"}),
        replace(qwen, format=MINICPMV, write=writer(slashed),
                limits=replace(_QWEN_LIMITS, strings_never=(*_QWEN_LIMITS.strings_never, "\\", "\x08"))),
    )  # fmt: skip


# --- MiniMax, dots, Step-3, MiniCPM5 ---------------------------------------------------------------------------------


def _named(call: str, param: str, text: Text, space: str = "\n") -> Call:
    """``<call name="N">``, ``<param name="K">``."""

    def write(invocation: Invocation, dice: random.Random) -> str:
        quote = dice.choice(('"', '"', '"', "'", ""))
        lines = [f"<{call} name={quote}{invocation.name}{quote}>"]
        for key, value in invocation.arguments.items():
            lines.append(f'<{param} name="{key}">{text(value, dice)}</{param}>')
        return space.join((*lines, f"</{call}>"))

    return write


def _spaced(value: Value, dice: random.Random) -> str:
    """White space around it is structure."""
    return dice.choice(("", " ", "\n", "\n  ")) + scalar(value, dice) + dice.choice(("", " ", "\n", " \n\n"))


def _entities(value: Value, dice: random.Random) -> str:
    text = scalar(value, dice)
    if dice.random() < 0.3 and "]]>" not in text:
        return f"<![CDATA[{text}]]>"
    for char, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(char, entity)
    return text


def _appended(meant: Meant, kind: str) -> Meant:
    """All content has the opener before it that the prompt had."""
    del kind
    i = next((i for i, part in enumerate(meant.parts) if isinstance(part, str)), -1)
    if i < 0:
        return meant
    return replace(meant, parts=(*meant.parts[:i], f"<think>{meant.parts[i]}", *meant.parts[i + 1 :]))


MINIMAX = TokenizerFacts(
    special={"[e~[": 200020, "]~b]": 200019, "]~!b[": 200034},
    added={"<think>": 200050, "</think>": 200051, "<minimax:tool_call>": 200052, "</minimax:tool_call>": 200053},
    eos=(200020,),
)
_MINIMAX_MARKERS = (
    "<minimax:tool_call>", "</minimax:tool_call>", "<think>", "</think>", "<invoke", "</invoke>", "<parameter",
    "</parameter>",
)  # fmt: skip
_MINIMAX_PROMPT = "]~b]user\nhello[e~[\n]~b]ai\n"
_MINIMAX_LIMITS = Limits(
    prose_never=(*_MINIMAX_MARKERS[:4], "<invoke"),
    prose_also=("</invoke>", "<parameter", "</parameter>", "<minimax"),
    keys=NAME_CHARS,
    strings_never=("</invoke>", "<parameter", *(f"</parameter>{c}" for c in "<\n \t\r")),
)


def _of_minimax() -> tuple[Family, ...]:
    block = ("<minimax:tool_call>\n", "\n</minimax:tool_call>")
    style = Style(_named("invoke", "parameter", scalar), block, many=True, end="[e~[")
    minimax = Family(
        format=MINIMAX_M2, tokenizer=MINIMAX, write=writer(style), markers=_MINIMAX_MARKERS, limits=_MINIMAX_LIMITS,
        tails={"plain": _MINIMAX_PROMPT, "thinking": _MINIMAX_PROMPT + "<think>\n"},
    )  # fmt: skip
    append = replace(
        minimax, format=MINIMAX_M2_APPEND_THINK, limits=replace(_MINIMAX_LIMITS, reasoning=False), expect=_appended,
        tails={"off": _MINIMAX_PROMPT + "<think>\n"},
    )  # fmt: skip
    return minimax, append


SEED = TokenizerFacts(
    special={"<seed:bos>": 0, "<seed:pad>": 1, "<seed:eos>": 2},
    added={
        "<seed:think>": 6, "</seed:think>": 7, "<seed:cot_budget_reflect>": 8, "</seed:cot_budget_reflect>": 9,
        "<seed:tool_call>": 10, "</seed:tool_call>": 11,
    },
    eos=(2,),
)  # fmt: skip
_SEED_MARKERS = ("<seed:tool_call>", "</seed:tool_call>", "<seed:think>", "</seed:think>", *_TAGS)


def _inline(invocation: Invocation, dice: random.Random) -> str:
    lines = [f"<function={invocation.name}>"]
    for key, value in invocation.arguments.items():
        raw = python(value, dice)
        lines.append(f"<parameter={key}>{raw}</parameter>" if _fits(raw) else f"<parameter={key}>\n{raw}\n</parameter>")
    return "\n".join((*lines, "</function>"))


def _of_seed() -> Family:
    style = Style(
        _inline, ("<seed:tool_call>\n", "\n</seed:tool_call>"), ("<seed:think>", "", "", "</seed:think>", ""),
        end="<seed:eos>",
    )  # fmt: skip
    prompt = "<seed:bos>user\nhello<seed:eos><seed:bos>assistant\n"
    budget = "<seed:think><seed:cot_budget_reflect>none is left</seed:cot_budget_reflect>"
    return Family(
        format=SEED_OSS, tokenizer=SEED, write=writer(style), markers=_SEED_MARKERS,
        tails={"plain": prompt, "thinking": prompt + "<seed:think>", "off": prompt + budget + "</seed:think>"},
        limits=replace(
            _QWEN_LIMITS, prose_never=(*_SEED_MARKERS[:4], "<function="), strings_never=_QWEN_LIMITS.strings_never
        ),
    )  # fmt: skip


DOTS1 = TokenizerFacts(special={"<|endofresponse|>": 151650, "<|endoftext|>": 151643}, eos=(151650, 151643))
_DOTS_MARKERS = (
    "<dots_function_call>", "</dots_function_call>", "<think>", "</think>", "<invoke", "</invoke>", "<parameter",
    "</parameter>",
)  # fmt: skip


def _of_dots() -> Family:
    named = _named("invoke", "parameter", _spaced, "")

    def call(invocation: Invocation, dice: random.Random) -> str:
        return named(invocation, dice)

    style = Style(call, ("<dots_function_call>\n", "\n</dots_function_call>"), end="<|endofresponse|>")
    return Family(
        format=DOTS, tokenizer=DOTS1, write=writer(style), tails=_TAILS, markers=_DOTS_MARKERS,
        limits=Limits(
            prose_never=_DOTS_MARKERS[:4], prose_also=("<invoke", "</invoke>", "<parameter", "</parameter>"),
            keys=NAME_CHARS, strings_never=("</parameter>",), edges="no-space",
        ),
        streams=False,
    )  # fmt: skip


_S = ("calls_begin", "calls_end", "call_begin", "call_end", "sep")
BEGIN, END, OPEN, CLOSE, SEP = (f"<｜tool_{word}｜>" for word in _S)
STEP = TokenizerFacts(
    special={
        "<｜begin▁of▁sentence｜>": 0, "<｜end▁of▁sentence｜>": 1, "<｜EOT｜>": 128805, BEGIN: 128806, END: 128807,
        OPEN: 128808, CLOSE: 128809, SEP: 128814,
    },
    added={"<think>": 128798, "</think>": 128799},
    eos=(1, 128805),
)  # fmt: skip
_STEP_MARKERS = (
    BEGIN, END, OPEN, CLOSE, SEP, "</think>", "<steptml:invoke", "</steptml:invoke>", "<steptml:parameter",
    "</steptml:parameter>",
)  # fmt: skip


def _of_step3() -> Family:
    named = _named("steptml:invoke", "steptml:parameter", _spaced, "")

    def call(invocation: Invocation, dice: random.Random) -> str:
        return f"{OPEN}function{SEP}{named(invocation, dice)}{CLOSE}"

    style = Style(call, (f"{BEGIN}\n", f"\n{END}"), ("", "", "\n", "</think>", "\n"), many=True, end="<｜EOT｜>")
    return Family(
        format=STEP3, tokenizer=STEP, write=writer(style), markers=_STEP_MARKERS,
        tails={"thinking": "<|BOT|>assistant\n<think>\n"},
        limits=Limits(
            prose_never=("</think>",), prose_also=("<think>", "<steptml:invoke", "</steptml:parameter>"),
            keys=NAME_CHARS, strings_never=("</steptml:parameter>", "</steptml:invoke>"), edges="no-space",
        ),
    )  # fmt: skip


def _of_minicpm5() -> Family:
    style = Style(_named("function", "param", _entities, ""), ("", ""), end="<|im_end|>")
    return Family(
        format=MINICPM5, tokenizer=SPELLED, write=writer(style), tails=_TAILS,
        markers=("<think>", "</think>", "<function", "</function>", "<param", "</param>", "<![CDATA[", "]]>"),
        limits=Limits(
            prose_never=("<think>", "</think>", "<function"), prose_also=("</function>", "<param", "</param>"),
            keys=NAME_CHARS,
        ),
        tail=96,
    )  # fmt: skip


FAMILIES = (*_of_qwen(), *_of_minimax(), _of_seed(), _of_dots(), _of_step3(), _of_minicpm5())
