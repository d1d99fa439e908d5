"""What it costs to hold a model to a form: tokens a second of SmolLM2, free and held."""

from __future__ import annotations

import statistics
import time
from typing import Any

import anyio

from pipeline.engines.hf import HfEngine
from stages.constraint import Constraint
from stages.grammar import Json
from stages.parse.formats.plain import PLAIN
from tests.bench.measure import Rows
from tests.support.engines import ask, collect, tokens

TOKENS = 60
ROUNDS = 5
SCHEMA: dict[str, Any] = {
    "type": "array", "minItems": 100, "items": {
        "type": "object", "additionalProperties": False, "required": ["name", "size"],
        "properties": {"name": {"type": "string"}, "size": {"enum": ["small", "large"]}},
    },
}  # fmt: skip
HELD = Constraint(Json(SCHEMA, "response_format.json_schema.schema"), PLAIN)


async def _rates(engine: HfEngine, constraint: Constraint | None) -> float:
    rates: list[float] = []
    for _ in range(ROUNDS + 1):
        start = time.perf_counter()
        # An end token would make the free output shorter: here it is no more than a token.
        free = constraint is None
        asked = ask(temperature=0.0, max_tokens=TOKENS, ignore_eos=free, constraint=constraint)
        inputs = await collect(engine, asked)
        rates.append(len(tokens(inputs)) / (time.perf_counter() - start))
    return statistics.median(rates[1:])


async def _both() -> tuple[float, float]:
    async with HfEngine() as engine:
        return await _rates(engine, None), await _rates(engine, HELD)


def bench_held(rows: Rows) -> None:
    """Free and held, and the ratio."""
    free, held = anyio.run(_both)
    rows += [("SmolLM2, free", free, "tokens/s"), ("SmolLM2, held to a schema", held, "tokens/s")]
    rows.append(("held to free", held / free, "ratio"))
