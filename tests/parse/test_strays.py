"""Stray markers in text that was given back: the first by place, whatever order a set has."""

from __future__ import annotations

from stages import catalog
from stages.events import Fault, FaultCode
from stages.opening import TokenizerFacts, Tool
from stages.stage import fold
from tests.support.parse import grouped, opening, session

FACTS = TokenizerFacts(special={"<|python_tag|>": 900, "<|eom_id|>": 901}, eos=(901,))


def test_the_first_of_two_in_a_call_that_was_none() -> None:
    opened = opening("llama3_json", tokenizer=FACTS, tools=(Tool("tide"),))
    written = [(1, b'{"na'), (900, b"<|python_tag|>"), (2, b"me"), (900, b"<|python_tag|>"), (3, b" x\n")]
    inputs = session(grouped(written, [1] * 5), tail="x")
    found = [event for event in fold(catalog.layers(opened).semantic.start(opened), inputs) if isinstance(event, Fault)]
    assert [(fault.code, fault.src) for fault in found] == [(FaultCode.STRAY_MARKER, (4, 18))]
