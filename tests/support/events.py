"""Events of every class: fixed ones, and Hypothesis strategies made from the types."""

from __future__ import annotations

from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from hypothesis import strategies as st

from stages.events import (
    AbortInput,
    Block,
    Body,
    CallArguments,
    CallEnd,
    CallStart,
    Comment,
    CommonChunk,
    Content,
    Done,
    Dropped,
    Echo,
    End,
    ErrorChunk,
    ErrorInput,
    Failure,
    Fault,
    FaultCode,
    Finish,
    FinishInput,
    Frame,
    Head,
    Input,
    Layer,
    Marker,
    PrefillInput,
    PromptInput,
    Reasoning,
    Refusal,
    ScheduledInput,
    Semantic,
    Sent,
    Start,
    Tick,
    TimingInput,
    TokenLogprob,
    Tokens,
    TokensInput,
    ToldInput,
    TopLogprob,
    Usage,
    UsageInput,
)
from stages.protocols.openai_chat import Chunk

UNIONS: dict[Layer, tuple[Any, ...]] = {
    "engine": get_args(Input),
    "semantic": get_args(Semantic),
    "chunk": (*get_args(CommonChunk), *get_args(Chunk)),
    "frame": (*get_args(Frame), Sent),
}

_LOGPROB = TokenLogprob(300, b"\xe6\xbd", -0.25, (TopLogprob(300, b"\xe6\xbd", -0.25), TopLogprob(7, b"a", -9999.0)))
_ECHO = Echo(1, "Où 潮", b"O", (_LOGPROB,))
_TOLD = ToldInput(CallArguments(0, 1, '{"port"', (3, 10)))
_CHUNK: dict[str, Any] = {
    "id": "chatcmpl-1",
    "object": "chat.completion.chunk",
    "created": 1760000000,
    "model": "demo-1",
    "system_fingerprint": "fp_1",
    "choices": [
        {
            "index": 0,
            "delta": {"content": "Où", "tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]},
            "logprobs": {
                "content": [{"token": "O", "logprob": -0.5, "bytes": [79], "top_logprobs": []}],
                "refusal": None,
            },
            "finish_reason": "stop",
        }
    ],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
}
_COMPLETION: dict[str, Any] = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1760000000,
    "model": "demo-1",
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "Où"}, "logprobs": None, "finish_reason": "stop"}
    ],
}

EVERY: dict[Layer, list[Any]] = {
    "engine": [
        PromptInput((1, 2, 70_000), "<|im_start|>assistant\n", 3, 1),
        ScheduledInput(),
        PrefillInput(1, 3),
        TokensInput(0, (300, 301), (b"\xe6\xbd", b"\xae"), "潮", (_LOGPROB, TokenLogprob(301, b"\xae", -1.5))),
        TokensInput(1, (), (), "text only"),
        TimingInput("queue", 12_345_678),
        _ECHO,
        _TOLD,
        Tick(),
        FinishInput(0, "stop", "\n\n"),
        FinishInput(1, "stop_token", 311),
        UsageInput(3, 2, 1),
        ErrorInput("engine", "out of memory", "oom", "messages"),
        AbortInput("client"),
    ],
    "semantic": [
        Start(0, 3, 1, (1, 2, 70_000)),
        Tokens(0, (300, 301), (_LOGPROB,)),
        Reasoning(0, "hm 潮", (0, 6)),
        Content(0, "Où\u2028\x00", (6, 13)),
        Refusal(0, "no", (13, 15)),
        CallStart(0, 0, "call_1", "tide", (15, 19)),
        CallArguments(0, 0, '{"port": "Brest"}', (19, 36)),
        CallEnd(0, 0, True),
        Marker(0, "</tool_call>", (36, 48)),
        Dropped(0, "<|im_end|>", (48, 58)),
        Fault(0, FaultCode.STRAY_MARKER, (58, 66), "</think>", "reasoning was not open"),
        Tick(),
        TimingInput("mean_gap", 10_538_667),
        _ECHO,
        Finish(0, "stop", "\n\n"),
        Usage(3, 2, 1, 1),
        Failure("engine", "out of memory", "oom", "messages"),
        End(),
    ],
    "chunk": [
        msgspec.convert(_CHUNK, Chunk),
        Tick(),
        msgspec.convert(_COMPLETION, Chunk),
        ErrorChunk(400, {"error": {"message": "no", "param": None, "at": [1, 2.5, True]}}, (("retry-after", "1"),)),
        Done(),
    ],
    "frame": [
        Head(200, (("content-type", "text/event-stream"),)),
        Comment(b": keep-alive\n\n"),
        Block(b'data: {"text": "O\xc3\xb9"}\n\n'),
        Body(b"\xff\x00 not UTF-8"),
        Sent(4, 1000),
    ],
}
"""At least one of every class, with no field at its default."""
LATER: tuple[Any, ...] = (TimingInput("mean_gap", 10_538_667), _ECHO, _TOLD)
"""Of these, the ones that their layer has had only since the golden trace of schema 1 was written: a new class makes no
new schema, because nothing that was stored reads otherwise."""


def of(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of a type that events are made of."""
    origin, args = get_origin(kind), get_args(kind)
    simple: dict[Any, st.SearchStrategy[Any]] = {
        int: st.integers(-(2**63), 2**63 - 1),
        str: st.text(max_size=8),
        bytes: st.binary(max_size=8),
        bool: st.booleans(),
        float: st.floats(allow_nan=False, allow_infinity=False),
        type(None): st.none(),
        FaultCode: st.sampled_from(FaultCode),
        Any: st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4),
    }
    if kind in simple:
        return simple[kind]
    if kind is msgspec.UnsetType:
        return st.just(msgspec.UNSET)
    if origin is Literal:
        return st.sampled_from(args)
    if origin in (Union, UnionType):
        return st.one_of([of(one) for one in args])
    if origin is tuple and args[1:] == (Ellipsis,):
        return st.lists(of(args[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*(of(one) for one in args))
    if origin is dict:
        return st.dictionaries(of(args[0]), of(args[1]), max_size=3)
    return struct(kind)


def struct(cls: Any) -> st.SearchStrategy[Any]:
    """Any instance of a Struct class."""
    hints = get_type_hints(cls)
    return st.builds(cls, **{info.name: of(hints[info.name]) for info in msgspec.structs.fields(cls)})


def events(layer: Layer) -> st.SearchStrategy[list[Any]]:
    """Events of a layer, of any class, in any order."""
    return st.lists(st.one_of([struct(cls) for cls in UNIONS[layer]]), max_size=20)
