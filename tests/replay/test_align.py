"""Both sides of a session, step by step."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from replay.derive import Track
from replay.reports.align import QUOTED, Aligned, Row, align
from replay.reports.wrote import Wrote
from replay.run import Replayer
from stages.events import (
    AbortInput,
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    Fault,
    FaultCode,
    Finish,
    FinishInput,
    Input,
    Marker,
    PromptInput,
    Reasoning,
    TokensInput,
)
from stages.opening import TokenizerFacts
from tests.support.cpu import seconds
from tests.support.replay import SAID, opening, record, tokens, track, whole

NOWHERE = (0, 0)
VOCABULARY = TokenizerFacts(special={"<end>": 9}, added={"<call>": 8})


def inputs(*pieces: str) -> list[Input]:
    """A step for each piece; <call> and <end> are tokens of the vocabulary."""
    ids = {"<call>": 8, "<end>": 9}
    return [TokensInput(0, (ids.get(piece, 100),), (piece.encode(),), piece) for piece in pieces]


def told(row: Row) -> tuple[str, list[str], list[str]]:
    """What the model wrote, and both sides; (quiet) and !different."""
    sides = [
        [
            f"{'!' if item.differs else ''}{f'({item.kind} {item.text})' if item.quiet else f'{item.kind} {item.text}'}"
            for item in side
        ]
        for side in (row.left, row.right)
    ]
    return "".join(item.text for item in row.wrote), sides[0], sides[1]


def shape(aligned: Aligned) -> list[tuple[int, int, int, int, bool]]:
    return [(row.first, row.last, row.steps, row.differing, row.folded) for row in aligned.rows]


def test_what_is_the_same_is_folded() -> None:
    side = track(*((at, Content(0, f"{at} ", NOWHERE)) for at in range(20)))
    aligned = align(inputs(*(f"{at} " for at in range(20))), side, side)
    assert shape(aligned) == [(0, 19, 20, 0, True)]
    assert aligned.differing == 0


def test_a_difference_stands_between_its_neighbours() -> None:
    words = [f"{at} " for at in range(20)]
    left = track(*((at, Content(0, word, NOWHERE)) for at, word in enumerate(words)))
    right = track(*((at, Content(0, "X " if at == 9 else word, NOWHERE)) for at, word in enumerate(words)))
    aligned = align(inputs(*words), left, right)
    assert shape(aligned) == [(0, 7, 8, 0, True), (8, 8, 1, 0, False), (9, 9, 1, 1, False), (10, 10, 1, 0, False),
                              (11, 19, 9, 0, True)]  # fmt: skip
    assert told(aligned.rows[2]) == ("9 ", ["!content 9 "], ["!content X "])
    assert aligned.differing == 1


def test_steps_that_differ_in_one_way_are_one_row() -> None:
    words = ["a ", "b ", "c "]
    left = track(*((at, Content(0, word, NOWHERE)) for at, word in enumerate(words)), (3, Finish(0, "eos", 9)))
    right = track(*((at, Reasoning(0, word, NOWHERE)) for at, word in enumerate(words)), (3, Finish(0, "eos", 9)))
    aligned = align([*inputs(*words), FinishInput(0, "eos", 9)], left, right)
    assert shape(aligned) == [(0, 2, 3, 3, False), (3, 3, 1, 0, False)]
    assert told(aligned.rows[0]) == ("a b c ", ["!content a b c "], ["!reasoning a b c "])
    assert told(aligned.rows[1]) == ("finish eos", ["finish eos (9)"], ["finish eos (9)"])


def test_also_where_choices_take_turns() -> None:
    both = [TokensInput(at % 2, (1,), (b"x",), "x") for at in range(8)]
    left = track(*((at, Content(at % 2, "x", NOWHERE)) for at in range(8)))
    right = track(*((at, Reasoning(at % 2, "x", NOWHERE)) for at in range(8)))
    aligned = align(both, left, right)
    assert shape(aligned) == [(0, 6, 4, 4, False), (1, 7, 4, 4, False)]
    assert [row.left[0].text for row in aligned.rows] == ["xxxx", "xxxx"]
    assert aligned.choices == 2


def test_a_call_that_is_lost() -> None:
    wrote = inputs("Hi", "<call>", "tide", "{}", "<end>")
    left = track(
        (0, Content(0, "Hi", NOWHERE)), (1, Marker(0, "<call>", NOWHERE)), (2, CallStart(0, 0, "c1", "tide", NOWHERE)),
        (3, CallArguments(0, 0, "{}", NOWHERE)), (4, CallEnd(0, 0, True)),
    )  # fmt: skip
    right = track(
        (0, Content(0, "Hi", NOWHERE)), (1, Content(0, "<call>", NOWHERE)), (2, Content(0, "tide", NOWHERE)),
        (3, Content(0, "{}", NOWHERE)), (4, Fault(0, FaultCode.STRAY_MARKER, NOWHERE, "", "no call was open")),
    )  # fmt: skip
    aligned = align(wrote, left, right, VOCABULARY)
    assert [told(row) for row in aligned.rows] == [
        ("Hi", ["content Hi"], ["content Hi"]),
        ("<call>", ["!(marker <call>)"], ["!content <call>"]),
        ("tide", ["!call tide"], ["!content tide"]),
        ("{}", ["!arguments {}"], ["!content {}"]),
        ("<end>", ["!call end "], ["!(fault stray_marker: no call was open)"]),
    ]
    assert [row.wrote[0].piece for row in aligned.rows] == ["text", "special", "text", "text", "special"]


def test_what_both_begin_and_end_with_is_not_what_differs() -> None:
    same = [(0, Content(0, "a", NOWHERE)), (0, Marker(0, "m", NOWHERE))]
    end = (0, Finish(0, "eos", 9))
    aligned = align(inputs("am"), track(*same, end), track(*same, (0, Fault(0, FaultCode.STRAY_MARKER, NOWHERE)), end))
    assert told(aligned.rows[0])[1:] == (
        ["content a", "(marker m)", "finish eos (9)"],
        ["content a", "(marker m)", "!(fault stray_marker)", "finish eos (9)"],
    )


def test_deltas_cut_otherwise_within_a_step_do_not_differ() -> None:
    one = track((0, Content(0, "a", NOWHERE)), (0, Content(0, "b", NOWHERE)))
    assert align(inputs("ab"), one, track((0, Content(0, "ab", NOWHERE)))).differing == 0


def test_call_ids_count_but_not_loosely() -> None:
    one, other = (track((0, CallStart(0, 0, name, "tide", NOWHERE))) for name in ("c1", "c2"))
    aligned = align(inputs("t"), one, other)
    assert told(aligned.rows[0])[1:] == (["!call tide c1"], ["!call tide c2"])
    assert align(inputs("t"), one, other, loose=True).differing == 0
    quiet = track((0, Marker(0, "<call>", NOWHERE)), (0, CallStart(0, 0, "c1", "tide", NOWHERE)))
    assert align(inputs("t"), quiet, other).differing == 1
    assert align(inputs("t"), quiet, other, loose=True).differing == 0


def test_where_a_side_is_not_at_hand_or_comes_from_nowhere() -> None:
    aligned = align(inputs("a"), None, track((-1, Content(0, "?", NOWHERE)), (0, Content(0, "a", NOWHERE)),
                                             (5, Finish(0, "eos"))))  # fmt: skip
    assert shape(aligned) == [(-1, 0, 2, 2, False), (5, 5, 1, 1, False)]
    assert told(aligned.rows[0]) == ("a", [], ["!content ?a"])
    assert align([], None, None).rows == ()


def test_a_character_cut_by_tokens_is_shown_as_its_bytes() -> None:
    cut = [TokensInput(0, (1,), (bytes([byte]),), "") for byte in "é".encode()]
    left, right = track((1, Content(0, "é", NOWHERE))), track((1, Reasoning(0, "é", NOWHERE)))
    rows = align(cut, left, right).rows
    assert [(row.first, row.folded) for row in rows] == [(0, True), (1, False)]
    assert rows[1].wrote == (Wrote("a9", "bytes"),)
    # In one row they are the character again.
    both = align(cut, track((0, Content(0, "x", NOWHERE)), (1, Content(0, "é", NOWHERE))),
                 track((0, Reasoning(0, "x", NOWHERE)), (1, Reasoning(0, "é", NOWHERE))))  # fmt: skip
    assert both.rows[0].wrote[0].text == "é"


def test_other_inputs_in_words() -> None:
    given: list[Input] = [PromptInput((1,), "", 1), TokensInput(0, (5, 6), (), ""), AbortInput("client")]
    side = track(*((at, Content(0, str(at), NOWHERE)) for at in range(3)))
    other = track(*((at, Reasoning(at, str(at), NOWHERE)) for at in range(3)))
    assert ["".join(item.text for item in row.wrote) for row in align(given, side, other).rows] == [
        "prompt",
        "#5 #6",
        "abort client",
    ]


class Odd:
    """What a user's parser may emit: fields of any type, and events that are none."""

    choice = "nought"
    text = None


def test_it_is_total() -> None:
    strange = [Content(0, 5, NOWHERE), CallStart("x", None, 7, None, NOWHERE), Odd(), Finish(0, "eos", "\ud800")]  # type: ignore[arg-type]
    side = Track(strange, [0] * 4, [0] * 4)
    aligned = align(inputs("a"), side, None)
    assert told(aligned.rows[0])[1] == ["!content 5", "!call None", "!finish eos (\\ud800)"]


def test_rows_and_texts_are_bounded(long: int = 20_000) -> None:
    words = [f"word{at} " for at in range(long)]
    left = track(*((at, Content(0, word, NOWHERE)) for at, word in enumerate(words)))
    right = track(
        *((at, (Reasoning if at % 2 else Content)(0, word + "!", NOWHERE)) for at, word in enumerate(words)),
        (long, Finish(0, "length")),
    )
    aligned = align([*inputs(*words), FinishInput(0, "length")], left, right, limit=12)
    assert len(aligned.rows) == 12
    assert aligned.differing == long + 1
    assert sum(row.steps for row in aligned.rows) == long + 1
    assert aligned.rows[-1].right[0].kind == "finish"
    # One step with everything in it.
    one = [TokensInput(0, tuple(range(long)), tuple(word.encode() for word in words), "")]
    many = [(0, (Content if at % 2 else Marker)(0, word, NOWHERE)) for at, word in enumerate(words)]
    row = align(one, track(*many), track(*many[:300], *many[301:])).rows[0]
    assert len(row.left) <= 14
    assert any(item.differs for item in row.left)
    assert all(len(item.text) < 400 for side in (row.wrote, row.left, row.right) for item in side)


def test_long_texts_are_cut_around_the_difference() -> None:
    one, other = "a" * 5000 + "b" + "a" * 5000, "a" * 5000 + "c" + "a" * 5000
    row = align(inputs(one), track((0, Content(0, one, NOWHERE))), track((0, Content(0, other, NOWHERE)))).rows[0]
    assert "b" in row.left[0].text and "c" in row.right[0].text
    assert len(row.left[0].text) < 200


def cost(size: int) -> float:
    words = [f"{at} " for at in range(size)]
    left = track(*((at, Content(0, word, NOWHERE)) for at, word in enumerate(words)))
    right = track(*((at, Content(at % 3, word, NOWHERE)) for at, word in enumerate(words)))
    given = inputs(*words)
    return seconds(lambda: align(given, left, right))


def test_it_is_linear() -> None:
    """8 times the steps take 8 times the time, not 64 times."""
    assert cost(40_000) < 24 * cost(5_000)


@pytest.mark.parametrize("splits", [("recorded",), ("recorded", "one")])
def test_both_sides_of_a_replay(splits: Sequence[str]) -> None:
    """Through a real replay: what a parser that knows no calls makes of them."""
    trace = record(opening(), whole(tokens(SAID)))
    both = Replayer("plain", splits=splits).both(trace)
    assert both is not None and both.before is not None
    aligned = align(both.inputs, both.before, both.after, trace.opening.tokenizer, loose=both.loose)
    kinds = {item.kind for row in aligned.rows for item in row.left if item.differs}
    assert {"call", "arguments"} <= kinds
    assert {item.kind for row in aligned.rows for item in row.right if item.differs} <= {
        *QUOTED,
        "finish",
        "fault",
        "…",
    }
    assert Replayer().both(trace) is not None
    same = Replayer().both(trace)
    assert same is not None and align(same.inputs, same.before, same.after).differing == 0
