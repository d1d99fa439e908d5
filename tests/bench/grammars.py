"""The parser alone, grammar by grammar: what a token costs in text, in reasoning, in arguments, in many calls.

One family of each grammar, its output written by the tests' generators, one token a step of about four characters
(markers are one token each), parsed by its own parser. Every figure is the median of several rounds in one run.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from stages import catalog
from stages.events import Input, Semantic
from stages.opening import Ask, Opening, Tool
from stages.stage import Stage, fold
from tests.bench.measure import Rows, per_token, pieces
from tests.support.generate import families
from tests.support.generate.family import Family, tokenize
from tests.support.generate.message import Invocation, Meant
from tests.support.parse import grouped, session

GRAMMARS: Final = (
    ("JSON object", "hermes"), ("bare JSON", "llama3_json"), ("JSON array", "jamba"), ("header, JSON", "deepseek_v31"),
    ("header, JSON", "kimi_k2"), ("header, JSON", "mistral"), ("XML parameters", "qwen3-xml"),
    ("XML parameters", "minimax_m2"), ("typed XML", "deepseek_v32"), ("key/value tags", "glm47"),
    ("pythonic", "pythonic"), ("braces", "gemma4"), ("nested XML", "minimax_m3"), ("channels", "harmony"),
)  # fmt: skip
"""(grammar, family), in the order of the table."""
KIB: Final = (2, 8, 32)
MADE: Final = 200
"""Parsers made in a round."""


def _words(n: int) -> str:
    return "".join(pieces(n)).strip()


def _workloads(family: Family) -> Iterator[tuple[str, Meant]]:
    yield "content 2,000", Meant(None, (_words(2_000),))
    yield "content 16,000", Meant(None, (_words(16_000),))
    if family.limits.reasoning:
        yield "reasoning 1,000 + content 1,000", Meant(_words(1_000), (_words(1_000),))
    if family.limits.calls:
        for size in KIB:
            code = "def f(x):\n    return [x + 1, 'a', \"b\"]\n" * (size * 1024 // 40)
            yield f"string argument, {size} KiB", Meant(None, (Invocation("tide", {"code": code.rstrip()}),))
    if family.limits.calls > 1:
        calls = tuple(Invocation("tide", {"port": "Brest", "day": 3}) for _ in range(20))
        yield "20 calls", Meant(None, calls)


_TOOLS: Final = (
    Tool("tide", None, {"type": "object", "properties": {
        "port": {"type": "string"}, "day": {"type": "integer"}, "code": {"type": "string"},
    }}),
)  # fmt: skip


def session_of(family: Family, meant: Meant) -> tuple[Opening, list[Input], int]:
    """An opening, the inputs with one token a step, and how many tokens there are."""
    kind = "plain" if "plain" in family.tails else next(iter(family.tails))
    raw = family.output(meant, random.Random(1), kind)
    tokens = tokenize(raw, family.tokenizer, 4)
    opened = Opening(
        session="bench", key="bench", response_id="bench", created=1, opened=1, model="m", parser=family.format.name,
        ask=Ask(tools=_TOOLS), tokenizer=family.tokenizer,
    )  # fmt: skip
    steps = session(grouped(tokens, [1] * len(tokens)), tail=family.tails[kind])
    return opened, steps, len(tokens)


def _parse(stage: Stage[Input, Semantic], opened: Opening, steps: list[Input]) -> list[Any]:
    return fold(stage.start(opened), steps)


def _made(stage: Stage[Input, Semantic], opened: Opening, prompt: Input) -> None:
    for _ in range(MADE):
        stage.start(opened).step(prompt, [])


def bench_grammars(rows: Rows) -> None:
    """µs a token of each grammar in each workload, and how it grows with the length of an argument."""
    found = {family.name: family for family in families()}
    for grammar, name in GRAMMARS:
        family = found[name]
        stage = catalog.parser(family.format.name)
        grew: dict[int, float] = {}
        for what, meant in _workloads(family):
            opened, steps, count = session_of(family, meant)
            took = per_token(partial(_parse, stage, opened, steps), count, rounds=5)
            rows.append((f"{grammar} ({name}): {what}", took, "µs/token"))
            if "KiB" in what:
                grew[int(what.split()[-2])] = took
        if grew:
            rows.append((f"{grammar} ({name}): 32 KiB against 2 KiB", grew[32] / grew[2], "times"))
        opened, (prompt, *_), _ = session_of(family, Meant(None, ("hi",)))
        took = per_token(partial(_made, stage, opened, prompt), MADE)
        rows.append((f"{grammar} ({name}): a parser made, and a choice admitted", took, "µs"))
