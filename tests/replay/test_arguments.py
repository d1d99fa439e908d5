"""What a program hands to the Replayer by mistake is told in words, before anything is replayed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import replay
from replay import Both, Difference, Replayer, ReplayError, run_replay, traces
from store import trace
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
    session = record(opening(), whole(tokens(SAID)))
    assert replayer.replay(session).splits == {"recorded": "same", "one": "same"}


@pytest.mark.parametrize(
    ("given", "says"), [("traces", "not 'traces'; replay.traces("), (("a.db", None), "not tuple; replay.traces(")]
)
def test_what_is_no_session(given: Any, says: str) -> None:
    told = re.escape(f"a session is a store.api.Trace, {says}")
    with pytest.raises(ReplayError, match=told):
        Replayer().replay(given)
    with pytest.raises(ReplayError, match=told):
        Replayer().both(given)
    with pytest.raises(ReplayError, match=told):
        next(Replayer().replay_many([given]))


@pytest.mark.parametrize("given", ["traces", Path("traces"), 3, record(opening(), whole(tokens(SAID)))])
def test_what_are_no_sessions(given: Any) -> None:
    with pytest.raises(ReplayError, match=re.escape("sessions are an iterable of store.api.Trace, not ")):
        Replayer().replay_many(given)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("traces", "such as ['traces'], not 'traces'"),
        (Path("traces"), "such as ['traces'], not "),
        (3, "such as ['playhead.db', 'traces'], not int"),
        (["traces", 3], "3 among the sources is int, not a path"),
    ],
)
def test_sources(given: Any, says: str) -> None:
    with pytest.raises(ReplayError, match=re.escape(says)):
        run_replay(given)


def test_a_report_is_the_baseline_of_a_run_only() -> None:
    with pytest.raises(
        ReplayError, match=re.escape("run_replay compares with it (baseline='first.json'), and playhead")
    ):
        Replayer(baseline="first.json")


def test_the_sessions_of_any_source(tmp_path: Path) -> None:
    made = [record(opening(f"{at}" * 32), whole(tokens(SAID))) for at in range(3)]
    folder = tmp_path / "traces"
    folder.mkdir()
    trace.write(made[1], folder / "1.jsonl")
    trace.write(made[2], folder / "2.jsonl.zst")
    stored = tmp_path / "s.db"
    trace.write(made[0], tmp_path / "0.jsonl")
    found = list(traces(tmp_path / "0.jsonl", str(folder)))
    assert [each.opening.session[0] for each in found] == ["0", "1", "2"]
    assert [each.opening.session[0] for each in traces(folder, sessions=["2"])] == ["2"]
    assert [result.verdict for result in Replayer().replay_many(iter(found))] == ["same"] * 3
    with pytest.raises(ReplayError, match=re.escape(str(stored))):
        list(traces(folder, stored))


def _never(difference: Difference) -> bool:
    return False


def test_both_sides_have_a_type_in_the_library_s_face() -> None:
    found = Replayer().both(record(opening(), whole(tokens(SAID))))
    assert isinstance(found, Both)
    assert all(hasattr(replay, name) for name in replay.__all__)


OF_A_RUN: list[tuple[dict[str, Any], str]] = [
    ({"sessions": "xr"}, "prefixes of ids, such as ['xr'], not 'xr'"),
    ({"sessions": None}, "sessions is a sequence of ids, or prefixes of ids, such as ['01a2', '01a3'], not NoneType"),
    ({"sessions": [3]}, "3 among the sessions is int, not an id"),
    ({"sessions": [""]}, "a session without a name"),
    ({"jobs": "2"}, "jobs is a number of processes, such as 2, not '2'"),
    ({"jobs": 1.5}, "jobs is a number of processes, such as 2, not 1.5"),
    ({"jobs": True}, "jobs is a number of processes, such as 2, not True"),
    ({"jobs": 0}, "0 jobs and 60 s: both must be above 0"),
    ({"time_limit": "5"}, "time_limit is a number of seconds, such as 60.0, not '5'"),
    ({"time_limit": None}, "time_limit is a number of seconds, such as 60.0, not None"),
    ({"time_limit": float("nan")}, "both must be above 0, and finite"),
    ({"on_result": 5}, "on_result 5 is int, not a function"),
    ({"on_progress": "print"}, "on_progress 'print' is str, not a function"),
    ({"track": 5}, "track is a name, such as 'upstream', not 5"),
    ({"peer_python": "venv/bin/python"}, "a sequence of paths, such as ['venv/bin/python'], not 'venv/bin/python'"),
    ({"peer_python": [3]}, "3 in peer_python is int, not a path"),
    ({"tokenizer": 3}, "tokenizer 3 is int, not a path"),
    ({"resume": 3}, "resume 3 is int, not a path"),
]


@pytest.mark.parametrize(("given", "says"), OF_A_RUN)
def test_arguments_of_a_run(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ReplayError, match=re.escape(says)):
        run_replay([], **given)


def test_one_text_is_no_sessions_of_traces_either() -> None:
    with pytest.raises(ReplayError, match=re.escape("such as ['xr'], not 'xr'")):
        next(replay.traces("nowhere", sessions="xr"))
