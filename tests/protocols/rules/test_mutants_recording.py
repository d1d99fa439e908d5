"""Faults of recordings, and of streams against others of the same semantic events, by rule."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from stages.protocols.rules import Protocol, Sent
from tests.protocols.rules import responding
from tests.protocols.rules.richer import Edit, Fields, at, both, measured, of_type, out, said
from tests.support.wire import ABSENT, CHAT, COMPLETIONS, RESPONSE, Elements, Stream, breaks, golden

Value: TypeAlias = dict[str, Any]

PORT = '{"port":"Brest"}'
COUNTS = {
    "prompt_tokens": 9, "completion_tokens": 12, "total_tokens": 21,
    "completion_tokens_details": {"reasoning_tokens": 5}, "prompt_tokens_details": {"cached_tokens": 0},
}  # fmt: skip


def delta(finish: str | None = None, **fields: Any) -> Fields:
    return {"choices": [{"index": 0, "delta": fields, "logprobs": None, "finish_reason": finish}], "usage": None}


def calling(index: int, **function: Any) -> list[Fields]:
    return [{"index": index, "function": function}]


def header(index: int, id: str, name: str) -> list[Fields]:
    return [{"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}}]


TOOLS: list[Fields] = [
    {"type": "function", "function": {"name": name, "parameters": {}}} for name in ("get_tide", "get_wind")
]
TIDES = Stream(
    "chat",
    [
        delta(role="assistant", content=""), delta(reasoning="Need tides.", reasoning_content="Need tides."),
        delta(content="Looking"), delta(content=" it up."), delta(tool_calls=header(0, "call_k1", "get_tide")),
        delta(tool_calls=calling(0, arguments='{"port":')), delta(tool_calls=calling(0, arguments='"Brest"}')),
        delta("tool_calls"), {"choices": [], "usage": COUNTS}, "[DONE]",
    ],
    {"request": {"stream": True, "tools": TOOLS, "stream_options": {"include_usage": True}}},
)  # fmt: skip
"""In the chat protocol, what G09 and G12 say in theirs."""

TWO = TIDES.edited(
    lambda ev: [
        *ev[:7], delta(tool_calls=header(1, "call_k2", "get_wind")), delta(tool_calls=calling(1, arguments="{}")),
        *ev[7:],
    ]
)  # fmt: skip
REFUSED = Stream(
    "chat",
    [delta(role="assistant", content=""), delta(refusal="No"), delta(refusal="."), delta("stop"), *TIDES.elements[8:]],
    {"request": {"stream": True, "stream_options": {"include_usage": True}}},
)
PLAIN = Stream(
    "completions", [said(0, "Blue"), said(0, " sky."), said(0, "", "stop"), "[DONE]"], {"request": {"stream": True}}
)
ECHO = Stream(
    "completions",
    [
        said(0, "The sky", logprobs=measured(["The", " sky"], [None, -2.0], [0, 3])),
        said(0, " is", logprobs=measured([" is"], [-0.5], [7])), said(0, "", "stop"), "[DONE]",
    ],
    {"request": {"stream": True, "prompt": "The sky", "echo": True, "logprobs": 1}},
)  # fmt: skip

TEXTS = ("Need tides.", "Looking it up.")
WHOLE: dict[str, Value] = {
    "TIDES": {
        **CHAT, "id": "chatcmpl-other", "object": "chat.completion", "created": 1760000009, "usage": COUNTS,
        "choices": [{
            "index": 0, "logprobs": None, "finish_reason": "tool_calls",
            "message": {
                "role": "assistant", "content": TEXTS[1], "reasoning": TEXTS[0], "reasoning_content": TEXTS[0],
                "tool_calls": [
                    {"id": "call_z9", "type": "function", "function": {"name": "get_tide", "arguments": PORT}}
                ],
            },
        }],
    },
    "G04": {
        **CHAT, "id": "chatcmpl-other", "object": "chat.completion",
        "usage": {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14},
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "yes!"}, "finish_reason": "length"},
            {"index": 1, "message": {"role": "assistant", "content": "no"}, "finish_reason": "stop"},
        ],
    },
    "G06": {
        **CHAT, "id": "chatcmpl-other", "object": "chat.completion",
        "usage": {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13},
        "choices": [{
            "index": 0, "message": {"role": "assistant", "content": "Blue sky"}, "finish_reason": "stop",
            "logprobs": {"content": [
                {"token": "Blue", "logprob": -0.2, "bytes": [66, 108, 117, 101], "top_logprobs": []},
                {"token": " s", "logprob": -1.5, "bytes": [32, 115], "top_logprobs": []},
                {"token": "ky", "logprob": -0.1, "bytes": [107, 121], "top_logprobs": []},
            ], "refusal": None},
        }],
    },
    "ECHO": {
        **COMPLETIONS, "id": "cmpl-other", "usage": {"prompt_tokens": 2, "completion_tokens": 2, "total_tokens": 4},
        "choices": [{
            "index": 0, "text": "The sky is", "finish_reason": "stop",
            "logprobs": measured(["The", " sky", " is"], [None, -2.0, -0.5], [0, 3, 7]),
        }],
    },
    "G09": {
        **RESPONSE, **copy.deepcopy(golden("G09").elements[-1]["response"]), "id": "resp_other", "created_at": 1,
    },
    "G12": {
        "id": "msg_other", "type": "message", "role": "assistant", "model": "demo-1", "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 9, "output_tokens": 12, "output_tokens_details": {"thinking_tokens": 5}},
        "content": [
            {"type": "thinking", "thinking": TEXTS[0], "signature": "c2ln"}, {"type": "text", "text": TEXTS[1]},
            {"type": "tool_use", "id": "toolu_z9", "name": "get_tide", "input": {"port": "Brest"}},
        ],
    },
}  # fmt: skip
"""Bodies without streaming, with ids and times of their own."""

STREAMS = {
    "TIDES": TIDES,
    "G04": golden("G04"),
    "G06": golden("G06"),
    "ECHO": ECHO,
    "G09": golden("G09"),
    "G12": golden("G12"),
}

MESSAGE = ("choices", 0, "message")
CALL = (*MESSAGE, "tool_calls", 0, "function")


FOLDS: list[tuple[str, str, Edit]] = [
    ("TIDES", "text loses its end", at(0, *MESSAGE, "content", "Looking it up")),
    ("TIDES", "reasoning is text", at(0, *MESSAGE, "reasoning_content", "Need tides. ")),
    ("TIDES", "no calls", lambda ev: ev[0]["choices"][0]["message"].pop("tool_calls")),
    ("TIDES", "another tool", at(0, *CALL, "name", "get_wind")),
    ("TIDES", "other arguments", at(0, *CALL, "arguments", "{}")),
    ("TIDES", "another end", at(0, "choices", 0, "finish_reason", "stop")),
    ("TIDES", "another count", at(0, "usage", {**COUNTS, "completion_tokens": 13, "total_tokens": 22})),
    ("G04", "choices swapped", lambda ev: [one.update(index=1 - one["index"]) for one in ev[0]["choices"]]),
    ("G04", "one choice", lambda ev: ev[0]["choices"].pop()),
    ("G06", "an entry less", lambda ev: ev[0]["choices"][0]["logprobs"]["content"].pop(1)),
    ("G06", "no logprobs", at(0, "choices", 0, "logprobs", None)),
    ("ECHO", "no echo", at(0, "choices", 0, "text", " is")),
    ("ECHO", "another logprob", at(0, "choices", 0, "logprobs", "token_logprobs", [None, -2.0, -0.25])),
    ("G09", "another text", at(0, "output", 1, "content", 0, "text", "Looking it up!")),
    ("G09", "cut", both(at(0, "status", "incomplete"), at(0, "incomplete_details", {"reason": "max_output_tokens"}))),
    ("G09", "no reasoning", lambda ev: ev[0]["output"].pop(0)),
    ("G12", "another input", at(0, "content", 2, "input", {"port": "Brest "})),
    ("G12", "another reason", at(0, "stop_reason", "end_turn")),
    ("G12", "another thought", at(0, "content", 0, "thinking", "Need tide.")),
    ("G12", "another count", at(0, "usage", "input_tokens", 8)),
]


def folded(name: str, edit: Edit = lambda _: None) -> Stream:
    """A stream, and the body without streaming; ``edit``: gets that alone in a list."""
    whole = copy.deepcopy(WHOLE[name])
    edit([whole])
    return STREAMS[name].known(whole=json.dumps(whole).encode())


@pytest.mark.parametrize(("name", "what", "edit"), FOLDS, ids=[f"{name}-{what}" for name, what, _ in FOLDS])
def test_another_body_without_streaming(name: str, what: str, edit: Edit) -> None:
    breaks(132, folded(name), folded(name, edit))


def test_a_stream_that_lost_a_delta() -> None:
    breaks(132, folded("TIDES"), folded("TIDES").edited(out(3)))


def beside(base: Stream, other: Stream, edit: Edit = lambda elements: None) -> Stream:
    """A stream, and another of the same events."""
    return base.known(other=(other.protocol, other.edited(edit).body))


LAST = len(responding.RICH.elements) - 1
G09, G12 = golden("G09"), golden("G12")
BLUE = (
    golden("G01")
    .asking(stream_options={})
    .edited(lambda ev: [{key: value for key, value in one.items() if key != "usage"} for one in ev[:4]] + ["[DONE]"])
)
DONE = G09.elements[-1]["response"]["usage"]
REFUSING = responding.Responding().parts(responding.message("msg_1"), ("refusal", ["No."])).end("completed", usage=DONE)
TELLING = (
    responding.Responding().parts(responding.message("msg_1"), ("output_text", ["No."])).end("completed", usage=DONE)
)
STOPPING = of_type(G12, "message_delta")


def spelt(old: str, new: str) -> Edit:
    """Every occurrence."""
    return lambda elements: json.loads(json.dumps(elements).replace(old, new))


CROSSED: list[tuple[str, Stream, Stream, Edit]] = [
    ("another text", G09, G12, at(8, "delta", "text", " it")),
    ("another thought", G12, G09, spelt("Need tides.", "Need tide.")),
    ("other arguments", G09, G12, at(12, "delta", "partial_json", '{"port":"Nice"}')),
    ("another tool", TIDES, G12, at(10, "content_block", "name", "get_wind")),
    ("another end", TIDES, G12, at(STOPPING, "delta", "stop_reason", "end_turn")),
    ("another count", TIDES, G12, at(STOPPING, "usage", "output_tokens", 13)),
    ("another prompt", G12, TIDES, at(8, "usage", {**COUNTS, "prompt_tokens": 10, "total_tokens": 22})),
    ("a call too many", G09, TIDES, lambda ev: TWO.elements),
    ("calls the other way round", TWO, TWO, both(
        at(4, "choices", 0, "delta", "tool_calls", header(0, "call_k2", "get_wind")),
        at(5, "choices", 0, "delta", "tool_calls", calling(0, arguments="{}")),
        at(6, "choices", 0, "delta", {}),
        at(7, "choices", 0, "delta", "tool_calls", header(1, "call_k1", "get_tide")),
        at(8, "choices", 0, "delta", "tool_calls", calling(1, arguments=PORT)),
    )),
    ("refusal as text", REFUSED, REFUSING, lambda ev: TELLING.elements),
    ("half the text", BLUE, PLAIN, out(1)),
    ("an end that has no text", BLUE, PLAIN, at(2, "choices", 0, "finish_reason", "length")),
]  # fmt: skip


@pytest.mark.parametrize(("what", "base", "other", "edit"), CROSSED, ids=[what for what, *_ in CROSSED])
def test_the_same_events_say_something_else_in_another_protocol(
    what: str, base: Stream, other: Stream, edit: Edit
) -> None:
    breaks(133, beside(base, other), beside(base, other, edit))


def test_a_named_call_ends_in_other_words_elsewhere() -> None:
    named = TIDES.asking(tool_choice={"type": "function", "function": {"name": "get_tide"}})
    named = beside(named.edited(at(7, "choices", 0, "finish_reason", "stop")), G12)
    assert 133 in named.report().checked
    assert "INV-133" not in named.report().counts


def replayed(stream: Stream, spoil: Callable[[bytes], bytes] = lambda body: body) -> Stream:
    return stream.known(replayed=spoil(stream.body))


JOINED = TIDES.edited(both(at(2, "choices", 0, "delta", "content", TEXTS[1]), out(3)))
REPLAYS: list[tuple[str, Stream, Callable[[bytes], bytes]]] = [
    ("another time", TIDES, lambda body: body.replace(b"1760000000", b"1760000001")),
    ("one id less", TWO, lambda body: body.replace(b"call_k2", b"call_k3")),
    ("deltas joined", TIDES, lambda _: JOINED.body),
    ("no end", G12, lambda body: body[: body.rindex(b"event: message_stop")]),
    ("spaces", G09, lambda body: body.replace(b'"delta":', b'"delta": ', 1)),
    ("nothing", TIDES, lambda _: b""),
]


@pytest.mark.parametrize(("what", "stream", "spoil"), REPLAYS, ids=[what for what, *_ in REPLAYS])
def test_encoded_again_it_is_something_else(what: str, stream: Stream, spoil: Callable[[bytes], bytes]) -> None:
    breaks(134, replayed(stream), replayed(stream, spoil))


ENTRY = {"index": 0, "id": "call_k1", "type": "function", "function": {"name": "get_tide", "arguments": PORT}}
ROUNDS: list[tuple[str, Stream, Edit]] = [
    ("text on the finish chunk", golden("G01"), at(3, "choices", 0, "delta", {"content": "!"})),
    ("a role again", golden("G03"), at(3, "choices", 0, "delta", "role", "assistant")),
    ("a key of nobody", TIDES, at(2, "choices", 0, "delta", "mood", "good")),
    ("a call in one entry", TIDES, both(at(4, "choices", 0, "delta", "tool_calls", [ENTRY]), out(5), out(5))),
    ("no usage on one chunk", TIDES, at(5, "usage", ABSENT)),
]


@pytest.mark.parametrize(("what", "stream", "edit"), ROUNDS, ids=[what for what, *_ in ROUNDS])
def test_it_is_not_what_its_own_events_give(what: str, stream: Stream, edit: Edit) -> None:
    stream = stream.known(effort=True)
    breaks(135, stream, stream.edited(edit))


HALVES: list[tuple[str, Stream, bytes, bytes, bytes, bytes]] = [
    ("content", TIDES, b'"Looking"', rb'"\ud83d"', b'" it up."', rb'"\ude00"'),
    ("arguments", TIDES, rb'"{\"port\":"', rb'"{\"port\":\"\ud83d"', rb'"\"Brest\"}"', rb'"\ude00\"}"'),
    ("text of a completion", PLAIN, b'"Blue"', rb'"Blue \ud83d"', b'" sky."', rb'"\ude00 sky."'),
    ("text of a response", G09, b'"Looking"', rb'"\ud83d"', b'" it up."', rb'"\ude00"'),
    ("text of a message", G12, b'"Looking"', rb'"\ud83d"', b'" it up."', rb'"\ude00"'),
]


@pytest.mark.parametrize("halves", HALVES, ids=[what for what, *_ in HALVES])
def test_a_character_in_two_deltas(halves: tuple[str, Stream, bytes, bytes, bytes, bytes]) -> None:
    _, stream, first, high, second, low = halves
    stream = stream.known(effort=True)
    breaks(137, stream, stream.reworked(lambda body: body.replace(first, high).replace(second, low)))


def taken(stream: Stream, spoil: Callable[[bytes], bytes] = lambda body: body) -> Stream:
    """A stream, and what the socket took of it."""
    handed = spoil(stream.body)
    return stream.known(sent=Sent(len(handed), hashlib.sha256(handed).hexdigest()))


SOCKETS: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("one byte less", lambda body: body[:-1]),
    ("a keep-alive that was not recorded", lambda body: b": keep-alive\n\n" + body),
    ("as many bytes, and others", lambda body: body.replace(b"Brest", b"brest", 1)),
]


@pytest.mark.parametrize(("what", "spoil"), SOCKETS, ids=[what for what, _ in SOCKETS])
@pytest.mark.parametrize("name", ["TIDES", "G09", "G12"])
def test_the_socket_took_something_else(name: str, what: str, spoil: Callable[[bytes], bytes]) -> None:
    breaks(136, taken(STREAMS[name]), taken(STREAMS[name], spoil))


@pytest.mark.parametrize("protocol", ["chat", "completions", "responses", "messages"])
def test_an_empty_body_is_what_the_socket_took(protocol: Protocol) -> None:
    nothing: Elements = []
    assert "INV-136" not in taken(Stream(protocol, nothing)).report().counts


@pytest.mark.parametrize("stream", [TIDES, TWO, REFUSED, PLAIN, ECHO, BLUE, REFUSING], ids=range(7))
def test_the_streams_are_clean(stream: Stream) -> None:
    assert not stream.report().violations
