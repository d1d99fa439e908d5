"""What a model wrote, read from an upstream's response: frames made by hand, and what comes of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from stages.events import AbortInput, Block, Body, End, Head, Input, TokensInput
from stages.opening import Ask, Opening, TokenizerFacts, UpstreamFacts
from stages.stage import fold
from stages.upstream.frames import FrameSplitter
from stages.upstream.inputs import INPUTS
from stages.upstream.machine import Wire


def opening(*, eos: tuple[int, ...] = (), relayed: bool = True, **ask: Any) -> Opening:
    """Of a session of an upstream. ``ask``: fields of Ask."""
    upstream = UpstreamFacts(name="up", url="http://up", path="/", depth="tokens", relayed=relayed)
    return Opening(
        session="s", key="k", response_id="r", created=0, opened=0, model="m", ask=Ask(**ask),
        tokenizer=TokenizerFacts(eos=eos), upstream=upstream,
    )  # fmt: skip


def event(value: Any) -> Block:
    """One JSON value as the block of an event."""
    return Block(b"data: " + json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode() + b"\n\n")


DONE = Block(b"data: [DONE]\n\n")


def stream(body: bytes, status: int = 200, last: Wire | None = None) -> list[Wire]:
    """A whole stream as frames, and its end."""
    splitter = FrameSplitter()
    return [Head(status, ()), *splitter.feed(body), *splitter.end(), End() if last is None else last]


def whole(body: bytes, status: int = 200) -> list[Wire]:
    """A response that is no stream."""
    return [Head(status, ()), Body(body), End()]


def read(way: str, events: Iterable[Wire], of: Opening | None = None) -> list[Input]:
    """What a way makes of frames."""
    return fold(INPUTS[way].start(opening() if of is None else of), events)


def told(way: str, *values: Any, of: Opening | None = None, last: Wire | None = None) -> list[Input]:
    """What a way makes of a stream of these JSON values, ``[DONE]`` and the end behind it; ``last``: without a
    ``[DONE]``, but with this."""
    frames: list[Wire] = [Head(200, ()), *map(event, values)]
    return read(way, [*frames, *([DONE, End()] if last is None else [last])], of)


def tokens(inputs: Iterable[Input]) -> dict[int, list[tuple[int, ...]]]:
    """The ids of each choice's steps."""
    found: dict[int, list[tuple[int, ...]]] = {}
    for made in inputs:
        if isinstance(made, TokensInput):
            found.setdefault(made.choice, []).append(made.ids)
    return found


def resumed(way: str, events: Iterable[Wire], of: Opening) -> list[Input]:
    """As ``read``, by a machine that is made anew from its snapshot after every event; the snapshots that were taken
    on the way are still the same at the end."""
    stage = INPUTS[way]
    machine, out = stage.start(of), list[Input]()
    for item in events:
        before = machine.snapshot()
        kept = repr(before)
        machine.step(item, out)
        assert repr(before) == kept
        machine = stage.resume(of, machine.snapshot())
    return out


GONE = AbortInput("client")
