"""The answer to a trial request: its frames, and whether two of them are alike."""

from __future__ import annotations

import json
from typing import Any, Final, Literal, NamedTuple

from pipeline.upstream.loose import tables, value
from stages.events import Block, End, Frame, Head
from stages.opening import Ask, Opening, UpstreamFacts
from stages.stage import fold
from stages.upstream.frames import FrameSplitter
from stages.upstream.relay import RELAY

_HEAD: Final = Head(200, (("content-type", "text/event-stream"),))
_EXACT: Final = frozenset({"object", "finish_reason", "role", "type", "index"})
"""What is the same in two answers of the same server, whatever the model wrote."""


class Trial(NamedTuple):
    """``events``: the JSON objects of its data lines, or the body, if that is one. ``frames``: without comments."""

    status: int
    frames: list[Block]
    events: list[dict[str, Any]]

    @property
    def passing(self) -> bool:
        """It may well be answered otherwise in a while, or for somebody else."""
        return self.status in (401, 403, 408, 425, 429) or self.status >= 500

    @property
    def choices(self) -> list[dict[str, Any]]:
        """Of all events."""
        return [choice for event in self.events for choice in tables(event.get("choices"))]

    def has(self, key: str) -> bool:
        """A choice of an event has this key, whatever its value."""
        return any(key in choice for choice in self.choices)


def trial_of(status: int, body: bytes) -> Trial:
    """A response read whole. Raises nothing."""
    splitter = FrameSplitter()
    frames = [frame for frame in (*splitter.feed(body), *splitter.end()) if isinstance(frame, Block)]
    return Trial(status, frames, tables([value(_data(frame)) for frame in frames]))


def ids_in(trial: Trial) -> bool:
    """A choice of an event has token ids."""
    return any(choice.get("token_ids") for choice in trial.choices)


def same_without_ids(plain: Trial, more: Trial, taken_out: Literal["null", "absent"]) -> bool:
    """Taking the ids out of the second gives the first, but for what differs between any two answers."""
    opening = Opening(
        session="", key="", response_id="", created=0, opened=0, model="", ask=Ask(stream=True),
        upstream=UpstreamFacts(name="", url="", path="", depth="tokens", taken_out=taken_out),
    )  # fmt: skip
    frames: list[Frame | End] = [_HEAD, *more.frames, End()]
    relayed = fold(RELAY.start(opening), frames)
    left = [frame for frame in relayed if isinstance(frame, Block)]
    return [_shape(_ordered(_data(frame))) for frame in left] == [_shape(_ordered(_data(f))) for f in plain.frames]


def _shape(found: Any) -> Any:
    """Keys in order, and of values only what is the same in any two answers."""
    if isinstance(found, _Pairs):
        return [(key, item if key in _EXACT else _shape(item)) for key, item in found.items]
    if found.__class__ is list:
        return [_shape(item) for item in found]
    return found if found is None or isinstance(found, bool | bytes) else found.__class__.__name__


class _Pairs(NamedTuple):
    items: list[tuple[str, Any]]


def _ordered(data: bytes) -> Any:
    """The JSON value with its keys in order; what is none as it is."""
    try:
        return json.loads(data, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError):
        return data


def _data(frame: Block) -> bytes:
    return frame.data.strip().removeprefix(b"data:").strip()
