"""Cases rebuilt from public reports of other engines' parsers (data/public_reports.jsonl), under every split and both
policies.

Reasoning and content are compared after trimming white space at both ends, as those reports are. Where a case of medium
confidence contradicts the format's definition, the definition stands; the reason is beside it.
"""

from __future__ import annotations

import msgspec
import pytest

from replay.cases import Calls, Case, differences, read_cases, run_case
from replay.expected import Expected, ExpectedCall, in_words
from replay.parse import session_of
from tests.support.parse import check_partition, check_stream
from tests.support.tree import ROOT

CASES = list(read_cases(str(ROOT / "tests" / "data" / "public_reports.jsonl")))

OTHERWISE: dict[str, Expected] = {
    # Output that ends inside reasoning is reasoning: nobody can tell that it was meant as an answer.
    "glm-answer-without-think-end-on-eos": Expected(reasoning="Paris is the capital of France."),
    # There is no escape in a value: the first </arg_value> ends it.
    "glm-structural-tags-as-data": Expected(
        tool_calls=(ExpectedCall("write_file", {"path": "t.md", "content": "End with </tool_call> or "}),)
    ),
    # Output that ends before </function> may have gone on with another parameter: the call is not complete.
    "qwen3xml-length-cut-after-complete-parameter": Expected(
        tool_calls=(ExpectedCall("search", None, '{"query": "red shoes'),), finish_reason="length"
    ),
    # A message on an unknown channel is content.
    "harmony-malformed-header-fails-turn": Expected(reasoning="Greet.", content="hm\nHello!"),
}


def _expecting(case: Case, calls: Calls) -> Case:
    """The case as the formats define it; under ``whole`` a call that was cut is not there."""
    accept = (OTHERWISE[case.id],) if case.id in OTHERWISE else case.accept
    if calls == "whole":
        accept = tuple(
            msgspec.structs.replace(
                expected,
                tool_calls=tuple(call for call in expected.tool_calls or () if call.arguments is not None),
            )
            for expected in accept
        )
    return msgspec.structs.replace(case, accept=accept)


def test_they_are_all_here() -> None:
    assert len(CASES) == 73
    assert OTHERWISE.keys() <= {case.id for case in CASES}


@pytest.mark.parametrize("calls", ["incremental", "whole"])
@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
def test_report(case: Case, calls: Calls) -> None:
    expecting = _expecting(case, calls)
    for split in case.splits:
        outcome = run_case(case, split, calls)
        found = differences(expecting, outcome, trim=True)
        assert not found, f"{split}: {in_words(found[0])}"
        check_stream(outcome.events)
        tokens = case.given if split == "recorded" else case.tokens
        opening = msgspec.structs.replace(case.opening, calls=calls)
        check_partition(list(session_of(tokens, split, opening, case.tail, case.finish)), outcome.events)
