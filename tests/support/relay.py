"""The relay with an opening of its own, and the golden streams as frames of another server."""

from __future__ import annotations

from typing import Literal

from stages.events import Block, Comment, Frame, Head
from stages.opening import Opening, UpstreamFacts
from stages.stage import fold
from stages.upstream.frames import FrameSplitter
from stages.upstream.relay import RELAY, Relayed
from tests.support.wire import golden

PROTOCOLS = ("chat", "completions", "responses", "messages")
STREAM = Head(200, (("content-type", "text/event-stream; charset=utf-8"),))
JSON = Head(200, (("content-type", "application/json"),))
_GOLDEN = {"chat": "G01", "completions": "G07", "responses": "G09", "messages": "G12"}
TakenOut = Literal["", "null", "absent"]


def opening(protocol: str = "chat", taken_out: TakenOut = "") -> Opening:
    """Of a relayed session. ``taken_out``: as in UpstreamFacts."""
    return Opening(
        session="s", key="k", response_id="r_1", created=0, opened=0, model="m", protocol=protocol,
        upstream=UpstreamFacts(name="u", url="http://u", path="/v1", depth="tokens", taken_out=taken_out),
    )  # fmt: skip


def relay(*events: Relayed, protocol: str = "chat", taken_out: TakenOut = "") -> list[Frame]:
    """What the client gets."""
    return fold(RELAY.start(opening(protocol, taken_out)), events)


def stream_of(protocol: str) -> bytes:
    """The body of a healthy stream."""
    return golden(_GOLDEN[protocol]).body


def frames_of_stream(protocol: str) -> list[Block | Comment]:
    """Its frames."""
    return FrameSplitter().feed(stream_of(protocol))
