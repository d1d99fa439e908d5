"""Random schemas: what a grammar of them allows is read by the format's parser as calls that satisfy them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import jsonschema_rs
import pytest

from stages.constraint import constraint_of
from stages.opening import Ask, Tool
from stages.parse.formats import FORMATS
from stages.parse.spellings.python import Python
from tests.support.constrained import vocabulary as vocabulary_of
from tests.support.parse import message, opening, semantic, session

NAMES = ("a", "city", "naïve 潮", 'q"uote', "back\\slash", "new\nline", "</tool_call>", "[TOOL_CALLS]", "arguments", "")
WORDS = ("red", "</tool_call>", '"', "\\", "\n", "</think>", "```", '{"name": "tide"', "")
LEAVES: tuple[dict[str, Any], ...] = (
    {"type": "string", "maxLength": 4},
    {"type": "string", "pattern": '^[^"]{1,3}$'},
    {"type": "string", "pattern": r"^\d{3}-\w{1,2}$"},
    {"type": "integer", "minimum": -3, "maximum": 170},
    {"type": "number", "minimum": -1.5, "maximum": 2.25},
    {"type": ["boolean", "null"]},
    {"type": "string", "format": "date"},
    {"const": {"a": ["x", None]}},
    {"$ref": "#/$defs/leaf"},
)


PLAIN_NAMES = ("a", "city", "naïve 潮", "x-y.z", "arguments", "$ref_er")
"""Where a name is no JSON string."""
WORD_NAMES = ("a", "city", "naïve", "from", "arguments", "_9")
"""Where it is a word."""


def part(dice: random.Random, depth: int) -> dict[str, Any]:
    kind = dice.randrange(7 if depth else 3)
    if kind == 0:
        return {"enum": dice.sample(WORDS, 3)}
    if kind < 3:
        return dict(dice.choice(LEAVES))
    if kind == 3:
        least = dice.randint(0, 2)
        return {"type": "array", "items": part(dice, depth - 1), "minItems": least, "maxItems": least + 1}
    if kind == 4:
        return {"anyOf": [part(dice, depth - 1) for _ in range(dice.randint(1, 3))]}
    return table(dice, depth - 1)


def table(dice: random.Random, depth: int, names: Sequence[str] = NAMES) -> dict[str, Any]:
    names = dice.sample(names, dice.randint(0, 3))
    made: dict[str, Any] = {"type": "object", "properties": {name: part(dice, depth) for name in names}}
    made["required"] = [name for name in names if dice.random() < 0.6]
    return made if dice.random() < 0.7 else {**made, "additionalProperties": {"type": "boolean"}}


@pytest.mark.parametrize("ids", [True, False])
@pytest.mark.parametrize("form", [form for form in FORMATS if form.spellings], ids=lambda form: form.name)
def test_calls_satisfy_random_schemas(form: Any, ids: bool) -> None:
    vocabulary = vocabulary_of(form, ids)
    dice = random.Random(form.name)
    for seed in range(4):
        spelt = form.spellings[0].arguments
        names: Sequence[str] = NAMES if spelt is None else WORD_NAMES if isinstance(spelt, Python) else PLAIN_NAMES
        if form.name == "minimax_m3":  # a tag has no blank
            names = tuple(name for name in PLAIN_NAMES if " " not in name)
        schemas = {
            name: {**table(dice, 2, names), "$defs": {"leaf": {"enum": [1, "潮"]}}} for name in ("tide", "tides")
        }
        tools = tuple(Tool(name, None, schema) for name, schema in schemas.items())
        ask = Ask(tools=tools, tool_choice="required", parallel=seed % 2 == 0)
        constraint = constraint_of(ask, form, vocabulary.facts, "chat")
        assert constraint is not None
        steps = vocabulary.written(vocabulary.held(constraint, "<assistant>"), seed)
        got = message(
            semantic(opening(form.name, tokenizer=vocabulary.facts, ask=ask), session(steps, tail="<assistant>"))
        )
        assert (got.faults, got.content) == ([], None)
        assert 1 <= len(got.calls) <= (99 if ask.parallel else 1)
        for call in got.calls:
            assert call.complete
            assert jsonschema_rs.is_valid(schemas[call.name], call.value())
