"""Chat completions: openings, golden streams as semantic events, and the official SDK reading our bytes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import openai

from stages.events import (
    Block,
    Body,
    CallArguments,
    CallEnd,
    CallStart,
    Comment,
    Content,
    End,
    Failure,
    Finish,
    Frame,
    Head,
    Reasoning,
    Semantic,
    Start,
    TokenLogprob,
    Tokens,
    Usage,
)
from stages.opening import Ask, EngineFacts, Opening, Tool
from stages.protocols.openai_chat import ENCODER, ChunkLayer
from stages.sse import FRAMER
from stages.stage import fold

DATA = Path(__file__).parent.parent / "data"
TOOLS = (Tool("get_tide", parameters={}), Tool("get_wind", parameters={}))


def opening(ask: Ask, fingerprint: str | None = "fp_demo") -> Opening:
    """An opening with the envelope of the golden streams."""
    return Opening(
        session="s", key="k", response_id="chatcmpl-7a1", created=1760000000, opened=0, model="demo-1", ask=ask,
        engine=EngineFacts(kind="scripted", model="demo-1", fingerprint=fingerprint),
    )  # fmt: skip


def chunks_of(ask: Ask, events: Iterable[Semantic]) -> list[ChunkLayer]:
    """The encoder over events."""
    return fold(ENCODER.start(opening(ask)), events)


def frames_of(ask: Ask, events: Iterable[Semantic]) -> list[Frame]:
    """Encoder and framer over events."""
    return fold(FRAMER.start(opening(ask)), chunks_of(ask, events))


def body_of(frames: Iterable[Frame]) -> bytes:
    """The body bytes of a response."""
    return b"".join(frame.data for frame in frames if isinstance(frame, Block | Body | Comment))


def payloads(frames: Iterable[Frame]) -> list[Any]:
    """The JSON values of a stream's blocks, and ``[DONE]`` as text."""
    texts = [frame.data.decode().removeprefix("data: ").strip() for frame in frames if isinstance(frame, Block)]
    return [text if text == "[DONE]" else json.loads(text) for text in texts]


def choices_of(frames: Iterable[Frame]) -> list[Any]:
    """All choice objects of a stream, in order."""
    return [choice for chunk in payloads(frames) if chunk != "[DONE]" for choice in chunk.get("choices", ())]


def answer_of(ask: Ask, events: Sequence[Semantic]) -> Any:
    """The JSON value of the non-streaming answer."""
    head, body = frames_of(msgspec.structs.replace(ask, stream=False), events)
    assert isinstance(head, Head)
    assert isinstance(body, Body)
    return json.loads(body.data)


def sdk(frames: Sequence[Frame]) -> openai.OpenAI:
    """The official client, wired to a server that answers every request with these frames."""
    head = frames[0]
    assert isinstance(head, Head)

    def answer(_request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(head.status, headers=list(head.headers), content=body_of(frames))

    client = httpx2.Client(transport=httpx2.MockTransport(answer))
    return openai.OpenAI(api_key="k", base_url="http://test/v1", http_client=client, max_retries=0)


# --- the golden streams as semantic events ----------------------------------------------------------------------------


def _logprob(token_id: int, piece: bytes, logprob: float) -> TokenLogprob:
    return TokenLogprob(token_id, piece, logprob)


CASES: dict[str, tuple[Ask, list[Semantic]]] = {
    "G01": (
        Ask(stream=True, include_usage=True),
        [
            Start(0, 9), Tokens(0, (1,)), Content(0, "Blue", (0, 4)), Tokens(0, (2, 3)), Content(0, " sky.", (4, 9)),
            Tokens(0, (4,)), Finish(0, "eos", 4), Usage(9, 4), End(),
        ],
    ),
    "G02": (
        Ask(stream=True, tools=TOOLS),
        [
            Start(0, 9),
            CallStart(0, 0, "call_k1", "get_tide", (0, 8)), CallArguments(0, 0, '{"port":', (8, 16)),
            CallArguments(0, 0, '"Brest"}', (16, 24)), CallEnd(0, 0, True),
            CallStart(0, 1, "call_k2", "get_wind", (24, 32)), CallArguments(0, 1, "{}", (32, 32)), CallEnd(0, 1, True),
            Finish(0, "eos"), Usage(9, 12), End(),
        ],
    ),
    "G03": (
        Ask(stream=True),
        [
            Start(0, 9), Reasoning(0, "2+2", (0, 3)), Reasoning(0, " is 4", (3, 8)), Content(0, "4", (8, 9)),
            Finish(0, "eos"), Usage(9, 5, reasoning=3), End(),
        ],
    ),
    "G04": (
        Ask(stream=True, n=2),
        [
            Start(0, 9), Start(1, 9), Content(1, "no", (0, 2)), Content(0, "yes", (0, 3)), Finish(1, "eos"),
            Content(0, "!", (3, 4)), Finish(0, "length"), Usage(9, 4), End(),
        ],
    ),
    "G05": (
        Ask(stream=True),
        [Start(0, 9), Content(0, "Bl", (0, 2)), Failure("engine", "engine lost the request"), End()],
    ),
    "G06": (
        Ask(stream=True, logprobs=True),
        [
            Start(0, 9),
            Tokens(0, (1,), (_logprob(1, b"Blue", -0.2),)), Content(0, "Blue", (0, 4)),
            Tokens(0, (2,), (_logprob(2, b" s", -1.5),)),
            Tokens(0, (3,), (_logprob(3, b"ky", -0.1),)), Content(0, " sky", (4, 8)),
            Finish(0, "eos"), Usage(9, 3), End(),
        ],
    ),
}  # fmt: skip
