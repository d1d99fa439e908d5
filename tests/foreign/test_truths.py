"""The list of what is known to be lost (``tests.peers.truths``), without the engines that lose it."""

from __future__ import annotations

import pytest

from stages.events import FinishInput, TokensInput
from tests.peers.truths import TRUTHS, Said, Truth, inputs_of, lines
from tests.support.captures import kept


def test_all_22_kinds_of_loss_are_there_with_sessions_that_are_here() -> None:
    assert {truth.number for truth in TRUTHS} == set(range(1, 23))
    assert {truth.capture for truth in TRUTHS} <= kept()
    assert {truth.parser.partition(":")[0] for truth in TRUTHS} == {"vllm", "sglang", "template"}


def test_what_is_lost_is_something() -> None:
    """Either path differs from the other, or from what the model wrote: told in words only where both agree."""
    agreeing = [truth for truth in TRUTHS if truth.streamed == truth.at_once]
    assert {truth.number for truth in agreeing} == {5, 6, 12}


def test_a_session_ends_where_it_is_cut() -> None:
    (truth,) = [truth for truth in TRUTHS if truth.number == 11]
    inputs = inputs_of(truth)
    wrote = b"".join(piece for event in inputs if isinstance(event, TokensInput) for piece in event.pieces)
    assert wrote == b"<tool_call>\n<function=get"
    assert [event.reason for event in inputs if isinstance(event, FinishInput)] == ["length"]


@pytest.mark.parametrize("right", [True, False])
def test_expected_and_found_are_told_side_by_side(right: bool) -> None:
    def tell(truth: Truth) -> tuple[Said, Said]:
        return truth.streamed if right else Said(content="else"), truth.at_once or Said()

    told = list(lines(tell, ["template"]))
    assert all(fine for _, fine in told) is right
    assert ("   at once: expected ValueError; found the same", True) in told
    found = "the same" if right else "content 'else'"
    assert (f"   streamed: expected nothing; found {found}", right) in told
