"""How much later a replay shows what both sides show, in tokens of the choice."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay.derive import Track
from replay.run import Replayer
from replay.visible import Meter, lag, timing
from stages import catalog
from stages.events import (
    AbortInput,
    CallArguments,
    CallStart,
    Content,
    FinishInput,
    Input,
    Marker,
    PromptInput,
    Reasoning,
    TokensInput,
)
from tests.support.replay import SAID, Mutant, late, only, opening, record, tokens, whole

PROMPT = PromptInput((1,), "", 1)


def step(*ids: int, choice: int = 0) -> TokensInput:
    return TokensInput(choice, ids, (), "")


def said(*pieces: tuple[int, str]) -> Track:
    """Content, with the steps it came from."""
    return of(*((at, Content(0, text, (0, 0))) for at, text in pieces))


def of(*events: tuple[int, Any]) -> Track:
    steps = [at for at, _ in events]
    return Track([event for _, event in events], steps, steps)


ONE_EACH: list[Input] = [PROMPT, step(1), step(2), step(3), step(4), FinishInput(0, "eos")]
"""Token n is in step n."""


def test_no_lag_where_all_comes_at_once() -> None:
    assert lag(said((1, "abc")), said((1, "ab"), (1, "c")), ONE_EACH) == {0: 3}


def test_characters_by_how_many_tokens_later() -> None:
    recorded, replayed = said((1, "ab"), (2, "cd"), (3, "ef")), said((1, "a"), (3, "bcde"), (4, "f"))
    # a: 0; b: 1 → 3; c, d: 2 → 3; e: 3 → 3; f: 3 → 4
    assert lag(recorded, replayed, ONE_EACH) == {0: 2, 1: 3, 2: 1}
    assert lag(replayed, recorded, ONE_EACH) == {-2: 1, -1: 3, 0: 2}


def test_a_step_of_several_tokens_counts_as_many() -> None:
    steps: list[Input] = [PROMPT, step(1), step(2, 3, 4), FinishInput(0, "eos")]
    assert lag(said((1, "a")), said((2, "a")), steps) == {3: 1}


def test_without_ids_a_step_is_a_token() -> None:
    steps: list[Input] = [PROMPT, *(TokensInput(0, (), (), "x") for _ in range(4))]
    assert lag(said((1, "a")), said((4, "a")), steps) == {3: 1}


def test_tokens_of_other_choices_and_other_inputs_do_not_count() -> None:
    steps: list[Input] = [PROMPT, step(1), step(1, choice=1), step(2, choice=1), step(2), FinishInput(0, "eos")]
    assert lag(said((1, "a")), said((4, "a")), steps) == {1: 1}
    assert lag(said((4, "a")), said((5, "a")), steps) == {0: 1}


def test_only_what_both_texts_begin_with() -> None:
    assert lag(said((1, "ab"), (2, "XY")), said((2, "ab"), (2, "Z")), ONE_EACH) == {1: 2}
    assert lag(said((1, "abc")), said((1, "ab")), ONE_EACH) == {0: 2}
    assert lag(said((1, "a")), said((1, "b")), ONE_EACH) == {}


def test_each_lane_is_its_own() -> None:
    """Reasoning is not content, a name not arguments, one call not the other."""
    events: list[tuple[int, Any]] = [
        (1, Reasoning(0, "why", (0, 3))),
        (1, Marker(0, "<m>", (3, 6))),
        (2, CallStart(0, 0, "id", "tide", (6, 10))),
        (2, CallArguments(0, 0, "{}", (10, 12))),
        (3, CallStart(0, 1, "id", "moon", (12, 16))),
    ]
    later = [(at + 1 if isinstance(event, CallStart) else at, event) for at, event in events]
    assert lag(of(*events), of(*later), ONE_EACH) == {0: 5, 1: 8}
    assert lag(of(*events[:1]), of((1, Content(0, "why", (0, 3)))), ONE_EACH) == {}


def test_a_step_that_is_not_known_is_left_out() -> None:
    assert lag(said((-1, "a"), (1, "b")), said((1, "ab")), ONE_EACH) == {0: 1}


@given(
    st.lists(st.tuples(st.integers(0, 6), st.text("ab", max_size=3)), max_size=6),
    st.lists(st.tuples(st.integers(0, 6), st.text("ab", max_size=3)), max_size=6),
)
def test_as_character_by_character(one: list[tuple[int, str]], other: list[tuple[int, str]]) -> None:
    """The definition, done slowly."""
    one, other = sorted(one, key=lambda piece: piece[0]), sorted(other, key=lambda piece: piece[0])
    mine, theirs = ([(at, char) for at, text in side for char in text] for side in (one, other))
    want: dict[int, int] = {}
    meter = Meter(ONE_EACH)
    for (at, char), (place, second) in zip(mine, theirs, strict=False):
        if char != second:
            break
        late = meter.at(0, place) - meter.at(0, at)
        want[late] = want.get(late, 0) + 1
    assert lag(said(*one), said(*other), ONE_EACH) == want


# --- in words ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("recorded", "replayed", "words"),
    [
        (1, 1, "in the same step"),
        (1, 2, "1 token later"),
        (4, 1, "3 tokens earlier"),
        # The model wrote nothing between its last token and its end.
        (4, 5, "1 input later"),
        (6, 4, "2 inputs earlier"),
    ],
)
def test_later_in_words(recorded: int, replayed: int, words: str) -> None:
    assert Meter([*ONE_EACH, AbortInput("client")]).later(0, recorded, replayed) == words


def test_timing() -> None:
    assert timing(said((1, "ab")), said((1, "ab")), ONE_EACH) == ("same", None)
    verdict, place = timing(said((1, "ab"), (2, "c")), said((1, "a"), (1, "b"), (2, "c")), ONE_EACH)
    assert (verdict, place and place.kind, place and place.cause) == ("rechunked", "chunking", 1)
    verdict, place = timing(said((1, "ab"), (2, "c")), said((1, "a"), (4, "bc")), ONE_EACH)
    assert place is not None
    assert (verdict, place.kind, place.cause, place.detail) == ("moved", "timing", 1, "3 tokens later")
    assert place.recorded is not None and place.replayed is not None
    assert (place.recorded.seq, place.replayed.seq) == (0, 1)


def test_a_replay_tells_its_lag() -> None:
    """Every content comes with the next token: nothing of it is on time, all else is."""
    trace = record(opening(), whole(tokens(SAID)))
    result = Replayer(Mutant(catalog.parser("hermes"), late(only(Content)))).replay(trace)
    content = sum(len(event.text) for event in trace.events("served", "semantic") if isinstance(event, Content))
    assert result.verdict == "moved"
    assert result.lag[1] == content
    assert set(result.lag) == {0, 1}
    assert Replayer().replay(trace).lag == {}
