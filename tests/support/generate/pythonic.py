"""Output of the pythonic grammars: bare lists, Llama 4, OLMo 3, Gemma 3, LFM2.

Values are written as ``repr`` writes them, now and then in another way that Python reads as the same: other quotes and
prefixes, adjacent literals, tuples, underscores, JSON's words. Llama 4's template writes every value as a string; one
that is null, where a string is allowed too, is left as ``None``: as a string it would stay one. LFM2's writes strings
in single quotes as they are; those that could be read in another way are escaped here.

What a message loses: nothing.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable

from replay.plain import is_list, is_map
from stages.opening import TokenizerFacts
from stages.parse.formats.gemma3 import GEMMA3
from stages.parse.formats.lfm2 import LFM2
from stages.parse.formats.llama4 import LLAMA4
from stages.parse.formats.olmo3 import OLMO3
from stages.parse.formats.pythonic import PYTHONIC
from tests.support.generate.family import Family, json_text
from tests.support.generate.message import WORD_CHARS, Invocation, Limits, Meant, Value

LLAMA32 = TokenizerFacts(
    special={
        "<|begin_of_text|>": 128000, "<|end_of_text|>": 128001, "<|start_header_id|>": 128006,
        "<|end_header_id|>": 128007, "<|eom_id|>": 128008, "<|eot_id|>": 128009, "<|python_tag|>": 128010,
    },
    eos=(128001, 128008, 128009),
)  # fmt: skip
SCOUT = TokenizerFacts(
    special={
        "<|begin_of_text|>": 200000, "<|end_of_text|>": 200001, "<|header_start|>": 200005, "<|header_end|>": 200006,
        "<|eom|>": 200007, "<|eot|>": 200008, "<|python_start|>": 200016, "<|python_end|>": 200017,
    },
    eos=(200001, 200007, 200008),
)  # fmt: skip
DOLMA = TokenizerFacts(
    special={"<|endoftext|>": 100257, "<|im_start|>": 100264, "<|im_end|>": 100265}, eos=(100265, 100257)
)
GEMMA = TokenizerFacts(
    special={"<pad>": 0, "<eos>": 1, "<bos>": 2, "<start_of_turn>": 105, "<end_of_turn>": 106}, eos=(1, 106)
)

LIQUID = TokenizerFacts(
    special={
        "<|pad|>": 0, "<|startoftext|>": 1, "<|im_start|>": 6, "<|im_end|>": 7, "<|tool_call_start|>": 10,
        "<|tool_call_end|>": 11,
    },
    added={"<think>": 64400, "</think>": 64401},
    eos=(7,),
)  # fmt: skip

Text = Callable[[str, random.Random], str]
_ENDS = re.compile(r"'\s*[,)\]}:]|\\|^'$|^''")


def text(value: str, dice: random.Random) -> str:
    """A string literal."""
    style = dice.random()
    if style < 0.6:
        return repr(value)
    if style < 0.75:
        return json.dumps(value, ensure_ascii=dice.random() < 0.5)
    if style < 0.8 and not any(char in value for char in "\\\n\r'\"\x00"):
        quote = dice.choice("'\"")
        return f"{dice.choice('rR')}{quote}{value}{quote}"
    if style < 0.85:
        return f"{dice.choice('uU')}{value!r}"
    if style < 0.9 and "'" not in value and "\\" not in value:
        return f"'''{value}'''"
    if style < 0.95 and len(value) > 1:
        return f"{value[: len(value) // 2]!r}{dice.choice((' ', '', chr(10)))}{value[len(value) // 2 :]!r}"
    return repr(value)


def unescaped(value: str, dice: random.Random) -> str:
    """A string as LFM2's template writes it, if that is clear."""
    if _ENDS.search(value) is None and dice.random() < 0.8:
        return f"'{value}'"
    return json.dumps(value, ensure_ascii=False) if dice.random() < 0.5 else repr(value)


def literal(value: Value, dice: random.Random, write: Text = text) -> str:
    """A value as a Python literal."""
    if isinstance(value, str):
        return write(value, dice)
    if value is None or isinstance(value, bool):
        return dice.choice((repr(value), repr(value), json.dumps(value)))
    if isinstance(value, int):
        return _integer(value, dice)
    comma = dice.choice((", ", ", ", ",", " ,\n  "))
    if is_list(value):
        items = [literal(item, dice, write) for item in value]
        if dice.random() < 0.2:
            return f"({comma.join(items)}{',' if len(items) == 1 else ''})"
        return f"[{comma.join(items)}{',' if items and dice.random() < 0.1 else ''}]"
    if is_map(value):
        colon = dice.choice((": ", ": ", ":", " : "))
        pairs = [f"{write(key, dice)}{colon}{literal(item, dice, write)}" for key, item in value.items()]
        return f"{{{comma.join(pairs)}{',' if pairs and dice.random() < 0.1 else ''}}}"
    return f"({value!r})" if dice.random() < 0.05 else repr(value)


def _integer(value: int, dice: random.Random) -> str:
    style = dice.random()
    return f"{value:_}" if style < 0.2 else f"{'-' * (value < 0)}0{abs(value)}" if style < 0.25 else repr(value)


def loose(value: Value, dice: random.Random) -> str:
    """A value as LFM2 writes it."""
    return literal(value, dice, unescaped)


def quoted(value: Value, dice: random.Random) -> str:
    """A value as Llama 4's template writes it: in double quotes, whatever it is."""
    if value is None or dice.random() < 0.2:
        return literal(value, dice)
    return json.dumps(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), ensure_ascii=False)


def call(invocation: Invocation, dice: random.Random, value: Callable[[Value, random.Random], str]) -> str:
    """One call."""
    # What is said of all is drawn first: long calls are then like short ones.
    sign = dice.choice(("=", "=", "=", " = "))
    comma = dice.choice((", ", ", ", ",", ",\n    "))
    end = dice.choice(("", "", "", ",", "\n")) if invocation.arguments else dice.choice(("", "", " "))
    space = dice.choice(("", "", "", " "))
    pairs = [f"{key}{sign}{value(item, dice)}" for key, item in invocation.arguments.items()]
    return f"{invocation.name}{space}({comma.join(pairs)}{end})"


def listed(meant: Meant, dice: random.Random, value: Callable[[Value, random.Random], str] = literal) -> str:
    """All calls as one list."""
    space = dice.choice(("", "", "", "\n"))
    comma, end = dice.choice((", ", ", ", ",", ",\n")), dice.choice(("", "", ","))
    return f"[{space}{comma.join(call(part, dice, value) for part in meant.calls)}{end}{space}]"


def _around(meant: Meant, block: str, dice: random.Random) -> str:
    """The block between the content before and behind it."""
    if not meant.calls:
        return "".join(part for part in meant.parts if isinstance(part, str))
    first, last = meant.parts[0], meant.parts[-1]
    before = first + dice.choice(("\n", "\n\n")) if isinstance(first, str) else ""
    after = dice.choice(("\n", "\n\n")) + last if isinstance(last, str) else dice.choice(("", "", "\n"))
    return before + block + after


def bare(meant: Meant, dice: random.Random, kind: str) -> str:
    """See Family."""
    del kind
    return _around(meant, dice.choice(("", "", "\n", " ")) + listed(meant, dice), dice)


def llama4(meant: Meant, dice: random.Random, kind: str) -> str:
    """See Family."""
    del kind
    block = listed(meant, dice, quoted)
    if meant.calls and (isinstance(meant.parts[0], str) or dice.random() < 0.5):
        block = "<|python_start|>" + block + dice.choice(("<|python_end|>",) * 3 + ("\n<|python_end|>",))
    elif dice.random() < 0.2:
        block += "<|python_end|>"
    return _around(meant, block, dice) + dice.choice(("", "", "<|eot|>"))


def olmo3(meant: Meant, dice: random.Random, kind: str) -> str:
    """See Family."""
    pieces: list[str] = []
    if kind == "thinking":
        pieces.append(f"{meant.reasoning or ''}</think>")
    elif meant.reasoning is not None:
        pieces.append(f"<think>{meant.reasoning}</think>")
    run: list[Invocation] = []
    for part in (*meant.parts, ""):
        if isinstance(part, Invocation):
            run.append(part)
            continue
        if run:
            lines = dice.choice(("\n", "\n", "\n", "\n\n", " ")).join(call(one, dice, literal) for one in run)
            pieces.append(f"{dice.choice(('', chr(10)))}<function_calls>\n{lines}\n</function_calls>")
            run = []
            if part:
                pieces.append(dice.choice(("", "\n", "\n\n")))
        pieces.append(part)
    return "".join(pieces) + dice.choice(("", "", "<|im_end|>"))


def gemma3(meant: Meant, dice: random.Random, kind: str) -> str:
    """See Family."""
    del kind
    block = listed(meant, dice)
    if meant.calls and (isinstance(meant.parts[0], str) or dice.random() < 0.5):
        block = f"```{dice.choice(('tool_code', 'tool_code', 'python'))}\n{block}\n```"
    return _around(meant, block, dice)


def lfm2(meant: Meant, dice: random.Random, kind: str) -> str:
    """See Family."""
    pieces = [] if meant.reasoning is None else [f"<think>\n{meant.reasoning}\n</think>\n\n"]
    if kind == "thinking":
        pieces = [f"{meant.reasoning or ''}\n</think>\n\n"]
    run: list[Invocation] = []
    for part in (*meant.parts, ""):
        if isinstance(part, Invocation):
            run.append(part)
            continue
        if run:
            pieces.append(f"<|tool_call_start|>{_listing(run, dice)}<|tool_call_end|>{dice.choice(('', '', chr(10)))}")
            run = []
        pieces.append(part)
    return "".join(pieces) + dice.choice(("", "", "<|im_end|>"))


def _listing(calls: list[Invocation], dice: random.Random) -> str:
    if dice.random() < 0.2:
        objects = [json_text({"name": one.name, "arguments": one.arguments}, dice) for one in calls]
        return f"[{', '.join(objects)}]"
    return listed(Meant(None, tuple(calls)), dice, loose)


_FIRST = Limits(reasoning=False, before=False, between=False, keys=WORD_CHARS)
_OLMO_MARKERS = ("<function_calls>", "</function_calls>", "<think>", "</think>")
_OLMO_PROMPT = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"

FAMILIES = (
    Family(
        format=PYTHONIC, tokenizer=LLAMA32, write=bare, tails={"plain": "", "off": ""}, markers=("[",), tail=90,
        limits=_FIRST,
    ),
    Family(
        format=LLAMA4, tokenizer=SCOUT, write=llama4, tails={"plain": "", "off": ""}, tail=90,
        markers=("[", "<|python_start|>", "<|python_end|>"),
        limits=Limits(reasoning=False, between=False, keys=WORD_CHARS),
    ),
    Family(
        format=OLMO3, tokenizer=DOLMA, write=olmo3, markers=_OLMO_MARKERS,
        tails={"plain": _OLMO_PROMPT, "thinking": _OLMO_PROMPT + "<think>", "off": _OLMO_PROMPT + "<think></think>"},
        limits=Limits(keys=WORD_CHARS, prose_never=_OLMO_MARKERS,
                      prose_also=("<function_", "<function>", "</function_call>")),
    ),
    Family(
        format=LFM2, tokenizer=LIQUID, write=lfm2, markers=("<|tool_call_start|>", "<|tool_call_end|>", "[", "<think>"),
        tails={"plain": _OLMO_PROMPT, "thinking": _OLMO_PROMPT + "<think>\n", "off": _OLMO_PROMPT},
        limits=Limits(keys=WORD_CHARS, prose_never=("<think>", "</think>"), prose_also=("<|tool_call_", "[tide()]")),
    ),
    Family(
        format=GEMMA3, tokenizer=GEMMA, write=gemma3, tails={"plain": "", "off": ""}, tail=90,
        markers=("[", "```tool_code", "```python", "```"),
        limits=Limits(reasoning=False, between=False, keys=WORD_CHARS, prose_never=("```tool_code",),
                      prose_also=("```python\nprint(1)\n```", "```\n[x]\n```")),
    ),
)  # fmt: skip
