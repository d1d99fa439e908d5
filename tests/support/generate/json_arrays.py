"""Output of the JSON grammars but hermes: objects and arrays of objects, behind markers or bare.

What a message loses is excluded by the limits: text behind a block where the family drops it (InternLM, Jamba,
GigaChat), and more than one call where there is one (GigaChat).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial

from stages.opening import TokenizerFacts
from stages.parse.format import Format
from stages.parse.formats.apertus import APERTUS
from stages.parse.formats.ernie45 import ERNIE45
from stages.parse.formats.gigachat3 import GIGACHAT3
from stages.parse.formats.granite import GRANITE3
from stages.parse.formats.granite4 import GRANITE4
from stages.parse.formats.granite20b import GRANITE20B
from stages.parse.formats.hunyuan_a13b import HUNYUAN_A13B
from stages.parse.formats.internlm2 import INTERNLM2
from stages.parse.formats.jamba import JAMBA
from stages.parse.formats.nemotron_nano import NEMOTRON_NANO
from stages.parse.formats.phi4_mini import PHI4_MINI
from stages.parse.formats.trinity import TRINITY
from tests.support.generate.family import Family, json_text
from tests.support.generate.message import Invocation, Limits, Meant

Section = Callable[[list[Invocation], random.Random], str]
"""Calls that follow each other, as the family writes them."""


def object_text(call: Invocation, dice: random.Random, *keys: str, must: bool = False, swap: bool = True) -> str:
    """A call as an object. ``keys``: what its arguments may be called; ``must``: the name waits for them, so that they
    are not left out, and no string."""
    name = f'"name": {json_text(call.name, dice)}'
    if not call.arguments and not must and dice.random() < 0.5:
        return "{" + name + dice.choice(("", f', "{keys[0]}": null', f', "{keys[0]}": ""')) + "}"
    text = json_text(call.arguments, dice)
    if not must and dice.random() < 0.05:
        text = json_text(text, dice)
    members = [name, f'"{dice.choice(keys)}": {text}']
    if swap and dice.random() < 0.1:
        members.reverse()
    if dice.random() < 0.05:
        members.insert(dice.randrange(3), f'"type": {json_text("function", dice)}')
    return "{" + dice.choice((", ", ", ", ",", " ,\n  ")).join(members) + "}"


def array_text(objects: Sequence[str], dice: random.Random) -> str:
    """An array of objects, as templates write it: in a line, or with a line each."""
    space, comma = dice.choice((("", ", "), ("", ", "), ("", ","), ("\n", ",\n"), ("\n    ", ",\n    "), (" ", " , ")))
    return f"[{space}{comma.join(objects)}{space.rstrip(' ')}]"


def write(meant: Meant, dice: random.Random, section: Section, before: Sequence[str] = ("\n", "\n\n", "")) -> str:
    """Content and sections. ``before``: what may stand between content and a section."""
    pieces: list[str] = []
    run: list[Invocation] = []
    for part in meant.parts:
        if isinstance(part, Invocation):
            run.append(part)
            continue
        if run:
            pieces += dice.choice(before) if pieces else "", section(run, dice), dice.choice(("\n", "", " "))
            run = []
        pieces.append(part)
    if run:
        pieces += dice.choice(before) if pieces else "", section(run, dice), dice.choice(("", "", "\n"))
    return "".join(pieces)


def _plain(section: Section, before: Sequence[str], meant: Meant, dice: random.Random, kind: str) -> str:
    del kind
    return write(meant, dice, section, before)


def _think(section: Section, newline: str, meant: Meant, dice: random.Random, kind: str) -> str:
    """With reasoning inside think tags."""
    text = write(meant, dice, section)
    if kind == "thinking":
        return f"{meant.reasoning or ''}{newline}</think>{newline * 2}{text}"
    if meant.reasoning is not None:
        return f"<think>{newline}{meant.reasoning}{newline}</think>{newline * 2}{text}"
    return text


def family(
    form: Format,
    tokenizer: TokenizerFacts,
    section: Section,
    markers: tuple[str, ...],
    *,
    before: Sequence[str] = ("\n", "\n\n", ""),
    variant: str = "",
    flow: tuple[bool, bool] = (True, True),
    calls: int = 3,
) -> Family:
    """A family without reasoning. ``flow``: content may stand between calls, and behind them."""
    limits = Limits(
        reasoning=False, calls=calls, between=flow[0], after=flow[1], prose_never=markers,
        prose_also=("<tool", "tool_call>"),
    )  # fmt: skip
    return Family(
        format=form, tokenizer=tokenizer, write=partial(_plain, section, before), tails={"plain": ""}, markers=markers,
        limits=limits, variant=variant,
    )  # fmt: skip


# --- Granite ---------------------------------------------------------------------------------------------------------

_GRANITE = TokenizerFacts(
    special={"<|end_of_text|>": 0, "<|start_of_role|>": 49152, "<|end_of_role|>": 49153, "<|tool_call|>": 49154},
    eos=(0,),
)
_GRANITE31 = TokenizerFacts(
    special={"<|end_of_text|>": 0, "<|start_of_role|>": 49152, "<|end_of_role|>": 49153}, eos=(0,)
)
_GRANITE4 = TokenizerFacts(
    special={"<|end_of_text|>": 100257, "<|start_of_role|>": 100264},
    added={"<tool_call>": 100270, "</tool_call>": 100271},
    eos=(100257,),
)
_TURN = "<|start_of_role|>assistant<|end_of_role|>"
_PHRASES = ("Here is my thought process:", "Here's my thought process:", "Here is my response:", "Here's my response:")
_TAGS = ("<think>", "</think>", "<response>", "</response>")


def _objects(calls: list[Invocation], dice: random.Random) -> list[str]:
    return [object_text(call, dice, "arguments", "arguments", "parameters") for call in calls]


def _array(opener: str, closer: str, calls: list[Invocation], dice: random.Random) -> str:
    space = dice.choice(("", "", "", "\n", " "))
    return f"{opener}{space}{array_text(_objects(calls, dice), dice)}{space if closer else ''}{closer}"


def _granite_section(markers: tuple[str, ...], calls: list[Invocation], dice: random.Random) -> str:
    if len(calls) == 1 and dice.random() < 0.1:
        return dice.choice(markers) + _objects(calls, dice)[0]
    return _array(dice.choice(markers), "", calls, dice)


def _granite(markers: tuple[str, ...], meant: Meant, dice: random.Random, kind: str) -> str:
    del kind
    text = write(meant, dice, partial(_granite_section, markers))
    if meant.reasoning is None:
        return text
    if dice.random() < 0.5:
        opener, closer = dice.choice(_PHRASES[:2]), dice.choice(_PHRASES[2:])
        return f"{opener} {meant.reasoning} {closer} {text}".rstrip(" ")
    wrapped = not meant.calls and not text.endswith("\n") and text
    return f"<think>{meant.reasoning}</think>" + (f"<response>{text}</response>" if wrapped else text)


def _granite_family(tokenizer: TokenizerFacts, markers: tuple[str, ...], variant: str) -> Family:
    known = ("<|tool_call|>", "<tool_call>", *_PHRASES, *_TAGS)
    return Family(
        format=GRANITE3, tokenizer=tokenizer, write=partial(_granite, markers), tails={"plain": _TURN, "off": _TURN},
        markers=known, variant=variant,
        limits=Limits(prose_never=known, prose_also=("Here is my", "Here's", "<tool", "</tool_call>")),
    )  # fmt: skip


def _each(opener: str, closer: str, calls: list[Invocation], dice: random.Random) -> str:
    """A block for each call."""
    space = dice.choice(("\n", "\n", "", " "))
    return dice.choice((" ", "\n", "")).join(f"{opener}{space}{text}{space}{closer}" for text in _objects(calls, dice))


def _granite20b(calls: list[Invocation], dice: random.Random) -> str:
    nothing = '<function_call> {"name": "no_function", "arguments": {}} ' if dice.random() < 0.1 else ""
    return nothing + _each("<function_call>", "", calls, dice)


# --- InternLM, Phi-4, GigaChat ---------------------------------------------------------------------------------------

_INTERNLM = TokenizerFacts(
    special={
        "</s>": 2, "<|im_start|>": 92543, "<|im_end|>": 92542, "<|action_start|>": 92541, "<|action_end|>": 92540,
        "<|interpreter|>": 92539, "<|plugin|>": 92538,
    },
    eos=(92542, 2),
)  # fmt: skip
_PHI = TokenizerFacts(
    special={"<|endoftext|>": 199999, "<|end|>": 200020, "<|tool_call|>": 200025, "<|/tool_call|>": 200026},
    eos=(200020, 199999),
)
_GIGACHAT = TokenizerFacts(
    special={"<s>": 1, "</s>": 2, "<|role_sep|>": 128, "<|message_sep|>": 129, "<|function_call|>": 130}, eos=(2, 129)
)


def _internlm(calls: list[Invocation], dice: random.Random) -> str:
    text = ""
    for call in calls:
        space, line = dice.choice(("", "", " ", "\n")), dice.choice(("\n", "\n", "", " "))
        keys = ("parameters", "parameters", "arguments")
        text += f"<|action_start|>{space}<|plugin|>{line}{object_text(call, dice, *keys)}{space}<|action_end|>\n"
    return text


def _phi(calls: list[Invocation], dice: random.Random) -> str:
    if dice.random() < 0.8:
        return _array("functools", "", calls, dice)
    return _array("<|tool_call|>", "<|/tool_call|>", calls, dice)


def _gigachat(calls: list[Invocation], dice: random.Random) -> str:
    lines = dice.choice(("\n\n", "\n\n", "\n", ""))
    openers = (f"<|message_sep|>{lines}function call<|role_sep|>\n", "<|function_call|>")
    text = object_text(calls[0], dice, "arguments", must=True, swap=False)
    return dice.choice(openers) + text + dice.choice(("", "</s>"))


# --- with reasoning --------------------------------------------------------------------------------------------------

_NEMOTRON = TokenizerFacts(
    special={"<s>": 1, "</s>": 2, "<SPECIAL_10>": 10, "<SPECIAL_11>": 11, "<SPECIAL_12>": 12}, eos=(12, 2)
)
_HUNYUAN = TokenizerFacts(
    special={"<|startoftext|>": 127958, "<|endoftext|>": 127957, "<|eos|>": 127960}, eos=(127960,)
)
_JAMBA = TokenizerFacts(
    special={"<|endoftext|>": 2, "<|bom|>": 518, "<|eom|>": 519}, added={"<tool_calls>": 530, "</tool_calls>": 531},
    eos=(519, 2),
)  # fmt: skip
_ERNIE = TokenizerFacts(
    special={"<s>": 1, "</s>": 2, "<|end_of_sentence|>": 100272},
    added={
        "<think>": 100275, "</think>": 100276, "<response>": 100277, "</response>": 100278, "<tool_call>": 100279,
        "</tool_call>": 100280,
    },
    eos=(2,),
)  # fmt: skip
_APERTUS = TokenizerFacts(
    special={
        "<s>": 1, "</s>": 2, "<|assistant_start|>": 67, "<|assistant_end|>": 68, "<|inner_prefix|>": 69,
        "<|inner_suffix|>": 70, "<|tools_prefix|>": 71, "<|tools_suffix|>": 72,
    },
    eos=(68,),
)  # fmt: skip


def _hunyuan(meant: Meant, dice: random.Random, kind: str) -> str:
    text = write(meant, dice, partial(_array, "<tool_calls>", "</tool_calls>"))
    if dice.random() < 0.8 and text and not text.endswith("\n"):
        text = f"<answer>\n{text}\n</answer>"
    if kind == "off" or meant.reasoning is None:
        return text
    return f"<think>\n{meant.reasoning}\n</think>\n{text}"


def _ernie(meant: Meant, dice: random.Random, kind: str) -> str:
    section = partial(_each, "<tool_call>", "</tool_call>")
    wrapped = not meant.calls and meant.content and not meant.content.endswith("\n") and dice.random() < 0.6
    text = write(meant, dice, section)
    text = f"\n\n\n<response>\n{text}\n</response>\n" if wrapped else "\n\n\n" + text
    reasoning = meant.reasoning or ""
    return f"{reasoning}\n</think>{text}" if kind == "thinking" else f"<think>\n{reasoning}\n</think>{text}"


def _single(calls: list[Invocation], dice: random.Random) -> str:
    objects: list[str] = []
    for call in calls:
        text = json_text(call.arguments, dice)
        if not call.arguments:
            text = dice.choice(("{}", "null", '""'))
        objects.append(f"{{{json_text(call.name, dice)}{dice.choice((': ', ':', ' : '))}{text}}}")
    return f"<|tools_prefix|>{array_text(objects, dice)}<|tools_suffix|>"


def _apertus(meant: Meant, dice: random.Random, kind: str) -> str:
    text = write(meant, dice, _single)
    if meant.reasoning is None or kind == "off":
        return text
    if meant.calls and all(isinstance(part, Invocation) for part in meant.parts) and dice.random() < 0.5:
        return f"<|inner_prefix|>{meant.reasoning}{text.rstrip()}<|inner_suffix|>"
    return f"<|inner_prefix|>{meant.reasoning}<|inner_suffix|>{text}"


def _trinity(meant: Meant, dice: random.Random, kind: str) -> str:
    """Calls that come first may stand inside the reasoning."""
    section = partial(_each, "<tool_call>", "</tool_call>")
    if meant.reasoning and kind != "off" and not meant.content and meant.calls and dice.random() < 0.5:
        opener = "" if kind == "thinking" else "<think>\n"
        blocks = "\n".join(section([call], dice) for call in meant.calls)
        return f"{opener}{meant.reasoning}\n{blocks}{dice.choice(('', chr(10)))}</think>"
    return _think(section, "\n", meant, dice, kind)


def _thinks(form: Format, tokenizer: TokenizerFacts, section: Section, markers: tuple[str, ...], tail: str, *,
            newline: str = "\n", flow: bool = True) -> Family:  # fmt: skip
    known = (*markers, "<think>", "</think>")
    return Family(
        format=form, tokenizer=tokenizer, write=partial(_think, section, newline), markers=known,
        tails={"plain": tail, "thinking": f"{tail}<think>\n", "off": f"{tail}<think></think>"},
        limits=Limits(between=flow, after=flow, prose_never=known, prose_also=("<tool", "<TOOL", "functool")),
    )  # fmt: skip


_RESPONSE = ("<tool_call>", "</tool_call>", *_TAGS)
_ANSWER = ("<tool_calls>", "</tool_calls>", "<think>", "</think>", "<answer>", "</answer>")
_TOOLS = ("<|tools_prefix|>", "<|tools_suffix|>", "<|inner_prefix|>", "<|inner_suffix|>")
_ASSISTANT = "<|im_start|>assistant\n"
_CALL = ("<tool_call>", "</tool_call>")
_CHATML = TokenizerFacts(
    special={"<|im_start|>": 200001, "<|im_end|>": 200002, "<|endoftext|>": 200003},
    added={"<tool_call>": 200004, "</tool_call>": 200005, "<think>": 200006, "</think>": 200007},
    eos=(200002, 200003),
)

FAMILIES = (
    _granite_family(_GRANITE, ("<|tool_call|>",), ""),
    _granite_family(_GRANITE31, ("<|tool_call|>", "<tool_call>"), "spelled"),
    family(GRANITE4, _GRANITE4, partial(_each, "<tool_call>", "</tool_call>"), ("<tool_call>", "</tool_call>")),
    family(GRANITE20B, _GRANITE31, _granite20b, ("<function_call>",)),
    _thinks(PHI4_MINI, _PHI, _phi, ("functools", "<|tool_call|>", "<|/tool_call|>"), "<|assistant|>"),
    _thinks(
        NEMOTRON_NANO, _NEMOTRON, partial(_array, "<TOOLCALL>", "</TOOLCALL>"), ("<TOOLCALL>", "</TOOLCALL>"),
        "<SPECIAL_11>Assistant\n",
    ),
    _thinks(
        JAMBA, _JAMBA, partial(_array, "<tool_calls>", "</tool_calls>"), ("<tool_calls>", "</tool_calls>"),
        "<|bom|><|assistant|> ", flow=False,
    ),
    family(
        INTERNLM2, _INTERNLM, _internlm, ("<|action_start|>", "<|plugin|>", "<|action_end|>", "<think>", "</think>"),
        before=("",), flow=(False, False),
    ),
    family(
        GIGACHAT3, _GIGACHAT, _gigachat, ("<|message_sep|>", "<|role_sep|>", "<|function_call|>"), flow=(False, False),
        calls=1,
    ),
    Family(
        format=HUNYUAN_A13B, tokenizer=_HUNYUAN, write=_hunyuan, markers=_ANSWER,
        tails={"plain": "", "off": "<think>\n\n</think>\n"}, limits=Limits(prose_never=_ANSWER),
    ),
    Family(
        format=ERNIE45, tokenizer=_ERNIE, write=_ernie, markers=_RESPONSE,
        tails={"plain": "Assistant:", "thinking": "Assistant: <think>\n"}, limits=Limits(prose_never=_RESPONSE),
    ),
    Family(
        format=TRINITY, tokenizer=_CHATML, write=_trinity, markers=(*_CALL, "<think>", "</think>"),
        tails={
            "plain": _ASSISTANT, "thinking": _ASSISTANT + "<think>\n",
            "off": _ASSISTANT + "<think>\n\n</think>\n\n",
        },
        limits=Limits(prose_never=(*_CALL, "<think>", "</think>")),
    ),
    Family(
        format=APERTUS, tokenizer=_APERTUS, write=_apertus, markers=_TOOLS,
        tails={"plain": "<|assistant_start|>", "off": "<|assistant_start|>"}, limits=Limits(prose_never=_TOOLS),
    ),
)  # fmt: skip
