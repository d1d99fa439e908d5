"""Rules of the protocol that a replay breaks and the record did not, or the other way round."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import pytest

from replay import rules_of
from replay.derive import Derived
from replay.result import SessionResult
from replay.run import Replayer
from replay.verdict import Depth
from stages.events import Block, Comment
from tests.support.replay import SAID, nth, only, opening, record, spoiled, tokens, whole

STEPS = whole(tokens(SAID))


def no_json(event: Any) -> Iterable[Any]:
    """A block that is not JSON: rule 27."""
    return [Block(b"data: {\n\n")]


def replayed(change: Callable[[Any], Iterable[Any]], **options: Any) -> SessionResult:
    stages = spoiled("frame", nth(only(Block), 3, change))
    return Replayer(assemble=stages, **options).replay(record(opening(), STEPS))


def test_a_rule_that_the_replay_breaks_appears() -> None:
    result = replayed(no_json)
    assert result.verdict == "changed"
    assert any(rule.startswith("INV-") for rule in result.rules_appeared)
    assert result.rules_gone == ()
    assert "rule" in result.marks
    assert "rule" not in result.marks_before


def test_a_rule_that_the_record_broke_is_gone() -> None:
    trace = record(opening(), STEPS, assemble=spoiled("frame", nth(only(Block), 3, no_json)))
    result = Replayer().replay(trace)
    assert result.rules_gone == replayed(no_json).rules_appeared
    assert result.rules_appeared == ()
    assert ("rule" in result.marks_before, "rule" in result.marks) == (True, False)


def test_the_same_frames_break_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then nothing is judged: what is known of the record holds."""

    def never(*given: Any) -> dict[str, int]:
        raise AssertionError("judged")

    monkeypatch.setattr(rules_of.Judge, "broken", never)
    trace = record(opening(), STEPS)
    assert Replayer().replay(trace).rules_appeared == ()
    trace.info = msgspec.structs.replace(trace.info, validated=True, rules={"INV-044": 2})
    result = Replayer().replay(trace)
    assert (result.rules_appeared, result.rules_gone) == ((), ())
    assert result.marks == result.marks_before == ("rule",)


def commented(event: Any) -> Iterable[Any]:
    """A comment behind the block, which breaks no rule."""
    return [event, Comment(b": so\n\n")]


@pytest.mark.parametrize(
    ("validated", "change", "judged"), [(True, commented, 1), (True, no_json, 2), (False, commented, 2)]
)
def test_a_clean_record_is_judged_again_only_beside_a_replay_that_is_not(
    validated: bool, change: Callable[[Any], Iterable[Any]], judged: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rule that was added since must not appear with every replay."""
    seen: list[dict[str, int]] = []
    real = rules_of.Judge.broken

    def broken(judge: rules_of.Judge, derived: Derived) -> dict[str, int]:
        seen.append(real(judge, derived))
        return seen[-1]

    monkeypatch.setattr(rules_of.Judge, "broken", broken)
    trace = record(opening(), STEPS)
    trace.info = msgspec.structs.replace(trace.info, validated=validated)
    result = Replayer(assemble=spoiled("frame", nth(only(Block), 3, change))).replay(trace)
    assert result.verdict == "changed"
    assert len(seen) == judged
    assert bool(result.rules_appeared) == ("rule" in result.marks) == (change is no_json)
    assert (result.rules_gone, "rule" in result.marks_before) == ((), False)


@pytest.mark.parametrize("depth", ["message", "semantic", "chunk"])
def test_only_frames_are_judged(depth: Depth) -> None:
    assert replayed(no_json, layer=depth).rules_appeared == ()


def test_what_is_more_often_appeared_as_often_as_it_is_more() -> None:
    before, after = {"INV-027": 1, "INV-030": 2}, {"INV-027": 3, "INV-031": 1}
    assert rules_of.appeared(before, after) == ("INV-027", "INV-027", "INV-031")
    assert rules_of.appeared(after, before) == ("INV-030", "INV-030")


def test_a_session_that_stops_somewhere_is_not_judged() -> None:
    trace = record(opening(), STEPS[:30], state="torn", assemble=spoiled("frame", nth(only(Block), 3, no_json)))
    result = Replayer().replay(trace)
    assert (result.verdict, result.rules_gone) == ("changed", ())


def test_what_are_no_frames_is_not_judged() -> None:
    """A user's framer may give anything."""
    result = replayed(lambda event: ["no frame"])
    assert result.verdict == "changed"
    assert result.rules_appeared == ()


def test_against_a_baseline_parser() -> None:
    stages = spoiled("frame", nth(only(Block), 3, no_json))
    trace = record(opening(), STEPS)
    # Both sides go through the broken framer: nothing appears, and the frames are the same.
    result = Replayer("hermes", baseline="hermes", assemble=stages).replay(trace)
    assert (result.verdict, result.rules_appeared) == ("same", ())
