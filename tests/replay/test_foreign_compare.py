"""Another engine's parser against the record: by its message, and by when it is sent, whatever its events are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import pytest

from replay import Message, ToolCall
from replay.errors import Crashed, PeerError, Timeout, Unsupported
from replay.result import Breach, SessionResult, Signature
from replay.run import Replayer
from stages import catalog
from stages.events import (
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    Fault,
    Finish,
    FinishInput,
    Input,
    PromptInput,
    Reasoning,
    Semantic,
    Start,
    Tick,
)
from stages.opening import Opening
from tests.support.captures import captures
from tests.support.replay import CALLS, SAID, opening, record, tokens, whole
from tests.support.upstream_traces import relayed

STEPS = whole(tokens(SAID))
TIDE = '{"port": "Brest … 潮汐"}'

Played = dict[int, list[Semantic]]
"""By the seq of an input, what comes with it."""


class Foreign:
    """A parser in another process, as far as replay can tell: it is asked for a whole session at once."""

    foreign = True
    id = "vllm:hermes@0.33.0"

    def __init__(
        self, played: Played, *, one_shot: list[Message] | None = None, ns: int = 0, error: PeerError | None = None,
        at_once: str = "",
    ) -> None:  # fmt: skip
        self.played = played
        self.one_shot = one_shot
        self.ns = ns
        self.error = error
        self.one_shot_error = at_once
        self.asked = 0

    def prepared(self, opening: Opening, events: Sequence[Input]) -> _Prepared:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return _Prepared(self, [self.played.get(seq, []) for seq in range(len(events))])

    def start(self, opening: Opening) -> Any:
        raise AssertionError("not without being prepared")

    def resume(self, opening: Opening, snapshot: Any) -> Any:
        raise AssertionError("not without being prepared")


class _Prepared:
    foreign = True

    def __init__(self, stage: Foreign, answers: list[list[Semantic]]) -> None:
        self.id, self.one_shot, self.ns = stage.id, stage.one_shot, stage.ns
        self.one_shot_error = stage.one_shot_error
        self.answers = answers

    def start(self, opening: Opening) -> Any:
        return _Machine(self.answers)

    def resume(self, opening: Opening, snapshot: Any) -> Any:
        raise AssertionError("no snapshot was taken")


class _Machine:
    def __init__(self, answers: list[list[Semantic]]) -> None:
        self.answers = answers
        self.at = -1

    def step(self, event: Input, out: list[Semantic]) -> None:
        self.at += 1
        match event:
            case PromptInput():
                out.append(Start(0, event.count))
            case FinishInput():
                out.extend(self.answers[self.at])
                out.append(Finish(0, event.reason))
            case _:
                out.extend(self.answers[self.at])

    def snapshot(self) -> msgspec.Struct:
        return Tick()


def call(index: int, name: str, arguments: str) -> list[Semantic]:
    return [
        CallStart(0, index, f"chatcmpl-tool-{index}", name, (0, 0)),
        CallArguments(0, index, arguments, (0, 0)),
        CallEnd(0, index, True),
    ]


def reasoning(text: str) -> Semantic:
    return Reasoning(0, text, (0, 0))


def content(text: str) -> Semantic:
    return Content(0, text, (0, 0))


def calls() -> list[Semantic]:
    return [*call(0, "tide", TIDE), *call(1, "moon", "{}")]


def texts() -> tuple[str, str]:
    """The reasoning and the content that our parser makes of it."""
    found = record(opening(), STEPS).events("served", "semantic")
    return (
        "".join(event.text for event in found if isinstance(event, Reasoning)),
        "".join(event.text for event in found if isinstance(event, Content)),
    )


def replayed(played: Played, **options: Any) -> SessionResult:
    return Replayer(Foreign(played), **options).replay(record(opening(), STEPS))


LAST = len(STEPS) - 2
"""The finish."""


def at_the_end(*events: Semantic) -> Played:
    return {LAST: list(events)}


def as_served() -> Played:
    """What clients see, with the steps that our stages send it in."""
    played: Played = {}
    trace = record(opening(), STEPS)
    for one in trace.records["served", "semantic"]:
        event = one.event
        if isinstance(event, Reasoning | Content | CallArguments):
            event = msgspec.structs.replace(event, src=(0, 0))
        elif isinstance(event, CallStart):
            event = msgspec.structs.replace(event, src=(0, 0), id=f"chatcmpl-tool-{event.index}")
        elif not isinstance(event, CallEnd):
            continue
        played.setdefault(one.cause, []).append(event)
    return played


def test_the_same_with_other_ids_and_no_markers_is_the_same() -> None:
    result = replayed(as_served())
    assert (result.verdict, result.layers) == ("same", {"message": "same", "timing": "same"})
    assert result.parser == Foreign.id
    assert result.marks == ()


def test_all_at_the_end_is_moved() -> None:
    thought, said = texts()
    result = replayed(at_the_end(reasoning(thought), content(said), *calls()))
    assert (result.verdict, result.layers) == ("moved", {"message": "same", "timing": "moved"})
    assert result.first is not None
    assert (result.first.kind, result.first.choice) == ("timing", 0)
    assert min(result.lag) >= 0 < max(result.lag)
    # Deltas are a matter of the depth below the message.
    assert replayed(at_the_end(reasoning(thought), content(said), *calls()), layer="message").verdict == "same"


def test_other_deltas_in_the_same_step_are_rechunked() -> None:
    played = as_served()
    seq, last = next(
        (seq, each[-1]) for seq, each in played.items() if isinstance(each[-1], Content) and len(each[-1].text) > 1
    )
    played[seq][-1:] = [content(last.text[:1]), content(last.text[1:])]
    result = replayed(played)
    assert (result.verdict, result.first and result.first.kind) == ("rechunked", "chunking")


def test_white_space_and_how_json_is_written_are_style() -> None:
    thought, said = texts()
    result = replayed(at_the_end(reasoning(thought), content(f"{said}\n\n"), *call(0, "tide", TIDE.replace(": ", ":")),
                                 *call(1, "moon", "{}")))  # fmt: skip
    assert result.verdict == "restyled"
    assert [(item.kind, item.field) for item in result.differences] == [
        ("spelling", "tool_calls[0].arguments"),
        ("white_space", "content"),
    ]
    assert result.signature is None


def test_what_it_loses_is_lost() -> None:
    thought, said = texts()
    result = replayed(at_the_end(reasoning(thought), content(said), *call(0, "tide", TIDE)))
    assert result.verdict == "changed"
    assert [item.kind for item in result.differences] == ["call_lost"]
    assert result.first is not None
    assert result.first.recorded is not None
    assert "name='moon'" in result.first.recorded.event
    assert result.first.replayed is None
    assert "differs" in result.marks


def test_markup_in_its_text_is_leaked() -> None:
    thought, said = texts()
    result = replayed(at_the_end(reasoning(thought), content(said + CALLS)))
    assert [item.kind for item in result.differences] == ["call_lost", "marker_leaked"]
    assert set(result.marks) >= {"leaked", "differs"}


def test_faults_are_not_compared() -> None:
    """Ours tells that a call was not closed; another engine's parser has no word for it."""
    cut = whole(tokens('<tool_call>\n{"name": "tide", "arguments": {"port": "Br'))
    trace = record(opening(), cut)
    assert any(isinstance(event, Fault) for event in trace.events("served", "semantic"))
    played: Played = {len(cut) - 2: [*call(0, "tide", '{"port": "Br')]}
    result = Replayer(Foreign(played)).replay(trace)
    assert (result.layers["message"], result.faults_gone) == ("same", ())


def test_ours_against_its_as_the_baseline() -> None:
    thought, said = texts()
    its = Foreign(at_the_end(reasoning(thought), content(said)))
    result = Replayer("hermes", baseline=its).replay(record(opening(), STEPS))
    assert [item.kind for item in result.differences] == ["call_added"]
    assert (result.marks_before, result.marks) == (("differs",), ())
    assert result.baseline == Foreign.id


def test_one_version_of_it_against_the_other() -> None:
    thought, said = texts()
    first, second = (Foreign(at_the_end(reasoning(thought), content(said), *calls())) for _ in range(2))
    second.played[LAST][2] = CallStart(0, 0, "another-id", "tide", (0, 0))
    result = Replayer(second, baseline=first).replay(record(opening(), STEPS))
    assert (result.verdict, result.lag) == ("same", {0: len(thought + said + TIDE + "{}" + "tide" + "moon")})


def test_the_digest_does_not_know_its_ids() -> None:
    results: list[str] = []
    for name in ("a", "b"):
        played = as_served()
        for events in played.values():
            events[:] = [
                msgspec.structs.replace(event, id=name) if isinstance(event, CallStart) else event for event in events
            ]
        results.append(replayed(played).digest)
    assert results[0] == results[1]


def test_a_relayed_session() -> None:
    """Its events have no byte ranges: a difference is where its events came."""
    trace = relayed(captures()["vllm_dsv31-tool_multitoken"])
    inputs: list[Input] = trace.events("input", "engine")
    last = next(seq for seq, event in enumerate(inputs) if isinstance(event, FinishInput))
    result = Replayer(Foreign({last: [content("Let me check.")]})).replay(trace)
    assert result.verdict == "changed"
    assert {item.kind for item in result.differences} >= {"call_added"}
    assert all(-1 <= item.step < len(inputs) for item in result.differences)


# --- how it runs ------------------------------------------------------------------------------------------------------


def test_it_is_asked_once_a_session_and_tells_its_time() -> None:
    stage = Foreign(as_served(), ns=12345)
    result = Replayer(stage).replay(record(opening(), STEPS))
    assert (stage.asked, result.ns) == (1, 12345)


def test_what_it_says_in_one_shot_is_a_split_of_its_own() -> None:
    thought, said = texts()
    tools = (ToolCall("x", "tide", TIDE), ToolCall("y", "moon", "{}"))
    same = Foreign(as_served(), one_shot=[Message(0, thought, said, None, tools, "tool_calls")])
    assert Replayer(same).replay(record(opening(), STEPS)).split_groups == ()
    other = Foreign(as_served(), one_shot=[Message(0, thought, said + CALLS, None, (), "stop")])
    result = Replayer(other).replay(record(opening(), STEPS))
    assert result.verdict == "changed"
    assert result.split_groups == (("recorded",), ("one_shot",))
    assert "one_shot" in result.marks


def test_a_one_shot_path_that_raises_where_streaming_does_not() -> None:
    result = Replayer(Foreign(as_served(), at_once="KeyError: 'tool_calls'")).replay(record(opening(), STEPS))
    assert (result.verdict, result.splits) == ("changed", {"recorded": "same", "one_shot": "changed"})
    assert result.breaches == (
        Breach("one_shot", "streaming gives a message, and the one-shot path raises KeyError: 'tool_calls'"),
    )
    assert "one_shot" in result.marks
    assert result.signature == Signature(verdict="changed", kind="raises", layer="one_shot")


class ByChance(Foreign):
    """A user's stage that happens to have these names."""

    foreign = False
    ns = one_shot = one_shot_error = "mine"  # type: ignore[assignment] # likewise

    def __init__(self) -> None:
        self.inner = catalog.parser("hermes")

    def start(self, opening: Opening) -> Any:
        return _Steps(self.inner.start(opening))


class _Steps:
    steps = 0

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def step(self, event: Input, out: list[Semantic]) -> None:
        self.steps += 1
        self.inner.step(event, out)

    def snapshot(self) -> msgspec.Struct:
        return Tick()


def test_names_that_a_users_stage_has_by_chance() -> None:
    result = Replayer(ByChance()).replay(record(opening(), STEPS))
    assert (result.verdict, result.error, result.splits) == ("same", None, {"recorded": "same"})


@pytest.mark.parametrize(
    ("error", "kind", "where"),
    [
        (Timeout("no answer within 60 s"), "Timeout", ""),
        (Crashed("killed by signal 9"), "Crashed", ""),
        (Unsupported("it encodes text"), "Unsupported", ""),
        (PeerError("list index out of range", "IndexError", "hermes_tool_parser.py:120"), "IndexError",
         "hermes_tool_parser.py:120"),
    ],
)  # fmt: skip
def test_how_it_fails(error: PeerError, kind: str, where: str) -> None:
    stage = Foreign({}, error=error)
    result = Replayer(stage).replay(record(opening(), STEPS))
    assert result.verdict == "failed"
    assert result.error is not None
    assert (result.error.type, result.error.message, result.error.where) == (kind, str(error), where)
    assert (result.error.layer, result.error.stage, result.error.seq) == ("semantic", Foreign.id, -1)
    # What took a minute to fail is not tried again to see who is to blame.
    assert stage.asked == 1


def test_custom_functions_see_no_ids() -> None:
    seen: set[str] = set()

    def watch(recorded: Sequence[Message], replayed: Sequence[Message]) -> Iterable[Any]:
        seen.update(call.id for side in (recorded, replayed) for message in side for call in message.tool_calls)
        return ()

    assert replayed(as_served(), compare=watch).verdict == "same"
    assert seen == {""}


def test_where_a_kind_stands_is_where_the_model_wrote_what_differs() -> None:
    """Another engine sends its text late: what the parser stood at by then says nothing of the text."""
    thought, said = texts()
    for late in (at_the_end(reasoning(thought), content(said), content("<tool_call>"), *calls()),
                 {**as_served(), LAST - 1: [content("<tool_call>")]}):  # fmt: skip
        result = replayed(late)
        assert result.signature is not None
        assert (result.signature.kind, result.signature.recorded) == ("marker_leaked", "")
        # The second call's marker: the last place at which it is written.
        assert result.signature.marker == "<tool_call>"
    lost = replayed(at_the_end(content(f"{thought}\n{said}"), *calls()))
    assert lost.signature is not None
    assert (lost.signature.state, lost.signature.marker) == ("reasoning", "<think>")


def test_the_first_character_that_differs_is_told() -> None:
    """However either side is cut into deltas."""
    thought, said = texts()
    result = replayed(
        at_the_end(reasoning(thought), content(said[:7]), content(said[7:12] + "?" + said[13:]), *calls())
    )
    assert result.first is not None
    assert result.first.detail == "text at character 12"
