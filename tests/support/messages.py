"""Messages: openings, streams as semantic events, and the official SDK reading our bytes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import anthropic as client
import httpx2
import msgspec

from stages.events import (
    Block,
    Body,
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    End,
    Failure,
    Finish,
    Frame,
    Head,
    Reasoning,
    Refusal,
    Semantic,
    Start,
    Tokens,
    Usage,
)
from stages.opening import Ask, EngineFacts, Opening
from stages.protocols.anthropic import ENCODER, ChunkLayer
from stages.sse import FRAMER
from stages.stage import fold
from tests.support.chat import body_of

STREAM = Ask(stream=True, include_usage=True)


def opening(ask: Ask = STREAM, request: dict[str, Any] | None = None) -> Opening:
    """An opening with the envelope of the golden streams."""
    return Opening(
        session="s", key="k", response_id="msg_a1", created=1760000000, opened=0, model="demo-1", protocol="messages",
        ask=ask, request=json.dumps(request or {}).encode(),
        engine=EngineFacts(kind="scripted", model="demo-1"),
    )  # fmt: skip


def chunks_of(events: Iterable[Semantic], ask: Ask = STREAM, request: dict[str, Any] | None = None) -> list[ChunkLayer]:
    """The encoder over events."""
    return fold(ENCODER.start(opening(ask, request)), events)


def frames_of(events: Iterable[Semantic], ask: Ask = STREAM, request: dict[str, Any] | None = None) -> list[Frame]:
    """Encoder and framer over events."""
    return fold(FRAMER.start(opening(ask, request)), chunks_of(events, ask, request))


def payloads(frames: Iterable[Frame]) -> list[Any]:
    """The JSON values of a stream's blocks; each block has the name of its value's type."""
    made: list[Any] = []
    for frame in frames:
        if isinstance(frame, Block):
            name, data = frame.data.decode().removesuffix("\n\n").split("\n")
            made.append(json.loads(data.removeprefix("data: ")))
            assert name == f"event: {made[-1]['type']}"
    return made


def answer_of(events: Sequence[Semantic], ask: Ask = STREAM, request: dict[str, Any] | None = None) -> Any:
    """The JSON value of the answer without streaming."""
    head, body = frames_of(events, msgspec.structs.replace(ask, stream=False), request)
    assert isinstance(head, Head)
    assert isinstance(body, Body)
    return json.loads(body.data)


def sdk(frames: Sequence[Frame]) -> client.Anthropic:
    """The official client, wired to a server that answers every request with these frames."""
    head = frames[0]
    assert isinstance(head, Head)

    def answer(_request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(head.status, headers=list(head.headers), content=body_of(frames))

    return client.Anthropic(
        api_key="k", base_url="http://test", http_client=httpx2.Client(transport=httpx2.MockTransport(answer)),
        max_retries=0,
    )  # fmt: skip


def asked(client_: client.Anthropic, **fields: Any) -> client.types.Message:
    """``messages.create`` without streaming; its own types want every field by name."""
    create: Any = client_.messages.create
    made: client.types.Message = create(**fields)
    return made


SRC = (0, 0)
CALL: list[Semantic] = [
    CallStart(0, 0, "call_k1", "get_tide", SRC), CallArguments(0, 0, '{"port":', SRC),
    CallArguments(0, 0, '"Brest"}', SRC), CallEnd(0, 0, True),
]  # fmt: skip
OTHER_CALL: list[Semantic] = [
    CallStart(0, 1, "call_k2", "get_wind", SRC),
    CallArguments(0, 1, "{}", SRC),
    CallEnd(0, 1, True),
]

CASES: dict[str, list[Semantic]] = {
    "text": [
        Start(0, 9), Tokens(0, (1,)), Content(0, "Blue", SRC), Content(0, " sky.", SRC), Finish(0, "eos", 4),
        Usage(9, 4), End(),
    ],
    "G12": [
        Start(0, 9), Reasoning(0, "Need tides.", SRC), Content(0, "Looking", SRC), Content(0, " it up.", SRC), *CALL,
        Finish(0, "eos"), Usage(9, 12, reasoning=5), End(),
    ],
    "parallel": [Start(0, 9, 4), *CALL, *OTHER_CALL, Finish(0, "eos"), Usage(9, 12, 4), End()],
    "stop": [Start(0, 9), Content(0, "one ", SRC), Finish(0, "stop", "two"), Usage(9, 3), End()],
    "length": [Start(0, 9), Content(0, "one", SRC), Finish(0, "length"), Usage(9, 1), End()],
    "context": [Start(0, 9), Content(0, "one", SRC), Finish(0, "context"), Usage(9, 1), End()],
    "refusal": [Start(0, 9), Content(0, "Well. ", SRC), Refusal(0, "No.", SRC), Finish(0, "eos"), Usage(9, 2), End()],
    "filter": [Start(0, 9), Content(0, "Well. ", SRC), Finish(0, "filter"), Usage(9, 2), End()],
    "empty": [Start(0, 9), Finish(0, "eos", 4), Usage(9, 1), End()],
    "thinking": [Start(0, 9), Reasoning(0, "Hm", SRC), Finish(0, "length"), Usage(9, 1, reasoning=1), End()],
    "cut call": [Start(0, 9), *CALL[:2], CallEnd(0, 0, False), Finish(0, "length"), Usage(9, 5), End()],
    "stopped call": [Start(0, 9), *CALL[:2], CallEnd(0, 0, False), Finish(0, "stop", "B"), Usage(9, 5), End()],
    "broken call": [Start(0, 9), *CALL[:2], CallEnd(0, 0, False), Finish(0, "eos"), Usage(9, 5), End()],
    "error": [Start(0, 9), Content(0, "Lo", SRC), Failure("overloaded", "queue full"), End()],
}  # fmt: skip
"""Streams, by what is to see in them."""
