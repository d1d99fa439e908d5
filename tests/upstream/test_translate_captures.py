"""Responses of real servers (data/captures) in every other protocol: the message that the engine meant, and clean."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from stages import catalog
from stages.events import (
    AbortInput,
    Block,
    End,
    Failure,
    Fault,
    Finish,
    Frame,
    Head,
    Input,
    Semantic,
    ToldInput,
    Usage,
    UsageInput,
)
from stages.message import Message, collect
from stages.opening import EngineFacts, Opening, UpstreamFacts
from stages.protocols.rules import Evidence, check
from stages.stage import fold
from stages.upstream.asked import asked
from stages.upstream.decode import DECODERS
from stages.upstream.told import TOLD
from tests.support.captures import Capture, captures
from tests.upstream.test_decode_captures import frames_of

CARRIED = ("chat", "responses", "messages")
STREAMS = sorted(
    name
    for name, capture in captures().items()
    if capture.http.status == 200 and capture.protocol in CARRIED and capture.request.get("n", 1) == 1
)
PAIRS = [(name, to) for name in STREAMS for to in CARRIED if to != captures()[name].protocol]
MODEL = {
    # What the model, or the server that sent the capture, made of it.
    "INV-030", "INV-032", "INV-036", "INV-037", "INV-038", "INV-055",
}  # fmt: skip


def opening_of(capture: Capture, to: str, **more: Any) -> Opening:
    """Of a session in which a client of protocol ``to`` was served from the capture."""
    ask = msgspec.structs.replace(
        asked(capture.protocol, msgspec.json.encode(capture.request)),
        stream=True, include_usage=True, return_token_ids=False, stop=(), continuous_usage=False,
        logprobs=to == "chat", top_logprobs=0,
    )  # fmt: skip
    facts = UpstreamFacts(name="up", url="", path="", depth="verbatim", relayed=False, protocol=capture.protocol)
    return Opening(
        session="s", key="k", response_id=f"{catalog.PROTOCOLS[to].prefix}s", created=1760000000, opened=0,
        model="demo-1", protocol=to, ask=ask, parser="told", upstream=facts,
        engine=EngineFacts(kind="upstream", model="demo-1"), **more,
    )  # fmt: skip


def inputs_of(capture: Capture, opening: Opening) -> list[Input]:
    return fold(TOLD.start(opening), [*frames_of(capture), End()])


def served(opening: Opening, inputs: list[Input]) -> tuple[list[Semantic], list[Frame]]:
    layers = catalog.layers(opening)
    semantic = fold(layers.semantic.start(opening), inputs)
    return semantic, fold(layers.framer.start(opening), fold(layers.encoder.start(opening), semantic))


def bare(messages: list[Message]) -> list[Message]:
    """Faults are ours: no server tells them."""
    return [msgspec.structs.replace(message, faults=()) for message in messages]


@pytest.mark.parametrize(("name", "to"), PAIRS)
def test_the_message_that_the_server_sent(name: str, to: str) -> None:
    capture = captures()[name]
    opening = opening_of(capture, to)
    theirs = fold(DECODERS[capture.protocol].start(opening), [*frames_of(capture), End()])
    inputs = inputs_of(capture, opening)
    semantic, frames = served(opening, inputs)
    if capture.request.get("parallel_tool_calls") is not False:
        assert bare(collect(semantic)) == bare(collect(theirs))
    usage = [event for event in theirs if isinstance(event, Usage)]
    failed = any(isinstance(event, Failure) for event in theirs)
    told = [event for event in semantic if isinstance(event, Usage)]
    assert told == usage or (not usage and (len(told) == 1) != failed)
    if frames[0] != Head(200, frames[0].headers if isinstance(frames[0], Head) else ()):
        # The server's stream began with an error: nothing but that is told, with its status.
        assert failed
        assert len(semantic) == 2
        return
    body = b"".join(frame.data for frame in frames if isinstance(frame, Block))
    found = check(Evidence(body=body, protocol=to, own=True, meant=collect(semantic), effort=True))  # type: ignore[arg-type]  # a test parameter is a str
    assert [one for one in found.violations if one.rule not in MODEL] == []


@pytest.mark.parametrize(("name", "to"), PAIRS)
def test_every_byte_that_was_told_is_owned_once(name: str, to: str) -> None:
    capture = captures()[name]
    opening = opening_of(capture, to)
    events: list[Any] = fold(catalog.parser("told").start(opening), inputs_of(capture, opening))
    owned = [event.src for event in events if hasattr(event, "src") and not isinstance(event, Fault)]
    assert [start for start, _ in owned] == [0, *(end for _, end in owned)][: len(owned)]


@pytest.mark.parametrize("name", STREAMS)
def test_both_stages_go_on_from_any_snapshot(name: str) -> None:
    capture = captures()[name]
    opening = opening_of(capture, "chat" if capture.protocol != "chat" else "messages")
    parser: Any = catalog.parser("told")
    wanted: list[Semantic] = []
    made: list[Semantic] = []
    inputs: list[Input] = []
    reader, machine, whole = TOLD.start(opening), parser.start(opening), parser.start(opening)
    for frame in [*frames_of(capture), End()]:
        given: list[Input] = []
        reader.step(frame, given)
        reader = TOLD.resume(opening, reader.snapshot())
        for event in given:
            machine.step(event, made)
            whole.step(event, wanted)
            machine = parser.resume(opening, machine.snapshot())
        inputs += given
    assert made == wanted
    assert inputs == inputs_of(capture, opening)
    assert [type(event) for event in made if isinstance(event, End)] == [End]


@pytest.mark.parametrize("name", STREAMS)
def test_a_response_that_is_cut_anywhere_ends(name: str) -> None:
    capture = captures()[name]
    opening = opening_of(capture, "messages" if capture.protocol == "chat" else "chat")
    frames = frames_of(capture)
    for last in (End(), AbortInput("client")):
        for cut in range(len(frames)):
            inputs = fold(TOLD.start(opening), [*frames[:cut], last])
            semantic, _ = served(opening, inputs)
            assert isinstance(semantic[-1], End)
            assert isinstance(semantic[-2], Failure | Usage)
            ends = [event for event in inputs if not isinstance(event, ToldInput)][-1]
            assert isinstance(ends, UsageInput) == isinstance(semantic[-2], Usage)
            if isinstance(semantic[-2], Usage):
                assert any(isinstance(event, Finish) for event in semantic)
