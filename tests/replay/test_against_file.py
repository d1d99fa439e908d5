"""A replay against an earlier report: equal sessions, changed ones, missing ones; files that are no report; memory."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import msgspec
import pytest

from replay.against_file import BadReport, Earlier
from replay.derive import StageFailure
from replay.report import make_report, to_json
from replay.reports.session import head_in_words
from replay.result import SessionResult, Signature
from replay.run import Replayer
from replay.signature import in_words
from replay.verdict import Depth
from stages.events import CallStart, Content
from store.api import Trace
from tests.support.replay import SAID, lost, nth, one_character, only, opening, record, spoiled, tokens, whole

replace = msgspec.structs.replace


def traces(count: int = 4) -> list[Trace]:
    made = [SAID.replace("Brest", f"port {number}") for number in range(count)]
    return [record(opening(f"{number:032x}"), whole(tokens(text))) for number, text in enumerate(made)]


def replayed(found: list[Trace], make: Any = None, splits: tuple[str, ...] = ("recorded",)) -> list[SessionResult]:
    replayer = Replayer(splits=splits) if make is None else Replayer(splits=splits, assemble=spoiled("semantic", make))
    return [replayer.replay(trace, "a.db") for trace in found]


def written(
    folder: Path, results: list[SessionResult], splits: tuple[str, ...] = ("recorded",), layer: Depth = "frame"
) -> Path:
    path = folder / "earlier.json"
    report = make_report(results, [], parser=None, sources=["a.db"], splits=splits, layer=layer)
    path.write_bytes(to_json(report))
    return path


CALL_LOST = nth(only(CallStart), 0, lost)
WRONG = nth(only(Content), 0, one_character)


@pytest.mark.parametrize("make", [None, CALL_LOST])
def test_what_replays_the_same_is_the_same(tmp_path: Path, make: Any) -> None:
    """Whatever it is against the record."""
    results = replayed(traces(), make)
    earlier = Earlier.read(written(tmp_path, results), layer="frame", splits=["recorded"])
    assert len(earlier) == 4
    for result in results:
        told = earlier.compare(result)
        assert (told.verdict, told.layers, told.first, told.differences, told.signature) == (
            "same", {"message": "same"}, None, (), None
        )  # fmt: skip
        assert told.marks_before == told.marks == result.marks
        assert told.message == result.message
    assert list(earlier.unseen()) == []


def test_what_replays_otherwise_is_changed_with_both_sides(tmp_path: Path) -> None:
    found = traces()
    earlier = Earlier.read(written(tmp_path, replayed(found)))
    after = replayed(found, CALL_LOST)
    told = [earlier.compare(result) for result in after]
    assert {result.verdict for result in told} == {"changed"}
    one = told[0]
    assert one.differences == after[0].differences != ()
    assert one.notes == (
        (
            "by layer: message was same, now changed; semantic was same, now changed; chunk was same, now changed; "
            "frame was same, now changed"
        ),
    )
    assert one.signature is not None
    assert (one.signature.kind, one.signature.recorded) == ("call_lost", "same")
    assert in_words(one.signature) == (
        "was same; now changed: call lost (call_start → nothing) · in call: header · after <tool_call>"
    )
    head = list(head_in_words(one))
    assert head[0] == in_words(one.signature)
    assert head[1].startswith("now, against the record: worst: call lost; first: ")
    assert one.marks_before == ()
    assert "differs" in one.marks
    # All of one kind, and other digests than without a baseline.
    assert len({result.signature for result in told}) == 1
    assert len({result.digest for result in (*told, *after)}) == 8


def test_two_wrong_parsers_that_are_wrong_in_other_ways(tmp_path: Path) -> None:
    found = traces(1)
    earlier = Earlier.read(written(tmp_path, replayed(found, CALL_LOST)))
    told = earlier.compare(replayed(found, WRONG)[0])
    assert told.verdict == "changed"
    assert told.marks_before[:1] == ("differs",)
    # The same again, and right again.
    assert earlier.compare(replayed(found, CALL_LOST)[0]).verdict == "same"
    right = earlier.compare(replayed(found)[0])
    assert right.verdict == "changed"
    assert right.signature is not None
    assert in_words(right.signature).startswith("was changed: call lost (")
    assert in_words(right.signature).endswith("; now same")
    # Wrong in one way on both sides, and yet not the same.
    again = replace(replayed(found, CALL_LOST)[0], message="0" * 32)
    still = earlier.compare(again).signature
    assert still is not None and still.recorded == still.replayed
    assert in_words(still).startswith("changed: call lost (") and in_words(still).endswith(
        ", as before, but not in the same way"
    )


def test_what_failed_before_had_no_layers(tmp_path: Path) -> None:
    result = replayed(traces(1))[0]
    error = StageFailure("semantic", "mine@1", -1, -1, "", "Timeout", "no end within 1 s")
    kind = Signature(verdict="failed", kind="Timeout", layer="semantic")
    failed = replace(result, verdict="failed", layers={}, splits={}, error=error, signature=kind, message="")
    told = Earlier.read(written(tmp_path, [failed])).compare(result)
    assert told.verdict == "changed" and told.notes == result.notes
    assert told.signature is not None and in_words(told.signature) == "was failed: Timeout; now same"


def test_the_message_is_the_same_and_a_layer_is_not(tmp_path: Path) -> None:
    result = replayed(traces(1))[0]
    earlier = Earlier.read(written(tmp_path, [result]))
    moved = replace(result, verdict="moved", layers={**result.layers, "chunk": "moved"}, splits={"recorded": "moved"})
    told = earlier.compare(moved)
    assert told.verdict == "changed"
    assert told.notes == ("by layer: chunk was same, now moved", "the message is the same")
    under = Earlier.read(written(tmp_path, [replace(result, splits={"recorded": "same", "one": "same"})]))
    apart = under.compare(replace(result, verdict="changed", splits={"recorded": "same", "one": "changed"}))
    assert apart.notes == ("by split: one was same, now changed", "the message is the same")


def test_sessions_missing_on_either_side(tmp_path: Path) -> None:
    found = [*traces(), record(opening("a name"), whole(tokens(SAID)))]
    results = replayed(found)
    earlier = Earlier.read(written(tmp_path, [results[0], results[3], results[4]]))
    told = [earlier.compare(result) for result in results[:3]]
    assert [result.verdict for result in told] == ["same", "uncompared", "uncompared"]
    assert told[1].uncompared == f"not in {earlier.path}"
    assert told[1].notes[-1] == told[1].uncompared
    assert sorted(earlier.unseen()) == ["0" * 31 + "3", "a name"]


def test_nothing_was_compared_on_a_side(tmp_path: Path) -> None:
    result = replayed(traces(1))[0]
    unknown = replace(result, verdict="uncompared", unreplayed="no parser", message="", layers={}, splits={})
    earlier = Earlier.read(written(tmp_path, [unknown]))
    told = earlier.compare(result)
    assert (told.verdict, told.uncompared) == ("uncompared", "nothing was compared in the earlier report")
    assert earlier.compare(unknown).verdict == "uncompared"
    earlier = Earlier.read(written(tmp_path, [result]))
    assert earlier.compare(unknown).uncompared == "nothing was compared now"


def test_a_session_of_two_sources(tmp_path: Path) -> None:
    found = traces(1)
    right, wrong = replayed(found)[0], replayed(found, CALL_LOST)[0]
    for pair in ([right, wrong], [wrong, right]):
        earlier = Earlier.read(written(tmp_path, pair))
        assert earlier.compare(right).verdict == "same"
        assert earlier.compare(wrong).verdict == "same"
        assert list(earlier.unseen()) == []


# --- what is no report


def test_other_options(tmp_path: Path) -> None:
    path = written(tmp_path, replayed(traces(1)))
    with pytest.raises(BadReport, match=r"earlier\.json: compared down to layer frame, and this run to message: give"):
        Earlier.read(path, layer="message")
    with pytest.raises(BadReport, match="made under the splits recorded, not one,recorded: give --splits recorded"):
        Earlier.read(path, splits=["one", "recorded"])


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "no report of a replay, or not all of one"),
        (b"\x28\xb5\x2f\xfd\x00", "does not begin as a JSON object"),
        (b"[1, 2]\n", "does not begin as a JSON object"),
        (b'{"a": 1}\n', "no report that playhead replay --json wrote"),
        (b'{\n"layer": "frame",\n{"no": "session"}\n}\n', "line 3: no session of a report"),
        (b"{\n\xff\xfe\n}\n", "no report of a replay, or not all of one"),
    ],
)
def test_what_is_no_report(tmp_path: Path, data: bytes, why: str) -> None:
    path = tmp_path / "some.json"
    path.write_bytes(data)
    with pytest.raises(BadReport, match=why) as caught:
        Earlier.read(path)
    assert str(path) in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadReport, match="cannot be read: No such file"):
        Earlier.read(tmp_path / "none.json")
    with pytest.raises(BadReport, match="cannot be read: Is a directory"):
        Earlier.read(tmp_path)


def test_a_report_cut_anywhere(tmp_path: Path) -> None:
    path = written(tmp_path, replayed(traces(2), CALL_LOST))
    whole_ = path.read_bytes().rstrip()
    for end in range(0, len(whole_), 7):
        path.write_bytes(whole_[:end])
        with pytest.raises(BadReport):
            Earlier.read(path)
    # A line of it is lost.
    lines = whole_.split(b"\n")
    at = max(place for place, line in enumerate(lines) if line.startswith(b"{") and len(line) > 2)
    del lines[at]
    path.write_bytes(b"\n".join(lines).replace(b"},\n]", b"}\n]"))
    with pytest.raises(BadReport, match="not whole: it tells of 2 sessions, and has 1"):
        Earlier.read(path)


def test_another_layout_of_the_same_report(tmp_path: Path) -> None:
    """As somebody's tools may have written it again."""
    results = replayed(traces(2), CALL_LOST)
    path = written(tmp_path, results)
    data = path.read_bytes()
    for layout in (msgspec.json.format(data, indent=2), msgspec.json.format(data, indent=-1)):
        path.write_bytes(layout)
        earlier = Earlier.read(path)
        assert [earlier.compare(result).verdict for result in results] == ["same", "same"]


def test_memory(tmp_path: Path) -> None:
    """Less than 200 bytes a session, also while it is read."""
    result = replayed(traces(1), CALL_LOST)[0]
    count = 20_000
    path = written(tmp_path, [replace(result, session=f"{n:032x}", message=f"{n * 7:032x}") for n in range(count)])
    small = path.with_name("small.json")
    small.write_bytes(to_json(make_report([result], [], parser=None, sources=[], splits=["recorded"], layer="frame")))
    Earlier.read(small)
    tracemalloc.start()
    earlier = Earlier.read(path)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(earlier) == count
    assert kept < 60 * count
    assert peak < 200 * count
