"""The responses protocol: openings, streams as semantic events, requests for an Ask, the official SDK on our bytes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import httpx2
import msgspec
import openai

from replay.evidence import evidence_of
from stages.events import (
    Block,
    CallArguments,
    CallEnd,
    CallStart,
    Content,
    End,
    Failure,
    Finish,
    Frame,
    Head,
    Input,
    Reasoning,
    Refusal,
    Semantic,
    Start,
    TokenLogprob,
    Tokens,
    TopLogprob,
    Usage,
)
from stages.opening import Ask, EngineFacts, Opening, Tool
from stages.protocols.openai_responses import ENCODER, ChunkLayer
from stages.protocols.rules import Report, check
from stages.sse import FRAMER
from stages.stage import fold
from store.api import Trace
from tests.support.chat import body_of
from tests.support.replay import record

TOOLS = (Tool("get_tide", parameters={}), Tool("get_wind", parameters={}))


def request_of(ask: Ask, **fields: Any) -> dict[str, Any]:
    """A request that asks for this."""
    choice: Any = {"type": "function", "name": ask.function} if ask.function else ask.tool_choice
    return {
        "input": "hello",
        "stream": ask.stream,
        "stop": list(ask.stop),
        "stop_token_ids": list(ask.stop_ids),
        "include_stop_str_in_output": ask.include_stop,
        "tools": [
            {"type": "function", "name": tool.name, "parameters": tool.parameters, "strict": tool.strict}
            for tool in ask.tools
        ],
        "tool_choice": choice if ask.tools else None,
        "parallel_tool_calls": ask.parallel,
        "include_reasoning": ask.include_reasoning,
        "include": ["message.output_text.logprobs"] if ask.logprobs else [],
        "top_logprobs": ask.top_logprobs if ask.logprobs else None,
        "skip_special_tokens": not ask.keep_special,
        "ignore_eos": ask.ignore_eos,
        **fields,
    }


def opening(ask: Ask, **fields: Any) -> Opening:
    """An opening with the envelope of the golden streams. ``fields``: of the request."""
    return Opening(
        session="s", key="k", response_id="resp_a1", created=1760000000, opened=0, model="demo-1", ask=ask,
        protocol="responses", request=json.dumps(request_of(ask, **fields)).encode(),
        engine=EngineFacts(kind="scripted", model="demo-1", fingerprint="fp_demo"),
    )  # fmt: skip


def chunks_of(ask: Ask, events: Iterable[Semantic], **fields: Any) -> list[ChunkLayer]:
    """The encoder over events."""
    return fold(ENCODER.start(opening(ask, **fields)), events)


def frames_of(ask: Ask, events: Iterable[Semantic], **fields: Any) -> list[Frame]:
    """Encoder and framer over events."""
    return fold(FRAMER.start(opening(ask)), chunks_of(ask, events, **fields))


def payloads(frames: Iterable[Frame]) -> list[Any]:
    """The JSON values of a stream's blocks."""
    blocks = [frame.data.decode() for frame in frames if isinstance(frame, Block)]
    return [json.loads(block.split("data: ", 1)[1]) for block in blocks]


def values_of(ask: Ask, events: Iterable[Semantic], **fields: Any) -> list[Any]:
    """The JSON values of the stream."""
    return payloads(frames_of(msgspec.structs.replace(ask, stream=True), events, **fields))


def answer_of(ask: Ask, events: Sequence[Semantic], **fields: Any) -> Any:
    """The JSON value of the non-streaming answer."""
    return json.loads(body_of(frames_of(msgspec.structs.replace(ask, stream=False), events, **fields)))


def sdk(frames: Sequence[Frame]) -> openai.OpenAI:
    """The official client, wired to a server that answers every request with these frames."""
    head = frames[0]
    assert isinstance(head, Head)

    def answer(_request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(head.status, headers=list(head.headers), content=body_of(frames))

    client = httpx2.Client(transport=httpx2.MockTransport(answer))
    return openai.OpenAI(api_key="k", base_url="http://test/v1", http_client=client, max_retries=0)


def session_of(opened: Opening, inputs: Sequence[Input], **fields: Any) -> Trace:
    """The session that the real stages make of engine inputs, recorded, with a request for its Ask."""
    request = json.dumps(request_of(opened.ask, **fields)).encode()
    return record(
        msgspec.structs.replace(opened, protocol="responses", response_id="resp_1", request=request), inputs
    )  # fmt: skip


def assert_holds(session: Trace, allow: Sequence[str] = ()) -> Report:
    """No rule is broken, as an error or as a warning. ``allow``: keys of rules that the output breaks, not we."""
    report = check(evidence_of(session, effort=True))
    broken = [one for one in report.violations if one.key not in allow]
    assert broken == [], broken
    return report


def token(text: str, logprob: float = -0.5) -> Tokens:
    """The step of one token, with an alternative."""
    piece = text.encode()
    return Tokens(0, (1,), (TokenLogprob(1, piece, logprob, (TopLogprob(1, piece, logprob),)),))


CASES: dict[str, tuple[Ask, list[Semantic]]] = {
    "text": (
        Ask(stream=True),
        [Start(0, 9), Content(0, "Blue", (0, 4)), Content(0, " sky.", (4, 9)), Finish(0, "eos", 4), Usage(9, 4), End()],
    ),
    "G09": (
        Ask(stream=True),
        [
            Start(0, 9), Reasoning(0, "Need tides.", (0, 11)), Content(0, "Looking", (11, 18)),
            Content(0, " it up.", (18, 25)), CallStart(0, 0, "call_k1", "get_tide", (25, 33)),
            CallArguments(0, 0, '{"port":', (33, 41)), CallArguments(0, 0, '"Brest"}', (41, 49)), CallEnd(0, 0, True),
            Finish(0, "eos"), Usage(9, 12, 0, 5), End(),
        ],
    ),
    "G10": (
        Ask(stream=True),
        [Start(0, 9), Content(0, "Looking", (0, 7)), Finish(0, "length"), Usage(9, 12, 0, 5), End()],
    ),
    "G11": (
        Ask(stream=True),
        [Start(0, 9), Content(0, "Lo", (0, 2)), Failure("engine", "engine lost the request"), End()],
    ),
    "parallel": (
        Ask(stream=True, tools=TOOLS),
        [
            Start(0, 9), CallStart(0, 0, "call_k1", "get_tide", (0, 8)), CallArguments(0, 0, '{"port": 1}', (8, 19)),
            CallEnd(0, 0, True), CallStart(0, 1, "call_k2", "get_wind", (19, 27)), CallArguments(0, 1, "{}", (27, 27)),
            CallEnd(0, 1, True), Finish(0, "eos"), Usage(9, 12), End(),
        ],
    ),
    "refusal": (
        Ask(stream=True),
        [
            Start(0, 9), Content(0, "Well, ", (0, 6)), Refusal(0, "I may", (6, 11)), Refusal(0, " not.", (11, 16)),
            Finish(0, "eos"), Usage(9, 4), End(),
        ],
    ),
    "logprobs": (
        Ask(stream=True, logprobs=True, top_logprobs=1),
        [
            Start(0, 9), token("hm"), Reasoning(0, "hm", (0, 2)), token("Blue"), Content(0, "Blue", (2, 6)),
            token(" s"), token("ky"), Content(0, " sky", (6, 10)), token("<end>"), Finish(0, "eos"), Usage(9, 5, 0, 1),
            End(),
        ],
    ),
    "empty": (Ask(stream=True), [Start(0, 9), Finish(0, "eos"), Usage(9, 1), End()]),
}  # fmt: skip
"""Streams of each kind; those with a number are the golden ones."""
