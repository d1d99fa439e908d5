"""Splits group tokens and never cut one; a parser's message does not depend on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay.derive import derive
from replay.errors import BadSplit
from replay.run import Replayer
from replay.split import joined_as, joins, parse_splits, pieces, regroup
from stages import catalog
from stages.events import Content, Input, Semantic, Tick, TokenLogprob, TokensInput
from stages.message import Message, collect
from stages.opening import Opening, TokenizerFacts
from stages.stage import Machine, fold
from store.api import Trace
from tests.support.format_checks import generated
from tests.support.generate import families
from tests.support.generate.family import Family
from tests.support.numbers import splitmix
from tests.support.parse import grouped, session
from tests.support.replay import (
    ADDED,
    SAID,
    VOCABULARY,
    aborted,
    opening,
    record,
    recorded,
    text_steps,
    tokens,
    whole,
)

SPLITS = (
    "one", "token", "marker", "rand:1:7", "rand:2:3", "rand:3:40", "spec:1:4", "spec:2:1", "interval:1", "interval:5",
    "slow:1", "histogram:1", "held:3",
)  # fmt: skip
GROUPING = tuple(split for split in SPLITS if not split.startswith("held:"))
"""Those that only group."""


def steps(inputs: Sequence[Input], choice: int = 0) -> list[TokensInput]:
    return [event for event in inputs if isinstance(event, TokensInput) and event.choice == choice]


def ids(inputs: Sequence[Input], choice: int = 0) -> list[tuple[int, ...]]:
    return [event.ids for event in steps(inputs, choice)]


def flat(inputs: Sequence[Input], choice: int = 0) -> list[tuple[int, bytes]]:
    return [pair for event in steps(inputs, choice) for pair in zip(event.ids, event.pieces, strict=True)]


def test_one_joins_all_tokens_of_a_run() -> None:
    inputs = whole(tokens("Hello there"))
    made = regroup(inputs, "one", VOCABULARY)
    assert ids(made) == [tuple(id for group in ids(inputs) for id in group)]
    assert steps(made)[0].pieces == tuple(piece for event in steps(inputs) for piece in event.pieces)
    assert steps(made)[0].text == "Hello there"
    assert [event for event in made if not isinstance(event, TokensInput)] == [
        event for event in inputs if not isinstance(event, TokensInput)
    ]


def test_token_takes_a_step_apart() -> None:
    step = TokensInput(0, (7, 8, 9), ("é".encode()[:1], "é".encode()[1:] + b"a", b"b"), "éab")
    assert regroup([step], "token", VOCABULARY) == [
        TokensInput(0, (7,), (b"\xc3",), ""),
        TokensInput(0, (8,), (b"\xa9a",), "éa"),
        TokensInput(0, (9,), (b"b",), "b"),
    ]


def test_text_that_belongs_to_no_single_token_comes_with_the_last() -> None:
    assert regroup([TokensInput(0, (7, 8), (), "ab")], "token", VOCABULARY) == [
        TokensInput(0, (7,), (), ""),
        TokensInput(0, (8,), (), "ab"),
    ]


def test_marker_gives_each_special_or_added_token_a_step_of_its_own() -> None:
    inputs = [
        TokensInput(0, (1, 302, 2, 3), (b"a", b"<think>", b"b", b"c"), "a<think>bc"),
        TokensInput(0, (4, 303), (b"d", b"</think>"), "d</think>"),
    ]
    assert ids(regroup(inputs, "marker", VOCABULARY)) == [(1,), (302,), (2, 3, 4), (303,)]


def test_rand_is_the_same_everywhere() -> None:
    """SplitMix64 with the published constants, so these numbers never change."""
    inputs = [TokensInput(0, (id,), (b"x",), "x") for id in range(24)]
    assert [len(group) for group in ids(regroup(inputs, "rand:1:5", VOCABULARY))] == SIZES
    assert regroup(inputs, "rand:1:1", VOCABULARY) == inputs
    assert regroup(inputs, "rand:2:5", VOCABULARY) != regroup(inputs, "rand:1:5", VOCABULARY)


def expected_sizes(seed: int, largest: int, count: int) -> list[int]:
    made: list[int] = []
    for number in splitmix(seed * 0x9E3779B97F4A7C15 % 2**64):
        size = min(1 + number % largest, count - sum(made))
        if size:
            made.append(size)
    return made


SIZES = expected_sizes(1, 5, 24)


def test_other_inputs_separate_what_is_grouped() -> None:
    a, b = TokensInput(0, (1,), (b"a",), "a"), TokensInput(0, (2,), (b"b",), "b")
    assert regroup([a, Tick(), b], "one", VOCABULARY) == [a, Tick(), b]


def test_choices_are_grouped_apart_each_at_its_last_token() -> None:
    made = [TokensInput(choice, (number,), (b"x",), "x") for number, choice in enumerate((0, 1, 0, 1, 1))]
    grouped = regroup(made, "one", VOCABULARY)
    assert [(event.choice, event.ids) for event in grouped if isinstance(event, TokensInput)] == [
        (0, (0, 2)),
        (1, (1, 3, 4)),
    ]


def test_char_cuts_text_that_has_no_ids() -> None:
    assert regroup([TokensInput(0, (), (), "aé"), TokensInput(0, (), (), "")], "char", VOCABULARY) == [
        TokensInput(0, (), (), "a"),
        TokensInput(0, (), (), "é"),
        TokensInput(0, (), (), ""),
    ]
    with pytest.raises(BadSplit, match="have ids"):
        regroup(whole(tokens("abc")), "char", VOCABULARY)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), max_size=30), st.sampled_from(SPLITS))
def test_no_split_loses_reorders_or_cuts_a_token(shape: list[tuple[int, int]], split: str) -> None:
    inputs: list[Input] = []
    number = 0
    for choice, size in shape:
        made = range(number, number + size)
        number += size
        inputs.append(TokensInput(choice, tuple(made), tuple(b"%d" % id for id in made), "".join(map(str, made))))
        if size == 4:
            inputs.append(Tick())
    grouped = regroup(inputs, split, VOCABULARY)
    for choice in range(3):
        assert flat(grouped, choice) == flat(inputs, choice)
        assert "".join(event.text for event in steps(grouped, choice)) == "".join(
            event.text for event in steps(inputs, choice)
        )
        if split in GROUPING:
            assert steps(regroup(grouped, "token", VOCABULARY), choice) == steps(
                regroup(inputs, "token", VOCABULARY), choice
            )


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), max_size=30), st.sampled_from(["recorded", *GROUPING]))
def test_what_a_split_joins_makes_the_split(shape: list[tuple[int, int]], split: str) -> None:
    inputs: list[Input] = []
    for number, (choice, size) in enumerate(shape):
        made = range(number * 4, number * 4 + size)
        entries = tuple(TokenLogprob(id, b"x", -1.0) for id in made)
        inputs.append(TokensInput(choice, tuple(made), (b"x",) * size, "x" * size, entries))
        inputs += [Tick()] if size == 4 else []
    grouped = regroup(inputs, split, VOCABULARY)
    assert joined_as(inputs, joins(inputs, split, VOCABULARY)) == grouped
    for choice in range(3):
        assert [entry.id for event in steps(grouped, choice) for entry in event.logprobs] == [
            id for event in steps(inputs, choice) for id in event.ids
        ]


def test_what_is_no_split() -> None:
    assert parse_splits("recorded, one,rand:1:7,one") == ("recorded", "one", "rand:1:7")
    known = ("spec:0:3", "interval:1", "slow:7", "histogram:12", "held:2")
    assert parse_splits(",".join(known)) == known
    wrong = (
        "words", "rand", "rand:1:0", "rand:x:2", "", "one,,token", "spec:1", "spec:1:0", "interval", "interval:0",
        "slow", "slow:-1", "slow:1:2", "histogram", "held:0", "one_shot", "one:1", "rand:1:2\n3",
    )  # fmt: skip
    for text in wrong:
        with pytest.raises(BadSplit, match="there is no split"):
            parse_splits(text)
    with pytest.raises(BadSplit):
        Replayer(splits=("words",))


def test_text_is_cut_at_markers() -> None:
    assert pieces("So: <tool_call>\n{}</tool_call>!", TokenizerFacts(added=ADDED)) == [
        "So: ",
        "<tool_call>",
        "\n{}",
        "</tool_call>",
        "!",
    ]
    assert pieces("abcdef<|im_end|>") == ["abcd", "ef", "<|im_end|>"]


# --- replay under splits --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 3, 5])
def test_hermes_says_the_same_under_every_split(size: int) -> None:
    trace = record(opening(n=2), whole(tokens(SAID, size=size), tokens("Zwölf Boxkämpfer 🥊 jagen.", 1, size=size)))
    result = Replayer(splits=("recorded", *SPLITS)).replay(trace)
    assert result.splits == dict.fromkeys(("recorded", *SPLITS), "same")
    assert result.verdict == "same"
    message = collect(trace.events("served", "semantic"))[0]
    assert message.reasoning is not None and message.reasoning.strip() == "Which port? Brest … 潮汐 🌊."
    assert message.content is not None and message.content.strip() == "Let me look that up, été 🌙."
    assert [call.name for call in message.tool_calls] == ["tide", "moon"]
    assert [msgspec.json.decode(call.arguments) for call in message.tool_calls] == [{"port": "Brest … 潮汐"}, {}]


@pytest.mark.parametrize("family", families(), ids=lambda family: family.name)
def test_every_parser_says_the_same_under_every_split(family: Family) -> None:
    subject, _ = generated(family, 1)
    opened = subject.opened("incremental")
    inputs = session(grouped(subject.pieces(), [1] * len(subject.pieces())), tail=subject.tail)
    stage = subject.stage("incremental")

    def says(split: str) -> list[Message]:
        return collect(fold(stage.start(opened), regroup(inputs, split, opened.tokenizer, ((1, 3), (4, 1)))))

    token = says("token")
    assert {split: says(split) for split in SPLITS} == dict.fromkeys(SPLITS, token)


def test_hermes_says_the_same_where_there_are_no_ids() -> None:
    trace = record(opening(tokenizer=TokenizerFacts()), whole(text_steps(SAID)))
    result = Replayer(splits=("recorded", "char", *SPLITS)).replay(trace)
    assert set(result.splits.values()) == {"same"}
    assert not result.notes


def test_an_aborted_session_under_splits() -> None:
    trace = record(opening(), aborted(whole(tokens(SAID)), 40), state="aborted")
    assert set(Replayer(splits=SPLITS).replay(trace).splits.values()) == {"same"}


def test_a_torn_session_under_splits() -> None:
    trace = record(opening(), whole(tokens(SAID))[:40], state="torn")
    assert set(Replayer(splits=("recorded", *SPLITS)).replay(trace).splits.values()) == {"same"}


def test_a_split_that_does_not_apply_is_noted_and_decides_nothing() -> None:
    result = Replayer(splits=("recorded", "char")).replay(record(opening(), whole(tokens(SAID))))
    assert result.verdict == "same"
    assert list(result.splits) == ["recorded"]
    assert result.not_compared == ("char",)
    assert any(note.startswith("not compared: split 'char'") for note in result.notes)
    assert Replayer(splits=("char",)).replay(record(opening(), whole(tokens(SAID)))).verdict == "uncompared"


class Forgetful:
    """A parser that depends on the split: of each step it sees only the first token."""

    id = "forgetful@1"

    def start(self, opening: Opening) -> Machine[Input, Semantic]:
        return _Forgetful(opening)

    def resume(self, opening: Opening, snapshot: Any) -> Machine[Input, Semantic]:
        return _Forgetful(opening)


class _Forgetful:
    def __init__(self, opening: Opening) -> None:
        self.at = 0

    def step(self, event: Input, out: list[Semantic]) -> None:
        if isinstance(event, TokensInput):
            out.append(Content(event.choice, event.pieces[0].decode("utf-8", "replace"), (self.at, self.at + 1)))
            self.at += 1

    def snapshot(self) -> msgspec.Struct:
        return Tick()


def test_a_parser_that_depends_on_the_split_is_found() -> None:
    opened = opening()
    inputs = whole(tokens("Hello there"))
    trace: Trace = record(opened, inputs, assemble=lambda session, parser: _layers(session))
    result = Replayer(Forgetful(), splits=("recorded", "token", "one")).replay(trace)
    assert result.splits == {"recorded": "same", "token": "same", "one": "changed"}
    assert result.verdict == "changed"
    assert result.first is not None
    assert (result.first.split, result.first.kind) == ("one", "text")
    assert result.first.detail == "content: 'Hello there' → 'Hel'"
    assert result.split_groups == (("recorded", "token"), ("one",))
    assert "depends on the split: one message under `recorded`, `token`, another under `one`" in result.notes


def test_a_changed_parser_that_does_not_depend_on_the_split_is_told_apart() -> None:
    trace = record(opening(), whole(tokens("Hello there")))
    changed = Replayer("examples/modified_parser.py:Parser", splits=("recorded", "token", "one")).replay(trace)
    assert changed.splits == dict.fromkeys(("recorded", "token", "one"), "changed")
    assert changed.split_groups == ()
    assert "does not depend on the split: the same under `recorded`, `token`, `one`" in changed.notes
    # One that depends on it is found, though each split differs from what was recorded.
    bad = Replayer(Forgetful(), splits=("token", "one")).replay(record(opening(), whole(tokens(SAID))))
    assert bad.splits == {"token": "changed", "one": "changed"}
    assert bad.split_groups == (("recorded", "token"), ("one",))
    # Even where the asked split hides it.
    steps = whole([TokensInput(0, (1, 2), (b"Hel", b"lo"), "Hello")])
    apart = derive(opening(), regroup(steps, "token", VOCABULARY), Forgetful())
    hidden = Replayer(Forgetful(), splits=("token",)).replay(recorded(opening(), steps, apart))
    assert (hidden.verdict, hidden.splits) == ("changed", {"token": "same"})
    assert hidden.split_groups == (("recorded",), ("token",))


def _layers(session: Opening) -> Any:
    return catalog.layers(session, Forgetful())
