"""What a program hands to the Replayer by mistake is told in words, before anything is replayed."""

from __future__ import annotations

import re
from typing import Any

import pytest

import replay
from replay import Both, Difference, Replayer, ReplayError, run_replay
from tests.support.replay import SAID, opening, record, tokens, whole

ALIKE: list[tuple[dict[str, Any], str]] = [
    ({"splits": "one,token"}, "such as ['one', 'token'], not 'one,token'; see parse_splits"),
    ({"splits": "one"}, "such as ['one'], not 'one'"),
    ({"splits": ""}, "such as ['one', 'token'], not ''"),
    ({"splits": 3}, "such as ['one', 'token'], not 3"),
    ({"splits": ["one", 3]}, "3 among the splits is int"),
    ({"splits": ["one,token"]}, "there is no split 'one,token'"),
    ({"ignore": len}, "ignore is a sequence of functions, such as [len]"),
    ({"ignore": [len, 3]}, "ignore rule 3 is int, not a function"),
    ({"compare": [len]}, "is list, not a function"),
]


@pytest.mark.parametrize(("given", "says"), ALIKE)
def test_arguments_of_both(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ReplayError, match=re.escape(says)):
        Replayer(**given)
    with pytest.raises(ReplayError, match=re.escape(says)):
        run_replay([], **given)


@pytest.mark.parametrize("given", [{1: 90, 4: 10}, 7, "1,90", [1, 4], [(1, 90), (4,)], [("1", 90)], [(1, 0.5)], None])
def test_a_histogram(given: Any) -> None:
    with pytest.raises(ReplayError, match=re.escape("such as [(1, 90), (4, 10)]")):
        Replayer(histogram=given)


def test_names_of_functions_are_for_the_command_line() -> None:
    named: Any = ["file.py:fn"]
    with pytest.raises(ReplayError, match=re.escape("ignore rule 'file.py:fn' is str, not a function")):
        Replayer(ignore=named)


def test_what_can_be_gone_through_will_do() -> None:
    splits: Any = iter(["recorded", "one"])
    ignore: Any = iter([_never])
    histogram: Any = [[4, 1], [1, 9]]
    replayer = Replayer(splits=splits, ignore=ignore, histogram=histogram)
    trace = record(opening(), whole(tokens(SAID)))
    assert replayer.replay(trace).splits == {"recorded": "same", "one": "same"}


def _never(difference: Difference) -> bool:
    return False


def test_both_sides_have_a_type_in_the_library_s_face() -> None:
    found = Replayer().both(record(opening(), whole(tokens(SAID))))
    assert isinstance(found, Both)
    assert all(hasattr(replay, name) for name in replay.__all__)
