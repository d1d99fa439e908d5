"""What no server should send, translated: nothing raises, nothing is lost silently, and what the client gets keeps the
rules of its own protocol."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest

from pipeline.upstream.stream import Stops
from stages import catalog
from stages.events import (
    Block,
    Body,
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    End,
    Fault,
    FaultCode,
    Finish,
    FinishInput,
    Head,
    Input,
    Meant,
    PromptInput,
    Semantic,
    ToldInput,
    Usage,
    UsageInput,
)
from stages.message import collect
from stages.protocols.lenient import as_list, as_object
from stages.protocols.rules import Evidence, check
from stages.stage import fold
from stages.upstream.frames import FrameSplitter
from stages.upstream.told import TOLD
from tests.support.captures import Capture, captures
from tests.upstream.test_decode_captures import frames_of
from tests.upstream.test_translate_captures import CARRIED, MODEL, STREAMS, opening_of, served

NO = (0, 0)
ODD: list[Any] = [
    None, -1, 0, 1, 3, 1 << 70, 1.5, "", "x", "\ud800", [], {}, True, [None], {"a": 1}, "tool_calls", "length",
]  # fmt: skip


@pytest.mark.parametrize("calls", ["incremental", "whole"])
@pytest.mark.parametrize("complete", [True, False])
def test_a_call_without_a_name(calls: str, complete: bool) -> None:
    """Nobody could answer it: it is a fault, and what is said in and behind it is kept."""
    opening = msgspec.structs.replace(opening_of(captures()[STREAMS[0]], "messages"), calls=calls)
    told: list[Meant] = [
        CallStart(0, 0, "c", "", NO), CallArguments(0, 0, '{"a":', NO), Content(0, "in", NO),
        CallArguments(0, 0, "1}", NO), CallEnd(0, 0, complete), Content(0, "out", NO),
    ]  # fmt: skip
    said: list[Input] = [ToldInput(one) for one in told]
    inputs = [PromptInput((), "", 7), *said, FinishInput(0, "eos"), UsageInput(7, 2)]
    events: list[Semantic] = fold(catalog.parser("told").start(opening), inputs)
    assert events[1:] == [
        Fault(0, FaultCode.MALFORMED_CALL, (0, 7), '{"a":1}', "the upstream does not say what is called"),
        Content(0, "in", (7, 9)), Content(0, "out", (9, 12)), Finish(0, "eos"), Usage(7, 2), End(),
    ]  # fmt: skip


def test_the_size_of_the_prompt_stays_as_it_was_told() -> None:
    """Clients of messages hear of it in the beginning."""
    inputs: list[Input] = [PromptInput((), "", 7, 2), FinishInput(0, "eos"), UsageInput(9, 2, 8)]
    assert Stops(lambda _: None, 1)(inputs, [0, 1, 2])[0][-1] == UsageInput(7, 2, 7)
    unknown: list[Input] = [PromptInput((), "", 0), FinishInput(0, "eos"), UsageInput(9, 2, 8)]
    assert Stops(lambda _: None, 1)(unknown, [0, 1, 2])[0][-1] == UsageInput(9, 2, 8)


class Spoiler:
    """Makes something else of a stream."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)

    def spoiled(self, data: bytes) -> bytes:
        blocks = data.split(b"\n\n")
        for _ in range(self._random.randint(1, 4)):
            if len(blocks) > 1:
                self._random.choice((self._gone, self._twice, self._swapped, self._byte, self._value, self._cut))(
                    blocks
                )
        return b"\n\n".join(blocks) + self._random.choice((b"", b"\n\n"))

    def _place(self, blocks: list[bytes]) -> int:
        return self._random.randrange(len(blocks))

    def _gone(self, blocks: list[bytes]) -> None:
        del blocks[self._place(blocks)]

    def _twice(self, blocks: list[bytes]) -> None:
        blocks.insert(self._place(blocks), blocks[self._place(blocks)])

    def _swapped(self, blocks: list[bytes]) -> None:
        one, other = self._place(blocks), self._place(blocks)
        blocks[one], blocks[other] = blocks[other], blocks[one]

    def _cut(self, blocks: list[bytes]) -> None:
        del blocks[self._place(blocks) + 1 :]

    def _byte(self, blocks: list[bytes]) -> None:
        place = self._place(blocks)
        block = bytearray(blocks[place] or b"x")
        block[self._random.randrange(len(block))] = self._random.randrange(256)
        blocks[place] = bytes(block)

    def _value(self, blocks: list[bytes]) -> None:
        place = self._place(blocks)
        head, brace, rest = blocks[place].partition(b"{")
        try:
            value = json.loads(brace + rest)
        except ValueError:
            return
        found = list(_holders(value))
        if found:
            holder, key = self._random.choice(found)
            holder[key] = self._random.choice(ODD)
            blocks[place] = head + json.dumps(value).encode()


def _holders(value: Any) -> list[tuple[Any, Any]]:
    """Every place of a JSON value: what holds it, and its key there."""
    items: list[tuple[Any, Any]] = [*as_object(value).items(), *enumerate(as_list(value))]
    return [found for key, item in items for found in ((value, key), *_holders(item))]


def spoiled(capture: Capture, seed: str) -> list[Any]:
    """The frames of a response that was spoiled."""
    head, *rest = frames_of(capture)
    data = Spoiler(seed).spoiled(capture.data)
    if isinstance(rest[0], Body):
        return [head, Body(data)]
    splitter = FrameSplitter()
    return [head, *splitter.feed(data), *splitter.end()]


@pytest.mark.parametrize("name", STREAMS)
def test_spoiled_responses(name: str) -> None:
    capture = captures()[name]
    for number in range(8):
        to = [other for other in CARRIED if other != capture.protocol][number % 2]
        opening = opening_of(capture, to)
        inputs = fold(TOLD.start(opening), [*spoiled(capture, f"{name} {number}"), End()])
        inputs = Stops(lambda _: None, opening.ask.n)(inputs, [0] * len(inputs))[0]
        semantic, frames = served(opening, inputs)
        assert [type(event) for event in semantic].count(End) == 1
        assert isinstance(semantic[-1], End)
        assert isinstance(frames[0], Head)
        if frames[0].status == 200:
            body = b"".join(frame.data for frame in frames if isinstance(frame, Block))
            evidence = Evidence(body=body, protocol=to, own=True, meant=collect(semantic), effort=True)  # type: ignore[arg-type]  # one of three
            found = [one for one in check(evidence).violations if one.rule not in MODEL]
            assert found == [], (number, found)
