"""An error that is not of a session's record, behind any part of its stream: it closes what is open, goes on with the
stream's numbers, and nothing follows an end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from pipeline.failing import Sent, error_chunks, error_frames
from pipeline.http.reading import Reading
from stages import catalog
from stages.events import Block, ErrorChunk, Failure, Frame, Head, Tick
from stages.opening import Opening, UpstreamFacts
from stages.protocols.rules import PROTOCOLS, Evidence, Protocol, check
from stages.stage import fold
from store import MemoryStore
from store.api import Record, SessionInfo, Trace
from tests.support import replay
from tests.support.chat import body_of

FAILURE = Failure("overloaded", "It broke.", "broken")
UPSTREAM = UpstreamFacts(name="up", url="http://up", path="/v1", depth="verbatim")


def opened(protocol: Protocol, upstream: UpstreamFacts | None = None) -> Opening:
    made = msgspec.structs.replace(
        replay.opening(parser="plain" if protocol == "completions" else "hermes"), protocol=protocol,
        response_id=f"{catalog.PROTOCOLS[protocol].prefix}a1", upstream=upstream,
    )  # fmt: skip
    return msgspec.structs.replace(made, stages=catalog.stage_ids(catalog.layers(made)))


def served(opening: Opening) -> tuple[list[Any], list[Frame]]:
    """The chunks and frames of a stream with reasoning, text and two calls."""
    layers = catalog.layers(opening)
    inputs = replay.whole([Tick(), *replay.tokens(replay.SAID, size=9)])
    chunks = fold(layers.encoder.start(opening), fold(layers.semantic.start(opening), inputs))
    return chunks, fold(layers.framer.start(opening), chunks)


def sent(frames: Sequence[Frame]) -> Sent:
    made = Sent()
    made.take(frames)
    return made


def assert_right(before: Sequence[Frame], made: Sequence[Frame], protocol: Protocol, *, own: bool = True) -> None:
    """Behind another server's an error is told in two ways, as the official clients need it; and where that has no
    event yet, it is the first one: the response is not ours to begin."""
    begun = any(isinstance(frame, Block) for frame in before)
    allowed = {"INV-036", *(() if own else ("INV-113",)), *(() if own or begun else ("INV-092",))}
    body = body_of(before) + body_of(made)
    report = check(Evidence(body=body, protocol=protocol, own=own, request={"stream": True}))
    assert [one for one in report.violations if one.rule not in allowed] == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_behind_every_frame(protocol: Protocol) -> None:
    opening = opened(protocol)
    _, frames = served(opening)
    blocks = [place for place, frame in enumerate(frames) if isinstance(frame, Block)]
    for cut in range(1, len(frames) + 1):
        made = error_frames(opening, FAILURE, sent(frames[:cut]))
        assert bool(made) is (cut <= blocks[-1])
        assert_right(frames[:cut], made, protocol)
        assert (b"It broke." in body_of(made)) is bool(made)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_behind_every_chunk(protocol: Protocol) -> None:
    """An encoder that fails leaves a stream like one whose frames are known."""
    opening = opened(protocol)
    chunks, _ = served(opening)
    framer = catalog.layers(opening).framer
    for cut in range(1, len(chunks) + 1):
        last = next((chunk for chunk in reversed(chunks[:cut]) if not isinstance(chunk, Tick)), chunks[0])
        made = fold(framer.start(opening), [*chunks[:cut], *error_chunks(opening, FAILURE, last)])
        before = fold(framer.start(opening), chunks[:cut])
        assert made == [*before, *error_frames(opening, FAILURE, sent(before))]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_before_anything_was_sent(protocol: Protocol) -> None:
    opening = opened(protocol)
    head, body = error_frames(opening, FAILURE, Sent())
    assert isinstance(head, Head)
    assert head.status == 503
    assert b"It broke." in body_of([body])
    assert isinstance(error_chunks(opening, FAILURE, None)[0], ErrorChunk)


def test_responses_go_on_with_their_numbers() -> None:
    opening = opened("responses")
    _, frames = served(opening)
    body = body_of([*frames[:9], *error_frames(opening, FAILURE, sent(frames[:9]))])
    events = [json.loads(line[6:]) for line in body.decode().splitlines() if line.startswith("data: ")]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[-1]["type"] == "error"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_behind_every_frame_of_another_server(protocol: Protocol) -> None:
    """Also where a block was cut."""
    _, frames = served(opened(protocol))
    opening = opened(protocol, UPSTREAM)
    for cut in range(1, len(frames) + 1):
        made = error_frames(opening, FAILURE, sent(frames[:cut]))
        assert_right(frames[:cut], made, protocol, own=False)
    whole = frames[5]
    assert isinstance(whole, Block)
    half = Block(whole.data[:-1])
    made = error_frames(opening, FAILURE, sent([*frames[:5], half]))
    assert body_of(made).startswith(b"\n\n")
    assert sent([*frames[:5], half, Block(whole.data[-1:])]).torn is False


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("cut", [0, 1, 4, 9, 14])
def test_a_torn_session_whose_stages_are_gone(protocol: Protocol, cut: int) -> None:
    """What it would have been nobody can make: the error is the server's own."""
    opening = msgspec.structs.replace(opened(protocol), stages={"parser": "parse.gone@1"})
    _, frames = served(opened(protocol))
    rows = [Record(seq, 0, 0, frame) for seq, frame in enumerate(frames[:cut])]
    info = SessionInfo(session=opening.session, opened=0, state="torn", mode="full", protocol=protocol)
    store = MemoryStore()
    store.save([Trace(opening=opening, info=info, records={("served", "frame"): rows})])
    reading = Reading(store, opening.session, lambda _name: None)
    made: list[Frame] = []
    while not reading.over:
        made += reading.read()
    assert reading.tail
    assert made[:cut] == frames[:cut]
    if cut:
        assert_right(made[:cut], made[cut:], protocol)
    assert b"interrupted" in body_of(made)
