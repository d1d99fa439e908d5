"""Of two splits with different messages, the smallest pair is found: where it is known by construction, that one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replay import pair
from replay.derive import Track, run
from replay.pair import apart
from replay.result import Finding, SplitPair
from replay.run import Replayer
from replay.split import joined_as, joins, regroup
from stages import catalog
from stages.events import Content, FinishInput, Input, PromptInput, Semantic, TokensInput, UsageInput
from stages.message import Message, ToolCall
from stages.opening import Opening
from stages.stage import Machine
from tests.support.replay import ADDED, CALLS, SAID, THINKING, VOCABULARY, opening, record, text_steps, tokens, whole
from tests.support.spoiled import Spoiled, found_under, kept, session_of

OPENER, CLOSER = ADDED["<tool_call>"], ADDED["</tool_call>"]


def loses_text_before_an_opener(event: TokensInput) -> TokensInput:
    """What stands before the opener of a call in its step is lost."""
    return kept(event, range(event.ids.index(OPENER), len(event.ids))) if OPENER in event.ids else event


def sees_one_closer(event: TokensInput) -> TokensInput:
    """Of all between two closers in one step, only the last closer is seen."""
    places = [at for at, number in enumerate(event.ids) if number == CLOSER]
    if len(places) < 2:
        return event
    return kept(event, [*range(places[0]), *range(places[-1], len(event.ids))])


def loses_the_last_of_many(event: TokensInput) -> TokensInput:
    """The last token of a step of more than four."""
    return kept(event, range(len(event.ids) - 1)) if len(event.ids) > 4 else event


def places(inputs: Sequence[Input], number: int) -> list[int]:
    """Where a token is, counted in tokens."""
    own = [event for event in inputs if isinstance(event, TokensInput)]
    return [at for at, event in enumerate(own) if event.ids == (number,)]


def pair_of(found: Finding) -> SplitPair:
    assert found.split_pair is not None, found
    return found.split_pair


# --- what is known by construction ------------------------------------------------------------------------------------


@pytest.mark.parametrize("split", ["one", "rand:1:9", "spec:3:5", "interval:4", "histogram:1", "marker"])
def test_text_that_shares_a_step_with_an_opener(split: str) -> None:
    inputs = whole(tokens("Let me look" + CALLS))
    if split == "histogram:1":
        inputs = regroup(inputs, "rand:1:9", VOCABULARY)
    found = found_under(Spoiled(loses_text_before_an_opener), inputs, "recorded", "token", split)
    if split == "marker":  # there, each marker is alone
        assert (found.split_groups, found.split_pair, found.breaches) == ((), None, ())
        return
    got = pair_of(found)
    # The opener, and the token before it; what is before the second one is a newline, which is trimmed anyway.
    at = places(regroup(inputs, "token", VOCABULARY), OPENER)[0]
    assert (got.choice, got.groups, got.other) == (0, (), ((at - 1, at + 1),))
    assert 0 < got.runs < 40


def test_the_only_place_of_many() -> None:
    """One opener in a long session: of hundreds of joined tokens, the one that matters."""
    inputs = whole(tokens("Long prose. " * 60 + "So" + CALLS.partition("\n<tool_call>")[0]))
    (at,) = places(inputs, OPENER)
    found = found_under(Spoiled(loses_text_before_an_opener), inputs, "recorded", "one")
    got = pair_of(found)
    assert (got.groups, got.other) == ((), ((at - 1, at + 1),))
    assert got.runs <= 2 + 2 * 9 + 4
    assert found.splits == {"recorded": "same", "one": "same"}
    assert found.split_groups == (("recorded",), ("one",))
    assert got.shown == (
        "… | 'g p' | 'ros' | 'e. ' | 'So' | '<tool_call>' | '\\n{\"' | 'nam' | 'e\":' …",
        "… | 'g p' | 'ros' | 'e. ' | 'So' '<tool_call>' | '\\n{\"' | 'nam' | 'e\":' …",
    )
    (breach,) = found.breaches
    assert (breach.oracle, breach.choice, breach.split) == ("split", 0, "one")
    assert breach.step == at  # the prompt is input 0, so token at - 1 is input at
    assert "'So' '<tool_call>'" in breach.detail and "content: " in breach.detail
    assert [item.field for item in got.differences] == ["content"]
    assert "depends on the split: one message under `recorded`, another under `one`" in found.notes


def test_two_closers_in_one_step() -> None:
    inputs = whole(tokens(SAID))
    first, second = places(inputs, CLOSER)
    found = found_under(Spoiled(sees_one_closer), inputs, "recorded", "token", "one")
    got = pair_of(found)
    assert (got.groups, got.other) == ((), ((first, second + 1),))
    assert got.differences[0].kind == "call_lost"


@pytest.mark.parametrize("split", ["one", "rand:1:9", "rand:3:40", "spec:1:6"])
def test_the_last_of_five_tokens(split: str) -> None:
    # The last token of all is an end that nobody misses, were it lost.
    inputs = whole(tokens(SAID + " And now for something else."))
    got = pair_of(found_under(Spoiled(loses_the_last_of_many), inputs, "recorded", split))
    ((first, end),) = got.other
    assert (got.groups, end - first) == ((), 5)
    one_by_one, joined = got.shown
    assert one_by_one.replace(" | ", " ") == joined.replace(" | ", " ")


def test_the_recorded_grouping_may_be_the_one_that_is_wrong() -> None:
    """``token`` and ``one`` agree; the record's own steps do not."""
    body = tokens("Let me look" + CALLS.partition("\n<tool_call>")[0])
    (at,) = places(body, OPENER)
    inputs = joined_as(whole(body), {0: {at - 1, at}})

    def change(event: TokensInput) -> TokensInput:
        return loses_text_before_an_opener(event) if len(event.ids) < 6 else event

    found = found_under(Spoiled(change), inputs, "recorded", "token", "one")
    assert found.split_groups == (("recorded",), ("token", "one"))
    got = pair_of(found)
    assert (got.groups, got.other) == ((), ((at - 1, at + 1),))
    assert found.breaches[0].split == "recorded"
    # The split ``token`` is run for it where nobody asked.
    assert pair_of(found_under(Spoiled(change), inputs, "recorded", "one")).other == got.other


def test_a_parser_that_fails_token_by_token() -> None:
    """Then the two that differ are both ends of the way."""

    def change(event: TokensInput) -> TokensInput:
        if len(event.ids) == 1:
            raise ValueError("one token only")
        return loses_text_before_an_opener(event)

    body = tokens("Let me look" + CALLS.partition("\n<tool_call>")[0])
    body = body[: len(body) - len(body) % 2]
    (at,) = places(body, OPENER)
    assert at % 2 == 0  # so it begins its pair
    pairs = {first + 1 for first in range(0, len(body), 2)}
    inputs = joined_as(whole(body), {0: pairs})
    found = found_under(Spoiled(change), inputs, "recorded", "one", "token")
    assert found.splits["token"] == "failed"
    got = pair_of(found)
    assert got.groups == tuple((first, first + 2) for first in range(0, len(body), 2))
    # The only other join: the opener's pair, and the pair before it.
    assert set(got.other) - set(got.groups) == {(at - 2, at + 2)}


def test_each_choice_is_searched_for_itself() -> None:
    """Only choice 1 depends on the split; choice 0 stays as it is."""

    def change(event: TokensInput) -> TokensInput:
        return loses_the_last_of_many(event) if event.choice == 1 else event

    inputs = whole(tokens(SAID), tokens("Nothing to call, only some words to say.", 1))
    got = pair_of(found_under(Spoiled(change), inputs, "recorded", "rand:1:9", opened=opening(n=2)))
    ((first, end),) = got.other
    assert (got.choice, got.groups, end - first) == (1, (), 5)


class FirstCharacter:
    """A parser of text that says the first character of each step: a bug with ``char`` as its innocent end."""

    id = "first@1"

    def start(self, opening: Opening) -> Machine[Input, Semantic]:
        return _First()

    def resume(self, opening: Opening, snapshot: Any) -> Machine[Input, Semantic]:
        return _First()


class _First:
    def step(self, event: Input, out: list[Semantic]) -> None:
        if isinstance(event, TokensInput):
            out.append(Content(event.choice, event.text[:3], (0, 0)))

    def snapshot(self) -> msgspec.Struct:
        return UsageInput(0, 0)


def test_characters_where_tokens_agree() -> None:
    inputs: list[Input] = [PromptInput((), "", 1), *text_steps("abcdefgh"), FinishInput(0, "eos"), UsageInput(1, 2)]
    got = pair_of(found_under(FirstCharacter(), inputs, "recorded", "token", "char"))
    assert (got.groups, got.other) == ((), ((0, 4),))
    assert got.shown[1].startswith("'a' 'b' 'c' 'd' | 'e'")


def test_text_that_comes_late_is_no_matter_of_groups() -> None:
    """Only the time of the text differs: the breach is told without a pair."""
    inputs: list[Input] = [PromptInput((), "", 1), *text_steps("abcdefgh", 2), FinishInput(0, "eos"), UsageInput(1, 2)]
    found = found_under(FirstCharacter(), inputs, "recorded", "token", "held:1")
    assert found.split_pair is None
    assert [(breach.oracle, breach.split) for breach in found.breaches] == [("split", "held:1")]


class Joining:
    """A parser that goes wrong by what tokens came in one step with the one before them."""

    id = "joining@1"

    def __init__(self, wrong: Callable[[set[int]], bool]) -> None:
        self.wrong = wrong

    def start(self, opening: Opening) -> Machine[Input, Semantic]:
        return _Joining(self.wrong)

    def resume(self, opening: Opening, snapshot: Any) -> Machine[Input, Semantic]:
        raise NotImplementedError


class _Joining:
    def __init__(self, wrong: Callable[[set[int]], bool]) -> None:
        self.wrong = wrong
        self.at = 0
        self.joined: set[int] = set()

    def step(self, event: Input, out: list[Semantic]) -> None:
        if isinstance(event, TokensInput):
            self.joined.update(range(self.at + 1, self.at + len(event.ids)))
            self.at += len(event.ids)
        if isinstance(event, FinishInput):
            out.append(Content(0, "wrong" if self.wrong(self.joined) else "right", (0, 0)))

    def snapshot(self) -> msgspec.Struct:
        raise NotImplementedError


def test_the_search_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what is not found to be smaller within the budget, the best is told, and that it may not be the smallest."""
    many = Joining(lambda joined: len(joined) >= 60)
    inputs = whole(tokens("x" * 600))
    assert len(joins(inputs, "one", VOCABULARY)[0]) == 199
    whole_way = pair_of(found_under(many, inputs, "recorded", "rand:1:9"))
    assert sum(end - first - 1 for first, end in whole_way.other) == 60
    monkeypatch.setattr(pair, "RUNS", 30)
    found = found_under(many, inputs, "recorded", "rand:1:9")
    got = pair_of(found)
    assert got.runs == 30
    assert sum(end - first - 1 for first, end in got.other) >= 60
    assert "the pair of splits may not be the smallest: the search ended after 30 replays" in found.notes


@settings(max_examples=25)
@given(
    st.lists(st.sets(st.integers(1, 39), min_size=1, max_size=4), min_size=1, max_size=3),
    st.sampled_from(["one", "rand:1:9", "rand:2:30", "spec:1:6"]),
)
def test_undoing_any_join_makes_both_messages_equal(causes: list[set[int]], split: str) -> None:
    """Whatever sets of joins a parser stumbles over, the pair is one of those sets, and nothing more."""
    parser = Joining(lambda joined: any(cause <= joined for cause in causes))
    inputs = whole(tokens("x" * 120))
    found = found_under(parser, inputs, "recorded", split)
    if not any(cause <= joins(inputs, split, VOCABULARY)[0] for cause in causes):
        assert found.split_pair is None and not found.breaches
        return
    got = pair_of(found)
    merged = frozenset(at for first, end in got.other for at in range(first + 1, end))
    assert set(merged) in causes
    session = session_of(parser, inputs)

    def says(joined: frozenset[int]) -> Track:
        grouped = joined_as(inputs, {0: joined})
        track, failed = run(session.layers.semantic, "semantic", session.opening, grouped, range(len(grouped)))
        assert failed is None
        return track

    alone = says(frozenset())
    assert apart(session, alone, says(merged)) == got.differences
    assert [at for at in merged if apart(session, alone, says(merged - {at}))] == []


# --- in a result ------------------------------------------------------------------------------------------------------


def test_a_replay_tells_the_pair() -> None:
    trace = record(opening(), whole(tokens("Let me look" + CALLS)))
    result = Replayer(Spoiled(loses_text_before_an_opener), splits=("recorded", "token", "one")).replay(trace)
    assert (result.verdict, result.split_groups) == ("changed", (("recorded", "token"), ("one",)))
    assert result.split_pair is not None
    assert "split" in result.marks
    right = Replayer(splits=("recorded", "token", "one", "spec:1:4", "slow:1", "interval:5", "held:3")).replay(trace)
    assert (right.verdict, right.split_pair, right.breaches) == ("same", None, ())


class AtOnce(Spoiled):
    """Another engine's parser, whose one-shot path says what it is told to."""

    foreign = True

    def __init__(self, says: list[Message]) -> None:
        super().__init__()
        self.one_shot: list[Message] | None = None
        self.says = says

    def prepared(self, opening: Opening, events: Sequence[Input]) -> AtOnce:
        made = AtOnce(self.says)
        made.one_shot = self.says
        return made


ARGUMENTS = '{"port": "Brest … 潮汐"}'
SPELLED = '{"port":"Brest … 潮汐"}'


@pytest.mark.parametrize(
    "content,arguments,verdict,groups",
    [
        ("Let me look.", ARGUMENTS, "same", ()),
        ("Let me look.\n", SPELLED, "restyled", ()),
        ("Let me", ARGUMENTS, "changed", (("recorded",), ("one_shot",))),
        ("Let me look.", '{"port": "Brest"}', "changed", (("recorded",), ("one_shot",))),
    ],
)
def test_streaming_against_one_shot(content: str, arguments: str, verdict: str, groups: Any) -> None:
    """Its ids are its own; white space, and how JSON is written, are a matter of style."""
    said = "Let me look." + CALLS.partition("\n<tool_call>")[0]
    at_once = Message(
        0, content=content, tool_calls=(ToolCall("other", "tide", arguments),), finish_reason="tool_calls"
    )
    trace = record(opening(), whole(tokens(said)))
    result = Replayer(AtOnce([at_once]), layer="message").replay(trace)
    assert result.splits == {"recorded": "same", "one_shot": verdict}
    assert result.split_groups == groups
    assert result.verdict == verdict
    assert [breach.oracle for breach in result.breaches] == (["one_shot"] if groups else [])
    assert result.split_pair is None
    if groups:
        assert any(note.startswith("streaming and one-shot differ: ") for note in result.notes)
        assert "one_shot" in result.marks


def test_one_shot_is_no_split_to_ask_for() -> None:
    trace = record(opening(), whole(tokens(THINKING + "Hello there")))
    result = Replayer(splits=("recorded", "one")).replay(trace)
    assert "one_shot" not in result.splits
    assert catalog.parser("hermes").id == result.parser
