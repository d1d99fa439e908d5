"""Streams that break no rule, with everything known about them, where the golden streams are too small.

Token ids, pieces and texts are made up; they agree with each other.
"""

from __future__ import annotations

from typing import Any

from stages.message import Message, ToolCall
from stages.protocols.rules import EngineChoice, EngineFacts, Http
from tests.support.wire import Stream, chunk, golden

PROMPT_IDS = tuple(range(1, 10))
HTTP = Http(
    200,
    (
        ("content-type", "text/event-stream; charset=utf-8"),
        ("cache-control", "no-cache, no-transform"),
        ("x-accel-buffering", "no"),
        ("transfer-encoding", "chunked"),
        ("x-request-id", "req-7"),
    ),
    request_headers=(("content-type", "application/json"), ("accept", "application/json")),
    seen_ids=frozenset(("req-5", "req-6")),
)
USAGE = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}
TIDE: dict[str, Any] = {"type": "object", "properties": {"port": {"type": "string"}}, "required": ["port"]}
TOOLS = [
    {"type": "function", "function": {"name": "get_tide", "parameters": TIDE}},
    {"type": "function", "function": {"name": "get_wind"}},
]
CALLS = (ToolCall("call_k1", "get_tide", '{"port":"Brest"}'), ToolCall("call_k2", "get_wind", "{}"))
HEAD: tuple[dict[str, Any], ...] = (
    {"index": 0, "id": "call_k1", "type": "function", "function": {"name": "get_tide", "arguments": ""}},
    {"index": 1, "id": "call_k2", "type": "function", "function": {"name": "get_wind", "arguments": ""}},
)


def usage(prompt: int, completion: int, **more: Any) -> dict[str, Any]:
    """A chat usage object."""
    return {
        "prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion, **more,
    }  # fmt: skip


def facts(ids: tuple[int, ...], reason: str | None = "eos", cap: int = 1000, **more: Any) -> EngineFacts:
    """An engine that generated one choice from nine prompt tokens. ``more``: fields of EngineFacts."""
    return EngineFacts({0: EngineChoice(ids, reason, cap)}, prompt=9, prompt_ids=PROMPT_IDS, **more)


def argument(text: str, index: int = 0) -> dict[str, Any]:
    """A chat delta with a fragment of a call's arguments."""
    return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}


def thought(text: str) -> dict[str, Any]:
    """A chat delta of reasoning, under both names."""
    return {"reasoning": text, "reasoning_content": text}


def entry(text: str, logprob: float = -0.5) -> dict[str, Any]:
    """A logprob entry with two alternatives."""
    mine: dict[str, Any] = {"token": text, "logprob": logprob, "bytes": list(text.encode())}
    other = {"token": "?", "logprob": logprob - 1.0, "bytes": [63]}
    return {**mine, "top_logprobs": [mine, other]}


def entries(*texts: str) -> dict[str, Any]:
    """A chunk's logprobs object."""
    return {"content": [entry(text) for text in texts], "refusal": None}


def _chat(elements: list[Any], **known: Any) -> Stream:
    return Stream("chat", [*elements, "[DONE]"], {"http": HTTP, **known})


def _with(element: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A chunk with more keys in its choice."""
    element["choices"][0].update(more)
    return element


ROLE: dict[str, Any] = {"role": "assistant", "content": ""}
ASKED = {"stream": True, "stream_options": {"include_usage": True}}
RUNNING = {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}

PLAIN = golden("G01").known(
    http=HTTP,
    engine=EngineFacts({0: EngineChoice((11, 12, 13, 14), "eos", 100, (b"Blue", b" s", b"ky.", b""))}, 9, PROMPT_IDS),
    meant=[Message(0, content="Blue sky.", finish_reason="stop")],
)

ERROR = golden("G05").known(http=HTTP, engine=facts((11,), None), meant=[Message(0, content="Bl")])

KEPT = PLAIN.edited(
    lambda ev: [part for element in ev[:-1] for part in (b": keep-alive\n\n", element)] + [b": \n\n", ev[-1]]
)
"""Keep-alive comments."""


def _two() -> Stream:
    """Two choices, logprobs with alternatives, and usage as it runs."""
    texts = (("Sky", " is", " blue"), ("Sea", " is", " wet", " too"))
    elements = [chunk(ROLE, index, usage=usage(9, 0)) for index in (0, 1)]
    for place in range(4):
        for index in (0, 1):
            if place < len(texts[index]):
                text = texts[index][place]
                elements.append(chunk({"content": text}, index, logprobs=entries(text), usage=usage(9, place + 1)))
    elements += [chunk({}, 1, "length", usage=usage(9, 4)), chunk({}, 0, "stop", usage=usage(9, 4))]
    pieces = tuple(tuple(text.encode() for text in of) for of in texts)
    return _chat(
        [*elements, {"choices": [], "usage": usage(9, 8)}],
        request={**RUNNING, "n": 2, "logprobs": True, "top_logprobs": 2, "max_tokens": 4},
        engine=EngineFacts(
            {
                0: EngineChoice((31, 32, 33, 34), "eos", 4, (*pieces[0], b"")),
                1: EngineChoice((41, 42, 43, 44), "length", 4, pieces[1]),
            },
            9,
            PROMPT_IDS,
        ),
        meant=[
            Message(0, content="Sky is blue", finish_reason="stop"),
            Message(1, content="Sea is wet too", finish_reason="length"),
        ],
    )


TWO = _two()

AGENT = _chat(
    [
        chunk(ROLE, prompt_token_ids=list(PROMPT_IDS), usage=None),
        _with(chunk(thought("Need "), usage=None), token_ids=[21]),
        _with(chunk(thought("tides."), usage=None), token_ids=[22, 23]),
        _with(chunk({"content": "Looking"}, usage=None), token_ids=[24]),
        _with(chunk({"content": " it up."}, usage=None), token_ids=[25, 26]),
        _with(chunk({"tool_calls": [HEAD[0]]}, usage=None), token_ids=[27, 28]),
        _with(chunk(argument('{"port":'), usage=None), token_ids=[29]),
        _with(chunk(argument('"Brest"}'), usage=None), token_ids=[30]),
        _with(chunk({"tool_calls": [HEAD[1]]}, usage=None), token_ids=[31]),
        _with(chunk(argument("{}", 1), usage=None), token_ids=[32]),
        _with(chunk({}, finish="tool_calls", usage=None), token_ids=[33]),
        {"choices": [], "usage": usage(9, 13, completion_tokens_details={"reasoning_tokens": 3})},
    ],
    request={**ASKED, "tools": TOOLS, "return_token_ids": True},
    engine=facts(tuple(range(21, 34)), markers=("<think>", "</think>", "<tool_call>", "</tool_call>")),
    meant=[Message(0, "Need tides.", "Looking it up.", None, CALLS, "tool_calls")],
)
"""Reasoning, content and two calls, with token ids."""

HIDDEN = _chat(
    [
        chunk(ROLE, usage=None),
        chunk({"content": "It is "}, usage=None),
        chunk({"content": "4."}, usage=None),
        chunk({}, finish="stop", usage=None),
        {"choices": [], "usage": usage(9, 7, completion_tokens_details={"reasoning_tokens": 4})},
    ],
    request={**ASKED, "include_reasoning": False, "logprobs": True, "return_token_ids": True},
    engine=facts(tuple(range(21, 28)), markers=("<think>", "</think>")),
    meant=[Message(0, "The sum of two and two", "It is 4.", finish_reason="stop")],
)
"""Reasoning that is generated and not sent."""

REFUSED = _chat(
    [
        chunk({"role": "assistant", "content": "", "refusal": None}),
        chunk({"refusal": "I can"}),
        chunk({"refusal": "not."}),
        chunk({}, finish="stop"),
    ],
    request={"stream": True},
    engine=facts((21, 22, 23)),
    meant=[Message(0, refusal="I cannot.", finish_reason="stop")],
)

STOPPED = _chat(
    [
        chunk(ROLE),
        chunk({"content": "It is "}),
        chunk({"content": "42"}),
        _with(chunk({}, finish="stop"), stop_reason="</answer>"),
    ],
    request={"stream": True, "stop": ["</answer>", "\n\n"]},
    engine=facts((21, 22, 23, 24), "stop"),
    meant=[Message(0, content="It is 42", finish_reason="stop")],
)
"""Ended by a stop string that the request gave."""


def _long() -> Stream:
    """Hundreds of chunks: reasoning, content, one call in many fragments."""
    thoughts = [f"t{number} " for number in range(60)]
    words = [f"w{number} " for number in range(300)]
    fragments = ['{"port":"', *(f"p{number} " for number in range(100)), '"}']
    deltas = [thought(text) for text in thoughts] + [{"content": text} for text in words]
    deltas += [{"tool_calls": [HEAD[0]]}, *(argument(text) for text in fragments)]
    elements = [chunk(delta, usage=None) for delta in (ROLE, *deltas)] + [chunk({}, finish="tool_calls", usage=None)]
    count = len(deltas) + 1
    call = ToolCall("call_k1", "get_tide", "".join(fragments))
    return _chat(
        [*elements, {"choices": [], "usage": usage(9, count)}],
        request={**ASKED, "tools": TOOLS},
        engine=facts(tuple(range(100, 100 + count)), markers=("<think>", "</think>")),
        meant=[Message(0, "".join(thoughts), "".join(words), None, (call,), "tool_calls")],
    )


LONG = _long()

TEXT = golden("G07").asking(prompt="Say: ", max_tokens=2).known(
    http=HTTP,
    engine=EngineFacts({0: EngineChoice((11, 12), "length", 2, (b"Blue", b" sky"))}, prompt=3),
    meant=[Message(0, content="Blue sky", finish_reason="length")],
)  # fmt: skip
"""Completions."""

_ONE_CALL = [Message(0, "Need tides.", "Looking it up.", None, CALLS[:1], "tool_calls")]

ITEMS = golden("G09").asking(tools=[{"type": "function", "name": "get_tide", "parameters": TIDE}]).known(
    http=HTTP, engine=facts(tuple(range(21, 33))), meant=_ONE_CALL
)  # fmt: skip
"""Responses."""

BLOCKS = golden("G12").asking(max_tokens=100, tools=[{"name": "get_tide", "input_schema": TIDE}]).known(
    http=HTTP, engine=facts(tuple(range(21, 33)), cap=100), meant=_ONE_CALL
)  # fmt: skip
"""Messages."""

BASES = {
    "plain": PLAIN, "error": ERROR, "kept": KEPT, "two": TWO, "agent": AGENT, "hidden": HIDDEN, "refused": REFUSED,
    "stopped": STOPPED, "long": LONG, "text": TEXT, "items": ITEMS, "blocks": BLOCKS,
}  # fmt: skip
