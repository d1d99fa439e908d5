"""Output of the header grammars: DeepSeek V3 and V3.1, Kimi K2, Mistral, PLaMo 3, Llama's custom functions.

What a message loses: nothing but Mistral's array, whose ids are made anew (a message here has none).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec

from stages.opening import TokenizerFacts
from stages.parse.formats.deepseek import DEEPSEEK_R1, DEEPSEEK_V3, DEEPSEEK_V31
from stages.parse.formats.kimi_k2 import KIMI_K2, KIMI_K25
from stages.parse.formats.llama_function import LLAMA_FUNCTION
from stages.parse.formats.mistral import MAGISTRAL, MISTRAL
from stages.parse.formats.plamo3 import PLAMO3
from tests.support.generate.family import Family, json_text
from tests.support.generate.message import Invocation, Limits, Meant

Section = Callable[[list[Invocation], random.Random], str]
Body = Callable[[Invocation, random.Random], str]
Writer = Callable[[Meant, random.Random, str], str]


def _parts(meant: Meant, dice: random.Random, section: Section) -> tuple[str, bool]:
    """Content and sections; whether it begins with a section."""
    pieces: list[str] = []
    run: list[Invocation] = []
    for part in meant.parts:
        if isinstance(part, Invocation):
            run.append(part)
            continue
        if run:
            pieces.append(section(run, dice))
            run = []
        pieces.append(part)
    if run:
        pieces.append(section(run, dice))
    return "".join(pieces), bool(meant.parts) and isinstance(meant.parts[0], Invocation)


def _tagged(meant: Meant, dice: random.Random, kind: str, body: tuple[str, bool], space: tuple[str, str]) -> str:
    """Reasoning in think tags before the rest; a section ends it, too."""
    text, called = body
    closer = space[1] + "</think>" + 2 * space[1]
    if called and meant.reasoning and dice.random() < 0.15:
        closer = ""
    if kind == "thinking":
        return f"{meant.reasoning or ''}{closer}{text}"
    if meant.reasoning is not None:
        return f"<think>{space[0]}{meant.reasoning}{closer}{text}"
    return text


# --- DeepSeek --------------------------------------------------------------------------------------------------------

_D = ("calls▁begin", "calls▁end", "call▁begin", "call▁end", "sep")
BEGIN, END, CALL, CLOSE, SEP = (f"<｜tool▁{word}｜>" for word in _D)
DEEPSEEK = TokenizerFacts(
    special={
        "<｜begin▁of▁sentence｜>": 0, "<｜end▁of▁sentence｜>": 1, "<｜User｜>": 128803, "<｜Assistant｜>": 128804,
    },
    added={
        "<think>": 128798, "</think>": 128799, BEGIN: 128806, END: 128807, CALL: 128808, CLOSE: 128809, SEP: 128814,
    },
    eos=(1,),
)  # fmt: skip
DISTILL = TokenizerFacts(special={"<｜end▁of▁sentence｜>": 151643}, added={"<think>": 151648}, eos=(151643,))
"""Another base: the call markers are spelled."""


def fenced(call: Invocation, dice: random.Random) -> str:
    """The V3 body, also without its fence or label."""
    text = "" if not call.arguments and dice.random() < 0.2 else json_text(call.arguments, dice)
    fences = (("```json\n", "\n```"),) * 5 + (("```\n", "\n```"), ("", ""), ("\n```json\n", "\n```\n"))
    opener, closer = dice.choice(fences)
    return f"{CALL}function{SEP}{call.name}\n{opener}{text}{closer}{CLOSE}"


def bare(call: Invocation, dice: random.Random) -> str:
    """The V3.1 body."""
    text = "" if not call.arguments and dice.random() < 0.2 else json_text(call.arguments, dice)
    if not text:
        return f"{CALL}{call.name}{SEP}{CLOSE}"
    return f"{CALL}{call.name}{SEP}{text}{CLOSE}"


def _deepseek(first: Body, other: Body) -> Writer:
    def section(calls: list[Invocation], dice: random.Random) -> str:
        body = other if dice.random() < 0.1 and all(call.arguments for call in calls) else first
        space = "\n" if body is fenced else dice.choice(("", "", "\n"))
        return dice.choice(("", "\n")) + BEGIN + space.join(body(call, dice) for call in calls) + END

    def write(meant: Meant, dice: random.Random, kind: str) -> str:
        text, called = _parts(meant, dice, section)
        if dice.random() < 0.05 and text.endswith(END):
            text = text.removesuffix(END)
        text += dice.choice(("", "", "<｜end▁of▁sentence｜>"))
        return _tagged(meant, dice, kind, (text, called), ("\n", "\n"))

    return write


_DEEPSEEK_MARKERS = (BEGIN, END, CALL, CLOSE, SEP, "<think>", "</think>", "```json", "```")
_DEEPSEEK_LIMITS = Limits(prose_never=(BEGIN, END, CALL, CLOSE, SEP, "<think>", "</think>"),
                          prose_also=("<｜tool", "<|tool_call_begin|>", "```json\n{}\n```"))  # fmt: skip
_DEEPSEEK_TAILS = {
    "plain": "<｜User｜>hello<｜Assistant｜>",
    "thinking": "<｜User｜>hello<｜Assistant｜><think>",
    "off": "<｜User｜>hello<｜Assistant｜></think>",
}


# --- Kimi ------------------------------------------------------------------------------------------------------------

_K = ("calls_section_begin", "calls_section_end", "call_begin", "call_end", "call_argument_begin")
K_BEGIN, K_END, K_CALL, K_CLOSE, K_ARGS = (f"<|tool_{word}|>" for word in _K)
KIMI = TokenizerFacts(
    special={
        "[BOS]": 163584, "[EOS]": 163585, "<|im_end|>": 163586, "<|im_user|>": 163587, "<|im_assistant|>": 163588,
        "<|im_system|>": 163594, K_BEGIN: 163595, K_END: 163596, K_CALL: 163597, K_ARGS: 163598, K_CLOSE: 163599,
        "<|im_middle|>": 163601,
    },
    added={"<think>": 163606, "</think>": 163607},
    eos=(163586,),
)  # fmt: skip
_KIMI_PROMPT = "<|im_user|>user<|im_middle|>hello<|im_end|><|im_assistant|>assistant<|im_middle|>"
_KIMI_TAILS = {"plain": _KIMI_PROMPT, "thinking": _KIMI_PROMPT + "<think>", "off": _KIMI_PROMPT + "<think></think>"}


def kimi_section(calls: list[Invocation], dice: random.Random) -> str:
    """A section, now and then without its own markers."""
    first = dice.choice((0, 0, 4))
    pieces: list[str] = []
    for i, call in enumerate(calls, first):
        prefix = "" if dice.random() < 0.1 else "functions."
        text = "" if not call.arguments and dice.random() < 0.2 else json_text(call.arguments, dice)
        space = dice.choice(("", "", "", " ", "\n"))
        pieces.append(f"{K_CALL}{space}{prefix}{call.name}:{i}{space}{K_ARGS}{space}{text}{space}{K_CLOSE}")
    if dice.random() < 0.1:
        return "".join(pieces)
    return K_BEGIN + "".join(pieces) + K_END


def kimi(meant: Meant, dice: random.Random, kind: str) -> str:
    """See Family."""
    text, called = _parts(meant, dice, kimi_section)
    if dice.random() < 0.05 and text.endswith(K_END):
        text = text.removesuffix(K_END)
    return _tagged(meant, dice, kind, (text + dice.choice(("", "<|im_end|>")), called), ("", ""))


_KIMI_MARKERS = (K_BEGIN, K_END, K_CALL, K_CLOSE, K_ARGS, "<think>", "</think>")
_KIMI_LIMITS = Limits(prose_never=("<think>", "</think>"), prose_also=("<|tool_calls", "<|tool", "functions.tide:0"))


# --- Mistral ---------------------------------------------------------------------------------------------------------

_SPM = {"<unk>": 0, "<s>": 1, "</s>": 2, "[INST]": 3, "[/INST]": 4, "[TOOL_CALLS]": 5, "[AVAILABLE_TOOLS]": 6}
_TEKKEN = {"<unk>": 0, "<s>": 1, "</s>": 2, "[INST]": 3, "[/INST]": 4, "[AVAILABLE_TOOLS]": 5, "[TOOL_CALLS]": 9}
SPM = TokenizerFacts(special=_SPM, eos=(2,))
TEKKEN11 = TokenizerFacts(special={**_TEKKEN, "[ARGS]": 32, "[CALL_ID]": 33}, eos=(2,))
TEKKEN13 = msgspec.structs.replace(TEKKEN11, special={**TEKKEN11.special, "[THINK]": 34, "[/THINK]": 35})
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_MISTRAL_MARKERS = ("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[THINK]", "[/THINK]")


def _nine(dice: random.Random) -> str:
    return "".join(dice.choice(_LETTERS) for _ in range(9))


def array(calls: list[Invocation], dice: random.Random) -> str:
    """v2 to v7."""
    items: list[str] = []
    for call in calls:
        members = [f'"name": {json_text(call.name, dice)}', f'"arguments": {json_text(call.arguments, dice)}']
        if dice.random() < 0.7:
            members.append(f'"id": "{_nine(dice)}"')
        items.append("{" + dice.choice((", ", ",", ",\n")).join(members) + "}")
    if len(items) == 1 and dice.random() < 0.1:
        return "[TOOL_CALLS]" + items[0]
    return "[TOOL_CALLS]" + dice.choice(("", " ")) + "[" + dice.choice((", ", ",")).join(items) + "]"


def headed(calls: Sequence[Invocation], dice: random.Random, wire: bool) -> str:
    """v11 (``wire``: with ids) and later."""
    pieces: list[str] = []
    for i, call in enumerate(calls):
        text = json_text(call.arguments, dice)
        if not call.arguments and i + 1 < len(calls) and dice.random() < 0.2:
            text = ""
        space = dice.choice(("", "", "", " "))
        number = f"[CALL_ID]{_nine(dice)}" if wire else ""
        sep = "" if text and dice.random() < 0.05 else "[ARGS]"
        pieces.append(f"[TOOL_CALLS]{space}{call.name}{number}{sep}{space}{text}")
    return "".join(pieces)


def _mistral(section: Section, think: tuple[str, str] | None) -> Writer:
    def write(meant: Meant, dice: random.Random, kind: str) -> str:
        del kind
        text, called = _parts(meant, dice, section)
        text += dice.choice(("", "</s>"))
        if meant.reasoning is None or think is None:
            return text
        closer = "" if called and dice.random() < 0.15 else think[1]
        return f"{think[0]}{meant.reasoning}{closer}{text}"

    return write


def _with_ids(calls: list[Invocation], dice: random.Random) -> str:
    return headed(calls, dice, True)


def _without_ids(calls: list[Invocation], dice: random.Random) -> str:
    return headed(calls, dice, False)


_MISTRAL_TAILS = {"plain": "[INST]hello[/INST]"}
_HEADED_LIMITS = Limits(between=False, after=False, prose_also=("[TOOL", "[1]", "[INST", "[/INST]"))


# --- the others ------------------------------------------------------------------------------------------------------

PLAMO = TokenizerFacts(special={"<|plamo:bos|>": 1, "<|plamo:eos|>": 2}, eos=(2,))
_P = ("begin_tool_requests", "end_tool_requests", "begin_tool_request", "end_tool_request", "begin_tool_name",
      "end_tool_name", "begin_tool_arguments", "end_tool_arguments", "begin_think", "end_think")  # fmt: skip
(P_BEGIN, P_END, P_CALL, P_CLOSE, P_NAME, P_NAMED, P_ARGS, P_ARGUED, P_THINK, P_THOUGHT) = (
    f"<|plamo:{word}:plamo|>" for word in _P
)
_PLAMO_MARKERS = (P_BEGIN, P_END, P_CALL, P_CLOSE, P_NAME, P_NAMED, P_ARGS, P_ARGUED, P_THINK, P_THOUGHT,
                  "<|plamo:constrain|>json", "<|plamo:msg|>", "<|plamo:tag|>")  # fmt: skip


def _requests(calls: list[Invocation], dice: random.Random) -> str:
    pieces = [P_BEGIN]
    for call in calls:
        pieces += P_CALL, P_NAME, call.name, P_NAMED, P_ARGS, "<|plamo:constrain|>json<|plamo:msg|>"
        pieces += json_text(call.arguments, dice), P_ARGUED, P_CLOSE, dice.choice(("", "", "\n"))
    return "".join((*pieces, P_END))


def plamo(meant: Meant, dice: random.Random, kind: str) -> str:
    """See Family."""
    text, called = _parts(meant, dice, _requests)
    closer = "" if called and meant.reasoning and dice.random() < 0.15 else P_THOUGHT
    if kind == "thinking":
        return f"{meant.reasoning or ''}{closer}{text}"
    return text if meant.reasoning is None else f"{P_THINK}{meant.reasoning}{closer}{text}"


LLAMA = TokenizerFacts(
    special={"<|begin_of_text|>": 128000, "<|end_of_text|>": 128001, "<|eom_id|>": 128008, "<|eot_id|>": 128009},
    eos=(128009, 128008, 128001),
)


def _functions(calls: list[Invocation], dice: random.Random) -> str:
    space = dice.choice(("", "", "\n"))
    texts = ["" if not call.arguments and dice.random() < 0.2 else json_text(call.arguments, dice) for call in calls]
    return space.join(f"<function={call.name}>{text}</function>" for call, text in zip(calls, texts, strict=True))


def llama(meant: Meant, dice: random.Random, kind: str) -> str:
    """See Family."""
    del kind
    return _parts(meant, dice, _functions)[0] + dice.choice(("", "<|eom_id|>", "<|eot_id|>"))


FAMILIES = (
    *(
        Family(
            format=form, tokenizer=DEEPSEEK, write=_deepseek(*bodies), tails=_DEEPSEEK_TAILS,
            markers=_DEEPSEEK_MARKERS, limits=_DEEPSEEK_LIMITS, variant=variant,
        )
        for form, bodies, variant in (
            (DEEPSEEK_V3, (fenced, bare), ""),
            (DEEPSEEK_R1, (fenced, bare), ""),
            (DEEPSEEK_V31, (bare, fenced), ""),
        )
    ),
    Family(
        format=DEEPSEEK_R1, tokenizer=DISTILL, write=_deepseek(fenced, bare), tails=_DEEPSEEK_TAILS,
        markers=_DEEPSEEK_MARKERS, limits=_DEEPSEEK_LIMITS, variant="distill",
    ),
    Family(
        format=KIMI_K2, tokenizer=KIMI, write=kimi, tails=_KIMI_TAILS, markers=_KIMI_MARKERS, limits=_KIMI_LIMITS,
    ),
    Family(
        format=KIMI_K25, tokenizer=KIMI, write=kimi, tails=_KIMI_TAILS, markers=_KIMI_MARKERS, limits=_KIMI_LIMITS,
    ),
    Family(
        format=MISTRAL, tokenizer=TEKKEN13, write=_mistral(_without_ids, ("[THINK]", "[/THINK]")),
        tails=_MISTRAL_TAILS, markers=_MISTRAL_MARKERS, limits=_HEADED_LIMITS,
    ),
    Family(
        format=MISTRAL, tokenizer=TEKKEN11, write=_mistral(_with_ids, None), tails=_MISTRAL_TAILS,
        markers=_MISTRAL_MARKERS[:3], limits=replace(_HEADED_LIMITS, reasoning=False), variant="v11",
    ),
    Family(
        format=MISTRAL, tokenizer=SPM, write=_mistral(array, None), tails=_MISTRAL_TAILS,
        markers=_MISTRAL_MARKERS[:1], limits=replace(_HEADED_LIMITS, reasoning=False, after=True), variant="array",
    ),
    Family(
        format=MAGISTRAL, tokenizer=TEKKEN11, write=_mistral(_with_ids, ("<think>\n", "\n</think>\n")),
        tails=_MISTRAL_TAILS, markers=(*_MISTRAL_MARKERS[:3], "<think>", "</think>"), limits=_HEADED_LIMITS,
    ),
    Family(
        format=PLAMO3, tokenizer=PLAMO, write=plamo, markers=_PLAMO_MARKERS,
        tails={"plain": "<|plamo:tag|>assistant\n", "thinking": f"<|plamo:tag|>assistant\n{P_THINK}",
               "off": f"<|plamo:tag|>assistant\n{P_THINK}{P_THOUGHT}"},
        limits=Limits(prose_never=_PLAMO_MARKERS, prose_also=("<|plamo", "plamo|>")), tail=80,
    ),
    Family(
        format=LLAMA_FUNCTION, tokenizer=LLAMA, write=llama, tails={"plain": "<|start_header_id|>assistant\n\n"},
        markers=("<function=", "</function>"),
        limits=Limits(reasoning=False, prose_never=("<function=", "</function>"), prose_also=("<func", "</funct")),
    ),
)  # fmt: skip
