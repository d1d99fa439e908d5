"""A replay compared with what another parser makes of the same inputs today."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from replay import ReplayError
from replay.result import SessionResult
from replay.run import Replayer
from replay.verdict import DEPTHS, Depth
from stages import catalog
from stages.events import CallArguments, Content, Marker, TokensInput
from stages.stage import Stage
from store.api import Trace
from tests.support.captures import captures
from tests.support.replay import (
    SAID,
    Mutant,
    Raising,
    late,
    lost,
    nth,
    one_character,
    only,
    opening,
    record,
    tokens,
    whole,
)
from tests.support.upstream_traces import relayed, with_records

STEPS = whole(tokens(SAID))
PLAIN_TEXT = whole(tokens("High tide is at six, été 🌙."))
HERMES = catalog.parser("hermes")


def mutant(kind: type, change: Any, name: str = "mutant@1") -> Stage[Any, Any]:
    return Mutant(HERMES, nth(only(kind), 0, change), name)


def replayed(trace: Trace, parser: Any, baseline: Any, **options: Any) -> SessionResult:
    return Replayer(parser, baseline=baseline, **options).replay(trace)


def test_the_record_is_the_baseline_unless_another_is_named() -> None:
    trace = record(opening(), STEPS)
    changed = mutant(Content, one_character)
    assert Replayer(changed, baseline="recorded").replay(trace).digest == Replayer(changed).replay(trace).digest
    assert Replayer(changed).replay(trace).baseline == ""


def test_a_parser_against_itself_is_the_same_whatever_was_recorded() -> None:
    trace = record(opening(), STEPS)
    result = replayed(trace, "plain", "plain")
    assert result.verdict == "same"
    assert result.layers == dict.fromkeys(("message", "semantic", "chunk", "frame"), "same")
    assert (result.parser, result.baseline) == (catalog.parser("plain").id, catalog.parser("plain").id)
    # Both are wrong by the record.
    assert "differs" in result.marks
    assert result.marks == result.marks_before


def test_what_differs_between_the_two_is_told_layer_by_layer() -> None:
    trace = record(opening(), STEPS)
    result = replayed(trace, mutant(Content, one_character), "hermes")
    assert result.layers == dict.fromkeys(("message", "semantic", "chunk", "frame"), "changed")
    assert [(item.kind, item.field) for item in result.differences] == [("text", "content")]
    assert result.first is not None
    assert (result.first.layer, result.first.kind) == ("semantic", "text")
    # The other way round, the sides change places.
    other = replayed(trace, "hermes", mutant(Content, one_character))
    assert [(item.recorded, item.replayed) for item in other.differences] == [
        (item.replayed, item.recorded) for item in result.differences
    ]


@pytest.mark.parametrize("depth", ["message", "semantic", "chunk", "frame"])
def test_down_to_the_depth(depth: Depth) -> None:
    """A marker that is lost is seen by nobody but in the semantic layer."""
    result = replayed(record(opening(), STEPS), mutant(Marker, lost), "hermes", layer=depth)
    assert result.verdict == ("same" if depth == "message" else "changed")
    assert list(result.layers) == list(DEPTHS[: DEPTHS.index(depth) + 1])


def test_later_is_moved() -> None:
    result = replayed(record(opening(), STEPS), Mutant(HERMES, late(only(Content))), "hermes")
    assert result.verdict == "moved"
    assert set(result.lag) == {0, 1}


def test_each_side_is_told_by_the_record() -> None:
    """``differs`` is the message against the recorded one, on either side."""
    trace = record(opening(), STEPS)
    worse = mutant(Content, one_character)
    assert (replayed(trace, worse, "hermes").marks_before, replayed(trace, worse, "hermes").marks) == ((), ("differs",))
    assert (replayed(trace, "hermes", worse).marks_before, replayed(trace, "hermes", worse).marks) == (("differs",), ())


def test_a_baseline_that_fails_compares_nothing() -> None:
    result = replayed(record(opening(), STEPS), "hermes", Raising(7))
    assert result.verdict == "uncompared"
    assert result.uncompared == "the baseline failed: RuntimeError: no such state"
    # What is not there is not what was recorded, either.
    assert (result.marks_before, result.marks) == (("failed", "differs"), ())
    assert result.lag == {}
    assert result.error is None


def test_a_replay_that_fails_has_failed() -> None:
    result = replayed(record(opening(), STEPS), Raising(7), "hermes")
    assert result.verdict == "failed"
    assert (result.marks_before, result.marks) == ((), ("failed", "differs"))
    both = replayed(record(opening(), STEPS), Raising(7), Raising(5))
    assert (both.verdict, both.marks_before, both.marks) == ("failed", ("failed", "differs"), ("failed", "differs"))


def test_a_lean_session_needs_no_digests() -> None:
    trace = record(opening(), STEPS, mode="lean")
    trace.info = msgspec.structs.replace(trace.info, digests={})
    assert replayed(trace, "hermes", "hermes").verdict == "same"
    changed = replayed(trace, mutant(Content, one_character), "hermes")
    assert changed.verdict == "changed"
    # Of the record nothing is known.
    assert (changed.marks_before, changed.marks) == ((), ())


def test_a_session_that_stops_somewhere_is_ended_for_both() -> None:
    """What only came after the record stops counts as well: both sides have it."""
    trace = record(opening(), STEPS[:30], state="torn")
    assert replayed(trace, "hermes", "hermes").verdict == "same"
    assert replayed(trace, "plain", "hermes").verdict == "changed"


def test_a_relayed_session_is_compared_to_its_semantic_layer() -> None:
    trace = relayed(captures()["vllm_dsv31-tool_multitoken"])
    result = replayed(trace, "deepseek_v31", "deepseek_v31")
    assert (result.verdict, result.layers) == ("same", {"message": "same", "semantic": "same"})
    other = replayed(trace, "plain", "deepseek_v31")
    assert [item.kind for item in other.differences] == ["call_lost", "marker_leaked", "finish_reason"]


def test_a_relayed_session_whose_text_is_not_known_is_not_compared() -> None:
    trace = relayed(captures()["vllm_dsv31-tool_multitoken"], pieces=False)
    untold = [
        msgspec.structs.replace(one, event=msgspec.structs.replace(one.event, text=""))
        if isinstance(one.event, TokensInput)
        else one
        for one in trace.records["input", "engine"]
    ]
    trace = with_records(trace, "input", "engine", untold)
    result = replayed(trace, "plain", "deepseek_v31")
    assert result.verdict == "uncompared"
    assert "bytes of its tokens are not known" in result.uncompared


def test_under_splits_each_side_is_held_to_itself() -> None:
    """The baseline's own dependence on the split is its mark, the replay's is the replay's."""
    trace = record(opening(), STEPS)

    def first_argument(event: Any) -> Any:
        return [msgspec.structs.replace(event, text=event.text[:1])]

    depends = Mutant(HERMES, nth(only(CallArguments), 0, first_argument), "depends@1")
    result = replayed(trace, "hermes", depends, splits=("recorded", "one", "token"))
    assert "split" in result.marks_before
    assert "split" not in result.marks
    assert set(result.splits) == {"recorded", "one", "token"}
    other = replayed(trace, depends, "hermes", splits=("recorded", "one", "token"))
    assert "split" in other.marks
    assert "split" not in other.marks_before


def test_a_baseline_and_a_track_are_one_too_many() -> None:
    with pytest.raises(ReplayError, match="compared with one of them"):
        Replayer("hermes", baseline="plain", track="upstream")
    with pytest.raises(ReplayError, match="no parser 'hermies'"):
        Replayer("hermes", baseline="hermies")


def test_the_baseline_is_in_the_digest() -> None:
    trace = record(opening(), PLAIN_TEXT)
    digests = {replayed(trace, "hermes", base).digest for base in ("hermes", "plain")}
    digests.add(Replayer("hermes").replay(trace).digest)
    assert len(digests) == 3
    assert {replayed(trace, "hermes", "plain").digest for _ in range(2)} <= digests
