"""Replay turns red for each of a list of spoiled stages: at the right layer, with the right first divergence."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec
import pytest

from replay.run import Replayer
from replay.verdict import Kind, Verdict
from stages.events import (
    Block,
    Body,
    CallArguments,
    CallEnd,
    CallStart,
    Comment,
    Content,
    Done,
    End,
    Fault,
    FaultCode,
    Finish,
    Head,
    Layer,
    Marker,
    Reasoning,
    Start,
    Tokens,
    Usage,
)
from stages.protocols.openai_chat import ChatChunk
from store.api import Trace
from tests.support.replay import (
    SAID,
    Change,
    Picks,
    every,
    last,
    late,
    lost,
    nth,
    one_character,
    only,
    opening,
    record,
    spoiled,
    tokens,
    twice,
    whole,
)

replace = msgspec.structs.replace


def trace(**ask: Any) -> Trace:
    return record(opening(**ask), whole(tokens(SAID)))


def index(trace: Trace, layer: Layer, picks: Picks, nth: int = 0) -> int:
    """seq of the n-th recorded event that is picked; -1 is the last."""
    return [seq for seq, event in enumerate(trace.events("served", layer)) if picks(event)][nth]


class Case(NamedTuple):
    name: str
    make: Callable[[], Change]
    verdict: Verdict
    kind: Kind
    picks: Picks
    nth: int
    """The recorded event at which the first divergence must be: the n-th that ``picks`` picks."""


def one(name: str, kind: Kind, what: type | Picks, number: int, change: Change, at: int | None = None) -> Case:
    """The n-th event is spoiled; the divergence is there, or at the ``at``-th of its kind."""
    picks = only(what) if isinstance(what, type) else what
    return Case(name, nth(picks, number, change), "changed", kind, picks, number if at is None else at)


def is_opener(event: Any) -> bool:
    return isinstance(event, Marker) and "<tool_call>" in event.text


def is_second_call(event: Any) -> bool:
    return isinstance(event, CallStart | CallArguments | CallEnd) and event.index == 1


def is_long_content(event: Any) -> bool:
    return isinstance(event, Content) and len(event.text) > 1


def with_fields(**fields: Any) -> Change:
    return lambda event: [replace(event, **fields)]


def as_content(event: Any) -> Iterable[Any]:
    return [Content(event.choice, event.text, event.src)]


def next_index(event: Any) -> Iterable[Any]:
    return [replace(event, index=event.index + 1)]


def shifted(event: Any) -> Iterable[Any]:
    return [replace(event, src=(event.src[0] + 1, event.src[1]))]


def then_a_call(event: Any) -> Iterable[Any]:
    return [event, CallStart(0, 2, "call_2", "tide", (0, 0)), CallEnd(0, 2, True)]


def after_a_fault(event: Any) -> Iterable[Any]:
    return [Fault(0, FaultCode.UNCLOSED_CALL, (0, 0)), event]


def halves(event: Any) -> Iterable[Any]:
    start, end = event.src
    middle = start + len(event.text[:1].encode())
    first = replace(event, text=event.text[:1], src=(start, middle))
    return [first, replace(event, text=event.text[1:], src=(middle, end))]


SEMANTIC = [
    one("dropped marker", "marker", Marker, 0, lost),
    Case("late emission", late(only(Content)), "moved", "timing", only(Content), 0),
    one("doubled delta", "text", Content, 1, twice, at=2),
    one("lost first delta", "text", Content, 0, lost),
    one("lost delta in the middle", "text", Reasoning, 2, lost),
    Case("swapped kind", every(only(Reasoning), as_content), "changed", "boundary", only(Reasoning), 0),
    Case(
        "wrong index of arguments", every(only(CallArguments), next_index), "changed", "call_arguments",
        only(CallArguments), 0,
    ),
    one("one changed character", "text", Content, 1, one_character),
    one("one changed character of arguments", "call_arguments", CallArguments, 1, one_character),
    one("wrong name", "call_name", CallStart, 1, with_fields(name="sun")),
    one("wrong id", "call_id", CallStart, 0, with_fields(id="call_0")),
    one("call never ends", "call_complete", CallEnd, 1, lost),
    one("call cut off", "call_complete", CallEnd, 0, with_fields(complete=False)),
    Case("call lost", every(is_second_call, lost), "changed", "call_lost", is_second_call, 0),
    one("call added", "call_added", CallEnd, 1, then_a_call),
    one("marker leaked", "marker_leaked", is_opener, 0, as_content),
    one("src shifted", "src", Reasoning, 0, shifted),
    one("finish reason", "finish_reason", Finish, 0, with_fields(reason="length")),
    one("finish detail", "finish_detail", Finish, 0, with_fields(detail=None)),
    one("usage", "usage", Usage, 0, with_fields(reasoning=99)),
    one("no start", "start", Start, 0, lost),
    one("no end", "end", End, 0, lost),
    one("tokens lost", "tokens", Tokens, 3, lost),
    one("fault invented", "fault", Finish, 0, after_a_fault),
    Case("rechunked", nth(is_long_content, 0, halves), "rechunked", "chunking", is_long_content, 0),
]  # fmt: skip

AT_THE_PLACE: dict[str, Kind] = {
    "wrong index of arguments": "call_index",
    "call never ends": "marker",
    "call lost": "marker",
    "call added": "marker",
    "marker leaked": "marker",
    "finish reason": "finish_reason",
    "fault invented": "fault_detail",
}
"""What differs where the sides part, where that is not what it does to the message."""

INVENTED = {"fault invented": "fault choice=0", "call added": "call_start choice=0 index=2"}
"""Events that stand against no recorded one, or against whatever comes next."""


@pytest.mark.parametrize("case", SEMANTIC, ids=lambda case: case.name)
def test_a_spoiled_parser_is_seen_in_the_semantic_layer(case: Case) -> None:
    session = trace(include_usage=True, logprobs=True)
    result = Replayer(assemble=spoiled("semantic", case.make)).replay(session)
    assert result.verdict == case.verdict
    assert result.layers["semantic"] == case.verdict
    assert result.first is not None
    assert result.first.layer == "semantic"
    assert (result.first.worst or result.first.kind) == case.kind
    assert result.first.kind == AT_THE_PLACE.get(case.name, case.kind)
    if case.name in INVENTED:
        assert result.first.replayed is not None
        assert result.first.replayed.event.startswith(INVENTED[case.name])
    else:
        assert result.first.recorded is not None
        assert result.first.seq == result.first.recorded.seq == index(session, "semantic", case.picks, case.nth)
    assert result.first.cause >= 0
    assert result.first.input
    if case.name == "late emission":
        assert result.first.detail == "1 token later"


ON_THE_WIRE: dict[str, Verdict] = {
    "dropped marker": "same",
    "src shifted": "same",
    "finish detail": "same",
    "tokens lost": "same",
    "fault invented": "same",
    "no start": "moved",
}
"""What clients do not see, or only later: markers, byte ranges, faults, which token ended it. All else they see."""


@pytest.mark.parametrize("case", SEMANTIC, ids=lambda case: case.name)
def test_what_clients_see_of_a_spoiled_parser(case: Case) -> None:
    result = Replayer(assemble=spoiled("semantic", case.make)).replay(trace(include_usage=True))
    assert result.layers["chunk"] == ON_THE_WIRE.get(case.name, case.verdict)
    hidden = [note for note in result.notes if note.startswith("clients receive the same")]
    assert len(hidden) == (case.verdict == "changed" and ON_THE_WIRE.get(case.name) == "same")
    assert result.layers["frame"] == ON_THE_WIRE.get(case.name, case.verdict)


def test_a_lost_tail_is_text_that_ends_early() -> None:
    session = trace()
    result = Replayer(assemble=spoiled("semantic", last(only(Reasoning)))).replay(session)
    assert result.verdict == "changed"
    assert result.first is not None
    assert result.first.worst == "text"
    assert result.first.seq == index(session, "semantic", only(Reasoning), -1)
    assert [item.kind for item in result.differences] == ["text"]


def is_text(event: Any) -> bool:
    return isinstance(event, ChatChunk) and bool(event.choices) and bool(event.choices[0].delta.content)


def with_delta(**fields: Any) -> Change:
    def change(event: ChatChunk) -> Iterable[Any]:
        choice = event.choices[0]
        return [replace(event, choices=(replace(choice, delta=replace(choice.delta, **fields)),))]

    return change


def other_choice(event: Any) -> Iterable[Any]:
    return [replace(event, choices=(replace(event.choices[0], index=1),))]


CHUNK = [
    one("chunk lost", "chunk", is_text, 1, lost),
    one("chunk doubled", "chunk", is_text, 1, twice, at=2),
    Case("chunk late", late(is_text), "moved", "timing", is_text, 0),
    one("one changed character", "chunk", is_text, 1, with_delta(content="#")),
    one("wrong choice", "chunk", is_text, 0, other_choice),
    one("no done", "chunk", Done, 0, lost),
    one("no role", "chunk", ChatChunk, 0, lost),
    Case("another id", every(only(ChatChunk), with_fields(id="x")), "changed", "chunk", only(ChatChunk), 0),
]


@pytest.mark.parametrize("case", CHUNK, ids=lambda case: case.name)
def test_a_spoiled_encoder_is_seen_in_the_chunk_layer(case: Case) -> None:
    session = trace()
    result = Replayer(assemble=spoiled("chunk", case.make)).replay(session)
    assert result.verdict == case.verdict
    assert (result.layers["message"], result.layers["semantic"], result.layers["chunk"]) == (
        "same",
        "same",
        case.verdict,
    )
    assert result.first is not None
    assert (result.first.layer, result.first.kind) == ("chunk", case.kind)
    assert result.first.seq == index(session, "chunk", case.picks, case.nth)


def with_data(change: Callable[[bytes], bytes]) -> Change:
    return lambda event: [replace(event, data=change(event.data))]


def is_done(event: Any) -> bool:
    return isinstance(event, Block) and b"[DONE]" in event.data


FRAME = [
    one("frame lost", "frame", Block, 1, lost),
    one("frame doubled", "frame", Block, 1, twice, at=2),
    one("one changed byte", "frame", Block, 2, with_data(lambda data: data[:-3] + b"#" + data[-2:])),
    one("a line end more", "frame", Block, 2, with_data(lambda data: data + b"\n")),
    one("no [DONE]", "frame", is_done, 0, lost),
    one("another status", "frame", Head, 0, with_fields(status=201)),
    one("a header less", "frame", Head, 0, lambda event: [replace(event, headers=event.headers[1:])]),
    one("a comment in place of a block", "frame", Block, 1, lambda event: [Comment(event.data)]),
]


@pytest.mark.parametrize("case", FRAME, ids=lambda case: case.name)
def test_a_spoiled_framer_is_seen_in_the_frame_layer(case: Case) -> None:
    session = trace()
    result = Replayer(assemble=spoiled("frame", case.make)).replay(session)
    assert result.layers == {"message": "same", "semantic": "same", "chunk": "same", "frame": case.verdict}
    assert result.first is not None
    assert (result.first.layer, result.first.kind) == ("frame", case.kind)
    assert result.first.seq == index(session, "frame", case.picks, case.nth)
    if case.name == "one changed byte":
        before = session.events("served", "frame")[result.first.seq].data
        assert result.first.detail == f"byte {len(before) - 3}"
        assert result.first.recorded is not None and result.first.replayed is not None
        assert result.first.recorded.event.endswith("}\\n\\n'")  # the place is shown, not the envelope before it
        assert result.first.replayed.event.endswith("#\\n\\n'")


def test_a_spoiled_body_is_seen() -> None:
    session = record(opening(stream=False), whole(tokens(SAID)))
    make = nth(only(Body), 0, with_data(lambda data: data.replace(b'"choices"', b'"choice"')))
    result = Replayer(assemble=spoiled("frame", make)).replay(session)
    assert result.verdict == "changed"
    assert result.first is not None
    assert result.first.detail == f"byte {session.events('served', 'frame')[1].data.index(b'choices') + 6}"


@pytest.mark.parametrize("depth", ["message", "semantic", "chunk", "frame"])
def test_the_depth_decides_what_counts(depth: Any) -> None:
    """A dropped marker is no matter of the message; a spoiled frame none of the chunk layer."""
    session = trace()
    marker = Replayer(layer=depth, assemble=spoiled("semantic", nth(only(Marker), 0, lost))).replay(session)
    assert marker.verdict == ("same" if depth == "message" else "changed")
    frame = Replayer(layer=depth, assemble=spoiled("frame", nth(only(Block), 1, lost))).replay(session)
    assert frame.verdict == ("changed" if depth == "frame" else "same")
    text = Replayer(layer=depth, assemble=spoiled("semantic", nth(only(Content), 1, one_character))).replay(session)
    assert text.verdict == "changed"
