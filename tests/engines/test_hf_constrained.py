"""The engine on a real model, held to a constraint."""

from __future__ import annotations

import re

import pytest

from pipeline.engines.hf import HfEngine
from stages.constraint import Constraint
from stages.events import ErrorInput, FinishInput, Input, TokensInput
from stages.grammar import Again, Json, Literal, OneOf, Row
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


WORDS = Constraint(Row((Literal("a"), Again(OneOf((Literal("b"), Literal("c")))))), PLAIN)
"""The model may end after each letter."""


async def test_choices_and_seeds(engine: HfEngine) -> None:
    """Each choice is held by itself, and chosen by the seed and its number alone."""
    request = ask(constraint=WORDS, n=3, seed=5, max_tokens=8, logprobs=2)
    one, again = await collect(engine, request), await collect(engine, request)
    texts = [written(one, choice) for choice in range(3)]
    assert texts == [written(again, choice) for choice in range(3)]
    assert all(re.fullmatch(rb"a[bc]*(<\|im_end\|>)?", text) for text in texts)
    assert len(set(texts)) > 1
    alone = await collect(engine, ask(constraint=WORDS, seed=5, max_tokens=8))
    assert written(alone) == texts[0]
    for event in tokens(one):
        [entry] = event.logprobs
        assert (entry.id,) == event.ids
        assert len(entry.top) == 2


async def test_min_tokens_penalties_and_stops(engine: HfEngine) -> None:
    # The likeliest letter again and again, which a penalty turns into another one; the end may not come before.
    bias = {EOS: 50.0}
    long = await collect(engine, ask(constraint=WORDS, temperature=0.0, min_tokens=6, logit_bias=bias))
    assert len(ids(long)) == 7
    assert re.fullmatch(rb"a[bc]+<\|im_end\|>", written(long))
    whole = await collect(engine, ask(constraint=Constraint(Literal("Rhine"), PLAIN), min_tokens=50))
    assert written(whole) == b"Rhine<|im_end|>"  # nothing else is allowed
    varied = await collect(
        engine,
        ask(constraint=WORDS, temperature=0.0, min_tokens=9, max_tokens=9, frequency_penalty=2.0, presence_penalty=2.0,
            repetition_penalty=1e9),
    )  # fmt: skip
    assert {b"b", b"c"} <= {bytes([byte]) for byte in written(varied)}
    assert re.fullmatch(rb"a[bc]+", written(varied))
    # An id that may end the output is no part of it: not before it is whole.
    stopped = await collect(
        engine, ask(constraint=Constraint(Literal("Rhine"), PLAIN), stop_token_ids=(0,), logit_bias={0: 100.0})
    )
    assert written(stopped) == b"Rhine<|endoftext|>"

    def watch(event: Input) -> str | None:
        return "c" if isinstance(event, TokensInput) and "h" in event.text else None

    cut = await collect(engine, ask(constraint=Constraint(Literal("Rhine"), PLAIN), watch=watch))
    assert b"Rhine".startswith(written(cut))
    assert [event.reason for event in cut if isinstance(event, FinishInput)] == ["stop"]
