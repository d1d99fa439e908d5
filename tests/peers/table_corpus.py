"""The sessions of the published table: messages of each family, written as its model writes them, and recorded.

``ordinary`` messages are what agents write, spelled as the model's template spells it (``table_write``): a sentence or
two, up to two calls of usual tools. ``hard`` ones are drawn by the tests' generators (``tests.support.generate``): any
text, names, nested values, markup inside strings, and every spelling that the grammar allows. Both are recorded one
token a step, through our own parser, whose message is checked against what was meant.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

from stages.events import FinishInput, Input, PromptInput, TokensInput, UsageInput
from stages.message import Message, collect
from stages.opening import Opening
from stages.upstream.asked import asked
from store.api import Trace
from tests.peers.table_write import written
from tests.support.format_checks import same_value
from tests.support.generate import families
from tests.support.generate.family import Family
from tests.support.generate.message import Invocation, Meant, tools_for
from tests.support.oracle_vocabularies import Vocabulary, borrowed, deepseek, harmony, harmony_pieces
from tests.support.replay import record

_SENTENCES = (
    "Let me check that for you.", "Sure.", "I will look it up now.", "The tide turns at 14:20 in Brest.",
    "Here is what I found:", "That is 3 < 5, of course.", "Voilà, c'est l'été.", "好的我来查一下。", "Done \U0001f389",
    "First the weather, then the flights.", "It costs $12.50 (10% off).", "Use `ls -la` to list them.",
)  # fmt: skip
_CALLS: tuple[Invocation, ...] = (
    Invocation("get_weather", {"city": "Paris", "unit": "celsius"}),
    Invocation("get_weather", {"city": "San Francisco, CA"}),
    Invocation("get_time", {}),
    Invocation("search_flights", {"origin": "CDG", "to": "HND", "passengers": 2, "flexible": False}),
    Invocation("write_file", {"path": "a/b.py", "content": "def f(x):\n    return x + 1\n"}),
    Invocation(
        "search", {"query": "best café in Brest", "limit": 5, "filters": {"open": True, "tags": ["food", "bar"]}}
    ),
)


_ONE_CALL = ("harmony",)
"""Families whose turn ends with a call."""
CALLS_ALONE = ("llama3_json", "pythonic")
"""Families whose templates write no text beside calls."""


class Kind(NamedTuple):
    """A family of the table. ``family``: its generator; ``parser``: ours; ``thinks``: its messages have reasoning;
    ``kind``: the generator's prompt; ``asks``: more of the request; ``vllm``, ``sglang``: their names of it, empty:
    none."""

    name: str
    family: str
    parser: str
    vllm: str
    sglang: str
    thinks: bool = False
    kind: str = "plain"
    asks: dict[str, Any] = {}


_ON = {"chat_template_kwargs": {"thinking": True}}
_OFF = {"chat_template_kwargs": {"thinking": False, "enable_thinking": False}}
KINDS: tuple[Kind, ...] = (
    Kind("hermes", "hermes", "hermes", "hermes", "qwen25"),
    Kind("qwen3 + hermes", "hermes", "hermes", "qwen3+hermes", "qwen3+qwen25", thinks=True),
    Kind("qwen3_coder", "qwen3-xml", "qwen3-xml", "qwen3_coder", "qwen3_coder"),
    Kind("deepseek_v31", "deepseek_v31", "deepseek_v31", "deepseek_v31", "deepseekv31", kind="off", asks=_OFF),
    Kind(
        "deepseek_v31, thinking", "deepseek_v31", "deepseek_v31", "deepseek_v3+deepseek_v31",
        "deepseek-v3+deepseekv31", thinks=True, kind="thinking", asks=_ON,
    ),
    Kind("kimi_k2", "kimi_k2", "kimi_k2", "kimi_k2", "kimi_k2"),
    Kind("glm45", "glm", "glm", "glm45+glm45", "glm45+glm45", thinks=True),
    Kind("llama3_json", "llama3_json", "llama3_json", "llama3_json", "llama3"),
    Kind("pythonic", "pythonic", "pythonic", "pythonic", "pythonic"),
    Kind("mistral", "mistral", "mistral", "mistral", "mistral"),
    Kind("gpt-oss", "harmony", "harmony", "openai_gptoss+openai", "gpt-oss+gpt-oss", thinks=True),
)  # fmt: skip


def sessions(kind: Kind, corpus: str, count: int) -> Iterator[Trace]:
    """``count`` recorded sessions. Raises AssertionError where our parser's message is not what was meant."""
    family = next(one for one in families() if one.name == kind.family)
    for seed in range(count):
        dice = random.Random(f"{kind.name} {corpus} {seed}")
        if corpus == "ordinary":
            meant = ordinary(dice, family, kind.thinks)
            raw = written(kind.family, meant, kind.kind)
        else:
            meant = _hard(dice, family, kind)
            raw = family.output(meant, dice, kind.kind)
        trace = recorded(kind, family, meant, raw, f"{corpus}{seed:04d}{kind.parser}".encode().hex()[:32])
        (message,) = collect(trace.events("served", "semantic"))
        wrong = _wrong(message, family.expect(meant, kind.kind))
        assert not wrong, f"{kind.name}, {corpus} {seed}: {wrong}"
        yield trace


def ordinary(dice: random.Random, family: Family, thinks: bool) -> Meant:
    """A message that agents write, within what the family can say."""
    limits = family.limits
    reasoning = " ".join(dice.sample(_SENTENCES, 2)) if thinks else None
    single = family.name in _ONE_CALL
    calls = dice.sample(_CALLS, dice.choice((0, 1, 1, 2)))[: 1 if single else None]
    parts: list[str | Invocation] = []
    if not calls or (limits.before and family.name not in CALLS_ALONE and dice.random() < 0.6):
        parts.append(dice.choice(_SENTENCES))
    return Meant(reasoning, (*parts, *calls))


def _hard(dice: random.Random, family: Family, kind: Kind) -> Meant:
    """What the generator draws; with reasoning exactly where the family's row has it."""
    while True:
        meant = family.draw(dice, kind.kind)
        if not kind.thinks:
            return Meant(None, meant.parts)
        if meant.reasoning:
            return meant


def recorded(kind: Kind, family: Family, meant: Meant, raw: str, name: str) -> Trace:
    """The session of an output, one token a step, ended by the family's end token."""
    tokens = _tokens(family, raw)
    ends = family.tokenizer.eos
    if ends and not (tokens and tokens[-1][0] in ends):
        marked = {number: text for text, number in family.tokenizer.special.items()}
        tokens.append((ends[0], marked.get(ends[0], "").encode()))
    body = json.dumps(_body(meant, kind)).encode()
    opening = Opening(
        session=name, key="k" * 32, response_id="chatcmpl-1", created=1760000000, opened=1760000000 * 10**9,
        model=kind.name, request=body, ask=asked("chat", body), parser=kind.parser, tokenizer=family.tokenizer,
    )  # fmt: skip
    inputs: list[Input] = [PromptInput((1, 2, 3), family.tails[kind.kind], 3)]
    inputs += [TokensInput(0, (number,), (piece,), "") for number, piece in tokens]
    inputs += [FinishInput(0, "eos", tokens[-1][0] if tokens else None), UsageInput(3, len(tokens))]
    return record(opening, inputs)


def _tokens(family: Family, raw: str) -> list[tuple[int, bytes]]:
    """An output as tokens: the family's markers, and between them the words of a real vocabulary: DeepSeek's own, and
    o200k's, which are gpt-oss's own."""
    if family.name == "harmony":
        return Vocabulary(family.tokenizer, _ids, harmony_pieces).tokens(raw)
    if family.name != "deepseek_v31":
        return borrowed(family.tokenizer).tokens(raw)
    own = {**family.tokenizer.special, **family.tokenizer.added}
    marked = {text.encode(): number for text, number in own.items()}
    return [(marked.get(piece, number), piece) for number, piece in deepseek().tokens(raw)]


def _ids(text: str) -> list[int]:
    return list(harmony().encode(text, allowed_special="all"))


def _body(meant: Meant, kind: Kind) -> dict[str, Any]:
    tools = [
        {"type": "function", "function": {"name": tool.name, "parameters": tool.parameters}}
        for tool in tools_for(meant)
    ]
    return {"model": "m", "messages": [{"role": "user", "content": "x"}], "stream": True, "tools": tools, **kind.asks}


def _wrong(message: Message, meant: Meant) -> str:
    """How a message differs from what was meant; empty: it does not."""
    if (message.reasoning, message.content) != (meant.reasoning, meant.content):
        return f"{message.reasoning!r}, {message.content!r}: {meant.reasoning!r}, {meant.content!r}"
    got = [(call.name, json.loads(call.arguments)) for call in message.tool_calls]
    want = [(call.name, call.arguments) for call in meant.calls]
    same = len(got) == len(want) and all(
        a[0] == b[0] and same_value(a[1], b[1]) for a, b in zip(got, want, strict=True)
    )
    return "" if same else f"{got}: {want}"
