"""The engine on a real model, held to a constraint."""

from __future__ import annotations

import pytest

from pipeline.engines.hf import HfEngine
from stages.constraint import Constraint
from stages.events import ErrorInput, FinishInput
from stages.grammar import Json, Literal, OneOf
from stages.parse.formats.plain import PLAIN
from tests.support.engines import ask, collect, ids, tokens, written

pytestmark = [pytest.mark.model, pytest.mark.anyio]

EOS = 2  # <|im_end|> of SmolLM2


async def test_a_constraint_leaves_what_it_allows_and_logprobs_are_of_all(engine: HfEngine) -> None:
    """Greedy takes the likeliest of two words, neither of which is the model's own first choice."""
    held = Constraint(OneOf((Literal("Danube, Rhine"), Literal("Zambezi"))), PLAIN)
    [*inputs] = await collect(engine, ask(temperature=0.0, constraint=held, logprobs=1))
    assert written(inputs) in (b"Danube, Rhine<|im_end|>", b"Zambezi<|im_end|>")
    assert [event.reason for event in inputs if isinstance(event, FinishInput)] == ["eos"]
    first = tokens(inputs)[0].logprobs[0]
    assert first.top[0].id != first.id
    assert first.top[0].logprob > first.logprob
    free = tokens(await collect(engine, ask(temperature=0.0, max_tokens=1, logprobs=1)))
    assert free[0].logprobs[0].top == first.top


async def test_a_constraint_beside_other_wishes(engine: HfEngine) -> None:
    held = Constraint(Literal("Rhine"), PLAIN)
    # Nothing but the end may follow: more tokens cannot be had.
    assert written(await collect(engine, ask(constraint=held, min_tokens=40))) == b"Rhine<|im_end|>"
    # A stop token ends it where it is complete.
    stopped = await collect(engine, ask(constraint=held, stop_token_ids=(0,), logit_bias={0: 100.0}))
    assert written(stopped) == b"Rhine<|endoftext|>"
    # Not before, whatever the bias.
    assert ids(await collect(engine, ask(constraint=held, max_tokens=1, logit_bias={EOS: 100.0})))[0] != EOS
    forced = await collect(engine, ask(constraint=held, forced_text="Elbe"))
    assert written(forced) == b"Elbe<|im_end|>"
    [refused] = await collect(engine, ask(constraint=held, ignore_eos=True))
    assert isinstance(refused, ErrorInput)
    assert (refused.kind, refused.param) == ("bad_request", "ignore_eos")
    wrong = Constraint(Json({"not": {}}, "response_format.json_schema.schema"), PLAIN)
    [refused] = await collect(engine, ask(constraint=wrong))
    assert isinstance(refused, ErrorInput)
    assert (refused.code, refused.param) == ("unsupported_schema", "response_format.json_schema.schema")
