"""A user's own comparer and ignore rules: plain functions that say what counts as a difference."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

import pytest

from replay import Comparer, Difference, Ignore, Message, Replayer, ReplayError
from replay.result import SessionResult
from replay.verdict import MessageKind
from stages import catalog
from stages.events import CallArguments, Content, Finish, Marker
from tests.support.captures import captures
from tests.support.replay import (
    SAID,
    Change,
    Mutant,
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
from tests.support.upstream_traces import relayed

STEPS = whole(tokens(SAID))


def spoiled(kind: type, change: Change, **options: Any) -> SessionResult:
    parser = Mutant(catalog.parser("hermes"), nth(only(kind), 0, change))
    return Replayer(parser, **options).replay(record(opening(), STEPS))


def arguments(recorded: Sequence[Message], replayed: Sequence[Message]) -> Iterable[Difference]:
    """Only the arguments of calls count."""
    for one, other in zip(recorded, replayed, strict=True):
        for place, (a, b) in enumerate(zip(one.tool_calls, other.tool_calls, strict=False)):
            if a.arguments != b.arguments:
                field = f"tool_calls[{place}].arguments"
                yield Difference(one.choice, "call_arguments", field, a.arguments, b.arguments)


def in_content(item: Difference) -> bool:
    return item.field == "content"


def nothing(item: Difference) -> bool:
    return False


def everything(item: Difference) -> bool:
    return True


def test_a_comparer_decides_what_differs() -> None:
    assert spoiled(Content, one_character, compare=arguments).verdict == "same"
    result = spoiled(CallArguments, one_character, compare=arguments)
    assert result.verdict == "changed"
    assert [item.field for item in result.differences] == ["tool_calls[0].arguments"]
    assert result.first is not None
    assert result.first.worst == "call_arguments"


def test_a_comparer_is_not_asked_of_what_is_equal() -> None:
    def never(recorded: Sequence[Message], replayed: Sequence[Message]) -> Iterable[Difference]:
        raise AssertionError("asked")

    assert Replayer("hermes", compare=never).replay(record(opening(), STEPS)).verdict == "same"


def test_a_rule_leaves_differences_out() -> None:
    assert spoiled(Content, one_character, ignore=[in_content]).verdict == "same"
    assert spoiled(Content, one_character, ignore=[nothing, in_content]).verdict == "same"
    result = spoiled(CallArguments, one_character, ignore=[in_content])
    assert (result.verdict, len(result.differences)) == ("changed", 1)


def test_a_rule_leaves_out_what_a_comparer_found() -> None:
    result = spoiled(CallArguments, one_character, compare=arguments, ignore=[everything])
    assert (result.verdict, result.differences, result.first) == ("same", (), None)


@pytest.mark.parametrize("options", [{"compare": arguments}, {"ignore": [in_content]}])
def test_the_depth_is_then_the_message(options: dict[str, Any]) -> None:
    """What is left out of the message is not to come back as its bytes, its markers or its timing."""
    trace = record(opening(), STEPS)
    for parser in (
        Mutant(catalog.parser("hermes"), late(only(Content))),
        Mutant(catalog.parser("hermes"), nth(only(Marker), 0, lost)),
    ):
        result = Replayer(parser, layer="frame", **options).replay(trace)
        assert (result.verdict, result.layers) == ("same", {"message": "same"})


def test_under_splits_too() -> None:
    result = spoiled(Content, one_character, ignore=[in_content], splits=("recorded", "token"))
    assert result.splits == {"recorded": "same", "token": "same"}


def test_against_a_baseline_parser_too() -> None:
    result = spoiled(Content, one_character, ignore=[in_content], baseline="hermes")
    assert (result.verdict, result.marks) == ("same", ())


def test_of_another_servers_message() -> None:
    trace = relayed(captures()["vllm_dsv31-tool_multitoken"])
    kinds = [item.kind for item in Replayer().replay(trace).differences]
    assert kinds == ["call_arguments"]
    assert Replayer(ignore=[lambda item: item.kind == "call_arguments"]).replay(trace).layers["message"] == "same"
    shown: list[tuple[Sequence[Message], Sequence[Message]]] = []

    def names(recorded: Sequence[Message], replayed: Sequence[Message]) -> Iterable[Difference]:
        shown.append((recorded, replayed))
        mine, theirs = ([call.name for each in side for call in each.tool_calls] for side in (recorded, replayed))
        return () if mine == theirs else [Difference(0, "call_name", "tool_calls", str(mine), str(theirs))]

    assert Replayer(compare=names).replay(trace).layers["message"] == "same"
    assert {call.id for side in shown[0] for message in side for call in message.tool_calls} == {""}
    plain = Replayer("plain", compare=names).replay(trace)
    assert (plain.verdict, [item.kind for item in plain.differences]) == ("changed", ["call_name"])


def test_white_space_that_is_all_that_is_left_is_restyled() -> None:
    trace = relayed(captures()["vllm_qwen3_hermes-tool_multitoken"])
    assert Replayer().replay(trace).verdict == "restyled"
    assert Replayer(ignore=[lambda item: item.kind == "white_space"]).replay(trace).verdict == "same"


def raising(recorded: Sequence[Message], replayed: Sequence[Message]) -> Iterable[Difference]:
    yield from ()
    raise KeyError("no such field")


def not_a_difference(recorded: Any, replayed: Any) -> Any:
    return ["content"]


def of_no_kind(recorded: Any, replayed: Any) -> Any:
    return [Difference(0, cast(MessageKind, "my_kind"), "content", "a", "b")]


def nothing_to_iterate(recorded: Any, replayed: Any) -> Any:
    return None


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (raising, r"comparer \S*raising raised KeyError: 'no such field' \(test_compare.py:\d+\)"),
        (not_a_difference, r"comparer \S*not_a_difference gave a str"),
        (of_no_kind, r"comparer \S*of_no_kind gave a replay.Difference .*'my_kind'.*kind is one of call_lost, "),
        (nothing_to_iterate, r"comparer \S*nothing_to_iterate raised TypeError"),
    ],
)
def test_a_comparer_that_fails_is_named(function: Comparer, says: str) -> None:
    with pytest.raises(ReplayError, match=says):
        spoiled(Finish, lost, compare=function)


def test_a_rule_that_fails_is_named() -> None:
    def broken(item: Difference) -> bool:
        raise ValueError("what?")

    rules: list[Ignore] = [broken]
    with pytest.raises(ReplayError, match=r"ignore rule \S*broken raised ValueError: what\?"):
        spoiled(Content, one_character, ignore=rules)
