"""The upstream's side of a session: what it answers is cut into frames, recorded as it came, and read twice: for what
the upstream took it for, and for what the model wrote."""

from __future__ import annotations

from typing import Any

from pipeline.channels import Tap
from pipeline.recorder import SessionRecorder
from pipeline.upstream.client import Exchange
from pipeline.upstream.headers import limits, recorded_response
from pipeline.vocabulary import Vocabulary
from stages.events import AbortInput, Block, Body, End, ErrorInput, Frame, Head, Input, Semantic
from stages.opening import Opening
from stages.stage import Machine, Stage
from stages.upstream.frames import FrameSplitter, is_encoded, is_event_stream

LARGEST = 64 << 20
"""Bytes of a response that is no event stream, and is kept in memory until it is whole."""
_TOO_LARGE = ErrorInput(
    "engine", f"The upstream's answer is larger than the {LARGEST} bytes that this server takes.", "upstream_too_large"
)


class Reader:
    """Takes the reads of one response. ``decoder``: frames → semantic, None where the upstream takes it for nothing;
    ``inputs``: frames → engine inputs, None where the response does not tell what the model wrote."""

    def __init__(
        self,
        opening: Opening,
        recorder: SessionRecorder,
        decoder: Stage[Any, Semantic] | None,
        inputs: Stage[Any, Input] | None,
        vocabulary: Vocabulary | None,
    ) -> None:
        self._tap: Tap = recorder.tap("upstream", "frame")
        self._tap_semantic: Tap = recorder.tap("upstream", "semantic")
        self._decoder: Machine[Any, Semantic] | None = None if decoder is None else decoder.start(opening)
        self._inputs: Machine[Any, Input] | None = None if inputs is None else inputs.start(opening)
        self._vocabulary = vocabulary
        self._splitter = FrameSplitter()
        self._whole: list[bytes] = []
        self._size = 0
        self._streams = False
        self._seq = 0
        self.opaque = False
        """The response is compressed: it is kept, but not read."""
        self.failed: ErrorInput | None = None
        """Why the response cannot be taken any further."""
        self.limits: list[tuple[str, str]] = []
        """Headers that tell a client how much it may ask, and when again."""
        self.withheld: tuple[tuple[str, str], ...] = ()
        """Headers of the response that are not recorded, but are the client's."""

    def head(self, exchange: Exchange) -> list[Frame]:
        """The response has begun: its head as it is recorded."""
        recorded = recorded_response(exchange.headers)
        self.limits = limits(exchange.headers)
        self.withheld = tuple(item for item in exchange.headers if item not in recorded)
        self._streams, self.opaque = is_event_stream(exchange.headers), is_encoded(exchange.headers)
        if self.opaque:
            self._inputs = None
        head = Head(exchange.status, recorded)
        self._tap([head], [])
        return [head]

    def take(self, data: bytes) -> list[Frame]:
        """The frames that a read completes. Sets ``failed`` where there is too much."""
        frames: list[Frame] = []
        if self._streams and not self.opaque:
            frames += self._splitter.feed(data)
        elif self._streams:
            # What is compressed is passed on as it comes.
            frames.append(Block(data))
        else:
            self._size += len(data)
            self._whole.append(data)
            if self._size > LARGEST:
                self.failed = _TOO_LARGE
        if frames:
            self._tap(frames, [])
        return frames

    def rest(self) -> list[Frame]:
        """What the end of the body leaves."""
        frames: list[Frame] = [*self._splitter.end()]
        if self._whole or not self._streams:
            frames.append(Body(b"".join(self._whole)))
            self._whole = []
        if frames:
            self._tap(frames, [])
        return frames

    def read(self, events: list[Frame | End | ErrorInput | AbortInput]) -> tuple[list[Input], list[int]]:
        """What frames, or the end, mean: the upstream's view is recorded, the engine's is given, each input with the
        number of its frame."""
        semantic: list[Semantic] = []
        inputs: list[Input] = []
        causes: list[int] = []
        sources: list[int] = []
        for event in events:
            ends = isinstance(event, End | ErrorInput | AbortInput)
            cause = self._seq - 1 if ends else self._seq
            self._seq = cause + 1
            if self._decoder is not None:
                self._decoder.step(event, semantic)
                causes += [cause] * (len(semantic) - len(causes))
            if self._inputs is not None:
                self._inputs.step(event, inputs)
            elif isinstance(event, ErrorInput | AbortInput):
                inputs.append(event)
            sources += [cause] * (len(inputs) - len(sources))
        if semantic:
            self._tap_semantic(semantic, causes)
        if inputs and self._vocabulary is not None:
            inputs = self._vocabulary.joined(inputs)
        return inputs, sources
